"""A step of decoding costs padfix no loop over rows and no host sync, whatever the flags."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from facts import RELEASE
from oracle import GREEDY, build, right_padded
from torch import Tensor
from transformers import LogitsProcessor

import padfix

ROOT = str(Path(padfix.__file__).parent)
# Longer than every window of the flags here, so that no row has to be told apart by its length.
LENGTHS = (9, 6, 8, 7, 12, 6, 10, 11, 9, 6, 8, 7)
SYNCS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "cpu", "numpy", "nonzero")


class Own(LogitsProcessor):
    """A processor of the caller's."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores


FLAGS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "beams": {"num_beams": 2},
    "several returned": {"do_sample": True, "num_return_sequences": 2},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.3},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 3},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 3},
    "min_length": {"min_length": 40},
    "min_new_tokens": {"min_new_tokens": 20},
    "bad_words_ids": {"bad_words_ids": [[5, 6], [7]]},
    "sequence_bias": {"sequence_bias": {(5, 6): 1.0, (7,): -1.0}},
    "suppress_tokens": {"suppress_tokens": [5], "begin_suppress_tokens": [6]},
    "own processor": {"logits_processor": [Own()]},
}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The lines of padfix that run in a block, and the host syncs that they ask for."""
    found = {"lines": 0, "syncs": 0}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        found["lines"] += event == "line"
        return line

    def call(frame: FrameType, *_: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(ROOT) else None

    with monkeypatch.context() as patch:
        for name in SYNCS:
            original = getattr(Tensor, name)

            def sync(self: Tensor, *args: Any, original: Any = original) -> Any:
                found["syncs"] += sys._getframe(1).f_code.co_filename.startswith(ROOT)
                return original(self, *args)

            patch.setattr(Tensor, name, sync)
        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield found
        finally:
            sys.settrace(before)


def of_eight_steps(monkeypatch: pytest.MonkeyPatch, rows: int, flags: Mapping[str, Any]) -> tuple[int, int]:
    """The lines of padfix that eight steps of decoding run for so many rows, and the host syncs."""
    drawn = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, 99, (length,), generator=drawn).tolist() for length in LENGTHS[:rows]]
    model, batch, found = build("llama"), right_padded(prompts), []
    for new in (4, 4, 12):  # what is done once in a process or for a model is done in the first
        torch.manual_seed(0)
        with counted(monkeypatch) as count:
            model.generate(**batch, **{**GREEDY, **flags, "max_new_tokens": new, "eos_token_id": None})
        found.append(count)
    _, few, many = found
    return many["lines"] - few["lines"], many["syncs"] - few["syncs"]


@pytest.mark.filterwarnings("ignore:Unfeasible length constraints")
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("flag", FLAGS)
def test_steps_cost_the_same_for_many_rows_and_sync_nothing(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (of_eight_steps(monkeypatch, rows, FLAGS[flag]) for rows in (3, 12))
    assert few == many
    assert many[1] == 0
    if flag in ("repetition_penalty", "own processor"):
        assert many[0] > 0
    if flag in ("none", "beams", "several returned", "min_new_tokens") and RELEASE >= (5, 24):
        assert many[0] == 0


def test_what_is_counted_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as found:
        padfix.layout.detect.from_mask(torch.tensor([[1, 0]]))
    assert found["lines"] >= 1
    assert found["syncs"] == 1
