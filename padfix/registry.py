"""What users tell padfix of their models: whether left padding is exact for a class, which tensors move with tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .errors import SettingsError

__all__ = [
    "ARCHITECTURES",
    "PROMPT_TENSORS",
    "Architecture",
    "Axes",
    "register_architecture",
    "register_prompt_tensor",
    "registered",
]


@dataclass(frozen=True)
class Architecture:
    """What was registered for a class.

    Attributes:
        left_padding_exact: Whether a left-padded row gets what its prompt gets alone.
        reason: Why not; ends up in messages.
        mixes_rows: Whether rows of one batch change one another even without pads.
    """

    left_padding_exact: bool
    reason: str = ""
    mixes_rows: bool = False


class Axes(NamedTuple):
    """Where a tensor has its rows and its prompt columns, and what stands in the cells of pads."""

    batch: int = 0
    prompt: int = 1
    fill: float = 0


ARCHITECTURES: dict[type | str, Architecture] = {}
PROMPT_TENSORS: dict[str, Axes] = {}

# These move by name, with the rules that `generate` has for each.
_OWN = (
    "input_ids",
    "inputs",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "position_ids",
    "decoder_position_ids",
)


def register_architecture(
    architecture: type | str, *, left_padding_exact: bool, reason: str = "", mixes_rows: bool = False
) -> None:
    """Tells padfix whether left padding is exact for a class of models, instead of its tables and its trial run.

    Where it is not, rows of one length run apart from the others, without pads; with `mixes_rows` each row by itself.
    What is registered last counts, for the class and for those that derive from it.

    Args:
        architecture: The class, or its name.
        left_padding_exact: Whether each row of a left-padded batch gets the logits that its prompt gets alone.
        reason: Why not, a short phrase for messages.
        mixes_rows: Whether rows of one batch change one another even without pads.

    Raises:
        SettingsError: `architecture` is neither a class nor a name.

    >>> register_architecture("MyRecurrentForCausalLM", left_padding_exact=False, reason="its state runs on")
    """
    if not isinstance(architecture, (type, str)) or not architecture:
        raise SettingsError(f"register_architecture takes a class or its name, not {architecture!r}.")
    ARCHITECTURES[architecture] = Architecture(left_padding_exact, reason, mixes_rows)


def register_prompt_tensor(name: str, batch_axis: int = 0, prompt_axis: int = 1, *, fill: float = 0) -> None:
    """Tells padfix that a keyword of `generate` holds a tensor that has to move with the tokens of the prompt.

    Args:
        name: The keyword.
        batch_axis: The axis on which it has one row for each prompt.
        prompt_axis: The axis on which it has one column for each of the prompt's.
        fill: What stands in the cells of pads.

    Raises:
        SettingsError: `name` is no keyword or one that padfix moves by rules of its own, or the axes are none.

    >>> register_prompt_tensor("segment_ids")
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise SettingsError(f"register_prompt_tensor takes the name of a keyword, not {name!r}.")
    if name in _OWN:
        raise SettingsError(f"register_prompt_tensor: padfix moves {name}= by itself, there is nothing to register.")
    if type(batch_axis) is not int or type(prompt_axis) is not int or batch_axis == prompt_axis:
        raise SettingsError(
            f"register_prompt_tensor: batch_axis and prompt_axis are two axes of the tensor, not {batch_axis!r} and "
            f"{prompt_axis!r}."
        )
    PROMPT_TENSORS[name] = Axes(batch_axis, prompt_axis, fill)


def registered(model_class: type) -> Architecture | None:
    """What was registered for a class, or for the nearest class that it derives from."""
    for one in model_class.__mro__ if ARCHITECTURES else ():
        for key in (one, one.__name__):
            if key in ARCHITECTURES:
                return ARCHITECTURES[key]
    return None
