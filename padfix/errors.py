"""What padfix raises and warns with. Every message says what was seen, where, and what to do."""

from __future__ import annotations

__all__ = [
    "AmbiguousPaddingError",
    "LoadingError",
    "MissingPadTokenError",
    "PadfixError",
    "PadfixWarning",
    "PromptError",
    "RightPaddingError",
    "SettingsError",
    "UnsupportedCallError",
    "UnsupportedVersionError",
]


class PadfixError(Exception):
    """Any error of padfix's own. Catch this one to catch them all."""


class SettingsError(PadfixError, ValueError):
    """A setting has a value that is not in its list. Use one of the values that the message gives."""


class UnsupportedVersionError(PadfixError, RuntimeError):
    """This transformers cannot be patched. Install a release within the range that the message gives."""


class RightPaddingError(PadfixError, ValueError):
    """A batch has pads after real tokens, and the mode is strict.

    Pad on the left (`tokenizer.padding_side = "left"`), or let the mode `fix` repair it.
    """


class AmbiguousPaddingError(PadfixError, ValueError):
    """Pad and EOS share an id, no attention_mask was given, and the mode is strict.

    Pass the tokenizer's attention_mask: only the caller knows which of the ids are pads.
    """


class UnsupportedCallError(PadfixError, ValueError):
    """A padded batch that padfix cannot make right, and the mode is strict.

    The message names what stands in the way; take it out of the call, or run the prompts one at a time.
    """


class MissingPadTokenError(PadfixError, ValueError):
    """A batch of several prompts, and no token to pad it with.

    Set `tokenizer.pad_token`, or pass `pad_token_id=` to `generate`.
    """


class PromptError(PadfixError, ValueError):
    """A prompt that cannot stand in a batch: no tokens, no chat template for a chat, no such file.

    The message names the prompt and what to change.
    """


class LoadingError(PadfixError, ValueError):
    """A model that transformers cannot load, or an option that needs a package that is missing.

    The message names both and gives the command that installs the package.
    """


class PadfixWarning(UserWarning):
    """What the caller should know of a call: that it was left as it is, or what was assumed to repair it.

    Silence one kind with `warnings.filterwarnings("ignore", message=..., category=padfix.PadfixWarning)`.
    """
