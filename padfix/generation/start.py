"""The start token, which `generate` puts before the prompts of a decoder that has an encoder."""

from __future__ import annotations

from collections.abc import Iterator

from transformers import GenerationConfig

from ..layout.plan import LayoutPlan
from .call import GenerateCall

__all__ = ["begin_with_start", "start_bound"]

# The one model type whose prompts `generate` takes as they come; Donut's has a table of positions.
STARTS_ITSELF = "whisper"


def start_bound(call: GenerateCall, config: GenerationConfig, plan: LayoutPlan) -> Iterator[str]:
    """What stands in the way of pads before a decoder's prompts.

    `generate` looks at the first column, pads included, and puts start tokens before it where no row has one there.
    They would stand before the pads, and a pad with the id of the start token would keep them from all rows.
    """
    begins = begin_with_start(call, config, plan)
    if not begins or call.model.config.model_type == STARTS_ITSELF:
        return
    first = plan.to_model(call.arguments[call.prompt_name])[:, 0]
    if begins != {True} or not bool((first == config.decoder_start_token_id).any()):
        yield f"{call.prompt_name}= (the decoder's start token would stand before the pads)"


def begin_with_start(call: GenerateCall, config: GenerationConfig, plan: LayoutPlan) -> set[bool]:
    """Whether the prompts of a decoder begin with its start token: one answer, or both; none for other calls.

    Rows without a real token do not count.
    """
    if not call.is_decoder_prompt or call.ids is None or call.ids.ndim != 2:
        return set()
    firsts = [int(row[-length]) for row, length in zip(plan.to_model(call.ids), plan.lengths, strict=True) if length]
    return {first == config.decoder_start_token_id for first in firsts}
