"""The console of the commands: what standard output cannot encode, the bar, and a missing rich."""

from __future__ import annotations

import io
import re
import sys

import pytest

from padfix.console import console, progress
from padfix.errors import LoadingError


class Terminal(io.StringIO):
    """Text that says of itself that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_results_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    screen = console()
    screen.print("a line")
    assert screen.width == 80
    assert capsys.readouterr() == ("a line\n", "")


def test_characters_that_stdout_cannot_encode_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    console().print("日本 a")
    sys.stdout.flush()
    assert raw.getvalue() == b"?? a\n"


def test_missing_rich_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(LoadingError, match=re.escape('pip install "padfix[cli]"')):
        console()


def test_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress() as step:
        assert step is not None
        step(1, 4, "the second prompt")
    assert "the second prompt" in screen.getvalue()
    assert "25%" in screen.getvalue()
    assert capsys.readouterr().out == ""


def test_no_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress() as step:
        assert step is None
    assert screen.getvalue() == ""


def test_no_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with progress() as step:
        assert step is None


def test_standard_output_may_be_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    console().print("a line")
    assert text.getvalue() == "a line\n"
