"""A padded batch, drawn in the caller's layout and in the model's: `padfix.show` and `padfix show`."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from .batch import read
from .picture import Picture

__all__ = ["show"]


def show(
    batch: Any,
    tokenizer: Any = None,
    *,
    pad_token_id: int | None = None,
    eos_token_id: int | None = None,
    max_rows: int = 24,
) -> Picture:
    """The batch before and after padfix: which cells are pads, and after what each reply starts.

    Print it, or let a notebook show it. Nothing is generated.

    Args:
        batch: A mapping with `input_ids` of shape (batch, width) and `attention_mask`, such as a tokenizer gives, in
            tensors or lists; or a mask alone.
        tokenizer: Whose texts stand in the cells where there is room.
        pad_token_id: The pads of a batch without a mask are read from the ids, as `generate` reads them; by default
            that of the tokenizer.
        eos_token_id: Where it equals the pad id, what is padding is a guess; by default that of the tokenizer.
        max_rows: So many rows are drawn.

    Raises:
        PromptError: That is no batch, or it has no mask and there is no pad id to find its pads by.
        TypeError: An id, or the number of rows, is no whole number.

    >>> print(show([[1, 1, 1], [1, 0, 0]]))
    before: your layout    after: the model's layout
    0  ■■■ ► ✓             0  ■■■ ► ✓
    1  ■×× ► ✗             1  ··■ ► ✓
    <BLANKLINE>
    ■ token   · pad   × pad after the last token   ► here the reply starts
    ✗ after a pad, or with pads in between   ✓ after the last token
    1 of 2 rows is wrong in your layout: the reply starts after a pad, or pads lie
    between the tokens. In the model's layout the pads stand in front.
    """
    pad = getattr(tokenizer, "pad_token_id", None) if pad_token_id is None else pad_token_id
    eos = getattr(tokenizer, "eos_token_id", None) if eos_token_id is None else eos_token_id
    for name, value in (("pad_token_id", pad), ("eos_token_id", eos), ("max_rows", max_rows)):
        if value is not None and not isinstance(value, Integral):
            raise TypeError(f"{name} is of type {type(value).__name__}. Pass a whole number.")
    return Picture(read(batch, pad_token_id=pad, eos_token_ids=[] if eos is None else [eos]), tokenizer, max_rows)
