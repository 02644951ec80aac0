"""Rows of different length as one batch: where the pads go, and what says which cells are real."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from padfix.layout.rows import padded


@pytest.mark.parametrize(
    ("side", "ids", "mask"),
    [
        ("right", [[5, 6, 7], [8, 9, 9]], [[1, 1, 1], [1, 0, 0]]),
        ("left", [[5, 6, 7], [9, 9, 8]], [[1, 1, 1], [0, 0, 1]]),
    ],
)
def test_pads_stand_on_their_side(side: Any, ids: list[list[int]], mask: list[list[int]]) -> None:
    got_ids, got_mask = padded([[5, 6, 7], [8]], 9, side)
    assert got_ids.tolist() == ids
    assert got_mask.tolist() == mask
    assert got_ids.dtype == got_mask.dtype == torch.int64


@pytest.mark.parametrize(("side", "ids"), [("right", [[5, 6, 0, 0]]), ("left", [[0, 0, 5, 6]])])
def test_extra_columns_are_pads_in_every_row(side: Any, ids: list[list[int]]) -> None:
    got_ids, mask = padded([[5, 6]], 0, side, extra=2)
    assert got_ids.tolist() == ids
    assert mask.tolist() == [[int(token > 0) for token in ids[0]]]


@pytest.mark.parametrize("side", ["right", "left"])
def test_real_tokens_with_the_id_of_the_pad_are_real(side: Any) -> None:
    ids, mask = padded([[9, 5, 9], [9]], 9, side)
    assert ids[1].tolist() == [9, 9, 9]
    assert mask.sum(1).tolist() == [3, 1]


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_of_one_length_have_no_pads(side: Any) -> None:
    ids, mask = padded([[5, 6], [7, 8]], 9, side)
    assert ids.tolist() == [[5, 6], [7, 8]]
    assert bool(mask.all())


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_without_a_token_are_pads(side: Any) -> None:
    ids, mask = padded([[], []], 9, side, extra=2)
    assert ids.tolist() == [[9, 9], [9, 9]]
    assert mask.tolist() == [[0, 0], [0, 0]]
