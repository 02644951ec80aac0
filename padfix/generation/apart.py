"""Rows apart: the call for some rows of a batch, and what stands in the way of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.utils.generic import ModelOutput

from ..layout.plan import LayoutPlan
from . import compat
from .adapters import has_forward_hooks
from .call import GenerateCall
from .media import PICTURE_AXES, Media, is_medium, media_of
from .start import begin_with_start
from .states import ONE_PROMPT_LOOPS

__all__ = ["group_bound", "of_rows", "trackers_of_rows", "tracks_rows", "wants_one_row"]

# How the names of tensors begin of which it is known that their first axis is that of the rows.
OF_ROWS = ("batch_num_images", "cross_attention_mask", "decoder_", "encoder_", "negative_prompt_", "qformer_")


def group_bound(call: GenerateCall, config: GenerationConfig, plan: LayoutPlan) -> Iterator[str]:
    """What stands in the way of running rows of one length apart from the others."""
    for name in ONE_PROMPT_LOOPS:
        if call.batch > 1 and (call.get(name) or getattr(config, name, None)):
            yield f"{name}= (a decoding loop for one prompt)"
    if compat.steps_together(call):
        yield "synced_gpus (every rank has to run the same number of forwards)"
    if call.get("streamer") is not None:
        yield "streamer= (it has to see all rows at once)"
    if config.max_time is not None:
        yield "max_time (it counts for the whole call)"
    if has_forward_hooks(call.model, call.batch):
        yield f"hooks on the forwards of {type(call.model).__name__} (they would see some rows at a time)"
    encoded = call.get("encoder_outputs")
    if encoded is not None and not isinstance(encoded, ModelOutput):
        yield f"encoder_outputs= of type {type(encoded).__name__} (only a ModelOutput can be split)"
    yield from _without_rows(call, media_of(call, plan.to_caller(plan.real, fill=False)))
    if call.is_decoder_prompt and isinstance(config.decoder_start_token_id, (list, tuple)):
        yield "decoder_start_token_id=[...] (one for each row)"
    if len(begin_with_start(call, config, plan)) > 1:
        yield f"{call.ids_name}= (some prompts begin with the decoder's start token and some do not)"


def _without_rows(call: GenerateCall, media: Media) -> Iterator[str]:
    """The arguments of which it cannot be told what belongs to a row."""
    yield from media.unknown
    for name, value in call.arguments.items():
        if name == "encoder_outputs" or is_medium(call, name):
            continue
        if isinstance(value, Tensor) and value.ndim:
            told = media.one_each or name in _prompt_names(call) or name.startswith(OF_ROWS)
            if _is_one_row(call, name) or (call.rows_axis(name) is not None and told):
                continue
            yield f"{name}= of shape {tuple(value.shape)} (what belongs to a row cannot be told)"
        elif isinstance(value, (list, tuple)) and any(isinstance(one, Tensor) for one in value):
            yield f"{name}= of type {type(value).__name__} (what belongs to a row cannot be told)"
    if call.get("mm_encoder_outputs"):
        yield "mm_encoder_outputs= (what belongs to a row cannot be told)"


def _prompt_names(call: GenerateCall) -> set[str | None]:
    """The arguments that hold the prompt, or a column for each of its columns."""
    return {call.ids_name, call.mask_name, call.embeds_name, "input_ids", "attention_mask", *call.sequence_axes}


def _is_one_row(call: GenerateCall, name: str) -> bool:
    """Whether a tensor with the prompt axis has one row, which counts for all."""
    axes, value = call.sequence_axes.get(name), call.arguments[name]
    return axes is not None and -value.ndim <= axes.batch < value.ndim and value.shape[axes.batch] == 1


def wants_one_row(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether rows of one length may not share a call: their pictures and sounds could change one another.

    So does encoder_repetition_penalty in releases that apply it to some of a batch's rows.
    """
    if config.encoder_repetition_penalty not in (None, 1) and not compat.encoder_penalty_reaches_every_row():
        return True
    if any(is_medium(call, name) for name in call.arguments):
        return True
    return any(
        isinstance(value, Tensor) and value.is_floating_point() and name not in (call.embeds_name, call.mask_name)
        for name, value in call.arguments.items()
    )


def of_rows(call: GenerateCall, rows: Sequence[int], media: Media) -> GenerateCall:
    """The call for some rows of its batch: every argument that has rows is cut down to theirs.

    Pictures and sounds go with their rows; where the rows have none, the arguments that hold them are left out, as they
    would be for a prompt without them alone.
    """
    changes: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if name in media.places:
            changes[name] = _taken(value, [place for row in rows for place in media.places[name][row]])
        elif name == "prefix_allowed_tokens_fn" and value is not None:
            changes[name] = _prefix_function(value, rows)
        elif isinstance(value, Tensor):
            axis = call.rows_axis(name)
            if axis is not None:
                changes[name] = value.index_select(axis, torch.tensor(rows, device=value.device))
        elif name == "encoder_outputs" and value is not None:
            changes[name] = _encoder_rows(value, rows)
    if media.pictures is not None:
        most = max(media.pictures[row] for row in rows)
        changes |= {name: changes[name].narrow(axis, 0, most) for name, axis in PICTURE_AXES.items() if name in changes}
    left_out = frozenset.intersection(*(media.absent[row] for row in rows))
    return replace(call.changed(changes).without(*left_out), batch=len(rows))


def _taken(value: Any, places: Sequence[int]) -> Any:
    """The entries of a tensor, a list or a tuple at these places."""
    if isinstance(value, Tensor):
        return value.index_select(0, torch.tensor(places, device=value.device, dtype=torch.long))
    return type(value)(value[place] for place in places)


def _prefix_function(function: Callable[[int, Tensor], Any], rows: Sequence[int]) -> Callable[[int, Tensor], Any]:
    """A `prefix_allowed_tokens_fn` that is told the number that a prompt has in the whole batch."""
    return lambda prompt, ids: function(rows[prompt], ids)


def tracks_rows(value: Any, batch: int) -> bool:
    """Whether a value that a callback holds is a list or tensor of bools, one for each row of the batch."""
    if isinstance(value, Tensor):
        return value.dtype == torch.bool and value.shape == (batch,)
    return type(value) is list and len(value) == batch and all(type(one) is bool for one in value)


@contextmanager
def trackers_of_rows(callbacks: Sequence[Any], rows: Sequence[int], batch: int) -> Iterator[None]:
    """A block in which callbacks track these rows alone; afterwards the whole batch, with what they told of these."""
    held = [
        (attributes, name, whole, whole[list(rows)] if isinstance(whole, Tensor) else [whole[row] for row in rows])
        for attributes in {id(one): getattr(one, "__dict__", {}) for one in callbacks}.values()
        for name, whole in attributes.items()
        if tracks_rows(whole, batch)
    ]
    for attributes, name, _, part in held:
        attributes[name] = part
    try:
        yield
    finally:
        for attributes, name, whole, part in held:
            now: Any = attributes.get(name)
            after = whole if now is part else copy.deepcopy(whole)  # a new one takes the place of the old
            if tracks_rows(now, len(rows)):
                for row, value in zip(rows, now, strict=True):
                    after[row] = value
            attributes[name] = after


def _encoder_rows(outputs: Any, rows: Sequence[int]) -> Any:
    """What an encoder gave, for some rows; its hidden states and attentions are tuples of layers."""

    def some(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(some, value))
        return value[list(rows)] if isinstance(value, Tensor) else value

    return type(outputs)(**{name: some(value) for name, value in outputs.items()})
