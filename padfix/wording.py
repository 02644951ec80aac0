"""What padfix says of a padded call, one sentence a function: what was seen and where. Never token ids or text."""

from __future__ import annotations

from .generation.call import GenerateCall
from .layout.detect import Padding

__all__ = ["PAD_LEFT", "PASS_MASK", "TAKE_OUT", "empty", "guessed", "misplaced", "padded"]

PAD_LEFT = 'Pad on the left (tokenizer.padding_side = "left"), or use the mode "fix" (PADFIX=fix).'
TAKE_OUT = "Take out what is named, or run the prompts one at a time without pads."
PASS_MASK = "Pass a mask of 0s and 1s with the shape of the prompt."


def padded(call: GenerateCall, padding: Padding) -> str:
    """That rows have pads: after real tokens where some do, else at all."""
    if padding.guessed and call.is_decoder_prompt:
        return f"{guessed(call, padding)}."
    if padding.misplaced:
        return misplaced(call, padding)
    rows = tuple(row for row, full in enumerate(padding.real.all(dim=1).tolist()) if not full)
    return f"{_rows(call, rows, 'is', 'are')} padded."


def misplaced(call: GenerateCall, padding: Padding) -> str:
    """That rows have pads after real tokens."""
    have = _rows(call, padding.misplaced, "has", "have")
    return f"{have} pads after real tokens: generation would continue from a pad."


def guessed(call: GenerateCall, padding: Padding) -> str:
    """That rows were found to have pads although nothing says so for sure; ends without a full stop."""
    start_or_end = _rows(call, padding.guessed, "starts or ends", "start or end")
    return f"{start_or_end} in more pad ids than other rows, and without {call.mask_name} they count as content"


def empty(call: GenerateCall, padding: Padding) -> str:
    """That rows have no real token."""
    have = _rows(call, padding.empty, "has", "have")
    return f"{have} no real token: what comes back for that means nothing. Leave such rows out of the batch."


def _rows(call: GenerateCall, rows: tuple[int, ...], one: str, several: str) -> str:
    """`Rows 1, 3 of input_ids (shape (4, 12)) have`, with the first eight rows and the verb in its number."""
    shown = ", ".join(map(str, rows[:8])) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
    where = f"of {call.prompt_name} (shape {call.prompt_shape})"
    return f"Row {shown} {where} {one}" if len(rows) == 1 else f"Rows {shown} {where} {several}"
