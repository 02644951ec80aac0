"""The special tokens of a batch: the one that pads it, and those at which replies end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from . import notices
from .errors import MissingPadTokenError
from .generation.compat import eos_ids, vocabulary_size

__all__ = ["RESERVED_PAD_TOKENS", "end_ids", "pad_choice", "pad_token_id", "until_end"]

# Tokens that vocabularies keep for padding without naming them as the pad token (Llama 3.1, many, BERT-like, Phi).
RESERVED_PAD_TOKENS = ("<|finetune_right_pad_id|>", "<pad>", "[PAD]", "<|pad|>")


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
