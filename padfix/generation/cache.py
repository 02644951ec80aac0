"""KV caches that are passed in or come back: their columns, whether they can be used again, and how they move."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..layout.plan import LayoutPlan
from .call import GenerateCall
from .columns import columns_of, first_keys, slots
from .compat import CACHE_NAMES, tuples_are_caches
from .configs import windows
from .marks import contradiction

__all__ = ["PassedCache", "cache_bound", "cache_to_caller", "is_movable", "passed_cache", "poured"]

# Layers, by exact class, that hold a column for each token on axis 2 of keys and values.
DYNAMIC, SLIDING, STATIC = "DynamicLayer", "DynamicSlidingWindowLayer", "StaticLayer"

# Attributes of a cache or of its layers that hold the number of columns so far.
COUNTS = ("_seen_tokens", "cumulative_length")


@dataclass(frozen=True, eq=False)
class PassedCache:
    """A cache among the arguments of a call.

    Attributes:
        name: The argument.
        cache: The caller's object.
        columns: The number of columns that it holds; 0 for one that is to be filled.
        whole: Whether the call brings the whole sequences, those of the cached columns included, so that the cache
            could be done without.
        is_one: Whether it is a cache such as transformers takes, of the prompt's rows or of copies of them.
    """

    name: str
    cache: Any
    columns: int
    whole: bool
    is_one: bool = True


def passed_cache(call: GenerateCall) -> PassedCache | None:
    """The cache that a call brings, or None."""
    name = next((name for name in CACHE_NAMES if call.get(name) is not None), None)
    if name is None:
        return None
    cache, mask = call.get(name), call.mask
    columns = columns_of(cache)
    whole = call.width > columns and (mask is None or mask.ndim != 2 or mask.shape[1] == call.width)
    return PassedCache(name, cache, columns, whole, _is_cache(cache) and _rows_of(cache) % call.batch == 0)


def _is_cache(value: Any) -> bool:
    """Whether it looks like a cache: nested tuples in releases that take them, else by what it can tell or its name."""
    if isinstance(value, tuple):
        return tuples_are_caches()
    return hasattr(value, "get_seq_length") or "Cache" in type(value).__name__


def _rows_of(cache: Any) -> int:
    """The number of rows that a cache has columns of; 0 where it has none yet, or cannot tell."""
    keys = first_keys(cache) if columns_of(cache) else None
    return 0 if keys is None else keys.shape[0]


def cache_bound(
    call: GenerateCall, passed: PassedCache, plan: LayoutPlan, past: Tensor | None, new_tokens: int
) -> Iterator[str]:
    """Why the cached columns cannot stay where they are, beside new tokens in the model's layout.

    Args:
        call: The call.
        passed: Its cache.
        plan: The layout of the prompt, whose cached columns stay.
        past: The mask over the cached columns, of shape (batch, columns), where the prompt is the new tokens alone.
        new_tokens: The largest number of new tokens that a row can get.
    """
    name = f"{passed.name}="
    real = plan.real if past is None else torch.cat((past, plan.real), 1)
    total = real.shape[1] + plan.trim + new_tokens
    sizes = windows(call.model)
    holes = bool((real[:, :-1] & ~real[:, 1:]).any())
    if passed.columns and not bool(real[:, -1].all()):
        yield f"{name} (some rows have no token beside the cached ones)"
    ids = call.ids if past is None else None
    if passed.columns and (said := contradiction(passed.cache, passed.columns, real, ids, padded=not bool(real.all()))):
        yield f"{name} ({said})"
    if holes and not _reads_mask(call.model):
        yield f"{name} (its pads would count as positions)"
    if not holes and plan.is_identity:
        return
    if any(total >= size for size in sizes):
        yield f"{name} (its pads would count in the window)"
    elif not is_movable(passed.cache, total, trims=plan.trim > 0):
        yield f"{name} (a {type(passed.cache).__name__} whose columns cannot be told apart or moved)"


def is_movable(cache: Any, columns: int, *, trims: bool, sizes: Collection[int] = ()) -> bool:
    """Whether each layer of a cache holds a column for each token, so that pads between tokens do no harm.

    Args:
        cache: A cache, filled or not, or the nested tuples of old releases.
        columns: The largest number of columns that it gets: a sliding window must not be full by then.
        trims: Whether it would have to grow, which those of fixed shape cannot.
        sizes: The sizes of the model's windows, which a cache of all columns does not tell.
    """
    if any(columns >= size for size in sizes):
        return False
    if isinstance(cache, tuple):
        return all(isinstance(one, Tensor) and one.ndim == 4 for layer in cache for one in layer)
    if getattr(cache, "offloading", False) or type(cache).__name__ not in ("DynamicCache", "StaticCache"):
        return False
    layers = getattr(cache, "layers", None)
    if layers is None:  # up to 4.55 the tensors lie in two lists
        return type(cache).__name__ == "DynamicCache" or not trims
    kinds = {type(layer).__name__ for layer in layers}
    windows = [layer.sliding_window for layer in layers if type(layer).__name__ == SLIDING]
    fits = all(columns < window for window in windows)
    return kinds <= {DYNAMIC, SLIDING, *(() if trims else (STATIC,))} and fits


def cache_to_caller(cache: Any, plan: LayoutPlan, *, before: int = 0, sizes: Collection[int] = ()) -> Any | None:
    """A cache with the prompt's columns in the caller's layout, in place; None where it cannot be moved.

    One layer after the other, so that no second copy of the whole exists at any time.

    Args:
        cache: The cache as `generate` left it, or the nested tuples of old releases, which come back as new ones.
        plan: The layout of the prompt.
        before: The number of columns before the prompt's, which stay.
        sizes: The sizes of the model's windows.
    """
    width = before + plan.model_width
    if not is_movable(cache, columns_of(cache) + plan.trim, trims=plan.trim > 0, sizes=sizes):
        return None
    if isinstance(cache, tuple):
        if not all(one.ndim == 4 and one.shape[2] >= width for layer in cache for one in layer):
            return None
        return tuple(tuple(_moved(one, plan, before) for one in layer) for layer in cache)
    places = list(slots(cache))
    tensors = [holder[key] for holder, key in places]
    if not places or not all(isinstance(one, Tensor) and one.ndim == 4 and one.shape[2] >= width for one in tensors):
        return None
    del tensors
    is_static = type(cache).__name__ == "StaticCache"
    for holder, key in places:
        if is_static:  # compiled forwards know the tensor by its address
            holder[key].copy_(_moved(holder[key], plan, before))
        else:
            holder[key] = _moved(holder[key], plan, before)
    for counted in (cache, *getattr(cache, "layers", ())):
        for name in COUNTS:
            if plan.trim and isinstance(vars(counted).get(name), int):
                vars(counted)[name] += plan.trim
    return cache


def poured(packed: Any, cache: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The empty `cache`, filled with what `change` makes of the keys and values of another, which is emptied.

    One layer after the other, so that no second copy of the whole exists at any time.
    """
    places = list(slots(packed))
    for layer, pair in enumerate(zip(places[::2], places[1::2], strict=True)):
        keys, values = (change(holder[key]) for holder, key in pair)
        for holder, key in pair:
            holder[key] = holder[key].new_empty(0)
        cache.update(keys, values, layer)
    return cache


def _reads_mask(model: Any) -> bool:
    """Whether pads between tokens shift no position: it is told positions, or makes its ALiBi from the mask."""
    made_from_mask = hasattr(sys.modules.get(type(model).__module__), "build_alibi_tensor")  # Bloom, Falcon
    return made_from_mask or "position_ids" in inspect.signature(model.forward).parameters


def _moved(states: Tensor, plan: LayoutPlan, before: int) -> Tensor:
    """Keys or values of shape (rows, heads, columns, size) with the prompt's columns in the caller's layout."""
    moved = plan.to_caller(states[:, :, before:], prompt_axis=2)
    return torch.cat((states[:, :, :before], moved), 2) if before else moved
