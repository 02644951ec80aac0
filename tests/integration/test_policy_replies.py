"""BatchPolicy around whole calls: prompts to replies in one batch, each reply the one that its prompt gets alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from facts import RELEASE
from oracle import EOS, PADDERS, ROWS, build
from words import TEMPLATE, WITH_BOS, text, worded

import padfix
from padfix.demo import task
from padfix.loading import embedded
from padfix.policy import BatchPolicy

# Exact in transformers as it is where the batch is padded on the left.
EXACT = ["llama", "mistral", "gpt2", "opt", "bloom", *(["gemma3"] if RELEASE >= (4, 57) else [])]
TEXTS = [text(*row) for row in ROWS]
CHATS = [[{"role": "user", "content": one}] for one in TEXTS]
CALL = {"do_sample": False}


def replies(
    policy: BatchPolicy, generate: Callable[..., Any], model: Any, tokenizer: Any, prompts: Any, **more: Any
) -> list[str]:
    batch, arguments = policy.prepare(model, tokenizer, prompts, max_new_tokens=8)
    return policy.decode_replies(tokenizer, generate(**batch, **arguments, **CALL, **more), batch)


def each_alone(model: Any, tokenizer: Any, prompts: Any, **more: Any) -> list[str]:
    got = [
        reply for one in prompts for reply in replies(BatchPolicy(), model.generate, model, tokenizer, [one], **more)
    ]
    assert len(set(got)) > len(prompts) / 2, f"the replies prove nothing: {got}"
    return got


def repaired(model: Any) -> Callable[..., Any]:
    return lambda **arguments: padfix.generate(model, **arguments)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("prompts", [TEXTS, CHATS, [TEXTS[0], CHATS[1], TEXTS[2]]], ids=["strings", "chats", "both"])
def test_replies_are_those_of_each_prompt_alone(name: str, prompts: Any) -> None:
    model, tokenizer = build(name), worded(WITH_BOS, chats="<s> " + TEMPLATE, pad_token="<unk>")
    alone = each_alone(model, tokenizer, prompts)
    assert replies(BatchPolicy(), model.generate, model, tokenizer, prompts) == alone
    assert replies(BatchPolicy(), repaired(model), model, tokenizer, prompts) == alone
    assert replies(BatchPolicy("right"), repaired(model), model, tokenizer, prompts) == alone


def test_replies_of_beams_are_those_of_each_prompt_alone() -> None:
    model, tokenizer = build("llama"), worded(WITH_BOS)
    beams = {"num_beams": 3, "num_return_sequences": 2}
    alone = each_alone(model, tokenizer, TEXTS, **beams)
    assert len(alone) == 2 * len(TEXTS)
    assert replies(BatchPolicy(), model.generate, model, tokenizer, TEXTS, **beams) == alone
    assert replies(BatchPolicy("right"), repaired(model), model, tokenizer, TEXTS, **beams) == alone


def test_pad_that_is_eos_ends_no_prompt_and_every_reply() -> None:
    model = build("llama")
    model.generation_config.pad_token_id = None
    ends = int(model.generate(torch.tensor([[1, *ROWS[1]]]), max_new_tokens=3, **CALL)[0, -1])
    model.generation_config.eos_token_id = ends
    tokenizer = worded(WITH_BOS, eos_token=f"w{ends}")
    batch, arguments = BatchPolicy().prepare(model, tokenizer, TEXTS, max_new_tokens=8)
    assert arguments["pad_token_id"] == ends
    generated = model.generate(**batch, **arguments, **CALL)
    got = BatchPolicy().decode_replies(tokenizer, generated, batch)
    assert got == each_alone(model, tokenizer, TEXTS)
    assert [len(reply.split()) for reply in got][1] < 8  # it ended, and what came after it is not in it


@pytest.mark.parametrize("layout", PADDERS)
def test_batch_of_any_layout_is_decoded_after_the_repair(layout: str) -> None:
    model, tokenizer = build("llama"), worded(pad_token="<unk>")
    batch = PADDERS[layout](ROWS, extra=2)
    generated = padfix.generate(model, **batch, max_new_tokens=8, **CALL)
    assert BatchPolicy().decode_replies(tokenizer, generated, batch) == each_alone(model, tokenizer, TEXTS)


@pytest.mark.parametrize("side", ["left", "right"])
def test_call_with_embeddings_is_all_reply(side: Any) -> None:
    model, tokenizer = build("llama"), worded(WITH_BOS, pad_token="<unk>")
    batch, arguments = BatchPolicy(side).prepare(model, tokenizer, TEXTS, max_new_tokens=8)
    embeds = model.get_input_embeddings()(batch["input_ids"]).detach()
    given = {"inputs_embeds": embeds, "attention_mask": batch["attention_mask"]}
    generated = padfix.generate(model, **given, **arguments, **CALL)
    alone = each_alone(model, tokenizer, TEXTS)
    assert BatchPolicy().decode_replies(tokenizer, generated, given) == alone
    assert BatchPolicy().decode_replies(tokenizer, generated, batch) == alone


def test_encoder_decoder_model_gets_what_each_prompt_gets_alone() -> None:
    model, tokenizer = build("bart"), worded("$A </s>", pad_token="<unk>")
    got = replies(BatchPolicy(), model.generate, model, tokenizer, TEXTS)
    assert got == each_alone(model, tokenizer, TEXTS)
    assert all(reply and "<s>" not in reply for reply in got)


def test_embedded_model_answers_without_the_leak_that_counting_real_tokens_brings() -> None:
    model, tokenizer = embedded()
    words = ("transforms", "to", "a", "batch")
    policy = BatchPolicy()
    batch, arguments = policy.prepare(model, tokenizer, list(map(task.prompt, words)), task.MAX_NEW_TOKENS)
    generated = model.generate(**batch, **arguments, **CALL)
    widespread = [
        tokenizer.decode(row[length:], skip_special_tokens=True)
        for row, length in zip(generated, batch["attention_mask"].sum(1).tolist(), strict=True)
    ]
    assert widespread == ["smrofsnart", "se: to =ot", "erse: a =a", "tch =hctab"]
    assert policy.decode_replies(tokenizer, generated, batch) == list(map(task.answer, words))
    assert batch.end_token_ids == (EOS,)


def test_cut_prompt_is_continued_from_its_end() -> None:
    model, tokenizer = build("gpt2", n_positions=12), worded(WITH_BOS)
    with pytest.warns(padfix.PadfixWarning, match="Cut off"):
        batch, arguments = BatchPolicy().prepare(model, tokenizer, TEXTS, max_new_tokens=8)
    got = BatchPolicy().decode_replies(tokenizer, model.generate(**batch, **arguments, **CALL), batch)
    kept = [text(*row[-3:]) for row in ROWS]
    assert got == each_alone(model, tokenizer, kept)
