"""One picture, made in memory: the tensors that the processor of a class gives for it.

Each maker takes the model, a generator and the number of the item, so that items differ, some in size, and gives
tensors whose first axis is that of items or of their patches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor

__all__ = ["OWN", "Item", "Maker", "picture"]

Item = dict[str, Tensor]
Maker = Callable[[Any, Generator, int], Item]

# Patches down and across of the pictures of flat patches.
GRIDS = ((4, 4), (2, 4), (4, 2), (2, 2))


def picture(model: Any, draw: Generator, number: int) -> Item:
    """A picture for the model."""
    item = _maker(model)(model, draw, number)
    if "pixel_values" in item and "pixel_values" not in inspect.signature(model.forward).parameters:
        item["pixel_values_images"] = item.pop("pixel_values")  # Video-LLaVA's, up to 5.0
    return item


def _maker(model: Any) -> Maker:
    name = type(model).__name__
    if name in OWN:
        return OWN[name]
    takes = inspect.signature(model.forward).parameters
    if "image_grid_thw" in takes:
        return flat
    if "image_sizes" in takes:
        config = model.config
        if getattr(config, "image_grid_pinpoints", None):
            return tiles
        if getattr(config.vision_config, "model_type", "") == "pixtral":
            return sized
    return square


def vision(model: Any) -> Any:
    """The configuration of the part that sees."""
    for name in ("vision_config", "vq_config", "visual_config"):
        if getattr(model.config, name, None) is not None:
            return getattr(model.config, name)
    return model.config


def _one(value: Any) -> int:
    return int(value[0] if isinstance(value, (list, tuple)) else value)


def _channels(part: Any) -> int:
    names = ("in_channels", "in_chans", "num_channels")
    return next((int(getattr(part, name)) for name in names if getattr(part, name, None)), 3)


def square(model: Any, draw: Generator, number: int) -> Item:
    """One picture of the size that the model is made for."""
    size = _one(getattr(vision(model), "image_size", None) or getattr(model.config, "image_size", 16))
    return {"pixel_values": torch.randn(1, 3, size, size, generator=draw)}


def flat(model: Any, draw: Generator, number: int) -> Item:
    """The patches of a picture one a row, and its grid."""
    part, (down, across) = vision(model), GRIDS[number % len(GRIDS)]
    frames = _one(getattr(part, "temporal_patch_size", None) or getattr(part, "patch_temporal", None) or 1)
    wide = _channels(part) * frames * _one(part.patch_size) ** 2
    pixels = torch.randn(down * across, wide, generator=draw)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, down, across]])}


def sized(model: Any, draw: Generator, number: int) -> Item:
    """A picture on a canvas, of which it takes a part: Pixtral's."""
    patch = _one(vision(model).patch_size)
    down, across = GRIDS[number % 3]  # more than one token each
    pixels = torch.randn(1, 3, 4 * patch, 4 * patch, generator=draw)
    return {"pixel_values": pixels, "image_sizes": torch.tensor([[down * patch, across * patch]])}


def tiles(model: Any, draw: Generator, number: int) -> Item:
    """A picture whole and in tiles: LLaVA-NeXT's."""
    size = _one(vision(model).image_size)
    pixels = torch.randn(1, 2, 3, size, size, generator=draw)
    return {"pixel_values": pixels, "image_sizes": torch.tensor([[size, size]])}


def _plus(maker: Maker, **more: Callable[[Any, Item], Tensor]) -> Maker:
    """What a maker gives, and more, told from the model and what is there."""

    def made(model: Any, draw: Generator, number: int) -> Item:
        item = maker(model, draw, number)
        return item | {name: tell(model, item) for name, tell in more.items()}

    return made


def _shaped(maker: Maker, shape: Callable[[Any, Tensor], Tensor]) -> Maker:
    """What a maker gives, the pixels in another shape."""

    def made(model: Any, draw: Generator, number: int) -> Item:
        item = maker(model, draw, number)
        return item | {"pixel_values": shape(model, item["pixel_values"])}

    return made


def _alike(maker: Maker) -> Maker:
    """What a maker gives for the first picture, so that all are of one size."""
    return lambda model, draw, number: maker(model, draw, 0)


def _renamed(maker: Maker, **names: str) -> Maker:
    """What a maker gives, under other names; what is given no name is left out."""
    return lambda model, draw, number: {
        name: value for old, value in maker(model, draw, number).items() if (name := names.get(old))
    }


def _grid(model: Any, item: Item) -> Tensor:
    """Across and down of each of 4 by 4 patches, of shape (1, 16, 2)."""
    places = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy")
    return torch.stack(places, -1).reshape(1, 16, 2)


def _nave(model: Any, draw: Generator, number: int) -> Item:
    """The patches of a picture side by side, of shape (1, channels, patch, patches times patch): MiniCPM-V's."""
    patch, (down, across) = _one(vision(model).patch_size), ((4, 4), (4, 8), (8, 4))[number % 3]
    pixels = torch.randn(1, 3, patch, down * across * patch, generator=draw)
    return {"pixel_values": pixels, "target_sizes": torch.tensor([[down, across]])}


def _unfolded(model: Any, draw: Generator, number: int) -> Item:
    """4 by 4 patches, each with its numbers in a row, of shape (1, 16, numbers)."""
    part = vision(model)
    patch = getattr(part, "model_patch_size", None) or _one(part.patch_size)
    return {"pixel_values": torch.randn(1, 16, 3 * patch**2, generator=draw)}


def _flattened(model: Any, draw: Generator, number: int) -> Item:
    """4 by 4 patches, each with its row, its column and its numbers: Pix2Struct's."""
    places = _grid(model, {}).flip(-1).float() + 1
    wide = vision(model).patch_embed_hidden_size
    return {"flattened_patches": torch.cat([places, torch.randn(1, 16, wide, generator=draw)], -1)}


def _mllama(model: Any, draw: Generator, number: int) -> Item:
    """A picture in up to four tiles, with an axis of rows before that of the row's pictures."""
    size = vision(model).image_size
    return {
        "pixel_values": torch.randn(1, 1, 4, 3, size, size, generator=draw),
        "aspect_ratio_ids": torch.tensor([[number % 2 + 1]]),
        "aspect_ratio_mask": torch.tensor([[[1, number % 2, 0, 0]]]),
    }


def _ids(*, low: int = 20) -> Callable[[Any, Item], Tensor]:
    return lambda model, item: torch.arange(low, low + 5)[None]


_in_row = _shaped(square, lambda model, pixels: pixels[None])
_patched = _shaped(
    flat, lambda model, pixels: pixels.reshape(len(pixels), 3, vision(model).patch_size, vision(model).patch_size)
)
_asked = _plus(
    square, qformer_input_ids=_ids(), qformer_attention_mask=lambda model, item: torch.ones(1, 5, dtype=torch.long)
)


def _one_grid(*numbers: int) -> Callable[[Any, Item], Tensor]:
    return lambda model, item: torch.tensor([numbers])


def _merged(model: Any, draw: Generator, number: int) -> Item:
    """The merged patches of a picture, the channels last, and its grid of them."""
    part, (down, across) = vision(model), GRIDS[number % len(GRIDS)]
    side = part.patch_size * part.spatial_merge_size
    pixels = torch.randn(down * across, side, side, 3, generator=draw)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, down, across]])}


def _crops(model: Any, draw: Generator, number: int) -> Item:
    """A crop, and which of its 16 patches share a token: Molmo 2's."""
    shared = torch.arange(16).reshape(2, 2, 2, 2).transpose(1, 2).reshape(4, 4)
    return {
        "pixel_values": _unfolded(model, draw, number)["pixel_values"],
        "image_token_pooling": shared,
        "image_grids": torch.tensor([[2, 2, 0, 0]]),
        "image_num_crops": torch.tensor([1]),
    }


def _proteins(model: Any, draw: Generator, number: int) -> Item:
    ids = torch.randint(20, 100, (1, 5), generator=draw)
    return {"protein_input_ids": ids, "protein_attention_mask": torch.ones_like(ids)}


def _nothing(model: Any, draw: Generator, number: int) -> Item:
    return {}


def _boxes(model: Any, draw: Generator, number: int) -> Item:
    """A picture, and where on it each of 5 words stands: Udop's."""
    return square(model, draw, number) | {"bbox": torch.rand(1, 5, 4, generator=draw)}


OWN: Mapping[str, Maker] = {
    **dict.fromkeys(
        (
            "Idefics2ForConditionalGeneration",
            "Idefics3ForConditionalGeneration",
            "IdeficsForVisionText2Text",
            "SmolVLMForConditionalGeneration",
        ),
        _in_row,
    ),
    "GraniteDoclingForConditionalGeneration": _plus(
        _in_row, pixel_attention_mask=lambda model, item: torch.ones(1, 1, dtype=torch.bool)
    ),
    **dict.fromkeys(("Kimi_K25ForConditionalGeneration", "PaddleOCRVLForConditionalGeneration"), _patched),
    **dict.fromkeys(
        (
            "MiniCPMOcrForConditionalGeneration",
            "MiniCPMV4_6ForConditionalGeneration",
            "MiniCPMV4_7ForConditionalGeneration",
        ),
        _nave,
    ),
    **dict.fromkeys(
        ("Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        _plus(_unfolded, image_position_ids=_grid),
    ),
    "Lfm2VlForConditionalGeneration": _plus(
        _unfolded,
        spatial_shapes=_one_grid(4, 4),
        pixel_attention_mask=lambda model, item: torch.ones(1, 16, dtype=torch.long),
    ),
    "DeepseekVLHybridForConditionalGeneration": _plus(
        square, high_res_pixel_values=lambda model, item: item["pixel_values"].flip(-1)
    ),
    "VideoLlama3ForConditionalGeneration": _plus(flat, image_merge_sizes=lambda model, item: torch.tensor([2])),
    "NemotronH_Omni_Reasoning_V3": lambda model, draw, number: {
        ("image_grid_hw" if name == "image_grid_thw" else name): (value[:, 1:] if name == "image_grid_thw" else value)
        for name, value in flat(model, draw, number).items()
    },
    "InstructBlipForConditionalGeneration": _asked,
    "InstructBlipVideoForConditionalGeneration": _shaped(_asked, lambda model, pixels: pixels[:, None]),
    "Kosmos2_5ForConditionalGeneration": _plus(
        _flattened, width=lambda model, item: torch.tensor([4.0]), height=lambda model, item: torch.tensor([4.0])
    ),
    "Pix2StructForConditionalGeneration": _flattened,
    "MllamaForConditionalGeneration": _mllama,
    "Emu3ForConditionalGeneration": _plus(square, image_sizes=_one_grid(16, 16)),
    "Apertus1p5ForConditionalGeneration": _plus(square, image_sizes=_one_grid(16, 16)),
    **dict.fromkeys(("Inkling2ForConditionalGeneration", "Inkling2LoopForConditionalGeneration"), _merged),
    "UnlimitedOcrForConditionalGeneration": square,
    "Molmo2ForConditionalGeneration": _crops,
    "EvollaForProteinText2Text": _proteins,
    "Mistral4ForCausalLM": _nothing,  # the text model of others, which no other table maps
    "UdopForConditionalGeneration": _boxes,
    "FuyuForCausalLM": _unfolded,
}
