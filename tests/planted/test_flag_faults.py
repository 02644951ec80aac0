"""Each fault planted into the treatment of flags is caught by an `assert` of the tests; without one, all hold."""

import pytest
from properties.repairing import repairing  # noqa: F401

from .flag_faults import CALLS, FAULTS, holds
from .search import broken_by


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_are_right_without_a_fault(name: str) -> None:
    holds(name)


@pytest.mark.parametrize("fault", [name for name in FAULTS if FAULTS[name].there])
def test_the_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, owner, name, plant, _ = FAULTS[fault]
    if isinstance(owner, dict):
        monkeypatch.setitem(owner, name, plant(owner[name]))
    else:
        monkeypatch.setattr(owner, name, plant(vars(owner)[name]))
    with pytest.raises(AssertionError) as caught:
        holds(calls)
    assert broken_by(caught.value), f"not an assertion of the tests: {caught.value}"


def test_all_calls_catch_a_fault() -> None:
    assert {fault.caught_by for fault in FAULTS.values()} == set(CALLS)
