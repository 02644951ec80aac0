"""Lengths counted in columns, when columns are dropped from the prompt."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig

from .call import GenerateCall
from .compat import default_max_length_counts_columns, own_max_length_counts_columns

__all__ = ["max_length_counts_columns", "new_tokens", "position_limit", "reduced"]


def max_length_counts_columns(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether the length of the output is bounded by a number of columns, rather than of new tokens."""
    if config.max_new_tokens is not None:
        return False
    if call.get("max_length") is not None:
        return True
    default = GenerationConfig().max_length  # 20 up to 4.57; None from 5.0, where a set value is the caller's
    if default is None:
        places = [call.get("generation_config")]
        if own_max_length_counts_columns():
            places.append(call.model.generation_config)
        is_set = any(getattr(place, "max_length", None) is not None for place in places)
    else:
        is_set = config.max_length != default
    return is_set or default_max_length_counts_columns("input_ids" if call.ids is not None else "inputs_embeds")


def new_tokens(call: GenerateCall, config: GenerationConfig) -> int:
    """The largest number of new tokens that a row can get; 0 or less where max_length leaves no room."""
    if config.max_new_tokens is not None:
        return int(config.max_new_tokens)
    length = int(config.max_length)
    return length - call.width if max_length_counts_columns(call, config) else length


def reduced(call: GenerateCall, config: GenerationConfig, columns: int, *, counts_columns: bool) -> Mapping[str, Any]:
    """The arguments to replace, so that a prompt with `columns` columns less gets as many new tokens as before.

    `max_length` counts the caller's columns. `min_length` counts a row's real tokens, as it does for the prompt alone,
    and stays; with `counts_columns` it follows the library's own rule.

    A length goes back the way it came: a keyword as a keyword; in a config that was passed, on a copy of it; the
    model's own as a keyword.
    """
    less: dict[str, int] = {}
    if columns and max_length_counts_columns(call, config):
        less["max_length"] = int(config.max_length) - columns
    if columns and counts_columns and config.min_length and config.min_new_tokens is None:
        less["min_length"] = max(int(config.min_length) - columns, 0)
    passed = call.get("generation_config")
    # Up to 4.57 a passed config whose max_length happens to be the default would be taken for unset.
    on_copy = {
        name: value
        for name, value in less.items()
        if passed is not None and call.get(name) is None and value != getattr(GenerationConfig(), name)
    }
    changes: dict[str, Any] = {name: value for name, value in less.items() if name not in on_copy}
    if on_copy:
        changes["generation_config"] = copied = copy.deepcopy(passed)
        for name, value in on_copy.items():
            setattr(copied, name, value)
    return changes


def position_limit(model: Any) -> int | None:
    """The number of positions that the text model was made for; None where its configuration names none."""
    read = getattr(model.config, "get_text_config", None)
    limit = getattr(model.config if read is None else read(), "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None
