"""Ragged prompts of a decoder that has an encoder, of text or of sound, against each prompt alone."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from encoders import encoded_input, model_of, there
from oracle import BOS, EOS, GREEDY, PAD, PADDERS, ROWS, assert_close, right_padded
from stock import CACHE_IS_NONE
from torch import Tensor

import padfix
from padfix import PadfixWarning
from padfix.generation import compat
from padfix.generation.exceptions import NEEDS_DECODER_POSITIONS

pytestmark = [
    pytest.mark.usefixtures("installed"),
    CACHE_IS_NONE,
    pytest.mark.filterwarnings("ignore:.*::transformers"),
    pytest.mark.filterwarnings("ignore:Passing a tuple of `past_key_values`"),
]

NAMES = there()
STARTING = [[BOS, *row] for row in ROWS]
MASKED = ("decoder_input_ids", "decoder_attention_mask")
# Those whose decoder takes the positions of its prompt.
TOLD = there(
    [
        "T5GemmaForConditionalGeneration",
        "T5Gemma2ForConditionalGeneration",
        "MoonshineForConditionalGeneration",
        "CohereAsrForConditionalGeneration",
        "CanaryForConditionalGeneration",
        "WhisperForConditionalGeneration",
    ]
)


def _prompts(rows: Any, side: str, *, pad: int = PAD) -> dict[str, Tensor]:
    return dict(zip(MASKED, PADDERS[side](rows, pad=pad).values(), strict=True))


def _outcome(model: Any, inputs: Mapping[str, Any], width: int, **arguments: Any) -> list[tuple[list[int], list[Any]]]:
    """Each row's new tokens up to EOS, and the scores that they were chosen from (not under beams)."""
    arguments = GREEDY | arguments
    output = model.generate(**inputs, **arguments, return_dict_in_generate=True, output_scores=True)
    prompt = inputs["decoder_input_ids"]
    added = output.sequences.shape[1] > prompt.shape[1] and not torch.equal(
        output.sequences[:, : prompt.shape[1]], prompt
    )
    assert torch.equal(output.sequences[:, added : added + prompt.shape[1]], prompt)
    outcomes = []
    for row, new in enumerate(output.sequences[:, added + width :].tolist()):
        new = new[: new.index(EOS) + 1] if EOS in new else new
        scores = [] if arguments.get("num_beams") else [step[row] for step in output.scores[: len(new)]]
        outcomes.append((new, scores))
    return outcomes


def _check(
    name: str, rows: Any, prompts: Mapping[str, Any], own: Any = None, *, model: Any = None, **arguments: Any
) -> None:
    """Fails unless each row of the batch gets what its prompt gets alone with its row of the encoder's input."""
    model, encoder = model or model_of(name), encoded_input(name)
    batch = _outcome(model, {**encoder, **prompts}, prompts["decoder_input_ids"].shape[1], **arguments)
    seen = []
    for row, prompt in enumerate(rows):
        inputs = {key: value[row : row + 1] for key, value in encoder.items()}
        with padfix.suppressed():
            [(tokens, scores)] = _outcome(
                model,
                {**inputs, "decoder_input_ids": torch.tensor([prompt]), **(own(row) if own else {})},
                len(prompt),
                **arguments,
            )
        assert batch[row][0] == tokens, f"row {row}: {tokens} alone, {batch[row][0]} in the batch"
        for one, other in zip(batch[row][1], scores, strict=True):
            assert_close(one, other, what=f"row {row}: scores")
        seen.append(tuple(tokens))
    assert arguments or len(set(seen)) > 1, f"the oracle proves nothing: alone the prompts get {seen}"


@pytest.mark.parametrize("beams", [{}, {"num_beams": 2}], ids=str)
@pytest.mark.parametrize("starts", [True, False], ids=["start token", "no start token"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", NAMES)
def test_ragged_prompts_of_a_decoder_are_exact(name: str, side: str, starts: bool, beams: dict[str, Any]) -> None:
    rows = STARTING if starts else ROWS
    _check(name, rows, _prompts(rows, side), **beams)


@pytest.mark.parametrize("starts", [True, False], ids=["start token", "no start token"])
@pytest.mark.parametrize("side", PADDERS)
def test_a_pad_that_is_the_start_token_takes_no_rows_start_away(side: str, starts: bool) -> None:
    model = model_of("T5ForConditionalGeneration")
    model.generation_config.decoder_start_token_id = PAD
    rows = [[PAD, *row] for row in ROWS] if starts else ROWS
    _check("T5ForConditionalGeneration", rows, _prompts(rows, side), model=model)


@pytest.mark.parametrize("extra", [0, 2])
def test_prompts_with_columns_of_pads_in_all_rows_keep_their_start_token(extra: int) -> None:
    name = "T5ForConditionalGeneration"
    prompts = dict(zip(MASKED, PADDERS["left"](STARTING, extra=extra).values(), strict=True))
    _check(name, STARTING, prompts)


def test_a_start_token_for_each_row_is_refused_by_name() -> None:
    name = "T5ForConditionalGeneration"
    model, inputs = model_of(name), {**encoded_input(name), **_prompts(ROWS, "right")}
    arguments = GREEDY | {"decoder_start_token_id": [BOS, BOS, 3]}
    with padfix.suppressed():
        stock = model.generate(**inputs, **arguments)
    with pytest.warns(PadfixWarning, match=r"decoder_start_token_id=\[...\]"):
        assert torch.equal(model.generate(**inputs, **arguments), stock)


NEEDING = there(sorted(NEEDS_DECODER_POSITIONS))
needs_advance = pytest.mark.skipif(not compat.positions_advance(), reason="this release does not carry them on")


def _forwards(model: Any, inputs: Mapping[str, Any]) -> int:
    calls: list[int] = []
    forward = model.forward

    @functools.wraps(forward)
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return forward(*args, **kwargs)

    model.forward = counted
    model.generate(**inputs, **GREEDY)
    return len(calls)


@needs_advance
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", NEEDING)
def test_one_call_serves_a_decoder_that_is_told_its_positions(name: str, side: str) -> None:
    model = model_of(name)
    model.generation_config.eos_token_id = None
    inputs = {**encoded_input(name), **_prompts(STARTING, side)}
    assert _forwards(model, inputs) == GREEDY["max_new_tokens"]


def _implied(prompts: Mapping[str, Tensor]) -> Tensor:
    return (prompts["decoder_attention_mask"].cumsum(1) - 1).clamp(min=0)


@needs_advance
@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("kind", ["implied", "arange", "arange of one row"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", TOLD)
def test_positions_that_say_what_the_mask_says_make_no_difference(
    name: str, side: str, kind: str, strategy: str
) -> None:
    prompts = _prompts(STARTING, side)
    columns = torch.arange(8)[None]
    kinds = {"implied": _implied(prompts), "arange": columns.expand(3, 8), "arange of one row": columns}
    with padfix.override(strategy=strategy):
        _check(name, STARTING, {**prompts, "decoder_position_ids": kinds[kind]})


@needs_advance
@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", TOLD)
def test_positions_of_another_kind_move_with_their_tokens(name: str, side: str, strategy: str) -> None:
    prompts = _prompts(STARTING, side)
    given = {**prompts, "decoder_position_ids": _implied(prompts) * 2 + 1}
    with padfix.override(strategy=strategy):
        _check(
            name,
            STARTING,
            given,
            lambda row: {"decoder_position_ids": torch.arange(len(STARTING[row]))[None] * 2 + 1},
        )


@needs_advance
@pytest.mark.parametrize("name", TOLD)
def test_positions_of_another_width_are_refused_by_name(name: str) -> None:
    inputs = {**encoded_input(name), **_prompts(STARTING, "right"), "decoder_position_ids": torch.zeros(3, 5).long()}
    with pytest.warns(PadfixWarning, match=r"decoder_position_ids= of shape \(3, 5\)"):
        _either(model_of(name), inputs)


def _either(model: Any, inputs: Mapping[str, Any]) -> None:
    """A call that transformers may refuse."""
    try:
        model.generate(**inputs, **GREEDY)
    except (IndexError, RuntimeError, ValueError):
        return


# The encoder's rows, of which two are padded.
READ = [[5, 6, 7, 8, 13, 14], [9, 10, 66], [11, 12, 13, 68]]
READERS: Iterable[dict[str, Any]] = (
    {"encoder_repetition_penalty": 2.5},
    {"encoder_repetition_penalty": 0.4},
    {"encoder_no_repeat_ngram_size": 1},
    {"encoder_no_repeat_ngram_size": 2},
)


@pytest.mark.parametrize("prompted", [None, *PADDERS])
@pytest.mark.parametrize("flags", READERS, ids=str)
@pytest.mark.parametrize("side", ["right", "left", "both"])
def test_flags_that_read_the_encoders_ids_do_not_see_its_pads(
    side: str, flags: dict[str, Any], prompted: str | None
) -> None:
    # Positions are relative in T5: with its pads on any side a row of its encoder gets what it gets alone.
    model = model_of("T5ForConditionalGeneration")
    batch: dict[str, Any] = dict(PADDERS[side](READ))
    batch |= _prompts(STARTING, prompted) if prompted else {}
    arguments = GREEDY | flags | {"return_dict_in_generate": True, "output_scores": True}
    before = {key: value.clone() for key, value in batch.items()}
    output = model.generate(**batch, **arguments)
    assert all(torch.equal(batch[key], value) for key, value in before.items())
    for row, ids in enumerate(READ):
        own = {"decoder_input_ids": torch.tensor([STARTING[row]])} if prompted else {}
        with padfix.suppressed():
            single = model.generate(input_ids=torch.tensor([ids]), **own, **arguments)
        width = own["decoder_input_ids"].shape[1] if prompted else 1
        new = single.sequences[0, width:]
        start = batch["decoder_input_ids"].shape[1] if prompted else 1
        assert torch.equal(output.sequences[row, start : start + len(new)], new)
        for one, other in zip(output.scores, single.scores, strict=False):
            assert_close(one[row], other[0], what=f"row {row}")


def test_those_flags_see_pads_without_padfix_and_in_the_mode_warn_it_is_said() -> None:
    model, batch = model_of("T5ForConditionalGeneration"), right_padded(READ)
    arguments = GREEDY | {"encoder_no_repeat_ngram_size": 1, "return_dict_in_generate": True, "output_scores": True}
    fixed = model.generate(**batch, **arguments)
    with padfix.suppressed():
        stock = model.generate(**batch, **arguments)
    assert stock.scores[0][1, PAD] == -torch.inf != fixed.scores[0][1, PAD]
    padfix.install("warn")
    with pytest.warns(PadfixWarning, match="EncoderNoRepeatNGramLogitsProcessor sees the pads of the encoder's ids"):
        warned = model.generate(**batch, **arguments)
    assert torch.equal(warned.scores[0], stock.scores[0])
    with padfix.override(decoding="stock"):
        assert torch.equal(model.generate(**batch, **arguments).scores[0], stock.scores[0])


def test_one_call_with_nothing_installed_keeps_the_encoders_pads_out() -> None:
    model, batch = model_of("T5ForConditionalGeneration"), right_padded(READ)
    arguments = GREEDY | {"encoder_repetition_penalty": 2.5}
    wanted = model.generate(**batch, **arguments)
    padfix.uninstall()
    assert torch.equal(padfix.generate(model, **batch, **arguments), wanted)
