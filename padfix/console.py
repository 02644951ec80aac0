"""The console of the commands: results on standard output, progress on standard error."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import LoadingError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Step", "console", "progress"]

# Gets the number of steps done, the number of all, and what the next one is.
Step = Callable[[int, int, str], None]


def console() -> Console:
    """A console on standard output, 80 columns wide where there is no terminal.

    Characters that standard output cannot encode are printed as `?` from here on.

    Raises:
        LoadingError: rich is missing.
    """
    try:
        from rich.console import Console
    except ImportError as error:
        raise LoadingError('The table needs rich, which is missing. Run: pip install "padfix[cli]"') from error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console()


@contextmanager
def progress() -> Iterator[Step | None]:
    """A bar on standard error, moved by calls of what it gives; None where there is no terminal, or no rich."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def step(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield step
