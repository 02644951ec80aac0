"""Where the pads of a call are: of its prompt, of its negative prompt, beside a cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import GenerationConfig

from ..layout.detect import Padding, from_ids, from_mask
from . import compat
from .cache import PassedCache, passed_cache
from .call import GenerateCall
from .configs import text_config
from .guidance import negative_padding, negative_prompt
from .marks import contradiction

__all__ = ["Found", "detect", "inferred_padding", "masked_padding"]

# The pad id of a call is the one, or else the first of the other.
PAD_FIELDS = ("pad_token_id", "eos_token_id")


@dataclass(frozen=True, eq=False)
class Found:
    """A padded call.

    Attributes:
        padding: Where the pads of the prompt are; nowhere, where only the negative prompt or the cache has some.
        config: The generation config that the call will run with.
        negative: Where the pads of the negative prompt are; None where there are none.
        cache: The cache that the call brings.
        past: The mask over the columns that are in the cache already, where the prompt is the new tokens alone.
    """

    padding: Padding
    config: GenerationConfig
    negative: Padding | None = None
    cache: PassedCache | None = None
    past: Tensor | None = None


def detect(call: GenerateCall, masked: Padding | None) -> Found | None:
    """The pads of the call, or None where there are none, or where transformers refuses the arguments anyway.

    A given mask always wins over ids. Of encoder-decoder models the decoder's prompt is meant.

    Args:
        call: The call.
        masked: What its mask says (`masked_padding`).
    """
    cache, negative = passed_cache(call), negative_prompt(call)
    padding, past = masked, None
    if padding is not None and cache is not None and cache.columns:
        padding, past = _beside_cache(call, cache, padding)
    unmasked = call.ids if call.mask is None and call.ids is not None and call.ids.ndim == 2 else None
    stale = padding is None and cache is not None and _is_stale(call, cache)
    if padding is None and negative is None and not stale and (unmasked is None or _holds_no_pad(call, unmasked)):
        return None  # without resolving the config, which copies it
    config = compat.resolved_config(call)
    if config is None:
        return None
    if unmasked is not None:
        padding = inferred_padding(call, config)
        if padding is not None and cache is not None:
            padding = replace(padding, cached=cache.columns)
    beside = None if negative is None else negative_padding(call, *negative, config)
    if padding is None and beside is None and not stale:
        return None
    full = Padding(torch.ones(call.batch, call.width, dtype=torch.bool), "given")
    return Found(padding or full, config, beside, cache, past)


def _beside_cache(call: GenerateCall, cache: PassedCache, padding: Padding) -> tuple[Padding, Tensor | None]:
    """The padding of the prompt, and the mask over the cached columns where the prompt is the new tokens alone."""
    if padding.real.shape[1] == cache.columns + call.width:
        past, new = padding.real[:, : cache.columns], padding.real[:, cache.columns :]
        return Padding(new, "given"), past
    return replace(padding, cached=cache.columns if cache.whole else 0), None


def _is_stale(call: GenerateCall, cache: PassedCache) -> bool:
    """Whether there are pads in a cache where the sequences of the call, which have none, have tokens."""
    real = torch.ones(call.batch, call.width, dtype=torch.bool)
    return cache.whole and contradiction(cache.cache, cache.columns, real, call.ids, padded=False) is not None


def _holds_no_pad(call: GenerateCall, prompt: Tensor) -> bool:
    """Whether no id of the prompt can be the pad id, whichever of the configs that the call could run with counts."""
    ids = _pad_ids(call)
    if len(ids) == 1:
        return not bool((prompt == ids.pop()).any())
    return not bool(torch.isin(prompt, torch.tensor(sorted(ids), device=prompt.device)).any())


def _pad_ids(call: GenerateCall) -> set[int]:
    """Every id that can be the pad id of the call: the one that is named for it first, if one is."""
    places = [call.get("generation_config"), call.model.generation_config]
    pad = PAD_FIELDS[0]
    for named in (call.get(pad), *(getattr(one, pad, None) for one in places)):
        if type(named) is int:
            return {named}
    places += [call.model.config, text_config(call.model.config)]
    ids: set[int] = set()
    for value in (*map(call.get, PAD_FIELDS), *(getattr(one, name, None) for one in places for name in PAD_FIELDS)):
        listed = value.tolist() if isinstance(value, Tensor) else value
        ids.update(one for one in (listed if isinstance(listed, (list, tuple)) else (listed,)) if isinstance(one, int))
    return ids


def masked_padding(call: GenerateCall) -> Padding | None:
    """The padding that the mask of the prompt describes, if there is one that can be read."""
    mask = call.mask
    return from_mask(mask) if mask is not None and mask.ndim == 2 and mask.numel() else None


def inferred_padding(call: GenerateCall, config: GenerationConfig) -> Padding | None:
    """The padding to read from the ids of a prompt without a mask."""
    pad_id = compat.pad_id(config)
    if call.ids is None or pad_id is None:
        return None
    # A decoder's prompt may start with the pad id, and transformers infers no mask for it.
    return from_ids(call.ids, pad_id, (pad_id,) if call.is_decoder_prompt else compat.eos_ids(config))
