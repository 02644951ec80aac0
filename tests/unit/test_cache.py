"""Caches: which are there to use again, how their columns move, and what stands in the way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import build
from torch import Tensor
from transformers import DynamicCache

from padfix.generation.cache import PassedCache, cache_bound, cache_to_caller, is_movable, passed_cache
from padfix.generation.call import GenerateCall, bind
from padfix.layout.plan import LayoutPlan

MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0]])
PLAN = LayoutPlan.from_mask(MASK)  # four columns


def states(columns: int, *, rows: int = 3) -> Tensor:
    """Keys of shape (rows, 2, columns, 4) that tell row, head and column, none of them 0."""
    row, head, column = torch.meshgrid(torch.arange(rows), torch.arange(2), torch.arange(columns), indexing="ij")
    return (1 + column + 10 * head + 100 * row).float()[..., None].expand(-1, -1, -1, 4).clone()


def dynamic(columns: int, *, rows: int = 3, **config: Any) -> Any:
    """A filled cache of two layers."""
    cache = DynamicCache(config=build("mistral", **config).config) if config else DynamicCache()
    for layer in range(2):
        cache.update(states(columns, rows=rows) + layer, -states(columns, rows=rows) - layer, layer)
    return cache


def tensors(cache: Any) -> list[Tensor]:
    if isinstance(cache, tuple):
        return [one for layer in cache for one in layer]
    if hasattr(cache, "layers"):
        return [one for layer in cache.layers for one in (layer.keys, layer.values)]
    return [*cache.key_cache, *cache.value_cache]


def expected(one: Tensor, plan: LayoutPlan = PLAN, before: int = 0) -> Tensor:
    """Cell by cell: where each column of the model's layout was in the caller's, zeros elsewhere."""
    rows, heads, columns, size = one.shape
    wanted = torch.zeros(rows, heads, columns + plan.trim, size)
    wanted[:, :, :before] = one[:, :, :before]
    for row in range(rows):
        for at in range(plan.model_width):
            if plan.real[row, at]:
                wanted[row, :, before + int(plan.order[row, at])] = one[row, :, before + at]
    wanted[:, :, before + plan.caller_width :] = one[:, :, before + plan.model_width :]
    return wanted


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("new", [0, 3])
def test_columns_move_and_new_ones_follow(new: int, before: int) -> None:
    cache = dynamic(before + PLAN.model_width + new)
    held = [one.clone() for one in tensors(cache)]
    moved: Any = cache_to_caller(cache, PLAN, before=before)
    assert moved is cache
    for one, other in zip(tensors(moved), held, strict=True):
        assert torch.equal(one, expected(other, before=before))
    assert cache.get_seq_length() == before + PLAN.caller_width + new


def test_tuples_of_old_releases_move() -> None:
    cache = ((states(6), -states(6)), (states(6) + 1, -states(6) - 1))
    held = copy.deepcopy(cache)
    moved = cache_to_caller(cache, PLAN)
    for one, other, before in zip(tensors(moved), tensors(held), tensors(cache), strict=True):
        assert torch.equal(one, expected(other))
        assert torch.equal(before, other)


def test_rows_of_beams_move_with_their_prompt() -> None:
    cache = dynamic(6, rows=6)
    held = [one.clone() for one in tensors(cache)]
    cache_to_caller(cache, PLAN)
    for one, other in zip(tensors(cache), held, strict=True):
        assert torch.equal(one, expected(other, PLAN.repeated(2)))


@pytest.mark.skipif(not hasattr(DynamicCache(), "layers"), reason="this release keeps every column")
def test_window_grows_by_what_was_dropped_and_is_not_moved_once_it_is_full() -> None:
    cache: Any = dynamic(6, sliding_window=9)
    assert cache_to_caller(cache, PLAN) is not None
    assert cache.get_seq_length() == 7
    assert cache.layers[0].cumulative_length == 7
    full = dynamic(6, sliding_window=7)
    held = [one.clone() for one in tensors(full)]
    assert cache_to_caller(full, PLAN) is None
    assert all(map(torch.equal, tensors(full), held))


def test_window_of_the_model_keeps_a_cache_of_full_layers_from_moving() -> None:
    assert cache_to_caller(dynamic(6), PLAN, sizes={7}) is None
    assert cache_to_caller(dynamic(6), PLAN, sizes={8}) is not None


def test_cache_of_fewer_columns_than_the_prompt_is_not_moved() -> None:
    assert cache_to_caller(dynamic(3), PLAN) is None
    assert cache_to_caller(((states(3), states(3)),), PLAN) is None
    assert cache_to_caller(DynamicCache(), PLAN) is None


def test_static_cache_moves_in_its_own_tensors() -> None:
    keys, values = states(8), -states(8)
    plan = LayoutPlan.from_mask(MASK, trim=False)
    layer = type("StaticLayer", (), {})()
    vars(layer).update(keys=keys, values=values, is_initialized=True)
    cache: Any = type("StaticCache", (), {"get_seq_length": lambda _: 6})()
    cache.layers = [layer]
    held = keys.clone()
    assert cache_to_caller(cache, plan) is cache
    assert layer.keys is keys
    assert torch.equal(keys, expected(held, plan))
    assert cache_to_caller(cache, PLAN) is None  # it cannot grow


class Unknown:
    def get_seq_length(self) -> int:
        return 4


def offloaded() -> Any:
    cache = DynamicCache()
    cache.offloading = True
    return cache


@pytest.mark.parametrize(
    ("make", "movable"),
    [
        (DynamicCache, True),
        (lambda: dynamic(6), True),
        (lambda: ((states(6), states(6)),), True),
        (lambda: ((states(6)[0], states(6)[0]),), False),
        (Unknown, False),
        (offloaded, False),
        (lambda: SimpleNamespace(layers=[]), False),
    ],
)
def test_kinds_that_can_be_moved(make: Callable[[], Any], movable: bool) -> None:
    assert is_movable(make(), 8, trims=True) == movable


# Among the arguments of a call


def call(model: Any = None, *, columns: int = 5, width: int = 3, mask: Any = ..., cache: Any = ...) -> GenerateCall:
    """A call of three rows."""
    arguments = {
        "input_ids": torch.full((3, width), 7),
        "attention_mask": torch.ones(3, width).long() if mask is ... else mask,
        "past_key_values": dynamic(columns) if cache is ... else cache,
    }
    made = bind(build("llama") if model is None else model, (), arguments)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("columns", "width", "mask", "whole"),
    [
        (5, 8, torch.ones(3, 8), True),
        (5, 8, None, True),
        (5, 3, torch.ones(3, 8), False),
        (5, 5, torch.ones(3, 5), False),
        (5, 6, torch.ones(3, 11), False),
    ],
)
def test_passed_cache(columns: int, width: int, mask: Any, whole: bool) -> None:
    passed = passed_cache(call(columns=columns, width=width, mask=mask))
    assert passed is not None
    assert (passed.name, passed.columns, passed.whole) == ("past_key_values", columns, whole)


def test_no_cache_and_an_empty_one() -> None:
    assert passed_cache(call(cache=None)) is None
    passed = passed_cache(call(cache=DynamicCache()))
    assert passed is not None
    assert (passed.columns, passed.whole) == (0, True)
    states_alone = passed_cache(call(cache=object()))
    assert states_alone is not None
    assert states_alone.columns == 0


FULL = torch.ones(3, 8, dtype=torch.bool)


def bound(mask: Tensor, *, model: Any = None, cache: Any = ..., cached: int = 5, new_tokens: int = 4) -> list[str]:
    """What stands in the way of a call with its whole sequences, whose mask is given."""
    made = call(model, width=mask.shape[1], mask=mask, cache=cache)
    passed = passed_cache(made)
    assert passed is not None
    plan = LayoutPlan.from_mask(mask, cached=cached)
    return list(cache_bound(made, passed, plan, None, new_tokens))


def with_zeros(*cells: tuple[int, int]) -> Tensor:
    mask = FULL.clone()
    for cell in cells:
        mask[cell] = False
    return mask


def test_pads_between_tokens_are_no_obstacle_for_full_attention() -> None:
    assert bound(with_zeros((0, 3), (0, 4), (1, 6), (1, 7))) == []


def test_rows_need_a_token_beside_the_cached_ones() -> None:
    said = bound(with_zeros((1, 5), (1, 6), (1, 7)))
    assert said == ["past_key_values= (some rows have no token beside the cached ones)"]


def test_positions_that_count_pads() -> None:
    class Plain:
        config = build("llama").config

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            raise NotImplementedError

    assert bound(with_zeros((0, 3)), model=Plain()) == ["past_key_values= (its pads would count as positions)"]
    assert bound(with_zeros((0, 0)), model=Plain()) == []  # left-padded, without a hole
    assert bound(with_zeros((0, 3)), model=build("bloom")) == []  # its ALiBi is made from the mask


@pytest.mark.skipif(not hasattr(DynamicCache(), "layers"), reason="this release keeps every column")
@pytest.mark.parametrize(("window", "exact"), [(12, False), (13, True)])
def test_window_must_not_be_full_at_the_end(window: int, exact: bool) -> None:
    cache = dynamic(5, sliding_window=window)
    said = bound(with_zeros((0, 3)), cache=cache, new_tokens=4)
    kind = "past_key_values= (a DynamicCache whose columns cannot be told apart or moved)"
    assert said == ([] if exact else [kind])
    # One of full layers does not tell the window of the model.
    said = bound(with_zeros((0, 3)), model=build("mistral", sliding_window=window), cache=dynamic(5), new_tokens=4)
    assert said == ([] if exact else ["past_key_values= (its pads would count in the window)"])
    assert bound(with_zeros((0, 0)), cache=cache, new_tokens=40) == []


def test_new_tokens_alone() -> None:
    past = with_zeros((0, 1))[:, :5]
    made = call(width=3, mask=torch.cat((past, FULL[:, :3]), 1))
    passed = PassedCache("past_key_values", Unknown(), 5, whole=False)
    plan = LayoutPlan.from_mask(FULL[:, :3])
    assert list(cache_bound(made, passed, plan, past, 4)) == [
        "past_key_values= (a Unknown whose columns cannot be told apart or moved)"
    ]
    assert list(cache_bound(made, passed, plan, FULL[:, :5], 4)) == []


@pytest.mark.parametrize(("columns", "movable"), [(6, True), (7, False), (8, False)])
def test_cache_that_does_not_tell_the_windows_of_its_model(columns: int, movable: bool) -> None:
    assert is_movable(((states(6), states(6)),), columns, trims=False, sizes={7, 9}) is movable


def test_cache_of_lists_grows_where_it_is_dynamic() -> None:
    dynamic_lists, static_lists = (type(f"{kind}Cache", (), {})() for kind in ("Dynamic", "Static"))
    assert is_movable(dynamic_lists, 9, trims=True)
    assert is_movable(static_lists, 9, trims=False)
    assert not is_movable(static_lists, 9, trims=True)
