"""The scripts of docs/scale.md, run by the commands of the page: as many processes, and each prompt's reply alone."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
import recipes
from recipes import PROMPTS

import padfix
from padfix.loading import EMBEDDED, embedded

pytestmark = pytest.mark.integrations

PAGE = pages.DOCS / "scale.md"
FILES = {block.note[1]: block for block in pages.blocks(PAGE) if block.note[0] == "file"}
COMMANDS = {
    next(word for word in block.code.split() if word in FILES): block.code.strip()
    for block in pages.blocks(PAGE)
    if block.language == "sh"
}
NEEDS = {"split.py": "accelerate", "actors.py": "ray", "shards.py": "torch"}
LIMIT = 180  # seconds


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which nothing is asked of the network, and nothing stays behind."""
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # its sockets need a short path
        yield os.environ | {
            "HOME": str(tmp_path),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONPATH": str(Path(padfix.__file__).parents[1]),
            "RAY_TMPDIR": short,
            "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        }


def run(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit status of a command and what it prints; all that it has started ends with it."""
    words = [str(EMBEDDED) if word == "MODEL" else word for word in shlex.split(command)]
    process = subprocess.Popen(
        ["env", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
    return process.returncode, printed


def replies(script: str, folder: Path, environment: dict[str, str]) -> list[str]:
    (folder / script).write_text(FILES[script].code)
    (folder / "prompts.txt").write_text("\n".join(PROMPTS))
    status, printed = run(COMMANDS[script], folder, environment)
    assert status == 0, printed[-3000:]
    return (folder / "replies.txt").read_text().splitlines()


def test_every_script_has_a_command_and_a_test() -> None:
    assert set(FILES) == set(COMMANDS) == set(NEEDS)


@pytest.mark.parametrize("script", NEEDS)
def test_script_gives_each_prompt_what_it_gets_alone(script: str, tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip(NEEDS[script])
    assert replies(script, tmp_path, environment) == recipes.alone(*embedded())
