"""Pictures, videos and sounds: which of them belong to which row of a batch, told by the placeholders in its ids.

A model puts what it makes of its pictures into the placeholders of the whole batch, one after the other: the first
picture into the first row's first placeholders. So a picture belongs to the row whose placeholders it fills, which is
known once it is known how many each fills. Sizes, grids and masks of pictures go where their pictures go. Nothing here
looks at a batch whose pictures happen to be as many as its rows and takes them for one a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .call import GenerateCall
from .exceptions import stands_in
from .placeholders import alike, by_grid, by_place, numbers, placeholder, runs

__all__ = ["PICTURE_AXES", "Media", "Medium", "filled_up", "is_medium", "media_of"]


class Medium(NamedTuple):
    """One kind of media.

    Attributes:
        names: How the keywords that hold some begin.
        tokens: The fields of a configuration that hold the id of its placeholder, the first that is there.
        grids: The keywords that hold the grid of patches of each item, of shape (items, 2 | 3).
        masks: The keywords with the prompt axis that say nothing to a row without an item.
    """

    names: tuple[str, ...]
    tokens: tuple[str, ...]
    grids: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()


VIDEO_TOKENS = ("video_token_id", "video_token_index")
IMAGE_TOKENS = ("image_token_id", "image_token_index", "image_patch_id")

# In the order in which a keyword is looked for.
MEDIA = (
    Medium(
        ("pixel_values_videos", "video_", "image_sizes_videos", "target_sizes_videos", "second_per_grid")
        + ("num_frames_per_video",),
        VIDEO_TOKENS,
        ("video_grid_thw",),
    ),
    Medium(
        ("pixel_", "image_", "aspect_ratio_", "flattened_patches", "grid_thws", "height", "high_res_pixel_values")
        + ("num_local_patches", "patches_grid", "spatial_shapes", "target_sizes", "tile_fine_mask", "width"),
        (*IMAGE_TOKENS, *VIDEO_TOKENS),  # InstructBLIP's videos are called pixel_values
        ("image_grid_thw", "image_grid_hws", "image_grid_hw", "grid_thws"),
        ("cross_attention_mask", "image_attention_mask", "image_embeds_position_mask"),
    ),
    Medium(
        ("audio_", "chunk_sample_lengths", "feature_attention_mask", "input_features", "input_values"),
        ("audio_token_id", "audio_token_index"),
    ),
)

# Models whose pictures have an axis of rows before that of the row's pictures: (batch, pictures or tiles, ...).
PICTURES_IN_ROWS = frozenset(
    {
        "GraniteDoclingForConditionalGeneration",
        "Idefics2ForConditionalGeneration",
        "Idefics3ForConditionalGeneration",
        "IdeficsForVisionText2Text",
        "MllamaForConditionalGeneration",
        "SmolVLMForConditionalGeneration",
    }
)

# Those of them that fill rows with fewer pictures up with empty ones, which tokens that see no picture attend to: the
# axis of a row's pictures in each argument. Each placeholder stands for one picture.
FILLED_UP = {"MllamaForConditionalGeneration"}
PICTURE_AXES = {"pixel_values": 1, "aspect_ratio_ids": 1, "aspect_ratio_mask": 1, "cross_attention_mask": 2}

# Keywords with several entries for an item, and the keyword that counts them.
COUNTED = {"pixel_values_local": "num_local_patches"}


@dataclass(frozen=True, eq=False)
class Media:
    """What is known of the media of a call.

    Attributes:
        places: For each argument and each row the places of what is the row's on the argument's first axis.
        absent: For each row the arguments that say nothing to it, since it has nothing of their kind.
        unknown: The arguments of which it cannot be told, a phrase each.
        one_each: Whether each row has one item of each kind, so that no other tensor could be counted otherwise.
        pictures: For each row the number of its pictures, where the model fills rows with fewer of them up.
    """

    places: dict[str, tuple[range, ...]]
    absent: tuple[frozenset[str], ...]
    unknown: tuple[str, ...]
    one_each: bool
    pictures: tuple[int, ...] | None


def is_medium(call: GenerateCall, name: str) -> bool:
    """Whether an argument holds pictures, videos or sounds, or something about them."""
    value = call.arguments[name]
    holds = isinstance(value, (list, tuple)) or (isinstance(value, Tensor) and value.ndim > 0)
    return holds and name not in call.sequence_axes and _medium(name) is not None


def media_of(call: GenerateCall, real: Tensor) -> Media:
    """Where the pictures, videos and sounds of each row are among the arguments of a call.

    Args:
        real: Bool of the prompt's shape, True where it holds a real token.
    """
    places: dict[str, tuple[range, ...]] = {}
    absent: list[set[str]] = [set() for _ in range(call.batch)]
    unknown: list[str] = []
    one_each = True
    for medium in MEDIA:
        values = _values(call, medium)
        if not values:
            continue
        found = _found(call, medium, values, real)
        if found is None:
            named = [name for name in medium.grids if name in values] or list(values)
            unknown += [f"{name}= (what belongs to a row cannot be told)" for name in named]
            continue
        places |= found.places
        one_each = one_each and set(found.counts) == {1}
        for row, count in enumerate(found.counts):
            absent[row] |= set() if count else {*values, *medium.masks}
    return Media(places, tuple(map(frozenset, absent)), tuple(unknown), one_each, _filled_up(call, real))


def filled_up(call: GenerateCall, real: Tensor) -> Iterator[str]:
    """What stands in the way of rows with and without pictures in one batch, padded or not."""
    pictures = _filled_up(call, real)
    if pictures is not None and len(set(pictures)) > 1:
        yield f"pixel_values= (tokens that see no picture of {type(call.model).__name__} attend to those of other rows)"


def _filled_up(call: GenerateCall, real: Tensor) -> tuple[int, ...] | None:
    """The number of pictures of each row, where the model fills rows with fewer of them up; None elsewhere."""
    if call.get("pixel_values") is None or not stands_in(FILLED_UP, call.model):
        return None
    marked = _marked(call, placeholder(call.model.config, IMAGE_TOKENS), real)
    return None if marked is None else tuple(int(row.sum()) for row in marked)


def _medium(name: str) -> Medium | None:
    return next((medium for medium in MEDIA if name.startswith(medium.names)), None)


def _values(call: GenerateCall, medium: Medium) -> dict[str, Any]:
    """The arguments of one kind of media."""
    return {name: call.arguments[name] for name in call.arguments if is_medium(call, name) and _medium(name) is medium}


class _Found(NamedTuple):
    """The number of items of each row, and the places of its entries in each argument."""

    counts: list[int]
    places: dict[str, tuple[range, ...]]


def _found(call: GenerateCall, medium: Medium, values: dict[str, Any], real: Tensor) -> _Found | None:
    """What of a medium belongs to which row; None where it cannot be told."""
    token = placeholder(call.model.config, medium.tokens)
    marked = _marked(call, token, real)
    if token is None or stands_in(PICTURES_IN_ROWS, call.model):
        # The rows' own, and nothing stands for a picture in the ids, or an axis of rows is there for it.
        if any(len(value) != call.batch for value in values.values()):
            return None
        counts = [1 if marked is None else int(row.any()) for row in marked or real]
        return _Found(counts, dict.fromkeys(values, tuple(range(row, row + one) for row, one in enumerate(counts))))
    if marked is None:
        return None
    if medium.tokens == VIDEO_TOKENS and not any(map(torch.any, marked)) and not _values(call, MEDIA[1]):
        marked = _marked(call, placeholder(call.model.config, IMAGE_TOKENS), real) or marked  # GLM-4V has one for both
    items = _items_of_rows(call, medium, values, marked)
    places = None if items is None else _by_items(medium, values, items)
    return None if items is None or places is None else _Found(items, places)


def _marked(call: GenerateCall, token: int | None, real: Tensor) -> list[Tensor] | None:
    """For each row which of its real tokens are placeholders; None where its ids are not at hand."""
    ids = call.get("input_ids") if call.is_decoder_prompt else call.ids
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.shape[0] != call.batch or token is None:
        return None
    if call.is_decoder_prompt:
        mask = call.get("attention_mask")
        real = (
            mask != 0
            if isinstance(mask, Tensor) and mask.shape == ids.shape
            else torch.ones_like(ids, dtype=torch.bool)
        )
    return [row[keep] == token for row, keep in zip(ids, real.to(ids.device), strict=True)]


def _items_of_rows(
    call: GenerateCall, medium: Medium, values: dict[str, Any], marked: Sequence[Tensor]
) -> list[int] | None:
    """The number of items of each row; None where it cannot be told.

    Each way of saying how many placeholders an item fills has to come out even at the end of every row, and all that
    do have to agree.
    """
    tokens = [int(row.sum()) for row in marked]
    ways = list(_fillings(call, medium, values, marked))
    found = [counts for counts in (by_place(tokens, way) for way in ways) if counts is not None]
    return found[0] if found and all(counts == found[0] for counts in found) else None


def _fillings(
    call: GenerateCall, medium: Medium, values: dict[str, Any], marked: Sequence[Tensor]
) -> Iterator[list[int]]:
    """The numbers of placeholders that the items may fill, one list for each way of counting.

    By the grids, where there are some; by the sizes of Pixtral's pictures; else as many for each item where nothing
    tells the items apart, or one item for each run of placeholders where there are as many runs as items. No model
    both parts the placeholders of one item and lets two items adjoin.
    """
    grids = [numbers(values[name]) for name in medium.grids if name in values]
    if grids:
        if grids[0] is not None:
            yield from by_grid(call.model.config, grids[0], values.get("image_merge_sizes"))
        return
    sizes = {len(value) for name, value in values.items() if name not in COUNTED}
    if len(sizes) != 1:
        return
    (items,) = sizes
    if "image_sizes" in values and getattr(_vision(call.model.config), "model_type", "") == "pixtral":
        pixels = numbers(values["image_sizes"])
        if pixels is not None:
            yield from by_grid(call.model.config, pixels // int(_vision(call.model.config).patch_size), None)
        return
    total = sum(int(row.sum()) for row in marked)
    kinds = [_kind(values, item) for item in range(items)]
    if items and total % items == 0 and set(kinds) == {0}:
        yield [total // items] * items
    lengths = [length for row in marked for length in runs(row)]
    if len(lengths) == items and len(set(zip(kinds, lengths, strict=True))) == len(set(kinds)):
        yield lengths


def _vision(config: Any) -> Any:
    return getattr(config, "vision_config", None)


def _kind(values: dict[str, Any], item: int) -> int:
    """The first item that nothing tells from this one: neither a shape nor a number about it that is no pixel."""
    told = [value for name, value in values.items() if name not in COUNTED]
    return next(first for first in range(item + 1) if all(alike(value[first], value[item]) for value in told))


def _by_items(medium: Medium, values: dict[str, Any], counts: Sequence[int]) -> dict[str, tuple[range, ...]] | None:
    """The places of each row's entries in each argument, by the number of its items."""
    items = sum(counts)
    grid = next((numbers(values[name]) for name in medium.grids if name in values), None)
    patches = [] if grid is None else grid.prod(-1).tolist()
    found: dict[str, tuple[range, ...]] = {}
    for name, value in values.items():
        sizes = [1] * items if len(value) == items else patches
        if name in COUNTED:
            sizes = [int(one) for one in values.get(COUNTED[name], ())]
        if len(sizes) != items or sum(sizes) != len(value):
            return None
        ends = [0, *accumulate(sizes)]
        stops = [0, *accumulate(counts)]
        found[name] = tuple(range(ends[start], ends[stop]) for start, stop in pairwise(stops))
    return found
