"""Traits: what a model is, as far as padding is concerned: read from its class, its configuration, its modules."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from .compat import installed

__all__ = ["EXACT_SINCE", "NOT_EXACT", "Traits", "traits_of"]


@dataclass(frozen=True)
class Traits:
    """What a model is.

    Attributes:
        name: The name of its class.
        encoder_decoder: Whether its prompt is the decoder's, beside an encoder's input.
        exact_up_to: The number of columns (model width and new tokens) up to which a left-padded row gets what it
            gets alone: infinity for most models, 0 for those that left padding cannot make right.
        reason: Why not beyond that; empty where the number is infinity.
        known: Whether the class or one that it derives from is the library's own, rather than remote code.
    """

    name: str
    encoder_decoder: bool
    exact_up_to: float
    reason: str
    known: bool


_MASK_IGNORED = "its recurrence runs over pads, whatever the mask says"
_MASK_DROPPED = "its prepare_inputs_for_generation drops the attention_mask"
_COLUMNS_COUNTED = "it counts positions from column 0 or from the length of the cache, pads included"
_NEEDS_POSITIONS = "its decoder has to be told the positions of padded prompts"

# Classes that left padding does not make exact, and why. Measured on transformers 4.57.6 and 5.24.0, small random
# models in float32, every row of a left-padded batch against the prompt alone.
NOT_EXACT: Mapping[str, str] = {
    "RwkvForCausalLM": _MASK_IGNORED,
    "xLSTMForCausalLM": _MASK_IGNORED,
    "RecurrentGemmaForCausalLM": _MASK_IGNORED,
    "ReformerModelWithLMHead": _MASK_DROPPED,
    "XLMWithLMHeadModel": _MASK_DROPPED,
    "XLNetLMHeadModel": _MASK_DROPPED,
    "ProphetNetForCausalLM": _COLUMNS_COUNTED,
    "ProphetNetForConditionalGeneration": _COLUMNS_COUNTED,
    "BltForCausalLM": "its patching and hash n-grams see the pads",
    "DeepseekV4ForCausalLM": "its KV compressor pools windows of columns, pads included",
    "Kosmos2ForConditionalGeneration": _COLUMNS_COUNTED,
    "Kosmos2TextForCausalLM": _COLUMNS_COUNTED,
    "Kosmos2_5ForConditionalGeneration": _COLUMNS_COUNTED,
    "Kosmos2_5TextForCausalLM": _COLUMNS_COUNTED,
    "HunYuanVLForConditionalGeneration": "it counts images over the whole batch, so each row has to run by itself",
    "PaliGemmaForConditionalGeneration": "an unpadded prompt attends both ways, a padded one causally",
    "M2M100ForConditionalGeneration": _COLUMNS_COUNTED,
    "NllbMoeForConditionalGeneration": _COLUMNS_COUNTED,
    "SeamlessM4TForTextToText": _COLUMNS_COUNTED,
    "SeamlessM4TForSpeechToText": _COLUMNS_COUNTED,
    "SeamlessM4Tv2ForTextToText": _COLUMNS_COUNTED,
    "SeamlessM4Tv2ForSpeechToText": _COLUMNS_COUNTED,
    "Speech2TextForConditionalGeneration": _COLUMNS_COUNTED,
    "SpeechT5ForSpeechToText": _COLUMNS_COUNTED,
    "VisionEncoderDecoderModel": _COLUMNS_COUNTED,
    "T5Gemma2ForConditionalGeneration": _NEEDS_POSITIONS,
    "CohereAsrForConditionalGeneration": _NEEDS_POSITIONS,
}

# Classes that left padding makes exact only from a release on, as far as measured: not in 4.46.3, or not in 4.57.6.
EXACT_SINCE: Mapping[str, tuple[int, int]] = {
    "BertGenerationDecoder": (4, 57),
    "LlavaNextVideoForConditionalGeneration": (4, 57),
    "VipLlavaForConditionalGeneration": (4, 57),
    "XLMRobertaXLForCausalLM": (4, 57),
    "CTRLLMHeadModel": (5, 24),
    "CpmAntForCausalLM": (5, 24),
    "FalconMambaForCausalLM": (5, 24),
    "Glm4vForConditionalGeneration": (5, 24),
    "Glm4vMoeForConditionalGeneration": (5, 24),
    "MambaForCausalLM": (5, 24),
    "MoshiForCausalLM": (5, 24),
    "OpenAIGPTLMHeadModel": (5, 24),
    "Phi4MultimodalForCausalLM": (5, 24),
    "Qwen3VLForConditionalGeneration": (5, 24),
    "Qwen3VLMoeForConditionalGeneration": (5, 24),
    "RoCBertForCausalLM": (5, 24),
    "Zamba2ForCausalLM": (5, 24),
}

_counted_from_column_0: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def traits_of(model: Any) -> Traits:
    """The traits of a model, from the first rule that applies: class, release, forward, modules, configuration."""
    limit, reason = next(_limits(model), (math.inf, ""))
    classes = type(model).__mro__
    return Traits(
        name=classes[0].__name__,
        encoder_decoder=bool(getattr(model.config, "is_encoder_decoder", False)),
        exact_up_to=limit,
        reason=reason,
        known=any(one.__module__.startswith("transformers.models.") for one in classes),
    )


def _limits(model: Any) -> Iterator[tuple[float, str]]:
    """Up to which number of columns left padding is exact, and why not beyond; nothing where it always is."""
    for name in (one.__name__ for one in type(model).__mro__):
        if name in NOT_EXACT:
            yield 0, NOT_EXACT[name]
        if name in EXACT_SINCE and installed() < EXACT_SINCE[name]:
            first = ".".join(map(str, EXACT_SINCE[name]))
            yield 0, f"in transformers below {first} its left-padded rows differ from the prompts alone"
    parameters = inspect.signature(model.forward).parameters
    if "attention_mask" not in parameters and not getattr(model.config, "is_encoder_decoder", False):
        yield 0, "its forward takes no attention_mask"
    if "position_ids" not in parameters and _counts_from_column_0(model):
        yield 0, _COLUMNS_COUNTED
    if _has_prompt_learning(model):
        yield 0, "PEFT puts its virtual tokens before the pads, away from the prompt"
    config = _text_config(model.config)
    for kind, rope in _ropes(config):
        if kind == "dynamic":
            yield int(config.max_position_embeddings), "dynamic NTK scales every row by the longest one"
        if kind in ("longrope", "su"):
            named = "original_max_position_embeddings"
            yield (
                int(rope.get(named) or getattr(config, named, 0) or 0),
                "LongRoPE switches its factors for every row by the longest one",
            )
    top_k = getattr(config, "index_topk", None)
    if isinstance(top_k, int):
        yield top_k, "its sparse attention ranks padded columns too"


def _counts_from_column_0(model: Any) -> bool:
    """Whether the decoder has a table of positions that is asked by column, as the decoders of the BART family."""
    if model not in _counted_from_column_0:
        _counted_from_column_0[model] = any(
            name.endswith("embed_positions")
            and "encoder." not in name
            and "Positional" in type(module).__name__
            and "attention_mask" not in inspect.signature(module.forward).parameters
            for name, module in model.named_modules()
        )
    return _counted_from_column_0[model]


def _has_prompt_learning(model: Any) -> bool:
    """Whether PEFT runs this model with virtual tokens: prompt tuning, prefix tuning, P-tuning."""
    # PeftModelForCausalLM.generate puts its own prepare_inputs_for_generation on the model that it wraps.
    owner = getattr(model.prepare_inputs_for_generation, "__self__", model)
    active = getattr(owner, "active_peft_config", None) if owner is not model else None
    return bool(getattr(active, "is_prompt_learning", False))


def _text_config(config: Any) -> Any:
    read = getattr(config, "get_text_config", None)
    return config if read is None else read(decoder=True)


def _ropes(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The kinds of rotary embedding that a configuration asks for: one, or one for each type of layer."""
    for name in ("rope_parameters", "rope_scaling"):  # from 5.0; up to 4.57
        rope = getattr(config, name, None)
        if not isinstance(rope, Mapping):
            continue
        for one in (rope, *rope.values()):
            if isinstance(one, Mapping):
                kind = one.get("rope_type", one.get("type"))
                if isinstance(kind, str):
                    yield kind, one
