"""One call of `generate`, in eight steps: intercept, bind, detect, choose, re-lay, wrap, generate, restore.

`run` is what stands in the place of `GenerationMixin.generate` (intercept is patch.py); it reads as the list of its
steps. Steps five to eight belong to the strategy that step four chose; step six, the wrapping of callbacks and
processors, is a list of refusals: generation/limits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from transformers import GenerationConfig

from . import notices, wording
from .errors import AmbiguousPaddingError, RightPaddingError, SettingsError, UnsupportedCallError
from .generation import compat, lengths, limits
from .generation.call import GenerateCall, bind
from .generation.traits import Traits, traits_of
from .layout.detect import Padding, from_ids, from_mask
from .layout.plan import LayoutPlan
from .settings import ENVIRONMENT, Settings, effective, override
from .strategies import Strategy, choose
from .strategies.left_pad import changes_nothing, every_id_is_valid

__all__ = ["Found", "Repair", "choose_repair", "decide", "detect", "generate", "run"]


def generate(model: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`model.generate(*args, **kwargs)` with padfix's repair for this one call, whether padfix is installed or not.

    Settings are those of the environment and of `override`, not those of `install`; a mode of `off` counts as `fix`
    here, since the call asks for it. A model whose class has a `generate` of its own (PEFT's excepted) is not reached
    this way, and a warning says so: install padfix for it.

    Returns:
        What `model.generate` returns, in the caller's layout: ids of shape (batch, prompt width + new tokens), or a
        `ModelOutput`.

    Raises:
        PadfixError: In strict mode: RightPaddingError, AmbiguousPaddingError or UnsupportedCallError.
        SettingsError: The strategy that the settings name is not exact for the model.
    """
    settings = effective(ENVIRONMENT)
    if settings.mode == "off":
        settings = replace(settings, mode="fix")
    method = model.generate  # the instance's own, where it has one
    if not compat.reaches_generation_mixin(model):
        notices.warn(
            f"{type(model).__name__} has a generate of its own, which padfix.generate cannot repair: it runs as it is. "
            "Use padfix.install(), which repairs what such a method calls."
        )
        return method(*args, **kwargs)

    def original(_: Any, *args: Any, **kwargs: Any) -> Any:
        with override("off"):  # an installed padfix must not treat the call once more
            return method(*args, **kwargs)

    return run(original, model, args, kwargs, settings)


def run(
    original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Settings
) -> Any:
    """The output of one call in the caller's layout: repaired, or the original's own where there is nothing to do."""
    notices.tally("calls")
    call = bind(model, args, kwargs, compat.positional_parameters())
    found = None if call is None else detect(call)
    if call is None or found is None:
        return original(model, *args, **kwargs)
    notices.tally("padded")
    repair = decide(call, found, settings)
    if repair is None or repair.strategy is None:
        # An assistant's calls belong to this one: its caches have to come back to it as they are.
        with override("off") if call.get("assistant_model") is not None else nullcontext():
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
    """How a call can be made right.

    Attributes:
        plan: The batch in the model's layout.
        strategy: What runs it; None where no strategy is exact for the model.
        obstacles: What stands in the way, a phrase each; the call cannot be repaired where there are any.
        needed: Whether transformers would read the batch wrongly as it is.
    """

    plan: LayoutPlan
    strategy: Strategy | None
    obstacles: tuple[str, ...]
    needed: bool


def detect(call: GenerateCall) -> Found | None:
    """The pads of the prompt, or None where there are none, or where transformers refuses the arguments anyway.

    A given mask always wins over ids. Of encoder-decoder models the decoder's prompt is meant.
    """
    if call.mask is not None:
        padding = from_mask(call.mask) if call.mask.ndim == 2 and call.mask.numel() else None
        config = None if padding is None else compat.resolved_config(call)
    elif call.ids is None or call.ids.ndim != 2:
        return None
    else:
        config = compat.resolved_config(call)
        pad_id = None if config is None else compat.pad_id(config)
        if config is None or pad_id is None:
            return None
        # A decoder's prompt may start with the pad id, and transformers infers no mask for it.
        padding = from_ids(call.ids, pad_id, (pad_id,) if call.is_decoder_prompt else compat.eos_ids(config))
    return None if padding is None or config is None else Found(padding, config)


def decide(call: GenerateCall, found: Found, settings: Settings) -> Repair | None:
    """How to make the call right; None to leave it as it is, after having said so where it will be wrong.

    Raises:
        PadfixError: In strict mode, for whatever fix mode would repair by moving columns or would leave as it is.
        SettingsError: The strategy that the settings name is not exact here.
    """
    padding, config = found.padding, found.config
    unreadable = limits.unreadable_mask(call)
    if unreadable is not None:
        _leave("", (unreadable,), settings, remedy=wording.PASS_MASK)
        return None
    if settings.mode == "strict":
        _raise_if_misplaced(call, padding)
    if len(padding.empty) == len(padding.real):
        _say(wording.empty(call, padding), settings)
        return None
    traits = traits_of(call.model)
    repair = choose_repair(call, found, traits, settings)
    nothing_to_do = not repair.needed and not repair.obstacles
    if padding.empty and (nothing_to_do or settings.mode != "warn"):  # warn has one report a call site
        _say(wording.empty(call, padding), settings)
    if nothing_to_do:
        return None
    if lengths.new_tokens(call, config) <= 0:
        return None  # transformers raises: max_length leaves no room for a new token
    if settings.mode == "warn":
        remedy = wording.PAD_LEFT if padding.misplaced else "Set PADFIX=fix to have it repaired where it can be."
        _leave(f"{wording.padded(call, padding)} {remedy}", repair.obstacles, settings)
        return None
    if repair.strategy is None and settings.strategy != "auto":
        raise SettingsError(f"{repair.obstacles[0]}. Set the strategy to 'auto'.")
    if repair.obstacles:
        _leave(wording.padded(call, padding), repair.obstacles, settings)
        return None
    _say_repaired(call, padding, traits, repair)
    return repair


def choose_repair(call: GenerateCall, found: Found, traits: Traits, settings: Settings) -> Repair:
    """The repair that disturbs least.

    A batch that the caller left-padded keeps its columns where that is exact. Else columns that are pads in every row
    are dropped, unless every new width costs the model a new graph: a batch without pads is exact for every model and
    under every flag.
    """
    padding, config = found.padding, found.config
    fixed = compat.wants_fixed_shapes(call, config)
    # Up to 5.0 the mask of ids beside embeddings is inferred from the embeddings: all ones.
    guessed = bool(padding.guessed) or (padding.source == "inferred" and call.get(call.embeds_name) is not None)
    history = () if settings.decoding == "stock" else tuple(limits.history_bound(call, config))

    def attempt(*, trim: bool) -> Repair:
        plan = LayoutPlan.from_mask(padding.real, trim=trim)
        strategy, reason = choose(settings.strategy, traits, plan, lengths.new_tokens(call, config))
        obstacles = [reason] if strategy is None else []
        obstacles += history if plan.pads_remain else ()
        needed = not changes_nothing(call, config, plan, guessed=guessed)
        if not plan.is_identity:
            obstacles += limits.layout_bound(call, config)
        elif needed:
            obstacles += limits.identity_bound(call, ids_change=not every_id_is_valid(call, config))
        return Repair(plan, strategy, tuple(obstacles), needed)

    repair = attempt(trim=bool(padding.misplaced) and not fixed)
    if repair.obstacles and not padding.misplaced and not fixed:
        trimmed = attempt(trim=True)
        return repair if trimmed.obstacles else trimmed
    return repair


def _raise_if_misplaced(call: GenerateCall, padding: Padding) -> None:
    """Raises for a batch that transformers would continue after its pads."""
    if padding.guessed:
        raise AmbiguousPaddingError(f"{wording.guessed(call, padding)}. Pass the tokenizer's mask.")
    if padding.misplaced:
        raise RightPaddingError(f"{wording.misplaced(call, padding)} {wording.PAD_LEFT}")


def _leave(seen: str, obstacles: tuple[str, ...], settings: Settings, *, remedy: str = wording.TAKE_OUT) -> None:
    """Says why a call stays as it is, or raises it in strict mode."""
    notices.tally("left_as_is")
    why = f"padfix cannot make this call right: {'; '.join(obstacles)}." if obstacles else ""
    message = f"{seen} {why}".strip()
    if settings.mode == "strict":
        raise UnsupportedCallError(f"{message} {remedy}")
    if settings.mode != "warn":
        message = f"{message} It runs as it is, and its padded rows may be wrong. {remedy}"
    _say(message, settings)


def _say(message: str, settings: Settings) -> None:
    """Warns at the caller's line: of every call, or in warn mode of every call site once."""
    if settings.mode == "warn":
        notices.warn_once(message, notices.call_site())
    else:
        notices.warn(message)


def _say_repaired(call: GenerateCall, padding: Padding, traits: Traits, repair: Repair) -> None:
    if padding.guessed:
        notices.warn(
            f"{wording.guessed(call, padding)}: what exceeds the shortest run was taken for padding. Pass the "
            "tokenizer's mask to be sure and to silence this."
        )
    if not traits.known:
        notices.warn_once(
            f"{traits.name} is no class of transformers: padfix takes it that left padding is exact for it. Compare a "
            "padded batch with its prompts alone once.",
            type(call.model),
        )
    if not repair.plan.is_identity:
        notices.info_once(f"{wording.padded(call, padding)} Repaired.", notices.call_site())
