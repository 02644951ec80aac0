"""What padfix has put in place in this process. A fork waits for its lock, so that a child finds it whole and free."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module

from .errors import UnsupportedVersionError
from .forks import at_fork
from .layers import Layers
from .settings import Settings

__all__ = ["Block", "Record", "record"]


@dataclass(eq=False)
class Block:
    """A block in which padfix is installed, and what holds after it."""

    before: Settings | None


@dataclass
class Record:
    """What is in place: the settings while installed (None when not), and the layers.

    `refusal` is why this transformers could not be patched; in strict mode the layer raises it at every call.
    `under_way` has the thread of each call that is being repaired: the hooks stay until the last of them has ended.
    `blocks` are those of `installed`, in the order in which they were entered.
    """

    settings: Settings | None = None
    waiting: bool = False
    refusal: UnsupportedVersionError | None = None
    under_way: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    layers: Layers = field(default_factory=Layers)
    lock: threading.RLock = field(default_factory=threading.RLock)


record: Record = globals().get("record") or Record()  # a reload changes nothing of what is in place


def _before_fork() -> None:
    """Waits for the modules of ours that another thread is importing: a child would wait for them for ever."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("padfix.") and getattr(getattr(module, "__spec__", None), "_initializing", False):
            with suppress(Exception):  # that other thread gets to know
                import_module(name)
    record.lock.acquire()


def _in_parent() -> None:
    record.lock.release()


def _in_child() -> None:
    """Of the threads, the one that has forked is there alone."""
    record.under_way[:] = [thread for thread in record.under_way if thread == threading.get_ident()]
    record.lock.release()


at_fork(before=_before_fork, in_parent=_in_parent, in_child=_in_child)
