"""What padfix costs where there is nothing to repair: a call of one new token of a tiny Llama, as a ratio of stock's.

Four prompts without a pad, with a mask and without one, and the same prompts left-padded with different lengths. The
two calls are made in turn in one process, each timed in CPU time over a few calls. Also counted: the operators that
reach a back end and the host syncs that the call makes on top. No network::

    python benchmarks/overhead.py [--quick]
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from common import Effort, Ratio, Row, alone, ratio
from llama import PAD, llama
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaForCausalLM

from padfix.console import Step
from padfix.patch import installed

# Calls that are timed together.
CALLS = 4
AIM, OPERATORS, SYNCS = 1.01, 3, 1


def batches() -> Mapping[str, dict[str, Any]]:
    """The batches, by what they are."""
    ids = torch.randint(3, 99, (4, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    left = mask.clone()
    for row, pads in enumerate((0, 3, 5, 8)):
        left[row, :pads] = 0
    return {
        "no pads, with a mask": {"input_ids": ids, "attention_mask": mask},
        "no pads, without a mask": {"input_ids": ids},
        "left-padded": {"input_ids": ids * left, "attention_mask": left},
    }


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that reach a back end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What the operator gives."""
        self.counted[function.overloadpacket._qualified_op_name] += 1
        return function(*args, **(kwargs or {}))


def operators(call: Callable[[], object]) -> Counter[str]:
    """The operators of a call that reach a back end, and how often each does."""
    mode = Operators()
    with mode:
        call()
    return mode.counted


def rows(effort: Effort, step: Step) -> list[Row]:
    """For each batch the ratio, the operators on top, and the host syncs among them."""
    model = llama(hidden=32, layers=2, heads=4, vocabulary=99)
    original = LlamaForCausalLM.generate
    found = []
    with installed("fix"):
        for number, (name, batch) in enumerate(batches().items()):
            step(number, len(batches()), name)
            named = {**batch, "max_new_tokens": 1, "do_sample": False, "pad_token_id": PAD}
            ours = functools.partial(model.generate, **named)
            theirs = functools.partial(original, model, **named)
            taken = ratio(ours, theirs, effort.pairs(60, quick=5), clock=time.process_time, times=CALLS)
            more = operators(ours)
            more.subtract(operators(theirs))
            counts = sum(more.values()), more["aten::_local_scalar_dense"]
            found.append(Row(f"{name}: CPU time of a call of one new token / stock", taken, AIM))
            for what, count, aim in zip(("operators", "host syncs"), counts, (OPERATORS, SYNCS), strict=True):
                found.append(Row(f"{name}: {what} on top of stock's", Ratio(count, count, count), aim))
    return found


if __name__ == "__main__":
    alone(__doc__, rows)
