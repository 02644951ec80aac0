"""Every block of code of README.md and docs/, run as it stands; every message that they quote, against the real one.

The Python of a page runs in order in one namespace, on the model that comes with padfix; `NAMES` has what a page takes
for granted, `FILES` the files of the reader's that its code and commands read. Then its commands run, with nothing
installed: those of `padfix` in this process, by its entry point, others in one of their own. A command exits with 0
unless its comment says `exit status 1`; where it says `prints ...`, that is compared. The notes above blocks are those
of tests/pages.py.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pages
import pytest
import recipes
import torch
import transformers
from pages import DOCS, RUN, Block

import _padfix_cli
import padfix
from padfix import registry
from padfix.loading import EMBEDDED, embedded

ROOT = Path(__file__).parents[2]
Names = dict[str, Any]

PROMPTS = ["reverse: fix =", "reverse: transforms =", "reverse: attention ="]

# What a page takes for granted, beside `padfix`, `model` and `tokenizer`.
NAMES: dict[str, Callable[[Any], Names]] = {
    "README.md": lambda tokenizer: {"prompts": PROMPTS},
    "docs/flags.md": lambda tokenizer: {
        "batch": tokenizer(PROMPTS, padding=True, return_tensors="pt"),
        "mine": transformers.MinLengthLogitsProcessor(3, 2),
    },
}

# What the commands and the code of a page find in the folder that they run in.
SERVER = """
from padfix.loading import embedded

model, tokenizer = embedded()
right_padded_batch = tokenizer(["reverse: fix =", "reverse: transforms ="], padding=True, return_tensors="pt")


def serve(batch):
    return model.generate(**batch, max_new_tokens=2)
"""
EVALUATE = """
import os
import sys

import padfix

assert sys.argv[1:] == ["--batch-size", "8"]
assert os.environ["PADFIX"] == "fix"
assert padfix.is_installed()
"""
IN_STRICT_MODE = """
import padfix


def test_mode():
    assert padfix.is_installed()
"""
FILES: dict[str, dict[str, str]] = {
    "docs/run.md": {"evaluate.py": EVALUATE, "tests/test_mode.py": IN_STRICT_MODE},
    "docs/show.md": {"prompts.txt": "reverse: fix =\nreverse: transforms =\n"},
    "docs/verify.md": {"prompts.txt": "reverse: fix =\nreverse: transforms =\n"},
    "docs/guards.md": {"server.py": SERVER},
}

# What pytest needs where padfix is not installed with its entry points.
PLUGIN = [] if entry_points(group="pytest11", name="padfix") else ["-p", "_padfix_pytest"]

# A translation has the code of its original: tests/unit/test_pages.py.
ORIGINALS = [page for page in RUN if page.parent.name != "zh"]
# Run by the tests of what they are about: tests/integration/recipes.py, test_scale.py.
ELSEWHERE = {"docs/integrations.md", "docs/scale.md"}
CODE = [
    page
    for page in ORIGINALS
    if pages.name(page) not in ELSEWHERE and any(block.language in ("python", "sh") for block in pages.blocks(page))
]


# What the pages say of what they run


def readme(names: Names) -> None:
    assert names["replies"] == ["xif", "smrofsnart", "noitnetta"]


def quickstart(names: Names) -> None:
    assert names["once"] == names["right"] == names["alone"] == ["xif", "smrofsnart", "noitnetta"]
    same = [one == other for one, other in zip(names["wrong"], names["alone"], strict=True)]
    assert same == [False, True, False]
    assert names["report"].ok
    assert sum(one.numel() for one in names["model"].parameters()) == 224_832


def is_this_my_bug(names: Names) -> None:
    assert names["alone"] == names["by_hand"] == names["with_padfix"] == ["xif", "smrofsnart"]
    assert names["together"][0] != "xif"
    assert names["together"][1] == "smrofsnart"


def policy(names: Names) -> None:
    assert names["replies"] == ["xif", "smrofsnart"]
    assert names["leaked"] == ": fix =xif"


def verify(names: Names) -> None:
    assert names["report"].rows[0].verdict == "equal"
    assert [finding.check for finding in names["diagnosis"].problems] == ["padding side"]


def show(names: Names) -> None:
    assert "0  ◆reverse:␣fix␣=××××××× ► ✗" in str(names["picture"])


def limits(names: Names) -> None:
    assert not registry.ARCHITECTURES["MyRecurrentForCausalLM"].left_padding_exact
    assert registry.PROMPT_TENSORS["segment_ids"] == (0, 1, 0)


def chats(names: Names) -> None:
    model, tokenizer = names["model"], names["tokenizer"]
    texts: list[str] = ["", ""]
    rows: list[list[int]] = [[], []]
    for turn in names["turns"]:  # each chat held alone
        for row, said in enumerate(turn):
            texts[row] = answered(model, tokenizer, tokenizer(texts[row] + said)["input_ids"])
            rows[row] = continued(model, rows[row] + tokenizer(said)["input_ids"])
    assert names["chats"] == texts
    assert texts[0].startswith("reverse: fix =xif reverse: padding =")
    assert [ids[real.bool()].tolist() for ids, real in zip(names["ids"], names["mask"], strict=True)] == rows
    assert names["out"].past_key_values.get_seq_length() == names["ids"].shape[1] - 1


def continued(model: Any, ids: list[int]) -> list[int]:
    with padfix.suppressed():
        new: list[int] = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    return new


def answered(model: Any, tokenizer: Any, ids: list[int]) -> str:
    text: str = tokenizer.decode(continued(model, ids), skip_special_tokens=True)
    return text


CHECKS: dict[str, Callable[[Names], None]] = {
    "README.md": readme,
    "docs/chats.md": chats,
    "docs/is-this-my-bug.md": is_this_my_bug,
    "docs/limits.md": limits,
    "docs/policy.md": policy,
    "docs/quickstart.md": quickstart,
    "docs/show.md": show,
    "docs/verify.md": verify,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.parametrize("page", CODE, ids=pages.name)
def test_code_of_a_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = pages.name(page)
    model, tokenizer = embedded()
    names: Names = {"padfix": padfix, "model": model, "tokenizer": tokenizer}
    if taken := NAMES.get(name):
        names |= taken(tokenizer)
    blocks = pages.blocks(page)
    for file, text in [*FILES.get(name, {}).items(), *((one.note[1], one.code) for one in files(blocks))]:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    there = [block for block in blocks if block.note[0] not in ("not run", "file")]
    for block in there:
        if block.language == "python":
            run_python(block, names)
    if check := CHECKS.get(name):
        check(names)
    padfix.uninstall()
    for block in there:
        if block.language == "sh":
            for line in block.code.splitlines():
                run_command(line, block, monkeypatch)


def files(blocks: list[Block]) -> Iterator[Block]:
    return (block for block in blocks if block.note[0] == "file")


def run_python(block: Block, names: Names) -> None:
    # Lines of the page in tracebacks and warnings.
    code = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec")
    if block.note[0] == "raises":
        with pytest.raises((getattr(padfix, block.note[1], AssertionError),)) as raised:
            exec(code, names)
        assert type(raised.value).__name__ == block.note[1], block.where
    else:
        exec(code, names)


def run_command(line: str, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the command of a line, if it has one, and compares its exit status with the one that the line says."""
    command, _, comment = line.partition(" #")
    words = [str(EMBEDDED) if word == "MODEL" else word for word in shlex.split(command, comments=True)]
    if not words:
        return
    expected = int(comment.rpartition("exit status ")[2]) if "exit status " in comment else 0
    if words[:2] == ["padfix", "run"]:  # it becomes the program that it runs
        status, _ = in_its_own_process(["python", "-m", *words])
    elif words[0] == "padfix":
        monkeypatch.setattr(sys, "argv", words)
        status = _padfix_cli.main()
    else:
        status, printed = in_its_own_process(words)
        assert not comment.startswith(" prints ") or printed == comment.removeprefix(" prints "), (
            f"{block.where}: {line}"
        )
    assert status == expected, f"{block.where}: {line}"


def in_its_own_process(words: list[str]) -> tuple[int, str]:
    """The exit status of a command, which may begin with variables of its environment, and what it prints."""
    environment = os.environ | {"PYTHONPATH": str(Path(padfix.__file__).parents[1])}
    while "=" in words[0]:
        variable, _, value = words.pop(0).partition("=")
        environment[variable] = value
    assert words[0] in ("python", "pytest")
    program = [sys.executable, *(["-m", "pytest", *PLUGIN] if words[0] == "pytest" else []), *words[1:]]
    ended = subprocess.run(program, env=environment, check=False, timeout=300, capture_output=True, text=True)
    print(ended.stdout, ended.stderr)  # shown where the test fails
    return ended.returncode, ended.stdout.strip()


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    reasons = {
        block.where: block.note[1] for page in ORIGINALS for block in pages.blocks(page) if block.note[0] == "not run"
    }
    assert len(reasons) <= 8, reasons
    assert all(len(reason.split()) > 1 for reason in reasons.values())


def test_pages_that_are_known_are_there() -> None:
    assert {*NAMES, *FILES, *CHECKS} <= {pages.name(page) for page in CODE}


def test_exit_status_of_a_command_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block(DOCS / "index.md", 1, "sh", ("", ""), "")
    with pytest.raises(AssertionError, match=r"docs/index\.md:1: padfix verify --stock"):
        run_command("padfix verify --stock", block, monkeypatch)
    with pytest.raises(AssertionError, match="python -c"):
        run_command('python -c "raise SystemExit(3)"', block, monkeypatch)
    run_command('python -c "raise SystemExit(3)"  # exit status 3', block, monkeypatch)
    with pytest.raises(AssertionError, match="print"):
        run_command("python -c 'print(1)'  # prints 2", block, monkeypatch)
    run_command("python -c 'print(1)'  # prints 1", block, monkeypatch)
    run_command("# nothing", block, monkeypatch)


def test_error_that_a_block_promises_has_to_come() -> None:
    block = Block(DOCS / "index.md", 1, "python", ("raises", "RightPaddingError"), "x = 1\n")
    with pytest.raises(pytest.fail.Exception):
        run_python(block, {})


# Messages


def stock_warning() -> str:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers.generation.utils")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        model, tokenizer = embedded()
        model.generate(**tokenizer(PROMPTS, padding=True, return_tensors="pt"), max_new_tokens=1)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return said[0]


def no_pad_token() -> str:
    _, tokenizer = embedded()
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="pad") as raised:
        tokenizer(PROMPTS, padding=True)
    return str(raised.value)


def right_padding() -> str:
    model, tokenizer = embedded()
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    with padfix.override("strict"), pytest.raises(padfix.RightPaddingError) as raised:
        padfix.generate(model, **batch)
    return str(raised.value)


def ambiguous() -> str:
    model, tokenizer = embedded()
    tokenizer.pad_token = tokenizer.eos_token
    ids = tokenizer(PROMPTS, padding=True, return_tensors="pt")["input_ids"]
    with padfix.override("strict"), pytest.raises(padfix.AmbiguousPaddingError) as raised:
        padfix.generate(model, input_ids=ids, pad_token_id=tokenizer.eos_token_id)
    return str(raised.value)


MESSAGES: dict[str, Callable[[], str]] = {
    "stock warning": stock_warning,
    "no pad token": no_pad_token,
    "right padding": right_padding,
    "ambiguous": ambiguous,
}
QUOTED = [block for page in RUN for block in pages.blocks(page) if block.note[0] == "message"]


@pytest.mark.parametrize("block", QUOTED, ids=lambda block: block.where)
def test_message_that_is_quoted_is_the_real_one(block: Block) -> None:
    assert " ".join(block.code.split()) == MESSAGES[block.note[1]]()


def test_every_message_is_quoted_somewhere() -> None:
    assert {block.note[1] for block in QUOTED} == set(MESSAGES)


# The recipes of docs/integrations.md, and the files that run them.
RECIPES = {
    "The text-generation pipeline": "test_text_pipeline.py",
    "PEFT": "test_peft.py",
    "accelerate": "test_accelerate.py",
    "Streamers": "test_streaming.py",
    "TRL": "test_trl.py",
    "lm-evaluation-harness": "test_lm_eval.py",
    "LangChain": "test_langchain.py",
}


def test_every_recipe_is_run() -> None:
    assert recipes.CODE.keys() == {"", *RECIPES}
    assert sum(len(code.splitlines()) for code in recipes.CODE.values()) > 60
    for title, file in RECIPES.items():
        assert f'recipes.run("{title}"' in (Path(__file__).parent / file).read_text()
