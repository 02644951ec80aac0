"""The benchmarks: asks every question, prints one table, keeps the figures, draws the plots.

Every figure is a ratio of two runs that were timed in turn in one process, on the CPU, in one thread: the median and
its 95 % interval. About ten minutes, or two with `--quick`; no network::

    python benchmarks/run.py [--only QUESTION ...] [--quick] [--out DIR] [--copies FOLDER]
    python benchmarks/run.py --redraw

The figures go to benchmarks/results/QUESTION.json, the plots to docs/images, the tables to docs/benchmarks.md; with
`--out` figures and plots go to DIR, and no page is changed. `--redraw` measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import decoding_cost
import left_pad
import loading
import max_length
import memory
import overhead
import page
import plots
import ragged
import throughput
from common import Effort, Question, arguments
from record import RESULTS, Record, read, stamp, write
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

QUESTIONS: Mapping[str, Question] = {
    "overhead": overhead.rows,
    "left_pad": left_pad.rows,
    "max_length": max_length.rows,
    "ragged": ragged.rows,
    "decoding_cost": decoding_cost.rows,
    "memory": memory.rows,
    "loading": loading.rows,
    "throughput": throughput.rows,
}


def measure(names: Sequence[str], effort: Effort, folder: Path) -> None:
    """Asks the questions, each with a bar on standard error, and writes what comes of it."""
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        whole = bars.add_task("all questions", total=len(names))
        for name in names:
            one = bars.add_task(name)

            def step(done: int, total: int, what: str, one: object = one, name: str = name) -> None:
                bars.update(one, completed=done, total=total, description=f"{name}: {what}")  # type: ignore[arg-type]

            rows = QUESTIONS[name](effort, step)
            write(Record(name, stamp(quick=effort.quick), rows), folder)
            bars.update(one, completed=1, total=1, description=name)
            bars.advance(whole)


def table(records: Mapping[str, Record]) -> Table:
    """Every row of every question, with its aim beside it."""
    shown = Table("question", "what", "figure [95 % interval]", "aim", "met")
    for record in records.values():
        for number, row in enumerate(record.rows):
            aim = "" if row.aim is None else f"{row.aim:g}"
            met = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}[row.met]
            shown.add_row(
                record.question if number == 0 else "", row.what, str(row.found).replace("[", r"\["), aim, met
            )
        shown.add_section()
    return shown


def main(given: Sequence[str] | None = None) -> None:
    """Measures, prints and draws."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS), metavar="QUESTION")
    parser.add_argument("--out", type=Path, help="folder for figures and plots; no page is changed then")
    parser.add_argument("--redraw", action="store_true", help="draw and write from the figures that are there")
    asked = parser.parse_args(given)
    folder = asked.out or RESULTS
    if not asked.redraw:
        measure(asked.only, Effort(asked.quick, asked.pairs, asked.copies), folder)
    records = read(folder, QUESTIONS)
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    console.print(table({name: record for name, record in records.items() if name in asked.only}))
    for file in plots.draw(records, asked.out or plots.IMAGES):
        console.print(f"{file}", highlight=False)
    if asked.out is None:
        page.rewrite(records)


if __name__ == "__main__":
    main()
