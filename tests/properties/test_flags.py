"""Batch equals single under random subsets of the flags of `generate`, with padfix installed."""

import pytest
from hypothesis import given

from .flags import MODELS, FlagCase, equals_single_under_flags, flag_cases
from .repairing import repairing  # noqa: F401


@pytest.mark.parametrize("name", MODELS)
@given(case=flag_cases())
def test_a_batch_equals_its_prompts_alone_under_any_flags(name: str, case: FlagCase) -> None:
    equals_single_under_flags(name, case)
