"""padfix: batched `generate` in which every prompt gets exactly what it gets alone.

`import padfix` once at start-up and `PADFIX=fix` in the environment are all it takes; `padfix.install()` does the same
from code. Names are resolved when first used: importing padfix loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AmbiguousPaddingError,
    PadfixError,
    PadfixWarning,
    RightPaddingError,
    SettingsError,
    UnsupportedCallError,
    UnsupportedVersionError,
)
from .patch import activate_from_environment, install, is_installed, suppressed, uninstall
from .settings import Settings, override

if TYPE_CHECKING:
    from .generation.pad_aware import PadAwareLogitsProcessor
    from .once import generate

__all__ = [
    "AmbiguousPaddingError",
    "PadAwareLogitsProcessor",
    "PadfixError",
    "PadfixWarning",
    "RightPaddingError",
    "Settings",
    "SettingsError",
    "UnsupportedCallError",
    "UnsupportedVersionError",
    "__version__",
    "generate",
    "install",
    "is_installed",
    "override",
    "suppressed",
    "uninstall",
]

__version__ = "0.1.0"

# Names that need torch and transformers, and where they are.
_LAZY = {"PadAwareLogitsProcessor": ".generation.pad_aware", "generate": ".once"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))


activate_from_environment()
