"""A small project with its own test suite, run by a pytest of its own.

The fixture `pytester` comes from `-p pytester` in the addopts of pyproject.toml: `pytest_plugins` may stand in the
outermost conftest.py alone, and which one that is depends on how the suite is run. The inner run finds the plugin by
its entry point where padfix is installed with one, else by `-p`; both would be an error.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

import padfix

# What the tests of the project test. The second prompt of `RIGHT` is padded on the right, the third as well.
SERVER = """
import threading

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
SIZES = dict(vocab_size=99, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(num_key_value_heads=1, pad_token_id=0, eos_token_id=2, **SIZES)).eval()
model.generation_config.pad_token_id = 0

RIGHT = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0], [11, 12, 13, 0]])
LEFT = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 10], [0, 11, 12, 13]])


def reply(ids=RIGHT):
    mask = (ids != 0).long()
    return model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=2, do_sample=False)  # generates


def careless():
    try:
        return reply()
    except Exception:
        return None


def in_thread():
    thread = threading.Thread(target=careless)
    thread.start()
    thread.join()


def padless():
    batch = {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 10]]), "attention_mask": torch.ones(2, 3)}
    model.generation_config.pad_token_id = None
    try:
        model.generate(**batch, max_new_tokens=1, do_sample=False)  # lacks a pad token
    except ValueError:
        pass
    finally:
        model.generation_config.pad_token_id = 0
"""

MISPLACED = "Rows 1, 2 of input_ids (shape (3, 4)) have pads after real tokens"


class Project:
    """A folder with `server.py`; `add` gives it tests, and a run of them is in this process or in one of its own."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self.setenv = monkeypatch.setenv
        self.setenv("PYTHONPATH", str(Path(padfix.__file__).parents[1]))
        named = bool(entry_points(group="pytest11", name="padfix"))
        self._arguments = ["-p", "no:cacheprovider"] if named else ["-p", "no:cacheprovider", "-p", "_padfix_pytest"]
        pytester.makepyfile(server=SERVER)

    def add(self, **files: str) -> None:
        """Adds files by name: `test_it` for test_it.py, `ini` for the pytest section of tox.ini."""
        ini = files.pop("ini", None)
        if ini is not None:
            self._pytester.makeini(f"[pytest]\n{ini}\n")
        self._pytester.makepyfile(**files)

    def line(self, comment: str) -> int:
        """The line of server.py that ends in this comment."""
        return next(line for line, text in enumerate(SERVER.strip().splitlines(), 1) if text.endswith(f"# {comment}"))

    def run(self, *arguments: str) -> pytest.RunResult:
        """The suite in a process of its own."""
        return self._pytester.runpytest_subprocess(*self._arguments, *arguments, timeout=120)

    def run_here(self, *arguments: str) -> pytest.RunResult:
        """The suite in this process, in which torch and padfix are imported already."""
        return self._pytester.runpytest_inprocess(*self._arguments, *arguments)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with code to test and no tests yet."""
    return Project(pytester, monkeypatch)
