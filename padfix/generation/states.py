"""Hidden states and attentions, for each step a tuple of layers, in the caller's layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import GenerationConfig

from ..layout.plan import LayoutPlan
from .cache import PassedCache
from .call import GenerateCall
from .compat import has_static_cache, has_unsteady_windows
from .configs import text_config, windows

__all__ = ["ENCODER_STATES", "ONE_PROMPT_LOOPS", "STATES", "Columns", "states_bound", "states_to_caller"]

# Decoding loops for a batch of one, which is exact once it has no pads.
ONE_PROMPT_LOOPS = ("assistant_model", "prompt_lookup_num_tokens")
# Fields of an output that hold a tuple of layers; the encoder's columns never move.
ENCODER_STATES = ("encoder_hidden_states", "encoder_attentions")


@dataclass(frozen=True, eq=False)
class Columns:
    """Which columns the tensors of a step have in the model's layout.

    Attributes:
        plan: How the part of the prompt lies there that the model is fed.
        added: The number of columns before the prompt: 1 where `generate` has put a decoder's start token there.
        cached: The number of columns before these that are in a cache already: keys alone.
        windows: How many columns the sliding layers keep.
        is_static: Whether the cache has columns for tokens that are still to come.
    """

    plan: LayoutPlan
    added: int
    cached: int
    windows: frozenset[int]
    is_static: bool

    @classmethod
    def of(
        cls,
        call: GenerateCall,
        config: GenerationConfig,
        plan: LayoutPlan,
        added: int,
        *,
        cache: PassedCache | None,
        past: Tensor | None,
    ) -> Columns:
        """The columns in a call that runs with `config`; see `Job` for the cache that it brings."""
        cached = 0 if cache is None else cache.columns
        fed = plan.without_first(cached) if cached and past is None else plan
        return cls(fed, added, cached, windows(call.model), has_static_cache(call, config))

    def fed(self, step: int) -> int:
        """The number of columns that the model is fed up to a step, of which 0 is the prefill."""
        return self.added + self.plan.model_width + step

    def to_caller(self, x: Tensor, axis: int, *, before: int = 0) -> Tensor:
        """`x` with the prompt's columns on `axis` in the caller's layout, 0 in the cells of pads.

        `before` of them are more than those that the model is fed.
        """
        before += self.added
        rest = self.plan.to_caller(x.narrow(axis, before, x.shape[axis] - before), prompt_axis=axis)
        return torch.cat((x.narrow(axis, 0, before), rest), axis)


def states_to_caller(output: Any, columns: Columns) -> dict[str, Any]:
    """The fields of an output with hidden states or attentions, by name; None for one whose shape is not known.

    Each cell of a real token holds what it held, and each cell of a pad 0. Attentions of sliding layers, which have
    the last columns alone, get all of them: 0 before the window.
    """
    found = ((name, move, getattr(output, name, None)) for name, move in STATES.items())
    return {name: _moved(steps, move, columns) for name, move, steps in found if steps is not None}


def states_bound(call: GenerateCall, config: GenerationConfig) -> Iterator[str]:
    """What stands in the way of giving back hidden states or attentions of a batch whose columns move."""
    if not config.return_dict_in_generate:
        return
    asked = [name for name in ("output_hidden_states", "output_attentions") if getattr(config, name, None)]
    chunk = getattr(config, "prefill_chunk_size", None)
    for name in asked:
        if chunk and chunk < call.width:
            yield f"{name}=True with prefill_chunk_size={chunk} (what comes back is that of the last chunk)"
        for loop in ONE_PROMPT_LOOPS:
            if call.get(loop) or getattr(config, loop, None):
                yield f"{name}=True with {loop}= (a step holds several tokens)"
    if "output_attentions" not in asked:
        return
    if getattr(text_config(call.model.config), "cross_attention_layers", None):
        yield f"output_attentions=True ({type(call.model).__name__} has layers that attend to pictures)"
    if windows(call.model) and has_unsteady_windows(call, config):
        yield "output_attentions=True with a static cache (its sliding layers lose columns in this release)"


# (tensor of one layer, step, columns) -> that tensor in the caller's layout, or None where its shape is not known.
Move = Callable[[Tensor, int, Columns], Tensor | None]


def _hidden_state(x: Tensor, step: int, columns: Columns) -> Tensor | None:
    """Shape: (rows, queries, hidden)."""
    return _queries_moved(x, 1, step, columns) if x.ndim == 3 else None


def _attention(x: Tensor, step: int, columns: Columns) -> Tensor | None:
    """Shape: (rows, heads, queries, keys)."""
    seen, keys = columns.cached + columns.fed(step), x.shape[-1]
    moved = _cross_attention(x, step, columns)
    if moved is None or (keys > seen and not columns.is_static):
        return None
    if keys < seen:
        if step == 0 or keys not in columns.windows:
            return None
        moved = pad(moved, (seen - keys, 0))
    return columns.to_caller(moved, 3, before=columns.cached)


def _cross_attention(x: Tensor, step: int, columns: Columns) -> Tensor | None:
    """Shape: (rows, heads, queries, encoder's columns)."""
    return _queries_moved(x, 2, step, columns) if x.ndim == 4 else None


# The fields of an output that hold a tuple of layers for each step.
STATES: Mapping[str, Move] = {
    "hidden_states": _hidden_state,
    "attentions": _attention,
    "decoder_hidden_states": _hidden_state,
    "decoder_attentions": _attention,
    "cross_attentions": _cross_attention,
}


def _queries_moved(x: Tensor, axis: int, step: int, columns: Columns) -> Tensor | None:
    """All columns so far (the prefill; without a cache every step), or the last one alone."""
    if x.shape[0] % len(columns.plan.lengths):
        return None
    if x.shape[axis] == columns.fed(step):
        return columns.to_caller(x, axis)
    return x if step and x.shape[axis] == 1 else None


def _moved(steps: Any, move: Move, columns: Columns) -> tuple[Any, ...] | None:
    """The layers of each step; None where one has no known shape. A layer or a step that is None stays."""
    moved: list[Any] = []
    for step, layers in enumerate(steps):
        if layers is None:
            moved.append(None)
            continue
        if not isinstance(layers, (tuple, list)) or not all(x is None or isinstance(x, Tensor) for x in layers):
            return None
        now = [None if x is None else move(x, step, columns) for x in layers]
        if any(after is None and x is not None for x, after in zip(layers, now, strict=True)):
            return None
        moved.append(tuple(now))
    return tuple(moved)
