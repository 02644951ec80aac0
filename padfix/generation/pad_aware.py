"""A logits processor of the user's own, shown each row without its pads."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from transformers import LogitsProcessor

from ..layout.plan import LayoutPlan
from .history import by_length, leading_pads

__all__ = ["PadAwareLogitsProcessor"]


class PadAwareLogitsProcessor(LogitsProcessor):
    """Any stateless logits processor, shown each row as if it stood alone: without the pads of the prompt.

    For a processor of your own that reads the token history, in a batch that is padded anywhere:

        generate(**batch, logits_processor=[PadAwareLogitsProcessor(mine, batch["attention_mask"])])

    Rows with equally many real tokens share a call of the processor, so it loops over prompt lengths, not over rows.

    Args:
        processor: Called with ids of shape (rows, real tokens so far) and scores of shape (rows, vocabulary), as in a
            batch of its own; it must treat each row by itself and keep nothing from one call to the next.
        prompt_mask: Shape (batch, width): which columns of the prompt are real, in the layout of the ids that
            `generate` was called with.
    """

    def __init__(self, processor: Callable[[Tensor, Tensor], Tensor], prompt_mask: Tensor) -> None:
        self.processor = processor
        self.plan = LayoutPlan.from_mask(prompt_mask, trim=False)
        self.pads = leading_pads(self.plan)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The processed scores of shape (rows, vocabulary); rows are k for each prompt in turn.

        Raises:
            ValueError: `input_ids` are not as many rows as the mask, or a multiple, or have fewer columns.
        """
        ids = self.plan.to_model(input_ids)
        return by_length(self.processor, ids, scores, self.pads)
