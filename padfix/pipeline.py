"""One call of `generate`, in eight steps: intercept, bind, detect, choose, re-lay, wrap, generate, restore.

`run` is what stands in the place of `GenerationMixin.generate` (intercept is patch.py); it reads as the list of its
steps. Steps five to eight belong to the strategy that step four chose; step six, the wrapping of callbacks and
processors, is still a list of refusals: generation/limits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformers import GenerationConfig

from . import notices
from .errors import AmbiguousPaddingError, RightPaddingError, UnsupportedCallError
from .generation import compat, lengths, limits
from .generation.call import GenerateCall, bind
from .generation.traits import Traits, traits_of
from .layout.detect import Padding, from_ids, from_mask
from .layout.plan import LayoutPlan
from .settings import ENVIRONMENT, Settings, effective
from .strategies import Strategy, choose
from .strategies.left_pad import changes_nothing

__all__ = ["generate", "run"]


def generate(model: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`model.generate(*args, **kwargs)` with padfix's repair for this one call, whether padfix is installed or not.

    Settings are those of the environment and of `override`; a mode of `off` counts as `fix` here, since the call
    asks for it.

    Returns:
        What `model.generate` returns, in the caller's layout: ids of shape (batch, prompt width + new tokens), or a
        `ModelOutput`.

    Raises:
        PadfixError: In strict mode, for a batch that is padded on the right.
    """
    settings = effective(ENVIRONMENT)
    if settings.mode == "off":
        settings = replace(settings, mode="fix")
    return run(type(model).generate, model, args, kwargs, settings)


def run(
    original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Settings
) -> Any:
    """The output of one call in the caller's layout: repaired, or the original's own where there is nothing to do."""
    notices.tally("calls")
    call = bind(model, args, kwargs)
    found = None if call is None else detect(call)
    if call is None or found is None:
        return original(model, *args, **kwargs)
    notices.tally("padded")
    repair = decide(call, found, settings)
    if repair is None:
        return original(model, *args, **kwargs)
    notices.tally("repaired")
    return repair.strategy(call, found.config, repair.plan, original)


@dataclass(frozen=True)
class Found:
    """A padded prompt: where its pads are, and the generation config that the call will run with."""

    padding: Padding
    config: GenerationConfig


@dataclass(frozen=True)
class Repair:
    """How a call is going to be made right."""

    strategy: Strategy
    plan: LayoutPlan


def detect(call: GenerateCall) -> Found | None:
    """The pads of the prompt, or None where there are none, or where transformers refuses the arguments anyway.

    A given mask always wins over ids. Encoder-decoder models are asked for their decoder's prompt alone.
    """
    if call.mask is not None:
        padding = from_mask(call.mask) if call.mask.ndim == 2 and call.mask.numel() else None
        config = None if padding is None else compat.resolved_config(call)
    elif call.ids is None or call.ids.ndim != 2 or call.is_decoder_prompt:
        return None
    else:
        config = compat.resolved_config(call)
        padding = None if config is None else from_ids(call.ids, _pad_id(config), compat.eos_ids(config))
    return None if padding is None or config is None else Found(padding, config)


def decide(call: GenerateCall, found: Found, settings: Settings) -> Repair | None:
    """How to make the call right; None to leave it as it is, after having said so where it will be wrong.

    Raises:
        PadfixError: In strict mode, for whatever fix mode would repair by moving columns or would leave as it is.
    """
    padding, config = found.padding, found.config
    if settings.mode == "strict":
        _raise_if_misplaced(call, padding)
    if len(padding.empty) == len(padding.real):
        _say_empty(call, padding)
        return None
    traits = traits_of(call.model)
    plan, strategy, obstacles = _choose(call, found, traits, settings)
    if not obstacles and changes_nothing(call, config, plan, guessed=bool(padding.guessed)):
        _say_empty(call, padding)
        return None
    if lengths.new_tokens(call, config) <= 0:
        return None  # transformers raises: max_length leaves no room for a new token
    if settings.mode == "warn":
        _warn_call_site(call, padding, obstacles)
        return None
    if obstacles or strategy is None:
        _refuse(call, padding, obstacles, settings)
        return None
    _say_repaired(call, padding, traits)
    return Repair(strategy, plan)


def _choose(
    call: GenerateCall, found: Found, traits: Traits, settings: Settings
) -> tuple[LayoutPlan, Strategy | None, list[str]]:
    """The plan, the strategy, and what stands in the way of it.

    A batch that the caller left-padded stays as it is where that is exact; columns that are pads in every row are
    dropped for the others, since a batch without pads is exact for every model and under every flag.
    """
    padding, config = found.padding, found.config
    fixed = compat.wants_fixed_shapes(call, config)
    history = [] if settings.decoding == "stock" else list(limits.history_bound(call, config))

    def attempt(*, trim: bool) -> tuple[LayoutPlan, Strategy | None, list[str]]:
        plan = LayoutPlan.from_mask(padding.real, trim=trim)
        strategy, reason = choose(settings.strategy, traits, plan, lengths.new_tokens(call, config))
        obstacles = [f"{type(call.model).__name__} ({reason})"] if strategy is None else []
        obstacles += history if plan.pads_remain else []
        if not plan.is_identity:
            obstacles += limits.layout_bound(call, config)
        return plan, strategy, obstacles

    chosen = attempt(trim=not fixed and bool(padding.misplaced))
    if chosen[2] and not padding.misplaced and not fixed:
        trimmed = attempt(trim=True)
        return chosen if trimmed[2] else trimmed
    return chosen


def _raise_if_misplaced(call: GenerateCall, padding: Padding) -> None:
    """Raises for a batch that transformers would continue after its pads."""
    if padding.guessed:
        raise AmbiguousPaddingError(
            f"{_rows(call, padding.guessed, 'starts or ends', 'start or end')} in more pad ids than "
            "other rows, no attention_mask was given, and the pad id is also an EOS id, so transformers takes "
            "them for content. Pass the tokenizer's attention_mask."
        )
    if padding.misplaced:
        raise RightPaddingError(f"{_misplaced(call, padding)} {PAD_LEFT}")


def _refuse(call: GenerateCall, padding: Padding, obstacles: list[str], settings: Settings) -> None:
    notices.tally("left_as_is")
    message = f"{_seen(call, padding)} padfix cannot make this call right: {'; '.join(obstacles)}."
    if settings.mode == "strict":
        raise UnsupportedCallError(f"{message} {TAKE_OUT}")
    notices.warn(f"{message} It runs as it is, and its padded rows may be wrong. {TAKE_OUT}")


def _warn_call_site(call: GenerateCall, padding: Padding, obstacles: list[str]) -> None:
    notices.tally("left_as_is")
    also = f" Also in the way: {'; '.join(obstacles)}." if obstacles else ""
    remedy = PAD_LEFT if padding.misplaced else "Set PADFIX=fix to repair it."
    notices.warn_once(f"{_seen(call, padding)}{also} {remedy}", notices.call_site())


def _say_repaired(call: GenerateCall, padding: Padding, traits: Traits) -> None:
    _say_empty(call, padding)
    if padding.guessed:
        notices.warn(
            f"{_rows(call, padding.guessed, 'starts or ends', 'start or end')} in more pad ids than "
            "other rows, no attention_mask was given, and the pad id is also an EOS id: what exceeds the "
            "shortest run was taken for padding. Pass the tokenizer's attention_mask to be sure and to silence this."
        )
    if not traits.known:
        name = type(call.model).__qualname__
        notices.warn_once(
            f"{name} is no class of transformers: padfix takes it that left padding is exact for it. Compare a "
            "padded batch with its prompts alone once.",
            type(call.model),
        )
    if padding.misplaced:
        notices.info_once(f"{_misplaced(call, padding)} Repaired.", notices.call_site())


def _say_empty(call: GenerateCall, padding: Padding) -> None:
    if padding.empty:
        notices.warn(
            f"{_rows(call, padding.empty, 'has', 'have')} no real token: what comes back for that means nothing. "
            "Leave such rows out of the batch."
        )


PAD_LEFT = 'Pad on the left (tokenizer.padding_side = "left"), or set PADFIX=fix.'
TAKE_OUT = "Take that out of the call, or run the prompts one at a time."


def _seen(call: GenerateCall, padding: Padding) -> str:
    """One sentence about the pads of a batch."""
    if padding.misplaced:
        return _misplaced(call, padding)
    padded = tuple(row for row, full in enumerate(padding.real.all(dim=1).tolist()) if not full)
    return f"{_rows(call, padded, 'is', 'are')} padded."


def _misplaced(call: GenerateCall, padding: Padding) -> str:
    have = _rows(call, padding.misplaced, "has", "have")
    return f"{have} pads after real tokens: generation would continue from a pad."


def _rows(call: GenerateCall, rows: tuple[int, ...], one: str, several: str) -> str:
    """`Rows 1, 3 of input_ids (shape (4, 12)) have`, with the first eight rows and the verb in its number."""
    shown = ", ".join(map(str, rows[:8])) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
    where = f"of {call.prompt_name} (shape {call.prompt_shape})"
    return f"Row {shown} {where} {one}" if len(rows) == 1 else f"Rows {shown} {where} {several}"


def _pad_id(config: GenerationConfig) -> int | None:
    """The pad id that transformers will use: the call's or the model's, else the first EOS."""
    ends = compat.eos_ids(config)
    return config.pad_token_id if config.pad_token_id is not None else (ends[0] if ends else None)
