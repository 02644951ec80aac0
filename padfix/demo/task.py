"""The task of the embedded model: reverse a short word, as in `reverse: abc =` -> `cba`."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

LETTERS = string.ascii_lowercase
MAX_LETTERS = 10
MAX_NEW_TOKENS = MAX_LETTERS + 2
"""New tokens that hold the longest reply, its EOS, and one more so that a missing EOS shows."""


def prompt(word: str) -> str:
    """The prompt that asks the embedded model for `word` reversed.

    >>> prompt("abc")
    'reverse: abc ='
    """
    return f"reverse: {word} ="


def answer(word: str) -> str:
    """The reply that is right for `prompt(word)`.

    >>> answer("abc")
    'cba'
    """
    return word[::-1]


def words(seed: int) -> Iterator[str]:
    """Endless random words of 1 to 10 lowercase letters, every length as often as any other."""
    draw = random.Random(seed)
    while True:
        yield "".join(draw.choices(LETTERS, k=draw.randint(1, MAX_LETTERS)))
