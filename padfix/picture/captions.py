"""What stands below a picture: what its signs mean, what is wrong with the batch, and what is not drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from .batch import Batch
from .cells import Kind, Line, Segment, line_width

__all__ = ["legend", "said", "wrapped"]

MEANINGS: Mapping[Kind, str] = {
    "token": "token",
    "special": "special token",
    "pad": "pad",
    "late": "pad after the last token",
    "hole": "pad between tokens",
    "mixed": "tokens and pads",
    "reply": "here the reply starts",
    "wrong": "after a pad, or with pads in between",
    "right": "after the last token",
    "empty": "no token in the row",
}


def said(batch: Batch, shown: Sequence[int], model_width: int) -> list[str]:
    """What is wrong with the batch, what was assumed, what is dropped, and what is not drawn, a sentence each."""
    rows, columns = batch.real.shape
    hidden = set(range(rows)) - set(shown)
    return [
        *_judged(batch, len(batch.wrong), rows),
        *_dropped(columns - model_width),
        *_hidden(len(hidden), len(hidden & set(batch.wrong)), rows),
    ]


def legend(seen: Collection[Kind], characters: Mapping[Kind, str], width: int) -> Iterator[Line]:
    """What the signs of these kinds mean, as many on a line as fit."""
    line: Line = ()
    for kind, meaning in MEANINGS.items():
        if kind not in seen:
            continue
        entry = Segment(characters[kind], kind), Segment(f" {meaning}")
        longer = (*line, Segment("   "), *entry)
        if line and line_width(longer) > width:
            yield line
        line = longer if line and line_width(longer) <= width else entry
    yield line


def wrapped(sentences: Iterable[str], width: int) -> Iterator[Line]:
    """The sentences, each from the start of a line."""
    for sentence in sentences:
        for line in textwrap.wrap(sentence, width):
            yield (Segment(line),)


def _judged(batch: Batch, wrong: int, rows: int) -> Iterator[str]:
    if batch.padding is None:
        yield "No pads: both layouts are the same."
        return
    if batch.padding.source == "inferred":
        guess = ", which is an EOS id too: a guess" if batch.padding.guessed else ""
        yield f"There is no attention_mask: the pads are read from the pad id{guess}."
    if wrong:
        yield (
            f"{wrong} of {rows} rows {'is' if wrong == 1 else 'are'} wrong in your layout: the reply starts after a "
            "pad, or pads lie between the tokens. In the model's layout the pads stand in front."
        )
    else:
        yield "Padded on the left already: no token moves."


def _dropped(columns: int) -> Iterator[str]:
    if columns:
        one = columns == 1
        yield f"{columns} {'column' if one else 'columns'} of pads in every row {'is' if one else 'are'} dropped."


def _hidden(number: int, wrong: int, rows: int) -> Iterator[str]:
    if number:
        yield f"{number} of {rows} rows {'is' if number == 1 else 'are'} not drawn; wrong among them: {wrong}."
