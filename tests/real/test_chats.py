"""Chats of SmolLM2 in one batch, through its chat template: each answer is the one that the chat gets alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache

import padfix
from padfix.generation.outputs import cache_fields

from .smollm2 import SmolLM2

pytestmark = pytest.mark.real

ASKED = (
    ("What is the capital of France?", "And of Italy?"),
    ("Hi!", "Name three colours."),
    ("How many hours are there in a day? Answer in one short sentence.", "And how many minutes in an hour?"),
)
CALL: dict[str, Any] = {"do_sample": False, "max_new_tokens": 24, "return_dict_in_generate": True}


def alone(smollm2: SmolLM2) -> list[list[str]]:
    """The answers of each chat that is held alone, its messages tokenized anew each turn, without a cache."""
    found = []
    with padfix.suppressed():
        for questions in ASKED:
            messages: list[dict[str, str]] = []
            answers = []
            for question in questions:
                messages.append({"role": "user", "content": question})
                batch = tokenized(smollm2, [messages], "right")
                out = smollm2.model.generate(**batch, **CALL)
                answers += said(smollm2, out.sequences, batch["input_ids"].shape[1])
                messages.append({"role": "assistant", "content": answers[-1]})
            found.append(answers)
    return found


def tokenized(smollm2: SmolLM2, chats: list[list[dict[str, str]]], side: str) -> Any:
    texts = [smollm2.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
    return smollm2.tokenizer(texts, padding=True, padding_side=side, return_tensors="pt", add_special_tokens=False)


def said(smollm2: SmolLM2, sequences: torch.Tensor, width: int) -> list[str]:
    return [text.strip() for text in smollm2.tokenizer.batch_decode(sequences[:, width:], skip_special_tokens=True)]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("cached", [False, True])
def test_chats_that_are_tokenized_anew(smollm2: SmolLM2, side: str, cached: bool) -> None:
    """With the idiom of one cache that is passed in every turn."""
    padfix.install()
    chats: list[list[dict[str, str]]] = [[] for _ in ASKED]
    answers: list[list[str]] = [[] for _ in ASKED]
    held: dict[str, Any] = {}
    for turn in range(2):
        for chat, questions in zip(chats, ASKED, strict=True):
            chat.append({"role": "user", "content": questions[turn]})
        batch = tokenized(smollm2, chats, side)
        out = smollm2.model.generate(**batch, **CALL, **held)
        name = cache_fields(out)[0]
        held = {name: getattr(out, name)} if cached else {}
        for row, text in enumerate(said(smollm2, out.sequences, batch["input_ids"].shape[1])):
            answers[row].append(text)
            chats[row].append({"role": "assistant", "content": text})
    padfix.uninstall()
    assert answers == alone(smollm2)
    assert len({tuple(one) for one in answers}) == len(ASKED)


def test_one_cache_for_every_turn(smollm2: SmolLM2) -> None:
    """An empty one that the caller brings, right-padded turns beside the sequences."""
    padfix.install()
    tokenizer, eos = smollm2.tokenizer, smollm2.model.generation_config.eos_token_id
    ids = mask = torch.zeros(len(ASKED), 0, dtype=torch.long)
    cache = DynamicCache()
    rows: list[list[int]] = [[] for _ in ASKED]
    for turn in range(2):
        texts = [f"<|im_start|>user\n{questions[turn]}<|im_end|>\n<|im_start|>assistant\n" for questions in ASKED]
        new = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt", add_special_tokens=False)
        ids, mask = torch.cat((ids, new["input_ids"]), 1), torch.cat((mask, new["attention_mask"]), 1)
        out = smollm2.model.generate(input_ids=ids, attention_mask=mask, **CALL, **{cache_argument(smollm2): cache})
        is_end = (out.sequences[:, ids.shape[1] :] == eos).long()
        mask = torch.cat((mask, (is_end.cumsum(1) == is_end).long()), 1)
        for row, text in enumerate(texts):
            prompt = rows[row] + tokenizer(text, add_special_tokens=False)["input_ids"]
            with padfix.suppressed():
                rows[row] = smollm2.model.generate(torch.tensor([prompt]), **CALL).sequences[0].tolist()
        ids = out.sequences
    assert [one[real.bool()].tolist() for one, real in zip(ids, mask, strict=True)] == rows
    assert cache.get_seq_length() == ids.shape[1] - 1


def cache_argument(smollm2: SmolLM2) -> str:
    out = smollm2.model.generate(torch.tensor([[1, 2, 3]]), **CALL | {"max_new_tokens": 2})
    return cache_fields(out)[0]
