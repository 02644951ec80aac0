"""What a decode step costs with processors that see no pads, as a ratio of the library's own step.

32 rows, a vocabulary of 128,000, repetition penalty and no-repeat n-grams, a left-padded prompt of 256 columns and up
to 64 new tokens. The two steps are timed in turn in one process. No network::

    python benchmarks/decoding_cost.py [--quick]
"""

from __future__ import annotations

from typing import Any

import torch
from common import Effort, Row, alone, in_turn, median
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from padfix.console import Step
from padfix.generation.compat import repetition_penalty_skips_pads
from padfix.generation.history import History
from padfix.generation.processors import TWINS, Scene
from padfix.layout.plan import LayoutPlan

ROWS, WIDTH, NEW, VOCABULARY = 32, 256, 64, 128_000


def lists(mask: Tensor, prompt: Tensor) -> tuple[Any, Any]:
    """The library's processors for the batch, and their twins."""
    skipped = {"prompt_ignore_length": mask.argmax(1)} if repetition_penalty_skips_pads() else {}
    stock = LogitsProcessorList(
        [RepetitionPenaltyLogitsProcessor(1.3, **skipped), NoRepeatNGramLogitsProcessor(3)],
    )
    scene = Scene(History(LayoutPlan.from_mask(mask), prompt), GenerationConfig(), None)
    return stock, LogitsProcessorList(TWINS[type(one)](one, scene) for one in stock)


def rows(effort: Effort, step: Step) -> list[Row]:
    """One row."""
    step(0, 1, "processors that see no pads")
    torch.manual_seed(0)
    lengths = torch.randint(16, WIDTH, (ROWS,))
    lengths[0] = WIDTH
    mask = (torch.arange(WIDTH) >= WIDTH - lengths[:, None]).long()
    prompt = torch.randint(0, VOCABULARY, (ROWS, WIDTH)) * mask
    stock, twins = lists(mask, prompt)
    ratios = []
    for pair in range(effort.pairs(60) + 3):
        ids = torch.cat((prompt, torch.randint(0, VOCABULARY, (ROWS, pair % NEW))), 1)
        scores = torch.randn(ROWS, VOCABULARY)
        both = {"ours": lambda: twins(ids, scores.clone()), "theirs": lambda: stock(ids, scores.clone())}  # noqa: B023
        taken = in_turn(both if pair % 2 else dict(reversed(both.items())), 1, warm=0)
        ratios.append(taken["ours"][0] / taken["theirs"][0])
    what = f"processors of a decode step, {ROWS} rows, vocabulary {VOCABULARY:,}: time / the library's own"
    return [Row(what, median(ratios[3:]))]


if __name__ == "__main__":
    alone(__doc__, rows)
