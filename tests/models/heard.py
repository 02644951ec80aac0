"""One sound, made in memory: the tensors that the processor of a class gives for it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Generator

from .seen import Item

__all__ = ["AUDIO", "is_sound", "sound"]

# Classes whose sounds have the bins before the frames, as Whisper's.
BINS_FIRST = frozenset(
    {
        "AudioFlamingo3ForConditionalGeneration",
        "GlmAsrForConditionalGeneration",
        "MossTranscribeDiarizeForConditionalGeneration",
        "MusicFlamingoForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "VoxtralForConditionalGeneration",
    }
)

# Classes whose waves have an axis of channels.
CHANNELS = frozenset({"OmniASRForConditionalGeneration", "VibeVoiceAsrForConditionalGeneration"})

# Classes whose mask is of features, of which 16 frames are 4, and not of frames.
BY_FEATURE = frozenset({"GraniteSpeechForConditionalGeneration", "GraniteSpeechPlusForConditionalGeneration"})

WAVES = frozenset({"SpeechEncoderDecoderModel"})  # it takes frames too, for other ears

AUDIO = ("input_features", "input_values")
MASKS = ("input_features_mask", "feature_attention_mask", "padding_mask")
BINS, SAMPLES = 16, 2000
STACKED = {"FunAsrNanoForConditionalGeneration": 7 * BINS}  # seven frames are one
FRAMES = {"Qwen3ASRForConditionalGeneration": 100}  # its chunks are of as many


def is_sound(item: Item) -> bool:
    """Whether an item is a sound."""
    return any(name in item for name in AUDIO)


def sound(model: Any, draw: Generator, number: int) -> Item:
    """A sound for the model; each second one is shorter, where the model is told so."""
    takes, name = inspect.signature(model.forward).parameters, type(model).__name__
    framed = "input_features" in takes and name not in WAVES
    long = FRAMES.get(name, 16) if framed else SAMPLES
    bins = STACKED.get(name, BINS)
    if framed:
        item = {
            "input_features": torch.randn((1, bins, long) if name in BINS_FIRST else (1, long, bins), generator=draw)
        }
    else:
        item = {"input_values": torch.randn((1, 1, long) if name in CHANNELS else (1, long), generator=draw)}
    if name in BY_FEATURE:
        return item | {"input_features_mask": (torch.arange(4) < 4 - number % 2)[None]}
    masks = [one for one in MASKS if one in takes]
    return item | {mask: (torch.arange(long) < long - number % 2 * (long // 4)).long()[None] for mask in masks}
