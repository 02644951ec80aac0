"""The command: what it prints, its exit status, and what it hands to the demo."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import padfix
from padfix.cli import main
from padfix.demo import run as demo
from padfix.errors import PadfixError, SettingsError

Output = pytest.CaptureFixture[str]


@pytest.fixture
def demo_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each call of the demo, which itself is replaced and answers 1."""
    calls: list[tuple[Any, ...]] = []

    def replaced(*arguments: Any) -> int:
        calls.append(arguments)
        return 1

    monkeypatch.setattr(demo, "main", replaced)
    return calls


def stopped(*arguments: str) -> object:
    """The exit status with which the parser ends the program."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_version_is_printed(capsys: Output) -> None:
    assert stopped("--version") == 0
    assert capsys.readouterr() == (f"padfix {padfix.__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_commands_and_the_exit_status(flag: str, capsys: Output) -> None:
    assert stopped(flag) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: padfix ")
    assert "demo" in out
    assert "Exit status: 0 right, 1 not right, 2 a mistake in the command." in out
    assert err == ""


def test_help_of_the_demo_names_its_options(capsys: Output) -> None:
    assert stopped("demo", "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: padfix demo ")
    for option in ("--model PATH_OR_ID", "--prompts FILE", "--max-new-tokens N"):
        assert option in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("dance",), "'dance'"),
        (("--loud",), "the following arguments are required: COMMAND"),
        (("demo", "--loud"), "unrecognized arguments: --loud"),
        (("demo", "--model"), "expected one argument"),
        (("demo", "--max-new-tokens", "few"), "invalid int value: 'few'"),
    ],
)
def test_mistake_in_the_command_is_status_2(
    arguments: tuple[str, ...], complaint: str, capsys: Output, demo_calls: list[tuple[Any, ...]]
) -> None:
    assert stopped(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: padfix ")
    assert complaint in err
    assert demo_calls == []


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ((), (None, None, 16)),
        (("--model", "some/model"), ("some/model", None, 16)),
        (("--prompts", "prompts.txt", "--max-new-tokens", "5"), (None, Path("prompts.txt"), 5)),
    ],
)
def test_demo_receives_its_options_and_gives_the_status(
    arguments: tuple[str, ...], received: tuple[Any, ...], demo_calls: list[tuple[Any, ...]]
) -> None:
    assert main(["demo", *arguments]) == 1
    assert demo_calls == [received]


def test_arguments_are_those_of_the_process_where_none_are_given(
    monkeypatch: pytest.MonkeyPatch, demo_calls: list[tuple[Any, ...]]
) -> None:
    monkeypatch.setattr(sys, "argv", ["padfix", "demo", "--max-new-tokens", "3"])
    assert main() == 1
    assert demo_calls == [(None, None, 3)]


def test_module_ends_with_the_status_of_the_command(
    monkeypatch: pytest.MonkeyPatch, demo_calls: list[tuple[Any, ...]]
) -> None:
    monkeypatch.setattr(sys, "argv", ["padfix", "demo"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("padfix", run_name="__main__")
    assert ended.value.code == 1
    assert demo_calls == [(None, None, 16)]


@pytest.mark.parametrize("error", [PadfixError("no such file: x"), SettingsError("no such file: x")])
def test_padfix_error_is_one_line_and_status_2(
    error: PadfixError, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "main", lambda *_: (_ for _ in ()).throw(error))
    assert main(["demo"]) == 2
    assert capsys.readouterr() == ("", "padfix: no such file: x\n")


def test_other_exceptions_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "main", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["demo"])
