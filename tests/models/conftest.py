"""What each test of a class leaves in the results: for benchmarks/architectures_table.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import transformers

from padfix import pipeline
from padfix.strategies import STRATEGIES

from .text import Case


@pytest.fixture(autouse=True)
def in_results(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """The case of a test, the strategies that its calls got, and why not left padding; for `--junitxml`."""
    callspec = getattr(request.node, "callspec", None)
    case = None if callspec is None else callspec.params.get("case")
    if not isinstance(case, Case):
        return
    record_property("case", case.name)
    record_property("group", case.group)
    record_property("release", transformers.__version__)
    decide, attempt = pipeline.decide, pipeline.attempt
    names = {strategy: name for name, strategy in STRATEGIES.items()}

    def decided(*args: Any, **named: Any) -> Any:
        repair = decide(*args, **named)
        if repair is not None and repair.strategy is not None:
            record_property("strategy", names[repair.strategy])
        return repair

    def attempted(*args: Any, **named: Any) -> Any:
        repair = attempt(*args, **named)
        if repair.obstacles:
            record_property("reason", repair.obstacles[0])
        return repair

    monkeypatch.setattr(pipeline, "decide", decided)
    monkeypatch.setattr(pipeline, "attempt", attempted)
