"""The benchmarks: what they make of times, one question by the runner, and that page, plots and figures agree."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from facts import RELEASE

import padfix
from padfix.patch import is_installed

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import page  # noqa: E402
import plots  # noqa: E402
import run  # noqa: E402
from common import Ratio, Row, in_turn, median, ratio  # noqa: E402
from record import RESULTS, Record, read, write  # noqa: E402


class Clock:
    """A clock that calls move on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made: list[str] = []

    def call(self, name: str, takes: float) -> Callable[[], None]:
        def run() -> None:
            self.made.append(name)
            self.now += takes

        return run


# What is made of times


def test_ratio_is_of_ours_to_theirs_whoever_goes_first() -> None:
    clock = Clock()
    found = ratio(clock.call("ours", 3), clock.call("theirs", 2), 5, clock=lambda: clock.now, times=4)
    assert found == (1.5, 1.5, 1.5)
    firsts = clock.made[::8]
    assert len(firsts) == 7
    assert firsts.count("ours") == 3


def test_in_turn_times_every_call_in_every_round_but_those_that_warm_up() -> None:
    clock = Clock()
    calls = {name: clock.call(name, takes) for name, takes in (("a", 1), ("b", 2), ("c", 3))}
    assert in_turn(calls, 4, clock=lambda: clock.now, warm=1) == {"a": [1] * 4, "b": [2] * 4, "c": [3] * 4}
    assert len({tuple(clock.made[start : start + 3]) for start in range(0, 15, 3)}) > 2


def test_median_has_the_interval_of_order_statistics() -> None:
    assert median([float(value) for value in range(100, 0, -1)]) == (50.5, 41, 61)
    assert median([2, 1]) == (1.5, 1, 2)


@pytest.mark.parametrize(("aim", "whole", "met"), [(None, False, None), (1, False, True), (1, True, False)])
def test_aim_is_of_the_median_or_of_the_whole_interval(aim: float | None, whole: bool, met: bool | None) -> None:
    assert Row("", Ratio(1.0, 0.9, 1.1), aim, whole).met is met
    assert Row("", Ratio(1.01, 0.9, 1.1), aim, whole).met is (None if aim is None else False)


# One question


def test_runner_measures_prints_and_keeps_a_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.main(["--only", "overhead", "--pairs", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert "overhead" in printed.err
    content = json.loads((tmp_path / "overhead.json").read_text())
    assert content["versions"]["padfix"] == padfix.__version__
    assert content["machine"]["processor"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["date"])
    assert len(content["rows"]) == 9
    for row in content["rows"]:
        assert row["what"] in printed.out
        assert row["met"] is (row["median"] <= row["aim"])
    assert not is_installed()
    assert [file.name for file in tmp_path.iterdir()] == ["overhead.json"]


def test_operators_are_counted() -> None:
    import overhead
    import torch

    ones = torch.ones(3)
    assert overhead.operators(lambda: bool((ones + 1).all())) == {
        "aten::add": 1,
        "aten::all": 1,
        "aten::_local_scalar_dense": 1,
    }


def test_bytes_of_a_cache_are_those_of_its_widest_moment() -> None:
    import max_length
    from llama import batch, call, llama, prompts

    model, given = llama(hidden=16, layers=2, heads=2), prompts([5, 3])
    run = call(model, batch(given, "left", extra=4), 3, None)
    assert max_length.cache_bytes(run) == 2 * 2 * (2 * (9 + 2) * 16) * 4  # layers, keys and values, all columns


# Page, plots and figures


@pytest.fixture
def records() -> dict[str, Record]:
    return read(RESULTS, run.QUESTIONS)


def test_every_question_has_its_figures_and_its_line(records: dict[str, Record]) -> None:
    assert list(records) == list(run.QUESTIONS)
    listed = (ROOT / "benchmarks" / "README.md").read_text()
    files = {file.name for file in (ROOT / "benchmarks").glob("*.py")}
    assert [name for name in sorted(files) if f"`{name}`" not in listed] == []


def test_figures_are_read_as_they_were_written(records: dict[str, Record], tmp_path: Path) -> None:
    for name, record in records.items():
        assert write(record, tmp_path).read_bytes() == (RESULTS / f"{name}.json").read_bytes()


def test_whether_an_aim_is_met_is_told_of_the_figure_that_is_written(tmp_path: Path) -> None:
    written = write(Record("q", {}, [Row("", Ratio(1.010004, 1.010004, 1.010004), 1.01)]), tmp_path)
    (row,) = json.loads(written.read_text())["rows"]
    assert (row["median"], row["met"]) == (1.01, True)


def test_page_holds_the_tables_of_the_figures(records: dict[str, Record]) -> None:
    assert page.markdown(records) in page.PAGE.read_text(encoding="utf-8")


def test_plots_are_of_the_figures_and_shown(records: dict[str, Record]) -> None:
    shown = page.PAGE.read_text(encoding="utf-8")
    for name, rows in plots.drawn(records).items():
        assert plots.digest(rows) in (plots.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
        assert f"(images/{name}.svg)" in shown


@pytest.mark.skipif(RELEASE < (5, 24), reason="drawing does not depend on the release")
def test_plots_of_the_same_figures_are_the_same_bytes(records: dict[str, Record], tmp_path: Path) -> None:
    once, again = (plots.draw(records, tmp_path / name) for name in ("once", "again"))
    assert [file.name for file in once] == ["throughput-llama.svg", "throughput-smollm2.svg", "ragged.svg"]
    for one, other in zip(once, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert ElementTree.parse(one).getroot().tag.endswith("svg")
    ragged = records["ragged"]
    moved = [row._replace(found=Ratio(2.0, 2.0, 2.0)) for row in ragged.rows]
    (changed,) = plots.draw({"ragged": ragged._replace(rows=moved)}, tmp_path / "moved")
    assert changed.read_bytes() != once[-1].read_bytes()
    assert plots.digest([row for row in moved if row.at]) in changed.read_text(encoding="utf-8")
