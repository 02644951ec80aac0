"""Every text model that transformers maps: each row of a padded batch gets what its prompt gets alone, silently."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from facts import RELEASE
from oracle import PADDERS, Reply, alone, compare, right_padded, together
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import padfix

from .overrides import OVERRIDES
from .parameters import MARKS, each_of
from .text import (
    CALL,
    CAUSAL,
    FAULTS,
    NO_SINGLE_TOKEN,
    NOT_HERE,
    PAD,
    RETIRED,
    SEQ2SEQ,
    STOCK_FAILS,
    VARIANTS,
    Case,
    cases,
    exception_of,
    model_of,
    prompts_for,
    unclassified,
    variants,
)

# Those of the fast tier: of each kind of attention, of positions and of state one.
FAST = {
    "BartForConditionalGeneration",
    "BloomForCausalLM",
    "DeepseekV3ForCausalLM",
    "GPT2LMHeadModel",
    "Gemma3ForCausalLM",
    "LlamaForCausalLM",
    "Mamba2ForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Phi3ForCausalLM, LongRoPE across its switch",
    "RwkvForCausalLM",
    "T5ForConditionalGeneration",
    "WhisperForCausalLM",
}

pytestmark = MARKS

each = functools.partial(each_of, fast=FAST, exception_of=exception_of)


# Decoder-only


@each([*cases(CAUSAL), *variants()])
def test_rows_get_what_their_prompts_get_alone(case: Case) -> None:
    model = model_of(case)
    rows = prompts_for(model)
    expected = told_apart(alone(model, rows, distinct=False, **case.call))
    batch = PADDERS["right"](rows, pad=PAD)
    compare(together(model, batch, **case.call), expected)
    with padfix.suppressed():
        pads_matter(together(model, batch, **case.call), expected)


@each([*cases(CAUSAL), *variants()])
def test_rows_that_the_caller_padded_on_the_left_do_too(case: Case) -> None:
    model = model_of(case)
    rows = prompts_for(model)
    expected = told_apart(alone(model, rows, distinct=False, **case.call))
    compare(together(model, PADDERS["left"](rows, pad=PAD), **case.call), expected)


# Encoder-decoder


@each(cases(SEQ2SEQ))
def test_rows_of_a_decoder_get_what_their_prompts_get_alone(case: Case) -> None:
    model = model_of(case)
    rows = prompts_for(model)
    encoder = right_padded(prompts_for(model, lengths=[9] * len(rows), seed=8))
    expected = told_apart(alone(model, rows, each=lambda row: _decoder_of(encoder, row, rows), distinct=False))
    padded = PADDERS["right"](rows, pad=PAD)
    batch = {**encoder, "decoder_input_ids": padded["input_ids"], "decoder_attention_mask": padded["attention_mask"]}
    compare(together(model, batch), expected)
    with padfix.suppressed():
        pads_matter(together(model, batch), expected)


def _decoder_of(encoder: Mapping[str, torch.Tensor], row: int, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    own = {name: value[row : row + 1] for name, value in encoder.items()}
    return own | {"decoder_input_ids": torch.tensor([rows[row]])}


@each(cases(SEQ2SEQ))
def test_pads_of_an_encoder_are_left_as_they_are(case: Case) -> None:
    model = model_of(case)
    batch = PADDERS["right"](prompts_for(model), pad=PAD)
    replies = together(model, batch)
    with padfix.suppressed():
        stock = together(model, batch)
    for got, want in zip(replies, stock, strict=True):
        assert got.tokens == want.tokens
        assert got.logits is not None
        assert want.logits is not None
        assert torch.equal(got.logits, want.logits)


# The suite itself


@pytest.mark.architectures
@pytest.mark.parametrize("mapping", [CAUSAL, SEQ2SEQ])
def test_every_class_is_classified(mapping: str) -> None:
    assert unclassified(mapping) == []


def test_class_that_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = {"llama": "LlamaForCausalLM", "gpt2": "Gpt5ForCausalLM", "bart": "MusicgenForCausalLM"}
    monkeypatch.setattr(modeling_auto, CAUSAL, mapped)
    (line,) = unclassified(CAUSAL)
    assert line.startswith("not classified: Gpt5ForCausalLM: AttributeError: ")
    with pytest.raises(AssertionError, match="not classified: Gpt5ForCausalLM: AttributeError"):
        model_of(cases(CAUSAL)[1])


@pytest.mark.skipif(RELEASE < (5, 24), reason="the tables speak of the newest release")
def test_tables_name_what_is_there() -> None:
    mapped = {name for mapping in (CAUSAL, SEQ2SEQ) for name in getattr(modeling_auto, mapping).values()}
    names = {case.name for case in (*cases(CAUSAL), *cases(SEQ2SEQ), *variants())}
    assert {name for name, reason in NOT_HERE.items() if reason is not RETIRED} <= mapped
    assert set(CALL) | set(NO_SINGLE_TOKEN) <= mapped
    assert FAST | set(FAULTS) | set(STOCK_FAILS) <= names
    assert len(variants()) == len(VARIANTS)
    assert set(OVERRIDES) <= set(CONFIG_MAPPING)


def told_apart(replies: list[Reply]) -> list[Reply]:
    """The replies, where the logits of any two prompts differ by far more than what `compare` allows.

    Raises:
        RuntimeError: They do not, so that rows could change places unseen.
    """
    firsts = torch.stack([reply.logits[0] for reply in replies if reply.logits is not None]).nan_to_num(0, 0, 0)
    apart = torch.cdist(firsts, firsts, p=float("inf")) / firsts.abs().max()
    closest = apart[~torch.eye(len(firsts), dtype=torch.bool)].min().item()
    if not closest > 0.01:
        raise RuntimeError(f"the oracle proves nothing: two prompts alone have logits {closest:.1e} of the scale apart")
    return replies


def pads_matter(stock: Sequence[Reply], expected: Sequence[Reply]) -> None:
    """Fails where transformers itself gives each row what its prompt gets alone."""
    with pytest.raises(AssertionError):
        compare(stock, expected)
