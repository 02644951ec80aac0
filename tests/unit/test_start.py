"""generation.start: whether the prompts of a decoder begin with its start token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from padfix.generation.call import GenerateCall, bind
from padfix.generation.start import begin_with_start, start_bound
from padfix.layout.plan import LayoutPlan

START, PAD = 1, 9
CONFIG = GenerationConfig(decoder_start_token_id=START)


def made(ids: list[list[int]], *, decoder: bool = True, kind: str = "t5") -> GenerateCall:
    model = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=decoder, model_type=kind))
    call = bind(model, (), {"decoder_input_ids" if decoder else "input_ids": torch.tensor(ids)})
    assert call is not None
    return call


def asked(ids: list[list[int]], pad: int = PAD, **how: Any) -> tuple[set[bool], bool]:
    """Whether the prompts begin with the start token, and whether something stands in the way of their pads."""
    call, plan = made(ids, **how), LayoutPlan.from_mask(torch.tensor(ids) != pad, trim=False)
    return begin_with_start(call, CONFIG, plan), bool(list(start_bound(call, CONFIG, plan)))


@pytest.mark.parametrize(
    ("ids", "begins", "bound"),
    [
        ([[START, 5, 6], [PAD, START, 7]], {True}, False),
        ([[3, 5, 6], [PAD, 3, 7]], {False}, True),  # the token comes before the pad
        ([[START, 5, 6], [PAD, 3, 7]], {True, False}, True),
        ([[PAD, START, 6], [PAD, START, 7]], {True}, True),  # one more comes before the pads
        ([[START, 5, 6], [PAD, PAD, PAD]], {True}, False),
        ([[PAD, PAD], [PAD, PAD]], set(), False),
    ],
)
def test_prompts_that_all_begin_with_the_start_token_may_have_pads_before_them(
    ids: list[list[int]], begins: set[bool], bound: bool
) -> None:
    assert asked(ids) == (begins, bound)


def test_a_pad_with_the_id_of_the_start_token_is_no_start() -> None:
    ids = [[3, 5, 6], [START, 5, 6]]
    assert asked(ids, pad=START) == ({False}, True)


def test_whisper_takes_prompts_as_they_come() -> None:
    assert asked([[3, 5, 6], [PAD, 3, 7]], kind="whisper") == ({False}, False)


def test_other_prompts_have_no_start() -> None:
    assert asked([[3, 5, 6], [PAD, 3, 7]], decoder=False) == (set(), False)
