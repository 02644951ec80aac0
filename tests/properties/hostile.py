"""Calls of `generate` that are no sound ones, or only just: stock's own answer, an error of ours, or the right one.

A `Hostile` says what a call is like in words, so that a failing one can be replayed:

    is_stocks_or_right("llama", Hostile("right", "fix", (("mask", "strided"), ("eos_token_id", "[2, 61]"))))

The models compute in float64, so that tokens can be compared: nothing is a matter of rounding.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from facts import RELEASE
from hypothesis import strategies as st
from oracle import BOS, EOS, PAD, PADDERS, build
from stock import Outcome, assert_same, outcome, sequences, suppressed_outcome, unchanged
from torch import Tensor
from transformers import GenerationConfig

import padfix
from padfix import PadfixError, notices

from .rubbish import ARGUMENTS, BOTH, IDS, MASKS, VALUES

__all__ = ["MODELS", "Hostile", "arguments_of", "hostile_calls", "is_stocks_or_right"]

# As small as they get; "blenderbot" and the decoder of "bart" cannot be left-padded, "mistral" has a window.
MODELS: Mapping[str, dict[str, Any]] = {
    "llama": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    | {"num_key_value_heads": 1, "max_position_embeddings": 64},
    "mistral": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    | {"num_key_value_heads": 1, "max_position_embeddings": 64},
    "gpt2": {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 64},
    "blenderbot": {"d_model": 8, "decoder_ffn_dim": 8, "decoder_layers": 1, "decoder_attention_heads": 2},
    "bart": {"d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
    | {"encoder_attention_heads": 2, "decoder_attention_heads": 2},
}
ROWS = ((5, 17, 33, 8, 61), (11, 42, 7), (71, 13))
LAYOUTS = ("right", "left", "both", "holes", "none")
NEW = 2


@functools.cache
def model(name: str) -> Any:
    """A model of the table in float64; below 4.57 GPT-2 takes no pads in it."""
    made = build(name, **MODELS[name])
    return made if name == "gpt2" and RELEASE < (4, 57) else made.double()


@dataclass(frozen=True)
class Hostile:
    """One call.

    Attributes:
        layout: Where the pads are; `none`: three rows of one length.
        mode: The mode of padfix.
        changes: What is done to the call, in turn: a word for what is changed and one for what becomes of it.
        extra: Columns of pads beside the longest row's.
        passed: How the prompt is passed: `keyword`, `inputs`, `position`, `twice`.
    """

    layout: str
    mode: str
    changes: tuple[tuple[str, str], ...]
    extra: int = 0
    passed: str = "keyword"


# What transformers would not come to an end of.
ENDLESS = tuple((name, how) for name in ("max_new_tokens", "max_length") for how in ("inf", "NaN"))


def _changes() -> st.SearchStrategy[tuple[str, str]]:
    return st.one_of(
        st.tuples(st.just("mask"), st.sampled_from(sorted(MASKS))),
        st.tuples(st.just("ids"), st.sampled_from(sorted(IDS))),
        st.tuples(st.just("both"), st.sampled_from(BOTH)),
        st.tuples(st.sampled_from(ARGUMENTS), st.sampled_from(sorted(VALUES))).filter(lambda one: one not in ENDLESS),
    )


def hostile_calls(modes: Sequence[str]) -> st.SearchStrategy[Hostile]:
    """Calls with up to three changes in one of the modes."""
    return st.builds(
        Hostile,
        st.sampled_from(LAYOUTS),
        st.sampled_from(modes),
        st.lists(_changes(), min_size=1, max_size=3, unique_by=lambda one: one[0]).map(tuple),
        st.sampled_from((0, 0, 2, 13)),
        st.sampled_from(("keyword", "keyword", "keyword", "inputs", "position", "twice")),
    )


def arguments_of(name: str, case: Hostile) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by position and by name, made anew."""
    ids_name, mask_name = _names(name)
    rows = [row[:3] if case.layout == "none" else row for row in (*ROWS[:2], ROWS[0][::-1])]
    rows = rows if case.layout == "none" else [list(row) for row in ROWS]  # type: ignore
    rows = [[BOS, *row] if name == "bart" else row for row in rows]  # type: ignore
    batch = PADDERS["right" if case.layout == "none" else case.layout](rows, extra=case.extra)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    arguments: dict[str, Any] = {"do_sample": False, "max_new_tokens": NEW}
    if name == "bart":
        arguments |= {"input_ids": torch.tensor([[5, 17, 2], [33, 8, 2], [61, 24, 2]])}
    changed: dict[str, Any] = {}
    for what, how in case.changes:
        if what == "mask":
            changed[mask_name] = MASKS[how](mask)
        elif what == "ids":
            changed[ids_name] = IDS[how](ids)
        elif what == "both":
            change = {**MASKS, **IDS}[how]
            changed |= {ids_name: change(ids), mask_name: change(mask)}
        else:
            changed[what] = VALUES[how]()
    arguments = {ids_name: ids, mask_name: mask, **arguments, **changed}
    if name == "bart" or case.passed == "keyword":
        return (), arguments
    if case.passed == "inputs" and "inputs" not in arguments:
        return (), {"inputs" if key == ids_name else key: value for key, value in arguments.items()}
    prompt = arguments[ids_name] if case.passed == "twice" else arguments.pop(ids_name)
    return (prompt,), arguments


def _names(name: str) -> tuple[str, str]:
    return ("decoder_input_ids", "decoder_attention_mask") if name == "bart" else ("input_ids", "attention_mask")


def is_stocks_or_right(name: str, case: Hostile) -> None:
    """What comes of the call is what transformers makes of it, an error of ours, or what each prompt gets alone.

    Never a changed argument, never another exception than transformers' own; a wrong reply only where it is
    transformers' own and a warning says so.
    """
    runs = model(name)
    notices.forget()
    args, keywords = arguments_of(name, case)
    torch.manual_seed(0)
    stock = suppressed_outcome(lambda: runs.generate(*args, **keywords))
    args, keywords = arguments_of(name, case)
    named = {**{str(at): value for at, value in enumerate(args)}, **keywords}
    torch.manual_seed(0)
    with padfix.override(case.mode), unchanged(runs, _readable(named)):
        got = outcome(lambda: runs.generate(*args, **keywords))
    if isinstance(got.error, PadfixError):
        assert case.mode == "strict", f"{case.mode}: {got.error!r}"
        assert got.raised != stock.raised
        return
    if _draws(keywords) or any(one in POSITIONS for one in case.changes):
        return
    if _is_stocks(got, stock):
        if case.mode == "fix" and got.error is None:
            _is_right_or_refused(got, replies_alone(name, case), case, keywords)
        return
    assert case.mode != "warn", f"{got.error!r}, in stock {stock.error!r}"
    caches = OF_DECODERS if name == "bart" else FILLED
    if any(one in caches for one in case.changes):
        return  # nobody can say what stands in its columns; what comes of real ones is held by laws of their own
    alone = replies_alone(name, case)
    if got.error is not None and alone is not None and None in alone.replies:
        return  # a row without a token runs as its pads: under rubbish they may raise what no prompt does
    if alone is None and any(GUESSED in said for said in got.said):
        return
    assert alone is not None, f"neither stock's nor known: {got.error!r}, in stock {stock.error!r}, {got.said}"
    if got.error is not None or alone.raised:
        assert _told(got) in alone.raised, f"{got.error!r}, in stock {stock.error!r}, alone {alone.raised}"
    else:
        assert_right(got.output, alone.replies, keywords)


def _is_right_or_refused(got: Outcome, alone: Alone | None, case: Hostile, keywords: Mapping[str, Any]) -> None:
    """Fails where a padded call that each prompt alone is sound in is as wrong as in transformers, and nothing says so.

    A warning that arguments cannot be read does for no call but those with a length that is no number.
    """
    if alone is None or alone.raised:
        return
    if not any(how == "NaN" for _, how in case.changes):
        assert not any(UNREAD in said for said in got.said), f"{got.said}"
    if not got.said:
        assert_right(got.output, alone.replies, keywords)


# Positions that the prompts do not have alone, and those that GPT-2 looks up in whatever memory stands behind a tensor.
POSITIONS = (("position_ids", "zeros of 3 rows"), ("position_ids", "meta tensor"))
# Caches with as many rows as there are prompts, whose columns hold no tokens.
FILLED = (("past_key_values", "cache of 3 rows"), ("past_key_values", "cache of many columns"))
# A decoder that has an encoder puts the encoder's columns into such a cache as well.
OF_DECODERS = (*FILLED, ("past_key_values", "empty cache"))
# What padfix says of arguments that it does not understand.
UNREAD, GUESSED = "its arguments cannot be read", "was taken for padding"


def _draws(keywords: Mapping[str, Any]) -> bool:
    """Whether the call samples, or what is passed for the flag says neither yes nor no."""
    try:
        return bool(keywords["do_sample"])
    except (RuntimeError, TypeError, ValueError):
        return True


def _readable(named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments whose values can be looked at; transformers itself writes into whatever is passed as a cache."""
    return {key: value for key, value in named.items() if key != "past_key_values" and not _has_no_values(value)}


def _has_no_values(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_meta or value.is_sparse)


def _is_stocks(got: Outcome, stock: Outcome) -> bool:
    if got.error is not None or stock.error is not None:
        return _told(got) == _told(stock)
    try:
        assert_same(got.output, stock.output)
    except AssertionError:
        return False
    return True


def _told(one: Outcome) -> tuple[Any, str]:
    """The class of an exception, and its message without addresses, numbers of rows and columns, and whole tensors."""
    return type(one.error), re.sub(r"tensor\(.*|0x[0-9a-f]+|\d+", "0", str(one.error), flags=re.DOTALL)


@dataclass(frozen=True)
class Alone:
    """What the prompts of a call get alone.

    Attributes:
        replies: For each row its new tokens; None for a row without a token.
        raised: Where prompts alone are no sound calls either, what comes of each.
    """

    replies: tuple[list[int] | None, ...] = ()
    raised: frozenset[tuple[Any, str]] = frozenset()


def replies_alone(name: str, case: Hostile) -> Alone | None:
    """What each prompt of the call gets alone; None where nobody can say.

    That is so where the mask does not say which ids are real, or says that all are: such a call is transformers' own.
    """
    args, keywords = arguments_of(name, case)
    ids_name, mask_name = _names(name)
    if args:
        if ids_name in keywords:
            return None
        keywords[ids_name] = args[0]
    if keywords.get("inputs", 0) is None:
        del keywords["inputs"]
    if "inputs" in keywords and name != "bart":
        if keywords.get(ids_name) is not None:
            return None
        keywords[ids_name] = keywords.pop("inputs")
    ids, mask = keywords.pop(ids_name, None), keywords.pop(mask_name, None)
    mask = _implied(ids, keywords) if mask is None and name != "bart" else mask
    if not _are_readable(ids, mask) or bool((mask != 0).all()):  # type: ignore
        return None
    replies: list[list[int] | None] = []
    raised: set[tuple[Any, str]] = set()
    for row in range(len(ids)):
        prompt = ids[row][mask[row] != 0]  # type: ignore
        if not len(prompt):
            replies.append(None)
            continue
        others = tuple(one for one in case.changes if one[0] not in ("mask", "ids", "both"))
        one = _reply_alone(name, others, str(prompt.dtype), tuple(prompt.tolist()), row, *ids.shape)
        if isinstance(one, list):
            replies += one
        else:
            raised.add(one)
    return Alone(tuple(replies), frozenset(raised))


@functools.lru_cache(maxsize=4096)
def _reply_alone(
    name: str, others: tuple[tuple[str, str], ...], dtype: str, prompt: tuple[int, ...], row: int, rows: int, width: int
) -> list[list[int]] | tuple[Any, str]:
    """The new tokens of one prompt alone under these changes, for each returned sequence; or what it raises."""
    ids_name, mask_name = _names(name)
    ids = torch.tensor([prompt], dtype=getattr(torch, dtype.removeprefix("torch.")))
    own = _of_row(arguments_of(name, Hostile("right", "fix", others))[1], row, rows, width, len(prompt))
    own |= {ids_name: ids, mask_name: torch.ones(1, len(prompt), dtype=torch.long)}
    own.pop("inputs", None)
    one = suppressed_outcome(functools.partial(model(name).generate, **own))
    if one.error is not None:
        return _told(one)
    added = 0 if name != "bart" else int(sequences(one.output)[0, 0] != prompt[0])
    return [new[added + len(prompt) :] for new in sequences(one.output).tolist()]


def _implied(ids: Any, keywords: Mapping[str, Any]) -> Tensor | None:
    """The mask that ids imply by themselves, where the pad id is no EOS id."""
    config = keywords.get("generation_config")
    pad = keywords.get("pad_token_id")
    pad = getattr(config, "pad_token_id", PAD) if pad is None else pad
    if not isinstance(ids, Tensor) or _has_no_values(ids) or type(pad) is not int or pad in _ends(keywords):
        return None
    return (ids != pad).long()


def _are_readable(ids: Any, mask: Any) -> bool:
    tensors = all(isinstance(one, Tensor) and one.ndim == 2 and not _has_no_values(one) for one in (ids, mask))
    if not tensors or ids.shape != mask.shape or ids.is_floating_point() or ids.is_complex() or 0 in ids.shape:
        return False
    return ids.dtype != torch.bool and bool(((mask == 0) | (mask == 1)).all())


# What is the same for every row, whatever its shape.
WHOLE = frozenset(vars(GenerationConfig()))


def _of_row(keywords: dict[str, Any], row: int, rows: int, width: int, length: int) -> dict[str, Any]:
    """The arguments of one row's own call."""
    own: dict[str, Any] = {}
    for key, value in keywords.items():
        if key == "position_ids":
            continue
        has_rows = isinstance(value, Tensor) and value.ndim > 1 and value.shape[0] == rows
        if has_rows and key not in WHOLE:
            own[key] = value[row : row + 1]
        elif key == "max_length" and type(value) is int:
            own[key] = value - width + length
        else:
            own[key] = value
    return own


def assert_right(output: Any, alone: Sequence[list[int] | None], keywords: Mapping[str, Any]) -> None:
    """Fails unless each row begins with the reply that its prompt gets alone, up to its end."""
    ids = sequences(output)
    longest = max((len(one) for one in alone if one is not None), default=0)
    assert len(ids) == len(alone)
    ends = _ends(keywords)
    for row, reply in enumerate(alone):
        if reply is None:
            continue
        start = ids.shape[1] - longest
        end = next((at + 1 for at, token in enumerate(reply) if token in ends), len(reply))
        assert ids[row, start : start + end].tolist() == reply[:end], f"row {row}"


def _ends(keywords: Mapping[str, Any]) -> set[int]:
    asked = keywords.get("eos_token_id")
    config = keywords.get("generation_config")
    if asked is None:
        asked = getattr(config, "eos_token_id", EOS)
    listed = asked.flatten().tolist() if hasattr(asked, "tolist") else asked  # type: ignore
    several = listed if isinstance(listed, (list, tuple, set)) else [listed]
    return {one for one in several if isinstance(one, (int, float))}  # type: ignore
