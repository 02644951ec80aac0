"""Random chats in one batch, from a cache or without: each row against the same chat held alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from chat import Chat
from hypothesis import given
from hypothesis import strategies as st
from oracle import build, left_padded, right_padded
from torch import Tensor

MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "gpt2": {},
    "bloom": {},
    "mistral": {"sliding_window": 4},
    "mistral, a window that stays open": {"sliding_window": 200},
    "gemma3": {},
    "mamba2": {},
}
PADDERS: Mapping[str, Callable[..., dict[str, Tensor]]] = {"right": right_padded, "left": left_padded}


@dataclass(frozen=True)
class Turn:
    """What is said to each row, on which side it is padded, and how the cache is used."""

    texts: tuple[tuple[int, ...], ...]
    side: str
    extra: int
    cached: bool
    only_new: bool


@st.composite
def turns(draw: st.DrawFn) -> list[Turn]:
    """One to three turns of one to three rows; in a later turn nothing may be said to a row."""
    rows = draw(st.integers(1, 3))
    found = []
    for at in range(draw(st.integers(1, 3))):
        text = st.lists(st.integers(3, 98), min_size=0 if at else 1, max_size=5).map(tuple)
        texts = tuple(draw(text) for _ in range(rows))
        side, extra = draw(st.sampled_from(sorted(PADDERS))), draw(st.integers(0 if any(texts) else 1, 2))
        found.append(Turn(texts, side, extra, draw(st.booleans()), draw(st.booleans())))
    return found


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
@pytest.mark.parametrize("name", MODELS)
@given(chat=turns())
def test_chats(name: str, chat: list[Turn]) -> None:
    held = Chat(_model(name), rows=len(chat[0].texts))
    for turn in chat:
        padder = functools.partial(PADDERS[turn.side], extra=turn.extra)
        # New tokens alone say nothing of a window that was full: padfix names it, and no row is promised.
        only_new = turn.only_new and name in ("llama", "gpt2", "bloom", "mistral, a window that stays open")
        held.turn(turn.texts, padder, cached=turn.cached, only_new=only_new)


@functools.cache
def _model(name: str) -> Any:
    return build(name.partition(",")[0], **MODELS[name])
