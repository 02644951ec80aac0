"""Calls that padfix once got wrong, each by name; what the search finds is shrunk and comes here."""

import pytest

from .batches import FLAGS, MODELS, STATIC, Case, equals_single
from .repairing import repairing  # noqa: F401


@pytest.mark.parametrize("name", MODELS)
def test_one_row_that_the_caller_left_padded(name: str) -> None:
    """Up to 5.0 the Mamba family masks no pads in a batch of one row; there they have to be trimmed."""
    equals_single(name, Case(rows=((75, 84, 4, 97, 39),), width=10, columns=((5, 6, 7, 8, 9),), pad=57))


@pytest.mark.skipif((STATIC,) not in FLAGS, reason="this release has no static cache for some of the models")
@pytest.mark.parametrize("name", MODELS)
def test_one_row_under_a_static_cache(name: str) -> None:
    """A cache of fixed shape keeps the width of a batch, but not where that would leave such a row unmasked."""
    equals_single(
        name, Case(rows=((75, 84, 4, 97, 39),), width=10, columns=((0, 1, 2, 3, 4),), pad=57, flags=(STATIC,))
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("flags", [(), (("use_cache", False),)])
def test_two_rows_of_two_lengths(name: str, flags: tuple[tuple[str, bool], ...]) -> None:
    """Up to 4.46 Mamba-2 convolves its pads with the tokens, and without a cache reads no mask at all."""
    rows = ((75, 84, 4), (97, 39, 61, 12, 5, 8, 44, 23))
    equals_single(name, Case(rows=rows, width=8, columns=((0, 1, 2), tuple(range(8))), pad=57, flags=flags))


@pytest.mark.parametrize("field", ["own", "passed", "keyword"])
def test_columns_that_all_rows_share_are_dropped(field: str) -> None:
    """A generation config of 4.51 always has a compile_config, which asks for no fixed shape by itself."""
    rows, columns = ((75, 84, 4), (97, 39)), ((0, 1, 2), (0, 1))
    equals_single("llama", Case(rows=rows, width=6, columns=columns, pad=57, length=("max_new_tokens", field, 3)))


def test_the_models_own_max_length_grants_what_it_grants_without_pads() -> None:
    """In 5.0 it counts new tokens, as the default does; before and after, columns."""
    for passed in (False, True):
        rows, columns = ((75, 84, 4), (97, 39)), ((0, 1, 2), (0, 1))
        case = Case(rows=rows, width=6, columns=columns, pad=57, length=("max_length", "own", 5), passed=passed)
        equals_single("llama", case)
