"""Padding-free prefill: the prompts packed into few rows, then decoding from a left-padded cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ..generation.cache import poured
from ..generation.compat import CACHE_KEYWORD, growing_cache, masks_are_bool, whole_cache
from ..generation.packable import copies_of, windows_by_kind
from ..layout.packing import Packing
from . import left_pad
from .job import Job

__all__ = ["FEWEST", "LARGEST_SHARE", "fewest_saved", "pays", "run"]

# Packing pays where it leaves this share of the cells of the prefill or less, a cell being a token or a pad of a row,
# and saves enough of them: benchmarks/ragged.py. At 0.75 it took 0.63 to 0.91 of the time, at 0.84 and more up to 1.11.
LARGEST_SHARE = 0.76
FEWEST = 192  # for the models for which it takes the fewest


def fewest_saved(device: str, hidden: int) -> int:
    """The number of cells that packing has to save to outweigh its second forward.

    Measured on the CPU, where a cell of a small model costs little beside the forward itself. On other devices a
    forward of few cells takes as long as one of many: there it is an estimate, far on the safe side.

    Args:
        device: The kind of device, as torch names it.
        hidden: The hidden size of the model.
    """
    if device != "cpu":
        return 16_384
    return FEWEST if hidden >= 256 else 768


def pays(lengths: Sequence[int], width: int, copies: int, *, least: int) -> bool:
    """Whether the cells of packed rows, and of the last column, are so much fewer than those of padded rows.

    Packed rows are as wide as padded ones, so that the cost of attention, which is by the square of the width, shrinks
    by the same share.

    Args:
        lengths: The number of real tokens of each row.
        width: The number of columns of the padded batch.
        copies: The number of rows that `generate` makes of each.
        least: The number of cells that it has to save.
    """
    padded, ends = len(lengths) * width * copies, len(lengths) * copies
    least = max(least, math.ceil((1 - LARGEST_SHARE) * padded))
    if padded - ends - sum(lengths) + len(lengths) < least:  # not even rows without an empty cell would do
        return False
    packing = Packing.of([length - 1 for length in lengths])
    return padded - ends - len(packing.rows) * packing.width >= least


def run(job: Job, original: Callable[..., Any]) -> Any:
    """The output of one call of `original` that finds all but the last column of the prompts in a cache.

    One forward of packed rows, without the head, and then as many forwards as the left-padded batch would take.
    """
    with torch.no_grad() if hasattr(original, "__wrapped__") else nullcontext():  # as the decorator of `generate` does
        cache = _prefilled(job)
    output = left_pad.generated(job, original, {CACHE_KEYWORD: cache, job.call.mask_name: job.plan.real.long()})
    vars(cache).pop("_is_user_defined", None)  # so 4.57 and later mark one that is passed
    return left_pad.restored(output, job)


def _prefilled(job: Job) -> Any:
    """A cache of the left-padded batch with keys and values of all columns but the last, 0 in the cells of pads."""
    call, plan = job.call, job.plan
    model = call.model
    packing = Packing.of([length - 1 for length in plan.lengths])
    ids = plan.to_model(call.arguments[call.prompt_name])[:, :-1]
    packed, columns, copies = whole_cache(), plan.model_width - 1, copies_of(job.config)
    getattr(model, model.base_model_prefix)(
        input_ids=packing.pack(ids, fill=left_pad.valid_pad_id(call, job.config)).to(model.device),
        attention_mask=_masks(packing, model),
        position_ids=packing.positions.to(model.device),
        use_cache=True,
        **{CACHE_KEYWORD: packed},
    )
    return poured(packed, growing_cache(model), lambda states: packing.unpack(states, columns, copies=copies))


def _masks(packing: Packing, model: Any) -> Tensor | dict[str, Tensor]:
    """What each cell sees, as the model's attention takes it: bool, or added to the scores; for each kind of layer."""
    kinds = windows_by_kind(model, packing.width)
    assert kinds is not None, "packing_bound has not been asked"
    masks = {window: _mask(packing, model, window) for window in set(kinds.values())}
    if len(masks) == 1:
        return masks.popitem()[1]
    return {kind: masks[window] for kind, window in kinds.items()}


def _mask(packing: Packing, model: Any, window: int | None) -> Tensor:
    sees = packing.mask(model.device, window=window)
    if masks_are_bool(model):
        return sees
    return torch.zeros_like(sees, dtype=model.dtype).masked_fill_(~sees, torch.finfo(model.dtype).min)
