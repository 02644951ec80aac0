"""Batch equals single under random subsets of the flags of `generate`, with padfix installed."""

from collections.abc import Iterator

import pytest
from hypothesis import given

import padfix

from .flags import MODELS, FlagCase, equals_single_under_flags, flag_cases


@pytest.fixture(autouse=True)
def repairing(as_after_import: None) -> Iterator[None]:
    """padfix installed in the mode `fix`."""
    padfix.install("fix")
    yield
    assert padfix.is_installed()


@pytest.mark.parametrize("name", MODELS)
@given(case=flag_cases())
def test_a_batch_equals_its_prompts_alone_under_any_flags(name: str, case: FlagCase) -> None:
    equals_single_under_flags(name, case)
