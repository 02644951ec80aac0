"""The table of flags in docs/flags.md: padfix is equal for every flag, and the page says what is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from facts import RELEASE

import padfix

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import flags_table  # noqa: E402

Measured = list[tuple[str, list[bool]]]


@pytest.fixture(scope="module")
def measured() -> Measured:
    padfix.install("fix")
    try:
        return flags_table.rows()
    finally:
        padfix.uninstall()


def test_every_flag_is_equal_with_padfix(measured: Measured) -> None:
    assert [name for name, cells in measured if not all(cells[2:])] == []


def test_stock_differs_wherever_it_is_padded_on_the_right(measured: Measured) -> None:
    assert [name for name, cells in measured if cells[0]] == []


@pytest.mark.skipif(RELEASE < (5, 24), reason="the page is of the newest release")
def test_the_page_holds_the_table(measured: Measured) -> None:
    assert flags_table.table(measured) in flags_table.PAGE.read_text(encoding="utf-8")


def test_every_flag_that_reads_the_history_has_a_row(measured: Measured) -> None:
    from padfix.generation.limits import READS_HISTORY

    shown = " ".join(name for name, _ in measured)
    needs_a_tokenizer = {"stop_strings"}
    assert {flag for flag in READS_HISTORY if f"`{flag}=" not in shown} == needs_a_tokenizer
