"""The Python of the documentation, run as it stands on the model that comes with padfix."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import padfix
from padfix import registry
from padfix.cli import main
from padfix.loading import EMBEDDED, embedded

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = {
    name: re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.S)
    for name in ("chats.md", "limits.md", "policy.md", "show.md", "verify.md")
}


@pytest.fixture
def names() -> dict[str, Any]:
    model, tokenizer = embedded()
    return {"padfix": padfix, "model": model, "tokenizer": tokenizer}


def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
    blocks = {"chats.md": 3, "limits.md": 1, "policy.md": 2, "show.md": 2, "verify.md": 2}
    assert len(BLOCKS[page]) == blocks[page]
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), names)
    return names


def test_policy_page(names: dict[str, Any]) -> None:
    ran = run("policy.md", names)
    assert ran["replies"] == ["xif", "smrofsnart"]
    assert ran["leaked"] == ": fix =xif"


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_chats_page(names: dict[str, Any]) -> None:
    model, tokenizer = names["model"], names["tokenizer"]
    ran = run("chats.md", names)
    texts: list[str] = ["", ""]
    rows: list[list[int]] = [[], []]
    for turn in ran["turns"]:  # each chat held alone
        for row, said in enumerate(turn):
            texts[row] = _answered(model, tokenizer, tokenizer(texts[row] + said)["input_ids"])
            rows[row] = _continued(model, rows[row] + tokenizer(said)["input_ids"])
    assert ran["chats"] == texts
    assert texts[0].startswith("reverse: fix =xif reverse: padding =")
    assert [ids[real.bool()].tolist() for ids, real in zip(ran["ids"], ran["mask"], strict=True)] == rows
    cached = ran["out"].past_key_values
    assert cached.get_seq_length() == ran["ids"].shape[1] - 1


def _continued(model: Any, ids: list[int]) -> list[int]:
    with padfix.suppressed():
        continued: list[int] = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    return continued


def _answered(model: Any, tokenizer: Any, ids: list[int]) -> str:
    new = _continued(model, ids)
    text: str = tokenizer.decode(new, skip_special_tokens=True)
    return text


def test_verify_page(names: dict[str, Any]) -> None:
    ran = run("verify.md", names)
    assert ran["report"].rows[0].verdict == "equal"
    assert [finding.check for finding in ran["diagnosis"].problems] == ["padding side"]


def test_show_page(
    names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run("show.md", names)
    assert "0  ◆reverse:␣fix␣=××××××× ► ✗" in capsys.readouterr().out
    commands = re.findall(r"^padfix (show.*?)(?: +#.*)?$", (DOCS / "show.md").read_text(encoding="utf-8"), re.M)
    assert len(commands) == 6
    (tmp_path / "prompts.txt").write_text("reverse: fix =\n")
    for command in commands:
        assert main(shlex.split(command.replace("PATH_OR_ID", str(EMBEDDED)))) == 0
    assert (tmp_path / "picture.svg").is_file()


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
