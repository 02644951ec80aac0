"""docs/architectures.md has a row for each case and a column for each release."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from padfix.releases import TESTED

from . import media
from .text import CAUSAL, SEQ2SEQ, cases, variants

PAGE = (Path(__file__).parents[2] / "docs" / "architectures.md").read_text()


def column(release: str) -> dict[str, str]:
    """The cells of a release that say something, by the name of the case."""
    cells: dict[str, str] = {}
    at = -1
    for line in PAGE.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if line.startswith("| class |"):
            at = parts.index(release) if release in parts else -1
        elif line.startswith("| `") and at >= 0 and parts[at]:
            cells[parts[0].replace("`", "")] = parts[at]
    return cells


@pytest.mark.skipif(transformers.__version__ not in TESTED, reason="a release without a column")
def test_page_has_every_case_of_the_installed_release() -> None:
    there = [
        *cases(CAUSAL),
        *variants(),
        *cases(SEQ2SEQ),
        *(case for group in media.GROUPS for case in media.cases(group)),
    ]
    cells = column(transformers.__version__)
    assert sorted(cells) == sorted({case.name for case in there})
    assert set(cells.values()) <= {"left", "apart", "left, apart", "raises", "?"}


def test_page_has_a_column_for_each_release() -> None:
    assert all(column(release) for release in TESTED)


def test_page_names_what_is_refused() -> None:
    for name, argument in media.NAMED_APART.items():
        assert f"| `{name}` | `{argument}` |" in PAGE
