"""Rows of one length share a call, without a pad: for models that left padding does not make right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from ..generation.adapters import adapters_of_rows
from ..generation.apart import of_rows, trackers_of_rows, tracks_rows
from ..generation.compat import pad_id
from ..generation.decoding import passed_by_caller
from ..generation.media import media_of
from ..generation.outputs import cache_fields, rebuilt
from ..generation.states import ENCODER_STATES, STATES
from ..layout.groups import Groups
from ..layout.plan import LayoutPlan
from ..notices import warn
from . import left_pad
from .job import Job

__all__ = ["joined", "run"]

# Fields of an output that hold tuples of tensors, or of tuples of tensors, each with a row for each prompt or beam.
NESTED = ("scores", "logits", *STATES, *ENCODER_STATES)


def run(job: Job, original: Callable[..., Any]) -> Any:
    """The output of one call of `original` for each length of prompt, joined in the caller's order and layout.

    Each call has rows of one length and no pad; with `job.one_row` it has one row. As many calls as lengths (or rows).
    """
    call, plan = job.call, job.plan
    groups = Groups.of(plan.lengths, one_row=job.one_row)
    real = plan.to_caller(plan.real, fill=False)
    media = media_of(call, real)
    callbacks = passed_by_caller(call)
    states = [_state(one, call.batch) for one in callbacks]
    parts: list[tuple[Any, Job]] = []
    lost: set[str] = set()
    for rows in groups.rows:
        part = of_rows(call, rows, media)
        index = torch.tensor(rows, device=real.device)
        job_of_rows = replace(
            job, call=part, plan=LayoutPlan.from_mask(real[index]), rewrite=True, reads_history=(), one_row=False
        )
        with adapters_of_rows(call.model, rows, call.batch), trackers_of_rows(callbacks, rows, call.batch):
            parts.append((left_pad.generated(job_of_rows, original), job_of_rows))
    # `generate` may put the start token before rows without a token, and not before the others, or the other way round.
    before = {left_pad.added_columns(*part) for part in parts if any(part[1].plan.lengths)}
    outputs = []
    for output, job_of_rows in parts:
        outputs.append(left_pad.to_caller(output, job_of_rows, apart=True, before=max(before, default=None)))
        lost |= set(left_pad.lost_states(output, outputs[-1]))
    if len(groups.rows) > 1:
        _warn_of_state(callbacks, states, call.batch)
    left_pad.warn_of_lost(sorted(lost))
    return joined([_without(output, lost) for output in outputs], groups, job)


def joined(outputs: Sequence[Any], groups: Groups, job: Job) -> Any:
    """What the groups gave as one output of the same class, in the caller's order; caches are left out."""
    fill = pad_id(job.config) or 0
    if isinstance(outputs[0], Tensor):
        return groups.join(outputs, fill=fill)
    beams = int(job.config.num_beams or 1)
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(outputs[0])):
        parts = [getattr(output, name) for output in outputs]
        if name in NESTED:
            values[name] = _joined_nested(parts, groups) or None
        elif name == "beam_indices" and parts[0] is not None:
            values[name] = groups.join(
                [_in_batch(*pair, beams) for pair in zip(parts, groups.rows, strict=True)], fill=-1
            )
        elif isinstance(parts[0], Tensor):
            values[name] = groups.join(parts, fill=fill if name == "sequences" else 0)
        else:
            values[name] = None
    left_out = sorted({name for output in outputs for name in cache_fields(output)})
    if left_out:
        warn(
            f"the field {left_out[0]} of this output is None: rows of other length ran apart, and their caches cannot "
            "be joined. Pass the whole sequences and their mask to the next call."
        )
    return rebuilt(outputs[0], values)


def _joined_nested(parts: Sequence[Any], groups: Groups) -> Any:
    """The tensors of each step or layer; 0 in the rows that had ended by then, None where no group has one."""
    given = [part for part in parts if part is not None]
    if not given or isinstance(given[0], Tensor):
        return groups.join(parts, fill=0.0) if given else None
    return tuple(
        _joined_nested([None if part is None or at >= len(part) else part[at] for part in parts], groups)
        for at in range(max(map(len, given)))
    )


def _in_batch(indices: Tensor, rows: Sequence[int], beams: int) -> Tensor:
    """Beam indices of a group as those of the whole batch; -1 stays."""
    numbers = torch.tensor(rows, device=indices.device)
    row = numbers[(indices.clamp(min=0) // beams)]
    return torch.where(indices < 0, indices, row * beams + indices % beams)


def _without(output: Any, names: Collection[str]) -> Any:
    return rebuilt(output, dict.fromkeys(names)) if names else output


def _state(callback: Any, batch: int) -> Any:
    """What a callback of the caller's holds, to see afterwards whether it has changed; None where nobody can tell."""
    try:
        return copy.deepcopy(_kept(callback, batch))
    except Exception:  # anything may stand in there
        return None


def _kept(callback: Any, batch: int) -> dict[str, Any]:
    """What a callback holds beside what it tracks for each row of the batch, which goes with the rows."""
    return {name: value for name, value in vars(callback).items() if not tracks_rows(value, batch)}


def _warn_of_state(callbacks: Sequence[Any], before: Sequence[Any], batch: int) -> None:
    for callback, held in zip(callbacks, before, strict=True):
        if held is not None and not _alike(held, _kept(callback, batch)):
            warn(
                f"{type(callback).__name__} keeps something from one call for the next, and was called for the rows of "
                "one length after the others: what it keeps may be wrong. Run the prompts one at a time."
            )


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if getattr(type(one), "__eq__", None) is getattr(object, "__eq__", None):  # a copy is never equal: no deeper
        return type(one) is type(other)
    return bool(one == other)
