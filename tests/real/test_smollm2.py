"""A real model: right padding changes most of its replies in stock transformers, and none through padfix.

Eight chat prompts, float32, greedy. The oracle is each prompt as a batch of one, unpadded; that a batch
padded on the left by hand agrees with it shows that the oracle is sane and the tolerance fair.
"""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

import padfix
from padfix.errors import PadfixWarning

from .smollm2 import (
    NEW_TOKENS,
    PROMPTS,
    TOLERANCE,
    Alone,
    Batch,
    Outcome,
    SmolLM2,
    differing,
    greedy,
    greedy_alone,
    greedy_through_padfix,
    new_tokens,
    pad,
)

pytestmark = pytest.mark.real


def logit_error(got: torch.Tensor, alone: Alone) -> float:
    """The largest difference of one row's logits from those of its prompt alone, as a share of their scale.

    `got` has the shape (new, vocabulary); steps after the end of the reply do not count.
    """
    difference = (got[: len(alone.tokens)] - alone.logits).abs().max()
    return float(difference / alone.logits.abs().max())


@pytest.fixture(scope="module")
def alone(smollm2: SmolLM2) -> list[Alone]:
    """Every prompt as a batch of one, without a pad, in plain transformers."""
    return greedy_alone(smollm2.model, smollm2.tokenizer)


@pytest.fixture(scope="module")
def right(smollm2: SmolLM2) -> Batch:
    """The eight prompts padded on the right; all rows but the last have pads."""
    batch = pad(smollm2.tokenizer, PROMPTS, "right")
    lengths = batch.attention_mask.sum(dim=1).tolist()
    assert lengths[-1] == batch.input_ids.shape[1] > max(lengths[:-1])
    assert bool(batch.attention_mask[:, 0].all())
    return batch


def test_alone_the_model_makes_sense(smollm2: SmolLM2, alone: list[Alone]) -> None:
    """The weights were read right; the replies differ from one another and most of them come to an end."""
    eos = smollm2.model.config.eos_token_id
    replies = [smollm2.tokenizer.decode(row.tokens, skip_special_tokens=True) for row in alone]
    assert replies[1] == "The capital of France is Paris."
    assert all(first != second for first, second in itertools.combinations(replies, 2))
    assert sum(int(row.tokens[-1]) == eos for row in alone) >= 6
    assert all(eos not in row.tokens[:-1].tolist() for row in alone)


def test_prompts_start_with_one_bos(smollm2: SmolLM2, right: Batch) -> None:
    """The chat template's BOS is the only one, and the widths are those that the figures are quoted for."""
    bos = smollm2.model.config.bos_token_id
    assert bool((right.input_ids[:, 0] == bos).all())
    assert not bool((right.input_ids[:, 1] == bos).any())
    lengths = right.attention_mask.sum(dim=1)
    assert (int(lengths.min()), int(lengths.max())) == (32, 209)


def test_stock_right_padding_changes_most_replies(smollm2: SmolLM2, alone: list[Alone], right: Batch) -> None:
    """In plain transformers seven of eight replies change: all but that of the row without pads.

    5.24.0: some are an empty line, the others nonsense. 4.46.3: each starts with a wrong token, and some
    then go on otherwise.
    """
    with padfix.suppressed():
        outcome = greedy(smollm2.model.generate, right)
    wrong = differing(
        new_tokens(outcome.sequences, right), [row.tokens for row in alone], smollm2.tokenizer.pad_token_id
    )
    assert len(wrong) > len(PROMPTS) / 2
    assert len(PROMPTS) - 1 not in wrong
    errors = [
        logit_error(outcome.logits[row][:1], Alone(one.tokens[:1], one.logits[:1])) for row, one in enumerate(alone)
    ]
    assert all(error > 100 * TOLERANCE for error in errors[:-1])
    assert errors[-1] <= TOLERANCE


def test_left_padding_by_hand_changes_none(smollm2: SmolLM2, alone: list[Alone]) -> None:
    """Plain transformers gives every prompt its reply alone if the pads are on the left."""
    left = pad(smollm2.tokenizer, PROMPTS, "left")
    with padfix.suppressed():
        outcome = greedy(smollm2.model.generate, left)
    assert_as_alone(outcome, left, alone, smollm2)


def test_padfix_changes_none(smollm2: SmolLM2, alone: list[Alone], right: Batch) -> None:
    """`padfix.generate` gives every prompt of the right-padded batch its reply alone, and its logits."""
    given = Batch(right.input_ids.clone(), right.attention_mask.clone())
    outcome = greedy_through_padfix(smollm2.model, given)
    assert torch.equal(given.input_ids, right.input_ids)
    assert torch.equal(given.attention_mask, right.attention_mask)
    assert_as_alone(outcome, right, alone, smollm2)


@pytest.mark.usefixtures("installed")
def test_padfix_installed_changes_none(smollm2: SmolLM2, alone: list[Alone], right: Batch) -> None:
    """`model.generate` does the same once padfix is installed, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PadfixWarning)
        sequences = smollm2.model.generate(
            input_ids=right.input_ids,
            attention_mask=right.attention_mask,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
    assert_tokens_as_alone(sequences, right, alone, smollm2)


def assert_as_alone(outcome: Outcome, batch: Batch, alone: list[Alone], smollm2: SmolLM2) -> None:
    """Passes if each row has the tokens of its prompt alone and logits within TOLERANCE of those."""
    assert_tokens_as_alone(outcome.sequences, batch, alone, smollm2)
    errors = [logit_error(got, want) for got, want in zip(outcome.logits, alone, strict=True)]
    assert max(errors) <= TOLERANCE, f"Largest logit errors of the rows, as a share of their scale: {errors}"


def assert_tokens_as_alone(sequences: torch.Tensor, batch: Batch, alone: list[Alone], smollm2: SmolLM2) -> None:
    """Passes if each row is the caller's prompt, the tokens of its prompt alone, and only pads after them."""
    width = batch.input_ids.shape[1]
    assert torch.equal(sequences[:, :width], batch.input_ids)
    assert sequences.shape[1] - width == max(len(row.tokens) for row in alone)
    replies = new_tokens(sequences, batch)
    wrong = differing(replies, [row.tokens for row in alone], smollm2.tokenizer.pad_token_id)
    assert not wrong, "Replies that differ from the prompt's alone:\n" + "\n".join(
        f"row {row}: {smollm2.tokenizer.decode(replies[row])!r}, alone {smollm2.tokenizer.decode(alone[row].tokens)!r}"
        for row in wrong
    )
