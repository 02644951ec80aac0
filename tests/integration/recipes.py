"""The recipes of docs/integrations.md: the code under each heading, and what its prompts get alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import padfix
from padfix.demo.prompts import embedded_prompts

PAGE = "integrations.md"
TEXT = (Path(__file__).parents[2] / "docs" / PAGE).read_text()
# The title of a section, '' for what stands before the first; its code.
CODE = {
    title: "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    for title, text in re.findall(r"^(?:# .*|## (.*))$\n((?:(?!## ).*\n)*)", TEXT, re.M)
}
PROMPTS = list(embedded_prompts())
# Under this flag a short prompt's reply changes where pads are counted, whichever side they are on.
COUNTS_PADS: dict[str, Any] = {"min_length": 18}


def run(title: str, **names: Any) -> dict[str, Any]:
    """The names after the code of a section has run with these names; padfix is installed, as the page says."""
    names = {"prompts": PROMPTS, **names}
    for code in (CODE[""], CODE[title]):
        exec(compile(code, f"{PAGE}: {title}", "exec"), names)
    return names


def alone(
    model: Any, tokenizer: Any, prompts: Sequence[str] = PROMPTS, *, add_special_tokens: bool = True, **flags: Any
) -> list[str]:
    """The replies that the prompts get as batches of one from transformers as it is."""
    arguments = {"max_new_tokens": 12, "do_sample": False, **flags}
    replies = []
    for prompt in prompts:
        batch = tokenizer([prompt], add_special_tokens=add_special_tokens, return_tensors="pt")
        with padfix.suppressed():
            out = model.generate(**batch, **arguments)
        replies.append(tokenizer.decode(out[0, batch["input_ids"].shape[1] :], skip_special_tokens=True))
    return replies
