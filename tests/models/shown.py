"""Prompts with pictures, videos or sounds, and the batches that a processor makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from facts import RELEASE
from oracle import right_padded
from torch import Tensor

from .heard import is_sound
from .seen import Item, Maker
from .text import PAD, prompts_for

__all__ = ["Asked", "asked"]

LENGTHS = (4, 9, 2, 6)

# Of what an item says, where the pictures have an axis of rows before that of the row's pictures.
IN_ROWS = frozenset(
    {
        "Idefics2ForConditionalGeneration",
        "Idefics3ForConditionalGeneration",
        "IdeficsForVisionText2Text",
        "GraniteDoclingForConditionalGeneration",
        "MllamaForConditionalGeneration",
        "SmolVLMForConditionalGeneration",
    }
)


# Classes whose placeholder is no field of the configuration, and how many an item takes where the model does not say.
MARKED = dict.fromkeys(
    (
        "ChameleonForConditionalGeneration",
        "Emu3ForConditionalGeneration",
        "Kosmos2ForConditionalGeneration",
        "Kosmos2_5ForConditionalGeneration",
    ),
    120,
)
_TILED = (
    "LlavaNextForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
)
COUNTS: Mapping[str, Callable[[Any, Item], int]] = {
    # Up to 4.51 the method does not yet put a newline after each row.
    **(dict.fromkeys(_TILED, lambda model, item: 36) if RELEASE < (4, 57) else {}),
    "ChameleonForConditionalGeneration": lambda model, item: 64,
    **dict.fromkeys(
        ("GraniteSpeechForConditionalGeneration", "GraniteSpeechPlusForConditionalGeneration"),
        lambda model, item: int(item["input_features_mask"].sum()),
    ),
    "Kosmos2ForConditionalGeneration": lambda model, item: int(model.config.latent_query_num),
    "Kosmos2_5ForConditionalGeneration": lambda model, item: int(model.config.latent_query_num),
    "Llama4ForConditionalGeneration": lambda model, item: 4,
    "MllamaForConditionalGeneration": lambda model, item: 1,
    "MusicFlamingoForConditionalGeneration": lambda model, item: _heard(model, item["input_features_mask"]),
    "Qwen2AudioForConditionalGeneration": lambda model, item: _heard(model, item["feature_attention_mask"]),
}


def _heard(model: Any, mask: Tensor) -> int:
    """How many features a tower like Whisper's makes of a sound."""
    tower = getattr(model, "audio_tower", None) or model.model.audio_tower
    return int(tower._get_feat_extract_output_lengths(mask.sum(-1))[1].item())


@dataclass(frozen=True)
class Prompt:
    """The ids of a prompt, and what a processor gives beside them for its pictures or sounds."""

    ids: list[int]
    items: Sequence[Item]


@dataclass(frozen=True)
class Asked:
    """Prompts, as one batch and each alone.

    Attributes:
        rows: The ids of each: those of the decoder, where there is one.
        batch: What a processor gives for them as one batch, by how it pads.
        each: What it gives for one of them alone; None takes away what the model does not take.
    """

    rows: Sequence[list[int]]
    batch: Callable[[Callable[..., dict[str, Tensor]]], dict[str, Any]]
    each: Callable[[int], dict[str, Any]]


def asked(model: Any, maker: Maker, shares: Sequence[int], *, seed: int = 3) -> Asked:
    """A prompt for each number of items; an encoder takes one for each of its decoder's prompts."""
    if not model.config.is_encoder_decoder:
        prompts = prompts_of(model, maker, shares, seed=seed)
        return Asked(
            [prompt.ids for prompt in prompts],
            lambda padder: batch_of(model, prompts, padder),
            lambda row: batch_of(model, [prompts[row]], right_padded),
        )
    rows = prompts_for(model, lengths=LENGTHS)
    encoded = prompts_of(model, maker, [1] * len(rows), seed=seed)
    reads = model.main_input_name == "input_ids"

    def encoder(prompts: Sequence[Prompt]) -> dict[str, Any]:
        given = batch_of(model, prompts, right_padded)
        return given if reads else given | {"input_ids": None, "attention_mask": None}

    def batch(padder: Callable[..., dict[str, Tensor]]) -> dict[str, Any]:
        padded = padder(rows, pad=PAD)
        decoder = {"decoder_input_ids": padded["input_ids"], "decoder_attention_mask": padded["attention_mask"]}
        return {name: value for name, value in encoder(encoded).items() if value is not None} | decoder

    return Asked(rows, batch, lambda row: encoder([encoded[row]]) | {"decoder_input_ids": torch.tensor([rows[row]])})


def prompts_of(model: Any, maker: Maker, shares: Sequence[int], *, seed: int) -> list[Prompt]:
    """A prompt for each number of items, each item unlike the others, a word after each, so that no window hides it."""
    draw = torch.Generator().manual_seed(seed)
    prompts, number = [], 0
    for words, count in zip(words_of(model), shares, strict=True):
        first = len(words) - count
        ids, items = words[:first], list[Item]()
        for word in words[first:]:
            item = maker(model, draw, number)
            ids = [*ids, *tokens_of(model, item), word]
            items += [item] if item else []
            number += 1
        prompts.append(Prompt(ids, items))
    return prompts


def words_of(model: Any) -> list[list[int]]:
    """The words of the prompts; those of an encoder are as many in each, the decoder's are its prompts."""
    return prompts_for(model, lengths=[5] * len(LENGTHS) if model.config.is_encoder_decoder else LENGTHS)


def tokens_of(model: Any, item: Item) -> list[int]:
    """The tokens of a prompt that stand for an item."""
    token = placeholder(model, item)
    if token is None:
        return []
    start = first_of(model.config, "vision_start_token_id", "image_start_token_id")
    end = first_of(model.config, "vision_end_token_id", "image_end_token_id")
    around = [[one] if one is not None else [] for one in (start, end)]
    return [*around[0], *[token] * features(model, item), *around[1]]


def placeholder(model: Any, item: Item) -> int | None:
    """The id that stands for a feature of an item; None where nothing does."""
    if type(model).__name__ in MARKED:
        return MARKED[type(model).__name__]
    if is_sound(item):
        return first_of(model.config, "audio_token_id", "audio_token_index")
    return first_of(model.config, "image_token_id", "image_token_index", "video_token_id", "video_token_index")


def first_of(config: Any, *names: str) -> int | None:
    """The first of these fields of a configuration that holds a number."""
    found = (getattr(config, name, None) for name in names)
    return next((one for one in found if isinstance(one, int)), None)


def features(model: Any, item: Item) -> int:
    """How many features the model makes of an item, which is how many placeholders it takes."""
    if type(model).__name__ in COUNTS:
        return COUNTS[type(model).__name__](model, item)
    seen = ("get_image_features", "get_video_features")
    if first_of(model.config, "image_token_id", "image_token_index") is None:
        seen = seen[::-1]
    owners = (getattr(model, "model", None), model)
    asked = ("get_audio_features",) if is_sound(item) else seen
    ways = (getattr(one, name, None) for name in asked for one in owners)
    way = next((found for found in ways if found is not None), None)
    if way is None:  # up to 4.51 there is none for queries and for pixels that are shuffled: sixteen patches are four
        return 4
    with torch.no_grad():
        made = way(**_arguments(model, way, item))
    return _length(made)


def _arguments(model: Any, way: Callable[..., Any], item: Item) -> dict[str, Any]:
    """What of an item a method takes, and what else it asks for, from the configuration."""
    takes = inspect.signature(way).parameters
    rest = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    needed = [name for name, one in takes.items() if one.default is one.empty and hasattr(model.config, name)]
    given = {name: value for name, value in item.items() if rest or name in takes}
    return {name: getattr(model.config, name) for name in needed} | given


def _length(made: Any) -> int:
    """The number of features of one item, in what a release gives for it."""
    if getattr(made, "deepstack_features", None) and made.pooler_output is None:  # Granite 4 Vision's
        made = made.deepstack_features[0][1]
    for name in ("pooler_output", "last_hidden_state"):
        if getattr(made, name, None) is not None:
            made = getattr(made, name)
            break
    while isinstance(made, (list, tuple)):
        made = made[0]
    return int(made.numel() // made.shape[-1])


def batch_of(model: Any, prompts: Sequence[Prompt], padder: Callable[..., dict[str, Tensor]]) -> dict[str, Any]:
    """What a processor gives for these prompts as one batch."""
    inputs: dict[str, Any] = padder([prompt.ids for prompt in prompts], pad=PAD)
    name = type(model).__name__
    if any(prompt.items for prompt in prompts):
        inputs |= _by_row(prompts) if name in IN_ROWS else _joined(model, prompts)
    return inputs | _by_column(model, inputs)


def _joined(model: Any, prompts: Sequence[Prompt]) -> dict[str, Tensor]:
    """The items of all prompts, one after the other."""
    items = [item for prompt in prompts for item in prompt.items]
    axis = {"pixel_values": -1} if "target_sizes" in items[0] else {}
    if "image_token_pooling" in items[0]:  # which counts the patches of the whole batch
        items = [item | {"image_token_pooling": item["image_token_pooling"] + 16 * at} for at, item in enumerate(items)]
    return {name: torch.cat([item[name] for item in items], axis.get(name, 0)) for name in items[0]}


def _by_row(prompts: Sequence[Prompt]) -> dict[str, Tensor]:
    """The items of each prompt on an axis of their own, zeros where a prompt has fewer."""
    most = max(len(prompt.items) for prompt in prompts)
    first = next(item for prompt in prompts for item in prompt.items)
    return {
        name: torch.cat(
            [
                torch.cat(
                    [item[name] for item in prompt.items] + [torch.zeros_like(value)] * (most - len(prompt.items)), 1
                )
                for prompt in prompts
            ]
        )
        for name, value in first.items()
    }


def _by_column(model: Any, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """What a processor says of each column."""
    takes = inspect.signature(model.forward).parameters
    token = placeholder(model, {})
    real = inputs["attention_mask"]
    marked = (inputs["input_ids"] == (-1 if token is None else token)) & (real == 1)
    names = ("mm_token_type_ids", "moe_mm_token_type_ids", "token_type_ids", "image_embeds_position_mask")
    columns = {name: marked.long() for name in names if name in takes}
    if type(model).__name__ == "PaliGemmaForConditionalGeneration":  # its processor says it of what is learned from
        del columns["token_type_ids"]
    if "pixel_values" in inputs and "cross_attention_mask" in takes:
        tiles = inputs["aspect_ratio_mask"]
        seen = (torch.arange(tiles.shape[1]) < marked.long().cumsum(1)[:, :, None]) & (real == 1)[:, :, None]
        columns["cross_attention_mask"] = seen.long()[..., None] * tiles[:, None]
    if "pixel_values" in inputs and "image_attention_mask" in takes:
        columns["image_attention_mask"] = real[..., None].expand(-1, -1, inputs["pixel_values"].shape[1])
    return columns
