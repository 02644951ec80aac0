"""A property as it is searched for planted faults: few examples, the same ones every time, none shrunk or kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from oracle import VOCABULARY
from properties import laws
from properties.batches import (
    Case,
    cases,
    equals_left_padding_by_hand,
    equals_single,
    is_promised,
    sampled_cases,
)
from properties.layouts import ids_without_mask, masks, moves
from properties.test_layout import two_moves

__all__ = ["PROPERTIES", "brief", "broken_by", "holds"]


# Learned positions are the most sensitive to a shift, so GPT-2 stands for the models here.
MODEL = "gpt2"


class Property(NamedTuple):
    """A law, what it is searched over, and with how many examples."""

    law: Callable[..., None]
    over: st.SearchStrategy[Any]
    examples: int


def plain_cases() -> st.SearchStrategy[Case]:
    """Calls that raise nothing when they are left as they are: every id in the vocabulary, no position_ids."""
    valid = cases().filter(lambda case: case.pad not in (VOCABULARY, 150) and case.filler not in (-1, VOCABULARY))
    return valid.map(lambda case: replace(case, positions=None))


def batch_equals_single(case: Case) -> None:
    """The property of whole calls, on the model that stands for all."""
    assume(is_promised(MODEL, case))
    equals_single(MODEL, case)


def sampling(case: tuple[Case, int]) -> None:
    """The property of sampled calls, on the same model."""
    assume(is_promised(MODEL, case[0]))
    equals_left_padding_by_hand(MODEL, *case)


PROPERTIES: Mapping[str, Property] = {
    "pads first": Property(laws.the_model_sees_pads_first, moves(), 80),
    "trim": Property(laws.trim_drops_pads_alone, moves(), 80),
    "definition": Property(laws.moves_as_defined, moves(), 80),
    "there and back": Property(laws.there_and_back, moves(), 80),
    "past columns": Property(laws.columns_past_the_prompt_pass_through, moves(), 80),
    "left-padded": Property(laws.a_left_padded_batch_stays, moves(), 80),
    "beams": Property(laws.rows_repeat_for_beams, moves(), 80),
    "compose": Property(lambda both: laws.plans_compose(*both), two_moves(), 80),
    "not mutated": Property(laws.inputs_are_not_mutated, moves(), 80),
    "masks": Property(laws.masks_are_read, masks(), 80),
    "ids": Property(laws.ids_are_read_by_the_rule, ids_without_mask(), 80),
    "ids as stock": Property(laws.an_own_pad_id_is_a_pad_wherever_it_stands, ids_without_mask(), 80),
    "batch equals single": Property(batch_equals_single, cases(), 240),
    "batch equals single, plain calls": Property(batch_equals_single, plain_cases(), 120),
    "sampling": Property(sampling, sampled_cases(), 16),
}


# One run of Hypothesis draws examples that resemble one another, so a search is several short ones.
ROUNDS = 8


def brief(examples: int) -> settings:
    """A search of so many examples that neither shrinks nor keeps what it finds."""
    return settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def holds(name: str) -> None:
    """Searches a property for a counterexample and raises what the first one raises."""
    law, over, examples = PROPERTIES[name]

    @brief(examples // ROUNDS)
    @given(over)
    def searched(example: Any) -> None:
        law(example)

    for start in range(ROUNDS):
        seed(start)(searched)()


def broken_by(error: BaseException) -> str:
    """The file whose `assert` raised, as far as it is one of the tests' own; else empty."""
    tests = Path(__file__).parent.parent
    traceback = error.__traceback__
    assert traceback is not None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    file = Path(traceback.tb_frame.f_code.co_filename)
    return file.name if tests in file.parents and "planted" not in file.parts else ""
