"""What stands beneath a wrapped function."""

from __future__ import annotations

import functools

from padfix.wrapped import wrapped_by


def test_wrapped_layers_are_told_once_each() -> None:
    def inner() -> None:
        pass

    @functools.wraps(inner)
    def outer() -> None:
        pass

    assert list(wrapped_by(outer)) == [outer, inner]
    inner.__dict__["__wrapped__"] = outer
    assert list(wrapped_by(outer)) == [outer, inner]
    assert list(wrapped_by(None)) == []
