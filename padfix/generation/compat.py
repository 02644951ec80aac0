"""What differs between releases of transformers, and the names that they use. Each fact with where it was seen."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

from .call import PARAMETERS, GenerateCall

__all__ = [
    "CACHE_FIELDS",
    "CACHE_NAMES",
    "NEWEST_TESTED",
    "OLDEST_SUPPORTED",
    "default_max_length_counts_columns",
    "eos_ids",
    "installed",
    "pad_id",
    "positions_advance",
    "repetition_penalty_skips_pads",
    "resolved_config",
    "vocabulary_size",
    "wants_fixed_shapes",
]

OLDEST_SUPPORTED = (4, 46)
NEWEST_TESTED = (5, 24)

# A cache as an argument: `cache_params` for the Mamba family up to 5.x, `cache` in 5.24.
CACHE_NAMES = ("past_key_values", "cache", "cache_params")
# A cache as a field of an output: `past_key_values` up to 5.x, `cache` in 5.24.
CACHE_FIELDS = ("past_key_values", "cache", "cache_params")

# Caches of fixed shape: a new width means a new graph. `hybrid` and `sliding_window` up to 4.57.
STATIC_CACHES = ("static", "offloaded_static", "hybrid", "hybrid_chunked", "offloaded_hybrid", "sliding_window")
# Devices on which every new shape is compiled anew.
FIXED_SHAPE_DEVICES = ("xla", "hpu", "neuron")


def installed() -> tuple[int, int]:
    """Major and minor number of the installed release of transformers."""
    major, minor = version("transformers").split(".")[:2]
    return int(major), int(minor)


def resolved_config(call: GenerateCall) -> GenerationConfig | None:
    """The generation config that the call will run with, as `generate` itself resolves it; a copy.

    None where transformers refuses to resolve it: calling the original then raises its own exception.
    """
    prepare = call.model._prepare_generation_config
    set_apart = {*PARAMETERS, "custom_generate", "use_model_defaults", "tokenizer", "assistant_tokenizer"}
    named = {name: value for name, value in call.arguments.items() if name not in set_apart}
    if "use_model_defaults" in inspect.signature(prepare).parameters:  # 4.50 to 4.57
        named["use_model_defaults"] = call.get("use_model_defaults")
    try:
        config, _ = prepare(call.get("generation_config"), **named)
    except (AttributeError, TypeError, ValueError):
        return None
    return config if isinstance(config, GenerationConfig) else None


def eos_ids(config: GenerationConfig) -> tuple[int, ...]:
    """The ids that end a row."""
    ids = config.eos_token_id
    if ids is None:
        return ()
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    return tuple(ids) if isinstance(ids, (list, tuple)) else (ids,)


def pad_id(config: GenerationConfig) -> int | None:
    """The pad id that the call will use: its own or the model's, else the first EOS, as in `generate`."""
    ends = eos_ids(config)
    return config.pad_token_id if config.pad_token_id is not None else (ends[0] if ends else None)


def vocabulary_size(model: Any) -> int | None:
    """The number of rows of the input embedding, or None where it cannot be told."""
    try:
        return int(model.get_input_embeddings().weight.shape[0])
    except (AttributeError, NotImplementedError, TypeError, IndexError):
        size = getattr(model.config, "vocab_size", None)
        return size if isinstance(size, int) else None


def wants_fixed_shapes(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether a prompt of another width would cost a new graph: static caches, compiled forwards, some devices."""
    forward = call.model.forward
    return (
        config.cache_implementation in STATIC_CACHES
        or getattr(config, "compile_config", None) is not None
        or hasattr(forward, "_torchdynamo_orig_callable")
        or hasattr(forward, "get_compiler_config")
        or getattr(getattr(call.model, "device", None), "type", None) in FIXED_SHAPE_DEVICES
    )


@lru_cache(maxsize=1)
def positions_advance() -> bool:
    """Whether position_ids that the caller passes are carried on while decoding: 5.24 does, 4.46 to 5.0 do not."""
    return "position_ids" in inspect.getsource(GenerationMixin._update_model_kwargs_for_generation)


@lru_cache(maxsize=1)
def repetition_penalty_skips_pads() -> bool:
    """Whether the library's repetition penalty leaves out the leading pads of a masked prompt: 5.24 does."""
    return "prompt_ignore_length" in inspect.getsource(GenerationMixin._get_logits_processor)


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
