"""The lists of processors and criteria that `generate` builds, rewritten for one padded call.

`generate` builds both lists inside itself, so padfix stands in for the two methods that do: patch.py puts
`logits_processors` and `stopping_criteria` in their places, inert but for the call that `rewritten` announces.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from transformers import GenerationConfig

from .call import GenerateCall
from .callbacks import InCallersLayout
from .encoder import READ_ENCODER, without_pads
from .history import History
from .processors import COLUMN_FIELDS, TWINS, Scene, in_model_columns

__all__ = [
    "Decoding",
    "encoder_without_pads",
    "logits_processors",
    "passed_by_caller",
    "rewritten",
    "stopping_criteria",
]


@dataclass(eq=False)
class Decoding:
    """How the lists of one call are rewritten.

    Attributes:
        model: The model whose `generate` runs.
        history: What each row has seen.
        pad_aware: Whether the library's processors that read the history get twins that see no pads.
        relaid: Whether the ids differ from the caller's, so that code of the caller's is shown the caller's.
        passed: The processors and criteria that the caller made.
        min_length: The fewest real tokens of a row, or None where the library's own count of columns stands.
        config: The generation config that the call runs with.
        reached: Whether `generate` has asked for its processors since.
    """

    model: Any
    history: History
    pad_aware: bool
    relaid: bool
    passed: tuple[Any, ...]
    min_length: int | None
    config: GenerationConfig
    reached: bool = field(default=False, init=False)

    def one(self, processor: Any, encoder_ids: Tensor | None = None) -> Any:
        """What takes the place of one processor or criterion: a twin, a view in the caller's layout, or itself."""
        if not callable(processor):
            return processor  # transformers refuses it
        by_caller = any(processor is one for one in self.passed)
        if by_caller and self.relaid and type(processor) in COLUMN_FIELDS:
            return in_model_columns(processor, self.history)
        if type(processor) in TWINS:
            scene = Scene(self.history, self.config, encoder_ids, by_caller)
            return TWINS[type(processor)](processor, scene) if self.pad_aware else processor
        return InCallersLayout(processor, self.history) if by_caller and self.relaid else processor


def passed_by_caller(call: GenerateCall) -> tuple[Any, ...]:
    """The logits processors and stopping criteria that the caller has made."""
    lists = (call.get("logits_processor"), call.get("stopping_criteria"))
    return tuple(one for each in lists if isinstance(each, Iterable) for one in each)


# Those of GenerationMixin._get_logits_processor, in every release from 4.46 to 5.24.
_PARAMETERS = (
    "generation_config",
    "input_ids_seq_length",
    "encoder_input_ids",
    "prefix_allowed_tokens_fn",
    "logits_processor",
    "device",
    "model_kwargs",
    "negative_prompt_ids",
    "negative_prompt_attention_mask",
)

_announced: ContextVar[Decoding | None] = ContextVar("padfix_decoding", default=None)


@contextmanager
def rewritten(decoding: Decoding) -> Iterator[None]:
    """A block in which the next lists that `generate` builds for that model are rewritten."""
    token = _announced.set(decoding)
    try:
        yield
    finally:
        _announced.reset(token)


# The model whose next list is kept from the encoder's pads, and what is told of a processor instead, where it only is.
_encoder: ContextVar[tuple[Any, Callable[[Any], None] | None] | None] = ContextVar("padfix_encoder", default=None)


@contextmanager
def encoder_without_pads(model: Any, tell: Callable[[Any], None] | None = None) -> Iterator[None]:
    """A block in which the next list that `generate` builds for that model reads the encoder's ids without pads.

    Where `tell` is given, it is called with each processor that sees pads, and the list stays as it is.
    """
    token = _encoder.set((model, tell))
    try:
        yield
    finally:
        _encoder.reset(token)


def logits_processors(
    original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """What `GenerationMixin._get_logits_processor` gives, rewritten where a padded call has asked for it."""
    decoding, encoder = _announced.get(), _encoder.get()
    if decoding is not None and decoding.model is not model:
        decoding = None
    reads = encoder if encoder is not None and encoder[0] is model else None
    if decoding is None and reads is None:
        return original(model, *args, **kwargs)
    named = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}  # a wrapper may hide the signature
    if reads is not None:
        _encoder.set(None)  # calls of generate from within this one are calls of their own
    if decoding is None:
        made = original(model, *args, **kwargs)
        return type(made)(_of_encoder(each, named, reads) for each in made)
    decoding.reached = True
    if decoding.min_length is not None:
        # Of embeddings alone the library has taken the batch's columns off, and may have left nothing.
        named["generation_config"] = copied = copy.copy(named["generation_config"])
        copied.min_length = decoding.min_length
    made = original(model, **named)
    if reads is None:
        return type(made)(decoding.one(each, named.get("encoder_input_ids")) for each in made)
    return type(made)(decoding.one(_of_encoder(each, named, reads)) for each in made)


def _of_encoder(
    processor: Any, named: Mapping[str, Any], reads: tuple[Any, Callable[[Any], None] | None] | None
) -> Any:
    """A processor of an encoder-decoder model, which does not see the pads of the encoder's ids."""
    passed = named.get("logits_processor")
    passed = passed if isinstance(passed, Iterable) else ()
    if reads is None or type(processor) not in READ_ENCODER or any(processor is one for one in passed):
        return processor
    changed = without_pads(processor, named.get("encoder_input_ids"), named.get("model_kwargs"))
    if reads[1] is not None and changed is not processor:
        reads[1](processor)
        return processor
    return changed


def stopping_criteria(
    original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """What `GenerationMixin._get_stopping_criteria` gives, rewritten likewise; the last list of a call."""
    decoding = _announced.get()
    if decoding is None or decoding.model is not model:
        return original(model, *args, **kwargs)
    _announced.set(None)  # calls of generate from within this one are calls of their own
    made = original(model, *args, **kwargs)
    return type(made)(decoding.one(each) for each in made)
