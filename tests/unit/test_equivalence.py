"""The instrument: differences between two replies, verdicts, the report and its pictures, whole verifications."""

from __future__ import annotations

import copy
import io
import json
import math
import sys
import warnings
from collections.abc import Mapping
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
from padfix.equivalence.verify import verify
from padfix.errors import LoadingError, PromptError
from padfix.loading import embedded

PROMPTS = [text(*row) for row in ROWS]
EQUAL = Difference(first=None, steps=(1e-5, 2e-5), scale=10.0, margin=None)
PARTED = Difference(first=1, steps=(0.01, 0.3), scale=10.0, margin=0.1)


def reply(*tokens: int, logits: list[list[float]] | None = None, scores: list[list[float]] | None = None) -> Reply:
    """A reply whose logits are given, and its scores where they differ from them."""
    given = torch.tensor(logits if logits is not None else [[0.0, 1.0, 5.0]] * len(tokens))
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
    one = reply(1, 2, 3, logits=[[1.0, 5.0], [1.0, 5.0], [9.0, 0.0]])
    other = reply(1, 7, 3, logits=[[1.5, 5.0], [1.0, 7.0], [0.0, 9.0]])
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
    alone = reply(1, 2, logits=[[0.0, 4.0], [-8.0, -6.5]], scores=[[0.0, 4.0], [-2.0, -1.75]])
    found = difference(reply(1, 3, logits=[[0.0, 90.0], [0.0, 90.0]]), alone)
    assert (found.margin, found.scale) == (0.25, 8.0)


def test_margin_is_infinite_where_one_token_is_allowed() -> None:
    alone = reply(1, logits=[[0.0, 4.0]], scores=[[-math.inf, 4.0]])
    assert difference(reply(2, logits=[[0.0, 4.0]], scores=[[4.0, -math.inf]]), alone).margin == math.inf


@pytest.mark.parametrize(("share", "none"), [(0.9e-4, True), (1.1e-4, False)])
def test_logits_count_as_equal_within_a_share_of_their_scale(share: float, none: bool) -> None:
    one, other = reply(1, logits=[[0.0, 100.0]]), reply(1, logits=[[100 * share, 100.0]])
    assert difference(one, other).is_none is none


def test_beams_are_compared_by_their_scores() -> None:
    one, other = Reply((1, 2), beam_score=-3.0), Reply((1, 2), beam_score=-3.5)
    assert difference(one, other) == Difference(None, (0.5,), 3.5, None)
    assert difference(one, replace(one, tokens=(1, 3))).first == 1


# The verdict


def test_equal_needs_no_reason() -> None:
    assert judged(EQUAL, None, None) == ("equal", "")


@pytest.mark.parametrize(
    ("apart", "allowed", "wider", "verdict", "reason"),
    [
        (PARTED, 0.5, EQUAL, "rounding", "another token at step 1, logits off by 0.3, gone in a wider dtype"),
        (PARTED, 0.29, EQUAL, "padding fault", "where arithmetic accounts for 0.29"),
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
    assert all("a copy in a wider dtype does not run (KeyError" in row.reason for row in report.faults)


def test_model_that_padfix_refuses_is_noted_and_faulty() -> None:
    report = verify(build("rwkv"), worded(), PROMPTS, max_new_tokens=6)
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
    screen.print(table(made(EQUAL, PARTED)))
    lines = [line.split() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["0", "3", "equal", "2e-05", "prompt", "0"] in lines
    assert ["1", "4", "padding", "fault", "token", "1", "0.3", "0.1", "prompt", "1"] in lines


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
