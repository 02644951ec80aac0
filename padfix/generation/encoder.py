"""The two processors that read an encoder's ids, as if those had no pads."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
)

from ..layout.plan import LayoutPlan

__all__ = ["READ_ENCODER", "without_pads"]

READ_ENCODER = (EncoderNoRepeatNGramLogitsProcessor, EncoderRepetitionPenaltyLogitsProcessor)

# An id that no vocabulary has.
NO_TOKEN = -1


def without_pads(processor: Any, ids: Any, model_kwargs: Mapping[str, Any] | None) -> Any:
    """One of the two, made by `generate` from these ids, as it would be for each row's real tokens alone.

    Itself where the ids are none or have no pads. A row without a real token keeps its own.
    """
    real = _real(ids, (model_kwargs or {}).get("attention_mask"))
    if real is None:
        return processor
    plan = LayoutPlan.from_mask(real, trim=False)
    moved: Any = plan.to_model(ids, fill=NO_TOKEN)  # the pads first: no n-gram leads from a token to a pad
    if isinstance(processor, EncoderNoRepeatNGramLogitsProcessor) and processor.ngram_size > 1:
        kept: Any = torch.where(real.any(1, keepdim=True), moved, ids)
        return type(processor)(processor.ngram_size, kept)
    filled: Any = torch.where(plan.real, moved, moved[:, -1:])
    filled = torch.where(real.any(1, keepdim=True), filled, ids)
    if isinstance(processor, EncoderNoRepeatNGramLogitsProcessor):
        return type(processor)(1, filled)
    changed = copy.copy(processor)
    changed.encoder_input_ids = filled
    return changed


def _real(ids: Any, mask: Any) -> Tensor | None:
    """Which of an encoder's ids are real tokens, of their shape; None where all are, or where they are no ids.

    The mask may stand there as often as each prompt has beams.
    """
    if not (isinstance(ids, Tensor) and isinstance(mask, Tensor)) or ids.ndim != 2 or ids.is_floating_point():
        return None
    if mask.ndim != 2 or mask.shape[1] != ids.shape[1] or len(mask) % len(ids):
        return None
    real = mask[:: len(mask) // len(ids)].to(ids.device) != 0
    return None if bool(real.all()) else real
