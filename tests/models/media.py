"""The models that see or hear and that the installed transformers maps, as cases of a test.

A class that is new in a release is a case by itself. One that cannot be is in `NOT_HERE`, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from facts import RELEASE
from transformers.models.auto import modeling_auto

from . import text
from .text import CAUSAL, LATEST, RETIRED, SEQ2SEQ, SOUND, Case, Range, cases_of

__all__ = [
    "BLIND",
    "CALL",
    "FAULTS",
    "GROUPS",
    "NAMED_APART",
    "NOT_FED",
    "NOT_HERE",
    "ONE_EACH",
    "STOCK_FAILS",
    "cases",
    "exception_of",
    "mapped",
    "model_of",
    "unclassified",
]

PICTURES = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_FOR_VISION_2_SEQ_MAPPING_NAMES")
SOUNDS = ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES")
GROUPS = ("picture", "sound")

_TIMM = "its pictures need the package timm"
_SPEAKS = "it answers with sound: tests/integration/test_speech.py has such a class"

# Classes of the mappings that are no case here, and why.
NOT_HERE: Mapping[str, str] = {
    "BlipForConditionalGeneration": "its generate changes the caller's ids: tests/integration/test_pictures.py has it",
    "DiffusionGemmaForBlockDiffusion": "it writes blocks by diffusion, in a generate of its own",
    "FastVlmForConditionalGeneration": _TIMM,
    "Gemma3nForConditionalGeneration": _TIMM,
    "PerceptionLMForConditionalGeneration": _TIMM,
    "InklingForConditionalGeneration": "its pictures need the package scipy",
    "PI0ForConditionalGeneration": "it moves a robot, and has no generate",
    "DiaForConditionalGeneration": _SPEAKS,
    "Qwen2_5OmniForConditionalGeneration": _SPEAKS,
    "Qwen3OmniMoeForConditionalGeneration": _SPEAKS,
    "VibeVoiceForConditionalGeneration": _SPEAKS,
    "KyutaiSpeechToTextForConditionalGeneration": "its prompts are sound alone, a step for each of its frames",
    "VoxtralRealtimeForConditionalGeneration": "each of its tokens is a step of its sound, so that no prompt is ragged",
    "Pop2PianoForConditionalGeneration": "its prompts are sound alone, its replies notes",
    "Phi4MultimodalForCausalLM": "its eyes and ears are adapters of their own; its text is a case of text.py",
    **({"FuyuForCausalLM": "its patches come with a place for each column"} if RELEASE < (5, 24) else {}),
    "WhisperForConditionalGeneration": "its generate gives outputs of its own: tests/integration/test_speech.py has it",
}

# Classes each of whose prompts has exactly one item, and why.
_ASKS = "its generate asks for a picture"
_PLACES = "its processor takes a picture for each prompt"
ONE_EACH = {
    "Blip2ForConditionalGeneration": _ASKS,
    "InstructBlipForConditionalGeneration": _ASKS,
    "InstructBlipVideoForConditionalGeneration": _ASKS,
    "EvollaForProteinText2Text": "a protein belongs to a row, and no token stands for it",
    "GitForCausalLM": "a picture stands before every prompt, and no token for it",
    "IdeficsForVisionText2Text": "its forward asks for a picture",
    **({"GraniteSpeechForConditionalGeneration": "it counts its sounds by rows"} if RELEASE < (5, 24) else {}),
    "Kosmos2ForConditionalGeneration": _PLACES,
    "Kosmos2_5ForConditionalGeneration": _PLACES,
}

_LLAVAS = (
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "VipLlavaForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
)
if RELEASE < (4, 51):
    ONE_EACH |= dict.fromkeys(_LLAVAS, "a prompt without one raises")

# Classes whose replies do not hang on an item, and why.
BLIND: Mapping[str, str] = {
    "Mistral4ForCausalLM": "its prompts are text alone",
    **({"Emu3ForConditionalGeneration": "its forward does not hand its picture on"} if RELEASE < (5, 24) else {}),
}

# Classes whose rows cannot run apart, since it cannot be told what belongs to a row, and that are named for it.
NAMED_APART: Mapping[str, str] = {
    "Inkling2ForConditionalGeneration": "image_grid_thw",
    "Inkling2LoopForConditionalGeneration": "image_grid_thw",
    "MiniCPMOcrForConditionalGeneration": "pixel_values",
    "MiniCPMV4_6ForConditionalGeneration": "pixel_values",
    "MiniCPMV4_7ForConditionalGeneration": "pixel_values",
    "Molmo2ForConditionalGeneration": "pixel_values",
    "MossTranscribeDiarizeForConditionalGeneration": "padding_mask",
    "OmniASRForConditionalGeneration": "input_values",
    "VibeVoiceAsrForConditionalGeneration": "input_values",
}

# Arguments of `generate` that a class needs.
CALL: Mapping[str, Mapping[str, Any]] = {
    "EvollaForProteinText2Text": {"use_cache": False},  # with its own it raises
    "VibeVoiceAsrForConditionalGeneration": {"sample": False},  # else it adds noise to the sound
}

# As in text.py.
STOCK_FAILS: Mapping[str, tuple[Range, str]] = {
    "Llama4ForConditionalGeneration": (((4, 0), (4, 57)) if RELEASE < (5, 0) else ((5, 0), LATEST), "generate raises"),
}

# Classes of older releases to which the tests know no way of giving an item, and up to which one, not included.
NOT_FED: Mapping[str, tuple[int, int]] = {
    "Blip2ForConditionalGeneration": (4, 51),
    "InstructBlipForConditionalGeneration": (4, 51),
    "InstructBlipVideoForConditionalGeneration": (4, 51),
    "Qwen2AudioForConditionalGeneration": (4, 51),
    "Qwen2VLForConditionalGeneration": (4, 57),
    "Qwen2_5_VLForConditionalGeneration": (4, 57),
}

# What padfix gets wrong without a word: nothing that is known.
FAULTS: Mapping[str, tuple[Range, str]] = {}


def mapped(group: str) -> dict[str, str]:
    """The classes of a group, by type, as far as the release maps them; one that sees and hears is one that sees."""
    pictures = {one: name for mapping in PICTURES for one, name in getattr(modeling_auto, mapping, {}).items()}
    pictures.pop("pixtral", None)  # up to 5.0: the eye of a LLaVA, whose own type is there too
    if group == "picture":
        return pictures
    found = {one: name for mapping in SOUNDS for one, name in getattr(modeling_auto, mapping, {}).items()}
    for mapping in (CAUSAL, SEQ2SEQ):
        found |= {
            one: name for one, name in getattr(modeling_auto, mapping).items() if text.NOT_HERE.get(name) == SOUND
        }
    return {one: name for one, name in found.items() if name not in pictures.values()}


def cases(group: str) -> list[Case]:
    """A case for each class of a group and each configuration that it is built from, without `NOT_HERE`."""
    left_out = {**NOT_HERE, **{name: why for name, why in text.NOT_HERE.items() if why == RETIRED}}
    return cases_of({one: name for one, name in mapped(group).items() if name not in left_out}, group)


def exception_of(case: Case) -> str | None:
    """As that of text.py, by the tables of this one."""
    return text.exception_of(case, (STOCK_FAILS, FAULTS))


def model_of(case: Case) -> Any:
    """As that of text.py; a model within it that has a generate of its own is asked as it is.

    Raises:
        AssertionError: It cannot be built, so that the class has to be classified.
    """
    model = text.model_of(case)
    inner = getattr(model, "language_model", None)
    if inner is not None and hasattr(inner, "generation_config"):  # BLIP-2
        inner.generation_config = model.generation_config
    return model


def unclassified(group: str) -> list[str]:
    """The cases of a group of which no model can be built, a line each with the reason."""
    found = []
    for case in cases(group):
        try:
            model_of(case)
        except AssertionError as error:
            found.append(str(error))
    return found
