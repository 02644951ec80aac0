"""Guidance: a padded negative prompt counts for each row as it does beside that row's prompt alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from oracle import EOS, GREEDY, PAD, PADDERS, ROWS, alone, build, compare, embedded, left_padded, right_padded, together
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation import logits_process

import padfix
from padfix import PadfixWarning, RightPaddingError
from padfix.errors import AmbiguousPaddingError
from padfix.generation.call import bind
from padfix.generation.compat import positional_parameters
from padfix.generation.guidance import needs_axes, negative_prompt, padding_of, without_pads
from padfix.generation.pads import detect, masked_padding
from padfix.layout.detect import Padding

pytestmark = pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")

# Its types are narrower than what it takes.
UnbatchedClassifierFreeGuidanceLogitsProcessor: Any = logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor

MODELS = ("gpt2", "llama")
SCALE = 2.5

NEGATIVE = [[19, 44], [37, 5, 88, 61], [26]]
# As many tokens in each prompt: nothing to pad.
EQUAL_ROWS = [row[:3] for row in ROWS]

Model = Any


def negative(batch: Mapping[str, Tensor], *, mask: bool = True) -> dict[str, Tensor]:
    """A padded batch as the arguments of a negative prompt."""
    names = {"negative_prompt_ids": batch["input_ids"]}
    return names | ({"negative_prompt_attention_mask": batch["attention_mask"]} if mask else {})


def expected(
    model: Model, rows: Sequence[Sequence[int]], *, one: Sequence[Sequence[int]] = NEGATIVE, **flags: Any
) -> Any:
    """What each prompt gets alone, beside its own negative prompt without pads."""
    return alone(
        model, rows, each=lambda row: {"negative_prompt_ids": torch.tensor([one[row]])}, guidance_scale=SCALE, **flags
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_padded_negative_prompt_counts_as_it_does_alone(name: str, side: str, use_cache: bool) -> None:
    model = build(name)
    for batch in (right_padded(ROWS), left_padded(ROWS)):
        inputs = {**batch, **negative(PADDERS[side](NEGATIVE, extra=1, pad=77))}
        replies = together(model, inputs, guidance_scale=SCALE, use_cache=use_cache)
        compare(replies, expected(model, ROWS, use_cache=use_cache))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("with_mask", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", MODELS)
def test_beside_prompts_without_pads(name: str, side: str, with_mask: bool) -> None:
    model = build(name)
    inputs = {**right_padded(EQUAL_ROWS), **negative(PADDERS[side](NEGATIVE))}
    if not with_mask:
        del inputs["attention_mask"]
    compare(together(model, inputs, guidance_scale=SCALE), expected(model, EQUAL_ROWS))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("pad", [PAD, EOS])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", MODELS)
def test_without_a_mask_what_exceeds_the_shortest_run_of_pads_is_padding(name: str, side: str, pad: int) -> None:
    model = build(name)
    inputs = {**right_padded(ROWS), **negative(PADDERS[side](NEGATIVE, pad=pad), mask=False)}
    with pytest.warns(PadfixWarning, match="negative_prompt_ids .* was taken for padding"):
        replies = together(model, inputs, guidance_scale=SCALE, pad_token_id=pad)
    compare(replies, expected(model, ROWS, pad_token_id=pad))


@pytest.mark.usefixtures("installed")
def test_without_a_mask_a_pad_id_that_starts_every_prompt_is_content() -> None:
    model = build("gpt2")
    negatives = [[PAD, *tokens] for tokens in NEGATIVE]
    inputs = {**right_padded(ROWS), **negative(right_padded(negatives), mask=False)}
    with pytest.warns(PadfixWarning, match="was taken for padding"):
        replies = together(model, inputs, guidance_scale=SCALE)
    compare(replies, expected(model, ROWS, one=negatives))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", MODELS)
def test_beside_embeddings_alone(name: str) -> None:
    model = build(name)
    inputs = {**embedded(model, right_padded(ROWS)), **negative(right_padded(NEGATIVE))}
    embeddings = [embedded(model, right_padded([row]))["inputs_embeds"] for row in ROWS]
    replies = alone(
        model,
        ROWS,
        each=lambda row: {
            "input_ids": None,
            "inputs_embeds": embeddings[row],
            "negative_prompt_ids": torch.tensor([NEGATIVE[row]]),
        },
        guidance_scale=SCALE,
    )
    compare(together(model, inputs, guidance_scale=SCALE), replies)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", MODELS)
def test_without_a_negative_prompt_the_second_branch_starts_at_the_last_token(name: str) -> None:
    model = build(name)
    replies = together(model, right_padded(ROWS), guidance_scale=SCALE)
    compare(replies, alone(model, ROWS, guidance_scale=SCALE))


def test_transformers_itself_gets_padded_negative_prompts_wrong() -> None:
    """What the tests above would otherwise prove nothing about."""
    model = build("gpt2")
    for side in ("right", "left"):
        inputs = {**right_padded(EQUAL_ROWS), **negative(PADDERS[side](NEGATIVE))}
        with pytest.raises(AssertionError, match="row"):
            compare(together(model, inputs, guidance_scale=SCALE), expected(model, EQUAL_ROWS))


# A processor of the caller's


def made_by_caller(model: Model, side: str = "right", *, mask: bool = True, **options: Any) -> Any:
    batch = PADDERS[side](NEGATIVE)
    return UnbatchedClassifierFreeGuidanceLogitsProcessor(
        SCALE, model, batch["input_ids"], batch["attention_mask"] if mask else None, **options
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore:.* was taken for padding:padfix.PadfixWarning")
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", MODELS)
def test_a_processor_that_the_caller_made(name: str, side: str, use_cache: bool) -> None:
    model = build(name)
    for rows, mask in ((ROWS, True), (EQUAL_ROWS, True), (ROWS, False)):
        processor = made_by_caller(model, side, mask=mask, use_cache=use_cache)
        context = processor.unconditional_context
        kept = dict(context)
        tensors = {key: value.clone() for key, value in context.items() if isinstance(value, Tensor)}
        replies = together(model, right_padded(rows), logits_processor=[processor])
        compare(replies, expected(model, rows))
        assert processor.model is model
        assert processor.unconditional_context is context
        assert all(context[key] is value for key, value in kept.items()), "its state was changed"
        assert all(torch.equal(context[key], value) for key, value in tensors.items())


# What is said


@pytest.mark.parametrize("rows", [ROWS, EQUAL_ROWS], ids=["padded", "unpadded"])
def test_strict_mode_names_the_negative_prompt(rows: list[list[int]]) -> None:
    model = build("gpt2")
    padfix.install("strict")
    inputs = {**left_padded(rows), **negative(right_padded(NEGATIVE))}
    with pytest.raises(RightPaddingError, match=r"Rows 0, 2 of negative_prompt_ids \(shape \(3, 4\)\)"):
        together(model, inputs, guidance_scale=SCALE)
    processor = made_by_caller(model)
    with pytest.raises(RightPaddingError, match="negative_prompt_ids"):
        together(model, left_padded(rows), logits_processor=[processor])


def test_strict_mode_repairs_what_is_padded_on_the_left() -> None:
    model = build("gpt2")
    padfix.install("strict")
    inputs = {**left_padded(ROWS), **negative(left_padded(NEGATIVE))}
    compare(together(model, inputs, guidance_scale=SCALE), expected(model, ROWS))


@pytest.mark.parametrize("pad", [PAD, EOS])
def test_strict_mode_asks_for_the_mask(pad: int) -> None:
    model = build("gpt2")
    padfix.install("strict")
    inputs = {**left_padded(ROWS), **negative(right_padded(NEGATIVE, pad=pad), mask=False)}
    with pytest.raises(AmbiguousPaddingError, match="negative_prompt_attention_mask"):
        together(model, inputs, guidance_scale=SCALE, pad_token_id=pad)


@pytest.mark.parametrize("rows", [ROWS, EQUAL_ROWS], ids=["padded", "unpadded"])
def test_warn_mode_names_the_negative_prompt_and_changes_nothing(rows: list[list[int]]) -> None:
    model = build("gpt2")
    inputs = {**left_padded(rows), **negative(right_padded(NEGATIVE))}
    stock = together(model, inputs, guidance_scale=SCALE)
    padfix.install("warn")
    with pytest.warns(PadfixWarning) as said:
        compare(together(model, inputs, guidance_scale=SCALE), stock)
    if rows is EQUAL_ROWS:
        assert "Rows 0, 2 of negative_prompt_ids (shape (3, 4)) have pads after real tokens" in str(said[0].message)


@pytest.mark.usefixtures("installed")
def test_stock_decoding_leaves_a_negative_prompt_as_it_is() -> None:
    model = build("gpt2")
    inputs = {**right_padded(EQUAL_ROWS), **negative(right_padded(NEGATIVE))}
    with padfix.suppressed():
        stock = together(model, inputs, guidance_scale=SCALE)
    with padfix.override(decoding="stock"):
        compare(together(model, inputs, guidance_scale=SCALE), stock)


@pytest.mark.usefixtures("installed")
def test_a_negative_prompt_that_no_flag_asks_for_is_nobodys() -> None:
    model = build("gpt2")
    inputs = {**right_padded(EQUAL_ROWS), **negative(right_padded(NEGATIVE))}
    with padfix.suppressed():
        stock = together(model, inputs)
    compare(together(model, inputs), stock)


# The parts


def call_of(model: Model, **arguments: Any) -> Any:
    return bind(model, (), {"input_ids": torch.tensor(EQUAL_ROWS), **GREEDY, **arguments}, positional_parameters())


def test_where_the_negative_prompt_is_found() -> None:
    model = build("gpt2")
    batch = right_padded(NEGATIVE)
    assert negative_prompt(call_of(model)) is None
    found = negative_prompt(call_of(model, **negative(batch)))
    assert found is not None
    assert found[0] is batch["input_ids"]
    assert found[1] is batch["attention_mask"]
    processor = made_by_caller(model)
    found = negative_prompt(call_of(model, logits_processor=[lambda ids, scores: scores, processor]))
    assert found is not None
    assert found[0] is processor.unconditional_context["input_ids"]
    for wrong in ([[3, 4]], torch.tensor([3, 4]), torch.empty(3, 0, dtype=torch.long), None):
        assert negative_prompt(call_of(model, negative_prompt_ids=wrong)) is None
    without_ids = UnbatchedClassifierFreeGuidanceLogitsProcessor(SCALE, model)
    assert negative_prompt(call_of(model, logits_processor=[without_ids])) is None


def negative_padding(call: Any) -> Padding | None:
    """The pads of the negative prompt that are found in a call."""
    found = detect(call, masked_padding(call))
    return None if found is None else found.negative


@pytest.mark.parametrize(("scale", "found"), [(2.0, True), (0.5, True), (1, False), (1.0, False), (None, False)])
def test_its_pads_count_where_guidance_is_asked_for(scale: float | None, found: bool) -> None:
    call = call_of(build("gpt2"), guidance_scale=scale, **negative(right_padded(NEGATIVE)))
    padding = negative_padding(call)
    assert (padding is not None) is found
    if padding is not None:
        assert padding.real.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]


def test_of_a_processor_that_the_caller_made_pads_count_without_the_flag() -> None:
    model = build("gpt2")
    assert negative_padding(call_of(model, logits_processor=[made_by_caller(model)])) is not None


def test_of_a_call_that_transformers_refuses_nothing_is_read() -> None:
    call = call_of(build("gpt2"), generation_config={"no": "config"}, **negative(right_padded(NEGATIVE)))
    assert negative_padding(call) is None


def test_padding_is_read_from_the_mask_before_the_ids() -> None:
    config = GenerationConfig(pad_token_id=PAD, eos_token_id=EOS)
    ids = torch.tensor([[5, PAD], [6, 7]])
    by_ids = padding_of(ids, None, config)
    assert by_ids is not None
    assert by_ids.real.tolist() == [[True, False], [True, True]]
    assert by_ids.guessed == (0,)
    assert padding_of(ids[:1], None, config) is None  # one row alone tells nothing
    assert padding_of(ids, None, GenerationConfig()) is None  # without a pad id, neither do more
    assert padding_of(ids, torch.ones(2, 2), config) is None
    by_mask = padding_of(ids, torch.tensor([[1, 1], [0, 1]]), config)
    assert by_mask is not None
    assert by_mask.real.tolist() == [[True, True], [False, True]]
    for unreadable in (torch.ones(2, 3), [[1, 1], [0, 1]]):
        assert padding_of(ids, unreadable, config) is None


class Recording:
    """A model that remembers what it was called with; its forward names positions or does not."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def forward(self, input_ids: Tensor, **kwargs: Any) -> None: ...

    def __call__(self, input_ids: Tensor, **kwargs: Any) -> Any:
        self.calls.append({"input_ids": input_ids.tolist(), **kwargs})
        return self

    logits = torch.zeros(3, 1, 99)

    def get(self, *_: Any) -> None: ...


class TakesPositions(Recording):
    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", [Recording, TakesPositions])
def test_the_second_branch_is_left_padded_and_told_its_positions(kind: type[Recording], use_cache: bool) -> None:
    config = GenerationConfig(pad_token_id=PAD, eos_token_id=EOS)
    recording = kind()
    processor = without_pads(made_by_caller(recording, use_cache=use_cache), config)
    ids, scores = torch.tensor([[1], [2], [3]]), torch.zeros(3, 99)
    processor(ids, scores)
    processor(ids, scores)
    first, second = recording.calls
    assert first["input_ids"] == [[0, 0, 19, 44], [37, 5, 88, 61], [0, 0, 0, 26]]
    assert first["attention_mask"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert second["attention_mask"].tolist() == [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]]
    if kind is Recording:
        assert "position_ids" not in first | second
        return
    assert first["position_ids"].tolist() == [[0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 0, 0]]
    whole = [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 0, 0, 1]]
    assert second["position_ids"].tolist() == ([row[-1:] for row in whole] if use_cache else whole)
    assert second["input_ids"] == (
        ids.tolist() if use_cache else [[0, 0, 19, 44, 1], [37, 5, 88, 61, 2], [0, 0, 0, 26, 3]]
    )


def test_without_pads_or_without_ids_a_processor_stays_itself() -> None:
    config = GenerationConfig(pad_token_id=PAD, eos_token_id=EOS)
    model = TakesPositions()
    for ids, mask in ((torch.tensor([[5, 6]]), torch.ones(1, 2)), (torch.tensor([[5, 6]]), None), (None, None)):
        processor = UnbatchedClassifierFreeGuidanceLogitsProcessor(SCALE, model, ids, mask)
        assert without_pads(processor, config) is processor


def test_a_model_with_axes_of_positions_is_known_by_its_method() -> None:
    class Axes:
        def get_rope_index(self) -> None: ...

    class Around:
        model = Axes()

    assert needs_axes(Axes())
    assert needs_axes(Around())
    assert not any(needs_axes(build(name)) for name in MODELS)


def test_for_a_model_with_axes_of_positions_rows_with_padded_negative_prompts_run_one_at_a_time() -> None:
    model = build("gpt2")
    model.get_rope_index = None
    inputs = {**right_padded(EQUAL_ROWS), **negative(right_padded(NEGATIVE))}
    stock = together(model, {**inputs}, guidance_scale=SCALE, max_time=600.0)
    padfix.install("fix")
    with pytest.warns(PadfixWarning, match=r"negative_prompt_ids= \(the position ids of GPT2LMHeadModel have several"):
        compare(together(model, inputs, guidance_scale=SCALE, max_time=600.0), stock)
