"""A report as text: a rich table with a line for each row of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .report import EquivalenceReport, RowReport, Verdict

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["table"]

HEADINGS = ("row", "tokens", "verdict", "parts at", "logits off", "margin")
GAP = 2  # blank columns between two columns
STYLES: dict[Verdict, str] = {"equal": "green", "rounding": "yellow", "padding fault": "bold red"}


def table(report: EquivalenceReport, *, width: int) -> Table:
    """One line a row: its tokens, verdict, first token that is another one, largest logit difference, margin there.

    Prompts that do not fit into `width` columns of the terminal end in an ellipsis.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    picture = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    lines = [_cells(row) for row in report.rows]
    widths = [max(len(heading), *(len(line[at]) for line in lines)) for at, heading in enumerate(HEADINGS)]
    for heading, wide in zip(HEADINGS, widths, strict=True):
        picture.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True, width=wide)
    rest = width - sum(widths) - GAP * len(widths)  # the prompt is what gives way
    picture.add_column("prompt", no_wrap=True, overflow="ellipsis", max_width=max(len("prompt"), rest))
    for row, cells in zip(report.rows, lines, strict=True):
        styled = [Text(cell, style=STYLES[row.verdict] if cell == row.verdict else "") for cell in cells]
        picture.add_row(*styled, Text(" ".join(row.text.split())))
    return picture


def _cells(row: RowReport) -> tuple[str, ...]:
    """What stands in the columns of `HEADINGS`."""
    apart = row.difference
    return (
        str(row.prompt) + (f".{row.sequence}" if row.sequence else ""),
        str(row.length),
        row.verdict,
        "" if apart.first is None else f"token {apart.first}",
        f"{apart.largest:.2g}",
        "" if apart.margin is None else f"{apart.margin:.2g}",
    )
