"""Rubbish for every entry point but `generate`: it does, or raises what its documentation says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
from oracle import build
from properties.rubbish import VALUES
from words import worded

import padfix
from padfix import BatchPolicy, PadfixError

pytestmark = pytest.mark.filterwarnings("ignore::padfix.PadfixWarning")

TEXTS = ["w5 w6 w7", "w8"]
MASK = torch.tensor([[1, 1, 1], [1, 0, 0]])


@functools.cache
def _tokenizer() -> Any:
    return worded("$A", pad_token="w9")


@functools.cache
def _generated() -> tuple[Any, Any]:
    batch, arguments = BatchPolicy().prepare(build("llama"), _tokenizer(), TEXTS, 2)
    return build("llama").generate(**batch, **arguments), batch


def _overridden(value: Any) -> None:
    with padfix.override(value):
        pass


# What is called with a value in the place of one argument.
ENTRIES: dict[str, Callable[[Any], object]] = {
    "prompts": lambda value: BatchPolicy().prepare(build("llama"), _tokenizer(), value),
    "a prompt": lambda value: BatchPolicy().prepare(build("llama"), _tokenizer(), [value, *TEXTS]),
    "max_new_tokens": lambda value: BatchPolicy().prepare(build("llama"), _tokenizer(), TEXTS, value),
    "the model": lambda value: BatchPolicy().prepare(value, _tokenizer(), TEXTS),
    "the tokenizer": lambda value: BatchPolicy().prepare(build("llama"), value, TEXTS),
    "padding_side": lambda value: BatchPolicy(padding_side=value),
    "generated": lambda value: BatchPolicy().decode_replies(_tokenizer(), value, _generated()[1]),
    "the batch": lambda value: BatchPolicy().decode_replies(_tokenizer(), _generated()[0], value),
    "whose decode": lambda value: BatchPolicy().decode_replies(value, *_generated()),
    "show": lambda value: str(padfix.show(value)),
    "show, a mask": lambda value: str(padfix.show({"input_ids": MASK, "attention_mask": value})),
    "show, a pad": lambda value: str(padfix.show({"input_ids": MASK}, pad_token_id=value)),
    "show, rows": lambda value: str(padfix.show(MASK, max_rows=value)),
    "install": padfix.install,
    "override": _overridden,
    "a class": lambda value: padfix.register_architecture(value, left_padding_exact=True),
    "a keyword": padfix.register_prompt_tensor,
    "axes": lambda value: padfix.register_prompt_tensor("own_labels", value, value),
    "doctor": lambda value: str(padfix.doctor(value, value)),
    "verify": lambda value: padfix.verify(build("llama"), _tokenizer(), value, max_new_tokens=1),
}


@contextmanager
def _kept(said: dict[str, str], name: str) -> Iterator[None]:
    """Keeps what an error says, and lets it pass."""
    try:
        yield
    except Exception as error:
        said[name] = str(error)
        raise


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets afterwards what was registered."""
    for name in ("ARCHITECTURES", "PROMPT_TENSORS"):
        monkeypatch.setattr(padfix.registry, name, dict(getattr(padfix.registry, name)))


@pytest.mark.parametrize("entry", ENTRIES)
def test_rubbish_is_refused_as_documented(entry: str) -> None:
    said = dict.fromkeys(VALUES, "nothing")
    for name, value in VALUES.items():
        with suppress(PadfixError, TypeError, ValueError), _kept(said, name):
            ENTRIES[entry](value())
    assert all(said.values()), said
