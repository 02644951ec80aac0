"""What is said to the caller: a warning at the caller's own line, a log record, a count. Standard library only."""

from __future__ import annotations

import logging
import re
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Protocol

from .errors import PadfixWarning
from .forks import at_fork

__all__ = [
    "Stats",
    "Watcher",
    "call_site",
    "counts",
    "forget",
    "info_once",
    "logger",
    "ran",
    "refused",
    "stats",
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
if not any(type(one).__name__ == _Unheard.__name__ for one in logger.handlers):  # there is one after a reload
    logger.addHandler(_Unheard())

# Packages that stand between the caller's line and us: a warning points above them.
PACKAGES_BETWEEN = frozenset(
    {"padfix", "transformers", "peft", "torch", "accelerate", "wrapt", "contextlib", "functools"}
)

_lock = threading.Lock()
_seen: set[tuple[object, ...]] = set()
_counts: Counter[str] = Counter()
_watchers: tuple[Watcher, ...] = ()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that is not there may hold the parent's


at_fork(in_child=_in_child)


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


@dataclass(frozen=True)
class Stats:
    """What padfix has seen and done in this process, in all threads, since its start or `stats(reset=True)`.

    Attributes:
        calls: Calls of `generate` that came to padfix.
        padded: Those with a pad somewhere in their prompts.
        repaired: Those that transformers would have got wrong, and padfix has made right.
        strategies: How many calls each strategy ran, packed ones that were right already among them.
        pads: Cells of pads in the prompts of those calls.
        columns: Columns that held pads in every row, and were dropped from them.
        refused: Calls that were left as they are, or raised in strict mode, since nothing makes them right or the mode
            is `warn`.
        reasons: Why, with how many calls each: phrases that name arguments and classes, never a prompt.
        warnings: Warnings given, those included that Python shows once a line.
    """

    calls: int
    padded: int
    repaired: int
    strategies: Mapping[str, int]
    pads: int
    columns: int
    refused: int
    reasons: Mapping[str, int]
    warnings: int

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and numbers, for JSON."""
        return asdict(self)


_STRATEGY, _REASON = "strategy ", "reason "
# The reasons that are told apart, of a shape like any other: a server that runs for years meets many.
MOST_REASONS = 100
_SHAPE = re.compile(r"\([\d, ]+\)")


def stats(*, reset: bool = False) -> Stats:
    """What padfix has seen and done in this process so far; with `reset` it starts to count anew after that.

    >>> stats(reset=True).refused >= 0
    True
    """
    with _lock:
        counted = Counter(_counts)
        if reset:
            _counts.clear()

    def named(start: str) -> dict[str, int]:
        return {what.removeprefix(start): count for what, count in counted.items() if what.startswith(start)}

    return Stats(
        calls=counted["calls"],
        padded=counted["padded"],
        repaired=counted["repaired"],
        strategies=named(_STRATEGY),
        pads=counted["pads"],
        columns=counted["columns"],
        refused=counted["left_as_is"],
        reasons=named(_REASON),
        warnings=counted["warnings"],
    )


def ran(strategy: str, *, needed: bool, pads: int, columns: int) -> None:
    """Counts a call that a strategy is about to run, and says so on the span that is recording, if one is."""
    tally("repaired", int(needed))
    tally(f"{_STRATEGY}{strategy}")
    tally("pads", pads)
    tally("columns", columns)
    _record_on_span({"padfix.strategy": strategy, "padfix.repaired": needed, "padfix.pads": pads})


def refused(reasons: Iterable[str]) -> None:
    """Counts a call that is left as it is, under each of its reasons."""
    with _lock:
        _counts["left_as_is"] += 1
        for reason in reasons:
            name = _REASON + _SHAPE.sub("(...)", reason)
            has_room = name in _counts or sum(what.startswith(_REASON) for what in _counts) < MOST_REASONS
            _counts[name if has_room else f"{_REASON}others"] += 1
    _record_on_span({"padfix.refused": True})


def _record_on_span(attributes: Mapping[str, str | int]) -> None:
    """Sets attributes of the OpenTelemetry span that is recording; nothing where the program has not loaded it."""
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_current_span()
    if span is not None and span.is_recording():
        span.set_attributes(attributes)


def tally(what: str, times: int = 1) -> None:
    """Adds to a counter; safe under threads."""
    if times:
        with _lock:
            _counts[what] += times


def counts() -> dict[str, int]:
    """Every counter of this process as it stands; `stats` has the same by name."""
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
