"""The cells of a drawn batch: what each one is, the sign or text that stands for it, and runs of them as a line."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "ASCII",
    "SIGNS",
    "Grid",
    "Kind",
    "Line",
    "Segment",
    "grouped",
    "kinds",
    "line_width",
    "signs",
    "width_of",
    "written",
]

Kind = Literal["plain", "bold", "pad", "token", "hole", "late", "mixed", "special", "reply", "right", "wrong", "empty"]
# The kinds of cells, by the numbers that `kinds` and `grouped` give.
CELLS: tuple[Kind, ...] = ("pad", "token", "hole", "late", "mixed")

SIGNS: Mapping[Kind, str] = {
    "pad": "·",
    "token": "■",
    "hole": "○",
    "late": "×",
    "mixed": "▒",
    "special": "◆",
    "reply": "►",
    "right": "✓",
    "wrong": "✗",
    "empty": "!",
}
ASCII: Mapping[Kind, str] = {
    "pad": ".",
    "token": "#",
    "hole": "o",
    "late": "x",
    "mixed": "%",
    "special": "@",
    "reply": ">",
    "right": "+",
    "wrong": "X",
    "empty": "!",
}


class Segment(NamedTuple):
    """A piece of a line, all of one kind."""

    text: str
    kind: Kind = "plain"


Line = tuple[Segment, ...]


@dataclass(frozen=True)
class Grid:
    """The rows of a drawn batch, all of one width on the terminal."""

    rows: tuple[Line, ...]
    width: int


def kinds(real: Tensor) -> Tensor:
    """What each cell of a mask of shape (batch, width) is, as an index into `CELLS`.

    A pad before the first token of its row is `pad`, one after the last is `late`, one in between is a `hole`.

    >>> [CELLS[kind] for kind in kinds(torch.tensor([[False, True, False, True, False]]))[0]]
    ['pad', 'token', 'hole', 'token', 'late']
    """
    after_first = real.cumsum(1) > 0
    before_last = real.flip(1).cumsum(1).flip(1) > 0
    pads = torch.where(after_first, torch.where(before_last, 2, 3), 0)
    return torch.where(real, 1, pads)


def grouped(cells: Tensor, size: int) -> Tensor:
    """One cell for `size` columns, counted from the last one back: what all of them are, or `mixed`.

    >>> grouped(torch.tensor([[0, 0, 1, 1, 1]]), 2).tolist()
    [[0, 4, 1]]
    """
    missing = -cells.shape[1] % size
    filled = torch.cat((cells[:, :1].expand(-1, missing), cells), 1).reshape(len(cells), -1, size)
    return torch.where((filled == filled[..., :1]).all(-1), filled[..., 0], CELLS.index("mixed"))


def signs(cells: Tensor, characters: Mapping[Kind, str]) -> Grid:
    """A grid with one character a cell."""
    rows = [[Segment(characters[CELLS[cell]], CELLS[cell]) for cell in row] for row in cells.tolist()]
    return Grid(tuple(map(_joined, rows)), cells.shape[1])


def written(
    cells: Tensor, ids: Tensor, texts: Mapping[int, str], special: Collection[int], characters: Mapping[Kind, str]
) -> Grid:
    """A grid with the text of each token: every column as wide as its longest, one blank between wide ones."""
    lines: list[list[Segment]] = []
    for kinds_of_row, ids_of_row in zip(cells.tolist(), ids.tolist(), strict=True):
        line = []
        for cell, token in zip(kinds_of_row, ids_of_row, strict=True):
            kind: Kind = "special" if CELLS[cell] == "token" and token in special else CELLS[cell]
            line.append(Segment(texts[token] if kind == "token" else characters[kind], kind))
        lines.append(line)
    widths = [max(width_of(line[at].text) for line in lines) for at in range(cells.shape[1])]
    gap = " " if max(widths) > 1 else ""
    rows = tuple(_joined(_spread(line, widths, gap)) for line in lines)
    return Grid(rows, sum(widths) + len(gap) * (len(widths) - 1))


def _spread(line: Sequence[Segment], widths: Sequence[int], gap: str) -> Iterator[Segment]:
    """The cells of a row, each as wide as its column, with `gap` between them; a pad fills its cell."""
    for at, ((text, kind), width) in enumerate(zip(line, widths, strict=True)):
        filled = text * width if kind in ("pad", "late", "hole") else text
        yield Segment(filled, kind)
        yield Segment(" " * (width - width_of(filled)) + (gap if at < len(widths) - 1 else ""))


def width_of(text: str) -> int:
    """The columns of a terminal that the text takes."""
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.category(one) in ("Mn", "Me") for one in text)


def line_width(line: Line) -> int:
    """The columns of a terminal that the line takes."""
    return sum(width_of(one.text) for one in line)


def _joined(segments: Iterable[Segment]) -> Line:
    """The segments with neighbours of one kind as one, and none that is empty."""
    runs = groupby((one for one in segments if one.text), key=lambda one: one.kind)
    return tuple(Segment("".join(one.text for one in run), kind) for kind, run in runs)
