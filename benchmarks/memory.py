"""Peak memory of a call of `generate` on a right-padded batch with padfix, as a ratio of the hand-left-padded run.

Four prompts of 600 to 2,048 tokens, sixteen layers of hidden size 128, so that most of it is the cache (128 MiB: a
second copy would show), float32, on the CPU. Each run is a process of its own, in which freed tensors go back to the
system at once; it makes two calls, without the cache among what comes back and with it. What counts is the rise of
the resident set above what it was before the call (Linux, VmHWM). Runs alternate; `--quick` takes prompts of a
quarter of these lengths. No network::

    python benchmarks/memory.py [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import Effort, Row, alone, median

from padfix.console import Step

LENGTHS = (2048, 1500, 900, 600)
KINDS = ("padfix", "left")
AIM = 1.02


def peak(*, reset: bool = False) -> int:
    """The highest resident set of this process so far, or since the last reset, in KiB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def one_run(kind: str, lengths: Sequence[int]) -> None:
    """Prints by how many KiB the call raises the resident set, without the cache among what comes back and with it."""
    from llama import PAD, batch, llama, prompts

    import padfix

    model = llama(hidden=128, layers=16, heads=4)
    given: dict[str, Any] = batch(prompts(lengths), "left" if kind == "left" else "right")
    named = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": PAD}
    call = model.generate if kind == "left" else lambda **more: padfix.generate(model, **more)
    call(**{name: value[:, -8:] for name, value in given.items()}, **named)  # what the first call loads
    for returns_cache in (False, True):
        before = peak(reset=True)
        call(**given, **named, return_dict_in_generate=returns_cache)
        print(peak() - before)


def measured(kind: str, lengths: Sequence[int]) -> list[int]:
    """What `one_run` prints in a process of its own."""
    command = [sys.executable, __file__, "--one", kind, *map(str, lengths)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return [int(line) for line in printed.split()[-2:]]


def rows(effort: Effort, step: Step) -> list[Row]:
    """The ratio without the cache among what comes back, and with it."""
    lengths = [length // 4 for length in LENGTHS] if effort.quick else LENGTHS
    pairs = effort.pairs(3, quick=1)
    ratios: list[list[float]] = []
    for pair in range(pairs):
        step(pair, pairs, "a process each")
        runs = {kind: measured(kind, lengths) for kind in KINDS[:: 1 if pair % 2 else -1]}
        ratios.append([ours / theirs for ours, theirs in zip(*(runs[kind] for kind in KINDS), strict=True)])
    what = f"4 prompts of up to {max(lengths):,} tokens, right-padded, {{}} the cache: peak memory / hand-left-padded"
    by_case = zip(("without", "with"), zip(*ratios, strict=True), strict=True)
    return [Row(what.format(case), median(found), AIM) for case, found in by_case]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one_run(sys.argv[2], [int(length) for length in sys.argv[3:]])
    else:
        alone(__doc__, rows)
