"""The default: move the prompt to the model's layout, generate once, move what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from ..generation.cache import cache_to_caller
from ..generation.call import SEQUENCE_AXES, GenerateCall
from ..generation.callbacks import CallersStreamer, prefix_function
from ..generation.compat import eos_ids, pad_id, positions_advance, vocabulary_size
from ..generation.configs import windows
from ..generation.decoding import Decoding, passed_by_caller, rewritten
from ..generation.guidance import needs_axes
from ..generation.history import History
from ..generation.lengths import reduced
from ..generation.limits import misfits
from ..generation.outputs import cache_fields, pads_after_end, rebuilt, sequences_to_caller
from ..generation.plain import have_embeddings
from ..generation.states import STATES, Columns, states_to_caller
from ..generation.traits import needs_decoder_positions
from ..layout.plan import LayoutPlan
from ..notices import warn
from .job import Job

__all__ = [
    "added_columns",
    "changes_nothing",
    "every_id_is_valid",
    "generated",
    "lost_states",
    "restored",
    "run",
    "to_caller",
    "to_model",
    "valid_pad_id",
    "warn_of_lost",
    "with_caches",
    "with_callers_view",
]


def run(job: Job, original: Callable[..., Any]) -> Any:
    """The output of one call of `original` on the left-padded batch, in the caller's layout.

    As many forwards as the batch would take if the caller had padded it on the left, each with the same rows.
    """
    return restored(generated(job, original), job)


def restored(output: Any, job: Job) -> Any:
    """What `original` gave for the batch in the model's layout, as the caller sees it."""
    if not job.rewrite:
        return output
    moved = to_caller(output, job)
    if job.plan.is_identity:
        return moved
    warn_of_lost(lost_states(output, moved))
    return with_caches(moved, job)


def generated(job: Job, original: Callable[..., Any], beside: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """What `original` gives for the batch in the model's layout, with the arguments `beside` on top."""
    call, config, plan = job.call, job.config, job.plan
    history = History(plan, call.ids)
    moved = (
        with_callers_view(to_model(call, config, plan, pad_aware=job.pad_aware, past=job.past), history)
        if job.rewrite
        else call
    )
    decoding = Decoding(
        model=call.model,
        history=history,
        pad_aware=job.pad_aware,
        relaid=job.rewrite,
        passed=passed_by_caller(call),
        min_length=config.min_length if job.pad_aware and config.min_new_tokens is None else None,
        config=config,
    )
    with rewritten(decoding):
        output = original(call.model, **{**moved.arguments, **beside})
    if job.reads_history and not decoding.reached:
        warn(
            f"{type(call.model).__name__} builds its own list of logits processors: those that read the token history "
            "have seen the pads of this batch."
        )
    return output


def with_callers_view(call: GenerateCall, history: History) -> GenerateCall:
    """The call with a prefix function and a streamer that are shown the caller's layout."""
    changes: dict[str, Any] = {}
    if call.get("prefix_allowed_tokens_fn") is not None:
        changes["prefix_allowed_tokens_fn"] = prefix_function(call.get("prefix_allowed_tokens_fn"), history)
    if call.get("streamer") is not None:
        changes["streamer"] = CallersStreamer(call.get("streamer"), history)
    return call.changed(changes)


def changes_nothing(call: GenerateCall, config: GenerationConfig, plan: LayoutPlan, *, guessed: bool) -> bool:
    """Whether transformers would read the batch rightly as the caller passed it.

    Args:
        guessed: Whether the mask was inferred in a way that transformers does not.
    """
    if not plan.is_identity or guessed:
        return False
    if any(misfits(call)):
        return True
    if call.is_decoder_prompt:
        told = call.get("decoder_position_ids")
        if told is None:
            return not (plan.pads_remain and needs_decoder_positions(call.model))
        return not _are_redundant(told, plan) or (positions_advance() and _follow_mask(told, plan))
    positions = call.get("position_ids")
    if positions is not None:
        if not positions_advance():
            return False
        if _are_redundant(positions, plan) and (needs_axes(call.model) or not _follow_mask(positions, plan)):
            return False
    return every_id_is_valid(call, config)


def to_model(
    call: GenerateCall, config: GenerationConfig, plan: LayoutPlan, *, pad_aware: bool, past: Tensor | None = None
) -> GenerateCall:
    """The call with its prompt in the model's layout, an explicit mask, and lengths for the model's width.

    `past` is the mask over the columns that are in a cache already, where the prompt is the new tokens alone.
    """
    lengths = reduced(call, config, plan.trim, counts_columns=plan.pads_remain and not pad_aware)
    mask = plan.real if past is None else torch.cat((past, plan.real), 1)
    changes: dict[str, Any] = {call.mask_name: mask.long(), **lengths}
    pad = valid_pad_id(call, config)
    if call.ids_name is not None:
        changes[call.ids_name] = plan.to_model(call.arguments[call.ids_name], fill=pad)
    if _has_no_embedding(config.pad_token_id, call, config):
        changes["pad_token_id"] = pad
    for name, axes in call.sequence_axes.items():
        value = call.get(name)
        if value is not None and name != "position_ids" and not plan.is_identity:
            changes[name] = plan.to_model(value, batch_axis=axes.batch, prompt_axis=axes.prompt, fill=axes.fill)
    if call.is_decoder_prompt:
        return _decoder_to_model(call, changes, plan)
    positions = call.get("position_ids")
    if positions is None:
        return call.changed(changes)
    if _are_redundant(positions, plan, past):
        return call.changed(changes).without("position_ids")
    if not positions_advance():
        warn(
            "position_ids= differ from what the attention_mask implies; they were moved with their tokens, but this "
            "release of transformers does not carry them on while decoding, for a prompt alone either."
        )
    axes = SEQUENCE_AXES["position_ids"]
    changes["position_ids"] = plan.to_model(positions, batch_axis=axes.batch, prompt_axis=axes.prompt)
    return call.changed(changes)


def _decoder_to_model(call: GenerateCall, changes: dict[str, Any], plan: LayoutPlan) -> GenerateCall:
    """The call of an encoder-decoder model with these changes, and with the positions that its decoder needs."""
    told = call.get("decoder_position_ids")
    redundant = told is not None and _are_redundant(told, plan)
    moved = call.changed(changes)
    if redundant:
        moved = moved.without("decoder_position_ids")
    if not plan.pads_remain:  # not every decoder takes a mask, and without pads it says nothing
        return moved.without(call.mask_name)
    if (told is None or redundant) and needs_decoder_positions(call.model):
        implied = (plan.real.long().cumsum(1) - 1).clamp(min=0)
        return moved.changed({"decoder_position_ids": implied})
    return moved


def to_caller(output: Any, job: Job, *, apart: bool = False, before: int | None = None) -> Any:
    """The output of the model's layout in the caller's; a `ModelOutput` keeps its class.

    Args:
        apart: Whether it will be joined with others, so that all need one shape.
        before: The number of columns before the prompt that are wanted; None for as many as there are.
    """
    call, config, plan = job.call, job.config, job.plan
    sequences = output if isinstance(output, Tensor) else getattr(output, "sequences", None)
    if sequences is None:
        warn(f"the output is a {type(output).__name__} without sequences: it stays in the layout that the model saw.")
        return output
    if call.ids is not None and sequences.ndim != call.ids.ndim:
        return output  # codes of sound, without the prompt
    added = added_columns(output, job)
    restored = sequences_to_caller(sequences[:, added:], call.ids, plan.model_width)
    before = added if before is None else before
    restored = torch.cat((sequences[:, :before], restored), 1) if before else restored
    ends = eos_ids(config)
    if ends and _has_no_embedding(config.pad_token_id, call, config):
        width = before + (call.width if call.ids is not None else 0)
        restored = pads_after_end(restored, width, ends, int(config.pad_token_id))
    if isinstance(output, Tensor):
        return restored
    states: dict[str, Any] = {}
    if (apart or not plan.is_identity) and any(_has(output, name) for name in STATES):
        states = states_to_caller(output, Columns.of(call, config, plan, added, cache=job.cache, past=job.past))
    return rebuilt(output, {**states, "sequences": restored})


def lost_states(output: Any, restored: Any) -> tuple[str, ...]:
    """The fields of hidden states and attentions that `to_caller` has left out, since it does not know their shape."""
    if isinstance(output, Tensor):
        return ()
    return tuple(name for name in STATES if _has(output, name) and not _has(restored, name))


def warn_of_lost(names: Iterable[str]) -> None:
    """Says which of these fields are left out, and why."""
    for name in names:
        warn(
            f"the field {name} of this output is None: its tensors have none of the shapes that padfix knows how to "
            "move. Run the prompts one at a time."
        )


def with_caches(output: Any, job: Job) -> Any:
    """An output whose caches are in the caller's layout, as is the cache that the call brought.

    A cache that cannot be moved is left out, with a warning.
    """
    fields = cache_fields(output)
    if not fields and job.cache is None:
        return output
    before, sizes = 0 if job.past is None else job.past.shape[1], windows(job.call.model)
    if not fields and job.cache is not None:
        cache_to_caller(job.cache.cache, job.plan, before=before, sizes=sizes)
        return output
    moved = {name: cache_to_caller(getattr(output, name), job.plan, before=before, sizes=sizes) for name in fields}
    for name in [name for name, cache in moved.items() if cache is None]:
        warn(
            f"the field {name} of this output is None: its cache belongs to the left-padded batch that the model saw, "
            f"and a {type(getattr(output, name)).__name__} like this one cannot be moved. Pass the whole sequences and "
            "their mask to the next call."
        )
    return rebuilt(output, moved)


def _has(output: Any, name: str) -> bool:
    return getattr(output, name, None) is not None


def added_columns(output: Any, job: Job) -> int:
    """The number of columns before the prompt: 1 where `generate` has put the start token before a decoder's."""
    call, config, plan = job.call, job.config, job.plan
    sequences = output if isinstance(output, Tensor) else getattr(output, "sequences", None)
    if not call.is_decoder_prompt or call.ids is None or sequences is None:
        return 0
    copies = sequences.shape[0] // call.batch
    prompt = plan.to_model(call.ids, fill=valid_pad_id(call, config))
    told = plan.real if any(plan.lengths) else torch.ones_like(plan.real)  # rows without a token: their pads tell
    prompt, told = (each.to(sequences.device).repeat_interleave(copies, 0) for each in (prompt, told))
    return int(bool(((sequences[:, : plan.model_width] != prompt) & told).any()))


def _are_redundant(positions: Tensor, plan: LayoutPlan, past: Tensor | None = None) -> bool:
    """Whether position_ids of the caller's layout say what the mask says, or merely count the columns."""
    if positions.ndim != 2:
        return False
    first = 0 if past is None else past.shape[1]
    columns = torch.arange(first, first + plan.caller_width, device=positions.device)
    return bool((positions == columns).all()) or _follow_mask(positions, plan, past)


def _follow_mask(positions: Tensor, plan: LayoutPlan, past: Tensor | None = None) -> bool:
    """Whether the real tokens of each row have the positions 0, 1, 2 ..., or go on from those in the cache."""
    moved = plan.to_model(positions)
    real = plan.real.to(positions.device)
    first = 0 if past is None else past.sum(1, keepdim=True).to(positions.device)
    return bool(((moved == first + real.long().cumsum(1) - 1) | ~real).all())


def valid_pad_id(call: GenerateCall, config: GenerationConfig) -> int:
    """The pad id of the call, as transformers chooses it, or 0 where the embedding has no row for it."""
    asked, size = pad_id(config), vocabulary_size(call.model)
    return asked if isinstance(asked, int) and asked >= 0 and (size is None or asked < size) else 0


def _has_no_embedding(pad: Any, call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether the pad id that a call names is a whole number, and the embedding has no row for it."""
    return isinstance(pad, int) and pad != valid_pad_id(call, config)


def every_id_is_valid(call: GenerateCall, config: GenerationConfig) -> bool:
    """Whether the embedding has a row for every id of the prompt and for the pad id."""
    ids, size = call.ids, vocabulary_size(call.model)
    if ids is None or size is None:
        return True
    return not _has_no_embedding(config.pad_token_id, call, config) and have_embeddings(ids, size)
