"""A real model in three number formats: a padded row differs from its prompt alone by no more than rounding does.

Eight chat prompts, greedy, padded on the right into one batch. The oracle is each prompt as a batch of one. In
float32 a row has to have the tokens of its prompt alone and logits within TOLERANCE of their scale. In half precision
a row is walked up to the first token that differs from its prompt alone. There the two best logits of the prompt
alone have to lie closer than the noise (`Noise`), which is measured without any padding, and up to there every logit
has to lie within MULTIPLE of the noise. After that token the two have different histories and are not compared.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch

import padfix
from padfix.strategies import left_pad

from .smollm2 import (
    PROMPTS,
    TOLERANCE,
    Alone,
    Batch,
    Outcome,
    SmolLM2,
    greedy,
    greedy_alone,
    greedy_through_padfix,
    new_tokens,
    pad,
)

pytestmark = pytest.mark.real

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NEW = 16

# Where the noise is measured: the shortest prompts, 32 to 41 tokens long, over every step of their replies.
NOISE_PROMPTS = PROMPTS[:4]
COPIES = (2, 4)

# The noise is the largest of some hundred differences between two unpadded runs. A padded batch differs from its
# prompts alone in the size of the batch, in the width of the key axis and in the kernel that reads the prompt, all at
# once, and over more prompts. Its largest difference measured is 1.8 times the noise in bfloat16 and below the noise
# in float16; a mask that is one column off differs by some ten times the noise.
MULTIPLE = 3


class Noise(NamedTuple):
    """The largest difference of a logit between two runs of the same tokens, neither of which has a pad.

    Attributes:
        size: Between a prompt alone and 2 or 4 copies of it in a batch. On some processors this is zero in
            float16, since each row of a matrix is multiplied as it is alone.
        width: Between the cache that grows with the reply and a static one as wide as the padded batch. A padded row
            is attended to over the width of the longest as well, with a mask over the columns that are not its own.
    """

    size: float
    width: float


class Limits(NamedTuple):
    """What a row may differ by: a token only at a margin below `margin`, no logit by more than `logits`."""

    margin: float
    logits: float


class Walk(NamedTuple):
    """A row against its prompt alone.

    Attributes:
        step: The first step whose token differs; None if there is none.
        margin: By how much the best logit of the prompt alone exceeds the second at that step; infinite without one.
        error: The largest difference of a logit up to that step inclusive: the steps of the same history.
    """

    step: int | None
    margin: float
    error: float

    def is_within(self, limits: Limits) -> bool:
        """Whether the limits allow for it."""
        return (self.step is None or self.margin < limits.margin) and self.error <= limits.logits


class Format(NamedTuple):
    """The model in one number format, each prompt alone, the noise and what follows from it."""

    model: Any
    alone: list[Alone]
    noise: Noise
    limits: Limits


class Forced:
    """A logits processor that makes a reply of given tokens, and an end after them."""

    def __init__(self, tokens: Sequence[int], prompt_width: int) -> None:
        self.tokens = tokens
        self.prompt_width = prompt_width

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, vocabulary) in which the next token is the only possible one."""
        only = torch.full_like(scores, -torch.inf)
        only[:, self.tokens[input_ids.shape[1] - self.prompt_width]] = 0
        return only


def measured_noise(model: Any, tokenizer: Any, alone: Sequence[Alone], width: int) -> Noise:
    """The noise of a model; `width` is that of the static cache, and `alone` has a row for each of PROMPTS."""
    short = list(zip(NOISE_PROMPTS, alone, strict=False))
    sizes = [
        difference(model.generate, pad(tokenizer, [prompt] * copies, "right"), one, tokenizer.eos_token_id)
        for copies in COPIES
        for prompt, one in short
    ]
    wide = functools.partial(model.generate, cache_implementation="static")
    widths = [
        difference(wide, pad(tokenizer, [prompt], "right"), one, tokenizer.eos_token_id, width) for prompt, one in short
    ]
    return Noise(max(sizes), max(widths))


def difference(generate: Callable[..., Any], batch: Batch, one: Alone, eos: int, width: int | None = None) -> float:
    """The largest difference of a logit of copies of a prompt, made to give its reply, from the prompt alone.

    `width` is what the prompt and its reply may fill; without one it is what they do fill.
    """
    assert bool(batch.attention_mask.all())
    prompt_width = batch.input_ids.shape[1]
    tokens = [*one.tokens.tolist(), eos]
    new = len(tokens) if width is None else width - prompt_width
    with padfix.suppressed():
        outcome = greedy(generate, batch, new, logits_processor=[Forced(tokens, prompt_width)])
    return float((outcome.logits[:, : len(one.tokens)] - one.logits).abs().max())


def walks(outcome: Outcome, batch: Batch, alone: Sequence[Alone]) -> list[Walk]:
    """Each row of a call on `batch` against its prompt alone."""
    return [
        walk(tokens, logits, one)
        for tokens, logits, one in zip(new_tokens(outcome.sequences, batch), outcome.logits, alone, strict=True)
    ]


def walk(tokens: torch.Tensor, logits: torch.Tensor, one: Alone) -> Walk:
    """A row's new tokens (new,) and logits (new, vocabulary) against its prompt alone.

    A row that ends earlier or later than its prompt alone differs where one has an EOS and the other has not.
    """
    steps = min(len(tokens), len(one.tokens))
    unlike = (tokens[:steps] != one.tokens[:steps]).nonzero()
    step = int(unlike[0]) if len(unlike) else None
    shared = steps if step is None else step + 1
    margin = float("inf")
    if step is not None:
        best, second = one.logits[step].topk(2).values.tolist()
        margin = best - second
    return Walk(step, margin, float((logits[:shared] - one.logits[:shared]).abs().max()))


@pytest.fixture(scope="module")
def right(smollm2: SmolLM2) -> Batch:
    """The eight prompts padded on the right; all rows but the last have pads."""
    batch = pad(smollm2.tokenizer, PROMPTS, "right")
    assert batch.attention_mask.all(dim=1).tolist() == [False] * (len(PROMPTS) - 1) + [True]
    return batch


@pytest.fixture(scope="module")
def narrow(smollm2: SmolLM2) -> Batch:
    """The first six prompts padded on the right, 96 columns wide and so much cheaper: enough to see a fault in."""
    batch = pad(smollm2.tokenizer, PROMPTS[:6], "right")
    assert batch.attention_mask.all(dim=1).tolist() == [False] * 5 + [True]
    return batch


@pytest.fixture(scope="module", params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def numbers(request: pytest.FixtureRequest, smollm2: SmolLM2, right: Batch) -> Format:
    """The model in one number format, with the limits that its noise sets; float32 has none for its tokens."""
    model = copy.deepcopy(smollm2.model).to(request.param)
    alone = greedy_alone(model, smollm2.tokenizer, NEW)
    noise = measured_noise(model, smollm2.tokenizer, alone, right.input_ids.shape[1] + NEW)
    if request.param == torch.float32:
        limits = Limits(0.0, TOLERANCE * min(float(one.logits.abs().max()) for one in alone))
    else:
        limits = Limits(max(noise), MULTIPLE * max(noise))
    return Format(model, alone, noise, limits)


def test_noise_is_what_the_limits_assume(numbers: Format) -> None:
    """In float32 the noise leaves room below TOLERANCE; in half precision TOLERANCE would be too strict."""
    tolerance = TOLERANCE * max(float(one.logits.abs().max()) for one in numbers.alone)
    if numbers.model.dtype == torch.float32:
        assert max(numbers.noise) <= numbers.limits.logits / 2, numbers.noise
    else:
        assert max(numbers.noise) > tolerance, numbers.noise


def test_padfix_differs_by_no_more_than_rounding(numbers: Format, right: Batch) -> None:
    """Through padfix every row of the right-padded batch is within the limits."""
    rows = walks(greedy_through_padfix(numbers.model, right, NEW), right, numbers.alone)
    assert all(row.is_within(numbers.limits) for row in rows), f"{numbers.noise} {numbers.limits} {rows}"


def test_stock_right_padding_differs_by_more(numbers: Format, narrow: Batch) -> None:
    """In plain transformers no row with pads is within them, and some have another token beyond the margin."""
    with padfix.suppressed():
        outcome = greedy(numbers.model.generate, narrow, NEW)
    rows = walks(outcome, narrow, numbers.alone[: len(narrow.input_ids)])
    assert [row.is_within(numbers.limits) for row in rows] == [False] * (len(rows) - 1) + [True], f"{rows}"
    beyond = [row for row in rows if row.step is not None and row.margin >= numbers.limits.margin]
    assert len(beyond) >= 2, f"{numbers.limits} {rows}"


@pytest.mark.parametrize("shift", [-1, 1], ids=["early", "late"])
def test_a_mask_one_column_off_differs_by_more(
    numbers: Format, narrow: Batch, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits see a mask that lets one pad into each padded row, and one that leaves out each row's first token."""

    def one_off(*args: Any, **kwargs: Any) -> Any:
        call = to_model(*args, **kwargs)
        mask = call.arguments["attention_mask"]
        shifted = mask.roll(shift, dims=1)
        return call.changed({"attention_mask": mask | shifted if shift < 0 else mask & shifted})

    to_model = left_pad.to_model
    monkeypatch.setattr(left_pad, "to_model", one_off)
    rows = walks(greedy_through_padfix(numbers.model, narrow, NEW), narrow, numbers.alone[: len(narrow.input_ids)])
    outside = [row for row in rows if not row.is_within(numbers.limits)]
    assert len(outside) >= 2, f"{numbers.limits} {rows}"
    assert rows[-1].is_within(numbers.limits), f"{numbers.limits} {rows[-1]}"
