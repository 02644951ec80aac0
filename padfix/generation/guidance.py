"""Negative prompts of classifier-free guidance: a second batch beside the prompt, with pads of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.logits_process import UnbatchedClassifierFreeGuidanceLogitsProcessor

from ..layout.detect import Padding, from_ids, from_mask
from ..layout.plan import LayoutPlan
from .call import GenerateCall
from .compat import pad_id

__all__ = ["needs_axes", "negative_padding", "negative_prompt", "padding_of", "without_pads"]


def negative_prompt(call: GenerateCall) -> tuple[Tensor, Tensor | None] | None:
    """Ids of shape (batch, width) and mask of the negative prompts: arguments, or in a processor of the caller's."""
    ids, mask = call.get("negative_prompt_ids"), call.get("negative_prompt_attention_mask")
    passed = call.get("logits_processor")
    for one in passed if isinstance(passed, Iterable) else ():
        if type(one) is UnbatchedClassifierFreeGuidanceLogitsProcessor:
            ids, mask = (one.unconditional_context[name] for name in ("input_ids", "attention_mask"))
    return (ids, mask) if isinstance(ids, Tensor) and ids.ndim == 2 and ids.numel() else None


def padding_of(ids: Tensor, mask: Any, config: GenerationConfig) -> Padding | None:
    """The padding of negative prompts: from their mask, else from their ids.

    `generate` itself takes every id for content where the mask is missing (transformers 4.46 to 5.24), so here too pads
    are only what exceeds the shortest run of the pad id: the rule of `from_ids` where a pad id may be content.
    """
    if mask is None:
        pad = pad_id(config)
        return from_ids(ids, pad, () if pad is None else (pad,))
    return from_mask(mask) if isinstance(mask, Tensor) and mask.shape == ids.shape else None


def negative_padding(call: GenerateCall, ids: Tensor, mask: Any, config: GenerationConfig) -> Padding | None:
    """The padding of a call's negative prompts where guidance is asked for, or None."""
    by_flag = getattr(config, "guidance_scale", None) not in (None, 1)
    return padding_of(ids, mask, config) if by_flag or call.get("negative_prompt_ids") is None else None


def without_pads(processor: Any, config: GenerationConfig) -> Any:
    """A guidance processor whose negative prompts are left-padded and told their positions; itself without pads."""
    context = processor.unconditional_context
    ids, mask = context["input_ids"], context["attention_mask"]
    # Without ids of its own the second branch starts at each row's last token, which is real in the model's layout.
    padding = None if ids is None else padding_of(ids, mask, config)
    if padding is None:
        return processor
    plan = LayoutPlan.from_mask(padding.real)
    moved = copy.copy(processor)
    moved.unconditional_context = {**context, "input_ids": plan.to_model(ids), "attention_mask": plan.real.long()}
    moved.model = _WithPositions(processor.model)
    return moved


def needs_axes(model: Any) -> bool:
    """Whether the model's position ids have several axes (mRoPE), which a mask alone does not imply."""
    return any(hasattr(one, "get_rope_index") for one in (model, getattr(model, "model", None)))


class _WithPositions:
    """A model that is told the positions which its mask implies, as `generate` tells it in the first branch."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def __call__(self, input_ids: Tensor, *, attention_mask: Tensor, **kwargs: Any) -> Any:
        if self.takes_positions:
            positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
            kwargs["position_ids"] = positions[:, -input_ids.shape[1] :]
        return self.model(input_ids, attention_mask=attention_mask, **kwargs)
