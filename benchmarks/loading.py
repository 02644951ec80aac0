"""What `import padfix` costs, as whole processes, as a ratio of a process that imports wrapt alone.

With `PADFIX` unset and with `PADFIX=fix`; fresh interpreters in turn, in CPU time. Also which of the large packages are
loaded then: none, and wrapt alone. No network::

    python benchmarks/loading.py [--quick]
"""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys
from pathlib import Path

from common import Effort, Ratio, Row, alone, ratio

import padfix
from padfix.console import Step

AIM = 1.5
# The mode, and the packages that must not be loaded in it.
MODES = {"": ("torch", "transformers", "wrapt"), "fix": ("torch", "transformers")}


def run(code: str, mode: str = "") -> str:
    """What the code prints in a fresh interpreter, with padfix in a mode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    folders = (str(Path(padfix.__file__).parents[1]), environment.get("PYTHONPATH", ""))
    environment |= {"PADFIX": mode, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def of_children() -> float:
    """The CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(effort: Effort, step: Step) -> list[Row]:
    """For each mode the ratio and the number of packages that should not be there."""
    found = []
    for number, (mode, absent) in enumerate(MODES.items()):
        shown = f"PADFIX={mode}" if mode else "PADFIX unset"
        step(number, len(MODES), shown)
        ours = functools.partial(run, "import padfix", mode)
        taken = ratio(ours, functools.partial(run, "import wrapt"), effort.pairs(30), clock=of_children)
        loaded = run(f"import padfix, sys; print(sum(name in sys.modules for name in {absent}))", mode)
        found.append(Row(f"{shown}: CPU time of a process that imports padfix / one that imports wrapt", taken, AIM))
        found.append(Row(f"{shown}: loaded of {', '.join(absent)}", Ratio(*[int(loaded)] * 3), 0))
    return found


if __name__ == "__main__":
    alone(__doc__, rows)
