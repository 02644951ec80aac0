"""The commonest padded call: left-padded, with nothing that looks at pads, so that an exact model gets it right.

Resolving a generation config costs as much as everything else that has to be known of such a call. Here it is told by
what can be read without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

from .call import GenerateCall
from .compat import configs_can_ask, vocabulary_size
from .configs import generation_defaults, odd_caches
from .limits import cut_before_us

__all__ = ["QUIET", "have_embeddings", "is_plain"]

# Fields of a generation config to which it makes no difference whether there are pads before the prompts.
QUIET = frozenset(
    {
        "bos_token_id",
        "decoder_start_token_id",
        "do_sample",
        "eos_token_id",
        "epsilon_cutoff",
        "eta_cutoff",
        "max_length",
        "max_new_tokens",
        "min_p",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "return_dict_in_generate",
        "temperature",
        "top_h",
        "top_k",
        "top_p",
        "transformers_version",
        "typical_p",
        "use_cache",
    }
)


def is_plain(call: GenerateCall) -> bool:
    """Whether a batch is left-padded and nothing in its call looks at pads; False says nothing.

    Such a call has to be looked at more closely. Three host syncs.
    """
    ids, mask = call.ids, call.mask
    if ids is None or mask is None or call.is_decoder_prompt or ids.ndim != 2 or mask.shape != ids.shape:
        return False
    if mask.is_floating_point() or mask.is_complex():
        return False
    if not QUIET.issuperset(call.arguments.keys() - {call.ids_name, call.mask_name, "generation_config"}):
        return False
    size = vocabulary_size(call.model)
    if size is None or not _is_quiet(call, size) or cut_before_us(call.model) or not have_embeddings(ids, size):
        return False
    # The first 1 of each row: of a left-padded one nothing but ones follow. A row of zeros has its first 0 there.
    first = mask.long().argmax(1, keepdim=True)
    is_left = (torch.arange(call.width, device=mask.device) >= first) == mask
    return bool(is_left.all())


def have_embeddings(ids: Tensor, size: int) -> bool:
    """Whether an embedding of this size has a row for every id. Two host syncs."""
    low, high = map(int, ids.aminmax())
    return low >= 0 and high < size


def _is_quiet(call: GenerateCall, size: int) -> bool:
    """Whether no field of the configs that the call could run with looks at pads, and the pad id has an embedding."""
    model, passed = call.model, call.get("generation_config")
    own = model.generation_config
    prepare = "_prepare_generation_config"
    if prepare in vars(model) or getattr(type(model), prepare, None) is not getattr(GenerationMixin, prepare):
        return False
    if passed is None and configs_can_ask() and own._from_model_config:
        return False
    configs = (own,) if passed is None else (passed, own)
    if not all(isinstance(one, GenerationConfig) and _has_only_quiet(one) for one in configs):
        return False
    if odd_caches(call.arguments.get("use_cache", True), *configs):
        return False
    pads = (call.get("pad_token_id"), *(one.pad_token_id for one in configs))
    return all(pad is None or (type(pad) is int and 0 <= pad < size) for pad in pads)


def _has_only_quiet(config: GenerationConfig) -> bool:
    default = generation_defaults()
    return not any(
        value is not None
        and value is not False
        and value is not default.get(name)
        and name not in QUIET
        and name[0] != "_"
        and not _equal(value, default.get(name))
        for name, value in vars(config).items()
    )


def _equal(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, Tensor) and bool(value == default)
