"""Detection: which positions are real, by mask or by ids, and which rows are misplaced, empty or guessed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

import pytest
import torch

from padfix.layout.detect import Padding, from_ids, from_mask

PAD, EOS, X = 0, 2, 5


def bits(padding: Padding | None) -> list[list[int]] | None:
    return None if padding is None else padding.real.int().tolist()


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, *FLOATS]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mask_of_any_dtype_is_read_alike(dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 1, 1]]).to(dtype)
    padding = from_mask(mask)
    assert padding is not None
    assert padding.real.dtype == torch.bool
    assert bits(padding) == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert (padding.source, padding.guessed, padding.misplaced, padding.empty) == ("given", (), (0,), ())
    assert from_mask(torch.ones(3, 4, dtype=dtype)) is None


def test_every_value_but_zero_is_real() -> None:
    mask = torch.tensor([[2.0, -1.0, 0.5, -0.0]])
    assert bits(from_mask(mask)) == [[1, 1, 1, 0]]
    assert from_mask(mask[:, :3]) is None


def test_mask_is_left_as_it_was() -> None:
    mask = torch.tensor([[1, 0], [0, 1]])
    padding = from_mask(mask)
    assert padding is not None
    padding.real[:] = False
    assert mask.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("row", "misplaced", "empty"),
    [
        ([1, 1, 1, 1], False, False),
        ([0, 1, 1, 1], False, False),
        ([0, 0, 0, 1], False, False),
        ([1, 1, 1, 0], True, False),
        ([1, 0, 0, 0], True, False),
        ([0, 1, 1, 0], True, False),
        ([1, 0, 1, 1], True, False),
        ([1, 1, 0, 1], True, False),
        ([0, 1, 0, 1], True, False),
        ([0, 0, 0, 0], False, True),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_row_is_misplaced_when_a_pad_follows_a_real_token(
    row: list[int], misplaced: bool, empty: bool, at: int
) -> None:
    rows = [[0, 1, 1, 1], [0, 0, 1, 1]]
    padding = from_mask(torch.tensor([*rows[:at], row, *rows[at:]]))
    assert padding is not None
    assert padding.misplaced == ((at,) if misplaced else ())
    assert padding.empty == ((at,) if empty else ())


def test_rows_are_named_in_order() -> None:
    padding = from_mask(torch.tensor([[1, 0], [0, 0], [0, 1], [1, 0], [1, 1], [0, 0]]))
    assert padding is not None
    assert (padding.misplaced, padding.empty) == ((0, 3), (1, 5))


@pytest.mark.parametrize(("width", "row"), [(1, [1]), (1, [0])])
def test_batch_of_one_column(width: int, row: list[int]) -> None:
    padding = from_mask(torch.tensor([row, [0]]))
    assert padding is not None
    assert padding.misplaced == ()
    assert padding.empty == ((1,) if row == [1] else (0, 1))


# Ids without a mask


@pytest.mark.parametrize("eos_ids", [[], [EOS], [EOS, 7]])
def test_pad_id_of_its_own_is_a_pad_wherever_it_stands(eos_ids: list[int]) -> None:
    ids = torch.tensor([[PAD, X, X, PAD], [X, PAD, X, X], [EOS, X, X, EOS], [PAD, PAD, PAD, PAD]])
    padding = from_ids(ids, PAD, eos_ids)
    assert bits(padding) == [[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert padding is not None
    assert (padding.source, padding.guessed, padding.misplaced, padding.empty) == ("inferred", (), (0, 1), (3,))


@pytest.mark.parametrize("rows", [1, 3])
def test_pad_id_of_its_own_tells_in_one_row_too(rows: int) -> None:
    ids = torch.tensor([[X, X, PAD]] * rows)
    assert bits(from_ids(ids, PAD, [EOS])) == [[1, 1, 0]] * rows


def test_ids_without_a_pad_are_not_padded() -> None:
    assert from_ids(torch.tensor([[X, EOS, X]]), PAD, [EOS]) is None
    assert from_ids(torch.tensor([[X, PAD, X]]), None, [EOS]) is None
    assert from_ids(torch.tensor([[X, EOS], [X, X]]), None, [EOS]) is None


@pytest.mark.parametrize("eos_ids", [[EOS], [7, EOS], (EOS,), {EOS, 9}], ids=str)
@pytest.mark.parametrize(
    ("ids", "real"),
    [
        # the excess over the shortest run, on the right, on the left, on both sides
        ([[5, 6, 2, 2], [5, 6, 7, 2]], [[1, 1, 1, 0], [1, 1, 1, 1]]),
        ([[5, 6, 2, 2], [5, 6, 7, 8]], [[1, 1, 0, 0], [1, 1, 1, 1]]),
        ([[2, 2, 5, 6], [2, 5, 6, 7]], [[0, 1, 1, 1], [1, 1, 1, 1]]),
        ([[2, 2, 5, 2, 2], [2, 5, 6, 7, 2]], [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        ([[2, 5, 6, 7], [5, 6, 2, 2], [5, 6, 7, 8]], [[0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]),
        # the id inside a row is content
        ([[5, 2, 2, 6, 2], [5, 6, 7, 8, 9]], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        # a row of nothing but the id tells nothing and stays as it is
        ([[2, 2, 2], [5, 6, 2], [5, 6, 7]], [[1, 1, 1], [1, 1, 0], [1, 1, 1]]),
    ],
)
def test_where_pad_is_eos_what_exceeds_the_shortest_run_is_padding(
    ids: list[list[int]], real: list[list[int]], eos_ids: Collection[int]
) -> None:
    padding = from_ids(torch.tensor(ids), EOS, eos_ids)
    assert bits(padding) == real
    assert padding is not None
    assert padding.source == "inferred"
    assert padding.guessed == tuple(row for row, one in enumerate(real) if 0 in one)


@pytest.mark.parametrize(
    "ids",
    [
        [[5, 6, 7], [7, 6, 5]],  # none at the ends
        [[5, 2, 2]],  # one row alone
        [[2, 5, 6], [2, 7, 8]],  # a BOS
        [[5, 6, 2], [7, 8, 2]],  # an EOS
        [[2, 5, 2, 2], [2, 7, 2, 2]],
        [[5, 2, 6], [7, 8, 9]],  # inside alone
        [[2, 2, 2], [2, 2, 2]],  # nothing but
        [[2, 2, 2], [5, 6, 2]],  # one row that tells
    ],
)
def test_where_pad_is_eos_equal_runs_are_content(ids: list[list[int]]) -> None:
    assert from_ids(torch.tensor(ids), EOS, [EOS]) is None


def by_hand(ids: Sequence[Sequence[int]]) -> list[list[int]] | None:
    """The rule for pad == eos, one row and one column at a time."""

    def run(row: Sequence[int]) -> int:
        return next((column for column, one in enumerate(row) if one != EOS), len(row))

    telling = [row for row in ids if run(row) < len(row)]
    if len(telling) < 2:
        return None
    content_before, content_after = min(map(run, telling)), min(run(row[::-1]) for row in telling)
    real = []
    for row in ids:
        before, after = (run(row) - content_before, run(row[::-1]) - content_after) if row in telling else (0, 0)
        real.append([0] * before + [1] * (len(row) - before - after) + [0] * after)
    return None if all(map(all, real)) else real


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_where_pad_is_eos_every_small_batch_is_read_by_the_rule(rows: int) -> None:
    width = 3 if rows == 3 else 4
    for batch in product(product((EOS, X), repeat=width), repeat=rows):
        assert bits(from_ids(torch.tensor(batch), EOS, [EOS])) == by_hand(batch), batch


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_are_left_as_they_were(dtype: torch.dtype) -> None:
    ids = torch.tensor([[X, EOS, EOS], [X, X, EOS]], dtype=dtype)
    before = ids.clone()
    assert bits(from_ids(ids, EOS, [EOS])) == [[1, 1, 0], [1, 1, 1]]
    assert torch.equal(ids, before)


def test_ids_are_read_where_they_are_whatever_the_default_device() -> None:
    ids = torch.tensor([[5, 6, EOS, EOS], [5, 6, 7, EOS]])
    with torch.device("meta"):
        padding = from_ids(ids, EOS, [EOS])
    assert bits(padding) == [[1, 1, 1, 0], [1, 1, 1, 1]]
