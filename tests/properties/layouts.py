"""Random masks, tensors that have a prompt axis somewhere, and token ids without a mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

__all__ = ["Ids", "Move", "columns", "ids_without_mask", "masks", "moves"]

MASK_DTYPES = (torch.bool, torch.int64, torch.int32, torch.float32)
DTYPES = (torch.int64, torch.int32, torch.int16, torch.float32, torch.float64, torch.bfloat16, torch.bool)

# How the tokens of a row stand among its pads.
SIDES = ("right", "left", "both", "holes", "scattered")


@dataclass(frozen=True)
class Move:
    """A mask, and a tensor to move by its plan.

    Attributes:
        mask: Shape (batch, width); every value but 0 is real.
        trim: Whether the plan may drop columns.
        x: A tensor in the caller's layout, with no value that equals a fill (but for bool).
        batch_axis: The axis of its rows: `batch * times` of them, or one that counts for all.
        prompt_axis: The axis of its columns: `width`, and a few past the prompt.
        times: How often each row of the batch stands in `x`, in turn.
        shared: Whether `x` has one row that counts for all.
        fill: What stands in the cells of pads in the model's layout.
        back: The same in the caller's.
    """

    mask: Tensor
    trim: bool
    x: Tensor
    batch_axis: int
    prompt_axis: int
    times: int
    shared: bool
    fill: float
    back: float

    @property
    def real(self) -> list[list[bool]]:
        """Which cells are real, row by row."""
        return (self.mask != 0).tolist()


@dataclass(frozen=True)
class Ids:
    """Token ids of shape (batch, width) without a mask, the pad id and the EOS ids of the call."""

    ids: Tensor
    pad: int | None
    eos: tuple[int, ...]


@st.composite
def columns(draw: st.DrawFn, length: int, width: int, side: str) -> tuple[int, ...]:
    """The columns of a row's `length` tokens among `width`, in their order."""
    pads = width - length
    if side == "right":
        first, hole = 0, length
    elif side == "left":
        first, hole = pads, length
    elif side == "both":
        first, hole = draw(st.integers(0, pads)), length
    elif side == "holes":
        first, hole = 0, draw(st.integers(min(1, length), max(length - 1, min(1, length))))
    else:
        return tuple(sorted(draw(st.permutations(range(width)))[:length]))
    jump = pads if side == "holes" else 0
    return tuple(first + at + (jump if at >= hole else 0) for at in range(length))


@st.composite
def _real(draw: st.DrawFn, batch: int, width: int) -> list[list[bool]]:
    side = draw(st.sampled_from(SIDES + ("each",)))
    least = draw(st.sampled_from((0, 0, 1)))
    rows = []
    for _ in range(batch):
        length = draw(st.one_of(st.integers(least, width), st.just(width)))
        own = draw(st.sampled_from(SIDES)) if side == "each" else side
        real = set(draw(columns(length, width, own)))
        rows.append([column in real for column in range(width)])
    return rows


def _mask(real: Sequence[Sequence[bool]], dtype: torch.dtype, value: float) -> Tensor:
    return torch.tensor(real).to(dtype) * torch.tensor(value).to(dtype)


@st.composite
def masks(draw: st.DrawFn, *, batch: int | None = None, width: int | None = None) -> Tensor:
    """A mask of 1 to 6 rows and 1 to 14 columns: pads left, right, both, in holes; full and empty rows among them."""
    batch = draw(st.integers(1, 6)) if batch is None else batch
    width = draw(st.integers(1, 14)) if width is None else width
    dtype = draw(st.sampled_from(MASK_DTYPES))
    value = 1.0 if dtype == torch.bool else draw(st.sampled_from((1.0, 1.0, 2.0, -1.0)))
    mask = _mask(draw(_real(batch, width)), dtype, value)
    return mask.t().contiguous().t() if draw(st.booleans()) else mask


def _values(shape: Sequence[int], dtype: torch.dtype, seed: int) -> Tensor:
    """A tensor whose values all differ and equal no fill, as far as the dtype has room for that."""
    count = math.prod(shape)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).reshape(tuple(shape))
    return order % 2 == 0 if dtype == torch.bool else (order + 1000).to(dtype)


@st.composite
def moves(draw: st.DrawFn) -> Move:
    """A mask and a tensor of 2 to 4 axes, rows and columns on any two of them, contiguous or a view."""
    mask = draw(masks())
    batch, width = mask.shape
    times = draw(st.sampled_from((1, 1, 1, 2, 3)))
    shared = times == 1 and draw(st.sampled_from((False, False, False, True)))
    dtype = draw(st.sampled_from(DTYPES))
    rest = draw(st.lists(st.integers(1, 3), max_size=2))
    shape = (1 if shared else batch * times, width + draw(st.integers(0, 3)), *rest)
    ndim = len(shape)
    axes = draw(st.permutations(range(ndim)))[:2] if draw(st.booleans()) else [0, 1]
    seed = draw(st.integers(0, 99))
    if draw(st.booleans()):  # every other value of a larger tensor
        x = _values((*shape[:-1], 2 * shape[-1]), dtype, seed)[..., ::2]
    else:
        x = _values(shape, dtype, seed)
    x = x.movedim((0, 1), (axes[0], axes[1]))
    if draw(st.booleans()):
        x = x.contiguous()
    batch_axis, prompt_axis = (axis - ndim if draw(st.booleans()) else axis for axis in axes)
    fills: tuple[float, ...] = (0, 1) if dtype == torch.bool else (7, -1, 113, 0)
    if dtype.is_floating_point:
        fills += (-1.5, float("-inf"))
    fill, back = draw(st.sampled_from(fills)), draw(st.sampled_from(fills))
    return Move(mask, draw(st.booleans()), x, batch_axis, prompt_axis, times, shared, fill, back)


@st.composite
def ids_without_mask(draw: st.DrawFn) -> Ids:
    """Ids over few tokens, so that runs of the pad id at the ends of rows are frequent and of several lengths."""
    pad = draw(st.sampled_from((0, 2, 7, None)))
    eos = draw(st.sampled_from(((), (2,), (7,), (2, 7), (0, 2))))
    width = draw(st.integers(1, 10))
    run = 7 if pad is None else pad
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        left = draw(st.integers(0, width))
        right = draw(st.integers(0, width - left))
        inner = width - left - right
        middle = draw(st.lists(st.sampled_from((5, 2, 0, 7, 9)), min_size=inner, max_size=inner))
        rows.append([run] * left + middle + [run] * right)
    return Ids(torch.tensor(rows, dtype=draw(st.sampled_from((torch.int64, torch.int32)))), pad, eos)
