"""What a strategy is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from transformers import GenerationConfig

from ..generation.cache import PassedCache
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
        cache: The cache that the call brings.
        past: The mask over the columns that are in the cache already, of shape (batch, columns), where the prompt is
            the new tokens alone.
    """

    call: GenerateCall
    config: GenerationConfig
    plan: LayoutPlan
    rewrite: bool
    pad_aware: bool
    reads_history: tuple[str, ...]
    one_row: bool = False
    cache: PassedCache | None = None
    past: Tensor | None = None
