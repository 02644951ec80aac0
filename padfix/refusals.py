"""How a call is refused: raised in strict mode, else said and left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import notices, wording
from .errors import AmbiguousPaddingError, PadfixError, RightPaddingError, UnsupportedCallError
from .layout.detect import Padding
from .settings import Settings

__all__ = ["leave", "raise_if_misplaced", "say", "unread"]


def raise_if_misplaced(where: wording.Where, padding: Padding) -> None:
    """Raises for a batch that transformers would continue after its pads."""
    if padding.guessed:
        raise AmbiguousPaddingError(f"{wording.guessed(where, padding)}. Pass the tokenizer's mask.")
    if padding.misplaced:
        raise RightPaddingError(f"{wording.misplaced(where, padding)} {wording.PAD_LEFT}")


def leave(seen: str, obstacles: tuple[str, ...], settings: Settings, *, remedy: str = wording.TAKE_OUT) -> None:
    """Says why a call stays as it is, or raises it in strict mode."""
    notices.refused(obstacles)
    why = f"padfix cannot make this call right: {'; '.join(obstacles)}." if obstacles else ""
    message = f"{seen} {why}".strip()
    if settings.mode == "strict":
        raise UnsupportedCallError(f"{message} {remedy}")
    if settings.mode != "warn":
        message = f"{message} It runs as it is, and its padded rows may be wrong. {remedy}"
    say(message, settings)


def say(message: str, settings: Settings) -> None:
    """Warns at the caller's line: of every call, or in warn mode of every call site once."""
    if settings.mode == "warn":
        notices.warn_once(message, notices.call_site())
    else:
        notices.warn(message)


def unread(original: Callable[[], Any], error: Exception, settings: Settings) -> Any:
    """What transformers makes of a call whose arguments padfix cannot read: its own exception, or its output.

    `error` is what came of reading them. Nothing is said of a call that transformers refuses too.

    Raises:
        UnsupportedCallError: In strict mode.
    """
    obstacles = (f"its arguments cannot be read ({type(error).__name__})",)
    if settings.mode == "strict":
        try:
            leave("", obstacles, settings)
        except PadfixError as refusal:
            notices.tell(refusal)
            raise refusal from error
    output = original()
    leave("", obstacles, settings)
    return output
