"""Prompts with pictures, several in a row and none in others, in padded batches against each prompt alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from facts import RELEASE
from oracle import GREEDY, PADDERS, VOCABULARY, Reply, alone, check, compare, left_padded, right_padded, together
from pictures import DECODING, IMAGE, MODELS, Prompt, apart, build, inputs_of, is_there, prompts_of
from torch import Tensor
from transformers import BlipConfig, BlipForConditionalGeneration

import padfix
from padfix import PadfixWarning, UnsupportedCallError
from padfix.generation.compat import positions_advance
from padfix.generation.exceptions import EXACT_SINCE

PAD = 57
ARGUMENTS: dict[str, Any] = {"pad_token_id": PAD, **DECODING}
THERE = [name for name in MODELS if is_there(name)]
# As many pictures as rows by chance; each row one; none in the first; none but one.
SHARES = [(2, 0, 1, 1), (1, 1, 1, 1), (0, 3, 1), (0, 2, 0)]

pytestmark = [pytest.mark.filterwarnings("ignore:the field .* of this output is None")]


@pytest.fixture(autouse=True)
def repairing() -> Iterator[None]:
    padfix.install("fix", strategy="equal_length")
    yield
    padfix.uninstall()


def ids_of(prompts: list[Prompt]) -> list[list[int]]:
    return [prompt.ids for prompt in prompts]


def expected_of(model: Any, prompts: list[Prompt]) -> list[Reply]:
    return alone(model, ids_of(prompts), each=apart(model, prompts), **ARGUMENTS)


@pytest.mark.parametrize("name", THERE)
@pytest.mark.parametrize("layout", PADDERS)
def test_pictures_follow_rows_that_run_apart(name: str, layout: str) -> None:
    model, prompts = build(name), prompts_of(name)
    batch = inputs_of(model, prompts, PADDERS[layout], pad=PAD)
    check(model, batch, ids_of(prompts), each=apart(model, prompts), **ARGUMENTS)


@pytest.mark.parametrize("name", THERE)
@pytest.mark.parametrize("share", SHARES)
def test_every_share_of_pictures_is_told(name: str, share: tuple[int, ...]) -> None:
    model, prompts = build(name), prompts_of(name, share)
    check(
        model,
        inputs_of(model, prompts, right_padded, pad=PAD),
        ids_of(prompts),
        each=apart(model, prompts),
        **ARGUMENTS,
    )


@pytest.mark.parametrize("name", THERE)
@pytest.mark.parametrize("layout", PADDERS)
def test_pictures_follow_rows_as_padfix_chooses(name: str, layout: str) -> None:
    padfix.install("fix", strategy="auto")
    model, prompts = build(name), prompts_of(name)
    batch = inputs_of(model, prompts, PADDERS[layout], pad=PAD)
    check(model, batch, ids_of(prompts), each=apart(model, prompts), **ARGUMENTS)


@pytest.mark.parametrize("name", THERE)
def test_picture_decides_the_reply(name: str) -> None:
    model, prompts = build(name), prompts_of(name)
    media = dict(prompts[3].media) | {"pixel_values": prompts[3].media["pixel_values"].flip(-1)}
    replies = expected_of(model, [prompts[2], Prompt(prompts[3].ids, media)])
    with pytest.raises(AssertionError):
        compare(replies[1:], expected_of(model, [prompts[2], prompts[3]])[1:])


@pytest.mark.skipif(not is_there("llava_next"), reason="this release answers no prompt without a picture")
def test_pictures_that_adjoin_and_differ_cannot_be_told_and_are_named() -> None:
    model, prompts = build("llava_next"), prompts_of("llava_next")
    joined = Prompt([one for one in prompts[0].ids if one != 41], prompts[0].media)  # 41 stands between
    batch = inputs_of(model, [joined, *prompts[1:]], left_padded, pad=PAD)
    padfix.install("strict", strategy="equal_length")
    with pytest.raises(UnsupportedCallError, match=r"pixel_values= .what belongs to a row cannot be told") as raised:
        model.generate(**batch, **GREEDY, **ARGUMENTS)
    assert "image_sizes=" in str(raised.value)


@pytest.mark.skipif(not is_there("llava"), reason="this release answers no prompt without a picture")
def test_pictures_of_one_size_may_adjoin() -> None:
    model, prompts = build("llava"), prompts_of("llava", (3, 0, 1))
    assert IMAGE in prompts[0].ids[4:6]
    batch = inputs_of(model, prompts, right_padded, pad=PAD)
    check(model, batch, ids_of(prompts), each=apart(model, prompts), **ARGUMENTS)


# Positions on several axes


@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("name", [name for name in ("qwen2_vl", "hunyuan_vl") if is_there(name)])
def test_what_a_call_leaves_in_the_model_does_not_reach_the_next(name: str, strategy: Any) -> None:
    padfix.install("fix", strategy=strategy)
    model, prompts = build(name), prompts_of(name)
    expected = expected_of(model, prompts)
    batch = inputs_of(model, prompts, right_padded, pad=PAD)
    for _ in range(2):
        compare(together(model, batch, **ARGUMENTS), expected)
        for row in (0, 1, 3):
            compare(together(model, apart(model, prompts)(row), **ARGUMENTS), [expected[row]])


@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("layout", PADDERS)
def test_positions_of_one_axis_never_reach_a_model_with_several(layout: str, strategy: Any) -> None:
    padfix.install("fix", strategy=strategy)
    model, prompts = build("qwen2_vl"), prompts_of("qwen2_vl")
    batch = inputs_of(model, prompts, PADDERS[layout], pad=PAD)
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    compare(together(model, batch, **ARGUMENTS), expected_of(model, prompts))


@pytest.mark.skipif(not positions_advance(), reason="a prompt alone raises with such positions")
@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("layout", PADDERS)
def test_positions_of_several_axes_move_with_their_tokens(layout: str, strategy: Any) -> None:
    padfix.install("fix", strategy=strategy)
    model, prompts = build("qwen2_vl"), prompts_of("qwen2_vl")

    def own(row: int) -> dict[str, Tensor]:
        inputs = apart(model, prompts)(row)
        columns = torch.arange(len(prompts[row].ids))
        return inputs | {"position_ids": torch.stack((columns * 2, columns * 3 // 2, columns))[:, None]}

    batch = inputs_of(model, prompts, PADDERS[layout], pad=PAD)
    positions = torch.full((3, *batch["input_ids"].shape), 77)
    for row in range(len(prompts)):
        positions[:, row, batch["attention_mask"][row] == 1] = own(row)["position_ids"][:, 0]
    expected = alone(model, ids_of(prompts), each=own, **ARGUMENTS)
    with pytest.raises(AssertionError):
        compare(expected, expected_of(model, prompts))
    compare(together(model, batch | {"position_ids": positions}, **ARGUMENTS), expected)


# BLIP writes its start token into the first column and cuts the last one off before padfix sees the call


@functools.cache
def captioner() -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = sizes | {"vocab_size": VOCABULARY, "encoder_hidden_size": 32, "hidden_dropout_prob": 0.0}
    text |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": PAD, "sep_token_id": 4}
    torch.manual_seed(0)
    config = BlipConfig(text_config=text, vision_config=sizes | {"image_size": 32}, image_text_hidden_size=32)
    model = BlipForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3) if weight.ndim >= 2 else weight.add_(torch.randn_like(weight) * 0.1)
        model.text_decoder.cls.predictions.decoder.weight.copy_(torch.randn(VOCABULARY, 32))  # it is a tied one
    return model


CAPTIONS = [[5, 17, 33, 8, 61], [11, 42], [71, 13, 55]]


def captions(prompts: list[list[int]], padder: Callable[..., dict[str, Tensor]], pictures: Tensor) -> list[list[int]]:
    batch = padder(prompts, pad=PAD)
    output = captioner().generate(pixel_values=pictures, **batch, max_new_tokens=5, do_sample=False)
    return [row[batch["input_ids"].shape[1] - 1 :] for row in output.tolist()]


@pytest.mark.parametrize(("start", "layout", "right"), [(1, "left", True), (3, "left", False), (1, "right", False)])
def test_captions_are_right_or_refused_by_name(start: int, layout: str, right: bool) -> None:
    padfix.install("fix", strategy="auto")
    prompts = [[start, *row, 4] for row in CAPTIONS]
    pictures = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    with padfix.suppressed():
        expected = [captions([one], right_padded, pictures[[row]])[0] for row, one in enumerate(prompts)]
    assert len(set(map(tuple, expected))) == len(prompts)
    if right and EXACT_SINCE["BlipTextLMHeadModel"] <= RELEASE:
        assert captions(prompts, PADDERS[layout], pictures) == expected
        return
    with pytest.warns(PadfixWarning, match="BlipTextLMHeadModel"):
        assert captions(prompts, PADDERS[layout], pictures) != expected
