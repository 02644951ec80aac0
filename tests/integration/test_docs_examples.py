"""The Python of the documentation, run as it stands on the model that comes with padfix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import padfix
from padfix import registry
from padfix.loading import embedded

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = {
    name: re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.S)
    for name in ("limits.md", "policy.md", "verify.md")
}


@pytest.fixture
def names() -> dict[str, Any]:
    model, tokenizer = embedded()
    return {"padfix": padfix, "model": model, "tokenizer": tokenizer}


def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
    assert len(BLOCKS[page]) == {"limits.md": 1, "policy.md": 2, "verify.md": 2}[page]
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), names)
    return names


def test_policy_page(names: dict[str, Any]) -> None:
    ran = run("policy.md", names)
    assert ran["replies"] == ["xif", "smrofsnart"]
    assert ran["leaked"] == ": fix =xif"


def test_verify_page(names: dict[str, Any]) -> None:
    ran = run("verify.md", names)
    assert ran["report"].rows[0].verdict == "equal"
    assert [finding.check for finding in ran["diagnosis"].problems] == ["padding side"]


def test_limits_page(names: dict[str, Any]) -> None:
    run("limits.md", names)
    assert not registry.ARCHITECTURES["MyRecurrentForCausalLM"].left_padding_exact
    assert registry.PROMPT_TENSORS["segment_ids"] == (0, 1, 0)


def test_guards_page(names: dict[str, Any]) -> None:
    text = (DOCS / "guards.md").read_text()
    example = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "assert_batch" in block)
    with pytest.raises(AssertionError, match="padding fault"):  # it pads on the right, and padfix is not installed
        exec(compile(example, "guards.md", "exec"), names)
    padfix.install()
    exec(compile(example, "guards.md", "exec"), names)
