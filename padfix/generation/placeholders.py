"""Placeholders: the tokens of a prompt whose places a model's pictures and sounds take, and how many each takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["alike", "by_grid", "by_place", "numbers", "placeholder", "runs"]


def placeholder(config: Any, fields: Sequence[str]) -> int | None:
    """The id of a placeholder in a configuration or in one of its parts; None where there is none."""
    parts = (getattr(config, name, None) for name in getattr(config, "sub_configs", None) or ())
    for one in (config, *parts):
        for name in fields:
            value = getattr(one, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    words = getattr(config, "vocabulary_map", None)  # Chameleon and Emu3 up to 4.51
    return words.get("<image>") if isinstance(words, dict) and "image_token_id" in fields else None


def by_place(tokens: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """The number of items that fill the placeholders of each row, all of them; None where it does not come out even.

    Args:
        tokens: The number of placeholders of each row.
        sizes: The number of placeholders that each item fills, in the order of the batch.

    >>> by_place([6, 0, 2], [4, 2, 2])
    [2, 0, 1]
    """
    counts, item = [], 0
    for left in tokens:
        first = item
        while left > 0 and item < len(sizes) and sizes[item] > 0:
            left -= sizes[item]
            item += 1
        if left:
            return None
        counts.append(item - first)
    return counts if item == len(sizes) else None


def by_grid(config: Any, grids: Tensor, merge_sizes: Any) -> Iterator[list[int]]:
    """The numbers of placeholders that items with these grids may fill, one list for each of the ways of the library.

    Args:
        grids: Frames, rows and columns of patches of each item, of shape (items, 3), or without the frames.
        merge_sizes: For each item how many patches a side share a placeholder; None where the configuration says it.
    """
    frames = grids[:, 0] if grids.shape[1] == 3 else torch.ones_like(grids[:, 0])
    rows, columns = grids[:, -2], grids[:, -1]
    for merged in [torch.as_tensor(merge_sizes)] if merge_sizes is not None else _merges(config):
        down, across = rows // merged, columns // merged
        for size in (
            frames * down * across,
            down * across,  # Kimi: the frames are pooled
            down * (across + 1) + 2,  # HunYuan-VL: a token ends each row, and two stand around the picture
            frames * down * (across + 1),  # HY-V4-VL: a token ends each row
        ):
            yield size.tolist()


def _merges(config: Any) -> list[int]:
    """How many patches a side share a placeholder."""
    vision = getattr(config, "vision_config", None)
    for one in (vision, config):
        for name in ("spatial_merge_size", "merge_size", "merge_kernel_size"):
            value = getattr(one, name, None)
            value = value[0] if isinstance(value, (list, tuple)) else value
            if isinstance(value, int) and value > 0:
                return [value]
    return [1, 2]


def runs(marked: Tensor) -> list[int]:
    """The lengths of the runs of True in a row, of shape (tokens,), in their order."""
    edges = torch.nn.functional.pad(marked.int(), (1, 1)).diff()
    starts, ends = (edges == 1).nonzero().flatten(), (edges == -1).nonzero().flatten()
    return list((ends - starts).tolist())


def alike(one: Any, other: Any) -> bool:
    """Whether nothing tells two items apart: neither their shapes nor numbers about them that are no pixels."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and (one.is_floating_point() or torch.equal(one, other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and bool(one == other)


def numbers(value: Any) -> Tensor | None:
    """Numbers of each item, of shape (items, 2 | 3), from a tensor or lists; None where they are something else."""
    try:
        given = value if isinstance(value, Tensor) else torch.stack([torch.as_tensor(one) for one in value])
    except (RuntimeError, TypeError, ValueError):
        return None
    return given if given.ndim == 2 and given.shape[1] in (2, 3) else None
