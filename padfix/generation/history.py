"""What each row of a batch has seen so far: its real tokens, without the pads that stand before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..layout.plan import LayoutPlan

__all__ = ["History", "PerRow", "by_length", "leading_pads"]

# Tensor -> tensor of the same rows: a logits processor or a stopping criterion with its further arguments bound.
Step = Callable[[Tensor, Any], Tensor]


class PerRow:
    """A number for each prompt, for each row of ids: made once, so that a step of decoding loops over no rows.

    Attributes:
        numbers: One for each prompt.
        least: The smallest of them.
        most: The largest of them.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = tuple(numbers)
        self.least, self.most = min(self.numbers), max(self.numbers)
        self._made: dict[tuple[int, torch.device], tuple[Tensor, tuple[tuple[int, Tensor], ...]]] = {}

    def of(self, ids: Tensor) -> Tensor:
        """Int64 of shape (rows,), each prompt's rows in turn."""
        return self._of(ids)[0]

    def groups(self, ids: Tensor) -> tuple[tuple[int, Tensor], ...]:
        """Each number that there is, with the rows that have it."""
        return self._of(ids)[1]

    def _of(self, ids: Tensor) -> tuple[Tensor, tuple[tuple[int, Tensor], ...]]:
        key = len(ids), ids.device
        if key not in self._made:
            each = torch.tensor(self.numbers).repeat_interleave(len(ids) // len(self.numbers))
            groups = [(one, (each == one).nonzero()[:, 0].to(ids.device)) for one in sorted(set(self.numbers))]
            self._made[key] = each.to(ids.device), tuple(groups)
        return self._made[key]


@dataclass(frozen=True, eq=False)
class History:
    """The token ids that `generate` hands to processors and criteria: the prompt's columns, then the new tokens'.

    Shape: ids have `batch * k` rows, each prompt's k rows in turn (beams, groups of beams, returned sequences), and
    `width + new` columns.

    Attributes:
        plan: How the prompt lies in the model's layout.
        prompt: The caller's ids of shape (batch, caller's width); None for a prompt that is embeddings alone, of
            which ids hold the new tokens and nothing else.
    """

    plan: LayoutPlan
    prompt: Tensor | None

    @property
    def width(self) -> int:
        """The number of the prompt's columns in the ids."""
        return 0 if self.prompt is None else self.plan.model_width

    @property
    def seen(self) -> tuple[int, ...]:
        """For each prompt the number of its real tokens that stand in the ids."""
        return (0,) * len(self.plan.lengths) if self.prompt is None else self.plan.lengths

    @cached_property
    def has_pads(self) -> bool:
        """Whether the ids hold a pad in a row that has a real token."""
        return self.prompt is not None and self.plan.pads_remain

    @cached_property
    def pads(self) -> PerRow:
        """For each row of ids the number of pads that it starts with, once they are gathered."""
        return leading_pads(self.plan) if self.prompt is not None else PerRow([0] * len(self.plan.lengths))

    @cached_property
    def _pads_first(self) -> Tensor | None:
        """The order of the prompt's columns in which each row's pads come first; None where they do."""
        if self.prompt is None or not self.plan.has_holes:
            return None
        return torch.argsort(self.plan.real.to(torch.uint8), dim=1, stable=True)

    def gathered(self, ids: Tensor) -> Tensor:
        """The ids with the pads of each row in front, those among the columns of a cache too."""
        order = self._pads_first
        if order is None:
            return ids
        order = order.to(ids.device).repeat_interleave(len(ids) // len(order), 0)
        return torch.cat((ids[:, : self.width].gather(1, order), ids[:, self.width :]), 1)

    def filled(self, ids: Tensor, value: int | None = None) -> Tensor:
        """The ids, pads in front, with `value` in their cells; None for each row's own last token: no id is added."""
        if not self.has_pads:
            return ids
        ids = self.gathered(ids)
        front = ids[:, : self.width]
        is_pad = torch.arange(self.width, device=ids.device) < self.pads.of(ids)[:, None]
        front = torch.where(is_pad, ids[:, -1:], front) if value is None else front.masked_fill(is_pad, value)
        return torch.cat((front, ids[:, self.width :]), 1)

    def new(self, ids: Tensor) -> int:
        """The number of new tokens in each row of ids."""
        return ids.shape[1] - self.width

    def filled_for_caller(self, ids: Tensor) -> Tensor:
        """The ids in the caller's layout, with each row's own last token in the cells of pads."""
        if self.prompt is None:
            return ids
        width, copies = self.plan.caller_width, len(ids) // len(self.prompt)
        whole = self.to_caller(ids)
        is_pad = ~self.plan.to_caller(self.plan.real, fill=False).to(ids.device).repeat_interleave(copies, 0)
        return torch.cat((torch.where(is_pad, ids[:, -1:], whole[:, :width]), whole[:, width:]), 1)

    def last_columns(self, ids: Tensor) -> Tensor:
        """For each row the caller's column of its last token, of shape (rows,)."""
        new = self.new(ids)
        if self.prompt is None:
            return torch.full((len(ids),), new - 1, device=ids.device)
        if new:
            return torch.full((len(ids),), self.plan.caller_width + new - 1, device=ids.device)
        return self.plan.order[:, -1].to(ids.device).repeat_interleave(len(ids) // len(self.prompt), 0)

    def to_caller(self, ids: Tensor) -> Tensor:
        """The ids in the caller's layout: the caller's own prompt, then the new tokens."""
        if self.prompt is None:
            return ids
        copies = len(ids) // len(self.prompt)
        front = self.prompt.to(ids.device, ids.dtype).repeat_interleave(copies, 0)
        return torch.cat((front, ids[:, self.width :]), 1)

    def row_to_caller(self, prompt: int, ids: Tensor) -> Tensor:
        """One row of ids, of shape (width + new,), in the caller's layout; `prompt` is the number of its prompt."""
        if self.prompt is None:
            return ids
        return torch.cat((self.prompt[prompt].to(ids.device, ids.dtype), ids[self.width :]))


def leading_pads(plan: LayoutPlan) -> PerRow:
    """For each row in the model's layout the number of pads that it starts with.

    0 for a row without a real token: nothing is promised for it, and it is shown as it is.
    """
    return PerRow([plan.model_width - length if length else 0 for length in plan.lengths])


def by_length(step: Step, ids: Tensor, scores: Any, pads: PerRow, *, window: float = float("inf")) -> Tensor:
    """The result of `step(ids, scores)` as if each row stood alone, without its pads.

    Rows that are equally long share a call, and so do all rows with at least `window` real tokens, whose pads lie
    beyond what the step looks at. So this loops over the lengths below the window, not over rows.

    Args:
        step: Has to treat each row by itself, and to keep nothing of one call for the next.
        ids: Shape (rows, columns).
        scores: Shape (rows, vocabulary), or None.
        pads: For each row the number of pads that it starts with.
        window: How many of the last tokens the step looks at.
    """
    columns = ids.shape[1]
    if not pads.most or columns - pads.most >= window:
        return step(ids, scores)
    groups = pads.groups(ids)
    short = [(start, rows) for start, rows in groups if start and columns - start < window]
    whole = [rows for start, rows in groups if not start or columns - start >= window]
    result: Tensor | None = None
    for start, rows in [(0, torch.cat(whole)), *short] if whole else short:
        part = step(ids[rows, start:], scores[rows] if isinstance(scores, Tensor) else scores)
        if result is None:
            result = part.new_empty((len(ids), *part.shape[1:]))
        result[rows] = part
    assert result is not None
    return result
