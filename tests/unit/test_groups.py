"""Groups of rows of one length, and their parts in the caller's order again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from padfix.layout.groups import Groups


@pytest.mark.parametrize(
    ("lengths", "one_row", "rows"),
    [
        ([3, 1, 3, 2, 1], False, ((1, 4), (3,), (0, 2))),
        ([3, 1, 3], True, ((1,), (0,), (2,))),
        ([4, 4], False, ((0, 1),)),
        ([5], False, ((0,),)),
    ],
)
def test_rows_of_one_length_are_a_group(lengths: list[int], one_row: bool, rows: tuple[tuple[int, ...], ...]) -> None:
    groups = Groups.of(lengths, one_row=one_row)
    assert groups.rows == rows
    assert groups.batch == len(lengths)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 3), st.booleans(), st.data())
def test_parts_come_back_in_the_callers_order(
    lengths: list[int], copies: int, one_row: bool, data: st.DataObject
) -> None:
    groups = Groups.of(lengths, one_row=one_row)
    whole = torch.arange(1, len(lengths) * copies * 4 + 1).reshape(len(lengths) * copies, 4)
    widths = [data.draw(st.integers(1, 4)) for _ in groups.rows]
    parts = [whole[Groups.repeated(rows, copies)][:, :width] for rows, width in zip(groups.rows, widths, strict=True)]
    joined = groups.join(parts, fill=-7)
    assert joined.shape == (len(whole), max(widths))
    for rows, width in zip(groups.rows, widths, strict=True):
        index = Groups.repeated(rows, copies)
        assert torch.equal(joined[index, :width], whole[index, :width])
        assert bool((joined[index, width:] == -7).all())


def test_vectors_and_missing_parts_are_joined() -> None:
    groups = Groups.of([2, 1, 2])
    assert groups.join([torch.tensor([5.0]), torch.tensor([6.0, 7.0])], fill=0).tolist() == [6.0, 5.0, 7.0]
    joined = groups.join([None, torch.tensor([[1, 2], [3, 4]])], fill=9)
    assert joined.tolist() == [[1, 2], [9, 9], [3, 4]]


def test_parts_that_do_not_fit_are_refused() -> None:
    groups = Groups.of([2, 1, 2])
    with pytest.raises(ValueError, match=r"a part of shape \(3, 1\) does not fit a group of 2 rows"):
        groups.join([torch.ones(1, 1), torch.ones(3, 1)], fill=0)
    with pytest.raises(ValueError, match="0 of 2 parts hold something, for 2 groups"):
        groups.join([None, None], fill=0)
    with pytest.raises(ValueError, match="1 of 1 parts hold something, for 2 groups"):
        groups.join([torch.ones(1, 1)], fill=0)
    with pytest.raises(ValueError, match="zip"):
        groups.join([torch.ones(1, 1), torch.ones(2, 1, 1)], fill=0)


@pytest.mark.parametrize(
    ("rows", "copies", "numbers"), [((0, 2), 1, [0, 2]), ((2, 0), 2, [4, 5, 0, 1]), ((1,), 3, [3, 4, 5])]
)
def test_copies_of_a_row_stand_in_turn(rows: tuple[int, ...], copies: int, numbers: list[int]) -> None:
    assert Groups.repeated(rows, copies).tolist() == numbers


def test_parts_are_joined_where_they_are_whatever_the_default_device() -> None:
    parts = [torch.tensor([[7]]), torch.tensor([[5, 6], [8, 9]])]
    with torch.device("meta"):
        joined = Groups.of([2, 1, 2]).join(parts, fill=0)
    assert joined.tolist() == [[5, 6], [7, 0], [8, 9]]
