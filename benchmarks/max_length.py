"""What `padding="max_length"` costs with padfix, which drops the columns that are pads in every row.

Eight prompts of 20 to 64 tokens, padded on the right to 512 columns, one new token, a Llama of 6 layers and hidden
size 256 with random weights, float32; against the same prompts left-padded by hand to 512 columns, in stock. Timed in
turn in one process. Of the cache the largest keys and values of each layer are counted while the call runs: what comes
back has the caller's width again. No network::

    python benchmarks/max_length.py [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from common import Effort, Ratio, Row, alone, ratio
from llama import batch, call, llama, prompts
from transformers import DynamicCache

from padfix.console import Step
from padfix.patch import installed

LENGTHS, WIDTH, AIM = (64, 58, 52, 45, 39, 33, 26, 20), 512, 0.25


def cache_bytes(run: Callable[[], object]) -> int:
    """The bytes of the keys and values that a call's caches hold at most, over all layers."""
    largest: dict[int, int] = {}
    update = DynamicCache.update

    def watched(cache: Any, keys: Any, values: Any, layer: int, *rest: Any, **more: Any) -> Any:
        held = update(cache, keys, values, layer, *rest, **more)
        largest[layer] = max(largest.get(layer, 0), sum(one.numel() * one.element_size() for one in held))
        return held

    with mock.patch.object(DynamicCache, "update", watched):
        run()
    return sum(largest.values())


def rows(effort: Effort, step: Step) -> list[Row]:
    """Time and bytes, as ratios."""
    model, given = llama(), prompts(LENGTHS)
    extra = WIDTH - max(LENGTHS)
    what = f"8 prompts of 20 to 64 tokens, right-padded to {WIDTH}, one new token"
    with installed("fix"):
        ours = call(model, batch(given, "right", extra=extra), 1, "auto")
        theirs = call(model, batch(given, "left", extra=extra), 1, None)
        step(0, 2, "time of the prefill")
        taken = ratio(ours, theirs, effort.pairs(15, quick=2))
        step(1, 2, "bytes of the cache")
        share = cache_bytes(ours) / cache_bytes(theirs)
    return [
        Row(f"{what}: time / hand-left-padded", taken, AIM),
        Row(f"{what}: bytes of the cache / hand-left-padded", Ratio(share, share, share), AIM),
    ]


if __name__ == "__main__":
    alone(__doc__, rows)
