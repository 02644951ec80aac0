"""Limits: every obstacle is named, and nothing harmless is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import GREEDY, PAD, ROWS, build, embedded, left_padded, right_padded
from transformers import GenerationConfig
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

import padfix
from padfix.generation import limits
from padfix.generation.call import SEQUENCE_AXES, GenerateCall, bind
from padfix.generation.compat import (
    CACHE_NAMES,
    encoder_penalty_reaches_every_row,
    repetition_penalty_skips_pads,
)
from padfix.generation.states import ONE_PROMPT_LOOPS

IDS = torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0], [11, 12, 13, 14]])
MASK = (IDS != 0).long()
EMBEDS = torch.zeros(3, 4, 8)


class Model(torch.nn.Module):
    """A model without layers."""

    def __init__(self, encoder_decoder: bool) -> None:
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=encoder_decoder)


MODELS = {kind: Model(kind) for kind in (False, True)}

LOOKS_ALIGNED = "(it looks as if its columns were the prompt's: padfix.register_prompt_tensor says where they are)"


def call(encoder_decoder: bool = False, /, **arguments: Any) -> GenerateCall:
    """A call with the ids and the mask unless `arguments` say otherwise; None leaves an argument out."""
    prompt = {"decoder_input_ids": IDS} if encoder_decoder else {"input_ids": IDS, "attention_mask": MASK}
    named = {name: value for name, value in {**prompt, **arguments}.items() if value is not None}
    made = bind(MODELS[encoder_decoder], (), named)
    assert made is not None
    return made


def config(**fields: Any) -> GenerationConfig:
    """A config with these fields, whether this release knows them or not."""
    made = GenerationConfig()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def layout_bound(fields: dict[str, Any] | None = None, /, **arguments: Any) -> list[str]:
    return list(limits.layout_bound(call(**arguments), config(**fields or {}), pads_remain=True))


def reads_history(fields: dict[str, Any], **arguments: Any) -> list[str]:
    return list(limits.reads_history(call(**arguments), config(**fields)))


def pad_bound(fields: dict[str, Any]) -> list[str]:
    return list(limits.pad_bound(call(), config(**fields)))


def test_plain_padded_call_meets_no_obstacle() -> None:
    assert layout_bound() == []
    assert layout_bound(input_ids=None, inputs_embeds=EMBEDS) == []
    assert layout_bound(inputs_embeds=EMBEDS) == []
    assert reads_history({}) == []
    assert pad_bound({}) == []


# What is bound to the layout


LOOP = "another decoding loop"
INDICES = "it holds indices into the prompt"

OBSTACLES: list[tuple[str, Any, str]] = [
    ("assistant_model", object(), LOOP),
    ("custom_generate", "someones/loop", LOOP),
    ("custom_generate", print, LOOP),
    ("prompt_lookup_num_tokens", 2, LOOP),
    ("token_healing", True, LOOP),
    ("use_mtp", True, LOOP),
    *((name, torch.zeros(3, dtype=torch.long), INDICES) for name in limits.ABSOLUTE_INDICES),
]


@pytest.mark.parametrize(("name", "value", "why"), OBSTACLES)
def test_argument_that_is_bound_to_the_layout_is_named(name: str, value: Any, why: str) -> None:
    assert layout_bound(**{name: value}) == [f"{name}= ({why})"]


def test_every_argument_of_the_tables_is_tried() -> None:
    tables = (ONE_PROMPT_LOOPS, limits.OTHER_LOOPS, limits.ABSOLUTE_INDICES)
    assert {name for name, _, _ in OBSTACLES} == {name for table in tables for name in table}


@pytest.mark.parametrize("name", ["prompt_lookup_num_tokens", "token_healing", "use_mtp"])
def test_decoding_loop_that_the_config_asks_for_is_named(name: str) -> None:
    assert layout_bound({name: 2}) == [f"{name}= ({LOOP})"]


@pytest.mark.parametrize("name", ONE_PROMPT_LOOPS)
def test_decoding_loop_for_one_prompt_is_no_obstacle_once_its_pads_are_gone(name: str) -> None:
    assert list(limits.layout_bound(call(**{name: 2}), config(), pads_remain=False)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logits_processor", [print]),
        ("stopping_criteria", [print]),
        ("prefix_allowed_tokens_fn", print),
        ("streamer", object()),
        ("prompt_lookup_num_tokens", 0),
        ("token_healing", False),
        ("use_mtp", False),
        ("use_cache", True),
        ("temperature", 0.5),
        ("output_scores", True),
        ("tokenizer", object()),
        ("negative_prompt_ids", torch.zeros(3, 4, dtype=torch.long)),
    ],
)
def test_argument_that_says_nothing_is_not_named(name: str, value: Any) -> None:
    assert layout_bound(**{name: value}) == []


def test_paged_cache_is_named() -> None:
    assert layout_bound({"cache_implementation": "paged"}) == ['cache_implementation="paged" (it feeds pads as tokens)']
    assert layout_bound({"cache_implementation": "static"}) == []


@pytest.mark.parametrize("name", ["decoder_input_ids", "decoder_inputs_embeds"])
def test_prompt_of_an_encoder_decoder_is_named(name: str) -> None:
    prompt = {"decoder_input_ids": None, name: IDS if name == "decoder_input_ids" else EMBEDS}
    assert list(limits.layout_bound(call(True, **prompt), config(), pads_remain=True)) == [
        f"{name}= (the prompt of an encoder-decoder model)"
    ]


@pytest.mark.parametrize("name", limits.CUT_BEFORE_US)
def test_model_whose_columns_were_cut_before_us_is_named(name: str) -> None:
    outer = type("Own", (type(name, (Model,), {}),), {})
    made = bind(outer(False), (), {"input_ids": IDS, "attention_mask": MASK})
    assert made is not None
    assert list(limits.layout_bound(made, config(), pads_remain=True)) == [
        f"{name} (the model around it has cut off the last column, whatever stood there)"
    ]


# What is bound to the ids and the mask where no column moves


def test_unmoved_columns_are_bound_by_what_does_not_fit_and_by_nothing_else() -> None:
    tensor = torch.zeros(3, 4, dtype=torch.long)
    fits = call(cache_position=torch.arange(4), use_mtp=True, assistant_model=object(), streamer=print)
    assert list(limits.identity_bound(fits)) == []
    assert list(limits.identity_bound(call(bbox=tensor))) == [f"bbox= of shape (3, 4) {LOOKS_ALIGNED}"]
    assert list(limits.identity_bound(call(True, streamer=print))) == [
        "decoder_input_ids= (the prompt of an encoder-decoder model)"
    ]


def test_several_obstacles_are_all_named() -> None:
    named = layout_bound({"cache_implementation": "paged"}, token_healing=True, cache_position=torch.arange(4))
    assert len(named) == 3


# Tensors that do not fit


@pytest.mark.parametrize(
    "mask", [MASK[:, :3], MASK[:2], torch.ones(3, 6, dtype=torch.long), torch.ones(3, 1, 4, 4), MASK[0]]
)
def test_mask_of_another_shape_is_named(mask: torch.Tensor) -> None:
    assert layout_bound(attention_mask=mask) == [
        f"attention_mask= of shape {tuple(mask.shape)}, where the prompt has shape (3, 4)"
    ]


@pytest.mark.parametrize("value", [2.0, 0.5, -1.0, float("nan"), float("inf"), float("-inf")])
def test_mask_with_other_values_than_0_and_1_cannot_be_read(value: float) -> None:
    mask = MASK.float()
    mask[1, 0] = value
    reason = "attention_mask= of shape (3, 4) with values other than 0 and 1"
    assert limits.unreadable_mask(call(attention_mask=mask)) == reason


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.float64], ids=str)
def test_mask_of_0_and_1_of_any_type_can_be_read(dtype: torch.dtype) -> None:
    masked = call(attention_mask=MASK.to(dtype))
    assert limits.unreadable_mask(masked) is None
    assert list(limits.layout_bound(masked, config(), pads_remain=True)) == []


@pytest.mark.parametrize(
    ("shape", "beside_a_cache", "readable"),
    [
        ((3, 4), False, True),
        ((3, 4), True, True),
        ((3, 6), False, False),
        ((3, 6), True, True),
        ((3, 3), False, False),
        ((3, 3), True, False),
        ((2, 4), False, False),
        ((2, 6), True, False),
        ((1, 4), False, False),
    ],
)
@pytest.mark.parametrize("name", CACHE_NAMES)
def test_mask_has_the_prompts_shape_or_beside_a_cache_is_wider(
    shape: tuple[int, int], beside_a_cache: bool, readable: bool, name: str
) -> None:
    cache = {name: ((torch.zeros(3, 2, 2, 4),),)} if beside_a_cache else {}  # of two columns
    seen = limits.unreadable_mask(call(attention_mask=torch.ones(shape), **cache))
    expected = f"attention_mask= of shape {shape}, where the prompt has shape (3, 4)"
    assert seen == (None if readable else expected)


def test_mask_over_the_new_tokens_alone_says_nothing_of_the_cached_ones() -> None:
    cache = ((torch.zeros(3, 2, 5, 4),),)
    seen = limits.unreadable_mask(call(attention_mask=torch.ones(3, 4), past_key_values=cache))
    wanted = "where the cache holds 5 columns and the prompt has shape (3, 4)"
    assert seen == f"attention_mask= of shape (3, 4), {wanted}"


def test_mask_that_was_not_passed_can_be_read() -> None:
    assert limits.unreadable_mask(call(attention_mask=None)) is None


def test_ids_that_do_not_fit_their_embeddings_are_named() -> None:
    assert layout_bound(input_ids=IDS[:, :3], inputs_embeds=EMBEDS) == [
        "input_ids= of shape (3, 3) beside inputs_embeds= of 4 columns"
    ]


def test_ids_of_several_tokens_a_column_are_named() -> None:
    assert layout_bound(input_ids=IDS[..., None].expand(3, 4, 2)) == [
        "input_ids= of shape (3, 4, 2) (more than one token a column)"
    ]


FITTING: dict[str, list[tuple[int, ...]]] = {
    "inputs_embeds": [(3, 4, 8)],
    "position_ids": [(3, 4), (1, 4), (3, 3, 4), (4, 3, 4), (3, 1, 4)],
    "token_type_ids": [(3, 4), (1, 4)],
    "mm_token_type_ids": [(3, 4)],
    "moe_mm_token_type_ids": [(3, 4)],
    "image_embeds_position_mask": [(3, 4)],
    "image_attention_mask": [(3, 4, 2)],
    "cross_attention_mask": [(3, 4, 2, 5)],
}


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in FITTING.items() for shape in shapes])
def test_prompt_tensor_that_fits_is_not_named(name: str, shape: tuple[int, ...]) -> None:
    assert layout_bound(**{name: torch.zeros(shape)}) == []


def test_every_prompt_tensor_is_tried() -> None:
    assert set(FITTING) == set(SEQUENCE_AXES)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("position_ids", (3, 5)),
        ("position_ids", (2, 4)),
        ("position_ids", (4,)),
        ("position_ids", (3, 2, 4)),
        ("token_type_ids", (3, 3)),
        ("token_type_ids", (2, 4)),
        ("token_type_ids", (12,)),
        ("cross_attention_mask", (3, 6, 2, 5)),
    ],
)
def test_prompt_tensor_that_does_not_fit_is_named(name: str, shape: tuple[int, ...]) -> None:
    value = torch.zeros(shape, dtype=torch.long)
    assert layout_bound(**{name: value}) == [f"{name}= of shape {shape}, where the prompt has shape (3, 4)"]


def test_prompt_tensor_that_is_no_tensor_is_named() -> None:
    assert layout_bound(position_ids=[[0, 1]]) == ["position_ids= of type list, where the prompt has shape (3, 4)"]


@pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2)])
def test_unknown_tensor_whose_columns_may_be_the_prompts_is_named(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert layout_bound(bbox=torch.zeros(shape, dtype=dtype)) == [f"bbox= of shape {shape} {LOOKS_ALIGNED}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pixel_values", torch.zeros(3, 4, 2, 2)),  # floats are no labels
        ("bbox", torch.zeros(3, 5, dtype=torch.long)),
        ("bbox", torch.zeros(2, 4, dtype=torch.long)),
        ("bbox", torch.zeros(3, dtype=torch.long)),
        ("bbox", torch.zeros(3, 4, dtype=torch.complex64)),
        ("bbox", [[0] * 4] * 3),
        *((name, torch.zeros(3, 4, dtype=torch.long)) for name in sorted(limits.NOT_ALIGNED)),
    ],
)
def test_tensor_with_other_columns_is_not_named(name: str, value: Any) -> None:
    assert layout_bound(**{name: value}) == []


# What reads the token history


HISTORY = "it reads the token history"

# Flag, a value that counts, how it is shown, values that do not count.
FLAGS: list[tuple[str, Any, str, list[Any]]] = [
    ("bad_words_ids", [[5, 6], [7]], "...", [[[5], [7]], []]),
    ("encoder_no_repeat_ngram_size", 2, "2", [0]),
    ("encoder_repetition_penalty", 1.5, "1.5", [1, 1.0]),
    ("forced_bos_token_id", 0, "...", []),
    ("no_repeat_ngram_size", 3, "3", [0]),
    ("sequence_bias", {(5, 6): -1.0}, "...", [{(5,): -1.0}, {}]),
    ("sequence_bias", [[[5, 6], -1.0]], "...", [[[[5], -1.0], [[7], 2.0]], [], 3]),
    ("stop_strings", ["stop"], "...", [[], ""]),
    ("stop_strings", "stop", "...", []),
    ("watermarking_config", object(), "...", []),
]


@pytest.mark.parametrize(("name", "value", "shown"), [row[:3] for row in FLAGS])
def test_flag_that_reads_the_history_is_named(name: str, value: Any, shown: str) -> None:
    assert reads_history({name: value}) == [f"{name}={shown} ({HISTORY})"]


@pytest.mark.parametrize(("name", "value"), [(row[0], value) for row in FLAGS for value in (*row[3], None)])
def test_flag_at_a_harmless_value_is_not_named(name: str, value: Any) -> None:
    assert reads_history({name: value}) == []


def test_every_flag_of_the_table_is_tried() -> None:
    apart = {"repetition_penalty"}
    assert {row[0] for row in FLAGS} | apart == set(limits.READS_HISTORY)


@pytest.mark.parametrize("made", [NoRepeatNGramLogitsProcessor(2), RepetitionPenaltyLogitsProcessor(1.5)])
def test_processor_of_the_librarys_that_the_caller_made_is_named(made: Any) -> None:
    assert reads_history({}, logits_processor=[print, made]) == [f"{type(made).__name__} ({HISTORY})"]


@pytest.mark.parametrize(
    ("name", "value"), [("constraints", [object()]), ("force_words_ids", [[5]]), ("penalty_alpha", 0.6)]
)
def test_loop_that_looks_at_pads_is_named(name: str, value: Any) -> None:
    assert pad_bound({name: value}) == [f"{name}=... (its decoding loop looks at pads)"]
    assert pad_bound({name: None}) == []


@pytest.mark.parametrize("rows", [{"num_beams": 2}, {"num_return_sequences": 3}])
def test_encoder_penalty_is_named_where_this_release_does_not_reach_every_row(rows: dict[str, int]) -> None:
    named = pad_bound({"encoder_repetition_penalty": 1.5, **rows})
    assert len(named) == (not encoder_penalty_reaches_every_row())
    assert (
        pad_bound({"encoder_repetition_penalty": 1.5}) == pad_bound({"encoder_repetition_penalty": 1.0, **rows}) == []
    )


@pytest.mark.parametrize(("min_length", "min_new_tokens", "named"), [(6, None, True), (6, 2, False), (0, None, False)])
def test_min_length_is_named_where_it_counts_columns(min_length: int, min_new_tokens: int | None, named: bool) -> None:
    seen = reads_history({"min_length": min_length, "min_new_tokens": min_new_tokens})
    assert seen == (["min_length=6 (it counts pads; min_new_tokens does not)"] if named else [])


def test_repetition_penalty_is_named_where_this_release_counts_pads() -> None:
    named = [f"repetition_penalty=1.3 ({HISTORY})"]
    assert reads_history({"repetition_penalty": 1.3}) == ([] if repetition_penalty_skips_pads() else named)
    assert reads_history({"repetition_penalty": 1.3}, input_ids=None, inputs_embeds=EMBEDS) == named
    for harmless in (1, 1.0, None):
        assert reads_history({"repetition_penalty": harmless}, input_ids=None, inputs_embeds=EMBEDS) == []


def as_it_is(model: Any, batch: Mapping[str, torch.Tensor], **arguments: Any) -> list[list[int]]:
    """What each row gets from transformers itself, without an end."""
    width = batch["input_ids"].shape[1] if "input_ids" in batch else 0
    output = model.generate(**batch, **GREEDY, eos_token_id=None, pad_token_id=PAD, **arguments)
    return [row[width:] for row in output.tolist()]


def test_repetition_penalty_counts_pads_where_a_left_padded_batch_shows_it() -> None:
    model = build("llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(0.05)  # so that the bias makes the pad id every row's choice, unless penalised
    penalised: dict[str, Any] = {"repetition_penalty": 50.0, "sequence_bias": {(PAD,): 0.5}}
    apart = [as_it_is(model, right_padded([row]), **penalised)[0] for row in ROWS]
    assert {row[0] for row in apart} == {PAD}
    together = as_it_is(model, left_padded(ROWS), **penalised)
    assert (together == apart) is repetition_penalty_skips_pads()


@pytest.mark.skipif(not repetition_penalty_skips_pads(), reason="this release penalises every token of the reply")
@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning")
def test_repetition_penalty_misses_tokens_of_left_padded_embeddings() -> None:
    model = build("llama")
    apart = [as_it_is(model, embedded(model, right_padded([row])), repetition_penalty=3.0)[0] for row in ROWS]
    together = as_it_is(model, embedded(model, left_padded(ROWS)), repetition_penalty=3.0)
    assert together[0] == apart[0]  # the row without pads
    assert together[1:] != apart[1:]


@pytest.mark.parametrize("value", [[[]], [[], [5]], [[[], 2.0]]], ids=str)
def test_empty_sequence_is_transformers_business(value: Any) -> None:
    assert reads_history({"bad_words_ids": value}) == []


@pytest.mark.parametrize(
    ("axes", "shape", "fits"),
    [
        ((0, 1), (3, 4), True),
        ((2, 1), (7, 4, 3), True),
        ((2, 1), (7, 4, 1), True),
        ((2, 1), (3, 4), False),
        ((1, 2), (7, 3), False),
        ((-3, -2), (3, 4, 7), True),
        ((-3, -2), (3, 4), False),
        ((0, -1), (3, 7, 4), True),
    ],
    ids=str,
)
def test_tensor_that_was_registered_has_the_prompts_sizes_on_its_axes(
    axes: tuple[int, int], shape: tuple[int, ...], fits: bool
) -> None:
    padfix.register_prompt_tensor("segments", *axes)
    said = f"segments= of shape {shape}, where the prompt has shape (3, 4)"
    assert list(limits.misfits(call(segments=torch.zeros(shape)))) == ([] if fits else [said])


def test_one_axis_is_not_both_rows_and_columns() -> None:
    padfix.register_prompt_tensor("segments", 0, -1)
    square = torch.full((4, 4), 5)
    said = "segments= of shape (4,), where the prompt has shape (4, 4)"
    assert list(limits.misfits(call(input_ids=square, attention_mask=None, segments=torch.zeros(4)))) == [said]


# What others have done to the prompts


class BlipTextLMHeadModel(Model):
    """A text model whose outer model writes the start token into the first column."""


def cut(ids: Any, mask: Any = MASK, start: Any = 1) -> GenerateCall:
    text = BlipTextLMHeadModel(False)
    text.config.bos_token_id = start
    made = bind(text, (), {"input_ids": ids, **({} if mask is None else {"attention_mask": mask})})
    assert made is not None
    return made


LEFT = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
UNDER = "BlipTextLMHeadModel (the model around it has put the start token of padded rows under their pads)"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (cut(torch.tensor([[1, 0, 6, 7], [1, 5, 6, 7]]), LEFT), [UNDER]),
        (cut(torch.tensor([[1, 0, 6, 7], [5, 5, 6, 7]]), LEFT), [UNDER]),
        (cut(torch.tensor([[1, 0, 1, 7], [1, 5, 6, 7]]), LEFT), []),  # the row has its own
        (cut(torch.tensor([[0, 0, 6, 7], [1, 5, 6, 7]]), LEFT), []),  # nothing was put there
        (cut(torch.tensor([[0, 1, 6, 7], [1, 5, 6, 7]]), LEFT), []),
        (cut(torch.tensor([[1, 5, 6, 0], [5, 6, 7, 8]]), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])), []),
        (cut(torch.tensor([[1, 0, 6, 7], [1, 5, 6, 7]]), None), []),
        (cut(torch.tensor([[1, 0, 6, 7], [1, 5, 6, 7]]), LEFT[:, :3]), []),
        (cut(torch.tensor([[1, 0, 6, 7], [1, 5, 6, 7]]), LEFT, None), []),
    ],
)
def test_start_token_under_pads_is_named(made: GenerateCall, said: list[str]) -> None:
    assert list(limits.pad_bound(made, config())) == said


def test_columns_of_a_prompt_that_was_cut_do_not_move() -> None:
    said = list(limits.layout_bound(cut(IDS), config(), pads_remain=True))
    assert said == ["BlipTextLMHeadModel (the model around it has cut off the last column, whatever stood there)"]


@pytest.mark.parametrize("inner", [False, True])
def test_negative_prompt_of_positions_with_several_axes_is_named(inner: bool) -> None:
    several: Any = Model(False)
    outer: Any = Model(False) if inner else several
    several.get_rope_index = print
    outer.model = several
    made = bind(outer, (), {"input_ids": IDS})
    assert made is not None
    assert list(limits.negative_bound(made)) == ["negative_prompt_ids= (the position ids of Model have several axes)"]
    assert list(limits.negative_bound(call())) == []


# Rows of one length apart from the others


def apart(encoder_decoder: bool = False, /, **arguments: Any) -> list[str]:
    made = call(encoder_decoder, **arguments)
    return list(limits.layout_bound(made, config(), pads_remain=False, apart=True))


def test_rows_that_run_apart_share_no_cache() -> None:
    assert apart() == []
    for name in CACHE_NAMES:
        assert apart(**{name: object()}) == [f"{name}= (rows that run apart cannot share a cache)"]
        assert list(limits.layout_bound(call(**{name: object()}), config(), pads_remain=False)) == []


def test_prompt_of_a_decoder_can_run_apart_where_everything_fits() -> None:
    assert apart(True) == []
    assert apart(token_type_ids=torch.zeros(3, 5)) != []
    said = "decoder_position_ids= of shape (3, 5), where the prompt has shape (3, 4)"
    misfit = {"attention_mask": MASK, "input_ids": IDS, "decoder_position_ids": torch.zeros(3, 5)}
    assert apart(True, **misfit) == [said]


def test_offsets_of_an_adapter_count_columns() -> None:
    model = Model(False)
    model.register_forward_pre_hook(partial(print, alora_offsets=[2, None, 3]))
    made = bind(model, (), {"input_ids": IDS})
    assert made is not None
    said = ["alora_offsets= (PEFT has counted columns, pads included)"]
    assert list(limits.layout_bound(made, config(), pads_remain=False)) == said


def test_mask_of_the_prompts_shape_is_no_misfit_whatever_its_values() -> None:
    assert list(limits.misfits(call(attention_mask=MASK * 2))) == []
