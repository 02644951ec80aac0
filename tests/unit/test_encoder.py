"""generation.encoder: the two processors that read an encoder's ids, without its pads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
)

from padfix.generation.encoder import without_pads

PAD = 9
ROWS = [[5, 6, 5], [7], [6, 8]]
LAYOUTS = {
    "right": ([[5, 6, 5, PAD], [7, PAD, PAD, PAD], [6, 8, PAD, PAD]], [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]]),
    "left": ([[PAD, 5, 6, 5], [PAD, PAD, PAD, 7], [PAD, PAD, 6, 8]], [[0, 1, 1, 1], [0, 0, 0, 1], [0, 0, 1, 1]]),
    "holes": ([[5, PAD, 6, 5], [PAD, 7, PAD, PAD], [6, PAD, PAD, 8]], [[1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1]]),
}
SCORES = torch.linspace(-2, 2, 33).reshape(3, 11)
MAKERS: dict[str, Any] = {
    "penalty": lambda ids: EncoderRepetitionPenaltyLogitsProcessor(2.0, ids),
    **{f"{size}-grams": lambda ids, size=size: EncoderNoRepeatNGramLogitsProcessor(size, ids) for size in (1, 2, 3)},
}


def asked(processor: Any, replies: list[list[int]], scores: Tensor = SCORES) -> Tensor:
    given: Tensor = processor(torch.tensor(replies), scores.clone())
    return given


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_row_is_treated_as_its_real_tokens_alone_are(kind: str, layout: str, copies: int) -> None:
    ids, mask = map(torch.tensor, LAYOUTS[layout])
    kept = ids.clone()
    made = MAKERS[kind](ids)
    processor = without_pads(made, ids, {"attention_mask": mask.repeat_interleave(copies, 0)})
    assert processor is not made
    for reply in ([5, 6], [6, 5], [3, 7], [6, 8], [4, PAD]):
        batch = asked(processor, [reply] * 3)
        for row, tokens in enumerate(ROWS):
            single = asked(MAKERS[kind](torch.tensor([tokens])), [reply], SCORES[row : row + 1])
            assert torch.equal(batch[row], single[0]), (row, reply)
    assert torch.equal(ids, kept)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_row_without_a_real_token_keeps_its_ids(kind: str) -> None:
    ids = torch.tensor([[5, 6, 5], [7, 8, PAD]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    processor = without_pads(MAKERS[kind](ids), ids, {"attention_mask": mask})
    reply = [[7, 8]] * 2
    assert torch.equal(asked(processor, reply, SCORES[:2])[1], asked(MAKERS[kind](ids), reply, SCORES[:2])[1])


IDS: Any = torch.tensor([[5, 6, 5], [7, 8, PAD]])


@pytest.mark.parametrize(
    ("ids", "kwargs"),
    [
        (IDS, None),
        (IDS, {}),
        (IDS, {"attention_mask": torch.ones(2, 3)}),
        (IDS, {"attention_mask": torch.tensor([[1, 1], [1, 0]])}),
        (IDS, {"attention_mask": torch.zeros(3, 3)}),
        (IDS, {"attention_mask": torch.zeros(2, 1, 1, 3)}),
        (None, {"attention_mask": torch.zeros(2, 3)}),
        (torch.zeros(2, 3), {"attention_mask": torch.zeros(2, 3)}),
        (torch.zeros(2, 3, 4), {"attention_mask": torch.zeros(2, 3)}),
    ],
    ids=["none", "no mask", "full", "narrow", "other rows", "four axes", "no ids", "values", "features"],
)
def test_what_has_no_pads_to_read_stays(ids: Any, kwargs: Any) -> None:
    processor = EncoderRepetitionPenaltyLogitsProcessor(2.0, IDS)
    assert without_pads(processor, ids, kwargs) is processor
