"""A Llama with random weights, batches for it, and calls of `generate` in stock and with padfix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import padfix
from padfix.layout.rows import Side, padded

__all__ = ["PAD", "batch", "call", "llama", "prompts"]

VOCABULARY, PAD = 1000, 0


def llama(*, hidden: int = 256, layers: int = 6, heads: int = 8, vocabulary: int = VOCABULARY) -> Any:
    """A Llama in float32 that never ends a reply by itself."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=4096,
            pad_token_id=PAD,
            eos_token_id=None,
        )
    ).eval()


def prompts(lengths: Sequence[int], *, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Random prompts of these lengths, the same ones in every run."""
    drawn = torch.Generator().manual_seed(1)
    return [torch.randint(1, vocabulary, (length,), generator=drawn).tolist() for length in lengths]


def batch(rows: Sequence[Sequence[int]], side: Side, *, pad_id: int = PAD, extra: int = 0) -> dict[str, torch.Tensor]:
    """The rows padded on one side, with `extra` columns of pads beyond the longest."""
    ids, mask = padded(rows, pad_id, side, extra=extra)
    return {"input_ids": ids, "attention_mask": mask}


def call(
    model: Any, given: dict[str, torch.Tensor], new: int, strategy: str | None, **more: Any
) -> Callable[[], torch.Tensor]:
    """A greedy call that gives `new` tokens, with padfix installed; without a strategy it is the library's own."""

    def run() -> torch.Tensor:
        with padfix.suppressed() if strategy is None else padfix.override(strategy=strategy):
            output: torch.Tensor = model.generate(**given, do_sample=False, max_new_tokens=new, **more)
        assert output.shape == (len(given["input_ids"]), given["input_ids"].shape[1] + new)
        return output

    return run
