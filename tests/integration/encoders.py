"""Tiny models with an encoder, of text and of sound, in float32 with fixed, decisive weights, and an input for them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from oracle import BOS, EOS, LLAMA, PAD
from torch import Tensor

__all__ = ["ENCODERS", "encoded_input", "model_of", "there"]

IDS: dict[str, Any] = {"vocab_size": 99, "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
START: dict[str, Any] = {"decoder_start_token_id": BOS, "tie_word_embeddings": False}
TEXT: dict[str, Any] = (
    LLAMA
    | IDS
    | {
        "head_dim": 8,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
    }
)
# The BART family's names.
FAMILY: dict[str, Any] = (
    IDS
    | START
    | {
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
    }
)
CONFORMER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_mel_bins": 16,
    "subsampling_conv_channels": 8,
}
DECODER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
}
# Class -> its configuration's fields, and what its encoder takes.
ENCODERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "T5ForConditionalGeneration": (
        IDS | START | {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "text",
    ),
    "T5GemmaForConditionalGeneration": (START | {"vocab_size": 99, "encoder": TEXT, "decoder": TEXT}, "text"),
    "T5Gemma2ForConditionalGeneration": (
        START
        | {
            "encoder": {
                "text_config": TEXT,
                "vision_config": {
                    "hidden_size": 32,
                    "intermediate_size": 32,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 2,
                    "image_size": 16,
                    "patch_size": 4,
                },
                "mm_tokens_per_image": 4,
            },
            "decoder": TEXT,
            "image_token_index": 97,
        },
        "text",
    ),
    "MoonshineForConditionalGeneration": (
        IDS
        | START
        | {
            "hidden_size": 32,
            "intermediate_size": 48,
            "encoder_num_hidden_layers": 1,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "encoder_num_key_value_heads": 4,
            "decoder_num_key_value_heads": 4,
            "max_position_embeddings": 128,
        },
        "wave",
    ),
    "WhisperForConditionalGeneration": (
        FAMILY
        | {
            "d_model": 32,
            "num_mel_bins": 16,
            "max_source_positions": 32,
            "max_target_positions": 64,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        "channels first",
    ),
    "CohereAsrForConditionalGeneration": (IDS | START | DECODER | {"encoder_config": CONFORMER}, "frames"),
    "CanaryForConditionalGeneration": (
        IDS | START | {"encoder_config": CONFORMER, "decoder_config": IDS | DECODER},
        "frames",
    ),
    "Speech2TextForConditionalGeneration": (
        FAMILY
        | {
            "d_model": 32,
            "max_source_positions": 128,
            "max_target_positions": 64,
            "input_feat_per_channel": 16,
            "conv_channels": 16,
        },
        "frames",
    ),
    "SpeechT5ForSpeechToText": (
        FAMILY
        | {
            "hidden_size": 32,
            "conv_dim": (16, 16),
            "conv_stride": (5, 2),
            "conv_kernel": (10, 3),
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
        },
        "wave",
    ),
    "SeamlessM4TForSpeechToText": (
        FAMILY
        | {
            "hidden_size": 32,
            "speech_encoder_layers": 1,
            "speech_encoder_attention_heads": 4,
            "speech_encoder_intermediate_size": 48,
            "feature_projection_input_dim": 16,
            "max_position_embeddings": 64,
            "conv_depthwise_kernel_size": 3,
        },
        "frames",
    ),
}


def there(names: Any = ENCODERS) -> list[str]:
    """Those of these classes that the installed release has."""
    return [name for name in names if hasattr(transformers, name)]


@functools.cache
def _weights(name: str) -> Any:
    model_class = getattr(transformers, name)
    torch.manual_seed(3 if name.startswith("Whisper") else 0)  # with 0 it says one token whatever it is asked
    model = model_class(model_class.config_class(**copy.deepcopy(ENCODERS[name][0]))).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim >= 2:
                weight.mul_(4.0)
    for special in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(model.generation_config, special, IDS[special])
    model.generation_config.decoder_start_token_id = BOS
    return model


def model_of(name: str) -> Any:
    """A model of the table; the caller's own."""
    return copy.deepcopy(_weights(name))


def encoded_input(name: str, rows: int = 3) -> dict[str, Tensor]:
    """An input of that many rows without pads for the encoder."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"wave": (rows, 2000), "channels first": (rows, 16, 64), "frames": (rows, 64, 16)}
    kind = ENCODERS[name][1]
    if kind == "text":
        ids = torch.randint(3, 90, (rows, 4), generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    sound = torch.randn(shapes[kind], generator=generator)
    if kind == "wave":
        return {"input_values": sound}
    mask = {"attention_mask": torch.ones(rows, 64, dtype=torch.long)} if kind == "frames" else {}
    return {"input_features": sound, **mask}
