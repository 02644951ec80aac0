"""The public face: a batch against each of its prompts alone, with a verdict on every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers

import padfix

from ..console import Step
from ..generation.compat import eos_ids
from ..layout.rows import Side
from ..policy import check_order, named_positions
from ..prompts import Prompt, as_list, shown, token_ids
from ..special import pad_token_id
from .compare import Difference
from .report import EquivalenceReport, RowReport, judged
from .trial import PADFIX, ROOM, STOCK, Trial

__all__ = ["compared", "verify"]

# Columns of pads where all prompts have one length.
EXTRA = 4
# Arguments that are not the caller's to set here.
OURS = frozenset(
    {
        "attention_mask",
        "input_ids",
        "inputs",
        "inputs_embeds",
        "max_length",
        "output_logits",
        "output_scores",
        "past_key_values",
        "return_dict_in_generate",
        "streamer",
    }
)


def verify(
    model: Any,
    tokenizer: Any,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 32,
    stock: bool = False,
    progress: Step | None = None,
    **generate_kwargs: Any,
) -> EquivalenceReport:
    """What the prompts get in one right-padded batch against what each gets alone, with a verdict on every row.

    Each prompt runs alone and unpadded in transformers as it is, then all in one batch, through padfix or, with
    `stock`, without it. Where prompts have one length, the batch gets a few columns of pads. What is not equal is held
    against the noise: the same prompt in unpadded batches of copies of itself; and run again in a wider dtype (a copy
    of the model: float32 for half precision, float64 for float32), where rounding is gone and a fault is not.

    Args:
        model: A decoder-only model in evaluation mode.
        tokenizer: Its tokenizer.
        prompts: Strings or chats, as for `BatchPolicy.prepare`.
        max_new_tokens: The largest number of new tokens.
        stock: Whether the batch runs in transformers as it is.
        progress: Called before each call of `generate` with the calls done, the calls of all, and what comes next.
        generate_kwargs: Further arguments of every call. Greedy search is the default; beams are compared by their
            tokens and sequence scores.

    Raises:
        ValueError: The model is in training mode or has an encoder, or an argument makes calls that cannot be compared
            (`do_sample=True`, `max_length`, tensors of rows).
        PromptError: A prompt cannot stand in a batch, or runs out of the model's table of positions.
        TypeError: Model and tokenizer are something else, or in the other order.
        MissingPadTokenError: Nothing can stand in the cells of pads.
    """
    way = STOCK if stock else PADFIX
    arguments = {"max_new_tokens": max_new_tokens, **generate_kwargs}
    return compared(model, tokenizer, prompts, way=way, side="right", progress=progress, arguments=arguments)


def compared(
    model: Any,
    tokenizer: Any,
    prompts: Prompt | Sequence[Prompt],
    *,
    way: str,
    side: Side,
    arguments: Mapping[str, Any],
    progress: Step | None = None,
) -> EquivalenceReport:
    """The report on one batch: `verify` with the way to run it (a key of `WAYS`) and the side of its pads."""
    check_order(model, tokenizer)
    _check(model, arguments)
    asked = as_list(prompts)
    rows = token_ids(tokenizer, asked)
    trial = Trial(
        rows=rows,
        pad=pad_token_id(model, tokenizer) if arguments.get("pad_token_id") is None else arguments["pad_token_id"],
        ends=_ends(model, arguments),
        side=side,
        extra=EXTRA if len({len(row) for row in rows}) == 1 else 0,
        arguments={"do_sample": False, **_with_tokenizer(model, tokenizer, arguments)},
        progress=progress,
    )
    notes: list[str] = []
    with named_positions(model, max(map(len, rows)), arguments["max_new_tokens"]):
        alone = [trial.alone(model, number) for number in range(len(rows))]
        batch = trial.batch(model, way, notes)
    found = [trial.differences(*pair) for pair in zip(batch, alone, strict=True)]
    unequal = [number for number, each in enumerate(found) if not all(one.is_none for one in each)]
    noise, wider = None, dict[int, list[Difference] | str]()
    if unequal:
        wider, rounding = trial.wider(model, way, alone, unequal)
        noise = max(trial.noise(model, alone, unequal), rounding)
    allowed = None if noise is None else ROOM * noise
    if any(one.logits is not None and bool(one.logits.isnan().any()) for each in alone for one in each):
        notes.append("Some logits are NaN for prompts alone: there is nothing to compare with.")

    def row(number: int, sequence: int) -> RowReport:
        apart, again = found[number][sequence], wider.get(number)
        verdict, reason = judged(apart, allowed, again[sequence] if isinstance(again, list) else again)
        replies = (
            str(tokenizer.decode(each[number][sequence].tokens, skip_special_tokens=True)) for each in (alone, batch)
        )
        return RowReport(number, sequence, len(rows[number]), shown(asked[number]), apart, verdict, reason, *replies)

    return EquivalenceReport(
        rows=tuple(row(number, sequence) for number, each in enumerate(found) for sequence in range(len(each))),
        subject=f"{type(model).__name__} ({str(model.dtype).removeprefix('torch.')}, {model.device})",
        way=way,
        side=side,
        width=max(map(len, rows)) + trial.extra,
        new_tokens=arguments["max_new_tokens"],
        noise=noise,
        notes=tuple(dict.fromkeys(notes)),
        versions={one.__name__: str(one.__version__) for one in (padfix, transformers, torch)},
    )


def _check(model: Any, arguments: Mapping[str, Any]) -> None:
    """Raises for what cannot be compared."""
    new_tokens = arguments["max_new_tokens"]
    if isinstance(new_tokens, bool) or not isinstance(new_tokens, int) or new_tokens < 1:
        raise ValueError(f"max_new_tokens is {new_tokens!r}. Pass a whole number, 1 or more.")
    if any(module.training for module in model.modules()):
        raise ValueError("The model is in training mode, where dropout makes every run another. Call model.eval().")
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(
            f"{type(model).__name__} has an encoder, and no prompt to decode after. Pass a decoder-only model."
        )
    if arguments.get("do_sample"):
        raise ValueError("do_sample=True: random draws differ in a batch. Compare with do_sample=False.")
    refused = [name for name, value in arguments.items() if name in OURS or isinstance(value, torch.Tensor)]
    if refused:
        raise ValueError(f"{', '.join(refused)}: verify sets prompts, lengths and outputs itself. Pass max_new_tokens.")


def _with_tokenizer(model: Any, tokenizer: Any, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments with the tokenizer where strings stop the replies, as `generate` asks for it."""
    config = arguments.get("generation_config") or model.generation_config
    stops = arguments.get("stop_strings") or getattr(config, "stop_strings", None)
    return {**arguments, "tokenizer": tokenizer} if stops else arguments


def _ends(model: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """The ids at which replies of these calls end."""
    asked = arguments.get("eos_token_id")
    if asked is not None:
        return tuple(asked) if isinstance(asked, (list, tuple)) else (asked,)
    config = arguments.get("generation_config") or model.generation_config
    return () if config is None else eos_ids(config)
