"""Faults planted into how hidden states and attentions come back, each with the model on which it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from hypothesis import assume, given, seed
from hypothesis import strategies as st
from properties.batches import STATIC
from properties.states import StateCase, is_comparable, state_cases, states_equal_single
from torch import Tensor
from torch.nn.functional import pad

from padfix.generation import states
from padfix.generation.states import Columns
from padfix.layout.groups import Groups
from padfix.layout.plan import LayoutPlan

from .search import brief

__all__ = ["CASES", "FAULTS", "Fault", "holds"]

# Takes what is right and gives what is planted in its place.
Plant = Callable[[Any], Any]


class Fault(NamedTuple):
    """A fault: the cases that have to catch it, the object and attribute that it replaces, and the replacement."""

    caught_by: str
    owner: Any
    attribute: str
    plant: Plant


class Cases(NamedTuple):
    """The model of some calls and what they have in common, or any calls."""

    model: str
    over: st.SearchStrategy[StateCase] = state_cases()


def _only(**fields: Any) -> st.SearchStrategy[StateCase]:
    return state_cases().map(lambda case: replace(case, **fields))


CASES: Mapping[str, Cases] = {
    "any": Cases("gpt2"),
    "sliding": Cases("mistral", _only(flags=(), strategy="auto")),
    "static": Cases("llama", _only(flags=(STATIC,), strategy="auto")),
    "apart": Cases("llama", _only(strategy="equal_length", ends=None)),
    "decoder prompts": Cases("bart"),
}


def holds(name: str, examples: int = 24) -> None:
    """Searches the calls for one in which a cell is not that of the prompt alone, and raises what that one raises."""
    model, over = CASES[name]

    @brief(examples)
    @given(over)
    def searched(case: StateCase) -> None:
        assume(is_comparable(model, case))
        states_equal_single(model, case)

    for start in range(2):
        seed(start)(searched)()


def on_axis(axes: tuple[int, ...], change: Callable[[Columns, Tensor, int], Tensor]) -> Plant:
    """A move that is spoiled on some axes."""

    def plant(original: Any) -> Any:
        def spoiled(self: Columns, x: Tensor, axis: int, *, before: int = 0) -> Tensor:
            result: Tensor = change(self, x, axis) if axis in axes else original(self, x, axis, before=before)
            return result

        return spoiled

    return plant


TO_CALLER: Any = Columns.to_caller


def one_off(columns: Columns, x: Tensor, axis: int) -> Tensor:
    whole: Tensor = TO_CALLER(columns, x, axis)
    return whole.roll(1, axis)


def widened_at_the_start(columns: Columns, x: Tensor, axis: int) -> Tensor:
    """The trimmed columns come back, and nothing moves."""
    sizes = [*x.shape]
    sizes[axis] = columns.plan.trim
    return torch.cat((x.new_zeros(sizes), x), axis)


def not_widened(columns: Columns, x: Tensor, axis: int) -> Tensor:
    whole: Tensor = TO_CALLER(columns, x, axis)
    return whole.narrow(axis, columns.plan.trim, x.shape[axis])


def start_token_moved(columns: Columns, x: Tensor, axis: int) -> Tensor:
    moved = columns.plan.to_caller(x, prompt_axis=axis)
    return moved.narrow(axis, 0, columns.plan.caller_width + x.shape[axis] - columns.plan.model_width)


def pads_kept(original: Any) -> Any:
    def spoiled(self: Columns, x: Tensor, axis: int, *, before: int = 0) -> Tensor:
        plan = replace(self.plan, real=torch.ones_like(self.plan.real))
        result: Tensor = original(replace(self, plan=plan), x, axis, before=before)
        return result

    return spoiled


def rows_tiled(original: Any) -> Any:
    def spoiled(self: LayoutPlan, rows: Tensor) -> tuple[Tensor, Tensor]:
        times, shape = (
            rows.shape[0] // len(self.lengths),
            (rows.shape[0], self.model_width, *(1 for _ in rows.shape[2:])),
        )
        order, real = (
            each.repeat(times, 1).reshape(shape).expand(-1, -1, *rows.shape[2:]) for each in (self.order, self.real)
        )
        return order, real

    return spoiled


def padded_at_the_end(x: Tensor, sizes: tuple[int, int]) -> Tensor:
    return pad(x, sizes[::-1])


def tail_dropped(original: Any) -> Any:
    def spoiled(x: Tensor, step: int, columns: Columns) -> Tensor | None:
        result: Tensor | None = original(x[..., x.shape[-1] - columns.fed(step) :], step, columns)
        return result

    return spoiled


def groups_tiled(rows: Any, copies: int, device: Any = None) -> Tensor:
    return torch.tensor([row + one * len(rows) for one in range(copies) for row in range(len(rows))])


def earlier_groups_lost(original: Any) -> Any:
    return lambda self, parts, *, fill: original(self, [None, *parts[1:]] if len(parts) > 1 else parts, fill=fill)


FAULTS: Mapping[str, Fault] = {
    "keys are one column off": Fault("any", Columns, "to_caller", on_axis((3,), one_off)),
    "queries are one column off": Fault("any", Columns, "to_caller", on_axis((1, 2), one_off)),
    "queries are not moved": Fault("any", Columns, "to_caller", on_axis((1, 2), widened_at_the_start)),
    "keys are not moved": Fault("any", Columns, "to_caller", on_axis((3,), widened_at_the_start)),
    "the trim is forgotten": Fault("any", Columns, "to_caller", on_axis((1, 2, 3), not_widened)),
    "pads keep their values": Fault("any", Columns, "to_caller", pads_kept),
    "rows are tiled for beams": Fault("any", LayoutPlan, "_fitting", rows_tiled),
    "the window is at the start": Fault("sliding", states, "pad", lambda original: padded_at_the_end),
    "the end of a static cache is taken for its start": Fault("static", states, "_attention", tail_dropped),
    "groups stand one after the other": Fault("apart", Groups, "repeated", lambda original: staticmethod(groups_tiled)),
    "the shortest prompts are lost": Fault("apart", Groups, "join", earlier_groups_lost),
    "the start token is taken for the prompt's": Fault(
        "decoder prompts", Columns, "to_caller", on_axis((1, 2, 3), start_token_moved)
    ),
}
