"""The tables of docs/benchmarks.md, from the records alone.

Redraw tables and plots without measuring: ``python benchmarks/run.py --redraw``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from common import ROOT, Row
from record import Record

__all__ = ["PAGE", "markdown", "rewrite"]

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- benchmarks/run.py -->", "<!-- end -->"


def markdown(records: Mapping[str, Record]) -> str:
    """Where and when it was measured, the table of figures, and for each model one of new tokens per second."""
    stamps = [f"{', '.join(f'`{name}`' for name, _ in group)}: {text}." for text, group in _by_stamp(records)]
    lines = ["| question | what | figure | aim | |", "|---|---|---|---|---|"]
    for record in records.values():
        for row in record.rows:
            if not row.at:
                aim = "" if row.aim is None else f"{row.aim:g}"
                met = {None: "", True: "met", False: "**not met**"}[row.met]
                lines.append(f"| `{record.question}` | {row.what} | {row.found} | {aim} | {met} |")
    points = records["throughput"].rows if "throughput" in records else []
    by_model = groupby(points, key=lambda row: row.at["model"])
    return "\n\n".join(("\n".join(stamps), "\n".join(lines), *(_throughput(name, list(of)) for name, of in by_model)))


def _by_stamp(records: Mapping[str, Record]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The questions by where and when they were measured."""
    stamped = sorted(((name, _stamp(record)) for name, record in records.items()), key=lambda pair: pair[1])
    return [(text, list(group)) for text, group in groupby(stamped, key=lambda pair: pair[1])]


def _stamp(record: Record) -> str:
    stamp, versions = record.stamp, record.stamp["versions"]
    machine = stamp["machine"]
    return (
        f"{'**quick run**, ' if stamp['quick'] else ''}{stamp['date']}, {machine['processor']}, "
        f"{machine['cores']} cores, {machine['system']}, {stamp['threads']} thread{'s' * (stamp['threads'] != 1)}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )


def _throughput(model: str, rows: Sequence[Row]) -> str:
    """A line for each point, a column for each peer."""
    peers = list(dict.fromkeys(row.at["peer"] for row in rows))
    longest, new = rows[0].at["longest"], rows[0].at["new"]
    lines = [
        f"{model}, the longest prompt {longest} tokens, {new} new tokens each: new tokens per second "
        "relative to hand left padding, more is better.",
        "",
        f"| prompts | shortest / longest | {' | '.join(peers)} |",
        "|---" * (len(peers) + 2) + "|",
    ]
    for (count, times), group in groupby(rows, key=lambda row: (row.at["rows"], row.at["times"])):
        found = {row.at["peer"]: f"{row.found.median:.2f}" for row in group}
        share = f"1/{times}" if times > 1 else "1"
        lines.append(f"| {count} | {share} | {' | '.join(found.get(peer, '') for peer in peers)} |")
    return "\n".join(lines)


def rewrite(records: Mapping[str, Record], page: Path = PAGE) -> None:
    """Puts the tables between the two marks of the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{markdown(records)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
