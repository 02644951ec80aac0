"""Outputs: sequences with the caller's prompt, pads after the end, and a ModelOutput with changed fields."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.utils import GenerateBeamDecoderOnlyOutput, GenerateDecoderOnlyOutput

from padfix.generation.compat import CACHE_NAMES
from padfix.generation.outputs import cache_fields, pads_after_end, rebuilt, sequences_to_caller

CACHE_FIELD = next(field.name for field in fields(GenerateDecoderOnlyOutput) if field.name in CACHE_NAMES)


def made(**values: Any) -> Any:
    output: Any = GenerateDecoderOnlyOutput
    return output(sequences=torch.tensor([[5, 6]]), **values)


# Prompt of two rows and four columns; the model saw three of them.
PROMPT = torch.tensor([[5, -1, 6, -1], [7, 8, 9, -1]])


def test_prompt_columns_are_the_callers_own_and_the_reply_follows() -> None:
    sequences = torch.tensor([[0, 5, 6, 11, 12], [7, 8, 9, 13, 14]])
    restored = sequences_to_caller(sequences, PROMPT, 3)
    assert restored.tolist() == [[5, -1, 6, -1, 11, 12], [7, 8, 9, -1, 13, 14]]
    assert sequences.tolist() == [[0, 5, 6, 11, 12], [7, 8, 9, 13, 14]]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_prompt_is_repeated_for_each_of_its_sequences(copies: int) -> None:
    new = torch.arange(2 * copies)[:, None] + 20
    sequences = torch.cat((torch.zeros(2 * copies, 3, dtype=torch.long), new), 1)
    restored = sequences_to_caller(sequences, PROMPT, 3)
    rows = [row for row in PROMPT.tolist() for _ in range(copies)]
    assert restored.tolist() == [[*row, 20 + index] for index, row in enumerate(rows)]


def test_prompt_alone_comes_back_where_nothing_is_new() -> None:
    assert torch.equal(sequences_to_caller(torch.zeros(2, 3, dtype=torch.long), PROMPT, 3), PROMPT)


@pytest.mark.parametrize(("before", "after"), [(torch.int32, torch.int64), (torch.int64, torch.int32)], ids=str)
def test_prompt_takes_the_type_of_the_sequences(before: torch.dtype, after: torch.dtype) -> None:
    restored = sequences_to_caller(torch.zeros(2, 4, dtype=after), PROMPT.to(before), 3)
    assert restored.dtype == after
    assert restored[:, :4].tolist() == PROMPT.tolist()


def test_sequences_of_embeddings_hold_no_prompt() -> None:
    sequences = torch.tensor([[11, 12], [13, 14]])
    assert sequences_to_caller(sequences, None, 3) is sequences


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([11, 12, 13], [11, 12, 13]),
        ([11, 2, 0], [11, 2, 9]),
        ([2, 0, 0], [2, 9, 9]),
        ([2, 2, 3], [2, 9, 9]),
        ([3, 0, 11], [3, 9, 9]),  # the second EOS
        ([11, 0, 2], [11, 0, 2]),  # a token before the end stays, whatever it is
    ],
)
def test_columns_after_the_first_eos_hold_the_pad_id(new: list[int], expected: list[int]) -> None:
    sequences = torch.tensor([[2, 0, *new], [5, 2, 11, 12, 13]])
    before = sequences.clone()
    assert pads_after_end(sequences, 2, (2, 3), 9).tolist() == [[2, 0, *expected], [5, 2, 11, 12, 13]]
    assert torch.equal(sequences, before)


def test_columns_after_the_end_are_counted_from_the_prompts_width() -> None:
    assert pads_after_end(torch.tensor([[2, 11, 12]]), 0, (2,), 9).tolist() == [[2, 9, 9]]
    assert pads_after_end(torch.tensor([[2, 11, 12]]), 1, (2,), 9).tolist() == [[2, 11, 12]]


def test_field_of_a_cache_is_named_only_where_it_holds_one() -> None:
    assert cache_fields(made()) == ()
    assert cache_fields(made(scores=(torch.zeros(1),))) == ()
    assert cache_fields(made(**{CACHE_FIELD: object()})) == (CACHE_FIELD,)


@pytest.mark.parametrize("output_class", [GenerateDecoderOnlyOutput, GenerateBeamDecoderOnlyOutput])
def test_rebuilt_keeps_the_class_and_the_other_fields(output_class: Any) -> None:
    scores = (torch.zeros(1, 3),)
    output = output_class(sequences=torch.tensor([[5]]), scores=scores, **{CACHE_FIELD: object()})
    before = copy.copy(output.sequences)
    sequences = torch.tensor([[6, 7]])
    again = rebuilt(output, {"sequences": sequences, CACHE_FIELD: None})
    assert type(again) is output_class
    assert again is not output
    assert list(again.keys()) == ["sequences", "scores"]
    assert again.sequences is sequences
    assert again["sequences"] is sequences
    assert again[0] is sequences
    assert again.scores is scores
    assert getattr(again, CACHE_FIELD) is None
    assert isinstance(output.sequences, Tensor)
    assert torch.equal(output.sequences, before)
    assert getattr(output, CACHE_FIELD) is not None


def test_rebuilt_without_changes_has_equal_fields() -> None:
    cache = object()
    output = made(**{CACHE_FIELD: cache})
    again = rebuilt(output, {})
    assert list(again.keys()) == list(output.keys())
    assert getattr(again, CACHE_FIELD) is cache
