"""The environment and the command that `padfix run` starts a program with; the programs are in integration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from padfix import run
from padfix.errors import PadfixError, SettingsError
from padfix.run import STARTUP, environment, interpreter

FIX = {"PADFIX": "fix", "PYTHONPATH": str(STARTUP)}


def joined(*entries: str) -> str:
    return os.pathsep.join(entries)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, FIX),
        ({"PADFIX": " ", "PYTHONPATH": ""}, FIX),
        ({"PADFIX": "Warn", "OTHER": "1"}, {"PADFIX": "Warn", "OTHER": "1", "PYTHONPATH": str(STARTUP)}),
        ({"PYTHONPATH": "a"}, {**FIX, "PYTHONPATH": joined(str(STARTUP), "a")}),
        ({"PYTHONPATH": joined("a", "", "b")}, {**FIX, "PYTHONPATH": joined(str(STARTUP), "a", "", "b")}),
        ({"PYTHONPATH": joined("a", str(STARTUP), "b")}, {**FIX, "PYTHONPATH": joined(str(STARTUP), "a", "b")}),
        ({"PYTHONPATH": str(STARTUP)}, FIX),
    ],
)
def test_environment_has_padfix_on_and_keeps_the_rest(given: dict[str, str], expected: dict[str, str]) -> None:
    before = dict(given)
    assert environment(given) == expected
    assert environment(expected) == expected
    assert given == before


def test_options_win_over_the_environment() -> None:
    given = {"PADFIX": "warn", "PADFIX_STRATEGY": "left_pad"}
    changed = environment(given, mode="YES", strategy="equal_length")
    assert (changed["PADFIX"], changed["PADFIX_STRATEGY"]) == ("fix", "equal_length")
    for options in ({"mode": "x"}, {"strategy": "x"}):
        with pytest.raises(SettingsError, match="'x' is not a value that padfix knows"):
            environment(given, **options)


def test_padfix_of_the_working_directory_stays_within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `python -m padfix` in a clone that is not installed: the program has another first entry."""
    root = str(STARTUP.parents[1])
    others = [entry for entry in sys.path if entry != root]
    monkeypatch.setattr(sys, "path", [root, *others])
    assert environment({"PYTHONPATH": "a"})["PYTHONPATH"] == joined(str(STARTUP), "a", root)
    monkeypatch.setattr(sys, "path", [root, *others, root])
    assert environment({"PYTHONPATH": "a"})["PYTHONPATH"] == joined(str(STARTUP), "a")


def test_startup_folder_holds_what_python_looks_for() -> None:
    assert [path.name for path in STARTUP.glob("*.py")] == ["sitecustomize.py"]


def test_interpreter_is_this_one() -> None:
    assert interpreter()[0] == sys.executable
    assert not {"-E", "-I", "-S"} & set(interpreter())


def test_python_that_does_not_know_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(PadfixError, match="it has no executable"):
        interpreter()


@pytest.mark.parametrize("name", ["./python3", "no-such-command-anywhere", "-m"])
def test_what_is_no_command_is_left_to_python(name: str) -> None:
    run._check([name])


def test_script_of_the_name_of_a_command_is_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PadfixError, match="sh is no script here but a command"):
        run._check(["sh"])
    (tmp_path / "sh").write_text("")
    run._check(["sh"])


def test_child_answers_for_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    assert run._as_child([sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7


def test_child_is_waited_for_whoever_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, interrupts = subprocess.Popen.wait, [KeyboardInterrupt(), KeyboardInterrupt()]

    def interrupted(child: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> int:
        if interrupts:
            raise interrupts.pop()
        return wait(child, *args, **kwargs)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    assert run._as_child([sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7
    assert interrupts == []


def test_off_in_the_environment_wins_over_a_mode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def as_child(command: Any, environ: Any) -> int:
        assert environ == dict(os.environ)
        return 3

    monkeypatch.setattr(run, "is_off_in_environment", lambda: True)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(run, "_as_child", as_child)
    assert run.run(["-c", ""], mode="strict") == 3
    assert capsys.readouterr().err == "padfix: PADFIX=off in the environment wins over --mode strict.\n"
    assert run.run(["-c", ""]) == 3
    assert capsys.readouterr().err == ""
