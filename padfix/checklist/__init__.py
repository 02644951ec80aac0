"""`doctor`: what there is to know about an environment, a tokenizer and a model, each fact with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..patch import state
from ..settings import ENVIRONMENT, Settings, effective
from . import environment
from .model import end_of_replies, reach, strategy
from .report import Diagnosis, Finding
from .subject import Seen, Subject
from .tokenizer import appended_eos, double_bos, pad_ids, pad_token, padding_side, positions

__all__ = ["CHECKS", "Check", "doctor"]

Check = Callable[[Subject], Iterator[Seen]]

# The name of each check, what it needs, and the function.
CHECKS: tuple[tuple[str, tuple[str, ...], Check], ...] = (
    ("versions", (), environment.versions),
    ("settings", (), environment.settings),
    ("patch", (), environment.patch),
    ("other patches", (), environment.others),
    ("generate", ("model",), reach),
    ("strategy", ("model",), strategy),
    ("padding side", ("tokenizer",), padding_side),
    ("pad token", ("tokenizer",), pad_token),
    ("pad ids", ("model", "tokenizer"), pad_ids),
    ("end of replies", ("model",), end_of_replies),
    ("BOS of chats", ("tokenizer",), double_bos),
    ("end of prompts", ("tokenizer",), appended_eos),
    ("positions", ("model", "tokenizer"), positions),
)


def doctor(model: Any = None, tokenizer: Any = None) -> Diagnosis:
    """What is there, and what is wrong for padded batches: versions, settings, patch, and a tokenizer and a model.

    Nothing is computed by the model, which may be on the device `meta`; neither it nor the tokenizer is changed. A
    check that cannot be made is a note. Without model and tokenizer the environment alone is looked at.

    Args:
        model: A model of transformers, PEFT's or compiled ones too.
        tokenizer: Its tokenizer, or a processor that has one.

    Raises:
        TypeError: The tokenizer was passed in place of the model.
    """
    if hasattr(model, "padding_side"):
        raise TypeError(f"model is a {type(model).__name__}. Pass the model first: padfix.doctor(model, tokenizer).")
    if not hasattr(tokenizer, "padding_side"):  # a processor
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    subject = Subject(model, tokenizer, _in_force())
    given = {"model": model is not None, "tokenizer": tokenizer is not None}
    findings: list[Finding] = []
    skipped: dict[str, list[str]] = {}
    for name, needs, check in CHECKS:
        missing = " and no ".join(one for one in needs if not given[one])
        if missing:
            skipped.setdefault(missing, []).append(name)
        else:
            findings += (Finding(level, name, seen, remedy) for level, seen, remedy in _seen(check, subject))
    for missing, names in skipped.items() if any(given.values()) else ():
        seen = f"No {missing} was passed, so these were not looked at: {', '.join(names)}."
        findings.append(Finding("note", "not checked", seen, "Pass both: padfix.doctor(model, tokenizer)."))
    return Diagnosis(tuple(findings))


def _seen(check: Check, subject: Subject) -> list[Seen]:
    """What a check sees; where it cannot be made, that."""
    try:
        return list(check(subject))
    except Exception as error:  # anything at all may be passed, and remote code may raise anything
        seen = f"It could not be made: {type(error).__name__} (model {_name(subject.model)}, tokenizer "
        return [("note", f"{seen}{_name(subject.tokenizer)}).", "Pass a model and a tokenizer of transformers.")]


def _name(value: Any) -> str:
    return "none" if value is None else type(value).__name__


def _in_force() -> Settings:
    """The settings in force; the mode is `off` where padfix is not installed."""
    now = state()
    return replace(effective(ENVIRONMENT), mode="off") if now.settings is None else effective(now.settings)
