"""A comparison as text: a rich table, then one line of verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .compare import COLUMNS, Column, Comparison

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS: dict[Column, str] = {
    "alone": "alone",
    "right_stock": "right-padded\nstock",
    "right_padfix": "right-padded\npadfix",
    "left_by_hand": "left-padded\nby hand",
}
DIFFERS = "!= "
"""Stands before a reply that is not the one of the prompt alone."""
GAP = 2
"""Blank columns between two columns of the table."""


def table(comparison: Comparison, *, title: str, width: int) -> Table:
    """One line a prompt with its four replies, and a last line with each column's count.

    A reply whose token ids are not those of the prompt alone is red and marked `!=`. Texts that do not fit
    into `width` columns of the terminal end in an ellipsis, the longest first.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    measure = "equal to alone" if comparison.expected is None else "right answers"
    total = len(comparison.prompts)
    columns: list[tuple[str, list[Text], str]] = [
        ("prompt", [Text(one_line(prompt)) for prompt in comparison.prompts], measure)
    ]
    for name in COLUMNS:
        replies = [
            Text(one_line(reply.text)) if equal else Text(DIFFERS + one_line(reply.text), style="red")
            for reply, equal in zip(comparison.column(name), comparison.equal(name), strict=True)
        ]
        columns.append((HEADINGS[name], replies, f"{comparison.count(name)} of {total}"))

    picture = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_footer=True,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),  # the box draws the other blank
    )
    natural = [
        max(cell_len(text) for text in (*heading.splitlines(), *(cell.plain for cell in cells), footer))
        for heading, cells, footer in columns
    ]
    widths = fitted(natural, width - GAP * (len(columns) - 1))
    for (heading, _, footer), column_width in zip(columns, widths, strict=True):
        picture.add_column(heading, footer, width=column_width, no_wrap=True, overflow="ellipsis", footer_style="bold")
    for row in zip(*(cells for _, cells, _ in columns), strict=True):
        picture.add_row(*row)
    return picture


def one_line(text: str) -> str:
    """The text with every run of white space, line ends too, as one blank."""
    return " ".join(text.split())


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """The widths, the widest of them cut to the one limit that lets all of them into `room`.

    >>> fitted([30, 5, 20], 25)
    [10, 5, 10]
    """
    limit = next((n for n in range(max(widths), 0, -1) if sum(min(w, n) for w in widths) <= room), 1)
    return [min(width, limit) for width in widths]


def verdict(comparison: Comparison) -> str:
    """One line that says what right padding does to these replies, and what padfix does about it."""
    total = len(comparison.prompts)
    wrong = total - sum(comparison.equal("right_padfix"))
    broken = total - sum(comparison.equal("right_stock"))
    if wrong:
        return f"padfix FAILED: {wrong} of {total} replies are not those that the prompts get alone."
    if not comparison.padded:
        return "Nothing to repair: the prompts have one length, so the batch has no pads."
    if not broken:
        return f"Right padding changes none of these {total} replies; padfix leaves them as they are."
    return (
        f"Right padding changes {broken} of {total} replies; "
        f"with padfix all {total} are those that the prompts get alone."
    )
