"""Random chats in one batch, from a cache or without: each row against the same chat held alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from chat import Chat, takes_new_tokens_alone
from facts import RELEASE
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import build, left_padded, right_padded
from torch import Tensor
from transformers import DynamicCache

MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "gpt2": {},
    "bloom": {},
    "gpt_neo": {},
    "mistral": {"sliding_window": 4},
    "mistral, a window that stays open": {"sliding_window": 200},
    **({"gemma3": {}} if RELEASE >= (4, 57) else {}),  # before, a prompt alone depends on its cache
    **({"mamba2": {}} if RELEASE >= (4, 51) else {}),  # before, a prompt of one token raises
}
GO_ON = ("llama", "gpt2", "bloom", "mistral, a window that stays open")
PADDERS: Mapping[str, Callable[..., dict[str, Tensor]]] = {"right": right_padded, "left": left_padded}


@dataclass(frozen=True)
class Turn:
    """What is said to each row, on which side it is padded, and how the cache is used."""

    texts: tuple[tuple[int, ...], ...]
    side: str
    extra: int
    cached: bool
    only_new: bool
    retokenized: bool


@st.composite
def turns(draw: st.DrawFn) -> list[Turn]:
    """One to three turns of one to three rows; in a later turn nothing may be said to a row."""
    rows = draw(st.integers(1, 3))
    found = []
    for at in range(draw(st.integers(1, 3))):
        text = st.lists(st.integers(3, 98), min_size=0 if at else 1, max_size=5).map(tuple)
        texts = tuple(draw(text) for _ in range(rows))
        side, extra = draw(st.sampled_from(sorted(PADDERS))), draw(st.integers(0 if any(texts) else 1, 2))
        found.append(Turn(texts, side, extra, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())))
    return found


# Processors that read the history, which holds pads among the tokens of a chat.
FLAGS: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.5},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"sequence_bias": [[[17, 9], 8.0], [[9], -3.0]]},
)


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=settings().max_examples // 3)  # a chat is several calls, and several alone for each
@given(chat=turns(), flags=st.none() | st.sampled_from(FLAGS), brings_one=st.booleans())
def test_chats(name: str, chat: list[Turn], flags: dict[str, Any] | None, brings_one: bool) -> None:
    held = Chat(_model(name), rows=len(chat[0].texts), **flags or {})
    takes_one = getattr(held.model, "_supports_cache_class", True)  # in 4.46 not every model does
    if brings_one and takes_one and name != "mamba2":
        held.cache = DynamicCache()
    for turn in chat:
        padder = functools.partial(PADDERS[turn.side], extra=turn.extra)
        # Of a window that was full, new tokens alone are not enough: padfix names it, and no row is promised. With a
        # recurrent state, whole sequences without pads are stock's business, which runs them on top of it.
        only_new = turn.only_new and takes_new_tokens_alone() and name in GO_ON and flags is None
        cached = turn.cached and name != "mamba2"
        if turn.retokenized:
            # Beside fewer columns than a cache holds, sequences could be new tokens alone: padfix names that.
            padder = functools.partial(PADDERS[turn.side], extra=max(turn.extra, held.shown + 1))
            held.turn(turn.texts, padder, cached=cached, retokenized=True)
        else:
            held.turn(turn.texts, padder, cached=cached, only_new=only_new)


@functools.cache
def _model(name: str) -> Any:
    return build(name.partition(",")[0], **MODELS[name])
