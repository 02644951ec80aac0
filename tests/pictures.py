"""Tiny models that look at pictures, and padded batches of prompts with some: several in a row, or none.

model = build("qwen2_vl")
prompts = prompts_of("qwen2_vl", PICTURES)
check(model, batch_of(prompts, right_padded), [prompt.ids for prompt in prompts], each=apart(prompts), **DECODING)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from facts import RELEASE
from oracle import BOS, EOS, LLAMA, PAD
from torch import Tensor

# How many pictures each prompt has: several, none, one; as many in all as there are prompts.
PICTURES = (2, 0, 1, 1)
WORDS = ([5, 17, 33, 8, 61, 24], [11, 42, 7], [71, 13, 55], [29, 3, 64, 19])

IMAGE, VIDEO, START, END = 95, 94, 93, 92
# No model says that it sees a picture.
DECODING: dict[str, Any] = {"suppress_tokens": [IMAGE, VIDEO, START, END]}

_TEXT = LLAMA | {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "tie_word_embeddings": False}
_CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 8,
    "patch_size": 4,
}
_ROPE = {"rope_type": "default"}
_TOKENS = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START, "vision_end_token_id": END}
_QWEN = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 4, "spatial_merge_size": 2}
_HUNYUAN = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_MLLAMA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "attention_heads": 4, "image_size": 28}

# Name -> (class, configuration).
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "qwen2_vl": (
        "Qwen2VLForConditionalGeneration",
        _TEXT
        | _TOKENS
        | {"vision_config": _QWEN, "rope_scaling": _ROPE | {"type": "mrope", "mrope_section": [1, 1, 2]}},
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        {
            "text_config": {"model_type": "llama"} | _TEXT,
            "vision_config": _CLIP,
            "image_token_index": IMAGE,
            "image_seq_length": 4,
        },
    ),
    "llava_next": (
        "LlavaNextForConditionalGeneration",
        {
            "text_config": {"model_type": "llama"} | _TEXT,
            "vision_config": _CLIP,
            "image_token_index": IMAGE,
            "image_seq_length": 4,
            "image_grid_pinpoints": [[8, 8], [8, 16], [16, 16]],
        },
    ),
    "mllama": (
        "MllamaForConditionalGeneration",
        {
            "text_config": {"model_type": "mllama_text_model", "cross_attention_layers": [1], "rope_scaling": _ROPE}
            | _TEXT
            | {"num_hidden_layers": 3},
            "vision_config": {"model_type": "mllama_vision_model", "max_num_tiles": 4, "num_global_layers": 1}
            | {"intermediate_layers_indices": [0, 1], "vision_output_dim": 96}
            | _MLLAMA,
            "image_token_index": IMAGE,
        },
    ),
    "hunyuan_vl": (
        "HunYuanVLForConditionalGeneration",
        {
            "text_config": _TEXT
            | {"head_dim": 8, "rope_parameters": _ROPE | {"rope_theta": 10000.0, "mrope_section": [1, 1, 1, 1]}},
            "vision_config": _HUNYUAN | {"num_key_value_heads": 4, "out_hidden_size": 32, "text_hidden_size": 32},
            "image_token_id": IMAGE,
        },
    ),
}


@functools.cache
def _weights(name: str) -> Any:
    class_name, sizes = MODELS[name]
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**sizes)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # decisive, and gates are open
            weight.normal_(0, 0.2) if weight.ndim >= 2 else weight.add_(torch.randn_like(weight) * 0.1)
    for special, value in {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}.items():
        setattr(model.generation_config, special, value)
    return model


def is_there(name: str) -> bool:
    """Whether the installed release of transformers has the model, and answers a prompt without a picture."""
    return hasattr(transformers, MODELS[name][0]) and (RELEASE >= (4, 51) or not name.startswith("llava"))


def build(name: str) -> Any:
    """A model of the table in float32 with fixed weights; the caller's own."""
    import copy

    return copy.deepcopy(_weights(name))


@dataclass(frozen=True)
class Prompt:
    """The ids of a prompt, and what a processor gives beside them: its pictures, and numbers about them."""

    ids: list[int]
    media: Mapping[str, Tensor]


def prompts_of(name: str, pictures: Sequence[int] = PICTURES) -> list[Prompt]:
    """A prompt for each number of pictures, each picture unlike the others, some of other sizes."""
    draw = torch.Generator().manual_seed(3)
    prompts, seen = [], 0
    for words, count in zip(WORDS, pictures, strict=False):
        ids, shown = [words[0]], list[dict[str, Tensor]]()
        for _ in range(count):
            tokens, media = MAKERS[name](draw, seen)
            ids, shown, seen = [*ids, *tokens], [*shown, media], seen + 1
        media = {key: torch.cat([one[key] for one in shown]) for key in (shown[0] if shown else ())}
        prompts.append(Prompt([*ids, *words[1:]], MERGED.get(name, dict)(media)))
    return prompts


def _flat(draw: torch.Generator, number: int, *, patch: int, frames: int) -> tuple[Tensor, tuple[int, int]]:
    """The patches of a picture, one a row, and how many it has down and across."""
    down, across = ((4, 4), (2, 4), (4, 2), (2, 2))[number % 4]
    return torch.randn(down * across, 3 * frames * patch * patch, generator=draw), (down, across)


def _qwen(draw: torch.Generator, number: int) -> tuple[list[int], dict[str, Tensor]]:
    pixels, (down, across) = _flat(draw, number, patch=4, frames=2)
    media = {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, down, across]])}
    return [START, *[IMAGE] * (down * across // 4), END], media


def _hunyuan(draw: torch.Generator, number: int) -> tuple[list[int], dict[str, Tensor]]:
    pixels, (down, across) = _flat(draw, number, patch=16, frames=1)
    media = {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, down, across]])}
    return [*[IMAGE] * (down // 2 * (across // 2 + 1) + 2), 41], media


def _llava(draw: torch.Generator, number: int) -> tuple[list[int], dict[str, Tensor]]:
    return [IMAGE] * 4, {"pixel_values": torch.randn(1, 3, 8, 8, generator=draw)}


def _llava_next(draw: torch.Generator, number: int) -> tuple[list[int], dict[str, Tensor]]:
    size, tokens = (((8, 8), 10), ((8, 16), 14), ((16, 16), 24))[number % 3]
    pixels = torch.randn(1, 5, 3, 8, 8, generator=draw)
    return [*[IMAGE] * tokens, 41], {"pixel_values": pixels, "image_sizes": torch.tensor([size])}


def _mllama(draw: torch.Generator, number: int) -> tuple[list[int], dict[str, Tensor]]:
    mask = torch.tensor([[[1, 1, 0, 0]], [[1, 0, 0, 0]]])[number % 2][None]
    media = {
        "pixel_values": torch.randn(1, 1, 4, 3, 28, 28, generator=draw),
        "aspect_ratio_ids": torch.tensor([[number % 2 + 1]]),
        "aspect_ratio_mask": mask,
    }
    return [IMAGE], media


def _one_axis_more(media: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The pictures of one prompt on an axis of their own."""
    return {name: value.transpose(0, 1) for name, value in media.items()}


Maker = Callable[[torch.Generator, int], tuple[list[int], dict[str, Tensor]]]
MAKERS: Mapping[str, Maker] = {
    "qwen2_vl": _qwen,
    "hunyuan_vl": _hunyuan,
    "llava": _llava,
    "llava_next": _llava_next,
    "mllama": _mllama,
}
MERGED = {"mllama": _one_axis_more}


def inputs_of(
    model: Any, prompts: Sequence[Prompt], padder: Callable[..., dict[str, Tensor]], *, pad: int = PAD
) -> dict[str, Tensor]:
    """What a processor gives for these prompts as one batch."""
    inputs = padder([prompt.ids for prompt in prompts], pad=pad)
    names = {name: None for prompt in prompts for name in prompt.media}
    for name in names:
        given = [prompt.media.get(name) for prompt in prompts]
        inputs[name] = _filled(given) if is_by_row(model) else torch.cat([one for one in given if one is not None])
    if is_by_row(model) and names:
        inputs["cross_attention_mask"] = _cross_attention(inputs)
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == IMAGE).long() * inputs["attention_mask"]
    return inputs


def is_by_row(model: Any) -> bool:
    """Whether pictures have an axis of rows before that of the row's pictures."""
    return type(model).__name__ == "MllamaForConditionalGeneration"


def _filled(given: Sequence[Tensor | None]) -> Tensor:
    """One tensor of shape (rows, most pictures, ...), zeros where a row has fewer pictures."""
    most = max(one.shape[1] for one in given if one is not None)
    shape = next(one.shape[2:] for one in given if one is not None)
    rows = [one if one is not None else torch.zeros(1, 0, *shape) for one in given]
    dtype = next(one.dtype for one in given if one is not None)
    return torch.cat([torch.cat((row, row.new_zeros(1, most - row.shape[1], *shape)), 1) for row in rows]).to(dtype)


def _cross_attention(inputs: Mapping[str, Tensor]) -> Tensor:
    """Which tiles of which pictures each column sees, of shape (rows, columns, pictures, tiles).

    Each column sees the pictures that stand before it.
    """
    tiles = inputs["aspect_ratio_mask"]
    before = ((inputs["input_ids"] == IMAGE) & (inputs["attention_mask"] == 1)).long().cumsum(1)
    seen = torch.arange(tiles.shape[1]) < before[:, :, None]
    return (seen & (inputs["attention_mask"] == 1)[:, :, None]).long()[..., None] * tiles[:, None]


def apart(model: Any, prompts: Sequence[Prompt]) -> Callable[[int], dict[str, Tensor]]:
    """What a processor gives for each prompt alone."""

    def each(row: int) -> dict[str, Tensor]:
        return inputs_of(model, [prompts[row]], lambda rows, pad: _alone(rows))

    return each


def _alone(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
