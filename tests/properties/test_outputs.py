"""Hidden states and attentions of a batch are those of its prompts alone, in the caller's layout."""

import pytest
from hypothesis import assume, given

from .repairing import repairing  # noqa: F401
from .states import MODELS, StateCase, is_comparable, state_cases, states_equal_single


@pytest.mark.parametrize("name", MODELS)
@given(case=state_cases())
def test_every_cell_holds_what_the_prompt_alone_has_there(name: str, case: StateCase) -> None:
    assume(is_comparable(name, case))
    states_equal_single(name, case)
