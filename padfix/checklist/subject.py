"""What is looked at, and what padfix would do with a padded batch of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..generation.apart import group_bound
from ..generation.call import bind
from ..generation.compat import eos_ids, vocabulary_size
from ..generation.limits import layout_bound, pad_bound
from ..generation.packable import packing_bound
from ..generation.reach import reached_models
from ..generation.traits import Traits, traits_of
from ..layout.plan import LayoutPlan
from ..settings import Settings
from ..strategies import choose
from .report import Level

__all__ = ["Outlook", "Seen", "Subject"]

# How bad it is, what was seen, and what to do.
Seen = tuple[Level, str, str]


@dataclass(frozen=True, eq=False)
class Subject:
    """What is looked at.

    Attributes:
        model: A model of transformers, on `meta` or anywhere; None where none was passed.
        tokenizer: Its tokenizer; None where none was passed.
        settings: How padded calls are treated; the mode is `off` where padfix is not installed.
    """

    model: Any
    tokenizer: Any
    settings: Settings

    @cached_property
    def trial_tokenizer(self) -> Any:
        """A copy of the tokenizer, since tokenizing resets its truncation and padding."""
        return copy.deepcopy(self.tokenizer)

    @cached_property
    def generation_config(self) -> Any:
        """The model's generation config, or None."""
        return getattr(self.model, "generation_config", None)

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids at which the model's replies end."""
        return () if self.generation_config is None else eos_ids(self.generation_config)

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder-decoder, whose prompt goes to the encoder."""
        return bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))

    @property
    def size(self) -> int | None:
        """The number of rows of the model's embedding, or None."""
        return None if self.model is None else vocabulary_size(self.model)

    @cached_property
    def outlooks(self) -> tuple[Outlook, ...]:
        """What becomes of a padded batch, for each model whose batches padfix gets to see."""
        return tuple(_outlook(one, self.settings) for one in reached_models(self.model))


@dataclass(frozen=True)
class Outlook:
    """What padfix would do with a padded batch of a model.

    Attributes:
        traits: What the model is.
        strategy: How the batch would be made right; None where it cannot be.
        reason: Why it is not left padding, or why it cannot be; else empty.
    """

    traits: Traits
    strategy: str | None
    reason: str


def _outlook(model: Any, settings: Settings) -> Outlook:
    """What becomes of a typical padded batch of a model: a full row, and one with two pads."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]], device="cpu")
    traits = traits_of(model)
    plan = LayoutPlan.from_mask(mask)
    call = bind(model, (), {"input_ids": mask, "attention_mask": mask})
    config = getattr(model, "generation_config", None)

    def obstacles(asked: str) -> str:
        strategy, reason = choose(asked, traits, plan, new_tokens=1)
        if strategy is None or call is None or config is None:
            return reason
        if strategy in ("left_pad", "packed_prefill"):
            packing = packing_bound(call, config, plan, traits) if strategy == "packed_prefill" else ()
            return "; ".join((*packing, *layout_bound(call, config, pads_remain=True), *pad_bound(call, config)))
        return "; ".join((*layout_bound(call, config, pads_remain=False, apart=True), *group_bound(call, config, plan)))

    asked = "left_pad" if settings.strategy == "auto" else settings.strategy
    why_not = obstacles(asked)
    if not why_not or settings.strategy != "auto":
        return Outlook(traits, None if why_not else asked, why_not)
    apart = obstacles("equal_length")
    return Outlook(traits, None, f"{why_not}; {apart}") if apart else Outlook(traits, "equal_length", why_not)
