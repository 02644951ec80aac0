"""What a question gave, with the day, the machine and the versions: written to a file, and read again."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from common import ROOT, Ratio, Row

import padfix

__all__ = ["RESULTS", "Record", "read", "stamp", "write"]

RESULTS = ROOT / "benchmarks" / "results"


class Record(NamedTuple):
    """A question's rows, and the stamp of where they were measured."""

    question: str
    stamp: Mapping[str, Any]
    rows: Sequence[Row]


def stamp(*, quick: bool) -> dict[str, Any]:
    """The day, the machine and the versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "quick": quick,
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "padfix": padfix.__version__,
        },
    }


def _processor() -> str:
    """The name of the processor, or what kind it is."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def write(record: Record, folder: Path) -> Path:
    """The file of a question, `folder`/QUESTION.json, with figures of four digits."""
    rows = [
        {
            "what": row.what,
            **row.found._asdict(),
            "aim": row.aim,
            "whole": row.whole,
            "met": row.met,
            "at": dict(row.at),
        }
        for row in map(_rounded, record.rows)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{record.question}.json"
    text = json.dumps({"question": record.question, **record.stamp, "rows": rows}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _rounded(row: Row) -> Row:
    """The row with figures of four digits."""
    return row._replace(found=Ratio(*(float(f"{value:.4g}") for value in row.found)))


def read(folder: Path, questions: Iterable[str]) -> dict[str, Record]:
    """The records of the questions that have a file in `folder`, in the order of the questions."""
    found = {}
    for question in questions:
        file = folder / f"{question}.json"
        if file.is_file():
            content = json.loads(file.read_text(encoding="utf-8"))
            rows = [
                Row(one["what"], Ratio(one["median"], one["low"], one["high"]), one["aim"], one["whole"], one["at"])
                for one in content["rows"]
            ]
            rest = {name: value for name, value in content.items() if name not in ("question", "rows")}
            found[question] = Record(question, rest, rows)
    return found
