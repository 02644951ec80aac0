"""The command: what it prints and where, its exit status, and what it hands on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import _padfix_cli
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
    assert all(command in out for command in ("demo", "verify", "doctor", "run", "show"))
    assert "Exit status: 0 right, 1 not right, 2 a mistake in the command." in out
    assert err == ""


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("demo", ("--model PATH_OR_ID", "--prompts FILE", "--max-new-tokens N")),
        ("verify", ("MODEL", "--prompts", "--stock", "--dtype", "--device", "--plot", "--json", "--trust-remote-code")),
        ("doctor", ("MODEL", "--json", "--trust-remote-code")),
        ("show", ("BATCH.json", "--tokenizer", "--prompts", "--padding-side", "--pad-token-id", "--rows", "--svg")),
    ],
)
def test_help_of_a_command_names_its_options_and_status(command: str, options: tuple[str, ...], capsys: Output) -> None:
    assert stopped(command, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: padfix {command} ")
    assert "Exit status: 0 " in out
    assert all(option in out for option in options)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("dance",), "'dance'"),
        (("--loud",), "the following arguments are required: COMMAND"),
        (("demo", "--loud"), "unrecognized arguments: --loud"),
        (("demo", "--model"), "expected one argument"),
        (("demo", "--max-new-tokens", "few"), "'few' is not a whole number from 1 on"),
        (("demo", "--max-new-tokens", "0"), "'0' is not a whole number from 1 on"),
        (("verify", "--max-new-tokens", "-3"), "'-3' is not a whole number from 1 on"),
        (("verify", "--dtype", "int8"), "invalid choice: 'int8'"),
        (("verify", "a", "b"), "unrecognized arguments: b"),
        (("doctor", "--prompts", "x"), "unrecognized arguments"),
        (("show", "--rows", "0"), "'0' is not a whole number from 1 on"),
        (("show", "--padding-side", "both"), "invalid choice: 'both'"),
        (("run",), "nothing to run: give a SCRIPT, -m MODULE or -c CODE"),
        (("run", "-m"), "nothing to run: give a SCRIPT, -m MODULE or -c CODE"),
        (("run", "--loud", "script.py"), "unrecognized arguments: --loud"),
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


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        (("script.py",), (["script.py"], None, None)),
        (
            ("script.py", "--mode", "fix", "-m", "--", "-h"),
            (["script.py", "--mode", "fix", "-m", "--", "-h"], None, None),
        ),
        (("--mode", "warn", "-m", "module", "-c", "--help"), (["-m", "module", "-c", "--help"], "warn", None)),
        (("--strategy", "left_pad", "-c", "pass", "-m"), (["-c", "pass", "-m"], None, "left_pad")),
        (("-", "--version"), (["-", "--version"], None, None)),
    ],
)
def test_run_receives_the_program_as_it_stands(
    arguments: tuple[str, ...], received: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []

    def replaced(program: list[str], *, mode: str | None, strategy: str | None) -> int:
        calls.append((program, mode, strategy))
        return 7

    monkeypatch.setattr("padfix.run.run", replaced)
    assert main(["run", *arguments]) == 7
    assert calls == [received]


def test_arguments_are_those_of_the_process_where_none_are_given(
    monkeypatch: pytest.MonkeyPatch, demo_calls: list[tuple[Any, ...]]
) -> None:
    monkeypatch.setattr(sys, "argv", ["padfix", "demo", "--max-new-tokens", "3"])
    assert main() == 1
    assert demo_calls == [(None, None, 3)]


def test_module_ends_with_the_status_of_the_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "padfix", "doctor", "no such model"],
        env={**os.environ, "PYTHONPATH": str(Path(padfix.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("padfix: no such model is neither a folder nor a hub id.")


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


# verify


def test_verify_prints_a_table_and_a_verdict(capsys: Output) -> None:
    assert main(["verify", "--max-new-tokens", "12"]) == 0
    out, err = capsys.readouterr()
    assert "12 equal, 0 rounding, 0 padding faults." in out
    assert "reverse: transforms =" in out
    assert err == ""


def test_verify_in_stock_is_status_1_and_names_the_rows(tmp_path: Path, capsys: Output) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("reverse: a =\nreverse: transforms =\n", encoding="utf-8")
    picture = tmp_path / "picture.png"
    assert main(["verify", "--stock", "--prompts", str(prompts), "--plot", str(picture)]) == 1
    out = capsys.readouterr().out
    assert "row 0 (13 tokens): padding fault: another token at step 0" in out
    assert "1 equal, 0 rounding, 1 padding fault." in out
    assert picture.stat().st_size > 2000


def test_json_is_alone_on_standard_output(capsys: Output) -> None:
    assert main(["verify", "--json", "--stock", "--max-new-tokens", "4", "--dtype", "bfloat16"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["counts"]["padding fault"] > 5
    assert report["subject"] == "LlamaForCausalLM (bfloat16, cpu)"
    assert main(["doctor", "--json"]) == 0
    checks = {finding["check"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert {"versions", "settings", "patch"} <= checks


def test_prompts_of_any_other_model_are_sentences(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    from padfix import loading
    from padfix.demo.prompts import SENTENCES
    from padfix.equivalence import verify as module

    asked: list[Any] = []

    def loaded(*arguments: Any, **named: Any) -> tuple[str, str]:
        asked.append((arguments, named))
        return "model", "tokenizer"

    def verified(*arguments: Any, **named: Any) -> None:
        asked.append((arguments, named))
        raise KeyError("a mistake\nof the model")

    monkeypatch.setattr(loading, "load", loaded)
    monkeypatch.setattr(module, "verify", verified)
    assert main(["verify", "some/model", "--device", "cuda:1", "--trust-remote-code", "--stock"]) == 2
    assert capsys.readouterr().err == "padfix: some/model does not run (KeyError: 'a mistake\\nof the model').\n"
    assert asked[0] == (("some/model", "float32", "cuda:1"), {"trust_remote_code": True})
    assert asked[1] == (("model", "tokenizer", SENTENCES), {"max_new_tokens": 32, "stock": True, "progress": None})


# doctor


def test_doctor_of_a_folder_reads_no_weights(tmp_path: Path, capsys: Output) -> None:
    from padfix.loading import EMBEDDED

    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((EMBEDDED / name).read_bytes())
    assert main(["doctor", str(tmp_path)]) == 1  # it pads on the right, and padfix is off
    out = capsys.readouterr().out
    assert "LlamaForCausalLM is exact at any length" in out
    assert "padding_side" in out
    padfix.install()
    assert main(["doctor", str(tmp_path)]) == 0


# What a user can get wrong


@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_path_that_is_not_there_is_one_line(command: str, tmp_path: Path, capsys: Output) -> None:
    absent = str(tmp_path / "absent")
    assert main([command, absent]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"padfix: {absent} is neither a folder nor a hub id.")


def test_folder_without_a_model_is_one_line(tmp_path: Path, capsys: Output) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"padfix: The folder {tmp_path} holds no config.json.")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--prompts", "absent.txt"), "Cannot read prompts from absent.txt"),
        (("--plot", "absent/a.png"), "there is no folder absent"),
        (("--plot", "a.doc"), "a.doc names no format"),
        (("--device", "nowhere"), "cannot be moved to the device 'nowhere'"),
    ],
)
def test_mistake_of_verify_is_one_line(arguments: tuple[str, ...], complaint: str, capsys: Output) -> None:
    assert main(["verify", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert complaint in err


def test_interrupted_command_has_the_status_of_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "main", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["demo"]) == 130


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    root = str(Path(padfix.__file__).parents[1])
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.argv[1:] = {list(arguments)!r}; import _padfix_cli as c; exit(c.main())",
        ],
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_bad_value_in_the_environment_is_one_line() -> None:
    ended = process("demo", PADFIX="loud")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        ended.stderr == "padfix: PADFIX='loud' is not a value that padfix knows. Use one of: off, fix, warn, strict.\n"
    )


def test_command_works_with_padfix_on_and_no_terminal() -> None:
    ended = process("doctor", PADFIX="fix")
    assert ended.returncode == 0, ended.stderr
    assert "PADFIX is fix (from the environment)" in ended.stdout


def test_reader_that_has_seen_enough_is_no_traceback() -> None:
    command = "import _padfix_cli, sys; sys.argv[1:] = ['doctor']; sys.exit(_padfix_cli.main())"
    with subprocess.Popen(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": str(Path(padfix.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""


def test_script_hands_on_arguments_and_status(monkeypatch: pytest.MonkeyPatch, demo_calls: list[Any]) -> None:
    monkeypatch.setattr(sys, "argv", ["padfix", "demo", "--max-new-tokens", "3"])
    assert _padfix_cli.main() == 1
    assert demo_calls == [(None, None, 3)]


def test_warning_of_padfix_is_a_line_of_the_command(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def warns(*_: Any) -> int:
        warnings.warn("something was seen", padfix.PadfixWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(demo, "main", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["demo"]) == 0
    assert capsys.readouterr() == ("", "padfix: something was seen\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_one_line_and_status_2() -> None:
    command = "import _padfix_cli, sys; sys.argv[1:] = ['doctor']; sys.exit(_padfix_cli.main())"
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONPATH": str(Path(padfix.__file__).parents[1])},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (2, "padfix: No space left on device.\n")


def test_warnings_of_others_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def warns(*_: Any) -> int:
        warnings.warn("something was seen", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(demo, "main", warns)
    with pytest.warns(UserWarning, match="something was seen"):
        assert main(["demo"]) == 0
