"""The prompts of the demo: those that come with it, or one a line of a file."""

from __future__ import annotations

from pathlib import Path

from ..errors import PadfixError

WORDS = (
    "a",
    "to",
    "fix",
    "left",
    "mask",
    "right",
    "batch",
    "repair",
    "padding",
    "sequence",
    "attention",
    "transforms",
)
"""For the embedded model. One word has 10 letters, so one row of the batch has no pads."""

SENTENCES = (
    "The capital of France is",
    "Water boils at",
    "One, two, three, four,",
    "The first person to walk on the moon was",
    "My favourite colour is",
    "In 1969, a crew of three left the Earth and, four days later,",
    "Roses are red, violets are",
    "Hello",
)
"""For any other model."""


def read(path: Path) -> tuple[str, ...]:
    """The lines of a UTF-8 file that are not blank; `PadfixError` where there are none to read."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise PadfixError(f"The prompts in {path} are not UTF-8. Save the file as UTF-8.") from error
    except OSError as error:
        raise PadfixError(
            f"Cannot read prompts from {path}: {error.strerror}. Pass a text file with one prompt a line."
        ) from error
    prompts = tuple(line for line in lines if line.strip())
    if not prompts:
        raise PadfixError(f"{path} holds no prompts, only blank lines. Write one prompt a line.")
    return prompts
