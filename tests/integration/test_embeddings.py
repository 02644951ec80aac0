"""Prompts as embeddings, alone and beside their ids, against each prompt alone: soft prompts and LLaVA-style models."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import transformers
from oracle import BOS, EOS, GREEDY, LLAMA, PAD, PADDERS, ROWS, alone, build, compare, together
from stock import CACHE_IS_NONE
from torch import Tensor

import padfix
from padfix import PadfixWarning, UnsupportedCallError
from padfix.generation import compat

pytestmark = [pytest.mark.usefixtures("installed"), CACHE_IS_NONE]

TEXT: dict[str, Any] = LLAMA | {
    "tie_word_embeddings": False,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def _qwen2_vl() -> Any:
    mrope = {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    text = TEXT | {"rope_scaling": mrope}
    vision: dict[str, Any] = {
        "depth": 1,
        "embed_dim": 32,
        "hidden_size": 32,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 4,
    }
    special: dict[str, Any] = {
        "image_token_id": 90,
        "video_token_id": 91,
        "vision_start_token_id": 92,
        "vision_end_token_id": 93,
    }
    config_class = transformers.Qwen2VLConfig
    if "text_config" in getattr(config_class, "sub_configs", {}):  # from 4.52
        config = config_class(text_config=text, vision_config=vision, tie_word_embeddings=False, **special)
    else:
        config = config_class(vision_config=vision, **text, **special)
    return transformers.Qwen2VLForConditionalGeneration(config)


def _gemma3() -> Any:
    text = TEXT | {
        "head_dim": 8,
        "sliding_window": 4,
        "sliding_window_pattern": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=VISION | {"image_size": 16, "patch_size": 4},
        mm_tokens_per_image=4,
        boi_token_index=95,
        eoi_token_index=96,
        image_token_index=97,
        tie_word_embeddings=False,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


def _llava() -> Any:
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**VISION, image_size=8, patch_size=4),
        image_token_index=90,
        tie_word_embeddings=False,
    )
    return transformers.LlavaForConditionalGeneration(config)


PICTURES = {"qwen2_vl": _qwen2_vl, "llava": _llava, "gemma3 with vision": _gemma3}
NAMES = ["llama", "gpt2", "mistral", "rwkv", "qwen2_vl", "llava"]


@functools.cache
def _weights(name: str) -> Any:
    if name not in PICTURES:
        return build(name)
    torch.manual_seed(0)
    model = PICTURES[name]().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim >= 2:
                weight.mul_(4.0)
    for special in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(model.generation_config, special, TEXT[special])
    return model


def _model(name: str) -> Any:
    return copy.deepcopy(_weights(name))


def _soft(model: Any) -> list[Tensor]:
    """The embeddings of each row, no row of the table: (1, tokens, hidden)."""
    generator, table = torch.Generator().manual_seed(7), model.get_input_embeddings()
    rows = []
    for row in ROWS:
        embeds = table(torch.tensor([row])).detach()
        rows.append(embeds + embeds.std() * torch.randn(embeds.shape, generator=generator))
    return rows


def _batch(model: Any, side: str, *, ids: bool) -> dict[str, Any]:
    """The rows' embeddings padded on that side, with something in the cells of pads, and their mask."""
    padded = PADDERS[side](ROWS)
    mask = padded["attention_mask"]
    embeds = torch.full((*mask.shape, _soft(model)[0].shape[-1]), 5.0)
    embeds[mask.bool()] = torch.cat(_soft(model), 1)[0]
    return {"inputs_embeds": embeds, "attention_mask": mask} | ({"input_ids": padded["input_ids"]} if ids else {})


def _check(model: Any, batch: Mapping[str, Any], own: Any = None, **arguments: Any) -> None:
    def each(row: int) -> dict[str, Any]:
        ids = torch.tensor([ROWS[row]]) if "input_ids" in batch else None
        return {"inputs_embeds": _soft(model)[row], "input_ids": ids, **(own(row) if own else {})}

    expected = alone(model, ROWS, each=each, distinct=not arguments, **arguments)
    compare(together(model, batch, **arguments), expected)


@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("ids", [False, True], ids=["alone", "with ids"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", NAMES)
def test_embeddings_of_no_token_are_exact(name: str, side: str, ids: bool, strategy: str) -> None:
    model = _model(name)
    with padfix.override(strategy=strategy):
        _check(model, _batch(model, side, ids=ids))


# The library's own words, for a prompt alone too.
@pytest.mark.filterwarnings("ignore:Passing `.*` with `inputs_embeds`:UserWarning")
@pytest.mark.parametrize("ids", [False, True], ids=["alone", "with ids"])
@pytest.mark.parametrize("name", NAMES)
def test_beams_and_flags_that_read_the_history_are_exact_beside_embeddings(name: str, ids: bool) -> None:
    model = _model(name)
    batch = _batch(model, "right", ids=ids)
    if name != "rwkv":  # its state cannot be reordered for beams
        _check(model, batch, num_beams=2)
    _check(model, batch, repetition_penalty=1.6)
    _check(model, batch, no_repeat_ngram_size=1)


def _implied(batch: Mapping[str, Tensor]) -> Tensor:
    return (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)


@pytest.mark.parametrize("kind", ["implied", "arange"])
@pytest.mark.parametrize("ids", [False, True], ids=["alone", "with ids"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"rwkv"}))
def test_positions_that_say_what_the_mask_says_make_no_difference(name: str, side: str, ids: bool, kind: str) -> None:
    model = _model(name)
    batch = _batch(model, side, ids=ids)
    batch["position_ids"] = _implied(batch) if kind == "implied" else torch.arange(7).expand(3, 7)
    _check(model, batch)


needs_advance = pytest.mark.skipif(not compat.positions_advance(), reason="this release does not carry them on")


@needs_advance
@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("ids", [False, True], ids=["alone", "with ids"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"rwkv"}))
def test_positions_of_another_kind_move_with_the_embeddings(name: str, side: str, ids: bool, strategy: str) -> None:
    model = _model(name)
    batch = _batch(model, side, ids=ids)
    batch["position_ids"] = _implied(batch) * 3
    with padfix.override(strategy=strategy):
        _check(model, batch, lambda row: {"position_ids": torch.arange(len(ROWS[row]))[None] * 3})


@needs_advance
@pytest.mark.parametrize("ids", [False, True], ids=["alone", "with ids"])
@pytest.mark.parametrize("side", PADDERS)
def test_positions_of_three_planes_move_with_the_embeddings(side: str, ids: bool) -> None:
    model = _model("qwen2_vl")
    batch = _batch(model, side, ids=ids)
    factors = torch.tensor([1, 2, 3])[:, None, None]
    batch["position_ids"] = _implied(batch)[None] * factors
    _check(model, batch, lambda row: {"position_ids": torch.arange(len(ROWS[row]))[None, None] * factors})


@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", NAMES)
def test_ids_of_other_columns_are_refused_by_name(name: str, side: str, strategy: str) -> None:
    model = _model(name)
    batch = _batch(model, side, ids=False) | {"input_ids": torch.tensor([[5, 6], [7, 8], [9, 10]])}
    padfix.install("fix", strategy=strategy)
    seen = pytest.warns(PadfixWarning, match=r"input_ids= of shape \(3, 2\) beside inputs_embeds= of 7 columns")
    with padfix.suppressed():
        stock = _outcome(model, batch)
    if name == "rwkv" or strategy == "equal_length" or side != "left":
        with seen:
            assert _outcome(model, batch) == stock
        padfix.install("strict", strategy=strategy)
        with pytest.raises((UnsupportedCallError, padfix.RightPaddingError)):
            model.generate(**batch, **GREEDY)


@pytest.mark.skipif(not hasattr(transformers, "Gemma3ForConditionalGeneration"), reason="not in this release")
def test_a_model_that_takes_no_embeddings_says_so_itself() -> None:
    model = _model("gemma3 with vision")
    batch = _batch(model, "right", ids=False)
    if "inputs_embeds" in inspect.signature(model.prepare_inputs_for_generation).parameters:
        _check(model, batch)
        return
    with pytest.raises(ValueError, match="You passed `inputs_embeds`"):
        model.generate(**batch, **GREEDY)


def _outcome(model: Any, batch: Mapping[str, Any]) -> Any:
    try:
        return model.generate(**batch, **GREEDY).tolist()
    except Exception as error:
        return type(error)
