"""A report as text: a rich table with a line for each row of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .report import EquivalenceReport, Verdict

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["table"]

STYLES: dict[Verdict, str] = {"equal": "green", "rounding": "yellow", "padding fault": "bold red"}


def table(report: EquivalenceReport) -> Table:
    """One line a row: its tokens, verdict, first token that is another one, largest logit difference, margin there."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    picture = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("row", "tokens", "verdict", "parts at", "logits off", "margin"):
        picture.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    picture.add_column("prompt", no_wrap=True, overflow="ellipsis")
    for row in report.rows:
        apart = row.difference
        picture.add_row(
            str(row.prompt) + (f".{row.sequence}" if row.sequence else ""),
            str(row.length),
            Text(row.verdict, style=STYLES[row.verdict]),
            "" if apart.first is None else f"token {apart.first}",
            f"{apart.largest:.2g}",
            "" if apart.margin is None else f"{apart.margin:.2g}",
            Text(" ".join(row.text.split())),
        )
    return picture
