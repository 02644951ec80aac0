"""Each planted fault breaks the property that it names, by an `assert` of the tests; without one, all hold."""

import pytest
from facts import RELEASE
from properties.repairing import repairing  # noqa: F401

from .faults import FAULTS
from .search import PROPERTIES, broken_by, holds

# A fault in padfix is the same in every release: it is searched for on the newest.
pytestmark = pytest.mark.skipif(RELEASE < (5, 24), reason="searched for on the newest release")


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_property_holds_without_a_fault(name: str) -> None:
    holds(name)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, owner, attribute, plant = FAULTS[fault]
    monkeypatch.setattr(owner, attribute, plant(vars(owner)[attribute]))
    with pytest.raises(AssertionError) as caught:
        holds(name)
    assert broken_by(caught.value), f"not an assertion of the tests: {caught.value}"


def test_every_property_catches_a_fault() -> None:
    assert {fault.caught_by for fault in FAULTS.values()} == set(PROPERTIES)
