"""Each fault planted into the hidden states and attentions that come back is caught by an `assert` of the tests."""

import pytest
from facts import RELEASE
from properties.repairing import repairing  # noqa: F401

from padfix.generation import states

from .search import broken_by
from .state_faults import CASES, FAULTS, holds

# A fault in padfix is the same in every release: it is searched for on the newest.
pytestmark = pytest.mark.skipif(RELEASE < (5, 24), reason="searched for on the newest release")


@pytest.mark.parametrize("name", CASES)
def test_the_cases_are_right_without_a_fault(name: str) -> None:
    holds(name)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, owner, attribute, plant = FAULTS[fault]
    planted = plant(vars(owner)[attribute])
    monkeypatch.setattr(owner, attribute, planted)
    if attribute == "_attention":  # it is called by way of its table
        monkeypatch.setattr(states, "STATES", {**states.STATES, "attentions": planted, "decoder_attentions": planted})
    with pytest.raises(AssertionError) as caught:
        holds(cases)
    assert broken_by(caught.value), f"not an assertion of the tests: {caught.value}"


def test_all_cases_catch_a_fault() -> None:
    assert {fault.caught_by for fault in FAULTS.values()} == set(CASES)
