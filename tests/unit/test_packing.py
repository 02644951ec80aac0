"""Prompts packed into few rows: each token once, no row wider than the longest prompt, and the way back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from padfix.layout.packing import Packing

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any)
PAD = -7


def left_padded(packing: Packing, columns: int) -> torch.Tensor:
    """Tokens that are all different, from 1 on, after pads."""
    x = torch.full((len(packing.lengths), columns), PAD)
    first = 1
    for prompt, length in enumerate(packing.lengths):
        x[prompt, columns - length :] = torch.arange(first, first + length)
        first += length
    return x


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ([400, 60, 40, 35, 30, 28, 25, 22], ((0,), (1, 2, 3, 4, 5, 6, 7))),
        ([3, 5, 2, 4, 1], ((1,), (3, 4), (0, 2))),
        ([2, 2, 2], ((0,), (1,), (2,))),
        ([3, 0, 1], ((0,), (2,))),
        ([0, 0], ()),
        ([], ()),
    ],
)
def test_longest_go_first_and_each_into_the_first_row_with_room(
    lengths: list[int], rows: tuple[tuple[int, ...], ...]
) -> None:
    packing = Packing.of(lengths)
    assert packing.rows == rows
    assert packing.width == max(lengths, default=0)


@given(LENGTHS)
def test_each_prompt_stands_in_one_row_that_is_no_wider_than_the_longest(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    assert sorted(prompt for row in packing.rows for prompt in row) == [at for at, one in enumerate(lengths) if one]
    filled = [sum(lengths[prompt] for prompt in row) for row in packing.rows]
    assert max(filled) == packing.width == max(lengths)
    for row, one in enumerate(filled):  # no row whose prompts another row has room for
        assert all(one + other > packing.width for other in filled[row + 1 :])


@given(LENGTHS, st.integers(0, 3))
def test_each_token_is_packed_once_in_its_order(lengths: list[int], extra: int) -> None:
    packing = Packing.of(lengths)
    x = left_padded(packing, packing.width + extra)
    packed = packing.pack(x, fill=PAD)
    assert packed.shape == (len(packing.rows), packing.width)
    assert sorted(packed[packed != PAD].tolist()) == list(range(1, sum(lengths) + 1))
    for row, prompts in zip(packed.tolist(), packing.rows, strict=True):
        tokens = [token for prompt in prompts for token in x[prompt].tolist() if token != PAD]
        assert row == tokens + [PAD] * (packing.width - len(tokens))


@given(LENGTHS)
def test_positions_start_anew_with_each_prompt(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    for row, prompts in zip(packing.positions.tolist(), packing.rows, strict=True):
        counted = [position for prompt in prompts for position in range(lengths[prompt])]
        assert row == counted + [0] * (packing.width - len(counted))


@given(LENGTHS, st.none() | st.integers(1, 9))
def test_token_sees_itself_and_what_stands_before_it_of_its_own_prompt_and_window(
    lengths: list[int], window: int | None
) -> None:
    packing = Packing.of(lengths)
    sees = packing.mask(window=window)
    assert sees.shape == (len(packing.rows), 1, packing.width, packing.width)
    for row, prompts in zip(sees[:, 0], packing.rows, strict=True):
        owners = [prompt for prompt in prompts for _ in range(lengths[prompt])]
        owners += [-1] * (packing.width - len(owners))
        expected = [
            [query - (window or query + 1) < key <= query and owners[key] == one for key in range(len(row))]
            for query, one in enumerate(owners)
        ]
        assert row.tolist() == expected
        assert row.any(1).all()  # a query that sees nothing gives NaN


@given(LENGTHS, st.integers(0, 3), st.integers(1, 3))
def test_what_was_packed_comes_back_left_padded(lengths: list[int], extra: int, copies: int) -> None:
    packing = Packing.of(lengths)
    columns = packing.width + extra
    x = left_padded(packing, columns)
    packed = packing.pack(x, fill=PAD)
    states = torch.stack((packed, packed * 100), 1)[..., None] * torch.tensor([1.0, 0.5])  # two heads of size two
    apart = packing.unpack(states, columns, copies=copies)
    own = x.where(x != PAD, 0)
    expected = torch.stack((own, own * 100), 1)[..., None] * torch.tensor([1.0, 0.5])
    assert torch.equal(apart, expected.repeat_interleave(copies, 0))


def test_tensors_are_made_where_the_states_are_whatever_the_default_device() -> None:
    packing = Packing.of([2, 1])
    assert packing.positions.tolist() == [[0, 1], [0, 0]]
    with torch.device("meta"):
        packed = packing.pack(torch.tensor([[5, 6], [0, 7]], device="cpu"), fill=PAD)
        apart = packing.unpack(packed[:, None, :, None], 2, copies=1)
    assert packed.tolist() == [[5, 6], [7, PAD]]
    assert apart[:, 0, :, 0].tolist() == [[5, 6], [0, 7]]
    assert packing.mask(torch.device("meta")).device.type == "meta"
