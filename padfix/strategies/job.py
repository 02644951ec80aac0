"""What a strategy is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import GenerationConfig

from ..generation.call import GenerateCall
from ..layout.plan import LayoutPlan

__all__ = ["Job"]


@dataclass(frozen=True, eq=False)
class Job:
    """One padded call of `generate`.

    Attributes:
        call: The call as the caller made it.
        config: The generation config that it will run with.
        plan: The batch in the model's layout.
        rewrite: Whether the prompt has to be rewritten: its columns, its mask, its positions or ids under pads.
        pad_aware: Whether the library's processors are kept from seeing the pads that the model sees.
        reads_history: Those of them that would see pads, a phrase each.
        one_row: Whether each row has to run by itself where rows run apart.
    """

    call: GenerateCall
    config: GenerationConfig
    plan: LayoutPlan
    rewrite: bool
    pad_aware: bool
    reads_history: tuple[str, ...]
    one_row: bool = False
