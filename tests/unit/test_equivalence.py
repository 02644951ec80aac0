"""The instrument: differences between two replies, verdicts, the report and its pictures, whole verifications."""

from __future__ import annotations

import copy
import io
import json
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import EOS, ROWS, build
from rich.console import Console
from words import text, worded

import padfix
from padfix.equivalence import trial
from padfix.equivalence.compare import Difference, Reply, difference
from padfix.equivalence.plot import check_plot, plot
from padfix.equivalence.report import EquivalenceReport, RowReport, judged
from padfix.equivalence.table import table
from padfix.equivalence.trial import PADFIX, STOCK, WAYS
from padfix.equivalence.verify import compared, verify
from padfix.errors import LoadingError, PromptError
from padfix.loading import embedded

PROMPTS = [text(*row) for row in ROWS]
EQUAL = Difference(first=None, steps=(1e-5, 2e-5), scale=10.0, margin=None)
PARTED = Difference(first=1, steps=(0.01, 0.3), scale=10.0, margin=0.1)


def reply(*tokens: int, logits: list[list[float]] | None = None, scores: list[list[float]] | None = None) -> Reply:
    """A reply whose logits are given, and its scores where they differ from them."""
    given = torch.tensor(logits if logits is not None else [[0.0, 1.0, 5.0, 0.0, 0.0, 0.0, 0.0, -2.0]] * len(tokens))
    return Reply(tokens, given, given if scores is None else torch.tensor(scores))


@pytest.fixture(scope="module")
def llama() -> tuple[Any, Any]:
    return build("llama"), worded()


@pytest.fixture(scope="module")
def demo() -> tuple[Any, Any]:
    return embedded()


WORDS = ["reverse: a =", "reverse: fix =", "reverse: hello =", "reverse: transforms ="]


# Two replies


def test_equal_replies_have_no_difference() -> None:
    found = difference(reply(1, 2), alone=reply(1, 2))
    assert found == Difference(None, (0.0, 0.0), 5.0, None)
    assert found.is_none


@pytest.mark.parametrize(
    ("tokens", "alone", "first", "steps"),
    [((7, 1), (1, 2), 0, 1), ((1, 7), (1, 2), 1, 2), ((1, 2, 3), (1, 2), 2, 2), ((1,), (1, 2), 1, 1), ((), (1,), 0, 0)],
)
def test_first_divergent_token_ends_the_comparison(
    tokens: tuple[int, ...], alone: tuple[int, ...], first: int, steps: int
) -> None:
    found = difference(reply(*tokens), reply(*alone))
    assert (found.first, len(found.steps)) == (first, steps)
    assert not found.is_none


def test_steps_after_the_divergent_token_are_not_compared() -> None:
    one = reply(1, 0, 1, logits=[[1.0, 5.0], [1.0, 5.0], [9.0, 0.0]])
    other = reply(1, 1, 1, logits=[[1.5, 5.0], [1.0, 7.0], [0.0, 9.0]])
    assert difference(one, other).steps == (0.5, 2.0)


def test_difference_is_the_larger_of_logits_and_scores() -> None:
    one = reply(1, logits=[[1.0, 5.0]], scores=[[1.0, 5.0]])
    assert difference(one, reply(1, logits=[[1.25, 5.0]], scores=[[1.0, 5.0]])).steps == (0.25,)
    assert difference(one, reply(1, logits=[[1.0, 5.0]], scores=[[1.0, 4.5]])).steps == (0.5,)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (-math.inf, -math.inf, 0.0),
        (-math.inf, 2.0, math.inf),
        (math.nan, 2.0, math.inf),
        (2.0, math.nan, math.inf),
        (math.nan, math.nan, 0.0),
        (math.inf, -math.inf, math.inf),
    ],
)
def test_infinities_and_nan_differ_from_numbers(one: float, other: float, apart: float) -> None:
    found = difference(reply(1, logits=[[0.0, one]]), reply(1, logits=[[0.0, other]]))
    assert found.steps == (apart,)
    assert found.is_none is (apart == 0.0)


def test_margin_and_scale_are_those_alone() -> None:
    alone = reply(1, 1, logits=[[0.0, 4.0, 0.0], [-8.0, -6.5, 0.0]], scores=[[0.0, 4.0, 0.0], [-2.0, -1.75, -1.8]])
    found = difference(reply(1, 0, logits=[[0.0, 90.0, 0.0], [0.0, 90.0, 0.0]]), alone)
    assert (found.margin, found.scale) == (0.25, 8.0)  # to the token that was chosen, not to the second best


def test_margin_is_infinite_where_a_token_is_ruled_out_or_a_reply_has_ended() -> None:
    alone = reply(1, logits=[[0.0, 4.0]], scores=[[-math.inf, 4.0]])
    assert difference(reply(0, logits=[[0.0, 4.0]], scores=[[4.0, -math.inf]]), alone).margin == math.inf
    longer = difference(reply(1, 2), alone=reply(1))
    assert (longer.first, longer.margin, longer.is_tie) == (1, math.inf, False)
    assert not difference(reply(1), alone=reply(1, 2)).is_tie


def test_token_that_the_model_rules_out_is_no_measure() -> None:
    least = torch.finfo(torch.float32).min
    alone = reply(1, logits=[[least, 4.0, 0.0]])
    found = difference(reply(1, logits=[[least / 2, 4.0, 1.0]]), alone)
    assert (found.steps, found.scale) == ((1.0,), 4.0)
    assert difference(reply(1, logits=[[0.0, 4.0, 0.0]]), alone).largest > 1e30


def test_other_tokens_of_beams_are_no_tie() -> None:
    found = difference(Reply((1, 3), beam_score=-3.0), Reply((1, 2), beam_score=-3.0))
    assert (found.first, found.largest, found.margin, found.is_tie) == (1, 0.0, None, False)


@pytest.mark.parametrize(("share", "none"), [(0.9e-4, True), (1.1e-4, False)])
def test_logits_count_as_equal_within_a_share_of_their_scale(share: float, none: bool) -> None:
    one, other = reply(1, logits=[[0.0, 100.0]]), reply(1, logits=[[100 * share, 100.0]])
    assert difference(one, other).is_none is none


def test_beams_are_compared_by_their_scores() -> None:
    one, other = Reply((1, 2), beam_score=-3.0), Reply((1, 2), beam_score=-3.5)
    assert difference(one, other) == Difference(None, (0.5,), 3.5, None)
    assert difference(one, replace(one, tokens=(1, 3))).first == 1
    small = Reply((1, 2), beam_score=-0.1)  # a score near 0 is held against 1
    assert difference(replace(small, beam_score=-0.10005), small).is_none
    assert difference(replace(small, beam_score=math.nan), small).largest == math.inf


def test_tokens_without_logits_are_apart() -> None:
    found = difference(reply(1, 2, logits=[[0.0, 4.0]]), reply(1, 2, logits=[[0.0, 4.0], [0.0, 4.0]]))
    assert found.largest == math.inf


# The verdict


def test_equal_needs_no_reason() -> None:
    assert judged(EQUAL, None, None) == ("equal", "")


@pytest.mark.parametrize(
    ("apart", "allowed", "wider", "verdict", "reason"),
    [
        (PARTED, 0.5, EQUAL, "rounding", "another token at step 1, logits off by 0.3, gone in a wider dtype"),
        (PARTED, 0.29, EQUAL, "padding fault", "where rounding accounts for 0.29"),
        (replace(PARTED, margin=0.6), 0.5, EQUAL, "padding fault", "but by a margin of 0.6"),
        (PARTED, 0.5, PARTED, "padding fault", "and still off by 0.3 in a wider dtype"),
        (PARTED, 0.5, None, "padding fault", "not run in a wider dtype"),
        (PARTED, 0.5, "there is no room", "padding fault", "there is no room"),
        (PARTED, None, None, "padding fault", "logits off by 0.3"),
        (replace(PARTED, first=None, margin=None), 0.5, EQUAL, "rounding", "logits off by 0.3, gone in a wider dtype"),
    ],
)
def test_rounding_needs_noise_margin_and_a_wider_dtype(
    apart: Difference, allowed: float | None, wider: Difference | str | None, verdict: str, reason: str
) -> None:
    seen = judged(apart, allowed, wider)
    assert seen[0] == verdict
    assert seen[1].endswith(reason)


def test_tie_in_the_wider_dtype_is_rounding_and_a_decided_token_is_not() -> None:
    tie = Difference(first=1, steps=(0.0, 1e-5), scale=10.0, margin=1e-6)
    assert judged(PARTED, 0.5, tie)[0] == "rounding"
    assert judged(PARTED, 0.5, replace(tie, margin=0.01))[0] == "padding fault"


# Whole verifications


def test_right_padded_batch_through_padfix_is_equal(llama: tuple[Any, Any]) -> None:
    report = verify(*llama, PROMPTS, max_new_tokens=6)
    assert [row.verdict for row in report.rows] == ["equal"] * 3
    assert (report.ok, report.faults, report.noise, report.notes) == (True, (), None, ())
    assert [row.length for row in report.rows] == [7, 3, 5]
    assert (report.side, report.width, report.way) == ("right", 7, PADFIX)
    assert all(len(row.difference.steps) == 6 for row in report.rows)
    assert len({row.batch for row in report.rows}) == 3


def test_right_padded_batch_in_stock_has_faults(llama: tuple[Any, Any]) -> None:
    report = verify(*llama, PROMPTS, max_new_tokens=6, stock=True)
    assert [row.verdict for row in report.rows] == ["equal", "padding fault", "padding fault"]
    assert not report.ok
    assert report.way == STOCK
    assert report.noise is not None
    assert report.noise < 1e-3 < min(row.difference.largest for row in report.faults)


def test_what_the_environment_and_install_say_does_not_matter(
    llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    padfix.install("fix")
    assert not verify(*llama, PROMPTS, max_new_tokens=4, stock=True).ok
    padfix.install("strict", strategy="auto", decoding="stock")
    assert verify(*llama, PROMPTS, max_new_tokens=4, min_length=6).ok
    with padfix.suppressed():
        assert verify(*llama, PROMPTS, max_new_tokens=4).ok
    with padfix.override(decoding="stock"):
        assert verify(*llama, PROMPTS, max_new_tokens=4, min_length=6).ok


@pytest.mark.parametrize("prompts", [PROMPTS[:1], [PROMPTS[1], text(9, 8, 7)]], ids=["one prompt", "one length"])
def test_prompts_of_one_length_get_pads(llama: tuple[Any, Any], prompts: list[str]) -> None:
    stock = verify(*llama, prompts, max_new_tokens=4, stock=True)
    assert stock.width > stock.rows[0].length
    assert len(stock.faults) == len(prompts)
    assert verify(*llama, prompts, max_new_tokens=4).ok


def test_report_of_flags_and_of_beams(llama: tuple[Any, Any]) -> None:
    flags: dict[str, Any] = {"no_repeat_ngram_size": 2, "min_length": 9, "repetition_penalty": 1.3}
    assert verify(*llama, PROMPTS, max_new_tokens=6, **flags).ok
    report = verify(*llama, PROMPTS, max_new_tokens=6, num_beams=3, num_return_sequences=2)
    assert report.ok
    assert [(row.prompt, row.sequence) for row in report.rows] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert not verify(*llama, PROMPTS, max_new_tokens=6, num_beams=3, stock=True).ok


def shifted(model: Any, arguments: Mapping[str, Any]) -> Any:
    """The repaired call with a mask that hides the first token of every padded row."""
    mask = arguments["attention_mask"].clone()
    mask[mask.sum(1) < mask.shape[1], 0] = 0
    return trial._through_padfix(model, {**arguments, "attention_mask": mask})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_planted_fault_is_no_rounding(demo: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    model, tokenizer = copy.deepcopy(demo[0]).to(dtype), demo[1]
    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: shifted})
    report = verify(model, tokenizer, WORDS, max_new_tokens=12)
    assert len(report.faults) == 3


def test_planted_fault_that_changes_no_token_is_found(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def slightly_off(model: Any, arguments: Mapping[str, Any]) -> Any:
        output = trial._through_padfix(model, arguments)
        output.logits[1][2, 5] += 0.01
        return output

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: slightly_off})
    report = verify(*llama, PROMPTS, max_new_tokens=6)
    assert [row.prompt for row in report.faults] == [2]
    assert report.faults[0].difference.first is None
    assert report.faults[0].batch == report.faults[0].alone


def test_half_precision_is_rounding(demo: tuple[Any, Any]) -> None:
    model, tokenizer = copy.deepcopy(demo[0]).bfloat16(), demo[1]
    report = verify(model, tokenizer, WORDS, max_new_tokens=12)
    assert report.ok
    assert "rounding" in {row.verdict for row in report.rows}
    assert report.noise is not None
    assert report.noise > 0
    assert "(bfloat16, cpu)" in report.subject
    assert model.dtype == torch.bfloat16  # the copy was widened, not the caller's model
    stock = verify(model, tokenizer, WORDS, max_new_tokens=12, stock=True)
    assert len(stock.faults) == 3


def test_fault_that_is_as_small_as_the_noise_stays_in_a_wider_dtype(
    demo: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slightly_off(model: Any, arguments: Mapping[str, Any]) -> Any:
        output = trial._through_padfix(model, arguments)
        output.logits[0][0, 5] += 0.05
        return output

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: slightly_off})
    report = verify(copy.deepcopy(demo[0]).bfloat16(), demo[1], WORDS, max_new_tokens=12)
    assert [row.prompt for row in report.faults] == [0]
    assert "in a wider dtype" in report.faults[0].reason


def test_rounding_that_cannot_be_run_in_a_wider_dtype_counts_as_a_fault(
    demo: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.deepcopy(demo[0]).bfloat16()
    monkeypatch.setattr(trial, "WIDER", {})
    report = verify(model, demo[1], WORDS, max_new_tokens=12)
    assert not report.ok
    assert all("no copy in a wider dtype (KeyError" in row.reason for row in report.faults)


def test_model_that_padfix_refuses_is_noted_and_faulty() -> None:
    model = build("rwkv")
    assert verify(model, worded(), PROMPTS, max_new_tokens=6).ok
    model.register_forward_hook(lambda *_: None)  # rows cannot run apart
    report = verify(model, worded(), PROMPTS, max_new_tokens=6)
    assert not report.ok
    assert len(report.notes) == 1
    assert "RwkvForCausalLM" in report.notes[0]
    assert report.notes[0] in str(report)


def test_other_warnings_reach_the_caller(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def warning(model: Any, arguments: Mapping[str, Any]) -> Any:
        warnings.warn("from elsewhere", FutureWarning, stacklevel=1)
        return trial._through_padfix(model, arguments)

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: warning})
    with pytest.warns(FutureWarning, match="from elsewhere"):
        assert verify(*llama, PROMPTS, max_new_tokens=4).notes == ()


def test_progress_is_told_of_every_call(llama: tuple[Any, Any]) -> None:
    told: list[tuple[int, int, str]] = []
    verify(*llama, PROMPTS, max_new_tokens=4, stock=True, progress=lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(len(told)))
    assert all(done < planned for done, planned, _ in told)
    assert told[0] == (0, 4, "prompt 0 alone")
    assert told[3][2] == "the padded batch"


def test_nothing_of_the_callers_is_changed(llama: tuple[Any, Any]) -> None:
    model, tokenizer = llama
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config, special = model.generation_config.to_dict(), (tokenizer.padding_side, tokenizer.pad_token)
    verify(model, tokenizer, PROMPTS, max_new_tokens=4, stock=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (model.generation_config.to_dict(), (tokenizer.padding_side, tokenizer.pad_token)) == (config, special)
    assert not padfix.is_installed()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"do_sample": True}, "random draws differ"),
        ({"max_length": 20}, "max_length: verify sets"),
        ({"attention_mask": None}, "attention_mask: verify sets"),
        ({"negative_prompt_ids": torch.ones(1, 2)}, "negative_prompt_ids: verify sets"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0. Pass a whole number"),
        ({"max_new_tokens": True}, "max_new_tokens is True"),
    ],
)
def test_calls_that_cannot_be_compared(llama: tuple[Any, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify(*llama, PROMPTS, **arguments)


def test_models_that_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match=r"Call model\.eval\(\)"):
        verify(build("llama").train(), worded(), PROMPTS)
    with pytest.raises(ValueError, match="BartForConditionalGeneration has an encoder"):
        verify(build("bart"), worded(), PROMPTS)
    with pytest.raises(PromptError, match="There are no prompts"):
        verify(build("llama"), worded(), [])


@pytest.mark.parametrize("ends", [EOS, [EOS, 5]])
def test_replies_end_where_the_call_says(llama: tuple[Any, Any], ends: Any) -> None:
    free = verify(*llama, PROMPTS, max_new_tokens=6, eos_token_id=98)
    assert free.ok
    assert verify(*llama, PROMPTS, max_new_tokens=6, eos_token_id=ends).ok
    second = worded()(free.rows[0].alone, add_special_tokens=False)["input_ids"][1]
    ended = verify(*llama, PROMPTS, max_new_tokens=6, eos_token_id=[98, second])
    assert ended.ok
    assert len(ended.rows[0].difference.steps) == 2


class Recorder:
    """A way to run a batch that keeps the arguments of each call; `then` may change what it gives."""

    def __init__(self, way: str, then: Callable[[Any, Any], None] | None = None) -> None:
        self.run = WAYS[way]
        self.then = then
        self.calls: list[Mapping[str, Any]] = []

    def __call__(self, model: Any, arguments: Mapping[str, Any]) -> Any:
        self.calls.append(arguments)
        output = self.run(model, arguments)
        if self.then is not None:
            self.then(model, output)
        return output


def test_noise_is_measured_by_copies_of_three_prompts(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Recorder(STOCK)
    monkeypatch.setattr(trial, "WAYS", {**WAYS, STOCK: stock})
    prompts = [text(9, 8), *PROMPTS, text(70, 71, 72, 73)]  # 2, 7, 3, 5, 4 tokens
    verify(*llama, prompts, max_new_tokens=2, stock=True)
    seen = [tuple(one["input_ids"].shape) for one in stock.calls if one["attention_mask"].all()]
    for length in (2, 3, 7):  # the first two that are not equal, and the longest
        assert {(2, length), (5, length)} <= set(seen)


def test_rounding_of_the_dtype_is_noise(demo: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.Trial, "noise", lambda *_: 0.0)  # as copies make, where each row is computed by itself
    model = copy.deepcopy(demo[0]).bfloat16()
    for new_tokens in (1, 2, 3, 12):
        report = verify(model, demo[1], WORDS, max_new_tokens=new_tokens)
        assert report.ok, report
        assert report.noise


def cut_short(model: Any, output: Any) -> None:
    output.sequences = output.sequences[:, :-1]


def rows_swapped(model: Any, output: Any) -> None:
    output.sequences = output.sequences[[0, 2, 1]]


def replies_swapped(model: Any, output: Any) -> None:
    output.sequences[:, 7:] = output.sequences[[0, 2, 1], 7:]


def prompt_changed(model: Any, output: Any) -> None:
    output.sequences[1, 5] += 1


@pytest.mark.parametrize("fault", [cut_short, rows_swapped, replies_swapped, prompt_changed])
@pytest.mark.parametrize("beams", [1, 2])
def test_fault_in_the_sequences_alone_is_found(
    llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, fault: Any, beams: int
) -> None:
    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: Recorder(PADFIX, fault)})
    report = verify(*llama, PROMPTS, max_new_tokens=6, num_beams=beams)
    assert len(report.faults) == {cut_short: 3, prompt_changed: 1}.get(fault, 2)


def test_wrong_token_behind_a_tie_is_found(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(llama[0])
    first = verify(model, llama[1], PROMPTS, max_new_tokens=1).rows[1].batch
    best = llama[1](first, add_special_tokens=False)["input_ids"][0]
    twin = best - 1
    model.lm_head.weight.data[twin] = model.lm_head.weight.data[best]  # the two best tokens tie

    def behind(model: Any, output: Any) -> None:
        output.sequences[1, 7] = output.logits[0][1].topk(3).indices[2]

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: Recorder(PADFIX, behind)})
    assert [row.prompt for row in verify(model, llama[1], PROMPTS, max_new_tokens=1).faults] == [1]

    def twins(model: Any, output: Any) -> None:
        output.sequences[1, 7] = best if output.sequences[1, 7] == twin else twin

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: Recorder(PADFIX, twins)})
    row = verify(model, llama[1], PROMPTS, max_new_tokens=1).rows[1]
    assert (row.verdict, row.reason.endswith("and the two tokens tie")) == ("rounding", True)


def test_reply_that_a_string_ends_is_filled_up_with_pads(demo: tuple[Any, Any]) -> None:
    report = verify(*demo, WORDS, max_new_tokens=12, stop_strings=["f", "ol"])
    assert report.ok, report
    assert [row.alone for row in report.rows] == ["a", "xif", "ol", "smrof"]


def test_copy_that_is_no_wider_says_so(demo: tuple[Any, Any]) -> None:
    model = copy.deepcopy(demo[0]).bfloat16()
    model.__dict__["generate"] = demo_generate = copy.deepcopy(model).generate  # whatever is copied, this one runs
    report = verify(model, demo[1], WORDS, max_new_tokens=12)
    assert demo_generate is not None
    assert {row.verdict for row in report.rows if row.reason} <= {"padding fault"}
    assert all("bit for bit" in row.reason for row in report.faults)


def test_logits_that_are_nan_are_noted(llama: tuple[Any, Any]) -> None:
    model = copy.deepcopy(llama[0])
    model.lm_head.weight.data[3] = math.nan
    assert "Some logits are NaN" in verify(model, llama[1], PROMPTS, max_new_tokens=2).notes[0]


def test_prompt_that_runs_out_of_positions_is_named() -> None:
    model = build("gpt2", n_positions=8)
    with pytest.raises(
        PromptError, match="The longest prompt has 7 tokens: with 6 new ones it does not fit into the 8"
    ):
        verify(model, worded(), PROMPTS, max_new_tokens=6)
    assert verify(model, worded(), PROMPTS, max_new_tokens=1).ok


def test_model_and_tokenizer_in_the_other_order_are_named(llama: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match="in this order"):
        verify(llama[1], llama[0], PROMPTS)


def test_failure_of_the_copies_is_not_passed_over(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def without_copies(model: Any, arguments: Mapping[str, Any]) -> Any:
        ids = arguments["input_ids"]
        if len(ids) > 1 and bool((ids == ids[0]).all()):
            raise ValueError("no copies")
        return WAYS[STOCK](model, arguments)

    monkeypatch.setattr(trial, "WAYS", {**WAYS, STOCK: without_copies})
    with pytest.raises(ValueError, match="no copies"):
        verify(*llama, PROMPTS, max_new_tokens=2, stock=True)


def test_fault_that_only_half_precision_has_is_found(demo: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(model: Any, output: Any) -> None:
        if model.dtype == torch.bfloat16:
            output.logits[0][1, 5] += 1.0

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: Recorder(PADFIX, overflow)})
    report = verify(copy.deepcopy(demo[0]).bfloat16(), demo[1], WORDS, max_new_tokens=3)
    assert report.rows[1].verdict == "padding fault"
    assert "where rounding accounts for" in report.rows[1].reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_difference_within_the_noise_that_a_wider_dtype_lacks_is_rounding(
    llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    def off_here(model: Any, output: Any) -> None:
        if model.dtype == dtype:
            output.logits[1][2, 5] += 0.125

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: Recorder(PADFIX, off_here)})
    monkeypatch.setattr(trial.Trial, "noise", lambda *_: 0.125)
    told: list[tuple[int, int, str]] = []
    model = copy.deepcopy(llama[0]).to(dtype)
    report = verify(model, llama[1], PROMPTS, max_new_tokens=3, progress=lambda *step: told.append(step))
    assert all(done < planned for done, planned, _ in told)
    assert report.rows[2].verdict == "rounding"
    assert report.rows[2].reason.endswith("gone in a wider dtype")


def test_replies_are_told_apart(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def last_token_wrong(model: Any, output: Any) -> None:
        output.sequences[1, -1] = 50

    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: Recorder(PADFIX, last_token_wrong)})
    (faulty,) = verify(*llama, PROMPTS, max_new_tokens=3).faults
    assert (faulty.prompt, faulty.difference.first) == (1, 2)
    assert faulty.batch.split()[-1] == "w50" != faulty.alone.split()[-1]


@pytest.mark.parametrize("side", ["left", "right"])
def test_pads_are_those_asked_for(llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, side: Any) -> None:
    run = Recorder(PADFIX)
    monkeypatch.setattr(trial, "WAYS", {**WAYS, PADFIX: run})
    arguments = {"max_new_tokens": 2, "pad_token_id": 98}
    report = compared(*llama, PROMPTS, way=PADFIX, side=side, arguments=arguments)
    assert (report.ok, report.side) == (True, side)
    (call,) = run.calls
    pads = [98] * 4
    assert call["input_ids"][1].tolist() == ([*pads, *ROWS[1]] if side == "left" else [*ROWS[1], *pads])
    assert call["pad_token_id"] == 98


def test_model_that_samples_by_default_is_compared_greedily(llama: tuple[Any, Any]) -> None:
    model = copy.deepcopy(llama[0])
    model.generation_config.do_sample = True
    model.generation_config.temperature = 9.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the library's, of a temperature without sampling
        assert verify(model, llama[1], PROMPTS, max_new_tokens=4).ok


def test_replies_end_where_the_generation_config_of_the_call_says(llama: tuple[Any, Any]) -> None:
    model, tokenizer = llama
    free = verify(model, tokenizer, PROMPTS, max_new_tokens=6).rows[0]
    second = tokenizer(free.alone, add_special_tokens=False)["input_ids"][1]
    config = copy.deepcopy(model.generation_config)
    config.eos_token_id = second
    ended = verify(model, tokenizer, PROMPTS, max_new_tokens=6, generation_config=config)
    assert ended.ok
    assert len(ended.rows[0].difference.steps) == 2


@pytest.mark.parametrize("name", ["inputs", "inputs_embeds", "output_logits", "output_scores", "streamer"])
def test_arguments_that_verify_sets_are_refused(llama: tuple[Any, Any], name: str) -> None:
    arguments: dict[str, Any] = {name: None}
    with pytest.raises(ValueError, match=f"^{name}: verify sets"):
        verify(*llama, PROMPTS, **arguments)


# The report and its pictures


def made(*differences: Difference) -> EquivalenceReport:
    """A report with a row for each difference, judged without any noise."""
    rows = tuple(
        RowReport(number, 0, 3 + number, f"prompt\n{number}", one, *judged(one, None, None), "yes", "no")
        for number, one in enumerate(differences)
    )
    versions = {"padfix": "0"}
    return EquivalenceReport(rows, "Llama (float32, cpu)", PADFIX, "right", 9, 8, None, ("a note",), versions)


def test_report_as_text() -> None:
    assert str(made(EQUAL, PARTED)).splitlines() == [
        "Llama (float32, cpu), prompts of 3 to 4 tokens padded on the right to 9 columns, through padfix: "
        "1 equal, 0 rounding, 1 padding fault.",
        "row 1 (4 tokens): padding fault: another token at step 1, logits off by 0.3",
        "  alone: 'yes'",
        "  batch: 'no'",
        "a note",
    ]
    assert str(made(EQUAL)).startswith("Llama (float32, cpu), prompts of 3 tokens padded")
    assert ": 0 equal, 0 rounding, 2 padding faults." in str(made(PARTED, PARTED))


def test_report_as_json() -> None:
    report = made(EQUAL, replace(PARTED, steps=(0.0, math.inf)))
    read = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert read["ok"] is False
    assert read["counts"] == {"equal": 1, "rounding": 0, "padding fault": 1}
    assert read["rows"][1]["difference"] == {"first": 1, "steps": [0.0, "inf"], "scale": 10.0, "margin": 0.1}
    assert read["rows"][0]["text"] == "prompt\n0"


def test_table_has_a_line_for_each_row() -> None:
    screen = Console(file=io.StringIO(), width=80)
    screen.print(table(made(EQUAL, PARTED), width=80))
    lines = [line.split() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["0", "3", "equal", "2e-05", "prompt", "0"] in lines
    assert ["1", "4", "padding", "fault", "token", "1", "0.3", "0.1", "prompt", "1"] in lines


def test_second_sequence_of_a_prompt_is_named() -> None:
    report = made(PARTED)
    report = replace(report, rows=(report.rows[0], replace(report.rows[0], sequence=1)))
    screen = Console(file=io.StringIO(), width=80)
    screen.print(table(report, width=80))
    assert "\n0.1" in screen.file.getvalue().replace("\n  0.1", "\n0.1")  # type: ignore[attr-defined]
    assert "row 0, sequence 1 (3 tokens)" in str(report)


@pytest.mark.parametrize("width", [200, 80, 66])
def test_table_cuts_nothing_but_the_prompts(width: int) -> None:
    report = made(replace(PARTED, steps=(1.2e-7, 3.4e-5)), PARTED)
    long = replace(report, rows=tuple(replace(row, text="a long prompt " * 20) for row in report.rows))
    screen = Console(file=io.StringIO(), width=width)
    screen.print(table(long, width=width))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in lines)
    assert all("padding fault" in line and "token 1" in line for line in lines[2:])
    assert "3.4e-05" in lines[2]
    assert lines[0].split() == ["row", "tokens", "verdict", "parts", "at", "logits", "off", "margin", "prompt"]


@pytest.mark.parametrize("name", ["differences.png", "differences.svg"])
def test_plot_is_written(tmp_path: Path, name: str) -> None:
    plot(made(EQUAL, PARTED, replace(PARTED, steps=(math.inf,), first=0), replace(EQUAL, steps=())), tmp_path / name)
    assert (tmp_path / name).stat().st_size > 2000


@pytest.mark.parametrize(
    ("name", "message"), [("a.docx", "names no format"), ("none/a.png", "there is no folder"), ("a", "names no format")]
)
def test_plot_that_cannot_be_written_is_said_beforehand(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(LoadingError, match=message):
        check_plot(tmp_path / name)


def test_plot_without_matplotlib_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(LoadingError, match=r'pip install "padfix\[plot\]"'):
        check_plot(tmp_path / "a.png")


def test_file_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(LoadingError, match="cannot be written"):
        plot(made(EQUAL), tmp_path / "a.png")
