"""GenerateCall: the arguments of one `generate` call by name, and which of them have the prompt axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..registry import PROMPT_TENSORS, Axes

__all__ = ["PARAMETERS", "SEQUENCE_AXES", "GenerateCall", "bind"]

# The parameters of GenerationMixin.generate that may be passed by position in every release from 4.46 to 5.24; some
# have one or two more behind these: compat.positional_parameters.
PARAMETERS = (
    "inputs",
    "generation_config",
    "logits_processor",
    "stopping_criteria",
    "prefix_allowed_tokens_fn",
    "synced_gpus",
    "assistant_model",
    "streamer",
    "negative_prompt_ids",
    "negative_prompt_attention_mask",
)


# The arguments that move with the tokens. `input_ids` and `attention_mask` are moved by name: see left_pad.
SEQUENCE_AXES: Mapping[str, Axes] = {
    "inputs_embeds": Axes(),  # (batch, width, hidden)
    "position_ids": Axes(-2, -1),  # (1 | batch, width), or (3 | 4, batch, width) for mRoPE
    "token_type_ids": Axes(),  # (batch, width), as the next three
    "mm_token_type_ids": Axes(),
    "moe_mm_token_type_ids": Axes(),
    "image_embeds_position_mask": Axes(),  # Kosmos
    "image_attention_mask": Axes(),  # (batch, width, images), Idefics
    "cross_attention_mask": Axes(),  # (batch, width, images, tiles), Mllama
}


# The same for the prompt of a decoder that has an encoder.
DECODER_AXES: Mapping[str, Axes] = {"decoder_inputs_embeds": Axes(), "decoder_position_ids": Axes()}


@dataclass(frozen=True, eq=False)
class GenerateCall:
    """One call of `generate`.

    Attributes:
        model: The model whose method was called.
        arguments: The arguments by name; the caller's own objects in a dict of ours.
        ids_name: The argument that holds the prompt's token ids; None for a prompt that is embeddings alone.
        embeds_name: The argument that holds the prompt's embeddings, or would hold them.
        mask_name: The argument that holds the prompt's mask, or would hold it.
        batch: The number of rows of the prompt.
        width: The number of columns of the prompt, as the caller passed it.

    For an encoder-decoder model the prompt is the decoder's.
    """

    model: Any
    arguments: Mapping[str, Any]
    ids_name: str | None
    embeds_name: str
    mask_name: str
    batch: int
    width: int

    @property
    def ids(self) -> Tensor | None:
        """The token ids of shape (batch, width), or None for a call with embeddings alone."""
        return None if self.ids_name is None else self.arguments[self.ids_name]

    @property
    def prompt_name(self) -> str:
        """The argument to name in a message about the prompt."""
        return self.ids_name or self.embeds_name

    @property
    def prompt_shape(self) -> tuple[int, ...]:
        """The shape of that argument."""
        return tuple(self.arguments[self.prompt_name].shape)

    @property
    def mask(self) -> Tensor | None:
        """The mask over the prompt as it was passed, if it was."""
        return self.arguments.get(self.mask_name)

    @property
    def is_decoder_prompt(self) -> bool:
        """Whether the prompt is the decoder's of an encoder-decoder model."""
        return self.mask_name == DECODER_MASK

    @property
    def sequence_axes(self) -> Mapping[str, Axes]:
        """The arguments beside ids and mask that have the prompt axis, and where."""
        return {**(DECODER_AXES if self.is_decoder_prompt else SEQUENCE_AXES), **PROMPT_TENSORS}

    def rows_axis(self, name: str) -> int | None:
        """The axis on which a tensor among the arguments has a row for each prompt; None where it has none."""
        value = self.arguments[name]
        axes = self.sequence_axes.get(name)
        axis = 0 if axes is None or name == self.mask_name else axes.batch
        return axis if -value.ndim <= axis < value.ndim and value.shape[axis] == self.batch else None

    def get(self, name: str) -> Any:
        """An argument, or None where it was not passed."""
        return self.arguments.get(name)

    def changed(self, changes: Mapping[str, Any]) -> GenerateCall:
        """This call with some arguments replaced or added."""
        return replace(self, arguments={**self.arguments, **changes})

    def without(self, *names: str) -> GenerateCall:
        """This call without some arguments."""
        return replace(self, arguments={k: v for k, v in self.arguments.items() if k not in names})


DECODER_MASK = "decoder_attention_mask"


def bind(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: tuple[str, ...] = PARAMETERS
) -> GenerateCall | None:
    """The call by names, or None where its arguments are none that a prompt could be read from.

    None stands for: arguments that do not bind, no prompt, a prompt that is no tensor, ids that are not integers or
    have one axis, an empty batch, no columns, a mask that is no tensor, tensors without cells to look at (on the device
    `meta`, sparse). What comes of those is transformers' own answer.
    """
    if len(args) > len(parameters) or any(name in kwargs for name in parameters[: len(args)]):
        return None
    arguments = {**dict(zip(parameters, args, strict=False)), **kwargs}
    if getattr(model.config, "is_encoder_decoder", False):
        ids_names, embeds_name, mask_name = ["decoder_input_ids"], "decoder_inputs_embeds", DECODER_MASK
    else:
        ids_names, embeds_name, mask_name = ["inputs", "input_ids"], "inputs_embeds", "attention_mask"
        if getattr(model, "main_input_name", "input_ids") != "input_ids":
            ids_names.remove("inputs")  # then `inputs` are pixels, say

    names = [name for name in ids_names if arguments.get(name) is not None]
    mask, embeds = arguments.get(mask_name), arguments.get(embeds_name)
    if len(names) > 1 or not (mask is None or _has_cells(mask)):
        return None
    ids_name = names[0] if names else None
    ids = None if ids_name is None else arguments[ids_name]
    if ids is not None and not _are_ids(ids):
        return None
    if embeds is not None and not (_has_cells(embeds) and embeds.ndim == 3):
        return None
    if embeds is not None and ids is not None and ids.shape[1] == 0:
        ids_name = ids = None  # the empty ids that may stand beside embeddings
    prompt = embeds if embeds is not None else ids
    if prompt is None or 0 in prompt.shape[:2]:
        return None
    return GenerateCall(model, arguments, ids_name, embeds_name, mask_name, prompt.shape[0], prompt.shape[1])


def _are_ids(ids: Any) -> bool:
    return (
        _has_cells(ids)
        and ids.ndim >= 2
        and not ids.is_floating_point()
        and not ids.is_complex()
        and ids.dtype != torch.bool
    )


def _has_cells(value: Any) -> bool:
    """Whether it is a tensor whose cells can be looked at one by one."""
    return isinstance(value, Tensor) and not value.is_meta and value.layout == torch.strided
