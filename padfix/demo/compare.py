"""The replies that prompts get alone and in a padded batch, with and without padfix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

import padfix

from ..layout.rows import Side, padded
from ..policy import named_positions
from ..prompts import Prompt, shown, token_ids
from ..special import end_ids, pad_token_id, until_end

Column = Literal["alone", "right_stock", "right_padfix", "left_by_hand"]
COLUMNS: tuple[Column, ...] = ("alone", "right_stock", "right_padfix", "left_by_hand")


@dataclass(frozen=True)
class Reply:
    """The new tokens of one row, to its first EOS inclusive, and their text without special tokens."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Comparison:
    """The replies of one batch of prompts, got in four ways; each column holds one reply a prompt."""

    prompts: tuple[str, ...]
    expected: tuple[str, ...] | None
    padded: bool
    """Whether the prompts differ in length, so that the batch has pads at all."""
    alone: tuple[Reply, ...]
    right_stock: tuple[Reply, ...]
    right_padfix: tuple[Reply, ...]
    left_by_hand: tuple[Reply, ...]

    def column(self, name: Column) -> tuple[Reply, ...]:
        """The replies of the column `name`."""
        replies: tuple[Reply, ...] = getattr(self, name)
        return replies

    def equal(self, name: Column) -> tuple[bool, ...]:
        """For each row, whether the column's token ids are those of the prompt alone."""
        return tuple(reply.ids == one.ids for reply, one in zip(self.column(name), self.alone, strict=True))

    def count(self, name: Column) -> int:
        """The number of right answers in the column, or of rows equal to `alone` where none are known."""
        if self.expected is None:
            return sum(self.equal(name))
        return sum(reply.text.strip() == answer for reply, answer in zip(self.column(name), self.expected, strict=True))


def compare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    expected: Sequence[str] | None = None,
) -> Comparison:
    """The greedy replies to `prompts`, each alone and all in one batch, padded on either side.

    `alone`, `right_stock` and `left_by_hand` come from transformers as it is, also where padfix is
    installed; `right_padfix` comes from `padfix.generate`, also where it is not. The batches are padded
    here, so nothing that is passed in changes, with the pad id that `BatchPolicy` would take.
    """
    if expected is not None and len(expected) != len(prompts):
        raise ValueError(f"{len(expected)} expected answers for {len(prompts)} prompts: pass one a prompt.")
    rows = token_ids(tokenizer, prompts)
    ends = end_ids(model, tokenizer)
    pad_id = pad_token_id(model, tokenizer)

    def replies(generate: Callable[..., Any], batch: Sequence[Sequence[int]], side: Side) -> tuple[Reply, ...]:
        ids, mask = padded(batch, pad_id, side)
        sequences = generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            pad_token_id=pad_id,
            max_new_tokens=max_new_tokens,
            do_sample=False,
        )
        return tuple(reply(tokenizer, new_tokens, ends) for new_tokens in sequences[:, ids.shape[1] :].tolist())

    def stock(**arguments: Any) -> Any:
        generate: Any = model.generate
        with padfix.suppressed():
            return generate(**arguments)

    def repaired(**arguments: Any) -> Any:
        with padfix.override("fix", strategy="auto", decoding="pad_aware"):  # whatever the environment says
            return padfix.generate(model, **arguments)

    with named_positions(model, max(map(len, rows)), max_new_tokens):
        columns: dict[str, tuple[Reply, ...]] = {
            "alone": tuple(replies(stock, [row], "right")[0] for row in rows),
            "right_stock": replies(stock, rows, "right"),
            "right_padfix": replies(repaired, rows, "right"),
            "left_by_hand": replies(stock, rows, "left"),
        }
    return Comparison(
        prompts=tuple(map(shown, prompts)),
        expected=None if expected is None else tuple(expected),
        padded=len({len(row) for row in rows}) > 1,
        **columns,
    )


def reply(tokenizer: PreTrainedTokenizerBase, new_tokens: Sequence[int], ends: Sequence[int]) -> Reply:
    """The reply among a row's new tokens, of which those after the first EOS are pads."""
    ids = tuple(until_end(new_tokens, ends))
    return Reply(ids=ids, text=str(tokenizer.decode(list(ids), skip_special_tokens=True)))
