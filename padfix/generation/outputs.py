"""What `generate` gives back, in the caller's layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from .compat import CACHE_NAMES

__all__ = ["cache_fields", "pads_after_end", "rebuilt", "sequences_to_caller"]


def sequences_to_caller(sequences: Tensor, prompt: Tensor | None, model_width: int) -> Tensor:
    """Sequences whose first columns are the caller's own prompt, bit for bit; the columns after it as they are.

    Shape: `sequences` (batch * k, model_width + new), for k sequences a prompt; `prompt` (batch, caller's width), or
    None for a call with embeddings alone, whose sequences hold no prompt. Gives (batch * k, caller's width + new).
    """
    if prompt is None:
        return sequences
    copies = sequences.shape[0] // prompt.shape[0]
    front = prompt.to(sequences.device, sequences.dtype).repeat_interleave(copies, 0)
    return torch.cat((front, sequences[:, model_width:]), 1)


def pads_after_end(sequences: Tensor, width: int, eos_ids: Collection[int], pad_id: int) -> Tensor:
    """Sequences in which every column after the first EOS past `width` holds `pad_id`."""
    new = sequences[:, width:]
    is_eos = torch.isin(new, torch.tensor(list(eos_ids), device=new.device)).int()
    ended = is_eos.cumsum(1) > is_eos  # an EOS stands somewhere before
    return torch.cat((sequences[:, :width], new.masked_fill(ended, pad_id)), 1)


def cache_fields(output: Any) -> tuple[str, ...]:
    """The fields of an output that hold a cache; none where it is no `ModelOutput`."""
    if not is_dataclass(output):
        return ()
    # 5.24 answers for `past_key_values` as well, an alias that is no field.
    names = (field.name for field in fields(output))
    return tuple(name for name in names if name in CACHE_NAMES and getattr(output, name) is not None)


def rebuilt(output: Any, changes: Mapping[str, Any]) -> Any:
    """A `ModelOutput` of the same class with some fields replaced; a field that is replaced by None is left out."""
    values = {field.name: getattr(output, field.name) for field in fields(output)}
    return type(output)(**{**values, **changes})
