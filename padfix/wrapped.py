"""What stands beneath a wrapped function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["wrapped_by"]


def wrapped_by(method: Any) -> Iterator[Any]:
    """A method, what it wraps (its `__wrapped__`), what that wraps, and so on."""
    seen: set[int] = set()
    while method is not None and id(method) not in seen:
        seen.add(id(method))
        yield method
        method = getattr(method, "__wrapped__", None)
