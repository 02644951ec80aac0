"""What a model is, as far as padding is concerned, read from its class, its configuration and its modules."""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from ..registry import registered
from ..releases import NEWEST_TESTED
from .compat import installed, positions_advance
from .configs import config_limits, text_config
from .exceptions import (
    COLUMNS_COUNTED,
    EXACT_BEFORE,
    EXACT_SINCE,
    MIXES_ROWS,
    NEEDS_DECODER_POSITIONS,
    NOT_EXACT,
    POSITION_TABLES,
    WINDOW_COUNTS_PADS_BEFORE,
    stands_in,
)

__all__ = [
    "Traits",
    "has_position_table",
    "is_known",
    "needs_decoder_positions",
    "prompt_device",
    "traits_of",
]


@dataclass(frozen=True)
class Traits:
    """What a model is.

    Attributes:
        name: The name of its class.
        encoder_decoder: Whether its prompt is the decoder's, beside an encoder's input.
        exact_up_to: The number of columns (model width and new tokens) up to which a left-padded row gets what it
            gets alone: infinity for most models, 0 for those that left padding cannot make right.
        reason: Why not beyond that; empty where the number is infinity.
        mixes_rows: Whether rows of one batch change one another even without pads, so that each has to run by itself.
        one_at_a_time: Whether rows that run apart from others have to run one at a time: where they change one another,
            and where this release is not exact for the class, for whatever reason.
        masks_one_row: Whether pads are masked in a batch of one row as well.
        known: Whether the class was measured or registered; else a trial run has to tell (strategies/probe.py).
    """

    name: str
    encoder_decoder: bool
    exact_up_to: float
    reason: str
    mixes_rows: bool
    one_at_a_time: bool
    masks_one_row: bool
    known: bool


class _Seen(NamedTuple):
    """What the traits of a model were read from, and what they are."""

    model_class: type
    forward: Any
    config: dict[str, Any]
    traits: Traits


_OF_EVERY_MODULE = frozenset(dir(torch.nn.Module)) - {"__init__", "forward"}
_seen: WeakKeyDictionary[Any, _Seen] = WeakKeyDictionary()
_has_table: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_single_rows: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def traits_of(model: Any) -> Traits:
    """The traits of a model, by its class, release, forward, modules and configuration; the strictest rule counts.

    A PEFT or compiled model is what the model beneath it is. What was registered for a class counts before all of that.
    """
    model = getattr(model, "_orig_mod", model)  # torch.compile
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    traits, told = _remembered(base), registered(type(base))
    if told is not None:
        traits = replace(
            traits,
            exact_up_to=math.inf if told.left_padding_exact else 0,
            reason="" if told.left_padding_exact else told.reason or "registered as not exact left-padded",
            mixes_rows=told.mixes_rows,
            one_at_a_time=told.mixes_rows,
            known=True,
        )
    if _has_prompt_learning(model) and traits.exact_up_to > 0:
        return replace(
            traits, exact_up_to=0, reason="PEFT puts its virtual tokens before the pads, away from the prompt"
        )
    return traits


def _remembered(model: Any) -> Traits:
    """What was read from a model, until its class, its forward or its configuration is another."""
    config, forward, seen = vars(model.config), getattr(model.forward, "__func__", None), _seen.get(model)
    known = is_known(type(model))
    if seen is not None and seen.model_class is type(model) and seen.forward is forward and seen.traits.known == known:
        with suppress(Exception):  # what somebody has put into a configuration may not be comparable
            if seen.config == config:
                return seen.traits
    traits = _read(model, known)
    if forward is not None and text_config(model.config) is model.config:  # else there is more to compare
        with suppress(Exception):  # or may not be copied
            _seen[model] = _Seen(type(model), forward, copy.deepcopy(config), traits)
    return traits


def _read(model: Any, known: bool) -> Traits:
    limit, reason = min(_limits(model), key=lambda rule: rule[0], default=(math.inf, ""))
    mixes_rows = stands_in(MIXES_ROWS, model)
    return Traits(
        name=type(model).__name__,
        encoder_decoder=bool(getattr(model.config, "is_encoder_decoder", False)),
        exact_up_to=limit,
        reason=reason,
        mixes_rows=mixes_rows,
        one_at_a_time=mixes_rows or any(_is_early(one.__name__) for one in type(model).__mro__),
        masks_one_row=_masks_one_row(model),
        known=known,
    )


def needs_decoder_positions(model: Any) -> bool:
    """Whether a padded prompt of the model's decoder needs decoder_position_ids, and generate carries them on."""
    return positions_advance() and stands_in(NEEDS_DECODER_POSITIONS, model)


def is_known(model_class: type) -> bool:
    """Whether a class is one that was measured: the library's own, in a release that was tested.

    A class that derives from one and overrides nothing of it, its initialisation included, is what that one is: FSDP
    and others make such classes as they go.
    """
    if installed() > NEWEST_TESTED:
        return False
    mro = model_class.__mro__
    first = next((at for at, one in enumerate(mro) if one.__module__.startswith("transformers.models.")), None)
    if first is None:
        return False
    return not any(
        hasattr(mro[first], name) and value is not getattr(mro[first], name) and name not in _OF_EVERY_MODULE
        for one in mro[:first]
        for name, value in vars(one).items()
    )


def _limits(model: Any) -> Iterator[tuple[float, str]]:
    """Up to which number of columns left padding is exact, and why not beyond; nothing where it always is."""
    config = text_config(model.config)
    for name in (one.__name__ for one in type(model).__mro__):
        if name in NOT_EXACT:
            yield 0, NOT_EXACT[name]
        if name in NEEDS_DECODER_POSITIONS and not positions_advance():
            yield 0, "its decoder has to be told positions that this release does not carry on"
        if _is_early(name):
            first = ".".join(map(str, EXACT_SINCE[name]))
            yield 0, f"in transformers below {first} its left-padded rows differ from the prompts alone"
        if name in WINDOW_COUNTS_PADS_BEFORE and installed() < WINDOW_COUNTS_PADS_BEFORE[name]:
            window = getattr(config, "sliding_window", None)
            if window:
                yield window, "its sliding window counts pads"
    parameters = inspect.signature(model.forward).parameters
    if not _takes_mask(model, parameters) and not getattr(model.config, "is_encoder_decoder", False):
        yield 0, "its forward takes no attention_mask"
    told = {"position_ids", "decoder_position_ids"} & set(parameters)
    if not told and has_position_table(model):
        yield 0, COLUMNS_COUNTED
    yield from config_limits(config)


def _is_early(name: str) -> bool:
    """Whether the class is one that a later release makes exact."""
    return name in EXACT_SINCE and EXACT_BEFORE.get(name, (0, 0)) <= installed() < EXACT_SINCE[name]


def _takes_mask(model: Any, parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether forward takes an attention_mask: by name, or by handing on whatever it is given."""
    if "attention_mask" in parameters:
        return True
    kinds = [one.kind for one in parameters.values()]
    if kinds != [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return False
    beneath = (vars(one)["forward"] for one in type(model).__mro__ if "forward" in vars(one))
    return any("attention_mask" in inspect.signature(forward).parameters for forward in beneath)


def has_position_table(model: Any) -> bool:
    """Whether there is a table of positions that is asked by column where no position_ids are given.

    As in the decoders of the BART family, and in models whose forward was replaced by one that hides position_ids.
    """
    if model not in _has_table:
        _has_table[model] = any(
            name.rpartition(".")[2] in POSITION_TABLES
            and not any(part in name for part in ("encoder.", "vision", "visual", "image", "audio"))
            and "attention_mask" not in inspect.signature(module.forward).parameters
            for name, module in model.named_modules()
        )
    return _has_table[model]


def _masks_one_row(model: Any) -> bool:
    """Whether the model's recurrent layers, if it has some, mask the pads of a batch of one row.

    Up to 5.0 those of Mamba-2, Bamba, FalconH1, GraniteMoeHybrid, Lfm2 and Qwen3Next do not: their function is asked.
    """
    if model not in _single_rows:
        files = {type(one).__module__ for _, one in model.named_modules()}
        masks = (getattr(sys.modules.get(file), "apply_mask_to_padding_states", None) for file in files)
        states, mask = torch.ones(1, 2, 1), torch.tensor([[0, 1]])
        _single_rows[model] = all(float(one(states, mask)[0, 0, 0]) == 0 for one in masks if one is not None)
    return _single_rows[model]


def _has_prompt_learning(model: Any) -> bool:
    """Whether PEFT runs this model with virtual tokens: prompt tuning, prefix tuning, P-tuning."""
    # PeftModelForCausalLM.generate puts its own prepare_inputs_for_generation on the model that it wraps.
    owner = getattr(model.prepare_inputs_for_generation, "__self__", model)
    return bool(getattr(getattr(owner, "active_peft_config", None), "is_prompt_learning", False))


def prompt_device(model: Any) -> torch.device:
    """Where a prompt goes: to the model's device; to the CPU where accelerate has offloaded the weights.

    Offloaded weights are on the device `meta`, and hooks take what a layer gets to where it runs.
    """
    device = torch.device(model.device)
    is_offloaded = device.type == "meta" and any(hasattr(one, "_hf_hook") for one in model.modules())
    return torch.device("cpu") if is_offloaded else device
