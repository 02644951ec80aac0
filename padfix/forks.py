"""What a process that is forked has to put right. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["at_fork"]


def _nothing() -> None: ...


def at_fork(
    *,
    before: Callable[[], None] = _nothing,
    in_parent: Callable[[], None] = _nothing,
    in_child: Callable[[], None] = _nothing,
) -> None:
    """Has these called around every fork of this process, by the thread that forks; nothing where no process forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
