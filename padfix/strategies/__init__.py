"""How a padded batch is made right: one function a file, and the choice between them.

Every strategy is `run(job, original) -> output`: it calls `original` (once, or as often as it needs) and gives back
what the caller sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..generation.traits import Traits
from ..layout.plan import LayoutPlan
from . import equal_length, left_pad
from .job import Job

__all__ = ["STRATEGIES", "Strategy", "choose"]

Strategy = Callable[[Job, Callable[..., Any]], Any]

STRATEGIES: Mapping[str, Strategy] = {"left_pad": left_pad.run, "equal_length": equal_length.run}


def choose(
    asked: str, traits: Traits, plan: LayoutPlan, new_tokens: int, *, negative_width: int = 0
) -> tuple[str | None, str]:
    """The name of the strategy for a batch, or None and the reason why the one that is asked for is not exact.

    Args:
        asked: The setting: `auto` or the name of one strategy.
        traits: What the model is.
        plan: The batch in the model's layout.
        new_tokens: The largest number of new tokens that a row can get.
        negative_width: The number of columns of padded negative prompts; 0 where there are none.
    """
    if asked not in ("auto", *STRATEGIES):
        there = ", ".join(("auto", *STRATEGIES))
        return None, f"strategy {asked!r} is not part of this release of padfix, which has: {there}"
    if asked == "equal_length":
        return asked, ""
    reason = _not_exact(traits, plan, new_tokens, negative_width)
    return (None if reason else "left_pad"), reason


def _not_exact(traits: Traits, plan: LayoutPlan, new_tokens: int, negative_width: int) -> str:
    """Why left padding does not give each row what it gets alone; empty where it does."""
    if traits.mixes_rows and len(plan.lengths) > 1:
        return f"{traits.name} (rows of one batch change one another, with or without pads)"
    if len(plan.lengths) == 1 and plan.pads_remain and not traits.masks_one_row:
        return f"{traits.name} (in this release it masks no pads in a batch of one row)"
    padded_width = max(plan.model_width if plan.pads_remain else 0, negative_width)
    if padded_width and padded_width + new_tokens > traits.exact_up_to:
        return f"{traits.name} ({traits.reason})"
    return ""
