"""What a right-padded batch costs through padfix, as a ratio of the same batch left-padded by hand.

Eight prompts of 90 to 100 tokens, 16 new ones, a Llama of 6 layers and hidden size 256 with random weights, float32:
lengths so near one another that nothing is saved, so that only the cost of the repair is seen, end to end. The two
calls are timed in turn in one process. No network::

    python benchmarks/left_pad.py [--quick]
"""

from __future__ import annotations

from common import Effort, Row, alone, ratio
from llama import batch, call, llama, prompts

from padfix.console import Step
from padfix.patch import installed

LENGTHS, NEW, AIM = (100, 98, 97, 96, 94, 93, 91, 90), 16, 1.03


def rows(effort: Effort, step: Step) -> list[Row]:
    """One row; its interval has to be within the aim."""
    model, given = llama(), prompts(LENGTHS)
    step(0, 1, "right-padded through padfix")
    with installed("fix"):
        ours = call(model, batch(given, "right"), NEW, "auto")
        theirs = call(model, batch(given, "left"), NEW, None)
        found = ratio(ours, theirs, effort.pairs(30, quick=3))
    what = "8 prompts of 90 to 100 tokens, right-padded, 16 new tokens: time / hand-left-padded"
    return [Row(what, found, AIM, whole=True)]


if __name__ == "__main__":
    alone(__doc__, rows)
