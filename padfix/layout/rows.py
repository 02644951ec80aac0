"""Rows of different length as one padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Side", "padded"]

Side = Literal["left", "right"]


def padded(rows: Sequence[Sequence[int]], pad_id: int, side: Side, *, extra: int = 0) -> tuple[Tensor, Tensor]:
    """Ids and attention mask of the rows padded on `side`, both of shape (rows, longest row + extra) and int64.

    >>> ids, mask = padded([[5, 6, 7], [8]], pad_id=9, side="left")
    >>> ids.tolist(), mask.tolist()
    ([[5, 6, 7], [9, 9, 8]], [[1, 1, 1], [0, 0, 1]])
    """
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max()) + extra
    columns = torch.arange(width)
    real = columns < lengths[:, None] if side == "right" else columns >= width - lengths[:, None]
    ids = torch.full((len(rows), width), pad_id)
    ids[real] = torch.tensor([token for row in rows for token in row], dtype=torch.int64)
    return ids, real.long()
