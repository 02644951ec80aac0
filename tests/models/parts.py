"""As overrides.py, for models that see or hear: by type of configuration, its own or that of one of its parts.

Up to 4.57 some parts have the type of the whole: they stand by the name of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from facts import ROPE_FIELD

from .overrides import DEFAULT, TINY_BERT

__all__ = ["PARTS"]

IMAGE, AUDIO = 120, 118


def _axes(*sections: int) -> dict[str, Any]:
    """The rotary dimensions of half a head over the axes time, height and width."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections)}
    return {ROPE_FIELD: rope}


_AXES = _axes(2, 1, 1)
# The size of a window is that of its pixels: two merged patches a side.
_WINDOWS = {"window_size": 16, "fullatt_block_indexes": [1]}
_DEEPSTACK = {"deepstack_visual_indexes": [0, 1]}
_PINPOINTS = {"image_grid_pinpoints": [[16, 16], [16, 32], [32, 16]]}
_SAM = {"window_size": 2, "global_attn_indexes": [1]}

_WAVES = {"conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3]}

_SAM_DOWN = {**_SAM, "downsample_channels": [32, 32]}
_AROUND = {"vision_start_token_id": 117, "vision_end_token_id": 116}
_MARKS = {"image_token_id": IMAGE, "video_token_id": 119, **_AROUND}  # up to 4.51 they are no fields
_PROJECTED = {"window_size": 10, "downsample_rate": 5}
# Sixteen frames; four of their features are one.
_SHORT = {"max_source_positions": 8}
_FOURFOLD = {**_SHORT, "intermediate_size": 128}
_HALF_TURNED = {**_AXES, "head_dim": 16}
_VQ = {"num_embeddings": 8, "base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1}
_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}

PARTS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("cosmos3_edge_text", "glm4v_text", "glm_ocr_text", "paddleocr_vl_text"), _AXES),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "hy_v4_vl_text"), _AXES),
    **dict.fromkeys(("qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_omni_moe_text"), _AXES),
    **dict.fromkeys(("exaone4_5_vision", "qwen2_5_vl_vision", "qwen2_5_omni_vision_encoder"), _WINDOWS),
    **dict.fromkeys(("qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_omni_moe_vision_encoder"), _DEEPSTACK),
    **dict.fromkeys(("cohere_compass_vision", "granite_docling_vision"), _DEEPSTACK),
    **dict.fromkeys(("llava_next", "llava_next_video", "llava_onevision"), _PINPOINTS),
    **dict.fromkeys(("sam_vision_model", "got_ocr2_vision"), _SAM),
    "apertus1p5": {"image_token_offset": 100, "audio_token_offset": 108},
    "apertus1p5_vision_tokenizer": {
        "codebook_size": 8,
        "latent_channels": 32,
        "base_channels": 32,
        "channel_multiplier": [1, 1],
        "num_res_blocks": 1,
    },
    "wavtokenizer_encoder": {"codebook_dim": 32, "codebook_size": 8, "decoder_attention_num_groups": 4},
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "blip-2": {"image_token_index": IMAGE},
    "instructblip": {"image_token_index": IMAGE},
    "instructblipvideo": {"video_token_index": IMAGE},
    "chameleon": {
        "vocabulary_map": {"<image>": IMAGE, **{f"IMGIMG{letter}Z": 100 + at for at, letter in enumerate("ABCDEFGH")}}
    },
    "chameleon_vqgan": _VQ,
    "emu3": {
        "vocabulary_map": {
            "<image>": IMAGE,
            "<|extra_200|>": 119,
            **{f"<|visual token {at:06}|>": 100 + at for at in range(16)},
        }
    },
    "emu3_vqgan": {
        "codebook_size": 16,
        "embed_dim": 4,
        "latent_channels": 4,
        "base_channels": 32,
        "channel_multiplier": [1, 1],
        "num_res_blocks": 1,
        "num_attention_heads": 1,
    },
    "ernie4_5_vl_moe_text": {**_axes(1, 1, 2), "moe_intermediate_size": [16, 16]},
    **dict.fromkeys(("glm4v_moe_text", "Glm4vMoeTextConfig"), _HALF_TURNED),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), _MARKS),
    "Qwen2_5_VLVisionConfig": _WINDOWS,
    "granite4_vision": {
        **_PINPOINTS,
        "spatial_target_layers": [0, 1],
        "vision_feature_layer": -2,
        "deepstack_layer_map": [[-1, 0], [-2, 1]],
        "downsample_rate": "1/2",
        # It has a head for each 64 of what its eye gives.
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 16,
            "patch_size": 4,
        },
    },
    "hunyuan_vl_text": _axes(1, 1, 1, 1),
    "hunyuan_vl_vision": {"max_image_size": 32},
    "llama4_vision_model": {"intermediate_size": 128, "vision_output_dim": 32},
    "mllama_text_model": {"num_hidden_layers": 3, "cross_attention_layers": [1]},
    "mllama_vision_model": {
        "image_size": 28,
        "patch_size": 14,
        "attention_heads": 4,
        "num_hidden_layers": 2,
        "num_global_layers": 1,
        "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 96,
    },
    "muse_glimmer": {"out_hidden_size": 128},
    "muse_spark": {"out_hidden_size": 128},
    "muse_spark_audio": {"num_hidden_layers": 4, "depths": [1] * 4, "hidden_sizes": [8, 16, 16, 32]},
    "evolla": {"aligner_num_add_layers": 2},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "fun_asr_nano": {"adaptor_config": {"hidden_size": 32, "intermediate_size": 8, "num_attention_heads": 4}},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "moss_transcribe_diarize_audio": _SHORT,
    "speecht5": _WAVES | {"num_feat_extract_layers": 2},
    "voxtral": {"audio_token_id": AUDIO},
    **dict.fromkeys(("granite_speech", "granite_speech_plus"), _PROJECTED),
    "omniasr_audio": _WAVES | {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2},
    "qwen3_asr_encoder": {"n_window": DEFAULT},
    "vibevoice_acoustic_tokenizer_encoder": {"downsampling_ratios": [10, 10], "depths": [1, 1, 1]},
    "molmo2_vision": {"image_size": [16, 16]},
    "molmo2_adapter": {"vision_feature_layer": [1, 0]},
    "nemotron_h_omni": {"image_token_id": IMAGE},
    **dict.fromkeys(("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"), _AROUND),
    **dict.fromkeys(("qwen2_audio_encoder", "audioflamingo3_encoder", "whisper"), _SHORT),
    **dict.fromkeys(("voxtral_encoder", "glmasr_encoder"), _FOURFOLD),
    "radio": {"video_temporal_patch_size": 2, "patch_size": 4, "image_size": 16},
    "gemma4_vision": {"pooling_kernel_size": 2},
    "gemma4_unified_vision": {"pooling_kernel_size": 1},
    "glm5_next_text": {"qk_rope_head_dim": 0},
    "florence_vision": {
        "depths": [1, 1, 1, 1],
        "patch_size": DEFAULT,
        "num_groups": [4, 4, 4, 4],
        "window_size": 4,
    },
    "pp_formulanet_vision": {
        **_SAM,
        "post_conv_in_channels": 32,
        "post_conv_mid_channels": 32,
        "post_conv_out_channels": 32,
        "decoder_hidden_size": 32,
    },
    **dict.fromkeys(("deepseek_ocr2_sam_vision_model", "unlimited_ocr_sam_vision_model"), _SAM_DOWN),
    "janus_vqgan": _VQ | {"latent_channels": 32, "image_token_embed_dim": 32},
    "udop": {"relative_attention_num_buckets": DEFAULT, "relative_attention_max_distance": DEFAULT},
    "vipllava": {"vision_feature_layers": [-1, -2]},
    "minicpmv4_6": {"image_token_id": IMAGE, "insert_layer_id": 0},
    "minicpmv4_7": {"image_token_id": IMAGE, "insert_layer_id": 0},
    "minicpm_ocr": {"image_token_id": IMAGE, "insert_layer_id": 0},
    "vision-encoder-decoder": {
        "encoder": {"model_type": "vit", "image_size": 16, "patch_size": 4, **_SMALL},
        "decoder": TINY_BERT | {"is_decoder": True, "add_cross_attention": True},
    },
    "speech-encoder-decoder": {
        "encoder": {
            "model_type": "wav2vec2",
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "num_feat_extract_layers": 2,
            **_SMALL,
            **_WAVES,
        },
        "decoder": TINY_BERT | {"is_decoder": True, "add_cross_attention": True},
    },
}
