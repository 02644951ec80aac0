"""Where the command `padfix` begins: outside the package, so that a mistake in `PADFIX` is a line and no traceback.

`import padfix` raises for a value that it does not know, as it should; a command line has to say so in its own way.
"""

from __future__ import annotations

import sys


def main() -> int:
    """The exit status of the command in `sys.argv`: 2 where the environment holds a value that padfix refuses."""
    try:
        from padfix.cli import main as command
    except ValueError as error:  # padfix.SettingsError, which cannot be imported either
        print(f"padfix: {error}", file=sys.stderr)
        return 2
    return command()
