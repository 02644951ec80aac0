"""The pytest plugin in whole test runs, each in a process of its own."""

from __future__ import annotations

import pytest

from .conftest import MISPLACED, Project

CAUGHT = """
import server

def test_raises():
    server.reply()

def test_swallows():
    server.careless()

def test_swallows_in_a_thread():
    server.in_thread()

def test_lacks_a_pad_token():
    server.padless()

def test_is_padded_on_the_left():
    server.reply(server.LEFT)
"""


def section(result: pytest.RunResult) -> str:
    """What the run printed, to look for lines in."""
    return result.stdout.str()


def test_strict_turns_each_fault_red_and_names_its_line_and_rows(project: Project) -> None:
    project.add(test_it=CAUGHT)
    result = project.run("--padfix=strict")
    result.assert_outcomes(failed=4, passed=1)
    lines = [line for line in result.outlines if line.startswith("server.py:")]
    misplaced = f"server.py:{project.line('generates')}: {MISPLACED}"
    missing = f"server.py:{project.line('lacks a pad token')}: input_ids (shape (2, 3)) holds 2 prompts"
    assert sum(line.startswith(misplaced) for line in lines) == 3, section(result)
    assert sum(line.startswith(missing) for line in lines) == 1, section(result)
    result.stdout.fnmatch_lines(
        ["padfix: strict", "FAILED test_it.py::test_swallows - Failed: server.py:*Rows 1, 2 of*"]
    )


def test_the_same_suite_is_green_under_fix_and_every_reply_is_right(project: Project) -> None:
    project.add(
        test_it=CAUGHT
        + """
def test_reply_is_what_the_left_padded_batch_gets():
    assert server.reply()[:, 4:].tolist() == server.reply(server.LEFT)[:, 4:].tolist()
"""
    )
    result = project.run("--padfix=fix")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["padfix: fix"])


def test_two_workers_do_as_one_does(project: Project) -> None:
    project.add(test_it=CAUGHT)
    result = project.run("--padfix=strict", "-n", "2")
    result.assert_outcomes(failed=4, passed=1)
    result.stdout.fnmatch_lines([f"server.py:{project.line('generates')}: Rows 1, 2 of *"])


def test_run_that_asks_for_nothing_imports_nothing(project: Project) -> None:
    project.setenv("PADFIX", "nonsense")
    project.add(
        test_it="""
import sys

def test_nothing_is_imported():
    assert "_padfix_pytest" in sys.modules
    assert not {"padfix", "torch", "transformers", "wrapt"} & set(sys.modules)
"""
    )
    result = project.run("--strict-markers")
    result.assert_outcomes(passed=1)
    assert "padfix:" not in section(result)


@pytest.mark.parametrize("asked", ["option", "ini"])
def test_bad_value_in_the_environment_is_one_clear_line(project: Project, asked: str) -> None:
    project.setenv("PADFIX", "nonsense")
    project.add(test_it="def test_it(): pass", ini="padfix = strict" if asked == "ini" else "")
    result = project.run(*["--padfix=strict"] * (asked == "option"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = "PADFIX='nonsense' is not a value that padfix knows. Use one of: off, fix, warn, strict."
    assert [line for line in result.errlines if line] == [f"ERROR: {message}"]


def test_bad_value_in_the_environment_fails_the_test_that_asks(project: Project) -> None:
    project.setenv("PADFIX", "nonsense")
    project.add(
        test_it="""
import pytest

@pytest.mark.padfix
def test_marked(): pass

def test_guarded(padfix_guard): pass

def test_other(): pass
"""
    )
    result = project.run()
    result.assert_outcomes(errors=2, passed=1)
    for name in ("test_marked", "test_guarded"):
        result.stdout.fnmatch_lines(
            [f"test_it.py::{name}: PADFIX='nonsense' is not a value that padfix knows.*strict."]
        )


def test_option_beside_off_in_the_environment_is_a_contradiction(project: Project) -> None:
    project.setenv("PADFIX", "off")
    project.add(test_it="def test_it(): pass")
    result = project.run("--padfix=strict")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = "--padfix=strict contradicts PADFIX=off in the environment. Take one of the two away."
    assert [line for line in result.errlines if line] == [f"ERROR: {message}"]


def test_off_in_the_environment_wins_over_the_ini_key_and_the_marker_and_is_named(project: Project) -> None:
    project.setenv("PADFIX", "0")
    project.add(
        ini="padfix = strict",
        test_it="""
import pytest
import server
from padfix import is_installed

def test_replies(padfix_guard):
    assert padfix_guard.mode == "off" and not is_installed()
    server.reply()

@pytest.mark.padfix("strict")
def test_marked(padfix_guard):
    assert padfix_guard.mode == "off" and not is_installed()
    server.reply()
    server.padless()
""",
    )
    result = project.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "padfix: off (PADFIX=off in the environment wins over padfix = strict)",
            "padfix: off (PADFIX=off in the environment wins over @pytest.mark.padfix)",
        ]
    )
