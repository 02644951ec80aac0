"""Peak memory of a call of `generate` on a right-padded batch with padfix, as a ratio of the hand-left-padded run.

Four prompts of 600 to 2,048 tokens, sixteen layers of hidden size 128, so that most of it is the cache (128 MiB: a
second copy would show), float32, on the CPU. Each run is a process of its own, in which freed tensors go back to the
system at once; what counts is the rise of its resident set above what it was before the call (Linux, VmHWM). Runs
alternate; the median of each kind is compared. With and without the cache among what comes back. No network, about
three minutes::

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--runs 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

LENGTHS = (2048, 1500, 900, 600)
KINDS = ("left", "padfix")


def peak(*, reset: bool = False) -> int:
    """The highest resident set of this process so far, or since the last reset, in KiB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def one_run(kind: str, returns_cache: bool) -> None:
    """Prints by how many KiB the call raises the resident set."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import padfix

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=16, num_attention_heads=4
    )
    model = LlamaForCausalLM(config).eval()
    width = max(LENGTHS)
    columns = torch.arange(width)
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = (columns >= width - lengths if kind == "left" else columns < lengths).long()
    batch: dict[str, Any] = {"input_ids": torch.randint(3, 1000, mask.shape), "attention_mask": mask}
    arguments = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "return_dict_in_generate": returns_cache}
    call = model.generate if kind == "left" else lambda **named: padfix.generate(model, **named)
    call(**{name: value[:, -8:] for name, value in batch.items()}, **arguments)  # what the first call loads
    before = peak(reset=True)
    call(**batch, **arguments)
    print(peak() - before)


def measured(kind: str, returns_cache: bool) -> int:
    """What `one_run` prints in a process of its own."""
    command = [sys.executable, __file__, "--one", kind, *(["--cache"] if returns_cache else [])]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()[-1])


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--cache", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        one_run(asked.one, asked.cache)
        return
    for returns_cache in (False, True):
        runs = [[measured(kind, returns_cache) for kind in KINDS] for _ in range(asked.runs)]
        left, ours = (sorted(column) for column in zip(*runs, strict=True))
        print(
            f"{'with' if returns_cache else 'without'} the cache among what comes back: "
            f"{statistics.median(ours) / statistics.median(left):.3f} times the hand-left-padded run "
            f"({left[0] / 1024:.0f} to {left[-1] / 1024:.0f} MiB by hand, {ours[0] / 1024:.0f} to "
            f"{ours[-1] / 1024:.0f} MiB with padfix, {asked.runs} runs each)"
        )


if __name__ == "__main__":
    main()
