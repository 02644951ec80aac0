"""What a configuration says of padding: its text model, its windows, and limits that hold whatever the class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from transformers import GenerationConfig

from .compat import positions_advance

__all__ = ["config_limits", "generation_defaults", "hidden_size", "odd_caches", "text_config", "windows"]

# GPT-Neo has `window_size`, ModernBERT's decoder `local_attention`, RecurrentGemma `attention_window_size`.
WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "attention_chunk_size",
    "window_size",
    "local_attention",
    "attention_window_size",
)


@lru_cache(maxsize=1)
def generation_defaults() -> Mapping[str, Any]:
    """What a generation config holds by itself."""
    return vars(GenerationConfig())


def odd_caches(named: Any, *configs: Any) -> list[Any]:
    """The values for `use_cache` under which a model makes caches all the same: neither True nor False, such as 0.

    Args:
        named: What the call names; True where it names nothing.
        configs: The generation configs that it could run with, where the default says nothing either.
    """
    default = generation_defaults()["use_cache"]
    asked = [named, *(one.use_cache for one in configs if one.use_cache is not default)]
    return [one for one in asked if not one and one is not False]


def text_config(config: Any) -> Any:
    """The part of a configuration that describes the text model, of an encoder-decoder the decoder."""
    read = getattr(config, "get_text_config", None)
    return config if read is None else read(decoder=True)


def windows(model: Any) -> frozenset[int]:
    """The sizes of the windows of a model's sliding, local and chunked layers."""
    config = text_config(model.config)
    sizes = (getattr(config, name, None) for name in WINDOWS)
    return frozenset(size for size in sizes if isinstance(size, int) and size > 0)


def hidden_size(model: Any) -> int:
    """The hidden size of the text model; 0 where its configuration names none."""
    size = getattr(text_config(model.config), "hidden_size", None)
    return size if isinstance(size, int) else 0


def config_limits(config: Any) -> Iterator[tuple[float, str]]:
    """Up to which number of columns left padding is exact by a configuration, and why not beyond."""
    for kind, rope in _ropes(config):
        if kind == "dynamic":
            limit = int(getattr(config, "max_position_embeddings", 0) or 0)
            yield limit, "dynamic NTK scales every row by the longest one"
        if kind in ("longrope", "su"):
            named = "original_max_position_embeddings"
            limit = int(rope.get(named) or getattr(config, named, 0) or 0)
            yield limit, "LongRoPE switches its factors for every row by the longest one"
        if rope.get("llama_4_scaling_beta") and not positions_advance():  # Ministral 3 on 5.0
            limit = int(rope.get("original_max_position_embeddings") or 0)
            yield limit, "this release scales its queries by their column, pads included"
    if getattr(config, "use_bidirectional_attention", None) is True:  # Gemma: alone, sdpa drops the mask
        yield 0, "its tokens see those that follow, and pads turn them causal"
    size = getattr(config, "index_block_size", None)
    if isinstance(size, int) and getattr(config, "index_topk_blocks", None):  # MiniMax-M3
        yield size, "its sparse attention counts blocks of columns, pads included"
    if getattr(config, "log_scaling_n_floor", None) and getattr(config, "model_type", "") == "inkling_text":
        yield config.log_scaling_n_floor - 1, "it scales queries by their column, pads included"
    for name in ("index_topk", "keep_window_size"):  # DeepSeek-V3.2 and others; Doge
        top_k = getattr(config, name, None)
        if isinstance(top_k, int):
            yield top_k, "its sparse attention ranks padded columns too"
    if getattr(config, "attn_temperature_tuning", False) and 0 in (getattr(config, "no_rope_layers", None) or ()):
        yield (
            int(getattr(config, "floor_scale", 1)) - 1,
            "its attention temperature counts columns, pads included",
        )  # Llama 4


def _ropes(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The kinds of rotary embedding that a configuration asks for: one, or one for each type of layer."""
    for name in ("rope_parameters", "rope_scaling"):  # from 5.0; up to 4.57
        rope = getattr(config, name, None)
        if not isinstance(rope, Mapping):
            continue
        for one in (rope, *rope.values()):
            if isinstance(one, Mapping):
                kind = one.get("rope_type", one.get("type"))
                if isinstance(kind, str):
                    yield kind, one
