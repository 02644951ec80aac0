"""Picture: a padded batch before and after padfix, as lines for a terminal, a notebook or a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..layout.plan import LayoutPlan
from .batch import Batch
from .captions import legend, said, wrapped
from .cells import ASCII, SIGNS, Grid, Kind, Line, Segment, grouped, kinds, line_width, signs, written
from .texts import token_texts

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["Picture"]

WIDTH = 80
NARROWEST = 40
BETWEEN = 4  # blank columns between the two layouts, where they stand side by side

# How each kind looks, in rich and in HTML: readable on light and on dark, and never the only difference.
STYLES: Mapping[Kind, tuple[str, str]] = {
    "bold": ("bold", "font-weight:bold"),
    "token": ("green", "background:rgba(46,160,67,.3)"),
    "special": ("cyan", "background:rgba(46,160,67,.3)"),
    "pad": ("dim", "opacity:.6"),
    "late": ("bold red", "background:rgba(248,81,73,.35)"),
    "hole": ("bold red", "background:rgba(248,81,73,.35)"),
    "mixed": ("yellow", "background:rgba(210,153,34,.35)"),
    "wrong": ("bold red", "font-weight:bold"),
    "right": ("bold green", "font-weight:bold"),
    "empty": ("bold yellow", "font-weight:bold"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """A padded batch in the caller's layout and in the model's, drawn.

    `print(picture)` gives plain text 80 columns wide, `rich.print(picture)` the same in colour and as wide as the
    terminal, a notebook shows HTML.

    Attributes:
        batch: What is drawn.
        tokenizer: Whose texts stand in the cells where there is room; None for none.
        max_rows: So many rows are drawn, from the two ends of the batch.
    """

    batch: Batch
    tokenizer: Any = None
    max_rows: int = 24

    def __str__(self) -> str:
        return "\n".join("".join(one.text for one in line) for line in self.lines())

    __repr__ = __str__  # a prompt shows it too

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        ascii_only = not options.encoding.startswith("utf")
        for line in self.lines(options.max_width, ascii_only=ascii_only):
            pieces = [(one.text, STYLES[one.kind][0] if one.kind in STYLES else "") for one in line]
            yield Text.assemble(*pieces, no_wrap=True, overflow="ignore", end="\n")

    def _repr_html_(self) -> str:
        rows = "\n".join("".join(map(_span, line)) for line in self.lines(120))
        style = "font-family:monospace;line-height:1.35;white-space:pre;overflow-x:auto"
        return f'<pre dir="ltr" style="{style}">{rows}</pre>'

    def lines(self, width: int = WIDTH, *, ascii_only: bool = False) -> list[Line]:
        """The picture as lines that fit `width` columns of a terminal, 40 at least.

        The two layouts stand side by side where they fit, else one below the other. Where a layout does not fit, one
        cell stands for several columns, and a line says so.
        """
        width, characters = max(width, NARROWEST), ASCII if ascii_only else SIGNS
        before, after, notes = self._grids(width - self._margin, characters)
        left = self._layout("before: your layout", before, self._marks, characters)
        right = self._layout(
            "after: the model's layout",
            after,
            ["right" if mark == "wrong" else mark for mark in self._marks],
            characters,
        )
        widest, gap = max(map(line_width, left)), " " * BETWEEN
        if not self._moves:
            drawn = left
        elif widest + len(gap) + max(map(line_width, right)) <= width:
            drawn = [
                (*one, Segment(" " * (widest - line_width(one)) + gap), *other)
                for one, other in zip(left, right, strict=True)
            ]
        else:
            drawn = [*left, (), *right]
        return [
            *drawn,
            (),
            *legend(_signs_in(drawn, characters), characters, width),
            *wrapped([*notes, *said(self.batch, self._shown, self._plan.model_width)], width),
        ]

    @cached_property
    def _shown(self) -> list[int]:
        """The rows that are drawn."""
        number, most = len(self.batch.real), max(self.max_rows, 1)
        if number <= most:
            return list(range(number))
        return [*range((most + 1) // 2), *range(number - most // 2, number)]

    @cached_property
    def _marks(self) -> list[Kind]:
        wrong, empty = set(self.batch.wrong), set(self.batch.empty)
        return ["empty" if row in empty else "wrong" if row in wrong else "right" for row in self._shown]

    @cached_property
    def _planned(self) -> list[int]:
        """The rows that are drawn, then the longest one, which says how wide the model's layout is."""
        return [*self._shown, int(self.batch.real.sum(1).argmax())]

    @cached_property
    def _plan(self) -> LayoutPlan:
        return LayoutPlan.from_mask(self.batch.real[self._planned])

    @property
    def _moves(self) -> bool:
        return not self._plan.is_identity or bool(self.batch.wrong)

    @property
    def _margin(self) -> int:
        """The columns that a line takes beside its cells: the row's number, and where the reply starts."""
        return len(str(self._shown[-1])) + 2 + 4

    def _grids(self, room: int, characters: Mapping[Kind, str]) -> tuple[Grid, Grid, list[str]]:
        """The cells of both layouts in `room` columns, and what is to be said about them."""
        real, plan = self.batch.real[self._shown], self._plan
        cells = kinds(real), kinds(plan.real[:-1])
        if self.tokenizer is not None and self.batch.ids is not None and real.shape[1] <= room:
            ids = self.batch.ids[self._planned]
            moved = plan.to_model(ids)
            grids = [self._written(one, each[:-1], characters) for one, each in zip(cells, (ids, moved), strict=True)]
            if all(grid.width <= room for grid in grids):
                return grids[0], grids[1], []
        size = -(-real.shape[1] // room)
        before, after = (signs(grouped(each, size), characters) for each in cells)
        return before, after, [f"One cell stands for {size} columns, counted from the last."] if size > 1 else []

    def _written(self, cells: Tensor, ids: Tensor, characters: Mapping[Kind, str]) -> Grid:
        texts = token_texts(self.tokenizer, set(ids.flatten().tolist()))
        return written(cells, ids, texts, set(self.tokenizer.all_special_ids), characters)

    def _layout(self, title: str, grid: Grid, marks: list[Kind], characters: Mapping[Kind, str]) -> list[Line]:
        """The title and a line for each row: its number, its cells, where the reply starts and after what."""
        digits = len(str(self._shown[-1]))
        lines: list[Line] = [(Segment(title, "bold"),)]
        for at, (row, line, mark) in enumerate(zip(self._shown, grid.rows, marks, strict=True)):
            if at and row != self._shown[at - 1] + 1:
                lines.append((Segment(f"{'':{digits}}  ..."),))
            ends = Segment(characters["reply"], "reply"), Segment(" "), Segment(characters[mark], mark)
            lines.append((Segment(f"{row:{digits}}  "), *line, Segment(" "), *ends))
        return lines


def _signs_in(lines: Iterable[Line], characters: Mapping[Kind, str]) -> set[Kind]:
    """The kinds whose sign stands in the lines; tokens may stand there with their texts."""
    return {one.kind for line in lines for one in line if characters.get(one.kind, "\n") in one.text}


def _span(segment: Segment) -> str:
    text = escape(segment.text)
    if segment.kind == "token":
        text = f"<bdi>{text}</bdi>"  # whose writing may run from right to left
    return f'<span style="{STYLES[segment.kind][1]}">{text}</span>' if segment.kind in STYLES else text
