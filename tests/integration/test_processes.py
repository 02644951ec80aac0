"""Processes that are forked or spawned: a child finds padfix whole, its locks free, and generates right."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import padfix

ROOT, TESTS = Path(padfix.__file__).parents[1], Path(__file__).parents[1]

# What both programs begin with; `right` comes of the prompts alone, without padfix's pipeline.
START = """
import multiprocessing, os, signal, sys, threading, time
import padfix
import torch
from oracle import GREEDY, ROWS, alone, build, right_padded
from padfix import notices, record
torch.set_num_threads(1)
MODEL, BATCH = build("llama"), right_padded(ROWS)

def is_right(model=MODEL):
    right = [one.tokens for one in alone(MODEL, ROWS)]
    return model.generate(**BATCH, **GREEDY)[:, 7:].tolist() == right
"""

FORKS = """
from transformers import LlamaForCausalLM
from transformers.generation.utils import GenerationMixin

def of_child(act):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a deadlock is an exit by signal 14
        try:
            act()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def generates():
    assert is_right()

class Slowly:
    def find_spec(self, name, path=None, target=None):
        if name == "padfix.strategies":
            importing.set()
            time.sleep(0.5)

# While a thread imports the pipeline, at its first call.
importing = threading.Event()
sys.meta_path.insert(0, Slowly())
thread = threading.Thread(target=generates)
thread.start()
assert importing.wait(60)
print("importing", of_child(generates), flush=True)
thread.join()

# While a thread holds a lock: the record's is waited for, the others are new ones in the child.
from padfix.strategies import probe

class Own(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)

own = build("llama")
own.__class__ = Own  # is tried out, under the lock of trial runs

def holds(lock, released):
    with lock:
        held.set()
        released.wait(0.5)

def does_everything():
    assert is_right()
    assert is_right(own)
    padfix.uninstall()
    padfix.install("fix")
    assert padfix.stats().calls

for name, lock in (("record", record.record.lock), ("notices", notices._lock), ("probe", probe._lock)):
    held, released = threading.Event(), threading.Event()
    thread = threading.Thread(target=holds, args=(lock, released))
    thread.start()
    held.wait()
    print(name, of_child(does_everything), flush=True)
    released.set()
    thread.join()
assert record.record.lock.acquire(timeout=5) is True  # the parent has given it back
record.record.lock.release()

# While a thread is within a call.
within, go_on = threading.Event(), threading.Event()

def waits(ids, scores):
    within.set()
    go_on.wait(60)
    return scores

def leaves_nothing():
    assert is_right()
    padfix.uninstall()
    left = [name for name, one in vars(GenerationMixin).items() if hasattr(one, "__padfix_layer__")]
    assert not left, left
    with padfix.suppressed():
        pass
    assert not padfix.is_installed()

thread = threading.Thread(target=lambda: MODEL.generate(**BATCH, **GREEDY, logits_processor=[waits]))
thread.start()
assert within.wait(60)
print("within", of_child(leaves_nothing), flush=True)
go_on.set()
thread.join()
assert record.record.under_way == []

# In the block of an override, which the child stands in as well.
with padfix.override("off"):
    print("override", of_child(lambda: None if not is_right() else 1 / 0), flush=True)
with multiprocessing.get_context("fork").Pool(1) as pool:
    print("pool", pool.apply(is_right), flush=True)
"""

SPAWNS = """
if __name__ == "__main__":
    assert is_right()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("spawned", pool.apply(is_right), flush=True)
    padfix.uninstall()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("spawned anew", pool.apply(is_right), flush=True)
"""


def _printed(program: str, folder: Path) -> list[str]:
    """The lines that a program prints, in a process of its own with PADFIX=fix."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PADFIX", "COV_"))}
    path = os.pathsep.join((str(ROOT), str(TESTS)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(file)],
        env={**clean, "PYTHONPATH": path, "PADFIX": "fix"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process forks here")
def test_a_child_that_is_forked_is_free_of_other_threads(tmp_path: Path) -> None:
    wanted = ["importing 0", "record 0", "notices 0", "probe 0", "within 0", "override 0", "pool True"]
    assert _printed(START + FORKS, tmp_path) == wanted


@pytest.mark.soak
def test_a_child_that_is_spawned_follows_the_environment(tmp_path: Path) -> None:
    assert _printed(START + SPAWNS, tmp_path) == ["spawned True", "spawned anew True"]
