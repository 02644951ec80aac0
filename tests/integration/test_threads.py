"""Threads share a model and get their own results, whatever batches and settings the others have."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pytest
import torch
from facts import RECORDS_PER_THREAD
from oracle import EOS, GREEDY, ROWS, both_padded, build, embedded, holed, left_padded, right_padded
from stock import REFUSED, Outcome, assert_same, expected, suppressed_outcome
from transformers import TextIteratorStreamer

import padfix
from padfix import PadfixWarning, RightPaddingError, patch

pytestmark = pytest.mark.usefixtures("installed")

THREADS = 8
EQUAL = [ROWS[0], ROWS[0][::-1]]


def strict() -> AbstractContextManager[None]:
    return padfix.override("strict")


class Job(NamedTuple):
    """A call, and the block that it stands in."""

    arguments: Callable[[Any], dict[str, Any]]
    block: Callable[[], AbstractContextManager[None]] = nullcontext


def _fails(*args: Any) -> Any:
    raise RuntimeError("the caller's own code")


JOBS: dict[str, Job] = {
    "right": Job(lambda model: right_padded(ROWS)),
    "left": Job(lambda model: left_padded(ROWS)),
    "left, another pad": Job(lambda model: left_padded(ROWS, pad=104)),
    "holes": Job(lambda model: holed(ROWS, extra=3) | {"max_length": 14, "max_new_tokens": None}),
    "both, beams": Job(lambda model: both_padded(ROWS) | {"num_beams": 3, "num_return_sequences": 2}),
    "unpadded": Job(lambda model: right_padded(EQUAL) | {"no_repeat_ngram_size": 2}),
    "embeddings": Job(lambda model: embedded(model, right_padded(ROWS))),
    "no mask, pad is EOS": Job(lambda model: {"input_ids": right_padded(ROWS, pad=EOS)["input_ids"]}),
    "dictionary": Job(lambda model: right_padded(ROWS) | {"return_dict_in_generate": True, "output_logits": True}),
    "refused": Job(lambda model: right_padded(ROWS) | REFUSED),
    "hidden states": Job(
        lambda model: right_padded(ROWS) | {"return_dict_in_generate": True, "output_hidden_states": True}
    ),
    "left, history": Job(lambda model: left_padded(ROWS) | {"encoder_repetition_penalty": 3.0}),
    "an empty row": Job(lambda model: right_padded([*ROWS, []])),
    "fails": Job(lambda model: right_padded(ROWS) | {"logits_processor": [_fails]}),
    "suppressed": Job(lambda model: right_padded(ROWS), padfix.suppressed),
    "strict, right": Job(lambda model: right_padded(ROWS), strict),
    "strict, left": Job(lambda model: left_padded(EQUAL, extra=2) | {"encoder_repetition_penalty": 3.0}, strict),
    "warn": Job(lambda model: right_padded(ROWS), lambda: padfix.override("warn")),
    "stock decoding": Job(
        lambda model: right_padded(ROWS) | {"encoder_repetition_penalty": 3.0},
        lambda: padfix.override(decoding="stock"),
    ),
}
if not RECORDS_PER_THREAD:
    del JOBS["hidden states"]


def _run(model: Any, job: Job) -> Outcome:
    """What comes of a job; warnings are left to whoever watches."""
    arguments = {**GREEDY, **job.arguments(model)}
    if "attention_mask" not in arguments:
        arguments["pad_token_id"] = EOS
    with job.block():
        try:
            return Outcome(output=model.generate(**arguments))
        except Exception as error:
            return Outcome(error=error)


@pytest.fixture
def watched() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of all threads, none of them an error."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen
    sys.setswitchinterval(interval)


def test_threads_with_mixed_batches_get_what_each_call_gets_by_itself(watched: list[warnings.WarningMessage]) -> None:
    model = build("llama")
    single = {name: _run(model, job) for name, job in JOBS.items()}
    said = sum(one.category is PadfixWarning for one in watched)
    start = threading.Barrier(THREADS)
    names, results = list(JOBS), [dict[str, Outcome]() for _ in range(THREADS)]

    def work(number: int) -> None:
        start.wait()
        for step in range(len(names)):
            name = names[(step + 5 * number) % len(names)]
            results[number][name] = _run(model, JOBS[name])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number, result in enumerate(results):
        for name, wanted in single.items():
            assert result[name].raised == wanted.raised, f"thread {number}: {name}"
            assert_same(result[name].output, wanted.output)
    warned = sum(one.category is PadfixWarning for one in watched) - said
    assert warned == (said - 1) * THREADS  # all but that of the mode `warn`: that is said once a call site


def test_the_jobs_of_the_threads_differ(watched: list[warnings.WarningMessage]) -> None:
    model = build("llama")
    by_name = {name: _run(model, job) for name, job in JOBS.items()}
    assert not torch.equal(by_name["right"].output, by_name["suppressed"].output)
    assert torch.equal(by_name["warn"].output, by_name["suppressed"].output)
    assert torch.equal(by_name["dictionary"].output.sequences, by_name["right"].output)
    assert isinstance(by_name["strict, right"].error, RightPaddingError)
    assert str(by_name["fails"].error) == "the caller's own code"
    assert sum(one.error is not None for one in by_name.values()) == 2


def test_a_block_is_for_its_thread_alone() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    inside, done = threading.Event(), threading.Event()
    outputs: list[Any] = []

    def stays() -> None:
        with padfix.suppressed():
            inside.set()
            done.wait()
            outputs.append(model.generate(**batch, **GREEDY))

    thread = threading.Thread(target=stays)
    thread.start()
    inside.wait()
    repaired = model.generate(**batch, **GREEDY)
    done.set()
    thread.join()
    stock = suppressed_outcome(lambda: model.generate(**batch, **GREEDY)).output
    assert torch.equal(outputs[0], stock)
    assert not torch.equal(repaired, stock)


def test_a_thread_that_is_started_in_a_block_does_not_inherit_it() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    outputs: list[Any] = []
    with padfix.suppressed():
        thread = threading.Thread(target=lambda: outputs.append(model.generate(**batch, **GREEDY)))
        thread.start()
        thread.join()
    assert torch.equal(outputs[0], model.generate(**batch, **GREEDY))


class Numbers:
    """A tokenizer that decodes ids as numbers."""

    def decode(self, ids: Any, **kwargs: Any) -> str:
        return "".join(f"{one} " for one in ids)


@pytest.mark.parametrize("mode", ["off", "fix", "warn", "strict"])
@pytest.mark.parametrize("padded", [False, True], ids=["unpadded", "left-padded"])
def test_text_is_streamed_from_a_thread(padded: bool, mode: str) -> None:
    padfix.install(mode)
    model = build("llama")
    tokenizer: Any = Numbers()
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
    batch = left_padded(ROWS[:1], extra=3) if padded else right_padded(ROWS[:1])
    thread = threading.Thread(target=model.generate, kwargs=batch | GREEDY | {"streamer": streamer})
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert text.split() == [str(token) for token in expected("llama")[0].tokens]


def test_install_and_uninstall_while_threads_generate_leave_every_result_stocks_or_right() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    stock = suppressed_outcome(lambda: model.generate(**batch, **GREEDY)).output
    right = model.generate(**batch, **GREEDY)
    outputs: list[Any] = []
    threads = [
        threading.Thread(target=lambda: outputs.extend(model.generate(**batch, **GREEDY) for _ in range(4)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        padfix.uninstall()
        padfix.install("fix")
    for thread in threads:
        thread.join()
    assert len(outputs) == 16
    assert all(torch.equal(one, stock) or torch.equal(one, right) for one in outputs)
    assert torch.equal(model.generate(**batch, **GREEDY), right)


def test_a_block_of_one_task_does_not_reach_another_and_reaches_the_threads_of_its_own() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    stock = suppressed_outcome(lambda: model.generate(**batch, **GREEDY)).output
    right = model.generate(**batch, **GREEDY)
    entered, ended = asyncio.Event(), asyncio.Event()

    async def in_thread() -> Any:
        return await asyncio.to_thread(lambda: model.generate(**batch, **GREEDY))

    async def suppressing() -> list[Any]:
        with padfix.suppressed():
            entered.set()
            here = [model.generate(**batch, **GREEDY), await in_thread()]
            here.append(await asyncio.create_task(in_thread()))  # one that is made in the block starts in it
            await ended.wait()
            return [*here, await in_thread()]

    async def other() -> list[Any]:
        await entered.wait()
        outputs = [model.generate(**batch, **GREEDY), *await asyncio.gather(*(in_thread() for _ in range(3)))]
        ended.set()
        return outputs

    async def both() -> tuple[list[Any], list[Any]]:
        return await asyncio.gather(suppressing(), other())

    inside, outside = asyncio.run(both())
    assert all(torch.equal(one, stock) for one in inside)
    assert all(torch.equal(one, right) for one in outside)
    assert not torch.equal(stock, right)


def test_blocks_in_which_padfix_is_installed_overlap_in_threads() -> None:
    """The one that was entered last counts; after the last of them padfix is as it was before the first."""
    padfix.uninstall()
    first, second, third = (patch.installed(mode) for mode in ("warn", "strict", "fix"))

    def mode() -> str | None:
        settings = patch.state().settings
        return None if settings is None else settings.mode

    first.__enter__()
    second.__enter__()
    third.__enter__()
    seen = [mode()]
    for block in (second, third, first):
        block.__exit__(None, None, None)
        seen.append(mode())
    assert seen == ["fix", "fix", "warn", None]
    with patch.installed("fix"):
        fourth, fifth = patch.installed("warn"), patch.installed("strict")
        fourth.__enter__()
        fifth.__enter__()
        fourth.__exit__(None, None, None)
        assert mode() == "strict"
        fifth.__exit__(None, None, None)
        assert mode() == "fix"
    assert mode() is None
