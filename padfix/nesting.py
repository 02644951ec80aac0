"""Which calls of `generate` are part of one that is seen to already; every other one is a call of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

__all__ = ["assisted_by", "is_part", "on_its_own", "seen_to"]


class _Parts(NamedTuple):
    """What belongs to the call that is running: the next call, whoever's, and every call of an assistant."""

    next_call: bool = False
    assistant: Any = None


_parts: ContextVar[_Parts | None] = ContextVar("padfix_parts", default=None)


@contextmanager
def seen_to() -> Iterator[None]:
    """A block in which the next call of `generate` is seen to already; those from within it are their own."""
    token = _parts.set(_Parts(next_call=True))
    try:
        yield
    finally:
        _parts.reset(token)


@contextmanager
def assisted_by(assistant: Any) -> Iterator[None]:
    """A block in which every call of an assistant's `generate` is part of the one that is running."""
    token = _parts.set(_Parts(assistant=assistant))
    try:
        yield
    finally:
        _parts.reset(token)


def is_part(model: Any) -> bool:
    """Whether a call of the model's `generate` is part of one that is seen to already."""
    parts = _parts.get()
    if parts is None:
        return False
    if parts.next_call:
        return True
    # PEFT and torch.compile wrap the model that is called.
    return any(model is one for one in parts.assistant.modules())


@contextmanager
def on_its_own() -> Iterator[None]:
    """A block in which no call is part of one outside of it."""
    token = _parts.set(None)
    try:
        yield
    finally:
        _parts.reset(token)
