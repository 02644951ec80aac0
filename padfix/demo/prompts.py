"""The prompts that come with padfix."""

from __future__ import annotations

from . import task

WORDS = (
    "a",
    "to",
    "fix",
    "left",
    "mask",
    "right",
    "batch",
    "repair",
    "padding",
    "sequence",
    "attention",
    "transforms",
)
"""For the embedded model. One word has 10 letters, so one row of the batch has no pads."""

SENTENCES = (
    "The capital of France is",
    "Water boils at",
    "One, two, three, four,",
    "The first person to walk on the moon was",
    "My favourite colour is",
    "In 1969, a crew of three left the Earth and, four days later,",
    "Roses are red, violets are",
    "Hello",
)
"""For any other model."""


def embedded_prompts() -> tuple[str, ...]:
    """The prompts for the embedded model: its task on each of `WORDS`."""
    return tuple(map(task.prompt, WORDS))
