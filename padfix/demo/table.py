"""A comparison as text: a rich table, then one line of verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from padfix.demo.compare import COLUMNS, Column, Comparison

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

HEADINGS: dict[Column, str] = {
    "alone": "alone",
    "right_stock": "right-padded\nstock",
    "right_padfix": "right-padded\npadfix",
    "left_by_hand": "left-padded\nby hand",
}
LONGEST = 400
"""Characters of a prompt or a reply that reach the table, which shortens them to its width."""


def console() -> Console:
    """The console on stdout, 80 columns wide where there is no terminal; `PadfixError` without rich."""
    try:
        from rich.console import Console
    except ImportError as error:
        from padfix.errors import PadfixError

        raise PadfixError('The table needs rich, which is missing. Run: pip install "padfix[cli]"') from error
    return Console()


def table(comparison: Comparison, *, title: str) -> Table:
    """One line a prompt with its four replies, and a last line with each column's count.

    A reply whose token ids are not those of the prompt alone is red and marked `!=`.
    """
    from rich import box
    from rich.table import Table

    picture = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_footer=True,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )

    def add_column(heading: str, footer: str, min_width: int) -> None:
        picture.add_column(heading, footer, min_width=min_width, no_wrap=True, overflow="ellipsis", footer_style="bold")

    total = len(comparison.prompts)
    add_column("prompt", "equal to alone" if comparison.expected is None else "right answers", 14)
    for name in COLUMNS:
        heading = HEADINGS[name]
        widest = max(map(len, heading.splitlines()))
        add_column(heading, f"{comparison.count(name)} of {total}", widest)
    equal = {name: comparison.equal(name) for name in COLUMNS}
    for row, prompt in enumerate(comparison.prompts):
        replies = (cell(comparison.column(name)[row].text, equal=equal[name][row]) for name in COLUMNS)
        picture.add_row(cell(prompt, equal=True), *replies)
    return picture


def cell(text: str, *, equal: bool) -> Text:
    """The text on one line, never read as markup, marked where it is not `equal`."""
    from rich.text import Text

    line = " ".join(text.split())[:LONGEST]
    return Text(line) if equal else Text(f"!= {line}", style="red")


def verdict(comparison: Comparison) -> str:
    """One line that says what padding does to these prompts, and what padfix does about it."""
    total = len(comparison.prompts)
    fixed = sum(comparison.equal("right_padfix"))
    broken = total - sum(comparison.equal("right_stock"))
    if fixed < total:
        return f"padfix FAILED: {total - fixed} of {total} replies are not those that the prompts get alone."
    if not comparison.padded:
        return "Nothing to repair: the prompts have one length, so the batch has no pads."
    if not broken:
        return f"Right padding changes none of these {total} replies; padfix leaves them as they are."
    return (
        f"Right padding changes {broken} of {total} replies; "
        f"with padfix all {total} are those that the prompts get alone."
    )
