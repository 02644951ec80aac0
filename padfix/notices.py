"""What is said to the caller: a warning at the caller's own line, a log record, a count. Standard library only."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from .errors import PadfixWarning

__all__ = [
    "Watcher",
    "call_site",
    "counts",
    "forget",
    "info_once",
    "logger",
    "tally",
    "tell",
    "warn",
    "warn_once",
    "watched_by",
    "watchers",
]


class _Unheard(logging.Handler):
    """Prints errors to standard error where the program has set up no logging; what is below was warned of anyway."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            print(self.format(record), file=sys.stderr)


logger = logging.getLogger("padfix")
logger.addHandler(_Unheard())

# Packages that stand between the caller's line and us: a warning points above them.
PACKAGES_BETWEEN = frozenset(
    {"padfix", "transformers", "peft", "torch", "accelerate", "wrapt", "contextlib", "functools"}
)

_lock = threading.Lock()
_seen: set[tuple[object, ...]] = set()
_counts: Counter[str] = Counter()
_watchers: tuple[Watcher, ...] = ()


class Watcher(Protocol):
    """Learns of calls in every thread, also of errors that the caller's code catches."""

    def called(self, call: Any) -> None:
        """Gets each `GenerateCall` before anything is done to it; what it raises, the caller gets."""

    def refused(self, error: Exception) -> None:
        """Gets each error that padfix raises in place of a call, in the thread and stack of that call."""


def warn(message: str) -> None:
    """Warns at the caller's line with `PadfixWarning`, logs at WARNING and counts.

    Python shows a warning once a line; the log has every one.
    """
    tally("warnings")
    logger.warning(message)
    frame = _callers_frame()
    warnings.warn_explicit(
        message,
        PadfixWarning,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__", "<unknown>"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def warn_once(message: str, *key: object) -> None:
    """`warn`, once in this process for each `key`."""
    if _is_new("warn", *key):
        warn(message)


def info_once(message: str, *key: object) -> None:
    """Logs at INFO, once in this process for each `key`."""
    if _is_new("info", *key):
        logger.info(message)


def call_site() -> tuple[str, int]:
    """File and line of the innermost frame outside padfix and the libraries that it works through."""
    frame = _callers_frame()
    return frame.f_code.co_filename, frame.f_lineno


def tally(what: str) -> None:
    """Adds one to a counter; safe under threads."""
    with _lock:
        _counts[what] += 1


def counts() -> dict[str, int]:
    """What has been counted in this process so far: `calls`, `padded`, `repaired`, `left_as_is`, `warnings`."""
    with _lock:
        return dict(_counts)


def forget() -> None:
    """Starts anew: counters at zero, and everything that is said once can be said again."""
    with _lock:
        _seen.clear()
        _counts.clear()


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """A block in which the watcher learns of the calls of all threads."""
    global _watchers
    with _lock:
        _watchers = (*_watchers, watcher)
    try:
        yield
    finally:
        with _lock:
            _watchers = tuple(one for one in _watchers if one is not watcher)


def tell(error: Exception) -> None:
    """Tells those who watch of an error that is about to be raised in place of a call."""
    for watcher in _watchers:
        watcher.refused(error)


def watchers() -> tuple[Watcher, ...]:
    """Those who watch at the moment."""
    return _watchers


def _is_new(*key: object) -> bool:
    with _lock:
        new = key not in _seen
        _seen.add(key)
        return new


def _callers_frame() -> FrameType:
    frame: FrameType | None = sys._getframe(1)
    outermost = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).split(".")[0] not in PACKAGES_BETWEEN:
            return frame
        outermost, frame = frame, frame.f_back
    return outermost
