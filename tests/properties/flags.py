"""Random subsets of the flags of `generate` over random padded batches, against each prompt alone.

Prompts are drawn from few ids, so that n-grams, penalties and biases meet what they look for. Where a call samples,
every draw takes the likeliest token: so the processed scores of every step can be compared.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import transformers
from hypothesis import assume
from hypothesis import strategies as st
from oracle import EOS, PAD, VOCABULARY, Reply, compare, read
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria
from transformers.generation import logits_process

import padfix
from padfix.generation.compat import encoder_penalty_reaches_every_row

from .batches import model
from .layouts import SIDES, columns

__all__ = ["FLAGS", "MODELS", "FlagCase", "equals_single_under_flags", "flag_cases"]

MODELS = ("llama", "gpt2")

Row = tuple[int, ...]

# The ids that prompts are made of; EOS is among them, so that it stands inside prompts.
FEW = (5, 17, 33, 61, EOS)
tokens = st.sampled_from((*FEW, 8, 24))


def _sequences(longest: int) -> st.SearchStrategy[list[list[int]]]:
    one = st.lists(tokens, min_size=1, max_size=longest)
    return st.lists(one, min_size=1, max_size=4, unique_by=tuple)


def _biases() -> st.SearchStrategy[dict[tuple[int, ...], float]]:
    bias = st.sampled_from((4.0, -4.0, 9.0, float("-inf")))
    return _sequences(3).flatmap(lambda keys: st.fixed_dictionaries({tuple(key): bias for key in keys}))


def _watermarks() -> st.SearchStrategy[Any]:
    keys = st.lists(st.integers(1, 900), min_size=2, max_size=4)
    return st.one_of(
        st.builds(
            transformers.WatermarkingConfig,
            greenlist_ratio=st.sampled_from((0.25, 0.5)),
            bias=st.sampled_from((2.0, 5.0)),
            seeding_scheme=st.sampled_from(("lefthash", "selfhash")),
            context_width=st.integers(1, 4),
        ),
        st.builds(
            transformers.SynthIDTextWatermarkingConfig,
            ngram_len=st.integers(2, 4),
            keys=keys,
            sampling_table_size=st.just(64),
            context_history_size=st.just(16),
            skip_first_ngram_calls=st.booleans(),
        ),
    )


# Each flag with the values that it is drawn from.
FLAGS: Mapping[str, st.SearchStrategy[Any]] = {
    "repetition_penalty": st.sampled_from((1.3, 2.0, 0.6)),
    "encoder_repetition_penalty": st.sampled_from((1.5, 0.7)),
    "no_repeat_ngram_size": st.integers(1, 4),
    "encoder_no_repeat_ngram_size": st.integers(1, 4),
    "sequence_bias": _biases(),
    "bad_words_ids": _sequences(3),
    "min_length": st.integers(1, 18),
    "min_new_tokens": st.integers(1, 5),
    "forced_bos_token_id": st.sampled_from((7, 17)),
    "forced_eos_token_id": st.sampled_from((EOS, 61)),
    "exponential_decay_length_penalty": st.tuples(st.integers(0, 3), st.sampled_from((1.5, 3.0))),
    "suppress_tokens": st.lists(tokens, min_size=1, max_size=3, unique=True),
    "begin_suppress_tokens": st.lists(tokens, min_size=1, max_size=3, unique=True),
    "watermarking_config": _watermarks(),
    "guidance_scale": st.sampled_from((1.5, 3.0, 0.5)),
    "remove_invalid_values": st.just(True),
    "renormalize_logits": st.just(True),
    "temperature": st.sampled_from((0.5, 1.7)),
    "top_k": st.sampled_from((3, 20)),
    "top_p": st.sampled_from((0.5, 0.9)),
    "min_p": st.sampled_from((0.05, 0.3)),
    "typical_p": st.sampled_from((0.4, 0.9)),
    "epsilon_cutoff": st.just(0.01),
    "eta_cutoff": st.just(0.01),
    "use_cache": st.just(False),
}
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
# Flags that transformers itself cannot combine with several rows a prompt: their state is not reordered with beams, or
# (up to 5.0) they hold for the first rows alone.
NOT_WITH_COPIES = (
    "guidance_scale",
    "watermarking_config",
    *(() if encoder_penalty_reaches_every_row() else ("encoder_repetition_penalty",)),
)


@dataclass(frozen=True)
class FlagCase:
    """One call of `generate`.

    Attributes:
        rows: The prompts.
        width: The number of columns.
        columns: For each row the columns of its tokens.
        flags: The flags, as keywords or in a config.
        new: How many new tokens; negative: `max_length`, that many columns more than the prompt has.
        pad: The pad id.
        embeds: Whether embeddings are passed in place of ids.
        masked: Whether the mask is passed.
        negative: Negative prompts, with their width and columns.
        callbacks: Names of the caller's own code to pass along.
        in_config: Whether the flags stand in a generation config that is passed.
    """

    rows: tuple[Row, ...]
    width: int
    columns: tuple[tuple[int, ...], ...]
    flags: Mapping[str, Any] = field(default_factory=dict)
    new: int = 5
    pad: int = PAD
    embeds: bool = False
    masked: bool = True
    negative: tuple[tuple[Row, ...], int, tuple[tuple[int, ...], ...]] | None = None
    callbacks: tuple[str, ...] = ()
    in_config: bool = False


@st.composite
def _boards(draw: st.DrawFn, batch: int, longest: int) -> tuple[tuple[Row, ...], int, tuple[tuple[int, ...], ...]]:
    row = st.lists(tokens, min_size=1, max_size=longest).map(tuple)
    rows = tuple(draw(st.lists(row, min_size=batch, max_size=batch)))
    width = max(map(len, rows)) + draw(st.sampled_from((0, 0, 1, 3)))
    side = draw(st.sampled_from((*SIDES, "each", "right")))
    placed = tuple(
        draw(columns(len(one), width, draw(st.sampled_from(SIDES)) if side == "each" else side)) for one in rows
    )
    return rows, width, placed


@st.composite
def flag_cases(draw: st.DrawFn) -> FlagCase:
    """Calls under up to five flags at once, beams and sampling among them."""
    batch = draw(st.sampled_from((2, 3, 1, 4)))
    rows, width, placed = draw(_boards(batch, 9))
    beams = draw(st.sampled_from((1, 1, 1, 2, 3)))
    left_out = NOT_WITH_COPIES if beams > 1 else ()
    names = draw(st.lists(st.sampled_from(sorted(set(FLAGS) - set(left_out))), max_size=5, unique=True))
    flags = {name: draw(FLAGS[name]) for name in names}
    if any(name in SAMPLING for name in names) or "watermarking_config" in names:
        flags["do_sample"] = True
    if beams > 1:
        flags["num_beams"] = beams
        flags["num_return_sequences"] = draw(st.integers(1, beams))
    elif flags.get("do_sample") and not set(names) & set(NOT_WITH_COPIES):
        flags["num_return_sequences"] = draw(st.integers(1, 2))
    # 4.51 and 4.57 misplace a prompt that is one embedding, alone.
    embeds = min(map(len, rows)) > 1 and draw(st.sampled_from((False, False, True)))
    negative = None
    if "guidance_scale" in names and draw(st.booleans()):
        negative = draw(_boards(batch, 5))
    return FlagCase(
        rows,
        width,
        placed,
        flags,
        new=draw(st.sampled_from((5, 6, 3, -4, -6))),
        pad=draw(st.sampled_from((PAD, 57, EOS))),
        embeds=embeds,
        masked=True,
        negative=negative,
        callbacks=tuple(draw(st.lists(st.sampled_from(sorted(CALLBACKS)), max_size=2, unique=True)))
        if beams == 1
        else (),
        in_config=draw(st.booleans()),
    )


# Code of the caller's own: made for the prompt's columns and the number of prompts, as keywords of generate.


class Restless(LogitsProcessor):
    """Bans the two last ids of the reply, whose first column it was told."""

    def __init__(self, ids: Tensor | None) -> None:
        self.prompt = ids
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        width = _prompt_width(self.prompt, input_ids)
        return scores.scatter(1, input_ids[:, width:][:, -2:], float("-inf"))


class StopsAt(StoppingCriteria):
    """Stops a row whose reply, from the column that it was told, has three ids that are even."""

    def __init__(self, ids: Tensor | None) -> None:
        self.prompt = ids

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        width = _prompt_width(self.prompt, input_ids)
        return (input_ids[:, width:] % 2 == 0).sum(1) >= 3


def _prompt_width(prompt: Tensor | None, seen: Tensor) -> int:
    """The columns of the prompt, which have to be the caller's own in what a callback sees."""
    if prompt is None:
        return 0
    copies = len(seen) // len(prompt)
    assert torch.equal(seen[:, : prompt.shape[1]], prompt.repeat_interleave(copies, 0)), "not the caller's layout"
    return prompt.shape[1]


def _prefix(prompt: Tensor | None) -> Callable[[int, Tensor], list[int]]:
    def allowed(row: int, seen: Tensor) -> list[int]:
        width = 0 if prompt is None else prompt.shape[1]
        assert prompt is None or torch.equal(seen[:width], prompt[row]), "not the caller's layout"
        return [token for token in range(VOCABULARY) if (token + len(seen) - width) % 3]

    return allowed


CALLBACKS: Mapping[str, Callable[[Tensor | None], dict[str, Any]]] = {
    "processor": lambda ids: {"logits_processor": [Restless(ids)]},
    "criterion": lambda ids: {"stopping_criteria": [StopsAt(ids)]},
    "prefix": lambda ids: {"prefix_allowed_tokens_fn": _prefix(ids)},
    "ngrams": lambda ids: {"logits_processor": [logits_process.NoRepeatNGramLogitsProcessor(2)]},
    "penalty": lambda ids: {"logits_processor": [logits_process.RepetitionPenaltyLogitsProcessor(1.4)]},
}


def _cells(rows: Sequence[Row], width: int, placed: Sequence[Row], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask of shape (rows, width)."""
    ids, mask = torch.full((len(rows), width), pad), torch.zeros(len(rows), width, dtype=torch.long)
    for at, (row, places) in enumerate(zip(rows, placed, strict=True)):
        ids[at, list(places)] = torch.tensor(row)
        mask[at, list(places)] = 1
    return ids, mask


@contextmanager
def likeliest_drawn() -> Iterator[None]:
    """A block in which sampling takes the likeliest tokens."""

    def draw(probabilities: Tensor, num_samples: int, **_: Any) -> Tensor:
        return probabilities.topk(num_samples, dim=-1).indices

    with mock.patch.object(torch, "multinomial", draw):
        yield


def _replies(name: str, case: FlagCase, ids: Tensor, mask: Tensor | None, new: int, negative: Any) -> list[Reply]:
    """What one call gives; `new` is the number of new tokens, or, negative, what max_length adds to the prompt."""
    runs = model(name)
    flags = dict(case.flags)
    flags.update({"max_new_tokens": new} if new > 0 else {"max_length": ids.shape[1] - new})
    specials = {"pad_token_id": case.pad, "eos_token_id": EOS}
    arguments: dict[str, Any] = {}
    if case.in_config:
        arguments["generation_config"] = GenerationConfig(**specials, **flags)
    else:
        arguments |= specials | flags
    if mask is not None:
        arguments["attention_mask"] = mask
    if negative is not None:
        arguments["negative_prompt_ids"], arguments["negative_prompt_attention_mask"] = negative
    prompt = None if case.embeds else ids
    for callback in case.callbacks:
        for key, value in CALLBACKS[callback](prompt).items():
            arguments[key] = arguments.get(key, []) + value if isinstance(value, list) else value
    if case.embeds:
        arguments["inputs_embeds"] = runs.get_input_embeddings()(ids).detach()
    else:
        arguments["input_ids"] = ids
    details = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
    with likeliest_drawn():
        output = runs.generate(**arguments, **details)
    return read(runs, output, {} if case.embeds else {"input_ids": ids}, **specials, **flags)


def equals_single_under_flags(name: str, case: FlagCase) -> None:
    """Every row of the batch gets the processed scores, tokens and lengths that its prompt gets alone."""
    ids, mask = _cells(case.rows, case.width, case.columns, case.pad)
    new = case.new if case.new > 0 else -case.new
    expected: list[Reply] = []
    with padfix.suppressed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at, row in enumerate(case.rows):
            unpadded = None if case.negative is None else (torch.tensor([case.negative[0][at]]), None)
            try:
                expected += _replies(name, case, torch.tensor([row]), None, new, unpadded)
            except (ValueError, RuntimeError, IndexError):
                assume(False)  # transformers refuses the flags themselves
    assume(all(math.isfinite(reply.beam_score or 0) for reply in expected))  # every beam forbidden
    negative = None if case.negative is None else _cells(*case.negative, case.pad)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        got = _replies(name, case, ids, mask, case.new, negative)
    ours = [str(one.message) for one in said if issubclass(one.category, padfix.PadfixWarning)]
    assert all("its cache belongs" in one for one in ours), f"refused: {ours}"
    compare([_cut(one, other, case) for one, other in zip(got, expected, strict=True)], expected)


def _cut(reply: Reply, alone: Reply, case: FlagCase) -> Reply:
    """A reply as far as a criterion let it go alone; nothing but pads may follow."""
    end = len(alone.tokens)
    if "criterion" not in case.callbacks or len(reply.tokens) <= end:
        return reply
    assert set(reply.tokens[end:]) == {case.pad}, f"not only pads after the end: {reply.tokens}"
    logits = None if reply.logits is None else reply.logits[:end]
    scores = None if reply.scores is None else reply.scores[:end]
    return Reply(reply.tokens[:end], logits, scores, reply.beam_score)
