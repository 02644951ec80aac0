"""A fault at any step passes through, or leaves the call to transformers; nothing of the caller's is touched."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from oracle import EOS, GREEDY, PADDERS, ROWS, build, left_padded, right_padded
from stock import REFUSED, assert_replies, expected, outcome, suppressed_outcome, unchanged
from transformers.generation.utils import GenerationMixin

import padfix
from padfix import PadfixError, PadfixWarning, RightPaddingError, notices, pipeline
from padfix.generation import compat, limits, pads
from padfix.layout.plan import LayoutPlan
from padfix.strategies import left_pad

pytestmark = pytest.mark.usefixtures("installed")

FAULTS: Mapping[str, Callable[[], BaseException]] = {
    "RuntimeError": lambda: RuntimeError("the device is gone"),
    "OutOfMemoryError": lambda: torch.OutOfMemoryError("CUDA out of memory"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "AttributeError": lambda: AttributeError("no such thing"),
    "StopIteration": StopIteration,
}


class Step(NamedTuple):
    """A function that every repair runs through, where it is looked up."""

    owner: Any
    name: str


STEPS: Mapping[str, Step] = {
    "bind": Step(pipeline, "bind"),
    "detect": Step(pipeline, "detect"),
    "from_mask": Step(pads, "from_mask"),
    "resolved_config": Step(compat, "resolved_config"),
    "decide": Step(pipeline, "decide"),
    "unreadable_mask": Step(limits, "unreadable_mask"),
    "traits": Step(pipeline, "traits_of"),
    "choose_repair": Step(pipeline, "choose_repair"),
    "choose": Step(pipeline, "choose"),
    "plan": Step(LayoutPlan, "from_mask"),
    "limits": Step(limits, "layout_bound"),
    "log": Step(notices, "info_once"),
    "to_model": Step(left_pad, "to_model"),
    "plan.to_model": Step(LayoutPlan, "to_model"),
    "generate": Step(GenerationMixin, "_sample"),
    "to_caller": Step(left_pad, "to_caller"),
    "sequences_to_caller": Step(left_pad, "sequences_to_caller"),
    "rebuilt": Step(left_pad, "rebuilt"),
}


def assert_right(model: Any, *, side: str = "right") -> None:
    """Fails unless a padded batch gets what each prompt gets alone."""
    batch = PADDERS[side](ROWS)
    assert_replies(model.generate(**batch, **GREEDY), batch["input_ids"], [one.tokens for one in expected("llama")])


def in_another_thread(call: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(call).result()


@contextmanager
def leaves_no_trace(model: Any, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Fails unless after the block all is as before it, and the next calls are right, in this thread and another."""
    generate, generator = vars(GenerationMixin)["generate"], torch.get_rng_state()
    with unchanged(model, arguments):
        yield
    assert vars(GenerationMixin)["generate"] is generate
    assert padfix.is_installed()
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), generator)
    for side in ("right", "left"):
        assert_right(model, side=side)
        in_another_thread(functools.partial(assert_right, model, side=side))


def assert_passes_through(call: Callable[[], Any], fault: BaseException) -> None:
    """Fails unless the call raises that very fault, with nothing put around it."""
    with pytest.raises(type(fault)) as caught:
        call()
    assert caught.value is fault
    assert fault.__cause__ is None
    assert fault.__context__ is None


def _raising(fault: BaseException) -> Callable[..., Any]:
    def raises(*args: Any, **kwargs: Any) -> Any:
        raise fault

    return raises


# Those that look at the call. What goes wrong there goes wrong before anything was computed or changed.
READING = tuple(STEPS)[1 : tuple(STEPS).index("to_model")]
# Those that no argument brings about.
OF_THE_PROCESS = ("KeyboardInterrupt", "OutOfMemoryError", "SystemExit")


@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_step_passes_through_and_is_forgotten(
    step: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if step in READING and kind not in OF_THE_PROCESS:
        pytest.skip("transformers answers")
    model, fault = build("llama"), FAULTS[kind]()
    arguments = right_padded(ROWS) | GREEDY | {"return_dict_in_generate": True}
    with leaves_no_trace(model, arguments), monkeypatch.context() as planted:
        planted.setattr(*STEPS[step], _raising(fault))
        assert_passes_through(lambda: model.generate(**arguments), fault)


@pytest.mark.parametrize("kind", [one for one in FAULTS if one not in OF_THE_PROCESS])
@pytest.mark.parametrize("step", READING)
def test_a_fault_in_reading_a_call_is_named_and_transformers_answers(
    step: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, fault = build("llama"), FAULTS[kind]()
    arguments = right_padded(ROWS) | GREEDY
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    with leaves_no_trace(model, arguments), monkeypatch.context() as planted:
        planted.setattr(*STEPS[step], _raising(fault))
        got = outcome(lambda: model.generate(**arguments))
        assert torch.equal(got.output, stock.output)
        assert len(got.said) == 1
        assert f"its arguments cannot be read ({type(fault).__name__})" in got.said[0]
        with padfix.override("strict"), pytest.raises(PadfixError) as caught:
            model.generate(**arguments)
        assert isinstance(caught.value, RightPaddingError) or caught.value.__cause__ is fault


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("forward", [1, 2, 4], ids=["prefill", "first decode", "later decode"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_fault_of_the_model_passes_through_and_is_forgotten(side: str, forward: int, kind: str) -> None:
    model, fault = build("llama"), FAULTS[kind]()
    arguments = PADDERS[side](ROWS) | GREEDY
    forwards = 0

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1
        if forwards == forward:
            raise fault

    with leaves_no_trace(model, arguments):
        hook = model.model.register_forward_pre_hook(count)
        assert_passes_through(lambda: model.generate(**arguments), fault)
        hook.remove()
    assert forwards == forward


@pytest.mark.parametrize("kind", [ValueError, TypeError, AttributeError])
def test_a_config_that_stock_refuses_to_resolve_is_stocks_error(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, fault = build("llama"), kind("no such config")
    arguments = right_padded(ROWS) | GREEDY
    with leaves_no_trace(model, arguments), monkeypatch.context() as planted:
        planted.setattr(GenerationMixin, "_prepare_generation_config", _raising(fault))
        with pytest.raises(kind) as caught:
            model.generate(**arguments)
    assert caught.value is fault


# A warning of ours that the user's filters make an error

WARNED: Mapping[str, tuple[dict[str, Any], str]] = {
    "refused": (right_padded(ROWS) | REFUSED, "position_ids="),
    "refused, left": (left_padded(ROWS) | {"penalty_alpha": 0.6, "max_time": 600.0}, "penalty_alpha="),
    "unreadable": ({**right_padded(ROWS), "attention_mask": right_padded(ROWS)["attention_mask"] * 2}, "other than"),
    "guessed": (
        {"input_ids": right_padded(ROWS, pad=EOS)["input_ids"], "pad_token_id": EOS},
        "start or end in more pad ids",
    ),
    "empty": (right_padded([*ROWS, []]), "no real token"),
    "cache": (right_padded(ROWS) | {"return_dict_in_generate": True}, "of this output is None"),
}


@pytest.mark.parametrize("kind", WARNED)
def test_a_warning_that_the_filters_make_an_error_is_forgotten_too(kind: str) -> None:
    model = build("llama")
    arguments, message = WARNED[kind]
    arguments = arguments | GREEDY
    strategy = "equal_length" if kind == "cache" else "auto"  # caches of rows apart cannot be joined
    with leaves_no_trace(model, arguments), warnings.catch_warnings(), padfix.override(strategy=strategy):
        warnings.simplefilter("error", PadfixWarning)
        with pytest.raises(PadfixWarning, match=message):
            model.generate(**arguments)


# Code of the caller's own


class Fails:
    """Raises at its `at`-th call, whatever it is called for."""

    def __init__(self, fault: BaseException, at: int) -> None:
        self.fault, self.left = fault, at

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.fault
        return torch.zeros(3, dtype=torch.bool) if kwargs.pop("stops", False) else args[-1]

    def put(self, value: Any) -> None:
        self(value)

    def end(self) -> None:
        self(None)


def _callback(name: str, failing: Fails) -> Any:
    if name == "logits_processor":
        return [failing]
    if name == "stopping_criteria":
        return [lambda ids, scores, **kwargs: failing(ids, scores, stops=True)]
    if name == "prefix_allowed_tokens_fn":
        return lambda row, ids: failing(list(range(99)))
    return failing


@pytest.mark.filterwarnings("ignore::padfix.PadfixWarning")
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", ["logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "streamer"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_fault_of_the_callers_own_code_passes_through_and_is_forgotten(side: str, name: str, kind: str) -> None:
    model, fault = build("llama"), FAULTS[kind]()
    arguments = PADDERS[side](ROWS) | GREEDY | {name: _callback(name, Fails(fault, at=2))}
    with leaves_no_trace(model, arguments):
        assert_passes_through(lambda: model.generate(**arguments), fault)


# Blocks that a fault leaves


@pytest.mark.parametrize("block", [padfix.suppressed, lambda: padfix.override("strict")], ids=["off", "strict"])
def test_a_fault_ends_the_block_that_it_leaves(block: Callable[[], Any]) -> None:
    model, fault = build("llama"), RuntimeError("left the block")
    arguments = left_padded(ROWS) | GREEDY

    def fails() -> None:
        hook = model.model.register_forward_pre_hook(_raising(fault))
        try:
            with block():
                model.generate(**arguments)
        finally:
            hook.remove()

    with leaves_no_trace(model, arguments):
        assert_passes_through(fails, fault)


@pytest.mark.parametrize("step", ["bind", "to_model", "generate", "to_caller"])
def test_a_fault_in_a_call_that_is_repaired_without_install_leaves_nothing_installed(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    padfix.uninstall()
    method = vars(GenerationMixin)["generate"]
    model, fault = build("llama"), RuntimeError("the device is gone")
    with monkeypatch.context() as planted:
        planted.setattr(*STEPS[step], _raising(fault))
        assert_passes_through(lambda: padfix.generate(model, **right_padded(ROWS), **GREEDY), fault)
    assert vars(GenerationMixin)["generate"] is method
    assert not padfix.is_installed()
