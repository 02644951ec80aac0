"""Every model that sees or hears and that transformers maps: each row of a padded batch against its prompt alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from facts import RELEASE
from oracle import PADDERS, Reply, alone, compare, together

import padfix
from padfix import PadfixWarning

from . import media
from .heard import sound
from .media import (
    BLIND,
    CALL,
    FAULTS,
    GROUPS,
    NAMED_APART,
    NOT_FED,
    NOT_HERE,
    ONE_EACH,
    STOCK_FAILS,
    cases,
    exception_of,
    model_of,
)
from .parameters import MARKS, each_of
from .seen import OWN, picture
from .shown import Asked, asked
from .test_text import pads_matter, told_apart
from .text import Case

MAKERS = {"picture": picture, "sound": sound}

# How many items each prompt has: one each; several, none, one.
ONE, SOME = (1, 1, 1, 1), (2, 0, 1, 1)

# Those of the fast tier: of each way in which a prompt holds its items one.
FAST = {
    "Idefics3ForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "MllamaForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "VisionEncoderDecoderModel",
}

pytestmark = MARKS

each = functools.partial(each_of, fast=FAST, exception_of=exception_of)


@pytest.fixture(autouse=True)
def fed(request: pytest.FixtureRequest, in_results: None) -> None:
    """Skips the classes to which nobody knows how to give an item; their cases stand in the results."""
    callspec = getattr(request.node, "callspec", None)
    case = None if callspec is None else callspec.params.get("case")
    if isinstance(case, Case) and NOT_FED.get(case.class_name, (0, 0)) > RELEASE:
        pytest.skip("this release wants its items in another way")


EVERY = [case for group in GROUPS for case in cases(group)]


@each(EVERY)
def test_rows_with_an_item_each_get_what_their_prompts_get_alone(case: Case) -> None:
    model = model_of(case)
    prompts = prompts_of(case, model, ONE)
    expected = expected_of(case, model, prompts)
    if case.class_name not in BLIND:
        items_matter(expected, expected_of(case, model, prompts_of(case, model, ONE, seed=4)))
    batch = prompts.batch(PADDERS["right"])
    compare(replies(case, model, batch), expected)
    with padfix.suppressed():
        pads_matter(replies(case, model, batch), expected)


@each([case for case in EVERY if case.class_name not in ONE_EACH])
def test_rows_with_several_items_and_with_none_do_too(case: Case) -> None:
    model = model_of(case)
    prompts = prompts_of(case, model, SOME)
    compare(replies(case, model, prompts.batch(PADDERS["right"])), expected_of(case, model, prompts))


@each(EVERY)
def test_rows_that_the_caller_padded_on_the_left_do_too(case: Case) -> None:
    model = model_of(case)
    prompts = prompts_of(case, model, ONE if case.class_name in ONE_EACH else SOME)
    compare(replies(case, model, prompts.batch(PADDERS["left"])), expected_of(case, model, prompts))


@each(EVERY)
def test_items_follow_rows_that_run_apart_or_are_named(case: Case) -> None:
    model = model_of(case)
    prompts = prompts_of(case, model, ONE if case.class_name in ONE_EACH else SOME)
    batch = prompts.batch(PADDERS["right"])
    expected = expected_of(case, model, prompts)
    padfix.install("fix", strategy="equal_length")
    if case.class_name in NAMED_APART:
        with pytest.raises(PadfixWarning, match=f"{NAMED_APART[case.class_name]}=.* .what belongs to a row cannot"):
            replies(case, model, batch)
    else:
        compare(replies(case, model, batch), expected)


def prompts_of(case: Case, model: Any, shares: Sequence[int], *, seed: int = 3) -> Asked:
    """The prompts of a case.

    Raises:
        AssertionError: None can be made, so that the class has to be classified.
    """
    try:
        return asked(model, MAKERS[case.group], shares, seed=seed)
    except Exception as error:  # whatever a class raises that the makers do not suit
        raise AssertionError(f"not classified: {case.name}: {type(error).__name__}: {error}") from error


def replies(case: Case, model: Any, batch: Mapping[str, Any]) -> list[Reply]:
    """What a batch gets, what no token may be taken for infinity."""
    return unmasked(together(model, batch, **CALL.get(case.class_name, {})))


def expected_of(case: Case, model: Any, prompts: Asked) -> list[Reply]:
    """What the prompts get alone."""
    call = CALL.get(case.class_name, {})
    return told_apart(unmasked(alone(model, prompts.rows, each=prompts.each, distinct=False, **call)))


def unmasked(given: Sequence[Reply]) -> list[Reply]:
    """The replies with infinity where a model gives the lowest number, so that this is no logit's scale."""
    return [replace(reply, logits=_infinite(reply.logits), scores=_infinite(reply.scores)) for reply in given]


def _infinite(logits: torch.Tensor | None) -> torch.Tensor | None:
    return None if logits is None else logits.masked_fill(logits <= torch.finfo(logits.dtype).min, -torch.inf)


def items_matter(expected: Sequence[Reply], others: Sequence[Reply]) -> None:
    """Fails where a prompt gets the same with another item, so that rows could change their items unseen."""
    for reply, other in zip(expected, others, strict=True):
        with pytest.raises(AssertionError):
            compare([reply], [other], tolerance=1e-3)


# The suite itself


@pytest.mark.architectures
@pytest.mark.parametrize("group", GROUPS)
def test_every_class_is_classified(group: str) -> None:
    assert media.unclassified(group) == []


def test_class_that_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"llava": "LlavaForConditionalGeneration", "llava_next": "LlavaLastForConditionalGeneration"}
    monkeypatch.setattr(media, "mapped", lambda group: known)
    (line,) = media.unclassified("picture")
    assert line.startswith("not classified: LlavaLastForConditionalGeneration: AttributeError: ")


@pytest.mark.skipif(RELEASE < (5, 24), reason="the tables speak of the newest release")
def test_tables_name_what_is_there() -> None:
    there = {name for group in GROUPS for name in media.mapped(group).values()}
    names = {case.name for case in EVERY}
    assert set(NOT_HERE) | set(CALL) | set(ONE_EACH) | set(NAMED_APART) | set(BLIND) | set(OWN) <= there
    assert FAST | set(FAULTS) | set(STOCK_FAILS) <= names
