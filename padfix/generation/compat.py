"""What differs between releases of transformers, and the names that they use. Each fact with where it was seen."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import util
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch.distributed
from transformers import GenerationConfig, PretrainedConfig, cache_utils
from transformers.generation.logits_process import EncoderRepetitionPenaltyLogitsProcessor
from transformers.generation.utils import GenerationMixin
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

from .call import PARAMETERS, GenerateCall

__all__ = [
    "CACHE_KEYWORD",
    "CACHE_NAMES",
    "DTYPE_KEYWORD",
    "autocasts",
    "chunks_count_columns",
    "configs_can_ask",
    "default_max_length_counts_columns",
    "encoder_penalty_reaches_every_row",
    "eos_ids",
    "growing_cache",
    "has_static_cache",
    "has_unsteady_windows",
    "installed",
    "masks_are_bool",
    "own_max_length_counts_columns",
    "pad_id",
    "positional_parameters",
    "positions_advance",
    "repetition_penalty_skips_pads",
    "resolved_config",
    "several_ranks",
    "steps_together",
    "takes_masks_by_kind",
    "tuples_are_caches",
    "vocabulary_size",
    "wants_fixed_shapes",
    "whole_cache",
    "width_counts_forwards",
]

# A cache, as an argument and as a field of an output: `cache` in 5.24; up to 5.x `past_key_values`, and `cache_params`
# for the Mamba family.
CACHE_NAMES = ("past_key_values", "cache", "cache_params")
# The one of them that `generate` and forward take for a transformer's.
CACHE_KEYWORD = (
    "cache"
    if "cache" in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    else "past_key_values"
)

# Caches of fixed shape: a new width means a new graph. Those with sliding layers of their own up to 4.57.
SLIDING_CACHES = ("hybrid", "hybrid_chunked", "offloaded_hybrid", "sliding_window")
STATIC_CACHES = ("static", "offloaded_static", *SLIDING_CACHES)
SLIDING_CLASSES = {"SlidingWindowCache", "HybridCache", "HybridChunkedCache", "OffloadedHybridCache"}
STATIC_CLASSES = {"StaticCache", "OffloadedStaticCache", *SLIDING_CLASSES}
# Devices on which every new shape is compiled anew.
FIXED_SHAPE_DEVICES = ("xla", "hpu", "neuron")


@lru_cache(maxsize=1)
def installed() -> tuple[int, int]:
    """Major and minor number of the installed release of transformers."""
    major, minor = version("transformers").split(".")[:2]
    return int(major), int(minor)


# The argument of `from_pretrained` that takes the dtype: `torch_dtype` up to 4.55.
DTYPE_KEYWORD = "dtype" if installed() >= (4, 56) else "torch_dtype"


def resolved_config(call: GenerateCall) -> GenerationConfig | None:
    """The generation config that the call will run with, as `generate` itself resolves it; a copy.

    None where transformers refuses to resolve it: calling the original then raises its own exception.
    """
    prepare = call.model._prepare_generation_config
    set_apart = {*PARAMETERS, *positional_parameters(), "tokenizer", "assistant_tokenizer"}
    named = {name: value for name, value in call.arguments.items() if name not in set_apart}
    if "use_model_defaults" in inspect.signature(prepare).parameters:  # 4.50 to 4.57
        named["use_model_defaults"] = call.get("use_model_defaults")
    try:
        config, _ = prepare(call.get("generation_config"), **named)
    except (AttributeError, TypeError, ValueError):
        return None
    return config if isinstance(config, GenerationConfig) else None


@lru_cache(maxsize=1)
def configs_can_ask() -> bool:
    """Whether a model's own configuration can hold fields of a generation config that count: up to 4.57."""
    return hasattr(PretrainedConfig, "_get_non_default_generation_parameters")


def eos_ids(config: GenerationConfig) -> tuple[int, ...]:
    """The ids that end a row."""
    ids = config.eos_token_id
    if ids is None:
        return ()
    if hasattr(ids, "tolist"):
        ids = ids.flatten().tolist()
    return tuple(ids) if isinstance(ids, (list, tuple)) else (ids,)


def pad_id(config: GenerationConfig) -> int | None:
    """The pad id that the call will use: its own or the model's, else the first EOS, as in `generate`."""
    ends = eos_ids(config)
    return config.pad_token_id if config.pad_token_id is not None else (ends[0] if ends else None)


def vocabulary_size(model: Any) -> int | None:
    """The number of rows of the input embedding, or None where it cannot be told.

    A weight in shards (ZeRO-3, FSDP1) has one axis or no entry between forwards: there the configuration says it.
    """
    try:
        rows, hidden = model.get_input_embeddings().weight.shape
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        rows = hidden = 0
    if rows and hidden:
        return int(rows)
    size = getattr(model.config, "vocab_size", None)
    return size if isinstance(size, int) else None


def steps_together(call: GenerateCall) -> bool:
    """Whether ranks have to run the same number of forwards: `synced_gpus`, or weights in shards (FSDP, ZeRO-3).

    With shards every forward waits for the other ranks, whatever `synced_gpus` says, also where some layers alone have
    them, which `generate` does not look for.
    """
    if call.get("synced_gpus"):
        return True
    return several_ranks() and (is_deepspeed_zero3_enabled() or any(map(is_fsdp_managed_module, call.model.modules())))


def width_counts_forwards(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether ranks step together and prefill in chunks: a prompt of another width takes another number of forwards."""
    return getattr(config, "prefill_chunk_size", None) is not None and steps_together(call)


def several_ranks() -> bool:
    """Whether this process is one of several that compute together."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def wants_fixed_shapes(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether a prompt of another width would cost a new graph: static caches, compiled forwards, some devices."""
    forward = call.model.forward
    return (
        has_static_cache(call, config)
        # In 4.51 every generation config holds one, used with static caches alone; later only one that was asked for.
        or getattr(config, "compile_config", None) != getattr(GenerationConfig(), "compile_config", None)
        or hasattr(forward, "_torchdynamo_orig_callable")
        or hasattr(forward, "get_compiler_config")
        or getattr(getattr(call.model, "device", None), "type", None) in FIXED_SHAPE_DEVICES
    )


def has_static_cache(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether the cache of a call has one shape from the start."""
    passed = {type(call.get(name)).__name__ for name in CACHE_NAMES}
    return config.cache_implementation in STATIC_CACHES or bool(passed & STATIC_CLASSES)


def growing_cache(model: Any) -> Any:
    """An empty cache such as `generate` makes for the model where none is asked for."""
    if "config" in inspect.signature(cache_utils.DynamicCache.__init__).parameters:  # from 4.56
        return cache_utils.DynamicCache(config=model.config.get_text_config(decoder=True))
    return whole_cache()


def whole_cache() -> Any:
    """An empty cache whose layers all keep every column, whatever the windows of the model that fills it."""
    return cache_utils.DynamicCache()


def tuples_are_caches() -> bool:
    """Whether nested tuples of keys and values stand for a cache: up to 4.57."""
    return hasattr(cache_utils.DynamicCache, "from_legacy_cache")


def autocasts(device: str) -> bool:
    """Whether operations on a kind of device are cast by themselves at the moment."""
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # below torch 2.4
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


def masks_are_bool(model: Any) -> bool:
    """Whether the attention takes a mask with an axis for queries as bool, rather than as what is added to scores."""
    with_bools = util.find_spec("transformers.masking_utils") is not None  # from 4.53
    return with_bools and model.config._attn_implementation == "sdpa"


def has_unsteady_windows(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether the sliding layers of a static cache do not simply hold the last columns, as those of a growing one do.

    In 4.46 and 4.51 one that a short prompt has not filled drops its first column a step too early.
    """
    passed = {type(call.get(name)).__name__ for name in CACHE_NAMES}
    slides = config.cache_implementation in SLIDING_CACHES or bool(passed & SLIDING_CLASSES)
    return slides and not hasattr(cache_utils, "StaticSlidingWindowLayer")


def takes_masks_by_kind(model: Any) -> bool:
    """Whether the forward of the model without its head takes a mask for each kind of layer, by name: from 4.53."""
    forward = type(getattr(model, model.base_model_prefix)).forward
    return "dict" in inspect.unwrap(forward).__code__.co_names


@lru_cache(maxsize=1)
def positional_parameters() -> tuple[str, ...]:
    """The parameters of this release's `generate` that may be passed by position, without self."""
    parameters = list(inspect.signature(GenerationMixin.generate).parameters.values())[1:]
    names = tuple(one.name for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return names if names[: len(PARAMETERS)] == PARAMETERS else PARAMETERS  # else a wrapper hides them


@lru_cache(maxsize=1)
def positions_advance() -> bool:
    """Whether position_ids that the caller passes are carried on while decoding: 5.24 does, 4.46 to 5.0 do not."""
    return _mentions(GenerationMixin._update_model_kwargs_for_generation, "position_ids")


@lru_cache(maxsize=1)
def chunks_count_columns() -> bool:
    """Whether a prefill in chunks numbers positions by columns, pads included: 4.51 and 4.57 do."""
    prefill = getattr(GenerationMixin, "_prefill_chunking", None)
    return prefill is not None and _mentions(prefill, "position_ids")


@lru_cache(maxsize=1)
def repetition_penalty_skips_pads() -> bool:
    """Whether the library's repetition penalty leaves out the leading pads of a masked prompt: 5.24 does."""
    return _mentions(GenerationMixin._get_logits_processor, "prompt_ignore_length")


@lru_cache(maxsize=1)
def encoder_penalty_reaches_every_row() -> bool:
    """Whether encoder_repetition_penalty holds for every beam and returned sequence: 5.24 does.

    4.46 to 5.0 apply it to the first rows alone, as many as there are prompts, with or without pads.
    """
    return "repeat_interleave" in EncoderRepetitionPenaltyLogitsProcessor.__call__.__code__.co_names


def _mentions(function: Callable[..., Any], word: str) -> bool:
    """Whether the code of a function has a word among its constants, such as keys and the names of keywords."""

    def constants(values: tuple[Any, ...]) -> Iterator[Any]:
        for value in values:
            yield from constants(value) if isinstance(value, tuple) else (value,)

    return word in constants(inspect.unwrap(function).__code__.co_consts)


@lru_cache(maxsize=2)
def default_max_length_counts_columns(model_input_name: str) -> bool:
    """Whether the library's default length counts the prompt's columns, asked of its own rule.

    4.46 counts them (20 columns in all); later releases grant 20 new tokens, but 4.51 to 5.0 count the columns of a
    prompt that is embeddings alone.
    """
    embeds_alone = model_input_name == "inputs_embeds"
    columns = 7
    config = GenerationConfig(max_length=20, min_length=0)
    rule: Callable[..., GenerationConfig] = GenerationMixin._prepare_generated_length
    prepared = rule(
        SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False)),
        generation_config=copy.copy(config),
        has_default_max_length=True,
        has_default_min_length=True,
        model_input_name=model_input_name,
        input_ids_length=0 if embeds_alone else columns,
        inputs_tensor=SimpleNamespace(shape=(1, columns)),
    )
    return bool(prepared.max_length != 20 + (0 if embeds_alone else columns))


def own_max_length_counts_columns() -> bool:
    """Whether a max_length of the model's own generation config counts columns, as one that is passed does.

    5.0 to 5.2 take it for a number of new tokens, as they do with their default.
    """
    return not (5, 0) <= installed() < (5, 3)
