"""LayoutPlan: how the columns of a padded batch move to the model's layout and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["LayoutPlan"]


@dataclass(frozen=True, eq=False)
class LayoutPlan:
    """Moves tensors between the caller's layout and the model's: in each row the pads first, then the real tokens.

    Real tokens keep their order. Columns that are pads in every row are dropped (`trim`). Build it with `from_mask`.

    Attributes:
        order: Int64 of shape (batch, model_width): the caller's column for each of the model's.
        real: Bool of shape (batch, model_width), True where the model's column holds a real token.
        caller_width: The number of columns of the prompt as the caller passed it.
        trim: The number of columns dropped; `model_width == caller_width - trim`.
        lengths: The number of real tokens of each row.
        in_place: Whether no column moves (only the trim drops some): the batch was left-padded already.

    >>> plan = LayoutPlan.from_mask(torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]]))
    >>> plan.to_model(torch.tensor([[5, 6, 7, 0], [8, 0, 0, 0]]), fill=9).tolist()
    [[5, 6, 7], [9, 9, 8]]
    """

    order: Tensor
    real: Tensor
    caller_width: int
    trim: int
    lengths: tuple[int, ...]
    in_place: bool

    @classmethod
    def from_mask(cls, mask: Tensor, *, trim: bool = True, cached: int = 0) -> LayoutPlan:
        """The plan for a mask of shape (batch, width), in which every value but 0 marks a real token.

        At least one column stays, also where no row has a real token. `trim=False` keeps every column. The first
        `cached` columns are in a cache already and stay where they are; those after them move among themselves. Two
        host syncs.
        """
        real = mask != 0
        width = real.shape[1]
        new = real[:, cached:]
        news, lengths = (tuple(row) for row in torch.stack((new.sum(dim=1), real.sum(dim=1))).tolist())
        dropped = max(width - cached - max(1, *news), 0) if trim and news else 0
        order = cached + torch.argsort(new.to(torch.uint8), dim=1, stable=True)  # False before True, each in its order
        columns = torch.arange(width, device=order.device)
        in_place = bool((order == columns[cached:]).all())
        order = torch.cat((columns[:cached].expand(len(order), -1), order[:, dropped:]), 1)
        return cls(order, real.gather(1, order), width, dropped, lengths, in_place)

    @property
    def model_width(self) -> int:
        """The number of columns of the prompt as the model sees it."""
        return self.order.shape[1]

    @property
    def is_identity(self) -> bool:
        """Whether the two layouts are the same."""
        return self.in_place and self.trim == 0

    @property
    def pads(self) -> int:
        """The number of cells of pads in the caller's layout."""
        return len(self.lengths) * self.caller_width - sum(self.lengths)

    @property
    def pads_remain(self) -> bool:
        """Whether the model still sees a pad in some row that has a real token."""
        return any(0 < length < self.model_width for length in self.lengths)

    @cached_property
    def has_holes(self) -> bool:
        """Whether pads lie among the tokens of the model's layout, as they can in cached columns. One host sync."""
        return bool((self.real[:, :-1] & ~self.real[:, 1:]).any())

    def to_model(self, x: Tensor, *, batch_axis: int = 0, prompt_axis: int = 1, fill: float = 0) -> Tensor:
        """`x` in the model's layout, with `fill` in the cells of pads.

        Shape: `x` has `batch` rows (or k times as many, each row k times in turn, as for beams; or one row, which
        then counts for all) and `caller_width` columns or more. Columns past the prompt follow unmoved.

        Raises:
            ValueError: The rows or columns of `x` do not fit the plan.
        """
        rows = self._front(x, batch_axis, prompt_axis, self.caller_width)
        order, real = self._fitting(rows)
        moved = rows[:, : self.caller_width].gather(1, order).masked_fill(~real, fill)
        return _back(torch.cat((moved, rows[:, self.caller_width :]), 1), batch_axis, prompt_axis)

    def to_caller(self, x: Tensor, *, batch_axis: int = 0, prompt_axis: int = 1, fill: float = 0) -> Tensor:
        """`x` in the caller's layout, with `fill` in the cells of pads; the inverse of `to_model`.

        Shape: as for `to_model`, with `model_width` columns or more.

        Raises:
            ValueError: The rows or columns of `x` do not fit the plan.
        """
        rows = self._front(x, batch_axis, prompt_axis, self.model_width)
        order, real = self._fitting(rows)
        prompt = rows[:, : self.model_width]
        moved = prompt.new_full((len(rows), self.caller_width, *rows.shape[2:]), fill)
        moved = moved.scatter(1, order, prompt.masked_fill(~real, fill))
        return _back(torch.cat((moved, rows[:, self.model_width :]), 1), batch_axis, prompt_axis)

    def repeated(self, times: int) -> LayoutPlan:
        """The plan for a batch in which each row stands `times` times in turn, as for beams."""
        return LayoutPlan(
            self.order.repeat_interleave(times, 0),
            self.real.repeat_interleave(times, 0),
            self.caller_width,
            self.trim,
            tuple(length for length in self.lengths for _ in range(times)),
            self.in_place,
        )

    def without_first(self, columns: int) -> LayoutPlan:
        """The plan for what follows the first `columns` columns, none of which moves.

        Raises:
            ValueError: One of them moves.
        """
        if not bool((self.order[:, :columns] == torch.arange(columns, device=self.order.device)).all()):
            raise ValueError(f"some of the first {columns} columns move")
        real = self.real[:, columns:]
        return LayoutPlan(
            self.order[:, columns:] - columns,
            real,
            self.caller_width - columns,
            self.trim,
            tuple(real.sum(dim=1).tolist()),
            self.in_place,
        )

    def then(self, later: LayoutPlan) -> LayoutPlan:
        """One plan for this move followed by `later`, whose caller's layout is this plan's model layout.

        Raises:
            ValueError: The widths do not meet.
        """
        if later.caller_width != self.model_width:
            raise ValueError(f"a plan for {later.caller_width} columns cannot follow one that gives {self.model_width}")
        real = later.real & self.real.gather(1, later.order)
        return LayoutPlan(
            self.order.gather(1, later.order),
            real,
            self.caller_width,
            self.trim + later.trim,
            tuple(real.sum(dim=1).tolist()),
            self.in_place and later.in_place,
        )

    def _front(self, x: Tensor, batch_axis: int, prompt_axis: int, width: int) -> Tensor:
        """`x` with its batch and prompt axes in front, one row expanded to the whole batch."""
        rows = x.movedim((batch_axis, prompt_axis), (0, 1))
        batch = self.order.shape[0]
        if rows.shape[0] == 1:
            rows = rows.expand(batch, *rows.shape[1:])
        if batch == 0 or rows.shape[0] == 0 or rows.shape[0] % batch or rows.shape[1] < width:
            raise ValueError(
                f"a tensor of shape {tuple(x.shape)} (rows on axis {batch_axis}, columns on axis {prompt_axis}) does "
                f"not fit a plan for {batch} rows of {width} columns"
            )
        return rows

    def _fitting(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """`order` and `real` on the device of `rows`, repeated and shaped to index them."""
        times = rows.shape[0] // self.order.shape[0]
        shape = (rows.shape[0], self.model_width, *(1 for _ in rows.shape[2:]))
        order, real = (
            each.to(rows.device).repeat_interleave(times, 0).reshape(shape).expand(-1, -1, *rows.shape[2:])
            for each in (self.order, self.real)
        )
        return order, real


def _back(rows: Tensor, batch_axis: int, prompt_axis: int) -> Tensor:
    """`rows` with its first two axes where they came from, contiguous."""
    return rows.movedim((0, 1), (batch_axis, prompt_axis)).contiguous()
