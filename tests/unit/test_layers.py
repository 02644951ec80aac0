"""Layers: methods of ours in the place of others', put in, taken out, and retired beneath someone's wrapper.

Then the layers of padfix itself: what one call of `padfix.generate` leaves in transformers, and `uninstall` during a
call.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from oracle import GREEDY, ROWS, alone, build, right_padded
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation.utils import GenerationMixin

import padfix
from padfix.layers import Layer, Layers, PatchPoint
from padfix.patch import GENERATE, HOOKS, PATCH_POINTS


class Owner:
    """A class with two methods, one of which its base has."""

    def first(self) -> str:
        return "first"

    def second(self) -> str:
        return "second"


MODULE = "of_the_tests_of_layers"
FIRST, SECOND = PatchPoint(MODULE, "Owner", "first"), PatchPoint(MODULE, "Owner", "second")
MISSING = PatchPoint(MODULE, "Owner", "third")
NOWHERE = (PatchPoint("no_such_module", "Owner", "first"), PatchPoint(MODULE, "Nobody", "first"))


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fresh owner, found in a module of its own."""
    fresh = type("Owner", (), {name: value for name, value in vars(Owner).items() if callable(value)})
    module = ModuleType(MODULE)
    module.__dict__["Owner"] = fresh
    monkeypatch.setitem(sys.modules, MODULE, module)
    return fresh


def ours(point: PatchPoint) -> Callable[[Layer], Callable[..., Any]]:
    """A method that says `ours` and what the original says, as long as its layer is active."""

    def replace(layer: Layer) -> Callable[..., Any]:
        def method(self: Any) -> Any:
            said = layer.original(self)
            return f"our {said}" if layer.active else said

        return method

    return replace


def wrapped(owner: Any, name: str, *, says_so: bool) -> None:
    """Someone's wrapper around a method, which says what it wraps or does not."""
    beneath = vars(owner)[name]

    def wrapper(self: Any) -> str:
        return f"their {beneath(self)}"

    setattr(owner, name, functools.wraps(beneath)(wrapper) if says_so else wrapper)


def test_methods_are_put_in_and_taken_out_as_they_were(owner: Any) -> None:
    layers, before = Layers(), dict(vars(owner))
    assert not layers.are_in_place((FIRST, SECOND))
    layers.put((FIRST, SECOND), ours)
    assert (owner().first(), owner().second()) == ("our first", "our second")
    assert layers.are_in_place((FIRST, SECOND))
    layers.take_out((FIRST, SECOND))
    assert dict(vars(owner)) == before
    assert not layers.are_in_place((FIRST,))
    assert not layers.placed
    assert not layers.retired


def test_points_are_put_in_and_taken_out_by_themselves(owner: Any) -> None:
    layers = Layers()
    layers.put((FIRST,), ours)
    assert (owner().first(), owner().second()) == ("our first", "second")
    assert not layers.are_in_place((FIRST, SECOND))
    layers.put((FIRST, SECOND), ours)
    layers.take_out((FIRST,))
    assert (owner().first(), owner().second()) == ("first", "our second")
    layers.take_out((FIRST,))
    assert (owner().first(), owner().second()) == ("first", "our second")


@pytest.mark.parametrize("with_wrapper", [False, True])
def test_a_layer_that_is_reached_is_not_put_twice(owner: Any, with_wrapper: bool) -> None:
    layers = Layers()
    layers.put((FIRST,), ours)
    if with_wrapper:
        wrapped(owner, "first", says_so=True)
    before = vars(owner)["first"]
    layers.put((FIRST,), ours)
    assert vars(owner)["first"] is before
    assert layers.are_in_place((FIRST,))
    assert owner().first().count("our") == 1


@pytest.mark.parametrize("point", [MISSING, *NOWHERE])
def test_a_point_that_is_not_there_is_left_out(owner: Any, point: PatchPoint) -> None:
    layers, before = Layers(), dict(vars(owner))
    layers.put((point,), ours)
    assert not layers.are_in_place((point,))
    layers.take_out((point,))
    assert dict(vars(owner)) == before
    layers.put((FIRST, point), ours)
    assert layers.are_in_place((FIRST, point))
    assert owner().first() == "our first"


def test_a_method_that_the_owner_inherits_is_not_its_own(owner: Any) -> None:
    heir = type("Owner", (owner,), {})
    sys.modules[MODULE].__dict__["Owner"] = heir
    layers = Layers()
    layers.put((FIRST,), ours)
    assert not layers.are_in_place((FIRST,))
    assert "first" not in vars(heir)
    assert heir().first() == "first"


@pytest.mark.parametrize("says_so", [True, False])
def test_a_layer_beneath_a_wrapper_is_switched_off_and_never_works_again(owner: Any, says_so: bool) -> None:
    layers = Layers()
    layers.put((FIRST,), ours)
    wrapped(owner, "first", says_so=says_so)
    wrapper = vars(owner)["first"]
    assert owner().first() == "their our first"
    layers.take_out((FIRST,))
    assert vars(owner)["first"] is wrapper
    assert owner().first() == "their first"
    layers.put((FIRST,), ours)
    assert owner().first() == "our their first"
    layers.take_out((FIRST,))
    assert vars(owner)["first"] is wrapper
    assert owner().first() == "their first"


def test_a_layer_that_a_wrapper_hides_is_retired_once_another_is_put_on_top(owner: Any) -> None:
    layers = Layers()
    layers.put((FIRST,), ours)
    wrapped(owner, "first", says_so=False)
    assert not layers.are_in_place((FIRST,))
    layers.put((FIRST,), ours)
    assert owner().first() == "our their first"
    assert layers.are_in_place((FIRST,))


def test_a_retired_layer_that_has_come_to_light_is_no_original(owner: Any) -> None:
    layers, stock = Layers(), vars(owner)["first"]
    layers.put((FIRST,), ours)
    layer = vars(owner)["first"]
    wrapped(owner, "first", says_so=False)
    layers.take_out((FIRST,))
    owner.first = layer  # the wrapper is taken off again
    assert owner().first() == "first"
    layers.put((FIRST,), ours)
    assert owner().first() == "our first"
    layers.take_out((FIRST,))
    assert vars(owner)["first"] is stock


def test_a_chain_of_wrappers_may_be_a_circle(owner: Any) -> None:
    layers = Layers()
    layers.put((FIRST,), ours)
    wrapped(owner, "first", says_so=False)
    circle = vars(owner)["first"]
    circle.__wrapped__ = circle
    assert not layers.are_in_place((FIRST,))


# padfix's own

MIXIN: Any = GenerationMixin
STOCK = dict(vars(GenerationMixin))
BATCH = right_padded(ROWS)
WIDTH = BATCH["input_ids"].shape[1]
FLAGS: dict[str, Any] = {**GREEDY, "no_repeat_ngram_size": 1}


def in_place() -> set[str]:
    """The methods of ours that stand in GenerationMixin."""
    return {point.name for point in PATCH_POINTS if vars(GenerationMixin)[point.name] is not STOCK[point.name]}


ALL_HOOKS = {point.name for point in HOOKS}


@pytest.fixture(autouse=True)
def stock_again() -> Iterator[None]:
    """The library's own class after each test."""
    assert dict(vars(GenerationMixin)) == STOCK
    yield
    padfix.uninstall()
    for point in PATCH_POINTS:
        setattr(MIXIN, point.name, STOCK[point.name])


@pytest.fixture(scope="module")
def right() -> list[list[int]]:
    """What each prompt gets alone."""
    return [reply.tokens for reply in alone(build("llama"), ROWS, no_repeat_ngram_size=1)]


def replies(output: Tensor) -> list[list[int]]:
    new: list[list[int]] = output[:, WIDTH:].tolist()
    return new


class Acting(LogitsProcessor):
    """Does something at its first call."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act: Callable[[], Any] | None = act

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        act, self.act = self.act, None
        if act is not None:
            act()
        return scores


def test_one_call_leaves_nothing_behind(right: list[list[int]]) -> None:
    seen: list[set[str]] = []
    output = padfix.generate(
        build("llama"), **BATCH, **FLAGS, logits_processor=[Acting(lambda: seen.append(in_place()))]
    )
    assert replies(output) == right
    assert seen == [ALL_HOOKS]
    assert dict(vars(GenerationMixin)) == STOCK


def test_a_call_without_pads_puts_nothing_in() -> None:
    seen: list[set[str]] = []
    prompt = torch.tensor(ROWS[:1])
    padfix.generate(build("llama"), prompt, **FLAGS, logits_processor=[Acting(lambda: seen.append(in_place()))])
    assert seen == [set()]


def test_a_call_that_raises_leaves_nothing_behind() -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        padfix.generate(build("llama"), **BATCH, **FLAGS, logits_processor=[Acting(fail)])
    assert dict(vars(GenerationMixin)) == STOCK


def test_calls_that_overlap_leave_nothing_behind_once_the_last_has_ended(right: list[list[int]]) -> None:
    both_run, first_may_end, second_may_end = threading.Barrier(3), threading.Event(), threading.Event()
    got: dict[str, Any] = {}

    def call(name: str, may_end: threading.Event) -> None:
        def wait() -> None:
            both_run.wait(30)
            assert may_end.wait(30)

        try:
            output = padfix.generate(build("llama"), **BATCH, **FLAGS, logits_processor=[Acting(wait)])
            got[name] = replies(output)
        except BaseException as error:  # for the assert below
            got[name] = error

    first = threading.Thread(target=call, args=("first", first_may_end))
    second = threading.Thread(target=call, args=("second", second_may_end))
    first.start()
    second.start()
    try:
        both_run.wait(30)
        first_may_end.set()
        first.join(30)
        assert in_place() == ALL_HOOKS
    finally:
        first_may_end.set()
        second_may_end.set()
        first.join(30)
        second.join(30)
    assert got == {"first": right, "second": right}
    assert dict(vars(GenerationMixin)) == STOCK


def uninstalling(model: Any) -> Any:
    """The model, which uninstalls padfix in each call before `generate` builds its lists."""
    prepare = model._prepare_special_tokens

    def prepared(*args: Any, **kwargs: Any) -> Any:
        padfix.uninstall()
        assert in_place() == ALL_HOOKS
        return prepare(*args, **kwargs)

    model._prepare_special_tokens = prepared
    return model


def test_uninstall_keeps_the_hooks_until_the_running_call_has_ended(right: list[list[int]]) -> None:
    padfix.install("fix")
    assert replies(uninstalling(build("llama")).generate(**BATCH, **FLAGS)) == right
    assert not padfix.is_installed()
    assert dict(vars(GenerationMixin)) == STOCK


def test_install_during_a_call_of_its_own_keeps_the_hooks(right: list[list[int]]) -> None:
    output = padfix.generate(build("llama"), **BATCH, **FLAGS, logits_processor=[Acting(lambda: padfix.install("fix"))])
    assert replies(output) == right
    assert in_place() == ALL_HOOKS | {GENERATE.name}
    padfix.uninstall()
    assert dict(vars(GenerationMixin)) == STOCK
