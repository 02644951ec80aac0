"""What a decode step costs with processors that see no pads, as a ratio of the library's own step.

32 rows, a vocabulary of 128,000, repetition penalty and no-repeat n-grams, a left-padded prompt of 256 columns and up
to 64 new tokens. The two steps are timed in turn in one process; the median of the ratios of the pairs is printed, and
its interval (95 %, by order statistics). No network::

    OMP_NUM_THREADS=1 python benchmarks/decoding_cost.py [--pairs 60]
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import transformers
from common import interval, seconds
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

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


def main() -> None:
    """Prints the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=60)
    pairs = parser.parse_args().pairs
    torch.manual_seed(0)
    lengths = torch.randint(16, WIDTH, (ROWS,))
    lengths[0] = WIDTH
    mask = (torch.arange(WIDTH) >= WIDTH - lengths[:, None]).long()
    prompt = torch.randint(0, VOCABULARY, (ROWS, WIDTH)) * mask
    stock, twins = lists(mask, prompt)
    ratios = []
    for pair in range(pairs + 3):
        ids = torch.cat((prompt, torch.randint(0, VOCABULARY, (ROWS, pair % NEW))), 1)
        scores = torch.randn(ROWS, VOCABULARY)
        both = [lambda: twins(ids, scores.clone()), lambda: stock(ids, scores.clone())]  # noqa: B023
        times = [seconds(step) for step in (both if pair % 2 else both[::-1])]
        ours, theirs = times if pair % 2 else times[::-1]
        ratios.append(ours / theirs)
    ratios = sorted(ratios[3:])
    low, high = interval(ratios)
    print(
        f"transformers {transformers.__version__}, torch {torch.__version__}, {torch.get_num_threads()} thread(s): "
        f"{ratios[len(ratios) // 2]:.3f} times the library's step [{low:.3f}, {high:.3f}], {pairs} pairs"
    )


if __name__ == "__main__":
    main()
