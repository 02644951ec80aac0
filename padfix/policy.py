"""BatchPolicy: prompts to a padded batch with the arguments of `generate`, and what it gives back to replies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding

from . import notices
from .errors import PromptError
from .generation.lengths import position_limit
from .generation.traits import has_position_table, prompt_device
from .layout.rows import Side, padded
from .prompts import Prompt, token_ids
from .special import end_ids, pad_token_id, until_end

__all__ = ["BatchPolicy", "PreparedBatch", "check_order", "named_positions"]


class PreparedBatch(BatchEncoding):
    """`input_ids` and `attention_mask` of shape (batch, width), int64, on the model's device.

    Attributes:
        pad_token_id: The id in the cells of pads.
        end_token_ids: The ids at which replies end.
        cut: For each prompt the number of tokens that were cut off at its beginning.
        is_encoder_input: Whether the prompts are an encoder's, so that no output begins with them.
    """

    pad_token_id: int
    end_token_ids: tuple[int, ...]
    cut: tuple[int, ...]
    is_encoder_input: bool

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class BatchPolicy:
    """The one place that says how prompts become a batch and what `generate` gives becomes replies.

        policy = BatchPolicy()
        batch, arguments = policy.prepare(model, tokenizer, ["Hi!", "How many hours are there in a day?"])
        replies = policy.decode_replies(tokenizer, model.generate(**batch, **arguments), batch)

    It needs no installed padfix: a batch that it pads on the left is right in transformers as it is, for models and
    flags that left padding makes exact. With padfix installed either side is, and the other flags are too.

    Attributes:
        padding_side: Where the pads go, `left` or `right`. An encoder's input is padded on the right in any case.
        pad_is_eos: Whether EOS may stand in for a pad token where nothing else can. The mask tells them apart.
    """

    padding_side: Side = "left"
    pad_is_eos: bool = True

    def __post_init__(self) -> None:
        if self.padding_side not in ("left", "right"):
            raise ValueError(f"padding_side is {self.padding_side!r}. Use 'left' or 'right'.")

    def prepare(
        self, model: Any, tokenizer: Any, prompts: Prompt | Sequence[Prompt], max_new_tokens: int = 64
    ) -> tuple[PreparedBatch, dict[str, Any]]:
        """The batch of the prompts and the arguments to pass with it: `model.generate(**batch, **arguments)`.

        Strings get the tokenizer's special tokens; chats (lists of messages) go through the chat template, with the
        opening of the reply and without a second BOS. The pad token is the tokenizer's, else the generation config's,
        else one that the vocabulary reserves for it, else EOS where `pad_is_eos`. A prompt that is too long keeps its
        BOS and its end, so that `max_new_tokens` more fit into the model's positions, and a warning says so. Model and
        tokenizer are left as they are.

        Args:
            model: A decoder-only or encoder-decoder model of transformers.
            tokenizer: Its tokenizer.
            prompts: Strings or chats; a single one is a batch of one.
            max_new_tokens: The largest number of new tokens of a reply.

        Raises:
            MissingPadTokenError: Nothing can stand in the cells of pads.
            PromptError: There are no prompts, one has no tokens, a chat has no template, or the model's table of
                positions has no room for a prompt and the new tokens.
            ValueError: max_new_tokens is not 1 or more.
            TypeError: Model and tokenizer are something else, or in the other order.
        """
        if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens!r}. Pass a whole number, 1 or more.")
        check_order(model, tokenizer)
        rows = token_ids(tokenizer, prompts)
        encodes = bool(getattr(model.config, "is_encoder_decoder", False))
        limit = _longest_prompt(model, tokenizer, 0 if encodes else max_new_tokens)
        kept = [_end_of(row, limit, tokenizer.bos_token_id) for row in rows]
        cut = tuple(len(row) - len(rest) for row, rest in zip(rows, kept, strict=True))
        if any(cut):
            notices.warn(_cut_off(rows, cut, limit, max_new_tokens))
        pad = pad_token_id(model, tokenizer, pad_is_eos=self.pad_is_eos)
        ids, mask = padded(kept, pad, "right" if encodes else self.padding_side)
        device = prompt_device(model)
        batch = PreparedBatch({"input_ids": ids.to(device), "attention_mask": mask.to(device)})
        batch.pad_token_id, batch.end_token_ids, batch.cut = pad, end_ids(model, tokenizer), cut
        batch.is_encoder_input = encodes
        return batch, {"max_new_tokens": max_new_tokens, "pad_token_id": pad}

    def decode_replies(self, tokenizer: Any, generated: Any, batch: Mapping[str, Any]) -> list[str]:
        """The text of every returned row's reply, without the prompt, special tokens, and what comes after its end.

        Right for batches padded on any side, for beams and several returned sequences (as many replies as rows came
        back, those of a prompt in turn), and where pad and EOS share an id. Replies begin where the prompt's columns
        end, which is one column for all rows: the widely used `ids[attention_mask.sum():]` is wrong in a left-padded
        batch, where it leaks the end of the prompt. What does not begin with the batch's `input_ids` (a call with
        `inputs_embeds`, an encoder-decoder model, columns that were cut already) is all reply.

        Args:
            tokenizer: The tokenizer that made the batch.
            generated: What `generate` gave: ids of shape (batch * k, columns), or a `ModelOutput` with `sequences`.
            batch: What `generate` got: from `prepare`, from the tokenizer, or a dict of yours.

        Raises:
            ValueError: `generated` is not the output for this batch.
            TypeError: The arguments are something else, or in another order.
        """
        if not isinstance(batch, Mapping) or not _is_tokenizer(tokenizer):
            raise TypeError(
                f"tokenizer is a {type(tokenizer).__name__} and batch a {type(batch).__name__}. Pass the tokenizer, "
                "what generate gave, and the batch with its input_ids, in this order."
            )
        sequences = _sequences(generated)
        ends = {*getattr(batch, "end_token_ids", ())}
        ends |= set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
        replies = sequences[:, _prompt_columns(sequences, batch, ends) :].tolist()
        return [str(tokenizer.decode(until_end(reply, ends), skip_special_tokens=True)) for reply in replies]


def _is_tokenizer(value: Any) -> bool:
    return callable(getattr(value, "decode", None)) and hasattr(value, "eos_token_id")


def check_order(model: Any, tokenizer: Any) -> None:
    """Raises `TypeError` for what is no model and its tokenizer, in this order."""
    if not callable(getattr(model, "generate", None)) or not _is_tokenizer(tokenizer):
        raise TypeError(
            f"model is a {type(model).__name__} and tokenizer a {type(tokenizer).__name__}. Pass a model that "
            "generates and its tokenizer, in this order."
        )


@contextmanager
def named_positions(model: Any, longest: int, new_tokens: int) -> Iterator[None]:
    """A block in which running out of a model's table of positions is a `PromptError` that says so."""
    try:
        yield
    except IndexError as error:
        limit = position_limit(model)
        if limit is None or longest + new_tokens <= limit:
            raise
        raise PromptError(
            f"The longest prompt has {longest} tokens: with {new_tokens} new ones it does not fit into the {limit} "
            f"positions of {type(model).__name__}. Shorten it, or lower max_new_tokens."
        ) from error


def _longest_prompt(model: Any, tokenizer: Any, new_tokens: int) -> int | None:
    """The number of tokens that a prompt may have; None where nothing limits it.

    Room for the new tokens is kept where the model has more positions than that.
    """
    positions, own = position_limit(model), getattr(tokenizer, "model_max_length", None)
    if positions is not None and positions <= new_tokens and has_position_table(model):
        raise PromptError(
            f"max_new_tokens={new_tokens} leaves no room for a prompt in the {positions} positions of "
            f"{type(model).__name__}. Lower it."
        )
    limits = [] if positions is None else [positions - new_tokens if positions > new_tokens else positions]
    limits += [own] if isinstance(own, int) and 0 < own < 10**9 else []  # unset, it is 10**30
    return min(limits, default=None)


def _end_of(row: list[int], limit: int | None, bos: int | None) -> list[int]:
    """The last tokens of a row, after its BOS where it has one."""
    if limit is None or len(row) <= limit:
        return row
    begins = row[:1] if row[0] == bos and limit > 1 else []
    return begins + row[len(row) - limit + len(begins) :]


def _cut_off(rows: Sequence[Sequence[int]], cut: Sequence[int], limit: int | None, new_tokens: int) -> str:
    numbers = [number for number, tokens in enumerate(cut) if tokens]
    named = ", ".join(f"prompt {number} ({len(rows[number])} tokens)" for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return (
        f"Cut off the beginning of {named}{more}: with max_new_tokens={new_tokens} there is room for "
        f"{limit} {'token' if limit == 1 else 'tokens'}. "
        "Shorten the prompts."
    )


def _sequences(generated: Any) -> Tensor:
    sequences = getattr(generated, "sequences", generated)
    try:
        sequences = torch.as_tensor(sequences)
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"generated is a {type(generated).__name__}. Pass what generate gave.") from error
    if sequences.is_meta:
        raise ValueError("generated is on the device meta, without values. Pass what generate gave.")
    if sequences.ndim != 2:
        raise ValueError(f"generated has shape {tuple(sequences.shape)}. Pass what generate gave: (rows, columns).")
    return sequences


def _prompt_columns(sequences: Tensor, batch: Mapping[str, Any], ends: Collection[int]) -> int:
    """The number of columns before the replies: the prompt's where the sequences begin with it, else none.

    A decoder's start token that is EOS (BART) ends no reply; where every row ends at once there is one column.
    """
    encodes = getattr(batch, "is_encoder_input", False) or "decoder_input_ids" in batch
    prompt = batch.get("decoder_input_ids", None if encodes else batch.get("input_ids"))
    starts = sequences.shape[1] > 1 and all(token in ends for token in sequences[:, 0].tolist())
    if prompt is None:
        return int(starts)
    prompt = torch.as_tensor(prompt, device=sequences.device)
    rows, width = prompt.shape
    if rows == 0 or sequences.shape[0] % rows:
        raise ValueError(f"generated has {sequences.shape[0]} rows, which are no multiple of the batch's {rows}.")
    copies = prompt.repeat_interleave(sequences.shape[0] // rows, 0)
    for before in (0, 1) if encodes else (0,):  # a start token that generate put before the decoder's prompt
        if sequences.shape[1] < before + width:
            continue
        begins = (sequences[:, before : before + width] == copies).all(1)
        if bool(begins.all()):
            return before + int(width)
        if bool(begins.any()):
            raise ValueError("Some rows of generated begin with the batch's input_ids and some do not: not one call's.")
    return int(starts)
