"""One reply against another: where they part, and how far apart their logits are until then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

__all__ = ["TOLERANCE", "Difference", "Reply", "difference"]

# The share of the logits' scale within which they count as equal.
TOLERANCE = 1e-4
# A logit below this one is a token that the model rules out, such as Chameleon its pictures: no measure of anything.
RULED_OUT = -1e4


@dataclass(frozen=True, eq=False)
class Reply:
    """What one row got.

    Attributes:
        tokens: Its new tokens up to the first EOS inclusive.
        logits: What the model gave, float32 of shape (steps, vocabulary), a step for each token; None under beams.
        scores: The same after the logits processors; None under beams.
        beam_score: The score of the whole sequence under beams, else None.
    """

    tokens: tuple[int, ...]
    logits: Tensor | None = None
    scores: Tensor | None = None
    beam_score: float | None = None


@dataclass(frozen=True)
class Difference:
    """How a reply differs from the one that the prompt gets alone.

    Attributes:
        first: The step of the first token that is another one, counted from 0; None where all are equal.
        steps: The largest difference between the logits, or scores, of each step up to and with that one: from there
            on the two have seen other tokens. Under beams the difference of the sequence scores, once.
        scale: The largest logit alone, by amount; 1 at least under beams.
        margin: How far the token that the reply has at step `first` is behind the one that it has alone, in the scores
            alone; infinity where one of the two has ended. None where no token differs, and under beams, where no one
            step decides.
    """

    first: int | None
    steps: tuple[float, ...]
    scale: float
    margin: float | None

    @property
    def largest(self) -> float:
        """The largest of `steps`; infinity where one side has a number and the other has none."""
        return max(self.steps, default=0.0)

    @property
    def is_none(self) -> bool:
        """Whether every token is equal, and every logit within `TOLERANCE` of the scale."""
        return self.first is None and self.largest <= TOLERANCE * self.scale

    def is_within(self, noise: float) -> bool:
        """Whether neither the logits nor the two tokens at step `first` are further apart than `noise`."""
        return self.largest <= noise and (self.margin is None or self.margin <= noise)

    @property
    def is_tie(self) -> bool:
        """Whether logits are within `TOLERANCE` of the scale, and so are the two tokens between which the rows part."""
        return (self.first is None or self.margin is not None) and self.is_within(TOLERANCE * self.scale)


def difference(reply: Reply, alone: Reply) -> Difference:
    """How `reply` differs from `alone`.

    >>> difference(Reply(tokens=(5, 6)), alone=Reply(tokens=(5, 7))).first
    1
    """
    first = _first_divergent(reply.tokens, alone.tokens)
    if alone.logits is None or reply.logits is None or alone.scores is None or reply.scores is None:
        one, other = reply.beam_score, alone.beam_score
        steps = () if one is None or other is None else (_distance_of(one, other),)
        return Difference(first, steps, max(1.0, abs(other or 0.0)), None)
    seen = min(len(reply.tokens), len(alone.tokens))
    compared = seen if first is None else min(first + 1, seen)
    logits = _distances(reply.logits[:compared], alone.logits[:compared])
    scores = _distances(reply.scores[:compared], alone.scores[:compared])
    counted = alone.logits[alone.logits.isfinite() & (alone.logits > RULED_OUT)]
    scale = float(counted.abs().max()) if counted.numel() else 0.0
    margin = None
    if first is not None:
        both = first < seen
        margin = _margin(alone.scores[first], alone.tokens[first], reply.tokens[first]) if both else math.inf
    return Difference(first, tuple(map(max, logits, scores)), scale, margin)


def _first_divergent(tokens: tuple[int, ...], alone: tuple[int, ...]) -> int | None:
    for step, (one, other) in enumerate(zip(tokens, alone, strict=False)):
        if one != other:
            return step
    return None if len(tokens) == len(alone) else min(len(tokens), len(alone))


def _distances(one: Tensor, other: Tensor) -> list[float]:
    """The largest difference in each row of two tensors of shape (steps, vocabulary).

    Infinity where one has a number and the other an infinity or NaN.
    """
    if one.shape != other.shape:
        return [math.inf] * len(one)
    apart = (one - other).abs()
    apart = apart.masked_fill((one == other) | ((one < RULED_OUT) & (other < RULED_OUT)), 0.0)
    apart = apart.masked_fill(one.isnan() & other.isnan(), 0.0).nan_to_num(nan=math.inf, posinf=math.inf)
    found: list[float] = apart.amax(1).tolist() if apart.numel() else []
    return found


def _distance_of(one: float, other: float) -> float:
    return 0.0 if one == other else math.inf if math.isnan(one - other) else abs(one - other)


def _margin(scores: Tensor, token: int, other: int) -> float:
    return _distance_of(float(scores[token]), float(scores[other]))
