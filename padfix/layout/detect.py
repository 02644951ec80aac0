"""Which positions of a batch are real tokens: read from a mask, or inferred from the ids."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Padding", "from_ids", "from_mask"]


@dataclass(frozen=True, eq=False)
class Padding:
    """A batch that has at least one pad.

    Attributes:
        real: Bool of shape (batch, width), True where a token is real.
        source: `given` by a mask, or `inferred` from the ids.
        guessed: The rows in which ids were taken for pads although they could be content, since the pad id is
            also an EOS id.
        cached: The number of columns in front that are in a cache already: pads among them are nobody's concern.
    """

    real: Tensor
    source: Literal["given", "inferred"]
    guessed: tuple[int, ...] = ()
    cached: int = 0

    @cached_property
    def _rows(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        real = self.real[:, self.cached :]
        misplaced = (real[:, :-1] & ~real[:, 1:]).any(dim=1)
        empty = ~real.any(dim=1)
        flags = torch.stack((misplaced, empty)).tolist()  # the one host sync
        where = [tuple(row for row, flag in enumerate(one) if flag) for one in flags]
        return where[0], where[1]

    @property
    def misplaced(self) -> tuple[int, ...]:
        """The rows with a pad somewhere after a real token: padded on the right, on both sides, or with holes."""
        return self._rows[0]

    @property
    def empty(self) -> tuple[int, ...]:
        """The rows without a real token."""
        return self._rows[1]


def from_mask(mask: Tensor) -> Padding | None:
    """The padding that an attention mask of shape (batch, width) describes, or None where it masks nothing.

    Every value but 0 counts as real. One host sync.

    >>> padding = from_mask(torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]]))
    >>> padding.misplaced, padding.empty
    ((0,), (2,))
    """
    return None if bool(mask.all()) else Padding(mask != 0, "given")


def from_ids(ids: Tensor, pad_id: int | None, eos_ids: Collection[int]) -> Padding | None:
    """The padding to read from token ids of shape (batch, width) without a mask, or None where nothing is padding.

    With a pad id of its own, every pad id is a pad wherever it stands: the rule of
    `GenerationMixin._prepare_attention_mask_for_generation` (transformers 4.46 to 5.24).

    Where the pad id is also an EOS id, transformers takes every id for content. Here the runs of that id at the two
    ends of the rows are compared: on each side the shortest run is content (an EOS that ends every prompt, a BOS that
    starts it), and what exceeds it is padding. One row alone tells nothing, and neither do runs that are all equal.
    Rows that hold nothing but the id are left out of the comparison and stay as they are.

    >>> padding = from_ids(torch.tensor([[5, 6, 2, 2], [7, 8, 9, 2]]), pad_id=2, eos_ids=[2])
    >>> padding.real.int().tolist(), padding.guessed
    ([[1, 1, 1, 0], [1, 1, 1, 1]], (0,))
    """
    if pad_id is None:
        return None
    is_pad = ids == pad_id
    if pad_id not in eos_ids:
        return Padding(~is_pad, "inferred") if bool(is_pad.any()) else None

    width = ids.shape[1]
    leading = is_pad.int().cumprod(dim=1).sum(dim=1)
    trailing = is_pad.flip(1).int().cumprod(dim=1).sum(dim=1)
    telling = leading < width
    if int(telling.sum()) < 2:
        return None
    first = (leading - leading[telling].min()).where(telling, 0)
    last = width - (trailing - trailing[telling].min()).where(telling, 0)
    columns = torch.arange(width, device=ids.device)
    real = (columns >= first[:, None]) & (columns < last[:, None])
    guessed = tuple(row for row, full in enumerate(real.all(dim=1).tolist()) if not full)
    return Padding(real, "inferred", guessed) if guessed else None
