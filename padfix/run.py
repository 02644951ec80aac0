"""Running an unmodified program with padfix on: the same Python, started anew with padfix waiting for transformers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import PadfixError
from .settings import VARIABLES, Settings, is_off_in_environment

__all__ = ["STARTUP", "environment", "interpreter", "run"]

# The folder with the sitecustomize.py that Python imports at its start.
STARTUP = Path(__file__).parent / "startup"
_DEAF = ("isolated", "ignore_environment", "no_site")


def run(program: Sequence[str], *, mode: str | None = None, strategy: str | None = None) -> int:
    """Runs `program`, the arguments of a Python such as `["script.py", "--flag"]` or `["-m", "module"]`.

    The process becomes that Python and this function does not return; on Windows, where a process cannot become
    another, it gives the exit status of a child.

    Args:
        program: A script or `-m` and a module, or `-c` and code, with its arguments.
        mode: As `PADFIX`, over which it wins, except over `off`.
        strategy: As `PADFIX_STRATEGY`, over which it wins.

    Raises:
        SettingsError: A setting has a value that is not in its list.
        PadfixError: The script is a command to be run as a module, or this Python was started so that it would not
            read the environment.
    """
    _check(program)
    environ = dict(os.environ) if is_off_in_environment() else environment(os.environ, mode=mode, strategy=strategy)
    if is_off_in_environment() and mode is not None:
        print(f"padfix: PADFIX=off in the environment wins over --mode {mode}.", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    command = [*interpreter(), *program]
    return _as_child(command, environ) if sys.platform == "win32" else os.execve(command[0], command, environ)


def environment(environ: Mapping[str, str], *, mode: str | None = None, strategy: str | None = None) -> dict[str, str]:
    """`environ` with padfix on in every Python that it reaches; `fix` where it names no mode and none is given.

    Raises:
        SettingsError: A value is not in its list.
    """
    changed = dict(environ)
    settings = Settings().changed(mode=mode, strategy=strategy)
    if mode is not None or not changed.get(VARIABLES["mode"].name, "").strip():
        changed[VARIABLES["mode"].name] = "fix" if mode is None else settings.mode
    if strategy is not None:
        changed[VARIABLES["strategy"].name] = settings.strategy
    entries = [entry for entry in changed.get("PYTHONPATH", "").split(os.pathsep) if entry != str(STARTUP)]
    here = str(STARTUP.parents[1])
    if sys.path[:1] == [here] and here not in sys.path[1:]:  # python -m padfix in a clone
        entries.append(here)
    path = os.pathsep.join(entries)  # an empty entry is the working directory, and an empty variable is none
    changed["PYTHONPATH"] = f"{STARTUP}{os.pathsep}{path}" if path else str(STARTUP)
    return changed


def interpreter() -> list[str]:
    """The command that starts the Python that runs this once more, with its options.

    Raises:
        PadfixError: It would not read the environment, or is not known.
    """
    given = [flag for flag in _DEAF if getattr(sys.flags, flag)]
    if not sys.executable or (given and not is_off_in_environment()):
        raise PadfixError(
            "padfix run reaches the program through PYTHONPATH, which this Python does not read "
            f"({', '.join(given) or 'it has no executable'}). Start it without -I, -E and -S."
        )
    flags: Any = getattr(subprocess, "_args_from_interpreter_flags")  # noqa: B009  # what multiprocessing goes by
    unbuffered = ["-u"] if getattr(sys.stdout, "write_through", False) else []
    return [sys.executable, *flags(), *unbuffered]


def _check(program: Sequence[str]) -> None:
    """Raises where the program is the name of a command: Python itself would look for it here alone."""
    name = program[0]
    if name.startswith("-") or Path(name).exists() or Path(name).name != name:
        return
    found = shutil.which(name)
    if found is not None:
        raise PadfixError(
            f"{name} is no script here but a command ({found}). Run the module behind it, padfix run -m MODULE, or, "
            f"where it is a Python script of this environment, padfix run {found}."
        )


def _as_child(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit status of the command, whose business Ctrl-C is."""
    with subprocess.Popen(command, env=environ) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue
