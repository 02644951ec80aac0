"""`padfix run`: a program behaves as under python itself, with padfix on in it and in the Pythons that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import padfix
from padfix.loading import EMBEDDED
from padfix.run import STARTUP

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there the program is a child of the command")

ROOT = Path(padfix.__file__).parents[1]
COMMAND = (sys.executable, "-c", "import _padfix_cli, sys; sys.exit(_padfix_cli.main())", "run")
PLAIN = (sys.executable,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a `transformers` in it that imports nothing."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("")
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def start(
    folder: Path, command: tuple[str, ...], *arguments: str, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PADFIX", "PYTEST", "PYTHON", "COV"))
    }
    path = os.pathsep.join([str(ROOT), *filter(None, [(environ or {}).get("PYTHONPATH")])])
    return subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env={**kept, **(environ or {}), "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(
    folder: Path,
    command: tuple[str, ...],
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
) -> tuple[int, str, str]:
    """Exit status, output and errors of a command in the folder."""
    started = start(folder, command, *arguments, environ=environ)
    out, err = started.communicate(stdin, timeout=120)
    return started.returncode, out, err


def run(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """What `padfix run` prints; it succeeds and says nothing on standard error."""
    status, out, err = ended(folder, COMMAND, *arguments, environ=environ, stdin=stdin)
    assert (status, err) == (0, "")
    return out


# As under python itself


REVEALING = """
    import inspect, os, pickle, sys

    class Known:
        pass

    print(sys.argv, sys.path, sys.flags, sys.warnoptions, __name__, __file__, __spec__ and __spec__.name)
    print(sorted(name for name in sys.modules if not name.startswith("encodings")))
    print(type(pickle.loads(pickle.dumps(Known()))), inspect.getsource(Known), sys.stdin.read())
    print(sorted(set(os.environ) - {"PADFIX", "PYTHONPATH"}), sys.modules["__main__"].Known is Known)
"""
PROGRAMS = {
    "arguments": (REVEALING, ("prog.py", "--help", "--", "-m", "x", "", "a b", "--mode", "-1")),
    "module": (REVEALING, ("-m", "prog", "--mode", "fix", "-c")),
    "package": (REVEALING, ("-m", "inner", "-h")),
    "path": (REVEALING, ("inner/__main__.py",)),
    "folder": (REVEALING.replace("inspect.getsource(Known)", "0"), ("inner", "x")),
    "status": ("raise SystemExit(7)", ("prog.py",)),
    "text": ("raise SystemExit('so it ends')", ("prog.py",)),
    "exit": ("import os; os._exit(9)", ("prog.py",)),
    "raises": ("def f(): 1 / 0\nf()", ("prog.py",)),
    "raises in a module": ("def f(): 1 / 0\nf()", ("-m", "prog")),
    "raises in transformers": ("import transformers.nothing", ("prog.py",)),
    "no syntax": ("def", ("prog.py",)),
    "missing script": ("", ("nosuch.py", "--help")),
    "missing module": ("", ("-m", "nosuch")),
    "code": ("", ("-c", "import sys; print(sys.argv, sys.path)", "-x")),
    "shadows the standard library": ("import calendar; print(calendar.OWN)", ("prog.py",)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_behaves_as_under_python(name: str, folder: Path) -> None:
    text, arguments = PROGRAMS[name]
    write(folder, "prog.py", text)
    write(folder, "inner/__main__.py", text)
    write(folder, "calendar.py", "OWN = 1")
    plain = ended(folder, PLAIN, *arguments, stdin="typed")
    assert ended(folder, COMMAND, *arguments, stdin="typed") == plain
    assert "padfix" not in plain[2]


def test_program_can_come_from_standard_input(folder: Path) -> None:
    assert run(folder, "-", "a", stdin="import sys; print(sys.argv)") == "['-', 'a']\n"


def test_options_of_the_interpreter_reach_the_program(folder: Path) -> None:
    write(folder, "prog.py", "import sys; print(sys.flags, sys.warnoptions, sys._xoptions, sys.stdout.write_through)")
    options = ("-O", "-u", "-W", "ignore", "-X", "utf8", "-B", "-s")
    plain = ended(folder, (sys.executable, *options), "prog.py")
    assert ended(folder, (sys.executable, *options, *COMMAND[1:]), "prog.py") == plain
    assert plain[1].endswith("True\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_the_program_as_under_python(number: signal.Signals, folder: Path) -> None:
    write(folder, "prog.py", "import time\nprint('ready', flush=True)\ntime.sleep(60)")
    assert _signalled(folder, COMMAND, number) == _signalled(folder, PLAIN, number)


def test_program_answers_signals_itself(folder: Path) -> None:
    text = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("ready", flush=True)
        time.sleep(60)
    """
    write(folder, "prog.py", text)
    assert _signalled(folder, COMMAND, signal.SIGTERM) == (5, "")


def _signalled(folder: Path, command: tuple[str, ...], number: signal.Signals) -> tuple[int, str]:
    started = start(folder, command, "prog.py")
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    time.sleep(0.3)  # into the sleep, or the traceback shows another line
    started.send_signal(number)
    _, err = started.communicate(timeout=60)
    return started.returncode, err


# padfix is on


ON = "import sys, transformers; print('padfix' in sys.modules and sys.modules['padfix'].is_installed())"


def test_padfix_waits_for_transformers(folder: Path) -> None:
    text = """
        import sys
        print("padfix" in sys.modules, "wrapt" in sys.modules)
        import transformers
        print("padfix" in sys.modules, sys.modules["padfix"].settings.ENVIRONMENT.mode)
    """
    write(folder, "prog.py", text)
    assert run(folder, "prog.py") == "False False\nTrue fix\n"


@pytest.mark.parametrize(
    ("options", "environ", "mode"),
    [
        ((), {"PADFIX": ""}, "fix auto"),
        ((), {"PADFIX": "warn"}, "warn auto"),
        ((), {"PADFIX": "strict", "PADFIX_STRATEGY": "left_pad"}, "strict left_pad"),
        (("--mode", "Strict"), {"PADFIX": "warn"}, "strict auto"),
        (("--mode", "warn", "--strategy", "equal_length"), {}, "warn equal_length"),
        (("--strategy", "left_pad"), {"PADFIX_STRATEGY": "equal_length"}, "fix left_pad"),
    ],
)
def test_environment_and_options_say_how(
    options: tuple[str, ...], environ: dict[str, str], mode: str, folder: Path
) -> None:
    write(folder, "prog.py", "import sys, transformers; s = sys.modules['padfix'].settings.ENVIRONMENT; ")
    with (folder / "prog.py").open("a") as file:
        file.write("print(s.mode, s.strategy)")
    assert run(folder, *options, "prog.py", environ=environ) == f"{mode}\n"


def test_off_in_the_environment_wins(folder: Path) -> None:
    write(folder, "prog.py", "import sys, os, transformers; print('padfix' in sys.modules, os.environ['PYTHONPATH'])")
    off = {"PADFIX": "off"}
    assert run(folder, "prog.py", environ=off) == f"False {ROOT}\n"
    status, out, err = ended(folder, COMMAND, "--mode", "strict", "prog.py", environ=off)
    assert (status, out) == (0, f"False {ROOT}\n")
    assert err == "padfix: PADFIX=off in the environment wins over --mode strict.\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_of_multiprocessing_have_padfix_on(method: str, folder: Path) -> None:
    text = f"""
        import multiprocessing, sys

        class Job:
            def __call__(self, queue):
                {ON}
                print(sys.path, flush=True)
                queue.put(self)

        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            queue = context.Queue()
            child = context.Process(target=Job(), args=(queue,))
            child.start()
            print(type(queue.get()) is Job, flush=True)
            child.join()
            print(child.exitcode, sys.path)
    """
    write(folder, "prog.py", text)
    on, path, same_class, end = run(folder, "prog.py").splitlines()
    assert (on, same_class, end[:2]) == ("True", "True", "0 ")
    assert str(STARTUP) not in path + end


def test_subprocess_has_padfix_on(folder: Path) -> None:
    write(folder, "prog.py", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {ON!r}], check=True)")
    assert run(folder, "prog.py") == "True\n"


def test_startup_folder_is_named_once_and_first(folder: Path) -> None:
    text = """
        import os, subprocess, sys
        if len(sys.argv) == 1:
            os.environ["PYTHONPATH"] = "first" + os.pathsep + os.environ["PYTHONPATH"]
            command = "import _padfix_cli, sys; sys.exit(_padfix_cli.main())"
            subprocess.run([sys.executable, "-c", command, "run", __file__, "again"], check=True)
        else:
            print(os.environ["PYTHONPATH"])
    """
    write(folder, "prog.py", text)
    assert run(folder, "prog.py") == os.pathsep.join([str(STARTUP), "first", str(ROOT)]) + "\n"


# The user's own sitecustomize


OWN = """
    import builtins, sys
    builtins.OWN = (__name__, __file__, __spec__.name, __spec__.origin, sys.modules["sitecustomize"].__file__)
"""


@pytest.mark.parametrize(
    "text",
    [
        OWN,
        "raise ValueError('of the user')",
        "import nothing_of_this_name",
        "def",
        "import transformers",
    ],
)
def test_sitecustomize_of_the_user_runs_as_without(text: str, folder: Path) -> None:
    write(folder, "own/sitecustomize.py", text)
    write(
        folder,
        "prog.py",
        "import builtins, sys; print(getattr(builtins, 'OWN', None), sys.modules.get('sitecustomize'))",
    )
    environ = {"PYTHONPATH": str(folder / "own") + os.pathsep + str(folder)}
    plain = ended(folder, PLAIN, "prog.py", environ=environ)
    errors = plain[2] * 2  # the Python of the command itself runs it as well
    assert ended(folder, COMMAND, "prog.py", environ=environ) == (*plain[:2], errors)
    assert ("('sitecustomize', " in plain[1]) is (text == OWN)
    assert ("ValueError: of the user" in plain[2]) is ("of the user" in text)


def test_sitecustomize_of_the_user_gets_padfix_too(folder: Path) -> None:
    write(folder, "own/sitecustomize.py", ON)
    write(folder, "prog.py", "")
    environ = {"PYTHONPATH": os.pathsep.join([str(folder / "own"), str(folder)]), "PADFIX": "warn"}
    assert run(folder, "prog.py", environ=environ) == "False\nTrue\n"  # in the command's own Python, and the program's


# What goes wrong


@pytest.mark.parametrize("arguments", [(), ("-m",), ("-c",), ("--mode", "fix")])
def test_nothing_to_run_is_a_mistake_in_the_command(arguments: tuple[str, ...], folder: Path) -> None:
    status, out, err = ended(folder, COMMAND, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: padfix run ")
    assert "nothing to run: give a SCRIPT, -m MODULE or -c CODE" in err


@pytest.mark.parametrize(
    ("options", "environ", "said"),
    [
        ((), {"PADFIX": "maybe"}, "PADFIX='maybe' is not a value that padfix knows."),
        (("--mode", "maybe"), {}, "mode='maybe' is not a value that padfix knows."),
        (("--strategy", "maybe"), {}, "strategy='maybe' is not a value that padfix knows."),
    ],
)
def test_value_that_padfix_does_not_know_is_status_2(
    options: tuple[str, ...], environ: dict[str, str], said: str, folder: Path
) -> None:
    write(folder, "prog.py", "print('ran')")
    status, out, err = ended(folder, COMMAND, *options, "prog.py", environ=environ)
    assert (status, out) == (2, "")
    assert err.startswith(f"padfix: {said}")
    assert err.count("\n") == 1


def test_command_on_the_path_is_named_with_the_ways_to_run_it(folder: Path) -> None:
    write(folder, "bin/evaluate-all", "#!/usr/bin/env python\n")
    (folder / "bin/evaluate-all").chmod(0o755)
    environ = {"PATH": str(folder / "bin")}
    status, out, err = ended(folder, COMMAND, "evaluate-all", "--fast", environ=environ)
    assert (status, out) == (2, "")
    assert err == (
        f"padfix: evaluate-all is no script here but a command ({folder}/bin/evaluate-all). Run the module behind it, "
        f"padfix run -m MODULE, or, where it is a Python script of this environment, padfix run "
        f"{folder}/bin/evaluate-all.\n"
    )


def test_python_that_reads_no_environment_is_refused(folder: Path) -> None:
    write(folder, "prog.py", "print('ran')")
    inside = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import _padfix_cli; sys.exit(_padfix_cli.main())"
    status, out, err = ended(folder, (sys.executable, "-E", "-c", inside, "run"), "prog.py")
    assert (status, out) == (2, "")
    assert "(ignore_environment). Start it without -I, -E and -S." in err


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize(
    ("package", "said"),
    [
        (None, "padfix is not installed there. Install it, or set PADFIX=off"),
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
    ],
)
def test_python_without_padfix_says_so_and_runs(package: str | None, said: str, mode: str, folder: Path) -> None:
    """As of another environment: PYTHONPATH names the startup folder, and no padfix that can be imported."""
    if package is not None:
        write(folder, "padfix/__init__.py", package)
    write(folder, "prog.py", "import transformers, transformers.__init__; print('ran')")
    command = [sys.executable, "-s", "prog.py"]
    hidden = f"import sys; sys.meta_path.insert(0, type('', (), {{'find_spec': {HIDING}}})); del sys"
    write(folder, "own/sitecustomize.py", hidden if package is None else "")
    path = os.pathsep.join([str(STARTUP), str(folder / "own"), str(folder)])
    run = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PADFIX": mode},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "ran\n")
    lines = run.stderr.splitlines()
    assert lines[-1].startswith(f"padfix: batches run without it in {sys.executable} ({said}")
    assert (lines[0].startswith("Traceback") and "PADFIX=strict guards nothing" in lines[-1]) is (mode == "strict")
    assert (len(lines) == 1) is (mode == "fix")


HIDING = "staticmethod(lambda n, *_: exec('raise ModuleNotFoundError(name=n)') if n == 'padfix' else None)"


# The whole way


GENERATES = f"""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained({str(EMBEDDED)!r})
    tokenizer = AutoTokenizer.from_pretrained({str(EMBEDDED)!r})
    batch = tokenizer(["reverse: fix =", "reverse: transforms ="], padding=True, return_tensors="pt")
    new = model.generate(**batch, max_new_tokens=12, do_sample=False)[:, batch["input_ids"].shape[1]:]
    print(tokenizer.batch_decode(new, skip_special_tokens=True))
"""


def test_right_padded_batch_of_an_unmodified_script_is_repaired(tmp_path: Path) -> None:
    write(tmp_path, "prog.py", GENERATES)
    status, out, err = ended(tmp_path, COMMAND, "prog.py")
    assert (status, out) == (0, "['xif', 'smrofsnart']\n"), err


def test_right_padded_batch_in_strict_mode_ends_the_script(tmp_path: Path) -> None:
    write(tmp_path, "prog.py", GENERATES)
    status, out, err = ended(tmp_path, COMMAND, "--mode", "strict", "prog.py")
    assert (status, out) == (1, "")
    assert "padfix.errors.RightPaddingError: Row 0 of input_ids (shape (2, 22))" in err
