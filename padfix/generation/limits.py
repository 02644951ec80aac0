"""What a call asks for that cannot be made right: by name, one short phrase each.

What is bound to the layout is lost when columns move, so it matters only for a batch that is re-laid. What looks at
pads matters wherever the model sees one, in a batch that the caller left-padded too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from ..registry import Axes
from .adapters import has_offsets
from .cache import passed_cache
from .call import GenerateCall
from .compat import (
    CACHE_NAMES,
    chunks_count_columns,
    encoder_penalty_reaches_every_row,
    repetition_penalty_skips_pads,
    width_counts_forwards,
)
from .configs import odd_caches
from .decoding import passed_by_caller
from .guidance import needs_axes
from .processors import TWINS
from .states import ONE_PROMPT_LOOPS, states_bound
from .traits import needs_decoder_positions

__all__ = [
    "cut_before_us",
    "identity_bound",
    "layout_bound",
    "lookahead_bound",
    "misfits",
    "negative_bound",
    "pad_bound",
    "reads_history",
    "unreadable_mask",
    "width_bound",
]

# Arguments that take the decoding loop out of our hands, or tokenize the prompt anew.
OTHER_LOOPS = ("custom_generate", "token_healing", "use_mtp")
# Keywords that hold absolute indices into the prompt, or were made for its columns.
ABSOLUTE_INDICES = ("image_bound", "alora_offsets", "cache_position")
# Text models whose outer model has a `generate` of its own that writes the start token into the first column and cuts
# the last one off before it calls theirs.
CUT_BEFORE_US = ("BlipTextLMHeadModel",)
# The encoder's input, which may have the shape of the decoder's prompt by chance.
ENCODERS = ("attention_mask", "input_ids", "inputs")
# Keywords whose second axis is not the prompt's, whatever its size.
NOT_ALIGNED = frozenset(
    {
        "aspect_ratio_ids",
        "aspect_ratio_mask",
        "feature_attention_mask",
        "image_grid_thw",
        "image_sizes",
        "input_features_mask",
        "negative_prompt_attention_mask",
        "negative_prompt_ids",
        "pixel_attention_mask",
        "spatial_shapes",
        "video_grid_thw",
    }
)


def _is_set(value: Any, call: GenerateCall) -> bool:
    return isinstance(value, Tensor) or bool(value)


def _is_not_one(value: Any, call: GenerateCall) -> bool:
    return value is not None and value != 1


def _counts_pads(value: Any, call: GenerateCall) -> bool:
    # With embeddings alone, 5.24 skips a row's first new tokens by mistake: its pads are counted off the reply.
    skipped = repetition_penalty_skips_pads() and call.ids is not None
    return _is_not_one(value, call) and not skipped


def _has_long_sequence(value: Any, call: GenerateCall) -> bool:
    """Whether a bias or ban concerns more than one token, so that the ones before are looked at."""
    # {(ids): bias}, or [[[ids], bias], ...], or [[ids], ...]
    if not isinstance(value, (Mapping, Sequence)):
        return False  # transformers refuses it
    sequences = (one[0] if _is_nested(one) else one for one in value)
    return any(isinstance(one, Sequence) and len(one) > 1 for one in sequences)


def _is_nested(one: Any) -> bool:
    return isinstance(one, Sequence) and len(one) > 0 and isinstance(one[0], Sequence)


# Fields of the generation config whose processors read the token history or count columns, and when they do.
READS_HISTORY: Mapping[str, Callable[[Any, GenerateCall], bool]] = {
    "bad_words_ids": _has_long_sequence,
    "encoder_no_repeat_ngram_size": _is_set,
    "encoder_repetition_penalty": _is_not_one,
    "forced_bos_token_id": lambda value, call: value is not None,
    "no_repeat_ngram_size": _is_set,
    "repetition_penalty": _counts_pads,
    "sequence_bias": _has_long_sequence,
    "stop_strings": _is_set,
    "watermarking_config": _is_set,
}


def pad_bound(call: GenerateCall, config: GenerationConfig) -> Iterator[str]:
    """What sees every pad that the model sees, and cannot be kept from it."""
    for name in ("constraints", "force_words_ids", "penalty_alpha"):
        if _is_set(getattr(config, name, None), call):
            yield f"{name}=... (its decoding loop looks at pads)"
    penalty, rows = config.encoder_repetition_penalty, (config.num_beams, config.num_return_sequences)
    if penalty not in (None, 1) and not set(rows) <= {None, 1} and not encoder_penalty_reaches_every_row():
        yield f"encoder_repetition_penalty={penalty} (this release applies it to some of a prompt's rows)"
    for cached in odd_caches(call.arguments.get("use_cache", True), config)[:1]:
        yield f"use_cache={_shown(cached)} (its positions count pads; True and False are exact)"
    yield from _paged(config)
    if chunks_count_columns() and getattr(config, "prefill_chunk_size", None) is not None:
        yield f"prefill_chunk_size={config.prefill_chunk_size} (this release counts pads as positions then)"
    for name in cut_before_us(call.model):
        if _starts_under_pads(call):
            yield f"{name} (the model around it has put the start token of padded rows under their pads)"


def lookahead_bound(call: GenerateCall, config: GenerationConfig) -> Iterator[str]:
    """What looks several tokens ahead, and counts the pads in doing so."""
    yield from _asked_for(ONE_PROMPT_LOOPS, call, config)


def _asked_for(names: Sequence[str], call: GenerateCall, config: GenerationConfig) -> Iterator[str]:
    for name in names:
        if call.get(name) or getattr(config, name, None):
            yield f"{name}= (another decoding loop)"


def _paged(config: GenerationConfig) -> Iterator[str]:
    if config.cache_implementation == "paged":
        yield 'cache_implementation="paged" (it feeds pads as tokens)'


def width_bound(call: GenerateCall, config: GenerationConfig) -> Iterator[str]:
    """What stands in the way of dropping columns."""
    if width_counts_forwards(call, config):
        yield f"prefill_chunk_size={config.prefill_chunk_size} (every rank has to run the same number of chunks)"


def negative_bound(call: GenerateCall) -> Iterator[str]:
    """What stands in the way of padded negative prompts."""
    if needs_axes(call.model):
        yield f"negative_prompt_ids= (the position ids of {type(call.model).__name__} have several axes)"


def layout_bound(
    call: GenerateCall, config: GenerationConfig, *, pads_remain: bool, apart: bool = False
) -> Iterator[str]:
    """What stands in the way of moving this call's columns.

    Args:
        pads_remain: Whether the model sees pads then.
        apart: Whether rows of one length run apart from the others.
    """
    for name in cut_before_us(call.model):
        yield f"{name} (the model around it has cut off the last column, whatever stood there)"
    yield from misfits(call) if apart else identity_bound(call)
    yield from _asked_for(OTHER_LOOPS, call, config)
    if pads_remain:
        yield from lookahead_bound(call, config)
    for name in CACHE_NAMES if apart else ():
        if call.get(name) is not None:
            yield f"{name}= (rows that run apart cannot share a cache)"
    yield from _paged(config)
    yield from states_bound(call, config)
    for name in ABSOLUTE_INDICES:
        if call.get(name) is not None:
            yield f"{name}= (it holds indices into the prompt)"
    if has_offsets(call.model):
        yield "alora_offsets= (PEFT has counted columns, pads included)"


def cut_before_us(model: Any) -> list[str]:
    """The classes of a model whose outer model has changed the prompts before it called `generate`."""
    return [one.__name__ for one in type(model).__mro__ if one.__name__ in CUT_BEFORE_US]


def _starts_under_pads(call: GenerateCall) -> bool:
    """Whether a pad in the first column was overwritten by the start token, which the row's prompt does not have."""
    start = getattr(call.model.config, "bos_token_id", None)
    if call.ids is None or call.mask is None or call.ids.shape != call.mask.shape or start is None:
        return False
    firsts = call.ids.gather(1, (call.mask != 0).long().argmax(1, keepdim=True))[:, 0]
    return bool(((call.mask[:, 0] == 0) & (call.ids[:, 0] == start) & (firsts != start)).any())


def identity_bound(call: GenerateCall) -> Iterator[str]:
    """What stands in the way of a call whose columns stay, but whose mask, positions or masked ids are rewritten."""
    if call.is_decoder_prompt and not needs_decoder_positions(call.model):
        yield f"{call.prompt_name}= (the prompt of an encoder-decoder model)"
        return
    yield from misfits(call)


def unreadable_mask(call: GenerateCall) -> str | None:
    """Why a mask with zeros does not say which tokens are real, if it does not.

    Beside a cache it may cover the cached columns, which the prompt does not bring.
    """
    mask, shape, cache = call.mask, (call.batch, call.width), passed_cache(call)
    if mask is None:
        return None
    columns = 0 if cache is None else cache.columns
    if columns >= call.width == mask.shape[1]:
        seen = f"where the cache holds {columns} columns and the prompt has shape {shape}"
        return f"{call.mask_name}= of shape {tuple(mask.shape)}, {seen}"
    widths = (call.width, columns + call.width)
    if mask.shape[0] != call.batch or mask.shape[1] not in widths:
        return f"{call.mask_name}= of shape {tuple(mask.shape)}, where the prompt has shape {shape}"
    if not bool(((mask == 0) | (mask == 1)).all()):
        return f"{call.mask_name}= of shape {tuple(mask.shape)} with values other than 0 and 1"
    return None


def misfits(call: GenerateCall) -> Iterator[str]:
    """Tensors that should move with the tokens and cannot, or that look as if they should."""
    shape = (call.batch, call.width)
    mask, ids = call.mask, call.ids
    if mask is not None and tuple(mask.shape) != shape and unreadable_mask(call) is not None:
        yield f"{call.mask_name}= of shape {tuple(mask.shape)}, where the prompt has shape {shape}"
    if ids is not None and ids.ndim > 2:
        yield f"{call.ids_name}= of shape {tuple(ids.shape)} (more than one token a column)"
    elif ids is not None and tuple(ids.shape) != shape:
        yield f"{call.ids_name}= of shape {tuple(ids.shape)} beside {call.embeds_name}= of {shape[1]} columns"
    for name, value in call.arguments.items():
        if value is None or name in (call.ids_name, call.mask_name):
            continue
        if call.is_decoder_prompt and name in ENCODERS:
            continue
        if name in call.sequence_axes:
            axes = call.sequence_axes[name]
            sizes = tuple(value.shape) if isinstance(value, Tensor) else ()
            fits = _fit(sizes, axes, call)
            if not fits:
                seen = f"of shape {sizes}" if sizes else f"of type {type(value).__name__}"
                yield f"{name}= {seen}, where the prompt has shape {shape}"
        elif isinstance(value, Tensor) and name not in NOT_ALIGNED and _looks_aligned(value, shape):
            yield (
                f"{name}= of shape {tuple(value.shape)} (it looks as if its columns were the prompt's: "
                "padfix.register_prompt_tensor says where they are)"
            )


def _fit(sizes: tuple[int, ...], axes: Axes, call: GenerateCall) -> bool:
    """Whether a tensor of these sizes has the rows (or one for all) and columns of the prompt where its axes say."""
    least = max(2, *(axis + 1 if axis >= 0 else -axis for axis in (axes.batch, axes.prompt)))
    return len(sizes) >= least and sizes[axes.prompt] == call.width and sizes[axes.batch] in (1, call.batch)


def _looks_aligned(value: Tensor, shape: tuple[int, int]) -> bool:
    is_label = value.dtype == torch.bool or not (value.is_floating_point() or value.is_complex())
    return is_label and value.ndim >= 2 and tuple(value.shape[:2]) == shape


def reads_history(call: GenerateCall, config: GenerationConfig, *, has_holes: bool = False) -> Iterator[str]:
    """What would see the pads that the model sees, if it were the library's own: see generation/processors.py.

    Args:
        has_holes: Whether pads lie among the tokens, as they can in the columns of a cache.
    """
    for name, sees_pads in READS_HISTORY.items():
        value = getattr(config, name, None)
        sees_holes = has_holes and name == "repetition_penalty" and _is_not_one(value, call)
        if value is not None and (sees_holes or sees_pads(value, call)):
            shown = "..." if name.endswith("token_id") else _shown(value)
            yield f"{name}={shown} (it reads the token history)"
    if config.min_length and config.min_new_tokens is None:
        yield f"min_length={config.min_length} (it counts pads; min_new_tokens does not)"
    for one in passed_by_caller(call):
        if type(one) in TWINS:
            yield f"{type(one).__name__} (it reads the token history)"


def _shown(value: Any) -> str:
    """A value in a message: numbers as they are; what may hold token ids or text only by its type."""
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else "..."
