"""The releases of transformers: the oldest that is supported, and those that the suite is run on. Data alone."""

from __future__ import annotations

__all__ = ["NEWEST_TESTED", "OLDEST", "SUPPORTED", "TESTED"]

# Each has its pins in .ci/releases/ (the newest: constraints.txt), its column in docs/releases.md, its run in .ci/run.
TESTED = ("4.46.3", "4.51.3", "4.57.6", "5.0.0", "5.24.0")

# Major and minor number of the first and the last of them.
OLDEST = (4, 46)
NEWEST_TESTED = (5, 24)

# As in pyproject.toml.
SUPPORTED = "transformers>=4.46,<6"
