"""What padfix says of a padded call, one sentence a function: what was seen and where. Never token ids or text."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .generation.call import GenerateCall
from .layout.detect import Padding

__all__ = [
    "PAD_LEFT",
    "PASS_MASK",
    "TAKE_OUT",
    "USE_FIX",
    "Where",
    "anew",
    "empty",
    "guessed",
    "misplaced",
    "negative_prompt",
    "padded",
    "prompt",
    "seen_by",
]

PAD_LEFT = 'Pad on the left (tokenizer.padding_side = "left"), or use the mode "fix" (PADFIX=fix).'
USE_FIX = 'Use the mode "fix" (PADFIX=fix) to have it repaired.'
TAKE_OUT = "Take out what is named, or run the prompts one at a time without pads."
PASS_MASK = "Pass a mask of 0s and 1s with the shape of the prompt."


class Where(NamedTuple):
    """The argument that a sentence is about, with its shape, and the mask that belongs to it."""

    name: str
    shape: tuple[int, ...]
    mask_name: str
    is_decoder_prompt: bool = False


def prompt(call: GenerateCall) -> Where:
    """The prompt of a call."""
    return Where(call.prompt_name, call.prompt_shape, call.mask_name, call.is_decoder_prompt)


def negative_prompt(padding: Padding) -> Where:
    """The negative prompt of a call."""
    return Where("negative_prompt_ids", tuple(padding.real.shape), "negative_prompt_attention_mask")


def padded(where: Where, padding: Padding) -> str:
    """That rows have pads: after real tokens where some do, else at all; empty where none has."""
    if padding.guessed and where.is_decoder_prompt:
        return f"{guessed(where, padding)}."
    if padding.misplaced:
        return misplaced(where, padding)
    rows = tuple(row for row, full in enumerate(padding.real.all(dim=1).tolist()) if not full)
    return f"{_rows(where, rows, 'is', 'are')} padded." if rows else ""


def anew(reasons: Collection[str]) -> str:
    """That a cache cannot serve; empty where there are no reasons."""
    return f"The sequences have to run anew, without {'; '.join(reasons)}." if reasons else ""


def misplaced(where: Where, padding: Padding) -> str:
    """That rows have pads after real tokens."""
    have = _rows(where, padding.misplaced, "has", "have")
    return f"{have} pads after real tokens: generation would continue from a pad."


def guessed(where: Where, padding: Padding) -> str:
    """That rows were found to have pads although nothing says so for sure; ends without a full stop."""
    start_or_end = _rows(where, padding.guessed, "starts or ends", "start or end")
    return f"{start_or_end} in more pad ids than other rows, and without {where.mask_name} they count as content"


def seen_by(reads_history: Collection[str]) -> str:
    """That the library's processors would see pads; empty where there are none of those."""
    return f"Pads are seen by {'; '.join(reads_history)}." if reads_history else ""


def empty(where: Where, padding: Padding) -> str:
    """That rows have no real token."""
    have = _rows(where, padding.empty, "has", "have")
    return f"{have} no real token: what comes back for that means nothing. Leave such rows out of the batch."


def _rows(where: Where, rows: tuple[int, ...], one: str, several: str) -> str:
    """`Rows 1, 3 of input_ids (shape (4, 12)) have`, with the first eight rows and the verb in its number."""
    shown = ", ".join(map(str, rows[:8])) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
    named = f"of {where.name} (shape {where.shape})"
    return f"Row {shown} {named} {one}" if len(rows) == 1 else f"Rows {shown} {named} {several}"
