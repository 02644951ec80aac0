"""padfix: batched `generate` in which every prompt gets exactly what it gets alone.

`import padfix` once at start-up and `PADFIX=fix` in the environment are all it takes; `padfix.install()` does the same
from code. Names are resolved when first used: importing padfix loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AmbiguousPaddingError,
    LoadingError,
    MissingPadTokenError,
    PadfixError,
    PadfixWarning,
    PromptError,
    RightPaddingError,
    SettingsError,
    UnsupportedCallError,
    UnsupportedVersionError,
)
from .notices import Stats, stats
from .patch import activate_from_environment, install, is_installed, suppressed, uninstall
from .registry import register_architecture, register_prompt_tensor
from .settings import Settings, override

if TYPE_CHECKING:
    from .checklist import doctor
    from .equivalence.report import EquivalenceReport
    from .equivalence.verify import verify
    from .generation.pad_aware import PadAwareLogitsProcessor
    from .once import generate
    from .picture import show
    from .policy import BatchPolicy
    from .policy import BatchPolicy as LlamaBatchPolicy

__all__ = [
    "AmbiguousPaddingError",
    "BatchPolicy",
    "EquivalenceReport",
    "LlamaBatchPolicy",
    "LoadingError",
    "MissingPadTokenError",
    "PadAwareLogitsProcessor",
    "PadfixError",
    "PadfixWarning",
    "PromptError",
    "RightPaddingError",
    "Settings",
    "SettingsError",
    "Stats",
    "UnsupportedCallError",
    "UnsupportedVersionError",
    "__version__",
    "doctor",
    "generate",
    "install",
    "is_installed",
    "override",
    "register_architecture",
    "register_prompt_tensor",
    "show",
    "stats",
    "suppressed",
    "uninstall",
    "verify",
]

__version__ = "0.1.0"

# Names that need torch and transformers, and where they are.
_LAZY = {
    "BatchPolicy": ".policy:BatchPolicy",
    "EquivalenceReport": ".equivalence.report:EquivalenceReport",
    "LlamaBatchPolicy": ".policy:BatchPolicy",
    "PadAwareLogitsProcessor": ".generation.pad_aware:PadAwareLogitsProcessor",
    "doctor": ".checklist:doctor",
    "generate": ".once:generate",
    "show": ".picture:show",
    "verify": ".equivalence.verify:verify",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        value = getattr(import_module(module, __name__), attribute)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))


activate_from_environment()
