"""History: what each row has seen of the ids that `generate` hands out, and steps taken as if each row stood alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from padfix.generation.history import History, PerRow, by_length
from padfix.layout.plan import LayoutPlan

# Five columns: two real tokens with a hole, four, none, one. One column is a pad in every row.
MASK = torch.tensor([[1, 0, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]])
PROMPT = torch.tensor([[11, 90, 12, 91, 92], [21, 22, 23, 24, 93], [94, 95, 96, 97, 98], [81, 82, 83, 41, 84]])
REAL: list[list[int]] = [[11, 12], [21, 22, 23, 24], [], [41]]


def history(*, trim: bool = True) -> History:
    return History(LayoutPlan.from_mask(MASK, trim=trim), PROMPT)


def model_ids(one: History, new: list[list[int]], *, fill: int = 7) -> Tensor:
    """The ids of the model's layout: each prompt's rows in turn, `fill` in the cells of pads, then new tokens."""
    assert one.prompt is not None
    moved = one.plan.to_model(one.prompt, fill=fill)
    copies = len(new) // len(moved)
    return torch.cat((moved.repeat_interleave(copies, 0), torch.tensor(new, dtype=torch.long)), 1)


NEW = [[51, 52], [53, 54], [55, 56], [57, 58]]
NEW_BEAMS = [[50 + row, 60 + row] for row in range(8)]


@pytest.mark.parametrize(("trim", "width"), [(True, 4), (False, 5)])
def test_ids_hold_the_prompt_in_the_models_width(trim: bool, width: int) -> None:
    one = history(trim=trim)
    assert one.width == width
    assert one.seen == (2, 4, 0, 1)
    assert one.has_pads


def test_of_embeddings_alone_ids_hold_new_tokens_and_nothing_else() -> None:
    one = History(LayoutPlan.from_mask(MASK), None)
    assert (one.width, one.seen, one.has_pads) == (0, (0, 0, 0, 0), False)
    ids = torch.tensor(NEW)
    assert one.pads.of(ids).tolist() == [0] * 4
    for shown in (one.filled(ids), one.filled(ids, 3), one.filled_for_caller(ids), one.to_caller(ids)):
        assert shown is ids
    assert one.row_to_caller(2, ids[2]).tolist() == [55, 56]
    assert one.new(ids) == 2


@pytest.mark.parametrize(("trim", "pads"), [(True, [2, 0, 0, 3]), (False, [3, 1, 0, 4])])
def test_pads_are_counted_for_each_row_and_an_empty_row_has_none(trim: bool, pads: list[int]) -> None:
    one = history(trim=trim)
    assert one.pads.of(torch.zeros(4, 1)).tolist() == pads
    assert one.pads.of(torch.zeros(12, 1)).tolist() == [count for count in pads for _ in range(3)]


def test_a_batch_without_pads_has_none_to_fill() -> None:
    one = History(LayoutPlan.from_mask(torch.ones(2, 3)), torch.tensor([[3, 4, 5], [6, 7, 8]]))
    ids = torch.tensor([[3, 4, 5, 9], [6, 7, 8, 9]])
    assert not one.has_pads
    assert one.pads.of(ids).tolist() == [0, 0]
    assert one.filled(ids, 1) is ids


def test_equal_lengths_leave_no_pad_once_trimmed() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    prompt = torch.tensor([[3, 4, 0], [0, 5, 6]])
    assert not History(LayoutPlan.from_mask(mask), prompt).has_pads
    assert History(LayoutPlan.from_mask(mask, trim=False), prompt).has_pads


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("fill", [0, 7, 24])
@pytest.mark.parametrize("new", [NEW, NEW_BEAMS], ids=["rows", "beams"])
def test_a_value_stands_in_the_cells_of_pads_and_nowhere_else(trim: bool, fill: int, new: list[list[int]]) -> None:
    one = history(trim=trim)
    ids = model_ids(one, new, fill=fill)
    before = ids.clone()
    copies = len(new) // 4
    for value in (-1, 0, 61, None):
        shown = one.filled(ids, value)
        for row, tokens in enumerate(new):
            real = REAL[row // copies]
            if not real:
                assert torch.equal(shown[row], ids[row]), "an empty row is shown as it is"
                continue
            filler = tokens[-1] if value is None else value
            assert shown[row].tolist() == [filler] * (one.width - len(real)) + real + tokens
    assert torch.equal(ids, before)


def test_before_the_first_new_token_the_last_real_one_fills() -> None:
    one = history()
    assert one.filled(model_ids(one, [[]] * 4))[[0, 1, 3]].tolist() == [
        [12, 12, 11, 12],
        [21, 22, 23, 24],
        [41, 41, 41, 41],
    ]


def test_new_tokens_are_those_after_the_prompt() -> None:
    one = history(trim=False)
    assert one.new(model_ids(one, [[]] * 4)) == 0
    assert one.new(model_ids(one, NEW)) == 2
    assert one.new(model_ids(one, NEW_BEAMS)) == 2


def test_a_number_for_each_prompt_is_one_for_each_of_its_rows_and_made_once() -> None:
    numbers = PerRow([3, 0, 3])
    assert (numbers.least, numbers.most) == (0, 3)
    assert numbers.of(torch.zeros(3, 5)).tolist() == [3, 0, 3]
    six = torch.zeros(6, 5)
    assert numbers.of(six).tolist() == [3, 3, 0, 0, 3, 3]
    assert [(one, rows.tolist()) for one, rows in numbers.groups(six)] == [(0, [2, 3]), (3, [0, 1, 4, 5])]
    assert numbers.of(torch.zeros(6, 9)) is numbers.of(six)


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("new", [NEW, NEW_BEAMS], ids=["rows", "beams"])
def test_the_caller_sees_the_prompt_that_was_passed(trim: bool, new: list[list[int]]) -> None:
    one = history(trim=trim)
    ids = model_ids(one, new)
    copies = len(new) // 4
    expected = [PROMPT[row // copies].tolist() + tokens for row, tokens in enumerate(new)]
    shown = one.to_caller(ids)
    assert shown.tolist() == expected
    assert shown.dtype == ids.dtype
    for row in range(len(new)):
        assert one.row_to_caller(row // copies, ids[row]).tolist() == expected[row]


def test_the_callers_view_has_the_type_of_the_ids() -> None:
    one = History(LayoutPlan.from_mask(MASK), PROMPT.to(torch.int32))
    ids = model_ids(history(), NEW)
    assert one.to_caller(ids).dtype == torch.long
    assert one.row_to_caller(0, ids[0]).dtype == torch.long


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("new", [NEW, NEW_BEAMS], ids=["rows", "beams"])
def test_in_the_callers_columns_pads_hold_the_rows_last_token(trim: bool, new: list[list[int]]) -> None:
    one = history(trim=trim)
    shown = one.filled_for_caller(model_ids(one, new))
    copies = len(new) // 4
    for row, tokens in enumerate(new):
        cells = zip(MASK[row // copies].tolist(), PROMPT[row // copies].tolist(), strict=True)
        assert shown[row].tolist() == [token if real else tokens[-1] for real, token in cells] + tokens


def test_a_batch_of_nothing_but_empty_rows_is_shown_as_it_is() -> None:
    prompt = torch.tensor([[9, 9], [8, 8]])
    one = History(LayoutPlan.from_mask(torch.zeros(2, 2)), prompt)
    ids = torch.cat((one.plan.to_model(prompt), torch.tensor([[5], [6]])), 1)
    assert not one.has_pads
    assert one.filled(ids, 3) is ids
    assert one.to_caller(ids).tolist() == [[9, 9, 5], [8, 8, 6]]


# by_length


def summed(ids: Tensor, scores: Any) -> Tensor:
    """Scores with the sum of the row's ids in every cell, and the number of its columns in the first."""
    result: Tensor = scores + ids.sum(1, keepdim=True)
    result[:, 0] = ids.shape[1]
    return result


def of_last(window: int) -> Any:
    """A step that looks at the last `window` ids and at whether there are as many."""

    def step(ids: Tensor, scores: Tensor) -> Tensor:
        if ids.shape[1] < window:
            return scores + 0.5
        seen = ids[:, -window:]
        return scores * 2 + (seen * torch.arange(1, window + 1)).sum(1, keepdim=True)

    return step


def one_by_one(step: Any, ids: Tensor, scores: Tensor, pads: list[int]) -> Tensor:
    parts = [step(ids[row : row + 1, start:], scores[row : row + 1]) for row, start in enumerate(pads)]
    return torch.cat(parts)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_treated_as_if_each_stood_alone(seed: int) -> None:
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = draw.randint(1, 9), draw.randint(2, 8)
    ids = torch.randint(0, 50, (rows, columns), generator=generator)
    scores = torch.randn(rows, 6, generator=generator)
    pads = [draw.randint(0, columns - 1) for _ in range(rows)]
    window = draw.randint(1, columns + 1)
    for step, kept in ((summed, float("inf")), (of_last(window), window), (of_last(window), float("inf"))):
        got = by_length(step, ids, scores, PerRow(pads), window=kept)
        assert torch.equal(got, one_by_one(step, ids, scores, pads))
    stops = by_length(lambda ids, scores: ids.sum(1) % 2 == 0, ids, None, PerRow(pads))
    assert stops.dtype == torch.bool
    assert stops.tolist() == [sum(ids[row, start:].tolist()) % 2 == 0 for row, start in enumerate(pads)]


@pytest.mark.parametrize(
    ("window", "calls"),
    [(float("inf"), [(1, 6), (2, 5), (1, 2)]), (6, [(1, 6), (2, 5), (1, 2)]), (5, [(3, 6), (1, 2)]), (2, [(4, 6)])],
)
def test_rows_of_one_length_share_a_call_and_so_do_all_as_long_as_the_window(
    window: float, calls: list[tuple[int, int]]
) -> None:
    seen: list[tuple[int, ...]] = []

    def step(ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(tuple(ids.shape))
        return scores

    scores = torch.randn(4, 3)
    assert torch.equal(by_length(step, torch.zeros(4, 6), scores, PerRow([1, 4, 0, 1]), window=window), scores)
    assert seen == calls


def test_without_pads_the_step_gets_the_very_ids_and_scores() -> None:
    ids, scores = torch.zeros(2, 3), torch.zeros(2, 4)
    seen: list[Any] = []

    def step(*given: Any) -> Tensor:
        seen.extend(given)
        return scores

    assert by_length(step, ids, scores, PerRow([0, 0])) is scores
    assert seen[0] is ids
    assert seen[1] is scores


def test_scores_that_are_no_tensor_are_handed_on() -> None:
    seen: list[Any] = []

    def step(ids: Tensor, scores: Any) -> Tensor:
        seen.append(scores)
        return ids[:, 0]

    scores = (torch.zeros(1),)
    assert by_length(step, torch.tensor([[7, 8], [9, 10]]), scores, PerRow([1, 0])).tolist() == [8, 9]
    assert all(one is scores for one in seen)


@pytest.mark.parametrize("trim", [True, False])
def test_last_token_stands_in_the_callers_column(trim: bool) -> None:
    one = history(trim=trim)
    before = one.last_columns(model_ids(one, [[]] * 8)).tolist()
    assert before == [2, 2, 3, 3, before[4], before[4], 3, 3]
    assert one.last_columns(model_ids(one, NEW)).tolist() == [6] * 4
    alone = History(LayoutPlan.from_mask(MASK), None)
    assert alone.last_columns(torch.tensor(NEW)).tolist() == [1] * 4
