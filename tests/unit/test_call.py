"""Binding: the arguments by name, where the prompt is, and what is left to transformers."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.generation.utils import GenerationMixin

from padfix.generation.call import PARAMETERS, SEQUENCE_AXES, GenerateCall, bind
from padfix.generation.compat import CACHE_NAMES
from padfix.registry import Axes

IDS = torch.tensor([[5, 6, 7], [8, 9, 0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
EMBEDS = torch.zeros(2, 3, 4)


def model(*, encoder_decoder: bool = False, main_input: str | None = "input_ids") -> Any:
    named = {} if main_input is None else {"main_input_name": main_input}
    return SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=encoder_decoder), **named)


def bound(*args: Any, of: Any = None, **kwargs: Any) -> GenerateCall:
    call = bind(model() if of is None else of, args, kwargs)
    assert call is not None
    return call


def test_parameters_are_those_of_the_library_in_its_order() -> None:
    signature = inspect.signature(GenerationMixin.generate)
    named = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    assert tuple(named[: len(PARAMETERS)]) == PARAMETERS


@pytest.mark.parametrize(
    ("args", "kwargs", "ids_name"),
    [
        ((IDS,), {}, "inputs"),
        ((), {"inputs": IDS}, "inputs"),
        ((), {"input_ids": IDS}, "input_ids"),
        ((None,), {"input_ids": IDS}, "input_ids"),
        ((), {"inputs": None, "input_ids": IDS}, "input_ids"),
        ((IDS, None, None), {"input_ids": None}, "inputs"),
    ],
)
def test_prompt_is_found_however_it_is_passed(args: tuple[Any, ...], kwargs: dict[str, Any], ids_name: str) -> None:
    call = bound(*args, attention_mask=MASK, **kwargs)
    assert (call.ids_name, call.prompt_name) == (ids_name, ids_name)
    assert call.ids is IDS
    assert call.mask is MASK
    assert (call.batch, call.width, call.prompt_shape) == (2, 3, (2, 3))
    assert (call.mask_name, call.embeds_name, call.is_decoder_prompt) == ("attention_mask", "inputs_embeds", False)


def test_positional_arguments_get_their_names_and_keep_their_objects() -> None:
    values = [IDS, *(object() for _ in PARAMETERS[1:])]
    call = bound(*values, max_length=9)
    assert list(call.arguments) == [*PARAMETERS, "max_length"]
    assert all(call.arguments[name] is value for name, value in zip(PARAMETERS, values, strict=True))


def test_callers_keywords_are_copied_and_left_alone() -> None:
    kwargs = {"input_ids": IDS, "attention_mask": MASK}
    call = bind(model(), (), kwargs)
    assert call is not None
    assert call.arguments is not kwargs
    assert list(kwargs) == ["input_ids", "attention_mask"]


def test_mask_that_was_not_passed_is_none() -> None:
    assert bound(IDS).mask is None
    assert bound(IDS, attention_mask=None).mask is None


def test_mask_of_any_shape_is_kept_for_later_judgement() -> None:
    four_axes = torch.ones(2, 1, 3, 3)
    assert bound(IDS, attention_mask=four_axes).mask is four_axes


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        pytest.param((), {}, id="no prompt"),
        pytest.param((None,), {"input_ids": None}, id="a prompt that is None"),
        pytest.param((IDS,), {"input_ids": IDS}, id="inputs and input_ids"),
        pytest.param((), {"inputs": IDS, "input_ids": IDS}, id="inputs and input_ids as keywords"),
        pytest.param((IDS,), {"inputs": IDS}, id="inputs twice"),
        pytest.param((IDS, None), {"generation_config": None}, id="an argument twice"),
        pytest.param((IDS, *[None] * 40), {}, id="too many arguments"),
        pytest.param(([[5, 6]],), {}, id="a list"),
        pytest.param((IDS.float(),), {}, id="floats"),
        pytest.param((IDS.to(torch.complex64),), {}, id="complex numbers"),
        pytest.param((IDS.bool(),), {}, id="bools"),
        pytest.param((IDS[0],), {}, id="one axis"),
        pytest.param((torch.tensor(5),), {}, id="no axis"),
        pytest.param((IDS[:0],), {}, id="no rows"),
        pytest.param((IDS[:, :0],), {}, id="no columns"),
        pytest.param((IDS,), {"attention_mask": MASK.tolist()}, id="a mask that is a list"),
        pytest.param((), {"inputs_embeds": EMBEDS[0]}, id="embeddings of two axes"),
        pytest.param((), {"inputs_embeds": EMBEDS[:0]}, id="embeddings without rows"),
        pytest.param((), {"inputs_embeds": EMBEDS[:, :0]}, id="embeddings without columns"),
        pytest.param((), {"inputs_embeds": EMBEDS.tolist()}, id="embeddings in a list"),
        pytest.param((IDS,), {"inputs_embeds": EMBEDS.tolist()}, id="ids beside embeddings in a list"),
    ],
)
def test_what_is_no_prompt_is_left_to_transformers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert bind(model(), args, kwargs) is None


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_ids_of_any_integer_type_are_a_prompt(dtype: torch.dtype) -> None:
    assert bound(IDS.to(dtype)).width == 3


def test_ids_of_several_tokens_a_column_are_a_prompt() -> None:
    call = bound(IDS[..., None].expand(2, 3, 4), attention_mask=MASK)
    assert (call.batch, call.width, call.prompt_shape) == (2, 3, (2, 3, 4))


@pytest.mark.parametrize("empty", [torch.zeros(2, 0, dtype=torch.long), torch.zeros(1, 0, dtype=torch.long), None])
@pytest.mark.parametrize("name", ["inputs", "input_ids"])
def test_embeddings_alone_or_beside_empty_ids_are_the_prompt(name: str, empty: torch.Tensor | None) -> None:
    call = bound(**{name: empty}, inputs_embeds=EMBEDS)
    assert (call.ids_name, call.ids, call.prompt_name) == (None, None, "inputs_embeds")
    assert (call.batch, call.width, call.prompt_shape) == (2, 3, (2, 3, 4))


def test_embeddings_beside_ids_give_the_shape() -> None:
    call = bound(IDS[:, :2], inputs_embeds=EMBEDS)
    assert (call.ids_name, call.prompt_name) == ("inputs", "inputs")
    assert (call.batch, call.width) == (2, 3)


@pytest.mark.parametrize(("main_input", "found"), [("input_ids", True), (None, True), ("pixel_values", False)])
def test_inputs_are_ids_only_for_a_model_whose_main_input_they_are(main_input: str | None, found: bool) -> None:
    of = model(main_input=main_input)
    assert (bind(of, (IDS,), {}) is not None) is found
    assert bound(of=of, input_ids=IDS).ids_name == "input_ids"
    if not found:
        assert bound(torch.zeros(2, 3, 8, 8), of=of, input_ids=IDS).ids_name == "input_ids"


# Encoder-decoder models


def test_prompt_of_an_encoder_decoder_is_the_decoders() -> None:
    decoder_ids = torch.tensor([[1, 5], [1, 0]])
    call = bound(
        IDS,
        of=model(encoder_decoder=True),
        attention_mask=MASK,
        decoder_input_ids=decoder_ids,
        decoder_attention_mask=decoder_ids,
    )
    assert (call.ids_name, call.mask_name) == ("decoder_input_ids", "decoder_attention_mask")
    assert call.is_decoder_prompt
    assert call.ids is decoder_ids
    assert call.mask is decoder_ids
    assert (call.batch, call.width) == (2, 2)


def test_decoder_embeddings_are_a_prompt_too() -> None:
    call = bound(IDS, of=model(encoder_decoder=True), decoder_inputs_embeds=EMBEDS)
    assert (call.prompt_name, call.width, call.is_decoder_prompt) == ("decoder_inputs_embeds", 3, True)


@pytest.mark.parametrize("kwargs", [{}, {"attention_mask": MASK}, {"decoder_attention_mask": MASK}])
def test_encoder_side_is_no_prompt(kwargs: dict[str, Any]) -> None:
    assert bind(model(encoder_decoder=True), (IDS,), kwargs) is None


# The value


def test_changed_and_without_give_new_calls() -> None:
    call = bound(IDS, attention_mask=MASK, position_ids=IDS)
    later = call.changed({"attention_mask": None, "max_length": 7}).without("position_ids", "never_there")
    assert list(call.arguments) == ["inputs", "attention_mask", "position_ids"]
    assert call.arguments["attention_mask"] is MASK
    assert later.arguments == {"inputs": IDS, "attention_mask": None, "max_length": 7}
    assert (later.ids_name, later.width) == ("inputs", 3)


def test_get_is_none_for_what_was_not_passed() -> None:
    call = bound(IDS, streamer=None, top_k=3)
    assert (call.get("streamer"), call.get("logits_processor"), call.get("top_k")) == (None, None, 3)


def test_call_is_frozen() -> None:
    with pytest.raises(AttributeError):
        bound(IDS).width = 5  # type: ignore[misc]


def test_every_prompt_tensor_of_the_design_has_its_axes() -> None:
    assert dict(SEQUENCE_AXES) == {
        "position_ids": Axes(batch=-2, prompt=-1, fill=0),
        **dict.fromkeys(
            (
                "inputs_embeds",
                "token_type_ids",
                "mm_token_type_ids",
                "moe_mm_token_type_ids",
                "image_embeds_position_mask",
                "image_attention_mask",
                "cross_attention_mask",
            ),
            Axes(batch=0, prompt=1, fill=0),
        ),
    }
    assert not {*SEQUENCE_AXES} & {"input_ids", "attention_mask", *CACHE_NAMES}


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2, 3), -2), ((3, 2, 3), -2), ((1, 3), None), ((2,), None), ((), None), ((2, 3, 1), None)],
)
def test_rows_of_positions_are_on_the_last_axis_but_one(shape: tuple[int, ...], axis: int | None) -> None:
    assert bound(IDS, position_ids=torch.zeros(shape)).rows_axis("position_ids") == axis
