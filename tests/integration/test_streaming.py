"""The text streamers of transformers: one prompt of a fixed width, from a thread; several prompts they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import recipes
from recipes import PROMPTS
from transformers import TextIteratorStreamer, TextStreamer

import padfix
from padfix.loading import embedded


def heard(model: Any, tokenizer: Any, prompt: str, side: str) -> str:
    """What a streamer is given of the reply to a prompt in a batch of fixed width."""
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=60)
    batch = tokenizer([prompt], padding="max_length", max_length=40, padding_side=side, return_tensors="pt")
    model.generate(**batch, streamer=streamer, max_new_tokens=12, do_sample=False)
    return "".join(streamer)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_of_fixed_width_is_streamed_as_alone(side: str) -> None:
    model, tokenizer = embedded()
    stock = [heard(model, tokenizer, prompt, side) for prompt in PROMPTS]
    padfix.install()
    streamed = [heard(model, tokenizer, prompt, side) for prompt in PROMPTS]
    assert streamed == recipes.alone(model, tokenizer)
    assert (stock == streamed) is (side == "left")


@pytest.mark.parametrize("mode", ["off", "fix"])
def test_several_prompts_are_refused_by_the_streamer_with_padfix_and_without(mode: Any) -> None:
    model, tokenizer = embedded()
    padfix.install(mode)
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    with pytest.raises(ValueError, match="TextStreamer only supports batch size 1"):
        model.generate(**batch, streamer=TextStreamer(tokenizer), max_new_tokens=12, do_sample=False)


def test_recipe() -> None:
    model, tokenizer = embedded()
    for at, prompt in enumerate(PROMPTS):
        ran = recipes.run("Streamers", model=model, tokenizer=tokenizer, prompts=PROMPTS[at:])
        assert [ran["reply"]] == recipes.alone(model, tokenizer, [prompt])
