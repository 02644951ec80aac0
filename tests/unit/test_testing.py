"""The guard and `installed`: what is recorded and refused, and that afterwards everything is as before."""

from __future__ import annotations

import copy
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import EOS, GREEDY, PAD, ROWS, build, left_padded, right_padded
from transformers import GenerationMixin
from words import text, worded

import padfix
from padfix import MissingPadTokenError, RightPaddingError, SettingsError, patch, settings, testing
from padfix.errors import PadfixError
from padfix.notices import watched_by, watchers
from padfix.patch import installed
from padfix.settings import Settings
from padfix.testing import Finding, Guard, assert_batch_matches_single, guarded

HERE = Path(__file__)
ALONE = {"input_ids": torch.tensor([ROWS[0]]), "attention_mask": torch.ones(1, len(ROWS[0]), dtype=torch.long)}
EQUAL = {"input_ids": torch.tensor([ROWS[0], ROWS[0][::-1]]), "attention_mask": torch.ones(2, 7, dtype=torch.long)}


@pytest.fixture
def model() -> Any:
    return build("llama")


@pytest.fixture
def padless() -> Any:
    model = build("llama")
    model.generation_config.pad_token_id = None
    return model


@pytest.fixture
def off_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an import under PADFIX=off."""
    for module in (settings, patch):
        monkeypatch.setattr(module, "ENVIRONMENT", Settings())
    monkeypatch.setattr(settings, "NAMED_IN_ENVIRONMENT", frozenset({"mode"}))


def swallowing(model: Any, batch: Any, **arguments: Any) -> int:
    """Generates, swallows what padfix raises, and gives the line of the call."""
    with suppress(PadfixError):
        model.generate(**batch, **GREEDY, **arguments)
    return sys._getframe().f_lineno - 1


def state() -> tuple[object, Settings | None]:
    return vars(GenerationMixin)["generate"], patch._record.settings


def nothing() -> None:
    pass


def install_anew() -> None:
    padfix.uninstall()
    padfix.install("warn")


# What a block may do to what is installed.
MEDDLING: list[Callable[[], None]] = [
    nothing,
    padfix.uninstall,
    lambda: padfix.install("fix", decoding="stock"),
    install_anew,
]


# installed


@pytest.mark.parametrize("mode", ["off", "fix", "warn", "strict"])
def test_mode_holds_for_every_thread(mode: str, model: Any) -> None:
    stock, _ = state()
    seen: list[tuple[object, Settings | None]] = []
    with installed(mode):
        thread = threading.Thread(target=lambda: seen.append(state()))
        thread.start()
        thread.join()
    ((method, within),) = seen
    assert method is not stock
    assert within == Settings(mode=mode)


@pytest.mark.parametrize("meddle", MEDDLING)
@pytest.mark.parametrize("raises", [False, True])
def test_block_leaves_nothing_where_nothing_was_installed(meddle: Callable[[], None], raises: bool) -> None:
    before = state()
    with pytest.raises(KeyError) if raises else nullcontext(), installed("strict"):
        meddle()
        if raises:
            raise KeyError
    assert state() == before
    assert not padfix.is_installed()


@pytest.mark.parametrize("meddle", MEDDLING)
def test_block_leaves_the_settings_that_were_installed(meddle: Callable[[], None]) -> None:
    padfix.install("warn", strategy="left_pad", decoding="stock")
    _, before = state()
    with installed("strict"):
        assert state()[1] == Settings("strict", "left_pad", "stock")
        meddle()
    assert state()[1] == before == Settings("warn", "left_pad", "stock")
    assert patch._record.layers.are_in_place(patch.PATCH_POINTS)


def test_blocks_nest(model: Any) -> None:
    with installed("fix"):
        with installed("strict"), pytest.raises(RightPaddingError):
            model.generate(**right_padded(ROWS), **GREEDY)
        model.generate(**right_padded(ROWS), **GREEDY)


@pytest.mark.parametrize("enter", [installed, guarded])
def test_mode_that_is_none_changes_nothing(enter: Callable[[str], AbstractContextManager[object]]) -> None:
    padfix.install("warn")
    before = state()
    with pytest.raises(SettingsError, match=r"mode='stric' is not a value .* Use one of: off, fix, warn, strict"):
        enter("stric").__enter__()
    assert state() == before
    assert watchers() == ()


@pytest.mark.usefixtures("off_in_environment")
def test_off_in_the_environment_wins() -> None:
    before = state()
    with installed("strict"):
        assert state() == before
    assert state() == before


def run(code: str, **variables: str) -> str:
    """What a fresh Python prints that runs this code."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PADFIX", "PYTHON", "COV_"))}
    path = str(Path(padfix.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env={**clean, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_block_within_a_wait_for_transformers_leaves_the_environments_settings_in_place() -> None:
    code = """
        import sys
        import padfix.testing
        from padfix import patch
        print([name for name in ("torch", "transformers", "_pytest") if name in sys.modules], patch._record.waiting)
        with patch.installed("strict"):
            print(patch._record.settings.mode)
        print(patch._record.settings.mode, patch._record.layers.are_in_place(patch.PATCH_POINTS))
    """
    assert run(code, PADFIX="warn").splitlines() == ["[] True", "strict", "warn True"]


# What is recorded


@pytest.mark.parametrize("batch", [right_padded(ROWS), left_padded(ROWS), ALONE])
@pytest.mark.parametrize("mode", ["off", "fix", "warn", "strict"])
@pytest.mark.filterwarnings("ignore::padfix.PadfixWarning")
def test_errors_alone_are_findings(mode: str, batch: Any, model: Any) -> None:
    with guarded(mode, HERE.parent) as guard:
        line = swallowing(model, batch)
    misplaced = "Rows 1, 2 of input_ids (shape (3, 7)) have pads after real tokens: generation would continue from a "
    message = f'{misplaced}pad. Pad on the left (tokenizer.padding_side = "left"), or use the mode "fix" (PADFIX=fix).'
    red = mode == "strict" and batch["attention_mask"][1:, -1].tolist() == [0, 0]
    assert guard.findings == ((Finding(HERE.name, line, message),) if red else ())
    assert [str(one) for one in guard.findings] == [f"{HERE.name}:{line}: {message}"] * red
    assert watchers() == ()


@pytest.mark.parametrize("root", [HERE.parents[1], HERE.parent / "elsewhere", None])
def test_files_are_named_from_the_root_where_they_are_beneath_it(
    root: Path | None, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE.parents[2])
    with guarded("strict", root) as guard:
        swallowing(model, right_padded(ROWS))
    names = {HERE.parents[1]: "unit/test_testing.py", None: "tests/unit/test_testing.py"}
    assert [one.file for one in guard.findings] == [names.get(root, str(HERE))]


def test_errors_of_other_threads_are_recorded(model: Any) -> None:
    with guarded("strict") as guard:
        threads = [threading.Thread(target=swallowing, args=(model, right_padded(ROWS))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [Path(one.file).name for one in guard.findings] == [HERE.name] * 4


def test_each_finding_is_told_once(model: Any) -> None:
    with guarded("strict") as guard:
        assert guard.untold() == ()
        swallowing(model, right_padded(ROWS))
        assert guard.untold() == guard.findings
        assert guard.untold() == ()
        swallowing(model, right_padded(ROWS))
        assert guard.untold() == guard.findings[1:]


def test_suppressed_and_overridden_calls_are_no_findings(model: Any, padless: Any) -> None:
    with guarded("strict") as guard:
        for block in (padfix.suppressed(), padfix.override("fix")):
            with block:
                model.generate(**right_padded(ROWS), **GREEDY)
                padless.generate(**EQUAL, **GREEDY)
    assert guard.findings == ()


# What is expected


def test_expected_errors_are_no_findings(model: Any, padless: Any) -> None:
    with guarded("strict") as guard:
        with guard.expected() as came:
            swallowing(model, right_padded(ROWS))
            swallowing(padless, EQUAL)
        assert len(came) == 2
        assert guard.findings == ()
        swallowing(model, right_padded(ROWS))
        assert len(guard.findings) == 1


def test_block_without_an_expected_error_fails(model: Any) -> None:
    message = r"^padfix raised no error in this block; it is in the mode 'fix'\.$"
    with guarded("fix") as guard, pytest.raises(AssertionError, match=message), guard.expected():
        model.generate(**right_padded(ROWS), **GREEDY)


def test_expected_error_goes_on_to_the_caller_and_is_no_finding(model: Any) -> None:
    with guarded("strict") as guard:
        with pytest.raises(RightPaddingError), guard.expected():
            model.generate(**right_padded(ROWS), **GREEDY)
        with pytest.raises(KeyError), guard.expected():
            raise KeyError
        assert guard.findings == ()
        swallowing(model, right_padded(ROWS))
        assert len(guard.findings) == 1


def test_inner_block_gets_what_it_expects(model: Any) -> None:
    with guarded("strict") as guard, guard.expected() as outer:
        with guard.expected() as inner:
            swallowing(model, right_padded(ROWS))
        swallowing(model, right_padded(ROWS))
        assert (len(outer), len(inner)) == (1, 1)


# A batch without a pad token


def test_batch_without_a_pad_token_is_refused_in_strict(padless: Any) -> None:
    with guarded("strict", HERE.parent) as guard:
        line = swallowing(padless, EQUAL)
        with pytest.raises(MissingPadTokenError) as raised, guard.expected():
            padless.generate(**EQUAL, **GREEDY)
    message = str(raised.value)
    assert message.startswith("input_ids (shape (2, 7)) holds 2 prompts, and there is no pad token: ")
    assert "Set tokenizer.pad_token and pass pad_token_id=tokenizer.pad_token_id to generate" in message
    assert guard.findings == (Finding(HERE.name, line, message),)


@pytest.mark.parametrize("mode", ["off", "fix", "warn"])
def test_batch_without_a_pad_token_is_left_alone_in_other_modes(mode: str, padless: Any) -> None:
    with guarded(mode) as guard:
        padless.generate(**EQUAL, **GREEDY)
    assert guard.findings == ()


def test_override_makes_the_guard_strict_too(padless: Any) -> None:
    with guarded("fix"), padfix.override("strict"), pytest.raises(MissingPadTokenError):
        padless.generate(**EQUAL, **GREEDY)


def with_pad(model: Any) -> Any:
    config = copy.deepcopy(model.generation_config)
    config.pad_token_id = PAD
    return config


@pytest.mark.parametrize(
    "arguments",
    [
        lambda model: {"pad_token_id": PAD},
        lambda model: {"pad_token_id": EOS},
        lambda model: {"generation_config": with_pad(model)},
        lambda model: vars(model.generation_config).update(pad_token_id=PAD) or {},
    ],
    ids=["argument", "same as EOS", "config", "model"],
)
def test_pad_token_may_come_from_anywhere(arguments: Callable[[Any], dict[str, Any]], padless: Any) -> None:
    with guarded("strict") as guard:
        padless.generate(**EQUAL, **GREEDY, **arguments(padless))
    assert guard.findings == ()


def test_prompt_alone_needs_no_pad_token(padless: Any) -> None:
    with guarded("strict") as guard:
        padless.generate(**ALONE, **GREEDY)
        padless.generate(**ALONE, max_new_tokens=2, do_sample=True, num_return_sequences=2)
    assert guard.findings == ()


def test_arguments_that_transformers_refuses_are_left_to_it(padless: Any) -> None:
    with guarded("strict") as guard, pytest.raises((ValueError, AttributeError, TypeError)) as raised:
        padless.generate(**EQUAL, generation_config={"max_new_tokens": 1})
    assert not isinstance(raised.value, PadfixError)
    assert guard.findings == ()


def test_each_guard_that_watches_records_once(padless: Any, model: Any) -> None:
    with guarded("strict") as outer, guarded("strict") as inner:
        swallowing(padless, EQUAL)
        swallowing(model, right_padded(ROWS))
    assert outer.findings == inner.findings
    assert len(outer.findings) == 2


def test_call_without_a_guard_resolves_no_config(padless: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(call: Any) -> Iterator[None]:
        raise AssertionError("resolved_config was asked")

    monkeypatch.setattr("padfix.generation.compat.resolved_config", unasked)
    padfix.install("strict")
    padless.generate(**EQUAL, **GREEDY)
    with watched_by(Guard("strict", HERE.parent)), pytest.raises(AssertionError, match="asked"):
        padless.generate(**EQUAL, **GREEDY)


# The environment


@pytest.mark.usefixtures("off_in_environment")
def test_guard_is_off_where_the_environment_says_so(model: Any, padless: Any, caplog: pytest.LogCaptureFixture) -> None:
    before = state()
    with caplog.at_level(logging.INFO, logger="padfix"), guarded("strict") as guard:
        assert state() == before
        model.generate(**right_padded(ROWS), **GREEDY, pad_token_id=PAD)
        padless.generate(**EQUAL, **GREEDY)
    assert (guard.mode, guard.findings, caplog.messages) == ("off", (), [])


@pytest.mark.parametrize(
    ("named", "mode", "off"), [((), "off", False), (("mode",), "off", True), (("mode",), "fix", False)]
)
def test_off_counts_where_it_is_explicit(
    named: tuple[str, ...], mode: str, off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "NAMED_IN_ENVIRONMENT", frozenset(named))
    monkeypatch.setattr(settings, "ENVIRONMENT", Settings(mode=mode))
    assert settings.is_off_in_environment() is off


@pytest.mark.parametrize(("value", "mode"), [("STRICT", "strict"), (" fix ", "fix"), ("", "off"), ("1", "fix")])
def test_modes_are_read_as_everywhere(value: str, mode: str) -> None:
    assert testing.read_mode(value, "--padfix=") == mode


# Batch against single


PROMPTS = [text(*row) for row in ROWS]


@pytest.mark.parametrize(("side", "mode"), [("right", "fix"), ("left", "fix"), ("left", "off")])
def test_batch_that_is_right_passes(model: Any, side: str, mode: str) -> None:
    tokenizer = worded(padding_side=side)
    with installed(mode):
        assert_batch_matches_single(model, tokenizer, PROMPTS, max_new_tokens=6)


@pytest.mark.parametrize("mode", ["off", "warn"])
def test_right_padded_batch_that_nothing_repairs_fails_and_names_its_rows(model: Any, mode: str) -> None:
    with installed(mode), pytest.raises(AssertionError) as failed:
        assert_batch_matches_single(model, worded(padding_side="right"), PROMPTS, max_new_tokens=6)
    message = str(failed.value)
    assert "padded on the right to 7 columns, as this process runs it: 1 equal" in message
    assert "row 1 (3 tokens): padding fault" in message
    assert "row 2 (5 tokens): padding fault" in message
    assert "alone: " in message


def test_flag_that_left_padding_leaves_wrong_fails_without_padfix(model: Any) -> None:
    tokenizer, flags = worded(padding_side="left"), {"max_new_tokens": 8, "no_repeat_ngram_size": 1, "min_length": 11}
    with installed("fix"):
        assert_batch_matches_single(model, tokenizer, PROMPTS, eos_token_id=[EOS, 51, 93, 44], **flags)
    with pytest.raises(AssertionError, match="padding fault"):
        assert_batch_matches_single(model, tokenizer, PROMPTS, eos_token_id=[EOS, 51, 93, 44], **flags)


def test_strict_mode_refuses_the_batch_itself(model: Any) -> None:
    with installed("strict"), pytest.raises(RightPaddingError):
        assert_batch_matches_single(model, worded(padding_side="right"), PROMPTS, max_new_tokens=6)
