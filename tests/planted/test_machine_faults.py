"""Each fault of the patch is caught by an `assert` of the machine: by what a caller sees, unless nothing is to be seen.

Without a fault the same machines find nothing.
"""

from __future__ import annotations

import contextvars

import pytest
from facts import RELEASE
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test
from properties.machine import remember
from properties.test_machine import Machine

from padfix import patch
from padfix.record import Record

from .machine_faults import FAULTS
from .search import brief, broken_by

# A fault in padfix is the same in every release: it is searched for on the newest.
pytestmark = pytest.mark.skipif(RELEASE < (5, 24), reason="searched for on the newest release")


@pytest.fixture(autouse=True)
def nothing_is_kept(as_after_import: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared with is run before anything is planted, and the patch has a record of its own."""
    remember()
    monkeypatch.setattr(patch, "_record", Record())


def run(machines: int, *, reads_record: bool) -> None:
    """Runs machines, the same ones every time, and raises what the first failure raises; none is shrunk."""

    @seed(3)
    class Planted(Machine):
        pass

    Planted.reads_record = reads_record
    chosen = settings(brief(machines), stateful_step_count=30)
    # In a context of its own, since a fault may leave it changed.
    contextvars.copy_context().run(run_state_machine_as_test, Planted, settings=chosen)


def test_the_machine_finds_nothing_without_a_fault() -> None:
    run(4, reads_record=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, plant, in_the_record_alone = FAULTS[fault]
    monkeypatch.setattr(owner, attribute, plant(vars(owner)[attribute]))
    with pytest.raises(AssertionError) as caught:
        run(40, reads_record=in_the_record_alone)
    assert broken_by(caught.value), f"not an assertion of the tests: {caught.value}"
