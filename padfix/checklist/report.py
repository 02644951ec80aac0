"""What `doctor` gives: findings, as text to paste into a bug report and as plain types."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Diagnosis", "Finding", "Level"]

Level = Literal["ok", "note", "problem"]

WIDTH = 80
_INDENT = " " * 25


@dataclass(frozen=True)
class Finding:
    """One fact.

    Attributes:
        level: `ok`; `note` (right in some cases, or nothing can tell); `problem` (padded batches go wrong or raise).
        check: What was looked at.
        seen: What was seen.
        remedy: What to do; empty where all is well.
    """

    level: Level
    check: str
    seen: str
    remedy: str

    def __str__(self) -> str:
        head = f"{self.level:9}{self.check:16}"
        text = [textwrap.fill(self.seen, WIDTH, initial_indent=head, subsequent_indent=_INDENT)]
        if self.level != "ok":
            text.append(textwrap.fill(f"-> {self.remedy}", WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT))
        return "\n".join(text)


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found, for the eye (`print`), for a bug report (the same text) and for programs (`as_dict`).

    No path, user name or prompt is in it.
    """

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that make padded batches go wrong or raise."""
        return tuple(finding for finding in self.findings if finding.level == "problem")

    def as_dict(self) -> dict[str, Any]:
        """Plain types, as for JSON: `{"findings": [{"level": ..., "check": ..., "seen": ..., "remedy": ...}, ...]}`."""
        return {"findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        levels = [finding.level for finding in self.findings]
        problems, notes = (_counted(levels.count(level), level) for level in ("problem", "note"))
        return "\n".join((f"padfix doctor: {problems}, {notes}, {levels.count('ok')} ok", *map(str, self.findings)))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
