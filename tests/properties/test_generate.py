"""Batch equals single: random padded batches through `model.generate`, with padfix installed, against each alone."""

import itertools
from collections import Counter

import pytest
from hypothesis import assume, given

from .batches import (
    MODELS,
    POOL,
    Case,
    cases,
    equals_left_padding_by_hand,
    equals_single,
    is_promised,
    may_be_refused,
    runs_alone,
    sampled_cases,
    single,
)
from .repairing import repairing  # noqa: F401


@pytest.mark.parametrize("name", MODELS)
def test_the_oracle_tells_the_prompts_apart(name: str) -> None:
    """Alone any two prompts get other logits, and most replies are like no other and do not repeat one token."""
    replies = [single(name, row, 5)[0] for row in POOL if runs_alone(name, row)]
    for one, other in itertools.combinations(replies, 2):
        assert one.logits is not None
        assert other.logits is not None
        assert (one.logits[0] - other.logits[0]).abs().max() > 0.01 * one.logits[0].abs().max()
    counted = Counter(tuple(reply.tokens) for reply in replies if len(set(reply.tokens)) > 1)
    assert sum(times == 1 for times in counted.values()) > 0.7 * len(replies)


@pytest.mark.parametrize("name", MODELS)
@given(case=cases())
def test_a_batch_equals_its_prompts_alone(name: str, case: Case) -> None:
    assume(is_promised(name, case))
    equals_single(name, case)


@pytest.mark.parametrize("name", [name for name in MODELS if not may_be_refused(name)])
@given(case=sampled_cases())
def test_sampling_draws_what_left_padding_by_hand_draws(name: str, case: tuple[Case, int]) -> None:
    assume(is_promised(name, case[0]))
    equals_left_padding_by_hand(name, *case)
