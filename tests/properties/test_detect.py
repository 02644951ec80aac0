"""Which positions are real: read from masks of every dtype, and from ids by the rule of transformers or of padfix."""

from hypothesis import given
from torch import Tensor

from . import laws
from .layouts import Ids, ids_without_mask, masks


@given(masks())
def test_a_mask_says_which_tokens_are_real(mask: Tensor) -> None:
    laws.masks_are_read(mask)


@given(ids_without_mask())
def test_ids_are_read_by_the_rule(case: Ids) -> None:
    """pad == eos: the shortest outer run is content; one row, equal runs and rows of nothing else are full."""
    laws.ids_are_read_by_the_rule(case)


@given(ids_without_mask())
def test_a_pad_id_of_its_own_is_read_as_transformers_does(case: Ids) -> None:
    laws.an_own_pad_id_is_a_pad_wherever_it_stands(case)
