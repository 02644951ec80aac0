"""The command `padfix demo`: load a model, compare its replies, print table and verdict."""

from __future__ import annotations

from pathlib import Path

import transformers

from ..console import console
from ..loading import embedded, load, quiet
from ..prompts import read
from . import prompts as prompt_sets
from . import table, task
from .compare import compare


def main(model: str | None, prompts: Path | None, max_new_tokens: int) -> int:
    """The exit status of the demo: 0 where every padfix reply is the one that the prompt gets alone, else 1.

    `model` is a folder or a hub id of a causal LM, None for the embedded one; `prompts` is a UTF-8 file
    with one prompt a line, None for the prompts that come with padfix. Raises `PadfixError` for what the
    user can mend: no such path, no prompts, a model that cannot be loaded or that has an encoder, no rich.
    """
    screen = console()
    expected: tuple[str, ...] | None = None
    if prompts is not None:
        asked = read(prompts)
    elif model is not None:
        asked = prompt_sets.SENTENCES
    else:
        asked = prompt_sets.embedded_prompts()
        expected = tuple(map(task.answer, prompt_sets.WORDS))

    causal_lm, tokenizer = embedded() if model is None else load(model)
    with quiet():
        comparison = compare(causal_lm, tokenizer, asked, max_new_tokens=max_new_tokens, expected=expected)
    name = "the embedded model" if model is None else model
    title = f"{name}, {len(asked)} prompts in one batch, transformers {transformers.__version__}"
    screen.print(table.table(comparison, title=title, width=screen.width))
    screen.print(table.verdict(comparison), style="bold", highlight=False, markup=False, soft_wrap=True)
    return 0 if all(comparison.equal("right_padfix")) else 1
