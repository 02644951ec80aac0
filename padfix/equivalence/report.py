"""EquivalenceReport: what each prompt got in the batch and alone, with a verdict on every row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .compare import Difference

__all__ = ["EquivalenceReport", "RowReport", "Verdict", "judged"]

Verdict = Literal["equal", "rounding", "padding fault"]
VERDICTS: tuple[Verdict, ...] = ("equal", "rounding", "padding fault")


@dataclass(frozen=True)
class RowReport:
    """One row of the batch.

    Attributes:
        prompt: The number of the prompt, from 0.
        sequence: The number of the returned sequence of that prompt, from 0.
        length: The prompt's tokens.
        text: The prompt, or the last message of a chat.
        difference: Where it parts from the reply alone, and how far the logits are apart.
        verdict: `equal`: the same tokens, logits within 1e-4 of their scale. `rounding`: as two runs of other batch
            size differ without any padding. `padding fault`: neither.
        reason: Why; empty for `equal`.
        alone: The reply that the prompt gets alone.
        batch: The reply that it got in the batch.
    """

    prompt: int
    sequence: int
    length: int
    text: str
    difference: Difference
    verdict: Verdict
    reason: str
    alone: str
    batch: str


@dataclass(frozen=True)
class EquivalenceReport:
    """A padded batch against each of its prompts alone.

    Attributes:
        rows: One for each returned sequence.
        subject: What ran: the model's class, dtype and device.
        way: How the batch ran: `through padfix`, `in stock transformers`, or `as this process runs it`.
        side: Where its pads were.
        width: Its columns.
        new_tokens: The largest number of new tokens of a reply.
        noise: The largest difference that came without any padding, between batch sizes and between the dtype and a
            wider one; None where no row needed it.
        notes: What padfix warned of.
        versions: Of padfix, transformers and torch.
    """

    rows: tuple[RowReport, ...]
    subject: str
    way: str
    side: str
    width: int
    new_tokens: int
    noise: float | None
    notes: tuple[str, ...]
    versions: Mapping[str, str]

    @property
    def faults(self) -> tuple[RowReport, ...]:
        """The rows with a padding fault."""
        return tuple(row for row in self.rows if row.verdict == "padding fault")

    @property
    def ok(self) -> bool:
        """Whether there are none."""
        return not self.faults

    def count(self, verdict: Verdict) -> int:
        """The number of rows with that verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def __str__(self) -> str:
        lengths = sorted({row.length for row in self.rows})
        tokens = str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        counts = ", ".join(f"{self.count(one)} {one}" for one in VERDICTS) + ("s" if len(self.faults) != 1 else "")
        batch = f"prompts of {tokens} tokens padded on the {self.side} to {self.width} columns"
        head = f"{self.subject}, {batch}, {self.way}: {counts}."
        return "\n".join([head, *map(_line, (row for row in self.rows if row.verdict != "equal")), *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """The report in the types of JSON; numbers that JSON has no word for as strings (`inf`)."""
        plain: dict[str, Any] = _plain(asdict(self))
        return {"ok": self.ok, "counts": {one: self.count(one) for one in VERDICTS}, **plain}


def judged(difference: Difference, allowed: float | None, wider: Difference | str | None) -> tuple[Verdict, str]:
    """The verdict on a row, and the reason for it.

    A difference is rounding where three things hold: it is not larger than `allowed`, the margin between the two tokens
    is not either, and in a wider dtype it is gone. A real fault stays there. Where the logits are equal and two tokens
    tie, nothing but the tie decides.

    Args:
        difference: Between the row in the batch and alone.
        allowed: A few times the noise: the largest difference that arithmetic makes without any padding.
        wider: The same difference in a wider dtype, or why there is none; None where it was not tried.
    """
    if difference.is_none:
        return "equal", ""
    where = "" if difference.first is None else f"another token at step {difference.first}, "
    seen = f"{where}logits off by {difference.largest:.3g}"
    if difference.is_tie:
        return "rounding", f"{seen}, and the two tokens tie"
    if isinstance(wider, str):
        return "padding fault", f"{seen}: {wider}"
    if allowed is None or difference.largest > allowed:
        limit = "" if allowed is None else f", where rounding accounts for {allowed:.3g}"
        return "padding fault", seen + limit
    if difference.margin is not None and difference.margin > allowed:
        return "padding fault", f"{seen}, but by a margin of {difference.margin:.3g}"
    if wider is None:
        return "padding fault", f"{seen}: not run in a wider dtype"
    if wider.is_none or wider.is_tie:
        return "rounding", f"{seen}, gone in a wider dtype"
    return "padding fault", f"{seen}, and still off by {wider.largest:.3g} in a wider dtype"


def _line(row: RowReport) -> str:
    copy = f", sequence {row.sequence}" if row.sequence else ""
    line = f"row {row.prompt}{copy} ({row.length} tokens): {row.verdict}: {row.reason}"
    return line if row.alone == row.batch else f"{line}\n  alone: {row.alone!r}\n  batch: {row.batch!r}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
