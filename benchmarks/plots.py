"""The plots of docs/benchmarks.md and README.md, from the records alone: the same figures give the same bytes.

Draws them anew without measuring::

    python benchmarks/plots.py
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from common import ROOT, Row
from matplotlib.figure import Figure
from record import RESULTS, Record, read

__all__ = ["IMAGES", "digest", "draw", "drawn"]

IMAGES = ROOT / "docs" / "images"

# Okabe and Ito's colours, which the colour-blind tell apart; padfix is the strong one.
COLOURS = {
    "padfix": "#D55E00",
    "padfix, equal_length": "#E69F00",
    "hand left padding": "#000000",
    "sorted, batches of 4": "#0072B2",
    "generate_batch": "#009E73",
    "one at a time": "#888888",
}
MARKERS = {"padfix": "o", "padfix, equal_length": "D", "sorted, batches of 4": "s", "generate_batch": "^"}
# What the logarithmic axis of throughput shows.
TICKS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4)
# Text as outlines, so that every reader sees the same; the salt makes the ids of shapes the same in every run.
STYLE: Any = {
    "svg.hashsalt": "padfix",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(records: Mapping[str, Record], folder: Path, *, suffix: str = "svg") -> list[Path]:
    """The plots for which there are figures, written into `folder`: one for each model, and one of ragged batches."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.rc_context(STYLE):
        for name, rows in drawn(records).items():
            file = folder / f"{name}.{suffix}"
            figure = _ragged(rows) if name == "ragged" else _throughput(rows)
            said = {"Date": None, "Creator": None, "Description": digest(rows)} if suffix == "svg" else None
            figure.savefig(file, metadata=said, facecolor="white", dpi=110)
            files.append(file)
    return files


def drawn(records: Mapping[str, Record]) -> dict[str, list[Row]]:
    """The name of each plot, and the rows that it shows."""
    found: dict[str, list[Row]] = {}
    for row in records["throughput"].rows if "throughput" in records else ():
        found.setdefault(f"throughput-{row.at['model'].split('-')[0].lower()}", []).append(row)
    if "ragged" in records:
        found["ragged"] = [row for row in records["ragged"].rows if row.at]
    return found


def digest(rows: Sequence[Row]) -> str:
    """What a plot says of the rows that it was drawn from."""
    return hashlib.sha256(repr([(row.found, sorted(row.at.items())) for row in rows]).encode()).hexdigest()


def _throughput(rows: Sequence[Row]) -> Figure:
    """Two panels, over the number of prompts and over raggedness; a line for each peer, its name at the line's end."""
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    at = rows[0].at
    usual, ragged = _commonest(rows, "rows"), _commonest(rows, "times")
    ends = [
        _panel(left, [row for row in rows if row.at["times"] == ragged], "rows"),
        _panel(right, [row for row in rows if row.at["rows"] == usual], "times"),
    ]
    low, high = left.get_ylim()  # both panels have the same
    left.set_yticks(*zip(*((tick, f"{tick:g}") for tick in TICKS if low <= tick <= high), strict=True))
    for axes, lines in zip((left, right), ends, strict=True):
        _name(axes, lines)
    left.set(
        xlabel=f"prompts (shortest / longest = 1/{ragged})",
        ylabel="new tokens per second\nrelative to hand left padding",
    )
    right.set_xlabel(f"shortest prompt / longest ({usual} prompts)")
    figure.suptitle(
        f"{at['model']}: prompts of up to {at['longest']} tokens, {at['new']} new tokens each, CPU; higher is better"
    )
    return figure


def _commonest(rows: Sequence[Row], name: str) -> int:
    """The value that a coordinate has at most points."""
    values: list[int] = [row.at[name] for row in rows]
    return max(sorted(set(values)), key=values.count)


End = tuple[float, float, str, str]


def _panel(axes: Any, rows: Sequence[Row], along: str) -> list[End]:
    """A line for each peer, with its interval, over the logarithm of a coordinate; gives where each ends."""
    ends = []
    for peer, colour in COLOURS.items():
        of = sorted((row for row in rows if row.at["peer"] == peer), key=lambda row: row.at[along])
        if not of:
            continue
        x, y = [row.at[along] for row in of], [row.found.median for row in of]
        is_ours = peer == "padfix"
        style = "--" if peer == "hand left padding" else "-"
        axes.plot(
            x,
            y,
            style,
            marker=MARKERS.get(peer),
            ms=5,
            color=colour,
            lw=3 if is_ours else 1.6,
            zorder=4 if is_ours else 3,
        )
        axes.fill_between(x, [r.found.low for r in of], [r.found.high for r in of], color=colour, alpha=0.12, lw=0)
        ends.append((y[-1], x[-1], peer, colour))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ticks = sorted({row.at[along] for row in rows})
    axes.set_xticks(ticks, [str(one) if along == "rows" or one == 1 else f"1/{one}" for one in ticks])
    axes.minorticks_off()
    axes.grid(axis="y", color="#DDDDDD", lw=0.7)
    return ends


def _name(axes: Any, ends: Sequence[End]) -> None:
    """The names at the ends of the lines, moved up where they would lie upon one another."""
    low, high = (math.log2(one) for one in axes.get_ylim())
    place = float("-inf")
    for y, x, peer, colour in sorted(ends):
        place = max(math.log2(y), place + (high - low) / 15)
        weight = "bold" if peer == "padfix" else "normal"
        named = {"color": colour, "va": "center", "weight": weight, "annotation_clip": False}
        axes.annotate(peer, (x, 2**place), (9, 0), textcoords="offset points", **named)


def _ragged(rows: Sequence[Row]) -> Figure:
    """Time against padfix's own left padding, over the share of cells that are real tokens; a mark for each batch."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.subplots()
    kinds = ((True, "#D55E00", "o", "packed"), (False, "#0072B2", "s", "left-padded: packing would not pay"))
    for packs, colour, marker, name in kinds:
        of = [row for row in rows if row.at["packs"] is packs]
        x, y = [row.at["real"] for row in of], [row.found.median for row in of]
        errors = [[r.found.median - r.found.low for r in of], [r.found.high - r.found.median for r in of]]
        axes.errorbar(x, y, yerr=errors, fmt=marker, ms=5, color=colour, elinewidth=0.8, label=name)
    axes.axhline(1, color="black", lw=1)
    axes.set(xlim=(0, 1.05), ylim=(0, None), xlabel="real tokens as a share of the padded batch's cells")
    axes.set_ylabel("time of the prefill / left-padded")
    axes.set_title("Prefill of a ragged batch with padfix, CPU; lower is better", fontsize=10)
    axes.legend(frameon=False, loc="lower right")
    return figure


if __name__ == "__main__":
    for written in draw(read(RESULTS, ("throughput", "ragged")), IMAGES):
        print(written.relative_to(ROOT))
