"""Others who change a model or the library: compiled models, pickles, modules that are imported anew."""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from oracle import GREEDY, ROWS, build, right_padded
from stock import expected
from transformers.generation import utils

import padfix
from padfix.patch import PATCH_POINTS

BATCH = right_padded(ROWS)
MIXIN: Any = utils.GenerationMixin
STOCK = {point.name: vars(MIXIN)[point.name] for point in PATCH_POINTS}


@pytest.fixture(autouse=True)
def library_again() -> Iterator[None]:
    """The library's class with its own methods in its own module, before and after each test."""
    assert _in_place(MIXIN) == STOCK
    yield
    padfix.uninstall()
    assert _in_place(MIXIN) == STOCK


def _in_place(owner: Any) -> dict[str, Any]:
    return {name: vars(owner)[name] for name in STOCK}


def _replies(model: Any, generate: Callable[..., Any] | None = None) -> list[list[int]]:
    new: list[list[int]] = (generate or model.generate)(**BATCH, **GREEDY)[:, 7:].tolist()
    return new


def _right() -> list[list[int]]:
    return [one.tokens for one in expected("llama")]


# Models


def _compiled(model: Any) -> Any:
    return torch.compile(model, backend="eager")


def _with_compiled_forward(model: Any) -> Any:
    model.forward = torch.compile(model.forward, backend="eager")
    return model


def _compiled_in_place(model: Any) -> Any:
    model.compile(backend="eager")
    return model


def _with_partial(model: Any) -> Any:
    model.generate = functools.partial(model.generate, use_cache=True)
    return model


CHANGES: dict[str, Callable[[Any], Any]] = {
    "torch.compile(model)": _compiled,
    "a compiled forward": _with_compiled_forward,
    "model.compile()": _compiled_in_place,
    "a partial on the instance": _with_partial,
    "a copy": copy.deepcopy,
    "a pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.fixture
def recompiled_often() -> Iterator[None]:
    """Has a forward compiled anew for every shape, rather than given up on after some."""
    with torch._dynamo.config.patch(recompile_limit=64):
        yield
    torch.compiler.reset()


# Compiling a forward anew for each shape takes long.
SLOW = ("a compiled forward", "model.compile()")


@pytest.mark.parametrize(
    "change", [pytest.param(one, marks=pytest.mark.soak if one in SLOW else ()) for one in CHANGES]
)
@pytest.mark.parametrize("before", [False, True], ids=["before install", "after install"])
@pytest.mark.usefixtures("recompiled_often")
def test_a_changed_model_is_repaired_and_by_one_call_too(change: str, before: bool) -> None:
    if before:
        padfix.install("fix")
    model = CHANGES[change](build("llama"))
    padfix.install("fix")
    if change != "a partial on the instance" or before:  # it holds the method that it found
        assert _replies(model) == _right()
        assert padfix.stats().calls == 1
    direct = functools.partial(padfix.generate, model)
    assert _replies(model, direct) == _right()
    padfix.uninstall()
    assert _replies(model) != _right()
    assert _replies(model, direct) == _right()


def test_a_saved_model_and_its_pickle_know_nothing_of_padfix(tmp_path: Path) -> None:
    padfix.install("fix")
    model = build("llama")
    assert _replies(model) == _right()
    model.save_pretrained(tmp_path)
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    assert _replies(transformers.AutoModelForCausalLM.from_pretrained(tmp_path)) == _right()
    assert not [file for file in tmp_path.iterdir() if b"padfix" in file.read_bytes()]


@pytest.mark.soak
def test_a_pickle_is_loaded_where_padfix_is_not_there(tmp_path: Path) -> None:
    padfix.install("fix")
    file = tmp_path / "model.pickle"
    file.write_bytes(pickle.dumps(build("llama")))
    program = (
        "import pickle, sys; sys.modules['padfix'] = None\n"
        f"print(type(pickle.load(open({str(file)!r}, 'rb'))).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "LlamaForCausalLM\n", done.stderr


# Calls that are made from within others


def _asking(model: Any, got: list[list[list[int]]]) -> Callable[..., Any]:
    def ask(ids: Any, scores: Any) -> Any:
        if not got:
            got.append(_replies(model))
        return scores

    return ask


@pytest.mark.parametrize("other", [False, True], ids=["the same model", "another model"])
def test_a_call_within_padfix_generate_is_one_of_its_own(other: bool) -> None:
    padfix.install("fix")
    got: list[list[list[int]]] = []
    model = build("llama")
    padfix.generate(model, **BATCH, **GREEDY, logits_processor=[_asking(build("llama") if other else model, got)])
    assert got == [_right()]
    assert padfix.stats().repaired == 2


def test_a_call_within_an_assisted_one_is_one_of_its_own() -> None:
    padfix.install("fix")
    got: list[list[list[int]]] = []
    model, assistant = build("llama"), build("llama", num_hidden_layers=1)
    one = right_padded(ROWS[:1], extra=3)
    output = model.generate(**one, **GREEDY, assistant_model=assistant, logits_processor=[_asking(model, got)])
    assert output[0, 10:].tolist() == _right()[0]
    assert got == [_right()]
    assert padfix.stats().calls == 2  # the assistant's are part of the first


# Modules that are imported anew: what other tests have imported before would be another by then.


@pytest.fixture
def reloaded_utils() -> Iterator[Callable[[], Any]]:
    """Imports the library's module anew and gives the class that it has since; afterwards it is as it was."""
    before = dict(vars(utils))
    yield lambda: importlib.reload(utils).GenerationMixin
    vars(utils).clear()
    vars(utils).update(before)


@pytest.mark.fresh
@pytest.mark.parametrize("first", ["install", "reload"])
def test_models_are_repaired_after_the_library_was_reloaded(reloaded_utils: Callable[[], Any], first: str) -> None:
    model = build("llama")
    if first == "install":
        padfix.install("fix")
    newer = reloaded_utils()
    assert newer is not MIXIN
    stock = _in_place(newer)
    for _ in range(2):
        padfix.install("fix")
        assert _replies(model) == _right()
        assert all(_in_place(newer)[name] is not stock[name] for name in stock)
        padfix.uninstall()
        assert _in_place(newer) == stock
        assert _in_place(MIXIN) == STOCK
        assert _replies(model) != _right()


@pytest.mark.fresh
@pytest.mark.parametrize("module", ["padfix.patch", "padfix.record", "padfix.layers", "padfix.settings", "padfix"])
def test_a_reload_of_padfix_patches_nothing_twice(module: str) -> None:
    model = build("llama")
    padfix.install("fix")
    ours = _in_place(MIXIN)
    for name in (module, "padfix.patch"):  # the second finds what the first has left
        reloaded = importlib.reload(sys.modules[name])
    assert padfix.is_installed()
    reloaded.install("fix")
    assert _in_place(MIXIN) == ours
    padfix.stats(reset=True)
    assert _replies(model) == _right()
    assert padfix.stats().calls == 1
    reloaded.uninstall()
    assert not padfix.is_installed()


@pytest.mark.fresh
def test_a_padfix_that_is_imported_anew_takes_the_place_of_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama")
    padfix.install("strict")
    for name in [one for one in sys.modules if one.partition(".")[0] == "padfix"]:
        monkeypatch.delitem(sys.modules, name)
    newer = importlib.import_module("padfix")
    assert newer is not padfix
    newer.install("fix")
    assert _replies(model) == _right()
    assert (newer.stats().calls, padfix.stats().calls) == (1, 0)
    newer.uninstall()
    assert _in_place(MIXIN) == STOCK
    assert _replies(model) != _right()
