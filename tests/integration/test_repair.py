"""A padded batch gets what each prompt gets alone, in the caller's layout, at the price of a left-padded batch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from facts import CACHE_FIELD
from oracle import (
    BOS,
    EOS,
    GREEDY,
    PAD,
    PADDERS,
    ROWS,
    assert_close,
    build,
    check,
    compare,
    embedded,
    left_padded,
    right_padded,
    together,
)
from stock import CACHE_IS_NONE, assert_same, endless, expected, new_tokens, unchanged
from torch import Tensor
from transformers import DynamicCache, GenerationConfig
from transformers.generation.utils import GenerationMixin

import padfix
from padfix import PadfixWarning
from padfix.generation import compat

pytestmark = [pytest.mark.usefixtures("installed"), CACHE_IS_NONE]

NAMES = ("llama", "gpt2", "mistral", "opt", "bloom")
SIDES = tuple(PADDERS)


def _view(tensor: Tensor) -> Tensor:
    """The same values as a view of a larger tensor, neither contiguous nor at its start."""
    wide = torch.full((tensor.shape[0] * 2, tensor.shape[1] + 3), 7, dtype=tensor.dtype)
    wide[::2, 2:-1] = tensor
    return wide[::2, 2:-1]


# How the same batch may be passed.
FORMS: Mapping[str, Callable[[dict[str, Tensor]], dict[str, Any]]] = {
    "int mask": dict,
    "int32 mask": lambda batch: batch | {"attention_mask": batch["attention_mask"].int()},
    "bool mask": lambda batch: batch | {"attention_mask": batch["attention_mask"].bool()},
    "float mask": lambda batch: batch | {"attention_mask": batch["attention_mask"].float()},
    "bf16 mask": lambda batch: batch | {"attention_mask": batch["attention_mask"].bfloat16()},
    "int32 ids": lambda batch: batch | {"input_ids": batch["input_ids"].int()},
    "views": lambda batch: {name: _view(value) for name, value in batch.items()},
    "no mask": lambda batch: {"input_ids": batch["input_ids"]},
}


@pytest.mark.parametrize(
    ("name", "form"), [("llama", form) for form in FORMS] + [(name, "no mask") for name in NAMES[1:]]
)
@pytest.mark.parametrize("side", SIDES)
def test_a_padded_batch_gets_what_each_prompt_gets_alone(name: str, side: str, form: str) -> None:
    batch = FORMS[form](PADDERS[side](ROWS))
    compare(together(build(name), batch), expected(name))


@pytest.mark.parametrize("unset", [False, True], ids=["pad set to EOS", "pad unset"])
@pytest.mark.parametrize("side", ["right", "left", "both"])
@pytest.mark.parametrize("name", ["llama", "opt"])
def test_without_a_mask_runs_of_pads_that_are_eos_are_inferred_with_a_warning(
    name: str, side: str, unset: bool
) -> None:
    model = build(name)
    model.generation_config.pad_token_id = None if unset else EOS
    batch = {"input_ids": PADDERS[side](ROWS, pad=EOS)["input_ids"]}
    with pytest.warns(PadfixWarning, match=r"Rows 1, 2 of input_ids \(shape \(3, 7\)\) start or end in more pad ids"):
        replies = together(model, batch)
    compare(replies, expected(name))


@pytest.mark.parametrize("pads", [PAD, EOS])
@pytest.mark.parametrize("side", SIDES)
def test_a_mask_is_all_it_takes_where_the_pad_id_is_unset(side: str, pads: int) -> None:
    model = build("llama")
    model.generation_config.pad_token_id = None
    compare(together(model, PADDERS[side](ROWS, pad=pads)), expected("llama"))


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAMES)
def test_one_padded_prompt_gets_what_it_gets_unpadded(name: str, side: str, masked: bool) -> None:
    batch = PADDERS[side](ROWS[1:2], extra=4)
    if not masked:
        del batch["attention_mask"]
    compare(together(build(name), batch), expected(name)[1:2])


def test_one_row_without_a_mask_that_ends_in_pads_that_are_eos_is_content() -> None:
    model = build("llama")
    model.generation_config.pad_token_id = EOS
    batch = {"input_ids": right_padded(ROWS[1:2], pad=EOS, extra=3)["input_ids"]}
    output = model.generate(**batch, **GREEDY)
    with padfix.suppressed():
        assert_same(output, model.generate(**batch, **GREEDY))


@pytest.mark.parametrize("form", ["mask", "expanded mask", "no mask"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_pads_that_all_rows_share_make_no_difference(name: str, side: str, form: str) -> None:
    rows = [ROWS[0], ROWS[0][::-1], ROWS[0][3:] + ROWS[0][:3]]
    batch = PADDERS[side](rows, extra=3)
    if form == "expanded mask":
        batch["attention_mask"] = batch["attention_mask"][:1].expand(3, -1)
    elif form == "no mask":
        del batch["attention_mask"]
    compare(together(build(name), batch), expected(name, rows))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("passed", ["by position", "inputs", "input_ids"])
def test_ids_may_come_by_position_or_by_either_name(passed: str, side: str) -> None:
    model, batch = build("llama"), PADDERS[side](ROWS)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    args = [ids] if passed == "by position" else []
    named = {} if passed == "by position" else {passed: ids}
    output = model.generate(*args, **named, attention_mask=mask, **GREEDY)
    assert torch.equal(output[:, :7], ids)
    for row, reply in enumerate(expected("llama")):
        assert output[row, 7 : 7 + len(reply.tokens)].tolist() == reply.tokens


@pytest.mark.parametrize("with_ids", [False, True], ids=["embeddings alone", "embeddings with ids"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom"])
def test_embeddings_move_with_their_mask(name: str, side: str, with_ids: bool) -> None:
    model, batch = build(name), PADDERS[side](ROWS)
    embeds: dict[str, Any] = embedded(model, batch)
    if with_ids:
        embeds["input_ids"] = batch["input_ids"]
    compare(together(model, embeds), expected(name))


@pytest.mark.parametrize("side", SIDES)
def test_embeddings_may_stand_beside_empty_ids(side: str) -> None:
    model = build("llama")
    embeds = embedded(model, PADDERS[side](ROWS)) | {"input_ids": torch.zeros(3, 0, dtype=torch.long)}
    compare(together(model, embeds), expected("llama"))


@pytest.mark.parametrize("pad", [99, -1])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_masked_cells_may_hold_ids_that_the_embedding_has_no_row_for(name: str, side: str, pad: int) -> None:
    compare(together(build(name), PADDERS[side](ROWS, pad=pad)), expected(name))


@pytest.mark.filterwarnings("ignore:`pad_token_id` should be positive:UserWarning")
@pytest.mark.parametrize("given", ["keyword", "passed config", "model"])
@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
@pytest.mark.parametrize("pad", [104, -1])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_pad_id_outside_the_vocabulary_follows_a_reply_that_ends_early(
    side: str, pad: int, masked: bool, given: str
) -> None:
    model = build("llama")
    end = expected("llama")[2].tokens[1]  # ends that row alone, at its second token
    batch = PADDERS[side](ROWS, pad=pad)
    if not masked:
        del batch["attention_mask"]
    arguments: dict[str, Any] = {"eos_token_id": end}
    model.generation_config.eos_token_id = end
    if given == "keyword":
        arguments["pad_token_id"] = pad
    elif given == "model":
        model.generation_config.pad_token_id = pad
    else:
        arguments = {"generation_config": GenerationConfig(pad_token_id=pad, eos_token_id=end, **GREEDY)}
    output = model.generate(**batch, **(arguments if given == "passed config" else GREEDY | arguments))
    assert torch.equal(output[:, :7], batch["input_ids"])
    wanted = new_tokens(model, ROWS, **GREEDY, eos_token_id=end, pad_token_id=0)
    assert [len(one) for one in wanted] != [6, 6, 6]
    for row, reply in enumerate(wanted):
        assert output[row, 7 : 7 + len(reply)].tolist() == reply
        assert set(output[row, 7 + len(reply) :].tolist()) <= {pad}
    assert (output[:, 7:] == pad).any()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_a_real_token_is_named_and_the_others_are_right(name: str, side: str) -> None:
    batch = PADDERS[side]([ROWS[0], [], *ROWS[1:]])
    with pytest.warns(PadfixWarning, match=r"Row 1 of input_ids \(shape \(4, 7\)\) has no real token") as seen:
        replies = together(build(name), batch)
    assert sum("no real token" in str(one.message) for one in seen) == 1
    compare([replies[0], *replies[2:]], expected(name))


def test_several_rows_without_a_real_token_share_one_warning() -> None:
    batch = right_padded([[], ROWS[1], [], ROWS[2]])
    with pytest.warns(PadfixWarning, match=r"Rows 0, 2 of input_ids \(shape \(4, 5\)\) have no real token") as seen:
        replies = together(build("llama"), batch)
    assert sum("no real token" in str(one.message) for one in seen) == 1
    compare([replies[1], replies[3]], expected("llama")[1:])


def test_a_batch_without_any_real_token_is_left_as_it_is_with_a_warning() -> None:
    model, batch = build("llama"), right_padded([[], []], extra=3)
    with pytest.warns(PadfixWarning, match="Rows 0, 1 .* have no real token"):
        output = model.generate(**batch, **GREEDY)
    with padfix.suppressed():
        assert_same(output, model.generate(**batch, **GREEDY))


def _implied(batch: Mapping[str, Tensor], step: int = 1) -> Tensor:
    return ((batch["attention_mask"].cumsum(1) - 1) * step).clamp(min=0)


POSITIONS: Mapping[str, Callable[[Mapping[str, Tensor]], Tensor]] = {
    "implied": _implied,
    "implied, 1 under pads": lambda batch: _implied(batch).where(batch["attention_mask"] != 0, 1),
    "arange": lambda batch: torch.arange(7).expand(3, 7),
    "arange of one row": lambda batch: torch.arange(7)[None],
}


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_position_ids_that_say_what_the_mask_says_make_no_difference(name: str, side: str, positions: str) -> None:
    batch = PADDERS[side](ROWS)
    batch["position_ids"] = POSITIONS[positions](batch)
    compare(together(build(name), batch), expected(name))


@pytest.mark.skipif(not compat.positions_advance(), reason="this release does not carry position_ids on")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_position_ids_of_another_kind_move_with_their_tokens(name: str, side: str) -> None:
    batch = PADDERS[side](ROWS)
    batch["position_ids"] = _implied(batch, step=3)
    check(build(name), batch, ROWS, each=lambda row: {"position_ids": torch.arange(len(ROWS[row]))[None] * 3})


@pytest.mark.skipif(compat.positions_advance(), reason="this release carries position_ids on")
@pytest.mark.parametrize("side", SIDES)
def test_position_ids_of_another_kind_are_warned_about_where_they_are_not_carried_on(side: str) -> None:
    batch = PADDERS[side](ROWS)
    batch["position_ids"] = _implied(batch, step=3)
    model = build("llama")
    with pytest.warns(PadfixWarning, match="position_ids= differ from what the attention_mask implies"):
        output = model.generate(**batch, **GREEDY | {"max_new_tokens": 1})
    for row, prompt in enumerate(ROWS):
        with padfix.suppressed():
            single = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt)),
                position_ids=torch.arange(len(prompt))[None] * 3,
                **GREEDY | {"max_new_tokens": 1},
            )
        assert output[row, -1] == single[0, -1]


@pytest.mark.skipif(not compat.positions_advance(), reason="this release does not carry position_ids on")
@pytest.mark.parametrize("planes", [3, 4])
@pytest.mark.parametrize("rows", ["each", "one"])
@pytest.mark.parametrize("side", SIDES)
def test_position_ids_of_several_planes_move_with_their_tokens(side: str, rows: str, planes: int) -> None:
    if rows == "one" and side != "right":
        pytest.skip("one row of positions fits rows that start together")
    model, batch = _instance(PlanesLlama), PADDERS[side](ROWS)
    flat = _implied(batch) if rows == "each" else torch.arange(7)[None]
    batch["position_ids"] = torch.stack([flat * (plane + 1) for plane in range(planes)])

    def own(row: int) -> dict[str, Tensor]:
        columns = torch.arange(len(ROWS[row]))[None]
        return {"position_ids": torch.stack([columns * (plane + 1) for plane in range(planes)])}

    check(model, batch, ROWS, each=own)


class PlanesLlama(transformers.LlamaForCausalLM):
    """Reads the last plane of its positions, as a stand-in for models of text and images."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if position_ids is not None and position_ids.ndim == 3:
            position_ids = position_ids[-1]
        return super().forward(input_ids, attention_mask=attention_mask, position_ids=position_ids, **kwargs)


class AlignedLlama(transformers.LlamaForCausalLM):
    """Takes every tensor that is aligned with the prompt, and keeps what it got at the prefill."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        mm_token_type_ids: Tensor | None = None,
        moe_mm_token_type_ids: Tensor | None = None,
        image_embeds_position_mask: Tensor | None = None,
        image_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        seen = {name: value for name, value in locals().items() if isinstance(value, Tensor)}
        if not hasattr(self, "seen"):
            self.seen = seen
        return super().forward(input_ids, attention_mask=attention_mask, **kwargs)


def _instance(model_class: type[Any]) -> Any:
    model = build("llama")
    model.__class__ = model_class
    return model


@pytest.mark.parametrize(
    ("argument", "trailing"),
    [
        ("token_type_ids", ()),
        ("mm_token_type_ids", ()),
        ("moe_mm_token_type_ids", ()),
        ("image_embeds_position_mask", ()),
        ("image_attention_mask", (2,)),
        ("cross_attention_mask", (2, 3)),
    ],
)
@pytest.mark.parametrize("side", ["right", "both", "holes"])
def test_every_tensor_that_is_aligned_with_the_prompt_moves_with_its_tokens(
    side: str, argument: str, trailing: tuple[int, ...]
) -> None:
    model, batch = _instance(AlignedLlama), PADDERS[side](ROWS)
    labels = (batch["input_ids"] % 13).reshape(3, 7, *(1 for _ in trailing)).expand(3, 7, *trailing).contiguous()
    model.generate(**batch, **{argument: labels}, **GREEDY | {"max_new_tokens": 1})
    moved = model.seen[argument]
    assert moved.shape == labels.shape
    for row, prompt in enumerate(ROWS):
        own = moved[row, 7 - len(prompt) :].reshape(len(prompt), -1)
        assert own.tolist() == [[token % 13] * own.shape[1] for token in prompt]


@pytest.mark.parametrize("side", SIDES)
def test_token_types_are_part_of_what_a_prompt_gets_alone(side: str) -> None:
    batch = PADDERS[side](ROWS)
    batch["token_type_ids"] = (batch["input_ids"] % 5) * batch["attention_mask"]
    check(build("gpt2"), batch, ROWS, each=lambda row: {"token_type_ids": torch.tensor([[i % 5 for i in ROWS[row]]])})


NEW = 5


def _length(model: Any, given: str, width: int) -> dict[str, Any]:
    """Arguments that grant NEW tokens to a prompt of so many columns, or the library's default."""
    greedy = {"do_sample": False}
    if given == "keyword":
        return greedy | {"max_length": width + NEW}
    if given == "passed config":
        return {"generation_config": GenerationConfig(max_length=width + NEW, pad_token_id=PAD, **greedy)}
    if given == "keyword over a passed config":
        return {
            "generation_config": GenerationConfig(max_length=width + 20, pad_token_id=PAD, **greedy),
            "max_length": width + NEW,
        }
    if given == "max_new_tokens over max_length":
        return greedy | {"max_length": width + 20, "max_new_tokens": NEW}
    if given == "model":
        model.generation_config.max_length = width + NEW
    return greedy


def _granted(model: Any, width: int, embeds: bool, arguments: Mapping[str, Any]) -> int:
    """The number of new tokens that transformers grants to an unpadded prompt of so many columns.

    Which of the lengths that a config holds count columns differs between releases: docs/releases.md.
    """
    prompt = right_padded([[5 + column for column in range(width)]])
    with padfix.suppressed():
        output = model.generate(**(embedded(model, prompt) if embeds else prompt), **arguments)
    return int(output.shape[1]) - (0 if embeds else width)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
@pytest.mark.parametrize(
    "given",
    [
        "keyword",
        "passed config",
        "keyword over a passed config",
        "max_new_tokens over max_length",
        "model",
        "default",
    ],
)
@pytest.mark.parametrize("embeds", [False, True], ids=["ids", "embeddings"])
@pytest.mark.parametrize(("side", "extra"), [("right", 0), ("right", 8), ("holes", 4)])
def test_lengths_count_the_callers_columns(side: str, extra: int, embeds: bool, given: str) -> None:
    model, batch = endless("llama"), PADDERS[side](ROWS, extra=extra)
    width = 7 + extra
    arguments = _length(model, given, width)
    passed: dict[str, Any] = embedded(model, batch) if embeds else batch
    before = copy.deepcopy(arguments)
    output = model.generate(**passed, **arguments)
    for name, value in before.items():
        assert arguments[name] == value
    with padfix.suppressed():
        stock = model.generate(**passed, **arguments)
    assert output.dtype == stock.dtype
    granted = _granted(model, width, embeds, arguments)
    if given in ("keyword", "keyword over a passed config", "max_new_tokens over max_length"):
        assert granted == NEW
    assert output.shape == stock.shape == (3, granted + (0 if embeds else width))
    assert output[:, -granted:].tolist() == new_tokens(model, ROWS, do_sample=False, max_new_tokens=granted)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")  # the library's own, of 20
@pytest.mark.parametrize("columns", [18, 20, 22])
def test_a_length_that_is_the_librarys_default_by_chance_grants_what_it_grants_without_pads(columns: int) -> None:
    model, batch = endless("llama"), right_padded(ROWS, extra=2)
    in_config = {"generation_config": GenerationConfig(max_length=columns, do_sample=False, pad_token_id=PAD)}
    as_keyword = {"max_length": columns, "do_sample": False}
    assert _granted(model, 9, False, as_keyword) == columns - 9
    for arguments in (in_config, as_keyword):
        granted = _granted(model, 9, False, arguments)
        output = model.generate(**batch, **arguments)
        assert output.shape == (3, 9 + granted)
        assert output[:, 9:].tolist() == new_tokens(model, ROWS, do_sample=False, max_new_tokens=granted)


@pytest.mark.parametrize("side", SIDES)
def test_min_length_counts_the_real_tokens_of_rows_of_one_length(side: str) -> None:
    model, rows = build("llama"), [ROWS[1], ROWS[1][::-1]]
    end = expected("llama")[1].tokens[0]
    model.generation_config.eos_token_id = end
    arguments = GREEDY | {"min_length": 6}
    output = model.generate(**PADDERS[side](rows, extra=5), **arguments)
    wanted = new_tokens(model, rows, **arguments)
    assert len(wanted[0]) > 3
    for row, reply in enumerate(wanted):
        assert output[row, 8 : 8 + len(reply)].tolist() == reply


def test_min_new_tokens_holds_for_every_row() -> None:
    model = build("llama")
    model.generation_config.eos_token_id = expected("llama")[1].tokens[0]
    check(model, right_padded(ROWS), ROWS, min_new_tokens=4, distinct=False)


@pytest.mark.parametrize("side", ["right", "both", "holes"])
def test_a_static_cache_keeps_the_width_of_the_batch(side: str) -> None:
    model, batch = build("llama"), PADDERS[side](ROWS, extra=3)
    widths = _forwards(model, lambda: model.generate(**batch, cache_implementation="static", **GREEDY))
    assert widths[0] == (3, 10)
    check(model, batch, ROWS, cache_implementation="static")


@pytest.mark.parametrize(("name", "returned"), [("llama", 1), *((name, 2) for name in NAMES)])
@pytest.mark.parametrize("side", SIDES)
def test_beams_are_those_of_each_prompt_alone(name: str, side: str, returned: int) -> None:
    check(build(name), PADDERS[side](ROWS, extra=2), ROWS, num_beams=3, num_return_sequences=returned, distinct=False)


@pytest.mark.parametrize("arguments", [{}, {"num_return_sequences": 3}, {"num_beams": 2, "num_return_sequences": 2}])
@pytest.mark.parametrize("side", ["right", "both", "holes"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_sampling_draws_what_the_hand_left_padded_batch_draws(name: str, side: str, arguments: dict[str, int]) -> None:
    model, batch, by_hand = build(name), PADDERS[side](ROWS), left_padded(ROWS)
    draw = {"do_sample": True, "max_new_tokens": 6, "temperature": 1.5, **arguments}
    drawn = []
    for inputs in (batch, batch, by_hand):
        torch.manual_seed(5)
        drawn.append(model.generate(**inputs, **draw))
    copies = arguments.get("num_return_sequences", 1)
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0][:, :7], batch["input_ids"].repeat_interleave(copies, 0))
    assert torch.equal(drawn[0][:, 7:], drawn[2][:, 7:])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("copies", [1, 2])
def test_the_prompt_part_is_the_callers_and_the_dtype_is_stocks(dtype: torch.dtype, copies: int) -> None:
    model, batch = build("llama"), right_padded(ROWS, pad=PAD, extra=2)
    batch["input_ids"] = batch["input_ids"].to(dtype)
    batch["input_ids"][1, -1] = 88  # nobody's content
    beams = {"num_beams": 2, "num_return_sequences": copies} if copies > 1 else {}
    output = model.generate(**batch, **GREEDY, **beams)
    with padfix.suppressed():
        stock = model.generate(**batch, **GREEDY, **beams)
    assert output.dtype == stock.dtype
    assert output.is_contiguous()
    assert torch.equal(output[:, :9], stock[:, :9])
    assert torch.equal(output[:, :9], batch["input_ids"].repeat_interleave(copies, 0))


OUTPUTS: Mapping[str, dict[str, Any]] = {
    "greedy": {},
    "all fields": {"output_scores": True, "output_logits": True},
    "beams": {"num_beams": 2, "output_scores": True},
}


@pytest.mark.parametrize("asked", OUTPUTS)
def test_the_output_keeps_its_class_and_the_order_of_its_fields(asked: str) -> None:
    model, batch = build("llama"), right_padded(ROWS)
    arguments = GREEDY | OUTPUTS[asked] | {"return_dict_in_generate": True}
    output = model.generate(**batch, **arguments)
    with padfix.suppressed():
        stock = model.generate(**batch, **arguments)
    assert type(output) is type(stock)
    assert list(output.keys()) == list(stock)
    assert output[0] is output.sequences
    assert len(output.to_tuple()) == len(stock.to_tuple())


@pytest.mark.skipif(not hasattr(DynamicCache(), "layers"), reason="this release keeps columns beyond the window")
def test_a_cache_that_cannot_be_moved_comes_back_as_none_with_a_warning() -> None:
    model = build("mistral")
    with pytest.warns(PadfixWarning, match=f"the field {CACHE_FIELD} of this output is None"):
        output = model.generate(**right_padded(ROWS), **GREEDY, return_dict_in_generate=True)
    assert getattr(output, CACHE_FIELD) is None


@pytest.mark.parametrize("pad", [PAD, 104])
def test_a_cache_comes_back_where_the_layout_did_not_change(pad: int) -> None:
    model = build("llama")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = model.generate(**left_padded(ROWS, pad=pad), **GREEDY, return_dict_in_generate=True)
    assert getattr(output, CACHE_FIELD) is not None


@pytest.mark.parametrize("side", ["right", "both", "holes"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_transition_scores_of_a_greedy_output_are_those_of_each_prompt_alone(name: str, side: str) -> None:
    model, arguments = build(name), GREEDY | {"return_dict_in_generate": True, "output_scores": True}
    output = model.generate(**PADDERS[side](ROWS, extra=2), **arguments)
    scores = model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
    for row, prompt in enumerate(ROWS):
        with padfix.suppressed():
            single = model.generate(**right_padded([prompt]), **arguments)
        wanted = model.compute_transition_scores(single.sequences, single.scores, normalize_logits=True)
        assert_close(scores[row, : wanted.shape[1]], wanted[0])


@pytest.mark.parametrize("side", ["right", "both", "holes"])
def test_transition_scores_of_beams_are_those_of_each_prompt_alone(side: str) -> None:
    model = endless("llama")
    arguments = GREEDY | {"return_dict_in_generate": True, "output_scores": True, "num_beams": 3}
    output = model.generate(**PADDERS[side](ROWS, extra=2), **arguments)
    scores = model.compute_transition_scores(output.sequences, output.scores, output.beam_indices)
    assert_close(scores.sum(1) / scores.shape[1], output.sequences_scores)
    for row, prompt in enumerate(ROWS):
        with padfix.suppressed():
            single = model.generate(**right_padded([prompt]), **arguments)
        wanted = model.compute_transition_scores(single.sequences, single.scores, single.beam_indices)
        assert_close(scores[row], wanted[0])


def _forwards(model: Any, call: Callable[[], Any]) -> list[tuple[int, ...]]:
    """The shape of the prompt in each forward of the call: (rows, columns)."""
    shapes: list[tuple[int, ...]] = []

    def note(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        prompt = kwargs["inputs_embeds"] if kwargs.get("input_ids") is None else kwargs["input_ids"]
        shapes.append(tuple(prompt.shape[:2]))

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        call()
    finally:
        hook.remove()
    return shapes


@pytest.mark.parametrize(
    "arguments",
    [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}],
    ids=["greedy", "beams", "sampled"],
)
@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("side", ["right", "both", "holes"])
def test_as_many_forwards_of_as_many_rows_as_the_hand_left_padded_batch(
    side: str, extra: int, arguments: dict[str, Any]
) -> None:
    model, arguments = endless("llama"), GREEDY | arguments
    repaired = _forwards(model, lambda: model.generate(**PADDERS[side](ROWS, extra=extra), **arguments))
    with padfix.suppressed():
        by_hand = _forwards(model, lambda: model.generate(**left_padded(ROWS), **arguments))
    assert repaired == by_hand
    assert len(repaired) == 6


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments with which padfix calls the original."""
    padfix.uninstall()
    original, calls = GenerationMixin.generate, []

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(GenerationMixin, "generate", spy)
    padfix.install("fix")
    return calls


UNPADDED: Mapping[str, Callable[[], dict[str, Any]]] = {
    "full mask": lambda: right_padded([ROWS[0], ROWS[0][::-1]]),
    "no mask": lambda: {"input_ids": torch.tensor([ROWS[0], ROWS[0][::-1]])},
    "bool mask": lambda: {"input_ids": torch.tensor([ROWS[0]]), "attention_mask": torch.ones(1, 7).bool()},
    "pad ids under a full mask": lambda: {
        "input_ids": torch.tensor([[5, PAD, 6, PAD], [7, 8, PAD, PAD]]),
        "attention_mask": torch.ones(2, 4).long(),
    },
    "positions": lambda: right_padded([ROWS[0]]) | {"position_ids": torch.arange(7)[None]},
    "config": lambda: (
        right_padded([ROWS[0]]) | {"generation_config": GenerationConfig(max_length=15, pad_token_id=PAD)}
    ),
}


@pytest.mark.parametrize("kind", UNPADDED)
def test_a_call_without_pads_gets_the_callers_own_objects(
    kind: str, spied: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    model, arguments = build("llama"), UNPADDED[kind]()
    if "generation_config" not in arguments:
        arguments |= GREEDY
    output = model.generate(**arguments)
    [(args, kwargs)] = spied
    assert args == ()
    assert list(kwargs) == list(arguments)
    assert all(kwargs[name] is value for name, value in arguments.items())
    with padfix.suppressed():
        assert_same(output, model.generate(**arguments))


def test_a_call_without_pads_keeps_its_arguments_by_position(
    spied: list[tuple[tuple[Any, ...], dict[str, Any]]],
) -> None:
    ids, config = torch.tensor([ROWS[0]]), GenerationConfig(max_new_tokens=3, do_sample=False, pad_token_id=PAD)
    build("llama").generate(ids, config)
    [(args, kwargs)] = spied
    assert len(args) == 2
    assert args[0] is ids
    assert args[1] is config
    assert kwargs == {}


def test_the_right_padded_input_of_an_encoder_is_left_alone(
    spied: list[tuple[tuple[Any, ...], dict[str, Any]]],
) -> None:
    model, batch = build("bart"), right_padded(ROWS)
    output = model.generate(**batch, **GREEDY)
    [(_, kwargs)] = spied
    assert all(kwargs[name] is value for name, value in batch.items())
    with padfix.suppressed():
        assert_same(output, model.generate(**batch, **GREEDY))


@pytest.mark.parametrize("side", SIDES)
def test_nothing_of_the_callers_is_changed(side: str) -> None:
    model, batch = build("gpt2"), PADDERS[side](ROWS, pad=104, extra=2)
    batch["position_ids"] = torch.arange(9)[None]
    batch["token_type_ids"] = torch.ones_like(batch["input_ids"])
    config = GenerationConfig(max_length=21, pad_token_id=104, eos_token_id=[EOS, BOS], do_sample=False)
    arguments: dict[str, Any] = {**batch, "generation_config": config, "stopping_criteria": []}
    generator = torch.get_rng_state()
    with unchanged(model, arguments):
        model.generate(**arguments)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("side", SIDES)
def test_one_call_can_be_repaired_with_nothing_installed(side: str) -> None:
    padfix.uninstall()
    method = vars(GenerationMixin)["generate"]
    model, batch = build("llama"), PADDERS[side](ROWS)
    output = padfix.generate(model, batch["input_ids"], attention_mask=batch["attention_mask"], **GREEDY)
    assert vars(GenerationMixin)["generate"] is method
    assert not padfix.is_installed()
    assert torch.equal(output[:, :7], batch["input_ids"])
    for row, reply in enumerate(expected("llama")):
        assert output[row, 7 : 7 + len(reply.tokens)].tolist() == reply.tokens


def test_one_call_can_be_repaired_within_a_suppressed_block() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    with padfix.suppressed():
        output = padfix.generate(model, **batch, **GREEDY)
    assert torch.equal(output, model.generate(**batch, **GREEDY))


def test_the_one_call_makes_no_more_forwards_where_padfix_is_installed() -> None:
    model = endless("llama")
    shapes = _forwards(model, lambda: padfix.generate(model, **right_padded(ROWS), **GREEDY))
    assert shapes == [(3, 7)] + [(3, 1)] * 5


@pytest.mark.parametrize("name", NAMES)
def test_stock_is_wrong_where_padfix_is_right(name: str) -> None:
    wrong = 0
    for side in ("right", "both"):
        with padfix.suppressed():
            output = build(name).generate(**PADDERS[side](ROWS, extra=2), **GREEDY)
        replies = expected(name)
        wrong += sum(output[row, 9 : 9 + len(one.tokens)].tolist() != one.tokens for row, one in enumerate(replies))
    assert wrong >= 2, f"{wrong} of 6 rows are wrong without padfix"


@pytest.mark.parametrize("name", NAMES)
def test_the_replies_alone_differ_from_one_another(name: str) -> None:
    assert len({tuple(reply.tokens) for reply in expected(name)}) == 3


@pytest.mark.parametrize("beside", [{}, {"negative_prompt_ids": right_padded(ROWS)["input_ids"]}], ids=["", "negative"])
@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
def test_the_config_is_resolved_once_a_padded_call(
    masked: bool, beside: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[Any] = []
    original = compat.resolved_config

    def counted(call: Any) -> Any:
        resolved.append(call)
        return original(call)

    monkeypatch.setattr(compat, "resolved_config", counted)
    batch = {name: value for name, value in right_padded(ROWS).items() if masked or name == "input_ids"}
    build("llama").generate(**batch, **GREEDY, **beside)
    assert len(resolved) == 1


def test_the_config_of_an_unpadded_call_with_a_mask_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "resolved_config", lambda call: pytest.fail("resolved"))
    build("llama").generate(**right_padded(ROWS[:1]), **GREEDY)
