"""The text-generation pipeline with a batch size: every prompt and chat gets what it gets unbatched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import recipes
from recipes import COUNTS_PADS, PROMPTS
from transformers import pipeline

import padfix
from padfix.loading import embedded

ARGUMENTS: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "return_full_text": False}
FLAGS: tuple[dict[str, Any], ...] = (
    {},
    COUNTS_PADS,
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.4},
    {"num_beams": 2},
)
CHATS = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"

pytestmark = [
    # Of transformers 5.0, which passes itself what it deprecates.
    pytest.mark.filterwarnings("ignore:Passing `generation_config` together with"),
]


@pytest.fixture(params=["the tokenizer's side", "right"])
def pipe(request: pytest.FixtureRequest) -> Any:
    model, tokenizer = embedded()
    made = pipeline("text-generation", model=model, tokenizer=tokenizer)
    if request.param == "right":  # from 5.24 the pipeline turns its tokenizer to the left
        tokenizer.padding_side = "right"
    return made


def replied(records: Iterable[Any]) -> list[str]:
    return [one["generated_text"] for each in records for one in each]


def three_ways(pipe: Any, prompts: Any, **arguments: Any) -> tuple[list[str], list[str], list[str]]:
    """The replies unbatched, in batches without padfix, and with it."""
    unbatched, stock = replied(pipe(prompts, **arguments)), replied(pipe(prompts, batch_size=5, **arguments))
    padfix.install()
    return unbatched, stock, replied(pipe(prompts, batch_size=5, **arguments))


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_prompts_get_what_they_get_unbatched(pipe: Any, flags: Mapping[str, Any]) -> None:
    unbatched, stock, repaired = three_ways(pipe, PROMPTS, **ARGUMENTS, **flags)
    assert repaired == unbatched
    assert len(set(unbatched)) == len(PROMPTS)
    assert (stock != unbatched) is (pipe.tokenizer.padding_side == "right" or flags == COUNTS_PADS)


def test_chats_get_what_they_get_unbatched(pipe: Any) -> None:
    pipe.tokenizer.chat_template = TEMPLATE
    unbatched, stock, repaired = three_ways(pipe, CHATS, **ARGUMENTS)
    assert repaired == unbatched
    assert (stock != unbatched) is (pipe.tokenizer.padding_side == "right")


def test_the_whole_text_begins_with_the_prompt(pipe: Any) -> None:
    arguments = {**ARGUMENTS, "return_full_text": True}
    unbatched, stock, repaired = three_ways(pipe, PROMPTS, **arguments)
    assert repaired == unbatched
    assert all(map(str.startswith, repaired, PROMPTS))
    assert (stock != unbatched) is (pipe.tokenizer.padding_side == "right")


def test_ids_of_a_batch_without_pads_or_with_pads_on_the_left_are_stocks_own(pipe: Any) -> None:
    prompts = PROMPTS if pipe.tokenizer.padding_side == "left" else [PROMPTS[3]] * 4
    arguments = {"max_new_tokens": 12, "do_sample": False, "return_tensors": True, "batch_size": 4}
    stock = pipe(prompts, **arguments)
    padfix.install("strict")
    assert pipe(prompts, **arguments) == stock


def test_strict_mode_names_the_rows_that_a_pipeline_pads_on_the_right(pipe: Any) -> None:
    padfix.install("strict")
    pipe.tokenizer.padding_side = "right"
    with pytest.raises(padfix.RightPaddingError, match="input_ids"):
        pipe(PROMPTS, batch_size=4, **ARGUMENTS)


def test_recipe() -> None:
    model, tokenizer = embedded()
    ran = recipes.run("The text-generation pipeline", model=model, tokenizer=tokenizer)
    assert replied(ran["replies"]) == recipes.alone(model, tokenizer)
