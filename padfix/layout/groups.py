"""Groups: rows of one length apart from the others, and what comes of them in the caller's order again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Groups"]


@dataclass(frozen=True)
class Groups:
    """The rows of a batch in groups of one length, the shortest first.

    Attributes:
        rows: For each group the numbers of its rows, in their order.

    >>> groups = Groups.of([3, 1, 3])
    >>> groups.rows
    ((1,), (0, 2))
    >>> groups.join([torch.tensor([[7]]), torch.tensor([[5, 6], [8, 9]])], fill=0).tolist()
    [[5, 6], [7, 0], [8, 9]]
    """

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, lengths: Sequence[int], *, one_row: bool = False) -> Groups:
        """The groups of rows with these lengths; with `one_row` each row is a group."""
        order = sorted(range(len(lengths)), key=lambda row: lengths[row])
        found: list[list[int]] = []
        for row in order:
            if found and not one_row and lengths[row] == lengths[found[-1][0]]:
                found[-1].append(row)
            else:
                found.append([row])
        return cls(tuple(map(tuple, found)))

    @property
    def batch(self) -> int:
        """The number of rows in all."""
        return sum(map(len, self.rows))

    def join(self, parts: Sequence[Tensor | None], *, fill: float) -> Tensor:
        """What the groups gave, one tensor a group, as one tensor in the caller's order of rows.

        Shape: a part has k rows for each row of its group, each row's k in turn, and may have further axes; an axis
        that is shorter than another part's is filled up at its end, and so are the rows of a group that gave None.

        Raises:
            ValueError: No group gave anything, or a part does not fit its group.
        """
        given = [part for part in parts if part is not None]
        if not given or len(parts) != len(self.rows):
            raise ValueError(f"{len(given)} of {len(parts)} parts hold something, for {len(self.rows)} groups")
        sizes = [max(sizes) for sizes in zip(*(part.shape[1:] for part in given), strict=True)]
        copies, joined = 0, None
        for rows, part in zip(self.rows, parts, strict=True):
            if part is None:
                continue
            copies = copies or part.shape[0] // len(rows)
            if part.shape[0] != copies * len(rows):
                raise ValueError(f"a part of shape {tuple(part.shape)} does not fit a group of {len(rows)} rows")
            if joined is None:
                joined = part.new_full((self.batch * copies, *sizes), fill)
            index = self.repeated(rows, copies, part.device)
            cells: tuple[Tensor | slice, ...] = (index, *(slice(size) for size in part.shape[1:]))
            joined[cells] = part
        assert joined is not None
        return joined

    @staticmethod
    def repeated(rows: Sequence[int], copies: int, device: torch.device | None = None) -> Tensor:
        """The numbers of a group's rows in a batch in which each row stands `copies` times in turn."""
        numbers = [row * copies + one for row in rows for one in range(copies)]
        return torch.tensor(numbers, device=device)
