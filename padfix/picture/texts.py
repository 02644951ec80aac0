"""What stands for a token in a picture: its text, made safe for a terminal, and short."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from .cells import width_of

__all__ = ["LONGEST", "shown", "token_texts"]

LONGEST = 10  # columns of the terminal
_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}
_UNKNOWN = "?"


def token_texts(tokenizer: Any, ids: Iterable[int]) -> dict[int, str]:
    """The text that stands for each id; `?` where the tokenizer has none."""
    size = len(tokenizer)
    return {token: shown(_decoded(tokenizer, token)) if 0 <= token < size else _UNKNOWN for token in ids}


def shown(text: str) -> str:
    """The text in one line of at most `LONGEST` columns, without a character that a terminal would obey.

    White space is made visible, but for a blank in front of a word.

    >>> shown(" hours"), shown(" "), shown("a\\x1b[31m"), shown("internationally")
    ('hours', '␣', 'a�[31m', 'internati…')
    """
    bare = text[1:] if text[:1] == " " and text[1:].strip() else text
    safe = "".join(_VISIBLE.get(one) or ("�" if unicodedata.category(one)[0] in "CZ" else one) for one in bare)
    if unicodedata.category(safe[:1] or "a")[0] == "M":  # it would sit on the cell before
        safe = f"◌{safe}"
    if width_of(safe) <= LONGEST:
        return safe or _UNKNOWN
    while width_of(safe) > LONGEST - 1:
        safe = safe[: min(len(safe) - 1, LONGEST)]
    return f"{safe}…"


def _decoded(tokenizer: Any, token: int) -> str:
    """The text of a token, or its name where it has no text."""
    try:
        return str(tokenizer.decode([token]) or tokenizer.convert_ids_to_tokens(token))
    except (IndexError, KeyError, OverflowError, TypeError, ValueError):  # ids that a vocabulary leaves out
        return _UNKNOWN
