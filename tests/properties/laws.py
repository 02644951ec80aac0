"""The laws of the layout and of detection; each raises AssertionError where one does not hold."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.utils import GenerationMixin

from padfix.layout import detect
from padfix.layout.plan import LayoutPlan

from .layouts import Ids, Move

__all__ = [
    "a_left_padded_batch_stays",
    "a_shared_row_counts_for_all",
    "an_own_pad_id_is_a_pad_wherever_it_stands",
    "columns_in_a_cache_can_be_left_out",
    "columns_past_the_prompt_pass_through",
    "ids_are_read_by_the_rule",
    "inputs_are_not_mutated",
    "masks_are_read",
    "misfits_are_refused",
    "moves_as_defined",
    "plans_compose",
    "read_real",
    "rows_repeat_for_beams",
    "the_model_sees_pads_first",
    "there_and_back",
    "trim_drops_pads_alone",
]


def plan_of(move: Move) -> LayoutPlan:
    """The plan under test."""
    return LayoutPlan.from_mask(move.mask, trim=move.trim)


def front(x: Tensor, move: Move) -> Tensor:
    """`x` with its rows and columns in front."""
    return x.movedim((move.batch_axis, move.prompt_axis), (0, 1))


def to_model(move: Move, plan: LayoutPlan, x: Tensor | None = None, fill: float | None = None) -> Tensor:
    """`x` (the move's own, if not given) in the model's layout."""
    return plan.to_model(
        move.x if x is None else x,
        batch_axis=move.batch_axis,
        prompt_axis=move.prompt_axis,
        fill=move.fill if fill is None else fill,
    )


def to_caller(move: Move, plan: LayoutPlan, y: Tensor, fill: float | None = None) -> Tensor:
    """`y` in the caller's layout."""
    return plan.to_caller(
        y, batch_axis=move.batch_axis, prompt_axis=move.prompt_axis, fill=move.back if fill is None else fill
    )


def in_model_layout(move: Move, plan: LayoutPlan) -> Tensor:
    """A tensor with the columns of the model's layout whose values, in the cells of pads too, are no fills."""
    return move.x.narrow(move.prompt_axis, plan.trim, move.x.shape[move.prompt_axis] - plan.trim)


def same(one: Tensor, other: Tensor, what: str) -> None:
    """Fails unless two tensors have one dtype, one shape and equal values."""
    assert one.dtype == other.dtype, f"{what}: {one.dtype}, not {other.dtype}"
    assert one.shape == other.shape, f"{what}: shape {tuple(one.shape)}, not {tuple(other.shape)}"
    assert torch.equal(one, other), f"{what}: {one.tolist()}, not {other.tolist()}"


# The plan


def the_model_sees_pads_first(move: Move) -> None:
    """In every row the pads, then the real tokens in their order; so the last column is real where any is."""
    plan = plan_of(move)
    for row, real in enumerate(move.real):
        length = sum(real)
        assert plan.lengths[row] == length, f"row {row} has {length} real tokens, not {plan.lengths[row]}"
        assert plan.real[row].tolist() == [False] * (plan.model_width - length) + [True] * length
        order = plan.order[row, plan.model_width - length :].tolist()
        assert order == [column for column, is_real in enumerate(real) if is_real], f"row {row} reads {order}"
        assert len(set(plan.order[row].tolist())) == plan.model_width, f"row {row} reads a column twice"
        assert length == 0 or plan.real[row, -1], f"row {row} ends in a pad"
    assert plan.caller_width == move.mask.shape[1]
    assert plan.pads_remain == any(0 < sum(real) < plan.model_width for real in move.real)


def trim_drops_pads_alone(move: Move) -> None:
    """As many columns go as are pads in every row, never all of them, and none where no trim is wanted."""
    plan = plan_of(move)
    width = move.mask.shape[1]
    longest = max(sum(real) for real in move.real)
    assert plan.trim == (width - max(longest, 1) if move.trim else 0)
    assert 1 <= plan.model_width == width - plan.trim
    assert int(plan.real.sum()) == sum(map(sum, move.real)), "a real token was dropped"
    assert not move.trim or longest == 0 or bool(plan.real[:, 0].any()), "the first column is a pad in every row"


def moves_as_defined(move: Move) -> None:
    """`to_model` by the definition of the two layouts, written out cell by cell."""
    plan = plan_of(move)
    rows = front(move.x, move)
    if move.shared:
        rows = rows.expand(move.mask.shape[0], *rows.shape[1:])
    width, model_width = plan.caller_width, plan.model_width
    expected = torch.full((rows.shape[0], rows.shape[1] - plan.trim, *rows.shape[2:]), move.fill).to(rows.dtype)
    for row in range(rows.shape[0]):
        real = [column for column, is_real in enumerate(move.real[row // move.times]) if is_real]
        for at, column in enumerate(real, start=model_width - len(real)):
            expected[row, at] = rows[row, column]
        expected[row, model_width:] = rows[row, width:]
    same(front(to_model(move, plan), move), expected, "the model's layout")


def there_and_back(move: Move) -> None:
    """Both round trips give the real positions back and the fill elsewhere."""
    plan = plan_of(move)
    rows = front(move.x, move)
    rows = rows.expand(move.mask.shape[0], *rows.shape[1:]) if move.shared else rows
    back = front(to_caller(move, plan, to_model(move, plan)), move)
    real = torch.tensor(move.real).repeat_interleave(move.times, 0)
    same(back, _kept(rows, real, move.back), "to_caller(to_model(x))")

    y = in_model_layout(move, plan)
    rows = front(y, move)
    rows = rows.expand(move.mask.shape[0], *rows.shape[1:]) if move.shared else rows
    again = front(to_model(move, plan, to_caller(move, plan, y)), move)
    lengths = [sum(real) for real in move.real]
    last = torch.tensor([[at >= plan.model_width - n for at in range(plan.model_width)] for n in lengths])
    same(again, _kept(rows, last.repeat_interleave(move.times, 0), move.fill), "to_model(to_caller(y))")


def _kept(rows: Tensor, real: Tensor, fill: float) -> Tensor:
    """`rows` with `fill` in the prompt's cells that are not real."""
    past = real.new_ones(real.shape[0], rows.shape[1] - real.shape[1])
    keep = torch.cat((real, past), 1).reshape(rows.shape[0], rows.shape[1], *(1 for _ in rows.shape[2:]))
    return torch.where(keep, rows, torch.tensor(fill).to(rows.dtype))


def columns_past_the_prompt_pass_through(move: Move) -> None:
    """What follows the prompt follows it in both directions, as it is."""
    plan = plan_of(move)
    past = front(move.x, move)[:, plan.caller_width :]
    past = past.expand(move.mask.shape[0], *past.shape[1:]) if move.shared else past
    same(front(to_model(move, plan), move)[:, plan.model_width :], past, "to the model")
    back = to_caller(move, plan, in_model_layout(move, plan))
    same(front(back, move)[:, plan.caller_width :], past, "to the caller")


def a_left_padded_batch_stays(move: Move) -> None:
    """No column of a left-padded batch moves; the trim alone takes some away. Any other batch moves."""
    plan = plan_of(move)
    left_padded = all(real == sorted(real) for real in move.real)
    assert plan.in_place == left_padded
    assert plan.is_identity == (left_padded and plan.trim == 0)
    if left_padded:
        columns = torch.arange(plan.trim, plan.caller_width).expand(len(move.real), -1)
        same(plan.order, columns, "the order")


def rows_repeat_for_beams(move: Move) -> None:
    """A plan for each row k times in turn, and a tensor with k times the rows, move as the batch does."""
    plan = plan_of(move)
    if move.shared:
        return
    for times in (1, 2, 3):
        beams = plan.repeated(times)
        x = move.x.repeat_interleave(times, move.batch_axis)
        expected = to_model(move, plan).repeat_interleave(times, move.batch_axis)
        if move.times == 1:
            same(to_model(move, beams, x), expected, f"repeated({times})")
            y = in_model_layout(move, plan)
            again = y.repeat_interleave(times, move.batch_axis)
            back = to_caller(move, plan, y).repeat_interleave(times, move.batch_axis)
            same(to_caller(move, beams, again), back, f"repeated({times}), back")
        same(to_model(move, plan, x), expected, f"{times} times the rows")
        assert beams.lengths == tuple(int(n) for n in beams.real.sum(1)), "lengths of the repeated plan"
        assert (beams.trim, beams.caller_width, beams.in_place) == (plan.trim, plan.caller_width, plan.in_place)


def a_shared_row_counts_for_all(move: Move) -> None:
    """A tensor of one row moves as if it stood there for every row of the batch."""
    plan = plan_of(move)
    batch = move.mask.shape[0]
    one = move.x.narrow(move.batch_axis, 0, 1)
    every = one.repeat_interleave(batch, move.batch_axis)
    same(to_model(move, plan, one), to_model(move, plan, every), "one row")


def plans_compose(move: Move, later: Tensor) -> None:
    """One plan for two moves moves as the two do, one after the other, and back."""
    first = plan_of(move)
    second = LayoutPlan.from_mask(later, trim=move.trim)
    both = first.then(second)
    assert (both.caller_width, both.model_width) == (first.caller_width, second.model_width)
    assert both.trim == first.trim + second.trim
    same(to_model(move, both), to_model(move, second, to_model(move, first)), "then")
    y = in_model_layout(move, both)
    same(to_caller(move, both, y), to_caller(move, first, to_caller(move, second, y)), "then, back")
    assert both.lengths == tuple(int(n) for n in both.real.sum(1)), "lengths of the composed plan"
    if both.in_place:
        columns = torch.arange(both.trim, both.caller_width).expand(len(move.real), -1)
        same(both.order, columns, "a composed plan in place")


def columns_in_a_cache_can_be_left_out(move: Move, cached: int) -> None:
    """The plan for the columns that are not in a cache moves them as the whole plan does."""
    cached = min(cached, move.mask.shape[1] - 1)
    whole = LayoutPlan.from_mask(move.mask, trim=move.trim, cached=cached)
    rest = whole.without_first(cached)
    assert (rest.model_width, rest.caller_width) == (whole.model_width - cached, whole.caller_width - cached)
    assert rest.lengths == tuple(int(n) for n in (move.mask[:, cached:] != 0).sum(1))
    x = front(move.x, move)
    moved = whole.to_model(x, fill=move.fill)
    same(rest.to_model(x[:, cached:], fill=move.fill), moved[:, cached:], "without the first columns")
    back = whole.to_caller(moved, fill=move.back)
    same(rest.to_caller(moved[:, cached:], fill=move.back), back[:, cached:], "without the first columns, back")
    if not torch.equal(whole.order, torch.arange(whole.model_width).expand_as(whole.order)):
        with pytest.raises(ValueError, match=f"some of the first {whole.model_width} columns move"):
            whole.without_first(whole.model_width)


def inputs_are_not_mutated(move: Move) -> None:
    """Neither the mask nor a moved tensor changes, and what comes back shares no memory with it."""
    mask, x = move.mask.clone(), move.x.clone()
    plan = plan_of(move)
    moved = to_model(move, plan)
    y = in_model_layout(move, plan)
    before, order, real = y.clone(), plan.order.clone(), plan.real.clone()
    back = to_caller(move, plan, y)
    plan.repeated(2)
    for each, kept, what in ((move.mask, mask, "mask"), (move.x, x, "x"), (y, before, "y")):
        same(each, kept, f"{what} after the moves")
    same(plan.order, order, "the plan's order after the moves")
    same(plan.real, real, "the plan's mask after the moves")
    for result in (moved, back):
        result.zero_()
    same(move.x, x, "x after its copy was changed")


def misfits_are_refused(move: Move) -> None:
    """Too few columns, or rows that are no multiple of the batch, raise ValueError with the shape."""
    plan = plan_of(move)
    batch = move.mask.shape[0]
    one = move.x.narrow(move.batch_axis, 0, 1)
    # Two rows: no multiple of three or more, and more than the one that counts for all.
    rows = [one.repeat_interleave(times, move.batch_axis) for times in (2, batch + 1) if batch > 2]
    for tensor in (move.x.narrow(move.prompt_axis, 0, plan.caller_width - 1), *rows):
        with pytest.raises(ValueError, match=re.escape(f"{tuple(tensor.shape)}")):
            to_model(move, plan, tensor)
    for tensor in (move.x.narrow(move.prompt_axis, 0, plan.model_width - 1), *rows):
        with pytest.raises(ValueError, match=re.escape(f"{tuple(tensor.shape)}")):
            to_caller(move, plan, tensor)


# Detection


def masks_are_read(mask: Tensor) -> None:
    """Every value but 0 is real; rows with a pad after a real token, and rows without one, are named."""
    before = mask.clone()
    padding = detect.from_mask(mask)
    same(mask, before, "the mask after it was read")
    real = (mask != 0).tolist()
    if all(map(all, real)):
        assert padding is None, "a mask that masks nothing"
        return
    assert padding is not None, "a mask with pads"
    assert padding.real.tolist() == real
    assert (padding.source, padding.guessed) == ("given", ())
    _names_its_rows(padding, real)


def _names_its_rows(padding: detect.Padding, real: Sequence[Sequence[bool]]) -> None:
    misplaced = (row for row, cells in enumerate(real) if list(cells) != sorted(cells))
    assert padding.misplaced == tuple(misplaced)
    assert padding.empty == tuple(row for row, cells in enumerate(real) if not any(cells))


def read_real(ids: Sequence[Sequence[int]], pad: int | None, eos: Sequence[int]) -> list[list[bool]]:
    """Which ids are real where no mask is given, by the rule, written out for lists.

    A pad id that is no EOS id is a pad wherever it stands. One that is: of the runs of it at an end of the rows the
    shortest is content, and what exceeds it is padding; rows of nothing else are full and do not count.
    """
    if pad is None:
        return [[True] * len(row) for row in ids]
    if pad not in eos:
        return [[one != pad for one in row] for row in ids]
    runs = {}
    for row, cells in enumerate(ids):
        content = [column for column, one in enumerate(cells) if one != pad]
        if content:
            runs[row] = content[0], len(cells) - 1 - content[-1]
    if len(runs) < 2:
        return [[True] * len(row) for row in ids]
    least = [min(run[side] for run in runs.values()) for side in (0, 1)]
    result = []
    for row, cells in enumerate(ids):
        left, right = runs.get(row, least)
        first, last = left - least[0], len(cells) - (right - least[1])
        result.append([first <= column < last for column in range(len(cells))])
    return result


def ids_are_read_by_the_rule(case: Ids) -> None:
    """`from_ids` gives what the rule gives, None where it finds no pad, and says which rows it guessed."""
    before = case.ids.clone()
    padding = detect.from_ids(case.ids, case.pad, case.eos)
    same(case.ids, before, "the ids after they were read")
    real = read_real(case.ids.tolist(), case.pad, case.eos)
    if all(map(all, real)):
        assert padding is None, "ids without a pad"
        return
    assert padding is not None, "ids with pads"
    assert padding.real.tolist() == real
    assert padding.source == "inferred"
    padded = tuple(row for row, cells in enumerate(real) if not all(cells))
    assert padding.guessed == (padded if case.pad in case.eos else ())
    _names_its_rows(padding, real)


def an_own_pad_id_is_a_pad_wherever_it_stands(case: Ids) -> None:
    """Where transformers reads a mask from the ids, `from_ids` reads the same; where it reads nothing, they agree too.

    Only a pad id that is an EOS id is read otherwise; there transformers takes everything for content.
    """
    stock = stock_mask(case)
    if case.pad is not None and case.pad in case.eos:
        assert bool((stock == 1).all()), "transformers has changed its rule"
        return
    padding = detect.from_ids(case.ids, case.pad, case.eos)
    real = torch.ones_like(case.ids).bool() if padding is None else padding.real
    same(real.long(), stock, "the mask")


def stock_mask(case: Ids) -> Tensor:
    """The mask that transformers infers itself."""
    pad = None if case.pad is None else torch.tensor(case.pad)
    eos = torch.tensor(case.eos) if case.eos else None
    rule: Any = GenerationMixin._prepare_attention_mask_for_generation
    if "generation_config" in inspect.signature(rule).parameters:  # from 4.49
        config = SimpleNamespace(_pad_token_tensor=pad, _eos_token_tensor=eos)
        mask: Tensor = rule(None, case.ids, config, {})
    else:
        mask = rule(None, case.ids, pad, eos)
    return mask
