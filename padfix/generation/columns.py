"""The columns of a KV cache: how many there are, and where their keys and values lie."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

from torch import Tensor

__all__ = ["columns_of", "first_keys", "slots"]


def columns_of(cache: Any) -> int:
    """The number of columns that a cache holds; 0 where it has none to tell."""
    if isinstance(cache, tuple):
        first = cache[0] if cache else None
        keys = first[0] if isinstance(first, tuple) and first else None
        return int(keys.shape[-2]) if isinstance(keys, Tensor) and keys.ndim == 4 else 0
    try:
        return int(cache.get_seq_length())
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # recurrent states have no columns
        return 0


def slots(cache: Any) -> Iterator[tuple[MutableMapping[str, Any] | MutableSequence[Any], Any]]:
    """Where the keys and then the values of each layer are: a container, and the key of a tensor in it."""
    layers = getattr(cache, "layers", None)
    if layers is None:  # up to 4.55 the tensors lie in two lists
        both = [getattr(cache, name, []) for name in ("key_cache", "value_cache")]
        yield from ((values, at) for at in range(len(both[0])) for values in both)
        return
    for layer in layers:
        if getattr(layer, "is_initialized", True) and vars(layer).get("keys") is not None:
            yield from ((vars(layer), name) for name in ("keys", "values"))


def first_keys(cache: Any) -> Tensor | None:
    """The keys of the first layer, of shape (rows, heads, columns, size); None where there are none yet, or to tell."""
    tuples = isinstance(cache, tuple) and columns_of(cache)
    keys = cache[0][0] if tuples else next((holder[key] for holder, key in slots(cache)), None)
    return keys if isinstance(keys, Tensor) and keys.ndim == 4 and 0 not in keys.shape else None
