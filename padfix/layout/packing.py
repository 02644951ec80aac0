"""Packing: prompts end to end in few full rows, and what comes of them left-padded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Packing"]


@dataclass(frozen=True)
class Packing:
    """Which prompts share a row, one after the other, in rows that are as wide as the longest prompt.

    Attributes:
        lengths: The number of tokens of each prompt; those without one stand in no row.
        rows: For each packed row the numbers of its prompts, in the order in which they lie there.

    >>> packing = Packing.of([2, 4, 1])
    >>> packing.rows
    ((1,), (0, 2))
    >>> packing.pack(torch.tensor([[0, 0, 5, 6], [1, 2, 3, 4], [0, 0, 0, 7]]), fill=9).tolist()
    [[1, 2, 3, 4], [5, 6, 7, 9]]
    >>> packing.positions.tolist()
    [[0, 1, 2, 3], [0, 1, 0, 0]]
    """

    lengths: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Packing:
        """The packing of prompts of these lengths: first fit decreasing, so no row is wider than the longest."""
        width = max(lengths, default=0)
        rows: list[list[int]] = []
        room: list[int] = []
        for prompt in sorted(range(len(lengths)), key=lambda prompt: -lengths[prompt]):
            length = lengths[prompt]
            if length == 0:
                break
            fits = next((row for row, left in enumerate(room) if length <= left), None)
            if fits is None:
                fits = len(rows)
                rows.append([])
                room.append(width)
            rows[fits].append(prompt)
            room[fits] -= length
        return cls(tuple(lengths), tuple(map(tuple, rows)))

    @property
    def width(self) -> int:
        """The number of columns of a packed row."""
        return max(self.lengths, default=0)

    @property
    def positions(self) -> Tensor:
        """Int64 of shape (rows, width): for each cell how many tokens of its prompt stand before it; 0 where empty."""
        positions = torch.zeros(len(self.rows), self.width, dtype=torch.int64)
        return positions.index_put((self._cells[:, 2], self._cells[:, 3]), self._cells[:, 1])

    def mask(self, device: torch.device | None = None, *, window: int | None = None) -> Tensor:
        """Bool of shape (rows, 1, width, width): whether the cell of a query sees that of a key.

        A token sees itself and what stands before it of its own prompt, or of that the last tokens, so many with it as
        `window` says. The empty cells at the end of a row see one another likewise, so that none of them sees nothing.
        """
        prompts = torch.full((len(self.rows), self.width), -1)
        prompts = prompts.index_put((self._cells[:, 2], self._cells[:, 3]), self._cells[:, 0]).to(device)
        same = prompts[:, :, None] == prompts[:, None, :]
        same.tril_()
        if window is not None:
            same.triu_(1 - window)
        return same[:, None]

    def pack(self, x: Tensor, *, fill: float) -> Tensor:
        """The prompts in their rows, with `fill` in the empty cells.

        Shape: `x` (prompts, columns), left-padded, with as many columns as the longest prompt or more. Gives
        (rows, width).
        """
        prompts, positions, rows, columns = self._cells.to(x.device).unbind(1)
        starts = torch.tensor(self.lengths, device=x.device)[prompts]
        packed = x.new_full((len(self.rows), self.width), fill)
        packed[rows, columns] = x[prompts, x.shape[1] - starts + positions]
        return packed

    def unpack(self, states: Tensor, columns: int, *, copies: int) -> Tensor:
        """What was computed for the packed rows, for each prompt in a row of its own, left-padded with 0.

        Shape: `states` (rows, heads, width, size). Gives (prompts * copies, heads, columns, size), each prompt's
        copies in turn.
        """
        prompts, positions, rows, places = self._cells.to(states.device).unbind(1)
        starts = columns - torch.tensor(self.lengths, device=states.device)[prompts]
        apart = states.new_zeros(len(self.lengths), states.shape[1], columns, states.shape[3])
        apart[prompts, :, starts + positions] = states[rows, :, places]
        return apart.repeat_interleave(copies, 0) if copies > 1 else apart

    @cached_property
    def _cells(self) -> Tensor:
        """Int64 of shape (tokens, 4): prompt, position in it, packed row, column, of each token."""
        found = []
        for row, prompts in enumerate(self.rows):
            column = 0
            for prompt in prompts:
                length = self.lengths[prompt]
                position = torch.arange(length)
                same = torch.ones_like(position)
                found.append(torch.stack((same * prompt, position, same * row, position + column), 1))
                column += length
        return torch.cat(found) if found else torch.zeros(0, 4, dtype=torch.int64)
