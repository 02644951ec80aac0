"""The library's logits processors and stopping criteria that read the token history, as twins that see no pads.

A twin asks the very processor that stands in its place, of ids in which no pad can be seen; so it follows the
installed release. What is right as it stands is in no table here: warpers, `min_new_tokens`, `forced_eos_token_id`,
`exponential_decay_length_penalty` and `suppress_tokens` read no prompt, and SynthID's context starts empty.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor
from transformers.generation import stopping_criteria
from transformers.generation.logits_process import (
    AlternatingCodebooksLogitsProcessor,
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
    WatermarkLogitsProcessor,
)

from .guidance import without_pads
from .history import History, PerRow, by_length

__all__ = ["COLUMN_FIELDS", "TWINS", "Maker", "Scene", "in_model_columns"]

Process = Callable[[Tensor, Tensor], Tensor]

# Ids that no vocabulary has, so that they match nothing; two, so that they do not match one another.
NO_TOKEN, NO_OTHER_TOKEN = -1, -2


@dataclass(frozen=True, eq=False)
class Scene:
    """What a twin is made from, beside the processor that it replaces.

    Attributes:
        history: What each row has seen.
        config: The generation config that the call runs with.
        encoder_ids: What the library takes for the encoder's ids of a decoder-only model: the prompt, in the model's
            layout. None for a model with an encoder.
        by_caller: Whether the caller made the processor, rather than `generate`.
    """

    history: History
    config: GenerationConfig
    encoder_ids: Tensor | None
    by_caller: bool = False


Maker = Callable[[Any, Scene], Any]


class _Filled(LogitsProcessor):
    """Shows ids whose pads hold `value`; None for each row's last token."""

    def __init__(self, processor: Process, history: History, value: int | None) -> None:
        self.processor, self.history, self.value = processor, history, value

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return self.processor(self.history.filled(input_ids, self.value), scores)


class _FromCallersColumn(LogitsProcessor):
    """Shows the caller's columns to a penalty that starts at one of them, each row's last token in the cells of pads.

    Where the last token stands before that column, none counts, and the row keeps its scores.
    """

    def __init__(self, processor: Any, history: History) -> None:
        self.processor, self.history = processor, history

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        processed: Tensor = self.processor(self.history.filled_for_caller(input_ids), scores)
        starts = torch.as_tensor(self.processor.prompt_ignore_length, device=scores.device)
        counts = self.history.last_columns(input_ids) >= starts
        return torch.where(counts[:, None], processed, scores)


class _ByLength(LogitsProcessor):
    """Shows rows shorter than a window without their pads; see `by_length`."""

    def __init__(self, processor: Process, history: History, window: int) -> None:
        self.processor, self.history, self.window = processor, history, window

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ids = self.history.gathered(input_ids)
        return by_length(self.processor, ids, scores, self.history.pads, window=self.window)


class _WhereCounted(LogitsProcessor):
    """Has a processor's effect on the rows whose number of real tokens so far lies in a range.

    Args:
        effect: The processed scores, as if every row were one of them.
        history: What each row has seen.
        before: The tokens of each prompt that count.
        first: The smallest number in the range.
        end: The number after the largest.
    """

    def __init__(self, effect: Process, history: History, before: tuple[int, ...], first: int, end: int) -> None:
        self.effect, self.history, self.before, self.first, self.end = effect, history, PerRow(before), first, end

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        new, before = self.history.new(input_ids), self.before
        first, end = self.first - new, self.end - new
        if before.most < first or before.least >= end:
            return scores
        processed = self.effect(input_ids, scores)
        if first <= before.least and before.most < end:
            return processed
        counts = before.of(input_ids).to(scores.device)
        return torch.where(((counts >= first) & (counts < end))[:, None], processed, scores)


def _repetition_penalty(processor: Any, scene: Scene) -> Any:
    # From 5.24 on `generate` sets it to the pads of each row, which are not in the ids beside embeddings alone.
    if getattr(processor, "prompt_ignore_length", None) is not None:
        if scene.by_caller:  # columns of the caller's
            return _FromCallersColumn(processor, scene.history)
        processor = _changed(processor, prompt_ignore_length=None)
    return _Filled(processor, scene.history, None)


def _encoder_repetition_penalty(processor: Any, scene: Scene) -> Any:
    ids = _encoder_ids(processor.encoder_input_ids, scene)
    return processor if ids is None else _changed(processor, encoder_input_ids=scene.history.filled(ids))


def _no_repeat_ngram(processor: Any, scene: Scene) -> Any:
    # Sequences of one id are looked up as sets; in longer ones a pad must match nothing.
    return _Filled(processor, scene.history, None if processor.ngram_size == 1 else NO_TOKEN)


def _encoder_no_repeat_ngram(processor: Any, scene: Scene) -> Any:
    size, history = processor.ngram_size, scene.history
    ids = scene.encoder_ids
    if scene.by_caller:
        # It keeps no ids, only their n-grams: made from the caller's prompt, they hold its pads.
        prompt = history.prompt
        same = prompt is not None and type(processor)(size, prompt).generated_ngrams == processor.generated_ngrams
        ids = history.plan.to_model(prompt) if same and prompt is not None else None
    if ids is not None:
        processor = type(processor)(size, history.filled(ids, None if size == 1 else NO_TOKEN))
    return _Filled(processor, history, NO_OTHER_TOKEN)


def _encoder_ids(ids: Tensor, scene: Scene) -> Tensor | None:
    """Encoder ids in the model's layout, or None for those that are not the prompt."""
    prompt = scene.history.prompt
    if not scene.by_caller:
        return scene.encoder_ids
    if prompt is None or ids.shape != prompt.shape or not torch.equal(ids.to(prompt.device), prompt):
        return None
    return scene.history.plan.to_model(ids)


def _sequence_bias(processor: Any, scene: Scene) -> Any:
    return _ByLength(processor, scene.history, max(map(len, processor.sequence_bias), default=0))


def _watermark(processor: Any, scene: Scene) -> Any:
    return _ByLength(processor, scene.history, processor.context_width)


def _min_length(processor: Any, scene: Scene) -> Any:
    if not scene.by_caller and scene.config.min_new_tokens is not None:
        return processor  # made from min_new_tokens and the columns
    history = scene.history
    ban = _changed(processor, min_length=sys.maxsize)
    # One that the caller made counts the ids that it sees, also where those hold no prompt.
    before = history.seen if scene.by_caller else history.plan.lengths
    return _WhereCounted(ban, history, before, -1, processor.min_length)


def _forced_bos(processor: Process, scene: Scene) -> Any:
    history = scene.history

    def force(ids: Tensor, scores: Tensor) -> Tensor:
        return processor(ids[:, -1:], scores)

    return _WhereCounted(force, history, history.seen, 1, 2)


def _suppress_at_begin(processor: Any, scene: Scene) -> Any:
    history = scene.history
    if scene.by_caller or scene.config.forced_bos_token_id is None or not history.has_pads:
        return processor

    def suppress(ids: Tensor, scores: Tensor) -> Any:
        return processor(ids.new_zeros(len(ids), processor.begin_index), scores)

    # A prompt of one token is followed by the forced BOS, and its reply begins after that.
    late = tuple(-1 if length == 1 else 0 for length in history.seen)
    return _WhereCounted(suppress, history, late, 0, 1)


def _guidance(processor: Any, scene: Scene) -> Any:
    return without_pads(processor, scene.config)


class _StopByLength(stopping_criteria.StoppingCriteria):
    """Shows a criterion rows shorter than a window without their pads; see `by_length`."""

    def __init__(self, criterion: Any, history: History, window: int) -> None:
        self.criterion, self.history, self.window = criterion, history, window

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        def stops(ids: Tensor, scores: Any) -> Any:
            return self.criterion(ids, scores, **kwargs)

        return by_length(stops, self.history.gathered(input_ids), None, self.history.pads, window=self.window)


def _stop_strings(criterion: Any, scene: Scene) -> Any:
    return _StopByLength(criterion, scene.history, criterion.maximum_token_len)


# By exact class: a subclass is code of the caller's own.
TWINS: Mapping[type, Maker] = {
    EncoderNoRepeatNGramLogitsProcessor: _encoder_no_repeat_ngram,
    EncoderRepetitionPenaltyLogitsProcessor: _encoder_repetition_penalty,
    ForcedBOSTokenLogitsProcessor: _forced_bos,
    MinLengthLogitsProcessor: _min_length,
    NoBadWordsLogitsProcessor: _sequence_bias,
    NoRepeatNGramLogitsProcessor: _no_repeat_ngram,
    RepetitionPenaltyLogitsProcessor: _repetition_penalty,
    SequenceBiasLogitsProcessor: _sequence_bias,
    SuppressTokensAtBeginLogitsProcessor: _suppress_at_begin,
    UnbatchedClassifierFreeGuidanceLogitsProcessor: _guidance,
    WatermarkLogitsProcessor: _watermark,
    stopping_criteria.StopStringCriteria: _stop_strings,
}

# Where a processor or criterion that the caller made keeps a number of columns, which are the caller's.
COLUMN_FIELDS: Mapping[type, str] = {
    AlternatingCodebooksLogitsProcessor: "input_start_len",
    ExponentialDecayLengthPenalty: "regulation_start",
    ForcedEOSTokenLogitsProcessor: "max_length",
    MinNewTokensLengthLogitsProcessor: "prompt_length_to_skip",
    SuppressTokensAtBeginLogitsProcessor: "begin_index",
    stopping_criteria.MaxLengthCriteria: "max_length",
}


def in_model_columns(processor: Any, history: History) -> Any:
    """A processor of the caller's whose columns are counted in the model's layout."""
    if history.prompt is None:
        return processor  # the ids that it counts hold no prompt
    field = COLUMN_FIELDS[type(processor)]
    return _changed(processor, **{field: getattr(processor, field) - history.plan.trim})


def _changed(processor: Any, **fields: Any) -> Any:
    """A shallow copy with some attributes replaced."""
    copied = copy.copy(processor)
    for name, value in fields.items():
        setattr(copied, name, value)
    return copied
