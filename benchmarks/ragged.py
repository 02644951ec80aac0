"""What the prefill of a ragged batch costs with padfix, as a ratio of the same batch left-padded.

A Llama of 6 layers and hidden size 256, random weights, float32; each call gives one new token, so that it is all
prefill. Eight prompts of 22 to 400 tokens against the library's call of the batch left-padded by hand, whether they
come to padfix right- or left-padded; then batches of many shapes, what padfix takes by itself against its own left
padding. Timed in turn in one process. No network::

    python benchmarks/ragged.py [--quick] [--sweep]

With `--sweep` every shape on a wide grid of batch sizes and widths, a quarter of an hour or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from common import Effort, Row, alone, ratio
from llama import batch, call, llama, prompts

from padfix.console import Step
from padfix.layout.packing import Packing
from padfix.layout.rows import Side
from padfix.patch import installed
from padfix.strategies.packed_prefill import fewest_saved, pays

LENGTHS, AIM = (400, 60, 40, 35, 30, 28, 25, 22), 0.33
SWEEP_AIM = 1.03
SIDES: tuple[Side, ...] = ("right", "left")
# Batch sizes and widths.
GRID = ((2, 4, 8, 16), (24, 144))
QUICK_GRID = ((8,), (24, 160))
WIDE_GRID = ((2, 4, 8, 16, 32), (16, 48, 128, 384))


def shapes(rows: int, width: int) -> Iterator[tuple[str, list[int]]]:
    """Lengths of prompts of which the longest is `width`: a few kinds of raggedness."""
    yield "one long", [width, *[max(2, width // 10)] * (rows - 1)]
    yield "even spread", [max(2, width * (row + 1) // rows) for row in range(rows)]
    yield "halves", [width if row % 2 else max(2, width // 4) for row in range(rows)]
    yield "nearly even", [width - row % 3 for row in range(rows)]


def share_of_cells(lengths: Sequence[int]) -> float:
    """The cells of packed rows, and of the last column, as a share of those of padded rows."""
    packing = Packing.of([length - 1 for length in lengths])
    return (len(packing.rows) * packing.width + len(lengths)) / (len(lengths) * max(lengths))


def of_shape(model: Any, shape: str, lengths: Sequence[int], pairs: int) -> Row:
    """What padfix takes by itself, against its own left padding."""
    given, (rows, width) = batch(prompts(lengths), "left"), (len(lengths), max(lengths))
    found = ratio(call(model, given, 1, "auto"), call(model, given, 1, "left_pad"), pairs)
    packs = pays(lengths, width, 1, least=fewest_saved("cpu", model.config.hidden_size))
    at = {"rows": rows, "width": width, "shape": shape, "packs": packs, "real": sum(lengths) / (rows * width)}
    how = "packed" if packs else "left-padded"
    return Row(f"{rows} x {width}, {shape} ({how}): time / padfix's left padding", found, SWEEP_AIM, at=at)


def swept(model: Any, effort: Effort, step: Step, grid: tuple[Sequence[int], Sequence[int]]) -> list[Row]:
    """A row for each batch of the grid; small batches, whose times scatter most, get the most pairs."""
    sizes = list(product(*grid))
    found = []
    for number, (rows, width) in enumerate(sizes):
        step(number, len(sizes), f"{rows} prompts of up to {width} tokens")
        for shape, lengths in shapes(rows, width):
            pairs = effort.pairs(max(5, min(40, 6000 // (rows * width))), quick=2)
            found.append(of_shape(model, shape, lengths, pairs))
    return found


def rows(effort: Effort, step: Step) -> list[Row]:
    """The one batch, right- and left-padded, the slowest of the sweep, and all of it."""
    model, given = llama(), prompts(LENGTHS)
    found = []
    with installed("fix"):
        theirs = call(model, batch(given, "left"), 1, None)
        for number, side in enumerate(SIDES):
            step(number, 2, f"{len(LENGTHS)} prompts of 22 to 400 tokens, {side}-padded")
            ours = call(model, batch(given, side), 1, "auto")
            taken = ratio(ours, theirs, effort.pairs(15, quick=2))
            what = f"8 prompts of 22 to 400 tokens, {side}-padded, one new token: time / hand-left-padded"
            found.append(Row(f"{what} (by cells alone {share_of_cells(LENGTHS):.2f})", taken, AIM))
        points = swept(model, effort, step, QUICK_GRID if effort.quick else GRID)
    slowest = max(points, key=lambda row: row.found.median)
    what = f"slowest of {len(points)} shapes of batches: {slowest.what}"
    return [*found, Row(what, slowest.found, SWEEP_AIM), *points]


def sweep(effort: Effort, step: Step) -> list[Row]:
    """Every shape on the wide grid."""
    with installed("fix"):
        return swept(llama(), effort, step, WIDE_GRID)


if __name__ == "__main__":
    alone(__doc__, rows, sweep=sweep)
