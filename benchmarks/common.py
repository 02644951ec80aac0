"""What the questions have in common: calls timed in turn in one process, and the rows that come of it.

The file of a question has a function `rows(effort, step)`, which gives its figures, and runs by itself.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")
for variable in ("PADFIX", "PADFIX_STRATEGY", "PADFIX_DECODING"):  # a question says itself what it wants
    os.environ.pop(variable, None)

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # behind this folder: real/ has the model with trained weights

import torch  # noqa: E402

from padfix.console import Step, progress  # noqa: E402

__all__ = [
    "ROOT",
    "Effort",
    "Question",
    "Ratio",
    "Row",
    "alone",
    "arguments",
    "in_turn",
    "median",
    "ratio",
]

torch.set_num_threads(1)


class Ratio(NamedTuple):
    """The median of the ratios of pairs, and its interval (95 %, by order statistics); a count has no width."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.median == self.high:
            return f"{self.median:g}" if self.median == int(self.median) else f"{self.median:.3f}"
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Row(NamedTuple):
    """One figure of a question.

    Attributes:
        what: What was measured.
        found: The figure.
        aim: The most that it should be; None where there is no such value.
        whole: Whether the interval's upper end is what has to be within the aim, and not the median.
        at: Where the figure lies among others of its kind: the coordinates of a point in a plot.
    """

    what: str
    found: Ratio
    aim: float | None = None
    whole: bool = False
    at: Mapping[str, Any] = {}

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        return None if self.aim is None else (self.found.high if self.whole else self.found.median) <= self.aim

    def __str__(self) -> str:
        aim = "" if self.aim is None else f", aim {self.aim:g}: {'met' if self.met else 'NOT MET'}"
        return f"{self.what}: {self.found}{aim}"


class Effort(NamedTuple):
    """How much is measured: the whole, or a little of it; the folder that keeps copies of weights, if one does."""

    quick: bool = False
    exactly: int | None = None
    copies: Path | None = None

    def pairs(self, full: int, quick: int = 5) -> int:
        """How often two calls are timed in turn."""
        return self.exactly or (quick if self.quick else full)


Question = Callable[[Effort, Step], list[Row]]


def in_turn(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    times: int = 1,
    warm: int = 2,
) -> dict[str, list[float]]:
    """How long each call took in each round: every round makes all of them, in an order that turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(warm + rounds):
        for name in names[:: 1 if number % 2 else -1]:
            start = clock()
            for _ in range(times):
                calls[name]()
            if number >= warm:
                taken[name].append(clock() - start)
        names = names[1:] + names[:1] if len(names) > 2 else names
    return taken


def median(values: Sequence[float]) -> Ratio:
    """The median of values and its 95 % interval."""
    ordered = sorted(values)
    middle, half, last = len(ordered) / 2, 0.98 * math.sqrt(len(ordered)), len(ordered) - 1
    low, high = ordered[max(0, math.floor(middle - half))], ordered[min(last, math.ceil(middle + half))]
    return Ratio(statistics.median(ordered), low, high)


def ratio(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    pairs: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    times: int = 1,
) -> Ratio:
    """The time of `ours` as a ratio of that of `theirs`: each goes first in every other pair; two pairs warm up."""
    taken = in_turn({"ours": ours, "theirs": theirs}, pairs, clock=clock, times=times)
    return median([one / other for one, other in zip(taken["ours"], taken["theirs"], strict=True)])


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what every question takes."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few pairs of calls, few points")
    parser.add_argument("--pairs", type=int, help="pairs of calls, for every figure")
    parser.add_argument("--copies", type=Path, help="folder that keeps the loaded SmolLM2 for later runs (0.54 GB)")
    return parser


def alone(doc: str | None, rows: Question, **others: Question) -> None:
    """One question by itself: prints its rows, or those of another function where its name is a flag."""
    parser = arguments(doc)
    for name in others:
        parser.add_argument(f"--{name}", dest="other", action="store_const", const=name)
    asked = parser.parse_args()
    chosen = others.get(getattr(asked, "other", None) or "", rows)
    with progress() as step:
        found = chosen(Effort(asked.quick, asked.pairs, asked.copies), step or (lambda done, total, what: None))
    for row in found:
        print(row)
