"""What the tests of all classes have in common: their marks, and how a case becomes a parameter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from .text import Case

__all__ = ["MARKS", "each_of"]

MARKS = [
    pytest.mark.usefixtures("installed"),
    # Of warnings only padfix's own count here, but for the one that belongs to what `together` asks for.
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::padfix.PadfixWarning"),
    pytest.mark.filterwarnings("ignore:the field .* of this output is None"),
]


def each_of(
    found: Sequence[Case], *, fast: Collection[str], exception_of: Callable[[Case], str | None]
) -> pytest.MarkDecorator:
    """The test for each of the cases, in the tier `architectures` but for those that `fast` names."""

    def parameter(case: Case) -> Any:
        marks = [] if case.name in fast else [pytest.mark.architectures]
        if (reason := exception_of(case)) is not None:
            marks.append(pytest.mark.xfail(strict=True, reason=reason))
        return pytest.param(case, id=case.name, marks=marks)

    return pytest.mark.parametrize("case", [parameter(case) for case in found])
