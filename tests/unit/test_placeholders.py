"""Placeholders: found in a configuration, counted, and shared out to the items that fill them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st

from padfix.generation.placeholders import alike, by_grid, by_place, numbers, placeholder, runs

FIELDS = ("image_token_id", "image_token_index")


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"image_token_id": 7}, 7),
        ({"image_token_index": 8}, 8),
        ({"image_token_id": 7, "image_token_index": 8}, 7),
        ({"image_token_id": None, "image_token_index": 8}, 8),
        ({"image_token_id": -1}, None),
        ({"image_token_id": True}, None),
        ({"video_token_id": 7}, None),
        ({"sub_configs": {"vision_config": None}, "vision_config": SimpleNamespace(image_token_id=0)}, 0),
        ({"sub_configs": {"vision_config": None}, "vision_config": None}, None),
        ({"vocabulary_map": {"<image>": 9}}, 9),
        ({"vocabulary_map": {"<s>": 9}}, None),
    ],
)
def test_placeholder_is_looked_for_in_every_part(config: dict[str, Any], found: int | None) -> None:
    assert placeholder(SimpleNamespace(**config), FIELDS) == found


@pytest.mark.parametrize(
    ("tokens", "sizes", "counts"),
    [
        ([6, 0, 2], [4, 2, 2], [2, 0, 1]),
        ([0, 6, 2], [4, 2, 2], [0, 2, 1]),
        ([4, 4], [4, 2, 2], [1, 2]),
        ([4, 2, 2], [4, 2, 2], [1, 1, 1]),
        ([0, 0], [], [0, 0]),
        ([5, 3], [4, 2, 2], None),  # ends within an item
        ([6, 0], [4, 2, 2], None),  # an item is left
        ([6, 4], [4, 2, 2], None),  # placeholders are left
        ([4, 0], [4, 0], None),  # an item that fills none is nobody's
    ],
)
def test_items_fill_rows_to_their_ends(tokens: list[int], sizes: list[int], counts: list[int] | None) -> None:
    assert by_place(tokens, sizes) == counts


@drawn(st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=5))
def test_every_sharing_is_found_again(rows: list[list[int]]) -> None:
    assert by_place([sum(row) for row in rows], [size for row in rows for size in row]) == [len(row) for row in rows]


GRIDS = torch.tensor([[1, 4, 4], [2, 4, 8]])


@pytest.mark.parametrize("name", ["spatial_merge_size", "merge_size", "merge_kernel_size"])
def test_grids_are_counted_in_the_ways_of_the_library(name: str) -> None:
    config = SimpleNamespace(vision_config=SimpleNamespace(**{name: [2, 2] if "kernel" in name else 2}))
    assert list(by_grid(config, GRIDS, None)) == [[4, 16], [4, 8], [8, 12], [6, 20]]


def test_items_may_be_merged_each_in_its_own_way() -> None:
    assert next(by_grid(SimpleNamespace(), GRIDS, torch.tensor([1, 2]))) == [16, 16]


def test_unknown_merging_is_tried_both_ways() -> None:
    found = list(by_grid(SimpleNamespace(), GRIDS[:, 1:], None))
    assert found[0] == [16, 32]
    assert found[4] == [4, 8]


@pytest.mark.parametrize(
    ("marked", "lengths"),
    [([], []), ([0, 0], []), ([1, 1, 1], [3]), ([0, 1, 1, 0, 1, 0], [2, 1]), ([1, 0, 0, 1], [1, 1])],
)
def test_runs_are_measured(marked: list[int], lengths: list[int]) -> None:
    assert runs(torch.tensor(marked, dtype=torch.bool)) == lengths


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.zeros(2), torch.ones(2), True),  # pixels
        (torch.zeros(2), torch.zeros(3), False),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.tensor([1, 2]), torch.tensor([2, 1]), False),
        ((1, 2), [1, 2], True),
        ((1, 2), (1, 3), False),
        ((1, 2), (1, 2, 3), False),
        ([torch.zeros(2)], [torch.ones(2)], True),
        ([torch.zeros(2)], torch.zeros(2), False),
        (1, 1, True),
        (1, "1", False),
    ],
)
def test_items_are_alike_where_only_pixels_differ(one: Any, other: Any, same: bool) -> None:
    assert alike(one, other) is alike(other, one) is same


def test_numbers_are_read_from_tensors_and_lists() -> None:
    for given in ([[1, 4, 4]], [(1, 4, 4)], [torch.tensor([1, 4, 4])], torch.tensor([[1, 4, 4]])):
        found = numbers(given)
        assert found is not None
        assert found.tolist() == [[1, 4, 4]]


@pytest.mark.parametrize("given", [[[1], [2, 3]], [1, 2], ["4x4"], [None], [], torch.zeros(3), torch.zeros(2, 4)])
def test_what_is_no_pair_of_numbers_is_none(given: Any) -> None:
    assert numbers(given) is None
