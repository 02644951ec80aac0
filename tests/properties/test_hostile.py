"""Hostile calls of `generate`, with padfix installed."""

import pytest
from hypothesis import given

from .hostile import MODELS, Hostile, hostile_calls, is_stocks_or_right
from .repairing import repairing  # noqa: F401


@pytest.mark.parametrize("name", MODELS)
@given(case=hostile_calls(("fix",)))
def test_a_hostile_call_is_answered_by_stock_or_rightly(name: str, case: Hostile) -> None:
    is_stocks_or_right(name, case)


@pytest.mark.parametrize("name", MODELS)
@given(case=hostile_calls(("strict", "warn")))
def test_a_hostile_call_is_stocks_or_refused_in_the_other_modes(name: str, case: Hostile) -> None:
    is_stocks_or_right(name, case)
