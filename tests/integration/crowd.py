"""Calls of many kinds by many threads on shared models, while padfix comes and goes.

    crowd = Crowd()
    crowd.run(threads=8, calls=5)

`run` fails, naming the job, where a result is not one that the same job gives by itself in one of the states that
padfix may be in: as a whole, logits, and what the caller's code was shown, included.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from chat import cache_name, cache_of
from facts import RELEASE
from oracle import GREEDY, ROWS, both_padded, build, embedded, holed, left_padded, right_padded
from torch import Tensor
from words import text, worded

import padfix
from padfix.generation.compat import CACHE_NAMES
from padfix.patch import installed

__all__ = ["JOBS", "MODES", "Crowd", "Job", "Result"]

# The states that padfix may be in: not installed, or installed in a mode.
MODES = (None, "fix", "warn", "strict")
DICTIONARY: dict[str, Any] = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
RAGGED = [
    [(7 * row + 3 * column) % 90 + 5 for column in range(length)] for row, length in enumerate((90, 5, 9, 7, 4, 6))
]

Generate = Callable[..., Any]


class Job(NamedTuple):
    """What a thread does: calls of one model's generate, in a block.

    Attributes:
        model: The name of the model.
        calls: What comes of the calls, made with the `generate` that it is given.
        block: The block that it stands in.
        single: Whether it is one call, which finds padfix in one state.
    """

    model: str
    calls: Callable[[Any, Generate], Any]
    block: Callable[[], AbstractContextManager[None]] = nullcontext
    single: bool = True


class Result(NamedTuple):
    """What came of a job: an output, or the type and text of an error."""

    output: Any = None
    error: tuple[type, str] | None = None


class Seeing:
    """A processor and a streamer of the caller's that keep what they are shown, and change the scores by it."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(ids.clone())
        return scores.index_fill(1, ids[:, 0] % 90, -1.0)

    def put(self, value: Tensor) -> None:
        self.seen.append(value.clone())

    def end(self) -> None: ...


def _call(batch: Callable[[Any], Mapping[str, Any]], **flags: Any) -> Callable[[Any, Generate], Any]:
    """One call of greedy decoding with flags."""
    return lambda model, generate: generate(**{**GREEDY, **batch(model), **flags})


def _of(padder: Callable[..., dict[str, Tensor]], rows: Any = ROWS, **how: Any) -> Callable[[Any], Mapping[str, Any]]:
    return lambda model: padder(rows, **how)


def _seen(name: str, batch: Callable[[Any], Mapping[str, Any]], **flags: Any) -> Callable[[Any, Generate], Any]:
    """A call with code of the caller's, and what that was shown."""

    def calls(model: Any, generate: Generate) -> Any:
        mine = Seeing()
        output = generate(**{**GREEDY, **batch(model), **flags, name: mine if name == "streamer" else [mine]})
        return output, mine.seen

    return calls


def _two_turns(model: Any, generate: Generate) -> Any:
    """A chat's first turn, and its second from the cache of the first."""
    first = right_padded(ROWS)
    turn = generate(**first, **GREEDY, **DICTIONARY)
    new = right_padded([[7, 8], [9], [10, 11, 12]])
    mask = torch.cat((first["attention_mask"], torch.ones_like(turn.sequences[:, 7:]), new["attention_mask"]), 1)
    ids = torch.cat((turn.sequences, new["input_ids"]), 1)
    second = generate(input_ids=ids, attention_mask=mask, **{cache_name(): cache_of(turn)}, **GREEDY, **DICTIONARY)
    return turn.sequences, turn.logits, second.sequences, second.logits


def _within(model: Any, generate: Generate) -> Any:
    """A call, and one that the caller's code makes from within it, of another batch."""
    inner: list[Any] = []

    def ask(ids: Tensor, scores: Tensor) -> Tensor:
        if not inner:
            inner.append(generate(**right_padded([row[::-1] for row in ROWS]), **GREEDY, no_repeat_ngram_size=2))
        return scores

    output = generate(**right_padded(ROWS), **GREEDY, repetition_penalty=2.0, logits_processor=[ask])
    return output, inner


def _fails(*args: Any) -> Any:
    raise RuntimeError("the caller's own code")


def _of_encoder(model: Any) -> dict[str, Any]:
    return right_padded(ROWS) | {
        "decoder_input_ids": torch.tensor([[1, 5, 6], [1, 7, 0], [1, 0, 0]]),
        "decoder_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]),
    }


def _changed(mode: str | None = None, **settings: str) -> Callable[[], AbstractContextManager[None]]:
    return lambda: padfix.override(mode, **settings)


ONE = right_padded([[5, 17, 33, 17, 33, 8, 17]], extra=3)
# The word is one that transformers tokenizes.
STOPS = {
    "stop_strings": [f" {text(44)} {text(98)}", f"{text(9)} {text(51)}"],
    "tokenizer": worded(named={97: "abcdef"}),
}

JOBS: dict[str, Job] = {
    "right": Job("llama", _call(_of(right_padded), **DICTIONARY)),
    "left": Job("llama", _call(_of(left_padded), **DICTIONARY)),
    "left, another pad": Job("llama", _call(_of(left_padded, pad=90), no_repeat_ngram_size=1, **DICTIONARY)),
    "holes": Job("llama", _call(_of(holed, extra=3), max_length=16, max_new_tokens=None, **DICTIONARY)),
    "unpadded": Job("llama", _call(_of(right_padded, [ROWS[0], ROWS[0][::-1]]), no_repeat_ngram_size=2, **DICTIONARY)),
    "beams": Job("llama", _call(_of(both_padded), num_beams=3, num_return_sequences=2)),
    "unpadded beams": Job("llama", _call(_of(right_padded, ROWS[:1]), num_beams=3)),
    "embeddings": Job("llama", lambda model, generate: generate(**embedded(model, right_padded(ROWS)), **GREEDY)),
    "history": Job("llama", _call(_of(right_padded), no_repeat_ngram_size=2, encoder_repetition_penalty=3.0)),
    "min_length": Job("llama", _call(_of(right_padded), min_length=11, eos_token_id=[2, 17, 24, 61], **DICTIONARY)),
    "repetition": Job("llama", _call(_of(right_padded), repetition_penalty=3.0, **DICTIONARY)),
    "stop strings": Job("llama", _call(_of(right_padded), **STOPS)),
    "processor": Job("llama", _seen("logits_processor", _of(right_padded), **DICTIONARY)),
    "processor, another batch": Job("llama", _seen("logits_processor", _of(both_padded, ROWS[::-1]))),
    "streamer": Job("llama", _seen("streamer", lambda model: ONE)),
    "assisted": Job("llama", lambda model, generate: generate(**ONE, **GREEDY, assistant_model=_model("draft"))),
    "lookup": Job("llama", _call(lambda model: ONE, prompt_lookup_num_tokens=2, repetition_penalty=1.5)),
    "fails": Job("llama", _call(_of(right_padded), logits_processor=[_fails])),
    "two turns": Job("llama", _two_turns, single=False),
    "a call within": Job("llama", _within, single=False),
    "packed": Job("llama", _call(_of(right_padded, RAGGED), **DICTIONARY), _changed(strategy="packed_prefill")),
    "rows apart": Job("blenderbot", _call(_of(right_padded), **DICTIONARY)),
    "rows apart, processors": Job("blenderbot", _call(_of(left_padded), no_repeat_ngram_size=2)),
    "forced apart": Job("llama", _call(_of(right_padded), **DICTIONARY), _changed(strategy="equal_length")),
    "positions by table": Job("gpt2", _call(_of(right_padded), **DICTIONARY)),
    "encoder-decoder": Job("bart", _call(_of_encoder, **DICTIONARY)),
    "encoder's ids": Job("bart", _call(_of(right_padded), encoder_no_repeat_ngram_size=1, **DICTIONARY)),
    "suppressed": Job("llama", _call(_of(right_padded), **DICTIONARY), padfix.suppressed),
    "strict": Job("llama", _call(_of(right_padded)), _changed("strict")),
    "strict, left": Job("llama", _call(_of(left_padded), no_repeat_ngram_size=1, **DICTIONARY), _changed("strict")),
    "warn": Job("llama", _call(_of(right_padded), repetition_penalty=2.0), _changed("warn")),
    "stock decoding": Job("llama", _call(_of(right_padded), repetition_penalty=3.0), _changed(decoding="stock")),
}

if RELEASE < (4, 51):  # nothing packs there, and transformers cannot read the tokenizer's words
    del JOBS["packed"], JOBS["stop strings"]

_MODELS: dict[str, Any] = {}


def _model(name: str) -> Any:
    """The model of this name that all threads share."""
    if name not in _MODELS:
        _MODELS[name] = build("llama", num_hidden_layers=1) if name == "draft" else build(name)
    return _MODELS[name]


def _run(job: Job, generate: Generate | None = None) -> Result:
    """What comes of a job, by `model.generate` where no other is given."""
    model = _model(job.model)
    with job.block():
        try:
            # By its name at each call, as callers do: a method that is held is another matter.
            return Result(job.calls(model, generate or (lambda **arguments: model.generate(**arguments))))
        except Exception as error:
            return Result(error=(type(error), str(error)))


def _by_padfix(job: Job) -> Result:
    model = _model(job.model)
    return _run(job, lambda **arguments: padfix.generate(model, **arguments))


def is_same(one: Result, other: Result) -> bool:
    """Whether two results are the same, bit for bit."""
    return one.error == other.error and _spelled(one.output) == _spelled(other.output)


def _spelled(value: Any) -> Any:
    """An output as nested tuples that can be compared; of a cache its class alone."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, Mapping):
        return type(value), tuple(
            (name, type(one) if name in CACHE_NAMES else _spelled(one)) for name, one in value.items()
        )
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_spelled, value))
    return value


@contextmanager
def _quiet_and_switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.setswitchinterval(interval)


class Crowd:
    """The jobs, and what each of them gives by itself in each state of padfix.

    Attributes:
        alone: The result of a job, by state; not installed is None.
        direct: The result of a job by `padfix.generate`, which is the same in every state.
        made: How many jobs were done by threads.
        changes: How often padfix was installed, taken out or set another way meanwhile.
    """

    def __init__(self, modes: Sequence[str | None] = MODES) -> None:
        self.modes = modes
        self.alone: dict[str, dict[str | None, Result]] = {name: {} for name in JOBS}
        self.made = self.changes = 0
        with _quiet_and_switching_often():
            for mode in modes:
                with nullcontext() if mode is None else installed(mode):
                    for name, job in JOBS.items():
                        self.alone[name][mode] = _run(job)
            self.direct = {name: _by_padfix(job) for name, job in JOBS.items()}

    def run(self, *, threads: int, calls: int | None = None, seconds: float = 0.0, changing: bool = False) -> None:
        """Has threads do jobs, each so many or for so long, with padfix installed; or, `changing`, coming and going."""
        names, faults, ended = list(JOBS), list[str](), threading.Event()
        start = threading.Barrier(threads)
        made = [0] * threads
        until = time.monotonic() + seconds

        def work(number: int) -> None:
            chosen = random.Random(number)
            start.wait()
            while not faults and (made[number] < calls if calls is not None else time.monotonic() < until):
                name = names[(made[number] + 5 * number) % len(names)]
                try:
                    self._check(name, changing=changing, direct=chosen.random() < 0.3)
                except BaseException as error:
                    faults.append(f"thread {number}, its call {made[number]}, {name}: {error!r}")
                made[number] += 1

        crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        changers = [threading.Thread(target=self._change, args=(number, ended)) for number in range(2 * changing)]
        with _quiet_and_switching_often(), installed("fix"):
            for one in (*crew, *changers):
                one.start()
            for one in crew:
                one.join()
            ended.set()
            for one in changers:
                one.join()
        self.made += sum(made)
        assert not faults, faults[0]

    def _check(self, name: str, *, changing: bool, direct: bool) -> None:
        """Does a job, and fails unless it gave what it gives alone in a state that padfix may have been in."""
        job = JOBS[name]
        direct = direct or (changing and not job.single)
        got = _by_padfix(job) if direct else _run(job)
        if direct:
            wanted = [self.direct[name]]
        else:
            wanted = list(self.alone[name].values()) if changing else [self.alone[name]["fix"]]
        assert any(is_same(got, one) for one in wanted), f"another result than alone: {got}"

    def _change(self, number: int, ended: threading.Event) -> None:
        """Installs padfix, takes it out, and stands in blocks, until the others have ended."""
        chosen = random.Random(number)
        while not ended.is_set():
            step = chosen.choice(("install", "uninstall", "installed", "override", "suppressed"))
            mode = chosen.choice([one for one in self.modes if one is not None])
            if step == "install":
                padfix.install(mode)
            elif step == "uninstall":
                padfix.uninstall()
            else:
                blocks: dict[str, Callable[[str], AbstractContextManager[None]]] = {
                    "installed": installed,
                    "override": padfix.override,
                    "suppressed": lambda _: padfix.suppressed(),
                }
                with blocks[step](mode):
                    time.sleep(chosen.random() / 200)
            self.changes += 1
            time.sleep(chosen.random() / 200)
