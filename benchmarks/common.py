"""What the benchmarks have in common: two things timed in turn in one process, and the ratio of their times."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Ratio", "interval", "ratio", "seconds"]


class Ratio(NamedTuple):
    """The median of the ratios of pairs, and its interval (95 %, by order statistics)."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def seconds(call: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter, times: int = 1) -> float:
    """How long some calls take, one after the other."""
    start = clock()
    for _ in range(times):
        call()
    return clock() - start


def interval(ordered: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median of ordered values."""
    middle, half, last = len(ordered) / 2, 0.98 * math.sqrt(len(ordered)), len(ordered) - 1
    return ordered[max(0, math.floor(middle - half))], ordered[min(last, math.ceil(middle + half))]


def ratio(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    pairs: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    times: int = 1,
) -> Ratio:
    """The time of `ours` as a ratio of that of `theirs`: each goes first in every other pair; two pairs warm up."""
    found = []
    for pair in range(pairs + 2):
        first, second = (ours, theirs) if pair % 2 else (theirs, ours)
        one, other = (seconds(call, clock=clock, times=times) for call in (first, second))
        found.append(one / other if pair % 2 else other / one)
    ordered = sorted(found[2:])
    return Ratio(ordered[len(ordered) // 2], *interval(ordered))
