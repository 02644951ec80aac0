"""A batch of chats, held turn by turn, and the same chats held alone: the oracle of what caches give.

    chat = Chat(build("llama"), prompts=3)
    chat.turn([[5, 6], [7], [8, 9]], right_padded)

`turn` fails, naming the row, where a row's new tokens or logits are not what the chat held alone gets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from oracle import EOS, alone, assert_close, build
from torch import Tensor

import padfix
from padfix.generation.outputs import cache_fields

__all__ = ["THREE", "Chat", "cache_name", "cache_of", "real_after_end", "takes_new_tokens_alone"]

THREE: dict[str, Any] = {"do_sample": False, "max_new_tokens": 3, "min_new_tokens": 3}


def cache_of(output: Any) -> Any:
    """The cache in an output; None where there is none."""
    return next((getattr(output, name) for name in cache_fields(output)), None)


@functools.cache
def cache_name() -> str:
    """The argument that takes a cache in this release."""
    model = build("llama")
    output = model.generate(torch.tensor([[5, 6, 7]]), **THREE, return_dict_in_generate=True)
    return cache_fields(output)[0]


@functools.cache
def takes_new_tokens_alone() -> bool:
    """Whether `generate` of this release goes on from a cache with the new tokens alone beside the whole mask."""
    model = build("llama")
    with padfix.suppressed():
        turn = model.generate(torch.tensor([[5, 6, 7]]), **THREE, return_dict_in_generate=True)
        new = {"input_ids": turn.sequences[:, -1:], "attention_mask": torch.ones(1, 6).long()}
        try:
            model.generate(**new, **{cache_name(): cache_of(turn)}, **THREE)
        except (IndexError, RuntimeError, ValueError):
            return False
    return True


def real_after_end(new: Tensor) -> Tensor:
    """The mask over new tokens: 1 up to the first EOS inclusive."""
    ended = (new == EOS).int().cumsum(1)
    return ((ended - (new == EOS).int()) == 0).long()


class Chat:
    """A batch of chats, and the same chats held alone."""

    def __init__(self, model: Any, *, rows: int = 3, **arguments: Any) -> None:
        self.model, self.arguments = model, THREE | arguments
        self.ids = self.mask = torch.zeros(rows, 0, dtype=torch.long)
        self.rows: list[list[int]] = [[] for _ in range(rows)]
        self.cache: Any = None
        self.shown = 0  # columns that the cache may hold

    def turn(
        self,
        texts: Sequence[Sequence[int]],
        padder: Callable[..., dict[str, Tensor]],
        *,
        only_new: bool = False,
        cached: bool = True,
        retokenized: bool = False,
    ) -> Any:
        """One turn of the batch; its replies are checked against those of the chats held alone.

        Args:
            texts: What is said to each row.
            padder: Pads the new tokens; with `retokenized` the whole of each chat.
            only_new: Whether the call brings the new tokens alone.
            cached: Whether it brings the cache of the turn before.
            retokenized: Whether each row is one run of tokens again, whatever columns the turn before had.
        """
        self.rows = [[*row, *text] for row, text in zip(self.rows, texts, strict=True)]
        new = padder(self.rows if retokenized else texts)
        if retokenized:
            self.ids = self.mask = torch.zeros(len(texts), 0, dtype=torch.long)
        self.ids, self.mask = (
            torch.cat(pair, 1) for pair in ((self.ids, new["input_ids"]), (self.mask, new["attention_mask"]))
        )
        batch: dict[str, Any] = {"input_ids": self.ids, "attention_mask": self.mask}
        if self.cache is not None and cached:
            batch[cache_name()] = self.cache
            if only_new:
                batch["input_ids"] = self.ids[:, self.shown :]
        expected = alone(self.model, self.rows, distinct=False, **self.arguments)
        width = batch["input_ids"].shape[1]
        output = self.model.generate(
            **batch, **self.arguments, return_dict_in_generate=True, output_logits=True, output_scores=True
        )
        for row, want in enumerate(expected):
            got = output.sequences[row, width:].tolist()
            assert got[: len(want.tokens)] == want.tokens, f"row {row}: {want.tokens} alone, {got} in the batch"
            for name in ("logits", "scores"):
                steps = torch.stack([step[row] for step in getattr(output, name)])[: len(want.tokens)]
                assert_close(steps, getattr(want, name), what=f"row {row}: {name}")
        assert torch.equal(output.sequences[:, :width], batch["input_ids"])
        reply = output.sequences[:, width:]
        self.ids, self.mask = torch.cat((self.ids, reply), 1), torch.cat((self.mask, real_after_end(reply)), 1)
        self.rows = [row + want.tokens for row, want in zip(self.rows, expected, strict=True)]
        self.cache = cache_of(output)
        self.shown = self.ids.shape[1] - 1
        return output
