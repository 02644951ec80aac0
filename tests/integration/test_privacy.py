"""What padfix logs, warns of, raises and counts holds no token id of a prompt and no text."""

from __future__ import annotations

import functools
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import PADDERS, build
from stock import outcome

import padfix
from padfix import PadfixError, notices

# Ids that no shape, length or count of these calls is.
SECRET = (7013, 7127, 7219, 7331, 7433, 7541, 7643)
ROWS = [list(SECRET), list(SECRET[2:5]), [SECRET[6], SECRET[1]]]
SIZES: dict[str, Any] = {"vocab_size": 9000, "max_position_embeddings": 64}

CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no mask": {"attention_mask": None},
    "no mask and pad is EOS": {"attention_mask": None, "pad_token_id": 2, "eos_token_id": 2},
    "bans": {"bad_words_ids": [[7013, 7127]], "max_time": 9.0},
    "biases": {"sequence_bias": {(7013, 7127): 4.0}, "assistant_model": None},
    "bound": {"cache_position": torch.arange(7)},
    "loops": {"prompt_lookup_num_tokens": 2, "synced_gpus": True},
    "positions": {"position_ids": torch.tensor([[7013, 7127, 7219, 7331, 7433, 7541, 7643]])[:, :5]},
    "unknown labels": {"segments": torch.tensor([SECRET] * 3)},
    "another mask": {"attention_mask": torch.tensor([SECRET] * 3)},
    "negative prompts": {"negative_prompt_ids": torch.tensor([[7013, 7127, 0]] * 3), "guidance_scale": 1.5},
    "a cache that is none": {"past_key_values": [[7013]]},
    "forced": {"forced_bos_token_id": 7013, "suppress_tokens": [7127]},
    "words": {"stop_strings": ["secret words 7013"], "tokenizer": None},
}


class _Span:
    """A span that is recording, and what is set on it."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}

    def is_recording(self) -> bool:
        return True

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self.attributes |= attributes


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["llama", "blenderbot"])
@pytest.mark.parametrize("mode", ["fix", "warn", "strict"])
def test_nothing_that_is_said_holds_a_prompt(
    mode: str, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, logger="padfix")
    span = _Span()
    trace: Any = SimpleNamespace(get_current_span=lambda: span)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    said: list[str] = []
    for side in ("right", "left"):
        for what, changes in CALLS.items():
            notices.forget()
            model, batch = build(name, **SIZES), PADDERS[side](ROWS)
            arguments = {**batch, "do_sample": False, "max_new_tokens": 2, **changes}
            with padfix.override(mode):
                got = outcome(functools.partial(model.generate, **arguments))
            said += [f"{side}, {what}: {one}" for one in got.said]
            if isinstance(got.error, PadfixError):
                said.append(f"{side}, {what}: {got.error}")
            said.append(f"{side}, {what}: {padfix.stats().as_dict()}")
    said += [f"{one.name}: {one.getMessage()}" for one in caplog.records if one.name.startswith("padfix")]
    said.append(str(span.attributes))
    assert len([one for one in said if "padfix" in one or "Rows" in one]) > 10
    assert not [one for one in said if any(str(secret) in one for secret in SECRET) or "secret" in one]
