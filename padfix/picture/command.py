"""The command `padfix show`: find the batch, draw it on the terminal and into a file."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..console import console
from ..demo.prompts import embedded_prompts
from ..errors import LoadingError, PromptError
from ..layout.rows import Side
from ..loading import EMBEDDED, tokenizer
from ..prompts import Prompt, read
from . import show
from .batch import of_prompts, read_file
from .picture import Picture

__all__ = ["main"]

WIDTH = 78  # of a file, in characters

# The fonts that rich would have a reader's browser fetch, and the address in its comment.
_FROM_ELSEWHERE = re.compile(r"\s*(@font-face \{.*?\}|<!--.*?-->)", re.S)


def main(
    given: Sequence[str],
    *,
    tokenizer_name: str | None = None,
    prompts: Path | None = None,
    side: Side | None = None,
    pad_token_id: int | None = None,
    eos_token_id: int | None = None,
    max_rows: int = 24,
    svg: Path | None = None,
    trust_remote_code: bool = False,
) -> int:
    """The exit status, 0.

    `given` is a JSON file that holds a batch, or prompts for the tokenizer, which `prompts` holds otherwise; without
    either, the prompts that come with padfix. Raises `PadfixError` for what the user can mend.
    """
    screen = console()
    is_file = len(given) == 1 and (given[0] == "-" or given[0].endswith(".json"))
    if given and prompts is not None:
        raise PromptError(f"There are prompts in {prompts}, and {given[0]!r} too. Pass one or the other.")
    if tokenizer_name is None and not is_file and (given or prompts is not None):
        raise PromptError(
            "Prompts need a tokenizer: pass --tokenizer PATH_OR_ID. A batch is a file that ends in .json."
        )
    if is_file and side is not None:
        raise PromptError(f"{given[0]} is padded already: --padding-side is for prompts.")
    batch: Any = read_file(Path(given[0])) if is_file else None
    named = None if is_file and tokenizer_name is None else tokenizer_name or str(EMBEDDED)
    words = None if named is None else tokenizer(named, trust_remote_code=trust_remote_code)
    if not is_file:
        asked: Sequence[Prompt] = read(prompts) if prompts is not None else list(given) or embedded_prompts()
        batch = of_prompts(words, list(asked), side)
    picture = show(batch, words, pad_token_id=pad_token_id, eos_token_id=eos_token_id, max_rows=max_rows)
    if svg is not None:
        _write(picture, svg)
    screen.print(picture)
    if svg is not None:
        print(f"Written to {svg}.", file=sys.stderr)
    return 0


def _write(picture: Picture, path: Path) -> None:
    from rich.console import Console

    paper = Console(record=True, file=io.StringIO(), width=WIDTH)
    paper.print(picture)
    drawn = _FROM_ELSEWHERE.sub("", paper.export_svg(title="padfix show"))
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise LoadingError(f"{path} cannot be written: {error.strerror}.") from error
