"""Calls of encoder-decoder models: the processors that read the encoder's ids do not see the encoder's pads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..generation.decoding import encoder_without_pads
from ..notices import call_site, warn_once

__all__ = ["encoder_aware"]


def encoder_aware(
    original: Callable[..., Any], hooks_in_place: Callable[[], AbstractContextManager[None]], *, only_warn: bool
) -> Callable[..., Any]:
    """`original` with lists of processors in which those that read the encoder's ids do not see its pads.

    With `only_warn` they do, and it is said. The arguments are the caller's own either way.
    """

    def say(processor: Any) -> None:
        warn_once(
            f"{type(processor).__name__} sees the pads of the encoder's ids: a padded row may differ from its prompt "
            "alone. Mode 'fix' repairs it.",
            call_site(),
        )

    def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        with hooks_in_place(), encoder_without_pads(model, say if only_warn else None):
            return original(model, *args, **kwargs)

    return generate
