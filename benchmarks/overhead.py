"""What padfix costs where there is nothing to repair: a call of one new token of a tiny Llama, as a ratio of stock's.

Four prompts without a pad, with a mask and without one, and the same prompts left-padded with different lengths. The
two calls are made in turn in one process, each timed in CPU time over a few calls; the median of the ratios of the
pairs is printed, and its interval (95 %, by order statistics). Also counted, with the profiler: tensor operations and
host syncs that the call makes on top. No network, about a minute::

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [--pairs 60]
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from common import ratio
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

import padfix

# Calls that are timed together.
CALLS = 4


def batches() -> Mapping[str, dict[str, Any]]:
    """The batches, by what they are."""
    ids = torch.randint(3, 99, (4, 12))
    mask = torch.ones_like(ids)
    left = mask.clone()
    for row, pads in enumerate((0, 3, 5, 8)):
        left[row, :pads] = 0
    return {
        "no pads, with a mask": {"input_ids": ids, "attention_mask": mask},
        "no pads, without a mask": {"input_ids": ids},
        "left-padded": {"input_ids": ids * left, "attention_mask": left},
    }


def operations(call: Callable[[], object]) -> tuple[int, int]:
    """The number of tensor operations of a call, and how many of them are host syncs."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        call()
    names = [event.name for event in found.events() if event.name.startswith("aten::")]
    return len(names), sum(name == "aten::_local_scalar_dense" for name in names)


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=60)
    pairs = parser.parse_args().pairs
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config).eval()
    arguments = {"max_new_tokens": 1, "do_sample": False, "pad_token_id": 0}
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    original = LlamaForCausalLM.generate
    padfix.install("fix")
    for name, batch in batches().items():
        ours = functools.partial(model.generate, **batch, **arguments)
        theirs = functools.partial(original, model, **batch, **arguments)
        found = ratio(ours, theirs, pairs, clock=time.process_time, times=CALLS)
        (more, more_syncs), (few, few_syncs) = operations(ours), operations(theirs)
        print(
            f"{name}: times stock's CPU time {found}, {more - few} tensor operations and {more_syncs - few_syncs} host "
            "syncs more"
        )


if __name__ == "__main__":
    main()
