"""New tokens per second of what a user would pick, relative to the batch that was left-padded by hand (1).

One prompt at a time; hand left padding in stock; sorting by length into batches of four, each left-padded; and
`generate_batch`, the continuous batching of transformers, with its manager kept between calls, its cache sized for the
batch and no prefix shared between calls; against padfix on the right-padded batch: what it takes by itself, and
`equal_length`. Over the size of the batch, and over raggedness (shortest / longest, lengths spread evenly in their
logarithm). On a Llama of 6 layers and hidden size 256 with random weights, and on SmolLM2-135M-Instruct with the
repository's licence cut to length; float32, greedy, no reply ends early. All calls of a point are timed in turn in one
process. No network::

    python benchmarks/throughput.py [--quick] [--copies FOLDER]
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import transformers
from common import ROOT, Effort, Row, alone, in_turn, median
from llama import PAD, batch, call, llama, prompts
from real.smollm2 import load, missing

from padfix.console import Step
from padfix.patch import installed

SMALL_BATCH = 4
BASELINE = "hand left padding"
# The number of prompts, and how many times longer the longest is than the shortest.
POINTS = ((1, 8), (2, 8), (4, 8), (8, 8), (16, 8), (8, 1), (8, 2), (8, 4), (8, 16))

Peers = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Subject:
    """A model, prompts for it, and the points at which it is measured.

    Attributes:
        name: What the tables and plots call it.
        model: The model.
        text: Ids to cut prompts from; None for random ones.
        pad_id: What batches are padded with.
        longest: The tokens of the longest prompt.
        new: The new tokens of each.
        points: Rows, and how many times longer the longest prompt is than the shortest.
        rounds: How often every call of a point is made.
    """

    name: str
    model: Any
    text: Sequence[int] | None
    pad_id: int
    longest: int
    new: int
    points: Sequence[tuple[int, int]]
    rounds: int

    def prompts(self, rows: int, times: int) -> list[list[int]]:
        """The prompts of a point, longest first; each begins elsewhere in the text."""
        lengths = [round(self.longest * times ** (-row / max(1, rows - 1))) for row in range(rows)]
        if self.text is None:
            return prompts(lengths)
        return [list(self.text[row * self.longest :][:length]) for row, length in enumerate(lengths)]


def peers(subject: Subject, rows: Sequence[Sequence[int]]) -> Peers:
    """The calls that are compared, by what they are called."""

    def one(given: Sequence[Sequence[int]], strategy: str | None) -> Callable[[], object]:
        padded = batch(given, "left" if strategy is None else "right", pad_id=subject.pad_id)
        return call(subject.model, padded, subject.new, strategy, pad_token_id=subject.pad_id)

    def all_of(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        return lambda: [each() for each in calls]

    by_length = sorted(rows, key=len)
    parts = [by_length[start : start + SMALL_BATCH] for start in range(0, len(rows), SMALL_BATCH)]
    found: Peers = {
        "one at a time": all_of([one([row], None) for row in rows]),
        BASELINE: one(rows, None),
        f"sorted, batches of {SMALL_BATCH}": all_of([one(part, None) for part in parts]),
        "padfix, equal_length": one(rows, "equal_length"),
        "padfix": one(rows, "auto"),
    }
    continuous = generate_batch(subject, rows)
    return found if continuous is None else {**found, "generate_batch": continuous}


def generate_batch(subject: Subject, rows: Sequence[Sequence[int]]) -> Callable[[], object] | None:
    """Continuous batching; None in releases that take no configuration of it.

    By itself it makes a cache of nine tenths of the free memory, which takes the CPU twenty seconds.
    """
    configuration = getattr(transformers, "ContinuousBatchingConfig", None)
    if configuration is None:
        return None
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    greedy = transformers.GenerationConfig(
        max_new_tokens=subject.new, do_sample=False, pad_token_id=subject.pad_id, eos_token_id=-1
    )
    sized = configuration(num_blocks=2 * len(rows) + 2, allow_block_sharing=False)

    def run() -> object:
        replies = subject.model.generate_batch(
            list(rows), generation_config=greedy, continuous_batching_config=sized, persistent_manager=True
        )
        assert [len(reply.generated_tokens) for reply in replies.values()] == [subject.new] * len(rows)
        return replies

    return run


def point(subject: Subject, rows: int, times: int, *, warm: bool) -> list[Row]:
    """A row for each peer: new tokens per second relative to the baseline's."""
    calls = peers(subject, subject.prompts(rows, times))
    try:
        taken = in_turn(calls, subject.rounds, warm=int(warm))
    finally:
        if "generate_batch" in calls:
            subject.model.destroy_cached_continuous_batching_manager()
    found = []
    for peer, seconds in taken.items():
        ratios = [base / own for base, own in zip(taken[BASELINE], seconds, strict=True)]
        where = {"model": subject.name, "peer": peer, "rows": rows, "times": times}
        which = f"{subject.name}, {rows} prompt{'s' * (rows > 1)}, shortest 1/{times}, {peer}"
        at = {**where, "longest": subject.longest, "new": subject.new}
        found.append(Row(f"{which}: tokens per second / by hand", median(ratios), at=at))
    return found


def tiny(effort: Effort) -> Subject:
    """The Llama with random weights."""
    points = ((1, 8), (8, 8), (8, 1)) if effort.quick else POINTS
    longest, new = (96, 8) if effort.quick else (256, 16)
    return Subject("Llama", llama(), None, PAD, longest, new, points, effort.pairs(5, quick=2))


def smollm2(effort: Effort) -> Subject:
    """The real model."""
    model, tokenizer = load(effort.copies)
    model.generation_config.eos_token_id = None
    text = tokenizer((ROOT / "LICENSE").read_text(encoding="utf-8"))["input_ids"]
    points = ((2, 8), (4, 8), (4, 1)) if effort.quick else ((1, 8), (4, 8), (8, 8), (8, 1), (8, 16))
    longest, new = (32, 2) if effort.quick else (160, 6)
    rounds = effort.pairs(3, quick=1)
    return Subject("SmolLM2-135M", model, text, tokenizer.pad_token_id, longest, new, points, rounds)


def rows(effort: Effort, step: Step) -> list[Row]:
    """Every point of both models; of the one alone where the weights of the other are not installed."""
    subjects = [tiny] if missing() else [tiny, smollm2]
    found = []
    with installed("fix"):
        for make in subjects:
            step(0, 1, f"loading: {make.__doc__}")
            subject = make(effort)
            for number, (count, times) in enumerate(subject.points):
                step(number, len(subject.points), f"{subject.name}, {count} prompts, shortest 1/{times}")
                found += point(subject, count, times, warm=number == 0)
    return found


if __name__ == "__main__":
    alone(__doc__, rows)
