"""The checks of a model: whether its calls come to padfix, what becomes of them, and where its replies end."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..generation.reach import reach_of
from .report import Level
from .subject import Seen, Subject

__all__ = ["end_of_replies", "reach", "strategy"]

ONE_AT_A_TIME = "Run the prompts one at a time, without pads."


def reach(subject: Subject) -> Iterator[Seen]:
    """Whether calls of the model's `generate` come to padfix."""
    found = reach_of(subject.model)
    if not found.owner:
        yield "problem", found.sentence, "Load it with a class that generates, such as AutoModelForCausalLM."
    elif found.kind == "never":
        level: Level = "note" if subject.encodes else "problem"
        yield level, found.sentence, f"padfix does not see its calls. {ONE_AT_A_TIME}"
    elif found.kind == "unknown":
        yield "note", found.sentence, "Compare a padded batch with its prompts alone once, with padfix installed."
    else:
        yield "ok", found.sentence, ""


def strategy(subject: Subject) -> Iterator[Seen]:
    """How padfix will make a padded batch right, and up to where that is exact."""
    if not subject.outlooks:
        seen = "Nothing to choose: as far as can be told, no call comes to padfix."
        yield "note", seen, "See the finding on generate."
    for outlook in subject.outlooks:
        traits = outlook.traits
        if traits.encoder_decoder:
            yield "ok", f"{traits.name}: the padding of its encoder is right as it is, on either side, and stays.", ""
        elif outlook.strategy is None and subject.settings.strategy == "packed_prefill":
            seen = f"A padded batch raises SettingsError: {outlook.reason}."
            yield "problem", seen, "Set the strategy to auto (PADFIX_STRATEGY=auto)."
        elif outlook.strategy is None:
            seen = (
                f"padfix cannot make a padded batch right: {outlook.reason}. It warns of one and lets it run as it is."
            )
            yield "problem", seen, f"{ONE_AT_A_TIME} In strict mode such a batch raises UnsupportedCallError."
        elif outlook.strategy == "equal_length":
            seen = (
                f"equal_length: rows of one length share a call, without pads: {outlook.reason or 'as it was asked'}."
            )
            yield "note", seen, "Nothing, unless speed matters: a batch takes as many calls as it has lengths."
        elif traits.exact_up_to < math.inf:
            seen = f"left_pad: {traits.name} is exact up to {traits.exact_up_to:.0f} columns, since {traits.reason}."
            yield "note", seen, "Nothing to do: beyond it rows of one length share a call, in as many calls as lengths."
        else:
            yield "ok", f"{outlook.strategy}: {traits.name} is exact at any length.", ""
        if not traits.known:
            seen = f"{traits.name} stands in no table: the first padded batch sets off a short trial run."
            yield "note", seen, "Nothing, or say it for good: padfix.register_architecture."


def end_of_replies(subject: Subject) -> Iterator[Seen]:
    """Whether replies end, and where the tokenizer thinks that they do."""
    ends, own = subject.ends, getattr(subject.tokenizer, "eos_token_id", None)
    seen = f"model.generation_config.eos_token_id is {_listed(ends)}"
    if subject.generation_config is None:
        yield "note", "The model has no generation_config.", "Give it one: generate cannot run without."
    elif not ends:
        remedy = f"Set model.generation_config.eos_token_id = {'the id of an EOS' if own is None else own}."
        yield "problem", f"{seen}: replies never end by themselves, only at the largest length.", remedy
    elif own is not None and own not in ends:
        remedy = f"If replies run on, set model.generation_config.eos_token_id = {[*ends, own]}."
        yield "note", f"{seen}, and tokenizer.eos_token_id is {own}, at which no reply ends.", remedy
    else:
        yield "ok", f"{seen}.", ""


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids)) or "not set"
