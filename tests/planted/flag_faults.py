"""Faults planted into how flags are kept from seeing pads, each with the calls of `generate` under which it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import torch
from hypothesis import given, seed
from hypothesis import strategies as st
from oracle import EOS
from properties import flags
from properties.batches import model
from properties.flags import FEW, FLAGS, FlagCase, equals_single_under_flags, flag_cases
from torch import Tensor
from transformers import LogitsProcessor, WatermarkingConfig
from transformers.generation import logits_process

from padfix.generation import decoding, guidance, processors
from padfix.generation.callbacks import CallersStreamer, InCallersLayout
from padfix.generation.compat import repetition_penalty_skips_pads
from padfix.generation.decoding import Decoding
from padfix.generation.history import History, PerRow
from padfix.generation.processors import TWINS, Scene
from padfix.strategies import left_pad

from .search import brief

__all__ = ["CALLS", "FAULTS", "Fault", "holds"]

stock: Any = logits_process

# Learned positions are the most sensitive to a shift.
MODEL = "gpt2"

# What a call is drawn from, and with how many examples.


class Calls(NamedTuple):
    """Calls of `generate` that all have something in common, and how many of them are tried."""

    over: st.SearchStrategy[FlagCase]
    examples: int = 6


# Flags that depend on the rows of a case, as a strategy for keywords.
Draw = Callable[[FlagCase], st.SearchStrategy[dict[str, Any]]]


@st.composite
def calls(
    draw: st.DrawFn,
    names: Sequence[str] = (),
    *,
    also: Draw | None = None,
    callbacks: tuple[str, ...] = (),
    embeds: bool = False,
    beams: int = 1,
    negative: bool = False,
    shortest: int | None = None,
) -> FlagCase:
    """Calls under the flags of these names and no others, on batches with pads.

    Args:
        also: Further flags, which may depend on the rows.
        callbacks: Code of the caller's own to pass along.
        embeds: Whether embeddings are passed in place of ids.
        beams: The number of beams, all of which come back.
        negative: Whether there are padded negative prompts.
        shortest: The number of tokens that the first row is cut to, where another has more than two.
    """
    case = draw(flag_cases().filter(lambda case: _lengths_differ(case.rows[1:] if shortest else case.rows, embeds)))
    kept = [len(row) for row in case.rows]
    kept[0] = shortest or kept[0]
    rows = tuple(row[:length] for row, length in zip(case.rows, kept, strict=True))
    placed = tuple(places[:length] for places, length in zip(case.columns, kept, strict=True))
    case = replace(case, rows=rows, columns=placed, embeds=embeds, callbacks=callbacks, negative=None)
    chosen = {name: draw(FLAGS[name]) for name in names} | ({} if also is None else draw(also(case)))
    if beams > 1:
        chosen |= {"num_beams": beams, "num_return_sequences": beams}
    if negative:
        other = draw(flag_cases().filter(lambda other: _lengths_differ(other.rows, False)))
        turns = [row % len(other.rows) for row in range(len(rows))]
        negatives = tuple(other.rows[row] for row in turns), other.width, tuple(other.columns[row] for row in turns)
        case = replace(case, negative=negatives)
    return replace(case, flags=chosen)


def _lengths_differ(rows: Sequence[Sequence[int]], embeds: bool) -> bool:
    lengths = {len(row) for row in rows}
    return len(lengths) > 1 and max(lengths) > 2 and (not embeds or min(lengths) > 1)


def with_pads(case: FlagCase) -> st.SearchStrategy[dict[str, Any]]:
    """Biases of what each row would end in, if the pad id stood before its last token."""
    return st.just({"sequence_bias": {(case.pad, row[-1], 8): 9.0 for row in case.rows}})


def watermark(case: FlagCase) -> st.SearchStrategy[dict[str, Any]]:
    config = WatermarkingConfig(greenlist_ratio=0.5, bias=4.0, seeding_scheme="selfhash", context_width=4)
    return st.just({"watermarking_config": config, "do_sample": True})


def begin_after_bos(case: FlagCase) -> st.SearchStrategy[dict[str, Any]]:
    return st.just({"forced_bos_token_id": 17, "begin_suppress_tokens": [5, 33, 61]})


def more_than_the_longest(case: FlagCase) -> st.SearchStrategy[dict[str, Any]]:
    return st.just({"min_length": max(map(len, case.rows)) + 1})


def single_ids(case: FlagCase) -> st.SearchStrategy[dict[str, Any]]:
    return st.just({"no_repeat_ngram_size": 1})


def pairs(case: FlagCase) -> st.SearchStrategy[dict[str, Any]]:
    return st.just({"no_repeat_ngram_size": 2})


# Code of the caller's own, beside what the properties have: made for the prompt of the call.


class Streamer:
    """Remembers whether the first thing that it was given is the prompt that was passed."""

    def __init__(self, prompt: Tensor) -> None:
        self.prompt = prompt
        self.heard: bool | None = None

    def put(self, value: Tensor) -> None:
        if self.heard is None:
            self.heard = torch.equal(value, self.prompt)

    def end(self) -> None: ...


class AsHeard(LogitsProcessor):
    """Raises the score of one id or another, by whether a streamer heard the prompt."""

    def __init__(self, streamer: Streamer) -> None:
        self.streamer = streamer

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.index_fill(1, torch.tensor([8 if self.streamer.heard else 24]), 5.0)


class Nesting(LogitsProcessor):
    """Raises the scores of what another call gives, of as many prompts without pads."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        prompts = torch.tensor([[*FEW, 8, 24, 9, 11, 70, 71]] * len(input_ids))
        flags = {"sequence_bias": {(FEW[0],): 50.0}, "no_repeat_ngram_size": 1, "pad_token_id": 0}
        output = model(MODEL).generate(prompts, max_new_tokens=2, **flags)
        return scores.scatter(1, output[:, prompts.shape[1] :], 5.0)


def streams(ids: Tensor | None) -> dict[str, Any]:
    assert ids is not None
    streamer = Streamer(ids)
    return {"streamer": streamer, "logits_processor": [AsHeard(streamer)]}


def counts_columns(ids: Tensor | None) -> dict[str, Any]:
    assert ids is not None
    return {"logits_processor": [stock.ForcedEOSTokenLogitsProcessor(ids.shape[1] + 3, EOS)]}


MORE_CALLBACKS: Mapping[str, Callable[[Tensor | None], dict[str, Any]]] = {
    "streamer": streams,
    "columns": counts_columns,
    "nested": lambda ids: {"logits_processor": [Nesting()]},
    "encoder": lambda ids: {"logits_processor": [stock.EncoderNoRepeatNGramLogitsProcessor(2, ids)]},
}


CALLS: Mapping[str, Calls] = {
    "repetition penalty": Calls(calls(("repetition_penalty",))),
    "repetition penalty of embeddings": Calls(calls(("repetition_penalty",), embeds=True)),
    "encoder penalty": Calls(calls(("encoder_repetition_penalty",))),
    "single ids": Calls(calls(also=single_ids)),
    "pairs": Calls(calls(also=pairs)),
    "single ids, beams": Calls(calls(also=single_ids, beams=2), 12),
    "encoder n-grams": Calls(calls(("encoder_no_repeat_ngram_size",))),
    "sequences": Calls(calls(also=with_pads, shortest=1)),
    "watermark": Calls(calls(also=watermark, shortest=2), 3),
    "min_length": Calls(calls(also=more_than_the_longest)),
    "min_length of embeddings": Calls(calls(also=more_than_the_longest, embeds=True)),
    "forced BOS": Calls(calls(("forced_bos_token_id",), shortest=1)),
    "forced BOS of embeddings": Calls(calls(("forced_bos_token_id",), embeds=True)),
    "begin after forced BOS": Calls(calls(also=begin_after_bos, shortest=1)),
    "negative prompts": Calls(calls(("guidance_scale",), negative=True)),
    "n-grams of the caller's": Calls(calls(callbacks=("ngrams",))),
    "encoder n-grams of the caller's": Calls(calls(callbacks=("encoder",))),
    "columns of the caller's": Calls(calls(callbacks=("columns",)), 20),
    "processor": Calls(calls(callbacks=("processor",))),
    "prefix": Calls(calls(callbacks=("prefix",))),
    "streamer": Calls(calls(callbacks=("streamer",))),
    "nested call": Calls(calls(also=pairs, callbacks=("nested",)), 5),
}


def holds(name: str) -> None:
    """Tries the calls of that name, always the same ones, and raises what the first one that fails raises."""
    over, examples = CALLS[name]

    @seed(4)
    @brief(examples)
    @given(over)
    def searched(case: FlagCase) -> None:
        with mock.patch.dict(flags.CALLBACKS, MORE_CALLBACKS):
            equals_single_under_flags(MODEL, case)

    searched()


class Fault(NamedTuple):
    """A fault: the calls under which it shows, the object and attribute (or key) that it replaces, the replacement.

    Attributes:
        there: Whether the installed release of transformers makes a difference of it.
    """

    caught_by: str
    owner: Any
    name: Any
    plant: Callable[[Any], Any]
    there: bool = True


def twin(kind: type, maker: Callable[[Any, Scene], Any]) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Another twin for a class of processors."""
    return TWINS, kind, lambda original: maker


def instead(wrong: Any) -> Callable[[Any], Any]:
    """Something else altogether."""
    return lambda original: wrong


def itself(processor: Any, *_: Any) -> Any:
    """No twin at all."""
    return processor


# History


def filled_with_0(original: Any) -> Any:
    return lambda self, ids, value=None: original(self, ids, 0)


def next_rows_pads(original: Any) -> Any:
    def spoiled(self: History) -> PerRow:
        first, *others = original.func(self).numbers
        return PerRow([*others, first])

    return property(spoiled)


def tiled(self: PerRow, ids: Tensor) -> Tensor:
    return torch.tensor(self.numbers, device=ids.device).repeat(len(ids) // len(self.numbers))


def new_tokens_left_out(original: Any) -> Any:
    return lambda self, ids: 0


# Twins


def smaller_window(original: Any) -> Any:
    def spoiled(step: Any, ids: Tensor, scores: Any, pads: PerRow, *, window: float) -> Any:
        return original(step, ids, scores, pads, window=window - 2)

    return spoiled


def ignore_length_kept(processor: Any, scene: Scene) -> Any:
    return processors._Filled(processor, scene.history, None)


def filled_with_some_token(processor: Any, scene: Scene) -> Any:
    return processors._Filled(processor, scene.history, 8)


def filled_with_the_last_token(processor: Any, scene: Scene) -> Any:
    return processors._Filled(processor, scene.history, None)


def for_every_row(self: Any, input_ids: Tensor, scores: Tensor) -> Any:
    new = self.history.new(input_ids)
    met = self.before.most + new >= self.first and self.before.least + new < self.end
    return self.effect(input_ids, scores) if met else scores


# Lists


def min_length_left_as_it_is(original: Any) -> Any:
    return lambda **arguments: original(**{**arguments, "min_length": None})


def no_twin_for_the_callers(original: Any) -> Any:
    def spoiled(self: Decoding, processor: Any, encoder_ids: Tensor | None = None) -> Any:
        if any(processor is one for one in self.passed):
            return InCallersLayout(processor, self.history)
        return original(self, processor, encoder_ids)

    return spoiled


def callers_taken_for_the_librarys(original: Any) -> Any:
    return lambda self, processor, encoder_ids=None: original(replace(self, passed=()), processor, encoder_ids)


def never_consumed(original: Any) -> Any:
    def spoiled(stock_method: Any, model: Any, args: Any, kwargs: Any) -> Any:
        announced = decoding._announced.get()
        listed = original(stock_method, model, args, kwargs)
        decoding._announced.set(announced)
        return listed

    return spoiled


def as_stock(stock_method: Any, model: Any, args: Any, kwargs: Any) -> Any:
    return stock_method(model, *args, **kwargs)


# The caller's code


def models_ids_shown(self: Any, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
    return self._callback(input_ids, *args, **kwargs)


def handed_on(self: CallersStreamer, value: Tensor) -> None:
    self._streamer.put(value)


# Guidance


def positions_from_column_0(self: Any, input_ids: Tensor, *, attention_mask: Tensor, **kwargs: Any) -> Any:
    positions = torch.arange(attention_mask.shape[1]).expand_as(attention_mask)[:, -input_ids.shape[1] :]
    return self.model(input_ids, attention_mask=attention_mask, position_ids=positions, **kwargs)


def positions_not_given(self: Any, input_ids: Tensor, **kwargs: Any) -> Any:
    return self.model(input_ids, **kwargs)


def mask_kept(original: Any) -> Any:
    def spoiled(processor: Any, config: Any) -> Any:
        moved = original(processor, config)
        mask = processor.unconditional_context["attention_mask"]
        mask = mask[:, -moved.unconditional_context["input_ids"].shape[1] :]
        moved.unconditional_context = {**moved.unconditional_context, "attention_mask": mask}
        return moved

    return spoiled


FAULTS: Mapping[str, Fault] = {
    # History
    "pads hold id 0": Fault("repetition penalty", History, "filled", filled_with_0),
    "pads keep their ids": Fault("pairs", History, "filled", instead(lambda self, ids, value=None: ids)),
    "a row has its neighbour's pads": Fault("pairs", History, "pads", next_rows_pads),
    "the pads of beams are tiled": Fault("single ids, beams", PerRow, "of", instead(tiled)),
    "new tokens are not counted": Fault("min_length", History, "new", new_tokens_left_out),
    "embeddings alone count as tokens seen": Fault(
        "forced BOS of embeddings", History, "seen", instead(property(lambda self: self.plan.lengths))
    ),
    # Twins
    "the window is too small": Fault("sequences", processors, "by_length", smaller_window),
    "biases see pads": Fault("sequences", *twin(stock.SequenceBiasLogitsProcessor, itself)),
    "watermarks are seeded by pads": Fault("watermark", *twin(stock.WatermarkLogitsProcessor, itself)),
    "the count of leading pads is kept": Fault(
        "repetition penalty of embeddings",
        *twin(stock.RepetitionPenaltyLogitsProcessor, ignore_length_kept),
        there=repetition_penalty_skips_pads(),
    ),
    "the penalty sees pads": Fault(
        "repetition penalty",
        *twin(stock.RepetitionPenaltyLogitsProcessor, itself),
        there=not repetition_penalty_skips_pads(),
    ),
    "the encoder's penalty sees pads": Fault(
        "encoder penalty", *twin(stock.EncoderRepetitionPenaltyLogitsProcessor, itself)
    ),
    "one token fills for single ids": Fault(
        "single ids", *twin(stock.NoRepeatNGramLogitsProcessor, filled_with_some_token)
    ),
    "the last token fills for pairs": Fault(
        "pairs", *twin(stock.NoRepeatNGramLogitsProcessor, filled_with_the_last_token)
    ),
    "the encoder's n-grams hold pads": Fault(
        "encoder n-grams", *twin(stock.EncoderNoRepeatNGramLogitsProcessor, itself)
    ),
    "min_length counts columns": Fault("min_length", *twin(stock.MinLengthLogitsProcessor, itself)),
    "BOS is forced for no row": Fault("forced BOS", *twin(stock.ForcedBOSTokenLogitsProcessor, itself)),
    "BOS is forced for every row": Fault("forced BOS", processors._WhereCounted, "__call__", instead(for_every_row)),
    "a reply begins before its BOS": Fault(
        "begin after forced BOS", *twin(stock.SuppressTokensAtBeginLogitsProcessor, itself)
    ),
    # Lists
    "no list is rewritten": Fault("pairs", decoding, "logits_processors", instead(as_stock)),
    "min_length is what the library left of it": Fault(
        "min_length of embeddings", left_pad, "Decoding", min_length_left_as_it_is
    ),
    "what the caller made has no twin": Fault("n-grams of the caller's", Decoding, "one", no_twin_for_the_callers),
    "what the caller made from its prompt keeps the pads": Fault(
        "encoder n-grams of the caller's",
        TWINS,
        stock.EncoderNoRepeatNGramLogitsProcessor,
        instead(lambda processor, scene: processors._Filled(processor, scene.history, processors.NO_OTHER_TOKEN)),
    ),
    "the caller's columns are not shifted": Fault(
        "columns of the caller's", decoding, "in_model_columns", instead(itself)
    ),
    "a nested call inherits the lists": Fault("nested call", decoding, "stopping_criteria", never_consumed),
    # The caller's code
    "processors see the model's layout": Fault("processor", InCallersLayout, "__call__", instead(models_ids_shown)),
    "the prefix function sees the model's layout": Fault(
        "prefix", History, "row_to_caller", instead(lambda self, prompt, ids: ids)
    ),
    "the prefix function sees the first prompt": Fault(
        "prefix", History, "row_to_caller", lambda original: lambda self, prompt, ids: original(self, 0, ids)
    ),
    "the streamer gets the model's prompt": Fault("streamer", CallersStreamer, "put", instead(handed_on)),
    # Guidance
    "the negative prompt is not moved": Fault("negative prompts", processors, "without_pads", instead(itself)),
    "the negative prompt keeps its mask": Fault("negative prompts", processors, "without_pads", mask_kept),
    "the second branch is told no positions": Fault(
        "negative prompts", guidance._WithPositions, "__call__", instead(positions_not_given)
    ),
    "the second branch counts positions from column 0": Fault(
        "negative prompts", guidance._WithPositions, "__call__", instead(positions_from_column_0)
    ),
}
