"""BatchPolicy: prompts to a padded batch with the arguments of `generate`, and what it gives back to replies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding

from . import notices
from .errors import MissingPadTokenError
from .generation.compat import eos_ids, vocabulary_size
from .generation.lengths import position_limit
from .layout.rows import Side, padded
from .prompts import Prompt, token_ids

__all__ = ["RESERVED_PAD_TOKENS", "BatchPolicy", "PreparedBatch", "end_ids", "pad_choice", "pad_token_id", "until_end"]

# Tokens that vocabularies keep for padding without naming them as the pad token (Llama 3.1, many, BERT-like, Phi).
RESERVED_PAD_TOKENS = ("<|finetune_right_pad_id|>", "<pad>", "[PAD]", "<|pad|>")


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
            PromptError: There are no prompts, one has no tokens, or a chat has no template.
            ValueError: max_new_tokens is not 1 or more.
        """
        if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens!r}. Pass a whole number, 1 or more.")
        rows = token_ids(tokenizer, prompts)
        encodes = bool(getattr(model.config, "is_encoder_decoder", False))
        limit = _longest_prompt(model, tokenizer, 0 if encodes else max_new_tokens)
        kept = [_end_of(row, limit, tokenizer.bos_token_id) for row in rows]
        cut = tuple(len(row) - len(rest) for row, rest in zip(rows, kept, strict=True))
        if any(cut):
            notices.warn(_cut_off(rows, cut, limit, max_new_tokens))
        pad = pad_token_id(model, tokenizer, pad_is_eos=self.pad_is_eos)
        ids, mask = padded(kept, pad, "right" if encodes else self.padding_side)
        batch = PreparedBatch({"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)})
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
        """
        sequences = _sequences(generated)
        ends = {*getattr(batch, "end_token_ids", ())}
        ends |= set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
        replies = sequences[:, _prompt_columns(sequences, batch, ends) :].tolist()
        return [str(tokenizer.decode(until_end(reply, ends), skip_special_tokens=True)) for reply in replies]


def pad_choice(model: Any, tokenizer: Any, *, pad_is_eos: bool = True) -> tuple[int | None, str]:
    """The id to pad with, or None, and the better candidates for which the embedding has no row, a phrase for all.

    Without a model the embedding is taken to have a row for every id.
    """
    size = None if model is None else vocabulary_size(model)
    outside: list[str] = []
    for source, pad in _pad_candidates(model, tokenizer, pad_is_eos=pad_is_eos):
        if pad >= 0 and (size is None or pad < size):
            return pad, _outside(outside, size)
        outside.append(f"{source} is {pad}")
    return None, _outside(outside, size)


def pad_token_id(model: Any, tokenizer: Any, *, pad_is_eos: bool = True) -> int:
    """The id to pad with; a warning names better candidates that could not be taken.

    Raises:
        MissingPadTokenError: There is none.
    """
    pad, outside = pad_choice(model, tokenizer, pad_is_eos=pad_is_eos)
    if pad is None:
        seen = f" ({outside})" if outside else ""
        raise MissingPadTokenError(
            f"{type(model).__name__} and its tokenizer have no token to pad a batch with{seen}. Set "
            "tokenizer.pad_token to a token of the vocabulary, or let EOS stand in for it (pad_is_eos=True)."
        )
    if outside:
        message = f"{outside}. The pads are {pad} instead."
        notices.warn_once(message, message)
    return pad


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The ids at which replies end: those at which `generate` stops, else the tokenizer's EOS, if any."""
    config = getattr(model, "generation_config", None)
    ends = () if config is None else eos_ids(config)
    return ends or (() if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),))


def until_end(new_tokens: Sequence[int], ends: Collection[int]) -> list[int]:
    """The new tokens up to their first EOS inclusive.

    >>> until_end([5, 6, 2, 0, 0], ends={2})
    [5, 6, 2]
    """
    length = next((step + 1 for step, token in enumerate(new_tokens) if token in ends), len(new_tokens))
    return list(new_tokens[:length])


def _outside(candidates: Sequence[str], size: int | None) -> str:
    return f"{'; '.join(candidates)}: the embedding has {size} rows" if candidates else ""


def _pad_candidates(model: Any, tokenizer: Any, *, pad_is_eos: bool) -> Iterator[tuple[str, int]]:
    """Where a pad id could come from, the best first."""
    if tokenizer.pad_token_id is not None:
        yield "tokenizer.pad_token_id", int(tokenizer.pad_token_id)
    config = getattr(model, "generation_config", None)
    if config is not None and config.pad_token_id is not None:
        yield "generation_config.pad_token_id", int(config.pad_token_id)
    for token in RESERVED_PAD_TOKENS:
        pad = tokenizer.convert_tokens_to_ids(token)
        if pad is not None and tokenizer.convert_ids_to_tokens(pad) == token:
            yield f"the reserved token {token}", int(pad)
    if pad_is_eos:
        if tokenizer.eos_token_id is not None:
            yield "tokenizer.eos_token_id", int(tokenizer.eos_token_id)
        for end in () if config is None else eos_ids(config):
            yield "generation_config.eos_token_id", int(end)


def _longest_prompt(model: Any, tokenizer: Any, new_tokens: int) -> int | None:
    """The number of tokens that a prompt may have; None where nothing limits it.

    Room for the new tokens is kept where the model has more positions than that.
    """
    positions, own = position_limit(model), getattr(tokenizer, "model_max_length", None)
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
        f"Cut off the beginning of {named}{more}: with max_new_tokens={new_tokens} there is room for {limit} tokens. "
        "Shorten the prompts."
    )


def _sequences(generated: Any) -> Tensor:
    sequences = getattr(generated, "sequences", generated)
    if not isinstance(sequences, Tensor):
        sequences = torch.as_tensor(sequences)
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
