"""Caches of every kind, prompts read in chunks, compiled forwards: rows get what their prompts get alone that way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from chat import Chat, cache_name
from facts import RELEASE
from oracle import PADDERS, Reply, alone, build, compare, left_padded, right_padded, together
from transformers import DynamicCache
from transformers.generation import configuration_utils

import padfix

ROWS = [[5, 17, 33, 8], [11, 42], [7, 9, 23, 61, 14]]
GEMMA = ["gemma3"] if hasattr(transformers, "Gemma3ForCausalLM") else []
MODELS = ["llama", "gpt2", "mistral", *GEMMA]
# Offloaded ones want a device to come back from, quantised ones another package; in 4.51 Llama has the chunked one
# for a prompt alone, and no batch with a mask.
NOT_HERE = {"mamba", "quantized", *(("hybrid_chunked",) if RELEASE < (4, 57) else ())}
KINDS = [
    kind
    for kind in dict.fromkeys(configuration_utils.ALL_CACHE_IMPLEMENTATIONS)
    if "offloaded" not in kind and kind not in NOT_HERE
]
WAYS: Mapping[str, Mapping[str, Any]] = {
    **{kind: {"cache_implementation": kind} for kind in KINDS},
    "no cache": {"use_cache": False},
    "chunks of 2": {"prefill_chunk_size": 2},
    "one chunk": {"prefill_chunk_size": 64},
}

pytestmark = [
    pytest.mark.usefixtures("installed"),
    pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning"),
]


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers compiles of itself runs as it is: compiling it takes minutes."""
    monkeypatch.setattr(torch, "compile", lambda function=None, **_: function)


def by_themselves(model: Any, **arguments: Any) -> list[Reply]:
    """The replies to the prompts alone; skips where this release cannot even do that."""
    try:
        return alone(model, ROWS, distinct=False, **arguments)
    except (AttributeError, RuntimeError, TypeError, UserWarning, ValueError) as error:
        if RELEASE >= (5, 24):
            raise
        pytest.skip(f"transformers, for a prompt alone: {type(error).__name__}")


@pytest.mark.parametrize("side", ["right", "left", "both"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("uncompiled")
def test_rows_get_what_their_prompts_get_alone(name: str, way: str, side: str) -> None:
    model = build(name)
    expected = by_themselves(model, **WAYS[way])
    compare(together(model, PADDERS[side](ROWS, extra=1), **WAYS[way]), expected)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.usefixtures("uncompiled")
def test_chunks_into_a_cache_of_the_callers(name: str, side: str) -> None:
    """The way in 5.0, which wants one for it."""
    model = build(name)

    def caches() -> Any:
        return {cache_name(): DynamicCache()}

    try:
        expected = alone(model, ROWS, each=lambda _: caches(), distinct=False, prefill_chunk_size=2)
    except ValueError as error:
        pytest.skip(f"transformers, for a prompt alone: {error}")
    compare(together(model, PADDERS[side](ROWS) | caches(), prefill_chunk_size=2), expected)


COMPILED: Mapping[str, Callable[[Any], Any]] = {
    "forward": lambda model: setattr(model, "forward", torch.compile(model.forward, backend="eager")),
    "model": lambda model: model.compile(backend="eager"),
}


def compiled(what: str) -> Any:
    """A compiled Llama; skips where transformers itself cannot compile what a left-padded batch runs."""
    torch.compiler.reset()
    model = build("llama")
    COMPILED[what](model)
    try:
        with padfix.suppressed():
            model.generate(**left_padded(ROWS), max_new_tokens=2, do_sample=False)
    except RuntimeError as error:  # 4.57 with a torch that is newer
        if RELEASE >= (5, 24):
            raise
        pytest.skip(f"transformers, for a left-padded batch: {type(error).__name__}")
    return model


@pytest.mark.parametrize(("what", "side"), [("forward", "right"), ("model", "left")])  # each takes many seconds
def test_compiled_models(what: str, side: str) -> None:
    """The prompt keeps its width: each other one would be a new graph."""
    expected = alone(build("llama"), ROWS)
    model = compiled(what)
    widths: list[int] = []
    model.model.register_forward_pre_hook(lambda _, args, named: widths.append(_width(args, named)), with_kwargs=True)
    batch = PADDERS[side](ROWS, extra=2)
    compare(together(model, batch), expected)
    assert what == "model" or widths[0] == batch["input_ids"].shape[1]


def _width(args: tuple[Any, ...], named: Mapping[str, Any]) -> int:
    ids = args[0] if args else named["input_ids"]
    return int(ids.shape[1])


def test_chats_of_a_compiled_forward() -> None:
    chat = Chat(compiled("forward"))
    for texts in (ROWS, [[21, 22], [31, 32, 34], [44]]):
        chat.turn(texts, right_padded)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.usefixtures("uncompiled")
def test_static_cache_that_a_model_keeps_from_call_to_call(side: str) -> None:
    """The second batch is filled into the tensors of the first."""
    model, others = build("llama"), [[71, 72], [81, 82, 83, 84, 85], [91]]
    static: dict[str, Any] = {"cache_implementation": "static"}
    expected = [by_themselves(build("llama"), **static), alone(build("llama"), others, distinct=False, **static)]
    for rows, replies in zip((ROWS, others), expected, strict=True):
        compare(together(model, PADDERS[side](rows), **static), replies)


@pytest.mark.skipif(RELEASE < (5, 0), reason="older releases know no such cache")
def test_paged_attention_is_refused_by_name() -> None:
    words = r'padded\. padfix cannot make this call right: cache_implementation="paged" \(it feeds pads as tokens\)'
    with padfix.override("strict"), pytest.raises(padfix.UnsupportedCallError, match=words):
        build("llama").generate(**left_padded(ROWS), cache_implementation="paged", max_new_tokens=2)
