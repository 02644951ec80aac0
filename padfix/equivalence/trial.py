"""The calls of one comparison: each prompt alone, all in a padded batch, copies of one without pads, a wider dtype."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..console import Step
from ..errors import PadfixWarning
from ..generation.traits import prompt_device
from ..layout.rows import Side, padded
from ..once import generate as repaired
from ..settings import override
from ..special import until_end
from .compare import Difference, Reply, difference

__all__ = ["AS_IT_IS", "PADFIX", "ROOM", "STOCK", "WAYS", "Trial"]

# A difference is held against this many times the noise. Padding changes batch size, width and kernel at once, and
# over more prompts: its largest difference was up to 6.4 times the noise in bfloat16 (random MoE models; 1.7 times with
# SmolLM2). What decides is the wider dtype; this bound is there for faults that a narrow one alone has.
ROOM = 8
# The number of prompts that the noise is measured on.
NOISE_PROMPTS = 3
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
# The outputs are read here and let go: that their cache is left out concerns nobody.
_CACHE_LEFT_OUT = re.compile(r"the field \w+ of this output is None")


def _in_stock(model: Any, arguments: Mapping[str, Any]) -> Any:
    with override("off"):
        return model.generate(**arguments)


def _through_padfix(model: Any, arguments: Mapping[str, Any]) -> Any:
    with override("fix", strategy="auto", decoding="pad_aware"):  # whatever the environment says
        return repaired(model, **arguments)


# How a batch is run, by the words of the report.
PADFIX, STOCK, AS_IT_IS = "through padfix", "in stock transformers", "as this process runs it"
WAYS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    PADFIX: _through_padfix,
    STOCK: _in_stock,
    AS_IT_IS: lambda model, arguments: model.generate(**arguments),
}


@dataclass
class Trial:
    """The prompts and what is the same in every call; the number of calls made and planned."""

    rows: list[list[int]]
    pad: int
    ends: Collection[int]
    side: Side
    extra: int
    arguments: Mapping[str, Any]
    progress: Step | None
    done: int = 0
    planned: int = field(init=False)

    def __post_init__(self) -> None:
        self.planned = len(self.rows) + 1

    def alone(self, model: Any, number: int) -> list[Reply]:
        """What a prompt gets as an unpadded batch of one in stock transformers, a reply for each returned sequence."""
        return self._run(model, STOCK, [self.rows[number]], 0, f"prompt {number} alone")[0]

    def batch(self, model: Any, way: str, notes: list[str]) -> list[list[Reply]]:
        """What the prompts get in one padded batch; what padfix warns of goes to the notes."""
        with _collected(notes):
            return self._run(model, way, self.rows, self.extra, "the padded batch")

    def noise(self, model: Any, alone: Sequence[Sequence[Reply]], unequal: Sequence[int]) -> float:
        """The largest difference between a prompt alone and in unpadded batches of copies of itself.

        Measured on the longest prompt and the first of those that are not equal.
        """
        longest = max(range(len(self.rows)), key=lambda number: len(self.rows[number]))
        numbers = dict.fromkeys([*unequal[: NOISE_PROMPTS - 1], longest])
        sizes = sorted({2, max(2, len(self.rows))})
        self.planned += len(numbers) * len(sizes)
        largest = 0.0
        for number in numbers:
            for size in sizes:
                copies = self._run(model, STOCK, [self.rows[number]] * size, 0, f"prompt {number}, {size} copies")
                apart = (one for each in copies for one in self.differences(each, alone[number]))
                largest = max(largest, *(one.largest for one in apart))
        return largest

    def wider(
        self, model: Any, way: str, alone: Sequence[Sequence[Reply]], unequal: Sequence[int]
    ) -> tuple[dict[int, list[Difference] | str], float]:
        """The differences of those rows with a copy of the model in a wider dtype, or why there are none.

        And the largest difference between the dtypes, of the same prompts alone: the rounding of the narrow one.
        """
        self.planned += len(unequal) + 1
        try:
            copied = copy.deepcopy(model).to(WIDER[model.dtype])
            wide = {number: self.alone(copied, number) for number in unequal}
            if all(_are_same(wide[number], alone[number]) for number in unequal):
                raise ValueError("it computes what the model computes, bit for bit")
            batch = self.batch(copied, way, [])
        except Exception as error:  # hooks, quantized weights, memory: no common one
            line = str(error).strip().partition("\n")[0][:160]
            return dict.fromkeys(unequal, f"no copy in a wider dtype ({type(error).__name__}: {line})"), 0.0
        rounding = (one.largest for number in unequal for one in self.differences(alone[number], wide[number]))
        return {number: self.differences(batch[number], wide[number]) for number in unequal}, max(rounding)

    def differences(self, replies: Sequence[Reply], alone: Sequence[Reply]) -> list[Difference]:
        """How each reply differs from the one that belongs to it.

        A batch fills the rows that a stopping criterion has ended up with pads, which are no part of the reply.
        """
        pairs = zip(replies, alone, strict=True)
        return [difference(_without_pads(one, len(other.tokens), self.pad), other) for one, other in pairs]

    def _run(
        self, model: Any, way: str, rows: Sequence[Sequence[int]], extra: int, what: str, **changes: Any
    ) -> list[list[Reply]]:
        """The replies of one call, a list for each row of the batch."""
        if self.progress is not None:
            self.progress(self.done, self.planned, what)
        ids, mask = padded(rows, self.pad, self.side, extra=extra)
        asked = {
            **self.arguments,
            "input_ids": ids.to(prompt_device(model)),
            "attention_mask": mask.to(prompt_device(model)),
            "pad_token_id": self.pad,
            "return_dict_in_generate": True,
            "output_logits": True,
            "output_scores": True,
        }
        self.done += 1
        output = WAYS[way](model, asked)
        copies = output.sequences.shape[0] // len(rows)
        prompts = ids.to(output.sequences.device).repeat_interleave(copies, 0)
        kept = (output.sequences[:, : ids.shape[1]] == prompts).all(1).tolist()
        # A row whose prompt came back as another is as wrong as one without a reply.
        replies = [self._reply(output, row, ids.shape[1]) if whole else Reply(()) for row, whole in enumerate(kept)]
        return [replies[start : start + copies] for start in range(0, len(replies), copies)]

    def _reply(self, output: Any, index: int, width: int) -> Reply:
        tokens = tuple(until_end(output.sequences[index, width:].tolist(), self.ends))
        if getattr(output, "sequences_scores", None) is not None:
            return Reply(tokens, beam_score=float(output.sequences_scores[index]))
        logits, scores = (
            torch.stack([step[index].float().cpu() for step in steps[: len(tokens)]]) if tokens else torch.empty(0, 0)
            for steps in (output.logits, output.scores)
        )
        return Reply(tokens, logits, scores)


def _without_pads(reply: Reply, length: int, pad: int) -> Reply:
    """A reply without the pads after `length`, if there is nothing else."""
    return replace(reply, tokens=reply.tokens[:length]) if set(reply.tokens[length:]) == {pad} else reply


def _are_same(replies: Sequence[Reply], others: Sequence[Reply]) -> bool:
    """Whether the logits are equal bit for bit; no logits are not."""
    return all(
        one.logits is not None and other.logits is not None and torch.equal(one.logits, other.logits)
        for one, other in zip(replies, others, strict=True)
    )


@contextmanager
def _collected(notes: list[str]) -> Iterator[None]:
    """A block whose `PadfixWarning`s become notes; all others are warned of after it, as they would have been."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PadfixWarning)
        yield
    for one in caught:
        if not issubclass(one.category, PadfixWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        elif not _CACHE_LEFT_OUT.match(str(one.message)):
            notes.append(str(one.message))
