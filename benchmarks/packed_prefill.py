"""What a packed prefill costs, as a ratio of the left-padded one, and where padfix takes it.

A Llama of 6 layers and hidden size 256, random weights, float32; each call gives one new token, so that it is all
prefill. The two are timed in turn in one process; for each batch the median of the ratios of the pairs is printed, and
its interval (95 %, by order statistics). `packed` is the strategy by force, `auto` what padfix takes by itself. No
network::

    OMP_NUM_THREADS=1 python benchmarks/packed_prefill.py [--pairs 15] [--sweep] [--hidden 256]

With `--sweep` over batches, widths and shapes of raggedness, against padfix's own left padding; without it on one
batch, against the library's call of the batch that was left-padded by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import transformers
from common import ratio
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import padfix
from padfix.layout.rows import padded
from padfix.strategies.packed_prefill import fewest_saved, pays

VOCABULARY, PAD = 1000, 0
LENGTHS = (400, 60, 40, 35, 30, 28, 25, 22)


def llama(hidden: int) -> Any:
    """A Llama of 6 layers."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=4096,
            pad_token_id=PAD,
            eos_token_id=None,
        )
    ).eval()


def batch_of(lengths: Sequence[int]) -> dict[str, Tensor]:
    """Left-padded prompts of these lengths."""
    drawn = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, VOCABULARY, (length,), generator=drawn).tolist() for length in lengths]
    ids, mask = padded(rows, PAD, "left")
    return {"input_ids": ids, "attention_mask": mask}


def call(model: Any, batch: dict[str, Tensor], strategy: str | None) -> Callable[[], object]:
    """A call of `generate` that gives one new token; None for the library's own."""

    def run() -> object:
        context = padfix.suppressed() if strategy is None else padfix.override(strategy=strategy)
        with context:
            return model.generate(**batch, do_sample=False, max_new_tokens=1)

    return run


def shapes(rows: int, width: int) -> Iterator[tuple[str, list[int]]]:
    """Lengths of prompts of which the longest is `width`: a few kinds of raggedness."""
    yield "one long", [width, *[max(2, width // 10)] * (rows - 1)]
    yield "even spread", [max(2, width * (row + 1) // rows) for row in range(rows)]
    yield "halves", [width if row % 2 else max(2, width // 4) for row in range(rows)]
    yield "nearly even", [width - row % 3 for row in range(rows)]


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    model = llama(options.hidden)
    padfix.install("fix")
    print(
        f"transformers {transformers.__version__}, torch {torch.__version__}, {torch.get_num_threads()} thread(s), "
        f"hidden size {options.hidden}, {options.pairs} pairs"
    )
    if not options.sweep:
        batch = batch_of(LENGTHS)
        for strategy in ("packed_prefill", "auto"):
            found = ratio(call(model, batch, strategy), call(model, batch, None), options.pairs)
            print(f"{strategy:>14}: times the left-padded prefill {found}")
        return
    for rows in (2, 4, 8, 16, 32):
        for width in (16, 48, 128, 384):
            for name, lengths in shapes(rows, width):
                batch = batch_of(lengths)
                left = call(model, batch, "left_pad")
                both = [ratio(call(model, batch, one), left, options.pairs) for one in ("packed_prefill", "auto")]
                shown = "   ".join(map(str, both))
                takes = "packs" if pays(lengths, width, 1, least=fewest_saved("cpu")) else "-"
                print(f"{rows:3} x {width:3} {name:<12} packed, auto: {shown}  {takes}", flush=True)


if __name__ == "__main__":
    main()
