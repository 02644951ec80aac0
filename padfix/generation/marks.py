"""What padfix remembers on a cache: the tokens that its columns hold.

Nothing in a cache tells its tokens, and a chat that is tokenized anew each turn has them in other columns by then. What
is remembered counts only where the keys of the first layer are still those that were there: so it follows rows that
are copied, put in another order or left out, and is forgotten with columns that are cut off or overwritten.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import GenerateCall
from .columns import columns_of, first_keys
from .compat import CACHE_NAMES, eos_ids, resolved_config
from .outputs import cache_fields

__all__ = ["MARK", "contradiction", "remember", "tokens_of"]

# A dict of tensors, so that a pickled cache does not need padfix: `tokens`, Int64 of shape (rows, columns), and `keys`,
# one number of the first layer's keys for each of the last k columns, of shape (rows, k).
MARK = "_padfix_tokens"
# In the place of a token: a pad; a token that is not known, such as one that was passed as its embedding. A token that
# follows the end of its row, which only the mask can tell for content or padding, is remembered as ENDED minus its id.
PAD, UNKNOWN, ENDED = -1, -2, -3


def remember(output: Any, call: GenerateCall, real: Tensor | None = None, past: Tensor | None = None) -> None:
    """Remembers on each cache that the caller can see, passed in or in the output, which tokens it holds.

    Args:
        output: What the call gave, in the caller's layout.
        call: The call, in the caller's layout.
        real: The mask of the prompt, of shape (batch, width); None where all of it is real.
        past: The mask over the cached columns, where the prompt is the new tokens alone.
    """
    if isinstance(output, Tensor) and all(call.get(name) is None for name in CACHE_NAMES):
        return
    caches = [call.get(name) for name in CACHE_NAMES] + [getattr(output, name) for name in cache_fields(output)]
    seen = {id(cache): cache for cache in caches if _bearer(cache) is not None}
    if not seen or call.is_decoder_prompt:
        return
    sequences = output if isinstance(output, Tensor) else getattr(output, "sequences", None)
    if not isinstance(sequences, Tensor) or sequences.ndim != 2 or (call.ids is not None and call.ids.ndim != 2):
        return
    if real is not None and real.shape != (call.batch, call.width):  # a mask that transformers took for something else
        return
    prompt, reply = _prompt(call, real, past), _reply(call, sequences)
    for cache in seen.values():
        columns, keys = columns_of(cache), _some_keys(cache)
        if keys is None or len(keys) % len(prompt) or columns != prompt.shape[1] + reply.shape[1] - 1:
            continue
        held = tokens_of(cache)
        tokens = prompt.repeat_interleave(len(keys) // len(prompt), 0)
        known = reply if len(reply) == len(tokens) else reply.new_full((len(tokens), reply.shape[1]), UNKNOWN)
        tokens = torch.cat((tokens, known), 1)[:, :columns]
        if held is not None:  # the prompt may say otherwise, but the model has not seen that
            tokens[:, : held.shape[1]] = torch.where(held == UNKNOWN, tokens[:, : held.shape[1]], held)
        setattr(_bearer(cache), MARK, {"tokens": tokens, "keys": keys.clone()})


def tokens_of(cache: Any) -> Tensor | None:
    """The tokens in the first columns of a cache, Int64 on the CPU, of shape (rows, columns), or None.

    For PAD, UNKNOWN and ENDED see there; a row whose keys are not known again is UNKNOWN throughout.
    """
    mark = getattr(_bearer(cache), MARK, None)
    now = _some_keys(cache) if mark is not None else None
    if mark is None or now is None:
        return None
    tokens: Tensor = mark["tokens"]
    then: Tensor = mark["keys"]
    columns = columns_of(cache)
    kept = min(columns, tokens.shape[1])  # columns may have been cut off, or have come
    first = max(columns - now.shape[1], tokens.shape[1] - then.shape[1])  # a window holds the last ones alone
    if kept <= first or now.dtype != then.dtype:
        return None
    now, then = (
        keys[:, first - (total - keys.shape[1]) : kept - (total - keys.shape[1])].cpu()
        for keys, total in ((now, columns), (then, tokens.shape[1]))
    )
    if now.shape == then.shape and torch.equal(now, then):
        return tokens[:, :kept]
    found = [(then == row).all(1).nonzero()[:1, 0].tolist() for row in now]
    unknown = tokens.new_full((kept,), UNKNOWN)
    return torch.stack([tokens[row[0], :kept] if row else unknown for row in found])


def contradiction(cache: Any, columns: int, real: Tensor, ids: Tensor | None, *, padded: bool) -> str | None:
    """In which way a call says something else about cached columns than what they hold, as far as it is remembered.

    Args:
        cache: The cache.
        columns: The number of columns that it holds.
        real: The mask over the sequences, of shape (batch, width), `columns` or more.
        ids: Their ids, of the same shape; None where the call brings the new tokens alone.
        padded: Whether the call has pads. Where it has none, only what follows the end of a row counts: other tokens
            than those in a cache of prompts of one length are the caller's business, for a prompt alone too.
    """
    known = tokens_of(cache)
    if known is None or len(known) != len(real):
        return None
    kept = min(known.shape[1], columns)
    known, real = known[:, :kept], real[:, :kept].cpu()
    if bool((real & (known == PAD)).any()):
        return "the mask takes for tokens what were pads when it was filled"
    if ids is None:
        return None
    ended = known <= ENDED
    other = (
        real & (known != UNKNOWN) & (known != PAD) & (torch.where(ended, ENDED - known, known) != ids[:, :kept].cpu())
    )
    return "it holds other tokens than those in its columns" if bool((other & (ended | padded)).any()) else None


def _bearer(cache: Any) -> Any:
    """What holds the mark of a cache: the cache, or the first tensor of the nested tuples of old releases."""
    if isinstance(cache, tuple):
        return cache[0][0] if columns_of(cache) else None
    return cache if hasattr(cache, "__dict__") else None


def _some_keys(cache: Any) -> Tensor | None:
    """One number of the first layer's keys for each row and column, as far as the columns are there."""
    keys = first_keys(cache)
    return None if keys is None else keys[:, 0, : columns_of(cache), 0]  # a static one has room for more


def _prompt(call: GenerateCall, real: Tensor | None, past: Tensor | None) -> Tensor:
    """The tokens of the prompt, after those of the cached columns where they are not among them."""
    shape = (call.batch, call.width)
    tokens = torch.full(shape, UNKNOWN) if call.ids is None else call.ids.long().cpu()
    masked = tokens if real is None else tokens.masked_fill(~real.cpu(), PAD)
    return masked if past is None else torch.cat((torch.where(past.cpu(), UNKNOWN, PAD), masked), 1)


def _reply(call: GenerateCall, sequences: Tensor) -> Tensor:
    """The new tokens of each row; UNKNOWN where rows of a cache are beams, whose order differs."""
    new = sequences[:, 0 if call.ids is None else call.width :].cpu()
    config = resolved_config(call)
    if config is None or int(config.num_beams or 1) > 1:
        return torch.full_like(new, UNKNOWN)
    is_end = torch.isin(new, torch.tensor(eos_ids(config))).int()
    return torch.where(is_end.cumsum(1) > is_end, ENDED - new, new)
