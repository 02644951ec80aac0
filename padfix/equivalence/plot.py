"""A report as a picture: how far apart the logits are, by row and step."""

from __future__ import annotations

import math
from pathlib import Path

from ..errors import LoadingError
from .report import EquivalenceReport

__all__ = ["check_plot", "plot"]

FLOOR = 1e-9


def check_plot(path: Path) -> None:
    """Raises `LoadingError` where `plot` could not write that file: no matplotlib, no such format or folder."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise LoadingError('--plot needs matplotlib, which is missing. Run: pip install "padfix[plot]"') from error
    formats = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise LoadingError(f"{path} names no format that matplotlib writes. End it in .png, .svg or .pdf.")
    if not path.parent.is_dir():
        raise LoadingError(f"{path} cannot be written: there is no folder {path.parent}.")


def plot(report: EquivalenceReport, path: Path) -> None:
    """Writes a heat map of `report` to `path`: rows of the batch down, steps across, a cross where tokens part.

    Colours are the largest logit difference of the step as a share of the row's scale, on a logarithmic axis. From the
    step on at which tokens part there is nothing to compare.

    Raises:
        LoadingError: The file cannot be written.
    """
    check_plot(path)
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    steps = max((len(row.difference.steps) for row in report.rows), default=0) or 1
    cells = [
        [min(max(apart / (row.difference.scale or 1.0), FLOOR), 1.0) for apart in row.difference.steps]
        + [math.nan] * (steps - len(row.difference.steps))
        for row in report.rows
    ]
    figure = Figure(figsize=(4.5 + min(steps, 64) * 0.15, 1.8 + len(report.rows) * 0.28), layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor("0.92")
    image = axes.imshow(cells, aspect="auto", norm=LogNorm(FLOOR, 1.0), cmap="magma_r", interpolation="nearest")
    parted = [(at, row.difference.first) for at, row in enumerate(report.rows) if row.difference.first is not None]
    axes.scatter([step for _, step in parted], [at for at, _ in parted], marker="x", color="tab:cyan")
    axes.set_yticks(range(len(report.rows)), [f"row {row.prompt}: {row.verdict}" for row in report.rows])
    axes.set_xlabel("new token; x: another one than alone")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=axes, label="logit difference / scale")
    axes.set_title(f"{report.subject}\n{report.way}", fontsize="medium", loc="left")
    try:
        figure.savefig(path)
    except OSError as error:
        raise LoadingError(f"{path} cannot be written: {error.strerror}.") from error
