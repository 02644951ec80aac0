"""The repair for one call of `generate`, with nothing installed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from . import notices
from .generation.reach import reaches_generation_mixin
from .nesting import seen_to
from .patch import hooks_in_place, is_installed
from .pipeline import run
from .record import record
from .settings import ENVIRONMENT, effective

__all__ = ["generate"]


def generate(model: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`model.generate(*args, **kwargs)` with padfix's repair for this one call, whether padfix is installed or not.

    Settings are those of the environment and of `override`, not those of `install`; a mode of `off` counts as `fix`
    here, since the call asks for it. A model whose class has a `generate` of its own (PEFT's excepted) is not reached
    this way, and a warning says so: install padfix for it.

    Returns:
        What `model.generate` returns, in the caller's layout: ids of shape (batch, prompt width + new tokens), or a
        `ModelOutput`.

    Raises:
        PadfixError: In strict mode: RightPaddingError, AmbiguousPaddingError or UnsupportedCallError.
        SettingsError: The strategy that the settings name is not exact for the model.
    """
    settings = effective(ENVIRONMENT)
    if settings.mode == "off":
        settings = replace(settings, mode="fix")
    with record.lock:  # no other thread is about to install
        method = model.generate  # the instance's own, where it has one
        # Transformers' own method, once taken, meets no padfix that is installed later; PEFT's and an instance's may.
        may_be_met = is_installed() or not _is_of_class(model)
    if not reaches_generation_mixin(model):
        notices.warn(
            f"{type(model).__name__} has a generate of its own, which padfix.generate cannot repair: it runs as it is. "
            "Use padfix.install(), which repairs what such a method calls."
        )
        return method(*args, **kwargs)

    def original(_: Any, *args: Any, **kwargs: Any) -> Any:
        with seen_to() if may_be_met else nullcontext():  # an installed padfix must not treat the call once more
            return method(*args, **kwargs)

    return run(original, model, args, kwargs, settings, hooks_in_place)


def _is_of_class(model: Any) -> bool:
    """Whether `model.generate` is the library's method, found by the model's class."""
    owner = next((one for one in type(model).__mro__ if "generate" in vars(one)), None)
    return owner is not None and owner.__name__ == "GenerationMixin" and "generate" not in vars(model)
