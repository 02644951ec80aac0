"""Whether a model runs as the library wrote it: by the files that the code of its functions stands in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
import transformers

from ..wrapped import wrapped_by

__all__ = ["runs_as_written"]

# Where the library's code stands, that of its modules and of its decorators.
ROOTS = tuple(os.path.join(os.path.dirname(str(one.__file__)), "") for one in (transformers, torch))
# The methods of a model that shape what its forward gets.
SHAPING = ("prepare_inputs_for_generation", "_prepare_cache_for_generation")


def runs_as_written(model: Any) -> bool:
    """Whether every forward of a model, what prepares its inputs, and what makes its masks are the library's own.

    A function that somebody has put in the place of one, on the class or the instance, is not, whatever its name; nor
    is one that wraps it.
    """
    modules = list(model.modules())
    if any("forward" in vars(one) for one in modules) or any(name in vars(model) for name in SHAPING):
        return False
    classes = {type(one) for one in modules}
    functions = [function for one in classes for function in (one.forward, one.__call__)]
    functions += [getattr(type(model), name) for name in SHAPING if hasattr(type(model), name)]
    return all(map(_is_written_there, (*functions, *_mask_makers(model, classes))))


def _mask_makers(model: Any, classes: set[type]) -> Iterator[Any]:
    """What makes the masks of a model: the functions that its modules' files name, and the one for its attention."""
    for file in {one.__module__ for one in classes if one.__module__.startswith("transformers.models.")}:
        for name, value in vars(sys.modules[file]).items():
            if name.startswith("create_") and name.endswith("mask") and callable(value):
                yield value
    registry = getattr(sys.modules.get("transformers.masking_utils"), "ALL_MASK_ATTENTION_FUNCTIONS", None)
    attention = getattr(model.config, "_attn_implementation", None)
    if registry is not None and attention in registry:
        yield registry[attention]


def _is_written_there(function: Any) -> bool:
    """Whether a function and all that it wraps are plain functions of the library."""
    return all(type(one) is FunctionType and one.__code__.co_filename.startswith(ROOTS) for one in wrapped_by(function))
