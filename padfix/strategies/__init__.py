"""How a padded batch is made right: one function a file, and the choice between them.

Every strategy is `run(job, original) -> output`: it calls `original` (once, or as often as it needs) and gives back
what the caller sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from transformers import GenerationConfig

from ..generation.call import GenerateCall
from ..generation.configs import hidden_size
from ..generation.packable import copies_of, packing_bound
from ..generation.plain import is_plain
from ..generation.traits import Traits, traits_of
from ..layout.detect import Padding
from ..layout.plan import LayoutPlan
from . import equal_length, left_pad, packed_prefill
from .job import Job

__all__ = ["ONE_CALL", "STRATEGIES", "Strategy", "choose", "is_right_already", "name_of", "packs_too"]

Strategy = Callable[[Job, Callable[..., Any]], Any]

STRATEGIES: Mapping[str, Strategy] = {
    "left_pad": left_pad.run,
    "equal_length": equal_length.run,
    "packed_prefill": packed_prefill.run,
}
# Those in which all rows decode together, left-padded.
ONE_CALL = (left_pad.run, packed_prefill.run)


def name_of(strategy: Strategy) -> str:
    """The name of a strategy in the table."""
    return next(name for name, one in STRATEGIES.items() if one is strategy)


def choose(
    asked: str,
    traits: Traits,
    plan: LayoutPlan,
    new_tokens: int,
    *,
    past: Tensor | None = None,
    negative_width: int = 0,
) -> tuple[str | None, str]:
    """The name of the strategy for a batch, or None and the reason why the one that is asked for is not exact.

    What is exact left-padded may be packed on top of that: `packs_too` has the last word.

    Args:
        asked: The setting: `auto` or the name of one strategy.
        traits: What the model is.
        plan: The batch in the model's layout.
        new_tokens: The largest number of new tokens that a row can get.
        past: The mask over the cached columns, of shape (batch, columns), where the plan is for what follows them.
        negative_width: The number of columns of padded negative prompts; 0 where there are none.
    """
    if asked == "equal_length":
        return asked, ""
    padded = plan.pads_remain or (past is not None and not bool(past.all()))
    width = plan.model_width + (0 if past is None else past.shape[1])
    reason = _not_exact(traits, len(plan.lengths), new_tokens, width if padded else 0, negative_width)
    return (None if reason else "left_pad" if asked == "auto" else asked), reason


def packs_too(
    asked: str, call: GenerateCall, config: GenerationConfig, traits: Traits, plan: LayoutPlan
) -> tuple[str | None, str]:
    """As `choose`, for a batch that is exact left-padded: its prompts are packed where that is exact too, and pays."""
    if asked == "left_pad" or not plan.pads_remain or max(plan.lengths) < 2:
        return "left_pad", ""
    if asked == "auto":
        least = packed_prefill.fewest_saved(call.model.device.type, hidden_size(call.model))
        if not packed_prefill.pays(plan.lengths, plan.model_width, copies_of(config), least=least):
            return "left_pad", ""
    reason = next(packing_bound(call, config, plan, traits), "")
    if reason and asked == "packed_prefill":
        return None, f"strategy 'packed_prefill' is not exact here: {reason}"
    return "left_pad" if reason else "packed_prefill", ""


def is_right_already(asked: str, call: GenerateCall, padding: Padding) -> bool:
    """Whether a call with a mask is left-padded, right as it is, and not worth packing; False says nothing.

    Told at the cost of a few operations, for the commonest calls alone.
    """
    if asked not in ("auto", "left_pad") or not is_plain(call):
        return False
    traits = traits_of(call.model)
    if not traits.known or _not_exact(traits, call.batch, 0, math.inf, 0):
        return False
    if asked == "left_pad" or call.batch * call.width <= packed_prefill.FEWEST:
        return True
    least = packed_prefill.fewest_saved(padding.real.device.type, hidden_size(call.model))
    return not packed_prefill.pays(padding.real.sum(1).tolist(), call.width, 1, least=least)


def _not_exact(traits: Traits, rows: int, new_tokens: int, padded_width: float, negative_width: int) -> str:
    """Why left padding does not give each row what it gets alone; empty where it does.

    `padded_width` is 0 where the model sees no pad.
    """
    if traits.mixes_rows and rows > 1:
        return f"{traits.name} (rows of one batch change one another, with or without pads)"
    if rows == 1 and padded_width and not traits.masks_one_row:
        return f"{traits.name} (in this release it masks no pads in a batch of one row)"
    padded_width = max(padded_width, negative_width)
    if padded_width and padded_width + new_tokens > traits.exact_up_to:
        return f"{traits.name} ({traits.reason})"
    return ""
