"""PadAwareLogitsProcessor: a processor of the user's own that sees each row without its pads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracle import PADDERS, ROWS, alone, build, check, compare, left_padded, right_padded, together
from torch import Tensor
from transformers import LogitsProcessor

from padfix import PadAwareLogitsProcessor

pytestmark = pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")


class BySum(LogitsProcessor):
    """Bans the id that the sum of the history names, counted from its start, and every third one after its length."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        places = torch.arange(1, input_ids.shape[1] + 1)
        banned = (input_ids * places).sum(1, keepdim=True) % scores.shape[1]
        scores = scores.scatter(1, banned, float("-inf"))
        scores[:, input_ids.shape[1] % 3 :: 3] = float("-inf")
        return scores


def replies(model: Any, batch: dict[str, Tensor], **flags: Any) -> Any:
    processor = PadAwareLogitsProcessor(BySum(), batch["attention_mask"])
    return together(model, batch, logits_processor=[processor], **flags)


def lonely(model: Any, **flags: Any) -> Any:
    return alone(model, ROWS, logits_processor=[BySum()], **flags)


@pytest.fixture(scope="module")
def model() -> Any:
    return build("llama")


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("extra", [0, 2])
def test_a_left_padded_batch_with_padfix_not_installed(model: Any, extra: int, beams: int) -> None:
    flags = {"num_beams": beams, "num_return_sequences": beams}
    compare(replies(model, left_padded(ROWS, pad=77, extra=extra), **flags), lonely(model, **flags))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("side", PADDERS)
def test_a_batch_padded_anywhere_with_padfix_installed(model: Any, side: str, beams: int) -> None:
    flags = {"num_beams": beams, "num_return_sequences": beams}
    compare(replies(model, PADDERS[side](ROWS, pad=77, extra=1), **flags), lonely(model, **flags))


def test_without_it_the_processor_sees_pads(model: Any) -> None:
    with pytest.raises(AssertionError, match="row"):
        check(model, left_padded(ROWS), ROWS, logits_processor=[BySum()])


def shown(mask: Tensor, ids: Tensor) -> list[list[int]]:
    """What the processor is shown of each row."""
    seen: dict[int, list[int]] = {}

    def remember(part: Tensor, scores: Tensor) -> Tensor:
        seen.update({int(row[0]): tokens.tolist() for row, tokens in zip(scores, part, strict=True)})
        return scores

    scores = torch.arange(len(ids))[:, None]
    assert torch.equal(PadAwareLogitsProcessor(remember, mask)(ids, scores), scores)
    return [seen[row] for row in range(len(ids))]


def test_rows_are_shown_without_their_pads() -> None:
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 1, 0]])
    ids = torch.tensor([[3, 9, 4, 8, 5], [9, 9, 6, 9, 7]])
    assert shown(mask, ids) == [[3, 4, 5], [6, 7]]
    assert shown(mask.bool(), ids.repeat_interleave(2, 0)) == [[3, 4, 5], [3, 4, 5], [6, 7], [6, 7]]


def test_a_row_without_a_real_token_is_shown_as_it_is() -> None:
    mask = torch.tensor([[1, 1], [0, 0]])
    assert shown(mask, torch.tensor([[3, 4, 5], [8, 8, 7]])) == [[3, 4, 5], [0, 0, 7]]


@pytest.mark.parametrize("shape", [(3, 5), (2, 3), (5, 9), (0, 5)])
def test_ids_that_do_not_fit_the_mask_are_refused(shape: tuple[int, int]) -> None:
    processor = PadAwareLogitsProcessor(BySum(), right_padded([[3, 4, 5, 6], [7]])["attention_mask"])
    with pytest.raises(ValueError, match="does not fit a plan for 2 rows of 4 columns"):
        processor(torch.zeros(shape, dtype=torch.long), torch.zeros(shape[0], 9))
