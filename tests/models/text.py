"""The text models that the installed transformers maps, as cases of a test, and the batches that they are given.

A class that is new in a release is a case by itself. One that cannot be is in `NOT_HERE`, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
import transformers
from facts import RELEASE, ROPE_FIELD
from transformers import GenerationConfig
from transformers.models.auto import configuration_auto, modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name

from .tiny import VOCABULARY, built, special_ids

__all__ = [
    "CALL",
    "CAUSAL",
    "FAULTS",
    "LATEST",
    "NOT_HERE",
    "NO_SINGLE_TOKEN",
    "PAD",
    "RETIRED",
    "SEQ2SEQ",
    "SOUND",
    "STOCK_FAILS",
    "VARIANTS",
    "Case",
    "Range",
    "cases",
    "cases_of",
    "exception_of",
    "model_of",
    "prompts_for",
    "unclassified",
    "variants",
]

CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
SEQ2SEQ = "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"

LENGTHS = (3, 7, 12, 1, 12)
# No prompt holds it, and no configuration knows it.
PAD = VOCABULARY - 1

_DRAFTER = "it drafts for another model, whose states it reads: it has no prompt of its own"
_CODEBOOKS = "each column of its prompt holds a token of several codebooks"
RETIRED = "transformers has retired it, and has no generate for it from 4.50 on, or never had"
SOUND = "its prompts hold sound: media.py has it"

# Classes of the mappings that are no case here, and why.
NOT_HERE: Mapping[str, str] = {
    "Gemma4AssistantForCausalLM": _DRAFTER,
    "Gemma4UnifiedAssistantForCausalLM": _DRAFTER,
    "MusicgenForCausalLM": _CODEBOOKS,
    "MusicgenMelodyForCausalLM": _CODEBOOKS,
    "AudioFlamingo3ForConditionalGeneration": SOUND,
    "GlmAsrForConditionalGeneration": SOUND,
    "GraniteSpeechForConditionalGeneration": SOUND,
    "GraniteSpeechPlusForConditionalGeneration": SOUND,
    "MossTranscribeDiarizeForConditionalGeneration": SOUND,
    "MusicFlamingoForConditionalGeneration": SOUND,
    "Nemotron3_5TranscribeForConditionalGeneration": SOUND,
    "OmniASRForConditionalGeneration": SOUND,
    "Qwen2AudioForConditionalGeneration": SOUND,
    "Qwen3ASRForConditionalGeneration": SOUND,
    "VibeVoiceAsrForConditionalGeneration": SOUND,
    "VoxtralForConditionalGeneration": SOUND,
    "VoxtralRealtimeForConditionalGeneration": SOUND,
    "GPTSanJapaneseForConditionalGeneration": RETIRED,
    "MegaForCausalLM": RETIRED,
    "OpenLlamaForCausalLM": RETIRED,
    "QDQBertLMHeadModel": RETIRED,
    "Speech2Text2ForCausalLM": RETIRED,
    "TransfoXLLMHeadModel": RETIRED,
    "XLMProphetNetForCausalLM": RETIRED,
    "XLMProphetNetForConditionalGeneration": RETIRED,
    "Gemma3nForConditionalGeneration": "its pictures need the package timm; Gemma3nForCausalLM is its text model",
}


# Arguments of `generate` that a class needs.
CALL: Mapping[str, Mapping[str, Any]] = {
    "BltForCausalLM": {"use_cache": False},  # it has no cache that the library can make
    "ReformerModelWithLMHead": {"use_cache": False},  # with its own it raises
}


def rope(kind: str, **values: Any) -> dict[str, Any]:
    """The field of a configuration that asks for a rotary embedding of this kind."""
    named = {"rope_type": kind, "rope_theta": 10000.0} if RELEASE >= (5, 0) else {"type": kind}
    return {ROPE_FIELD: {**named, **values}}


_LONGROPE = {
    "original_max_position_embeddings": 12,
    **rope("longrope", short_factor=[1.0] * 4, long_factor=[4.0] * 4),
}

# Thresholds within the longest prompt: beyond them left padding is not exact, or the window is full.
VARIANTS: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("llama", "dynamic NTK beyond its switch", {"max_position_embeddings": 8, **rope("dynamic", factor=4.0)}),
    ("phi3", "LongRoPE across its switch", {**_LONGROPE, "max_position_embeddings": 64}),
    ("minicpm3", "LongRoPE across its switch", {**_LONGROPE, "max_position_embeddings": 64}),
    ("deepseek_v32", "few columns for each query", {"index_topk": 4}),
    ("glm_moe_dsa", "few columns for each query", {"index_topk": 4}),
    ("axk2", "few columns for each query", {"index_topk": 4}),
    ("hy_v4", "few columns for each query", {"index_topk": 4}),
    ("dots3_note_text", "few columns for each query", {"index_topk": 4}),
    ("deepseek_v4", "few columns for each query", {"index_topk": 2}),
    ("qwen4_exp_text", "few columns for each query", {"indexer_budget": 4}),
    (
        "minimax_m3_vl_text",
        "few blocks for each query",
        {"layer_types": ["full_attention", "minimax_m3_sparse"], "index_block_size": 2, "index_topk_blocks": 2},
    ),
    ("doge", "few columns for each query", {"keep_window_size": 4}),
    ("inkling_text", "scaled by its positions", {"log_scaling_n_floor": 3}),
    ("inkling2_text", "scaled by its positions", {"log_scaling_n_floor": 3}),
    ("llama4_text", "scaled by its positions", {"floor_scale": 3, "attn_temperature_tuning": True}),
    (
        "qwen2",
        "a window",
        {"use_sliding_window": True, "max_window_layers": 1, "layer_types": ["full_attention", "sliding_attention"]},
    ),
    ("falcon", "ALiBi", {"alibi": True}),
    ("gpt_bigcode", "many queries", {"multi_query": False}),
)

Range = tuple[tuple[int, int], tuple[int, int]]
LATEST = (99, 0)

# Classes that have no prompt of one token alone to compare with, and up to which release, not included.
NO_SINGLE_TOKEN: Mapping[str, tuple[int, int]] = {
    "Mamba2ForCausalLM": (4, 51),  # it raises
    "RecurrentGemmaForCausalLM": LATEST,  # it starts from what the call before has left in the model
}

# What is not held to the law, by the name of the case: from which release on, up to which one, not included, and why.
# Of releases between two that were looked at, the rule of the later one is taken for both.
STOCK_FAILS: Mapping[str, tuple[Range, str]] = {
    "CpmAntForCausalLM": (((4, 0), (5, 24)), "generate raises"),
    "xLSTMForCausalLM": (((4, 0), (5, 24)), "generate raises"),
    "Zamba2ForCausalLM": (((5, 0), (5, 24)), "generate raises"),
    "Llama4ForCausalLM": (((4, 0), (4, 57)), "generate raises once its chunk is full"),
    "Llama4ForCausalLM, scaled by its positions": (((4, 0), (4, 57)), "generate raises once its chunk is full"),
    "RecurrentGemmaForCausalLM": (((4, 0), (4, 57)), "generate raises once its window is full"),
    "LlamaForCausalLM, dynamic NTK beyond its switch": (((5, 0), (5, 1)), "a prompt alone is not the same twice"),
}

# What padfix gets wrong without a word: nothing that is known.
FAULTS: Mapping[str, tuple[Range, str]] = {}


@dataclass(frozen=True)
class Case:
    """A class and the configuration that it is built from.

    Attributes:
        name: The name of the class, and what tells cases of one class apart.
        class_name: The name of the class.
        model_type: The type of the configuration.
        config: Values on top of those of `tiny_config`.
        group: What its prompts are: `text`, that of an `encoder-decoder`, or text with a `picture` or a `sound`.
    """

    name: str
    class_name: str
    model_type: str
    config: Mapping[str, Any] = field(default_factory=dict)
    group: str = "text"

    @property
    def call(self) -> Mapping[str, Any]:
        """Arguments of `generate` that the class needs."""
        return CALL.get(self.class_name, {})


def cases(mapping: str) -> list[Case]:
    """A case for each class of the mapping and each configuration that it maps to the class, without `NOT_HERE`.

    A type of several parts, beside the type of its text model with the same class, is no case of its own.
    """
    mapped: Mapping[str, str] = getattr(modeling_auto, mapping)
    own = {one: name for one, name in mapped.items() if mapped.get(f"{one}_text") != name and name not in NOT_HERE}
    return cases_of(own, "text" if mapping == CAUSAL else "encoder-decoder")


def cases_of(mapped: Mapping[str, str], group: str) -> list[Case]:
    """A case for each of these classes, by type, and each configuration that it is built from."""
    configs: Mapping[str, str] = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    found: dict[tuple[str, str], Case] = {}
    for model_type, class_name in mapped.items():
        config = configs.get(model_type, model_type)
        own = class_name.startswith(config.removesuffix("Config").removesuffix("Text"))
        shared = list(mapped.values()).count(class_name) > 1
        name = f"{class_name}, {model_type}" if shared and not own else class_name
        found.setdefault((class_name, config), Case(name, class_name, model_type, group=group))
    return list(found.values())


def variants() -> list[Case]:
    """Cases of classes whose configuration decides what is exact, as far as the release has them."""
    mapped: Mapping[str, str] = getattr(modeling_auto, CAUSAL)
    return [
        Case(f"{mapped[model_type]}, {name}", mapped[model_type], model_type, config)
        for model_type, name, config in VARIANTS
        if model_type in mapped
    ]


def exception_of(case: Case, tables: Sequence[Mapping[str, tuple[Range, str]]] = (STOCK_FAILS, FAULTS)) -> str | None:
    """Why the case is not held to the law in this release, as the tables have it; None where it is."""
    for table in tables:
        if case.name in table:
            (first, before), reason = table[case.name]
            if first <= RELEASE < before:
                return reason
    return None


def class_of(case: Case) -> Any:
    """The class of a case, also one that transformers does not show at its top."""
    if hasattr(transformers, case.class_name):
        return getattr(transformers, case.class_name)
    module = model_type_to_module_name(case.model_type)
    return getattr(import_module(f"transformers.models.{module}.modeling_{module}"), case.class_name)


def model_of(case: Case) -> Any:
    """The tiny model of a case, which generates greedily, never ends, and never gives an id with a meaning of its own.

    Raises:
        AssertionError: It cannot be built, so that the class has to be classified.
    """
    try:
        model = built(class_of(case), case.model_type, **case.config)
    except Exception as error:  # whatever a class raises that the rule does not suit
        raise AssertionError(f"not classified: {case.name}: {type(error).__name__}: {error}") from error
    model.generation_config = GenerationConfig(
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=None,
        decoder_start_token_id=1 if model.config.is_encoder_decoder else None,
        suppress_tokens=[*special_ids(model.config), PAD],
    )
    return model


def unclassified(mapping: str) -> list[str]:
    """The cases of a mapping of which no model can be built, a line each with the reason."""
    found = []
    for case in cases(mapping):
        try:
            model_of(case)
        except AssertionError as error:
            found.append(str(error))
    return found


def prompts_for(model: Any, *, lengths: Sequence[int] = LENGTHS, seed: int = 7) -> list[list[int]]:
    """Prompts of the lengths, of ids that mean nothing; those of a decoder begin with its start token."""
    if NO_SINGLE_TOKEN.get(type(model).__name__, (0, 0)) > RELEASE:
        lengths = [max(length, 2) for length in lengths]
    drawn = torch.Generator().manual_seed(seed)
    meant = {*special_ids(model.config), PAD}
    ids = torch.tensor([one for one in range(20, 100) if one not in meant])
    rows = [ids[torch.randint(len(ids), (length,), generator=drawn)].tolist() for length in lengths]
    return [[1, *row[1:]] for row in rows] if model.config.is_encoder_decoder else rows
