"""LangChain's HuggingFacePipeline: a batch of prompts gets what each prompt gets by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import recipes
from recipes import COUNTS_PADS, PROMPTS
from transformers import pipeline

import padfix
from padfix.loading import embedded

langchain = pytest.importorskip("langchain_huggingface")

pytestmark = [pytest.mark.integrations]


def chained(batch_size: int, side: str, **flags: Any) -> Any:
    """A language model of LangChain whose pipeline pads on that side."""
    model, tokenizer = embedded()
    arguments = {"max_new_tokens": 12, "do_sample": False, "return_full_text": False, **flags}
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer, batch_size=batch_size, **arguments)
    tokenizer.padding_side = side
    return langchain.HuggingFacePipeline(pipeline=pipe, batch_size=batch_size)


@pytest.mark.parametrize("flags", [{}, COUNTS_PADS, {"num_beams": 2}], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_batch_gets_what_each_prompt_gets_by_itself(side: str, flags: Mapping[str, Any]) -> None:
    single = [chained(1, side, **flags).invoke(prompt) for prompt in PROMPTS]
    stock = chained(4, side, **flags).batch(PROMPTS)
    padfix.install()
    assert chained(4, side, **flags).batch(PROMPTS) == single
    assert (stock != single) is (side == "right" or flags == COUNTS_PADS)


def test_a_prompt_is_streamed_in_pieces(installed: None) -> None:
    llm = chained(4, "right")
    pieces = list(llm.stream(PROMPTS[-1]))
    assert "".join(pieces) == llm.invoke(PROMPTS[-1])


def test_recipe() -> None:
    model, tokenizer = embedded()
    wanted = recipes.alone(model, tokenizer)
    assert recipes.run("LangChain", model=model, tokenizer=tokenizer)["replies"] == wanted
