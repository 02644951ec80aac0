"""What the rule of tiny.py does not find out by itself: by type of model, the values that come on top of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from facts import RELEASE, ROPE_FIELD

__all__ = ["DEFAULT", "OVERRIDES", "TINY_BERT"]

# In place of a value: the rule leaves this one alone, and the class has its own.
DEFAULT = object()

# Otherwise they attend to what comes after, and so give a prompt's reply from a text that no longer is that prompt's.
_BERTS = (
    "bert",
    "bert-generation",
    "big_bird",
    "camembert",
    "data2vec-text",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)

# The rotary dimensions of half a head over the axes time, height and width.
_AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
TINY_BERT = {
    "model_type": "bert",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}

# From 5.0 its experts are told the hidden size (5.0 asks for that of a feed-forward's too); before, they refuse it.
_DBRX_WIDTH = {"hidden_size": 32} if RELEASE >= (5, 0) else {}

OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    **{model_type: {"is_decoder": True} for model_type in _BERTS},
    "bamba": {"attn_layer_indices": [1]},  # by default no layer attends
    # A scale of a sixteenth leaves the logits flat.
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"logit_scale": 1.0},
    "cohere2_moe": {"logit_scale": 1.0},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": _AXES, "full_attention": _AXES},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2, **_DBRX_WIDTH},
    },
    # The sliding layers have sizes of their own.
    "dots3_note_text": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_q_lora_rank": 16,
        "swa_kv_lora_rank": 16,
        "swa_head_dim": 16,
        "swa_qk_nope_head_dim": 8,
        "swa_v_head_dim": 8,
        "head_dim": 16,
    },
    "dory": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "n_input_layers": 1,
        "n_recurrent_layers": 2,
        "n_output_layers": 1,
    },
    "encoder-decoder": {
        "encoder": TINY_BERT,
        "decoder": TINY_BERT | {"is_decoder": True, "add_cross_attention": True},
    },
    "falcon_h1": {"mamba_d_ssm": 64},  # the heads of the recurrence times their size
    "gemma3n_text": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_kv_shared_layers": 0,  # else both layers would take their keys from a third
        "intermediate_size": [48, 48],
        "activation_sparsity_pattern": [0.5, 0.0],
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 8,
    },
    "gemma4_text": {"global_head_dim": 16, "vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 8},
    "gemma4_unified_text": {"global_head_dim": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]},
    "jamba": {
        "use_mamba_kernels": False,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "led": {"attention_window": 4},
    # One layer is dense, and that has to come before those with experts.
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
    "mamba2": {"num_heads": 8, "n_groups": 2},
    "mllama_text_model": {ROPE_FIELD: {"rope_type": "default", "rope_theta": 10000.0}},  # up to 4.57 it has to be given
    "nemotron_h": {"n_groups": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 64,
        "indexer_compress_ratio": 2,
        "hc_lowrank": 8,
        "ple_layer_ids": [1],
        "ple_embed_dim": 32,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 128,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 2,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_key_value_heads": 4},
    "reformer": {
        "is_decoder": True,
        "axial_pos_shape": [16, 16],  # together the positions
        "axial_pos_embds_dim": [16, 16],  # together the hidden size
        "attn_layers": ["local", "lsh"],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 2,
        "hash_seed": 0,  # else the buckets are drawn anew in every call
    },
    "roc_bert": {
        "is_decoder": True,
        "pronunciation_vocab_size": 128,  # without ids of their own they are asked for those of the tokens
        "shape_vocab_size": 128,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "xlm": {"pad_token_id": 2},  # 0 is the mask token, which it puts after every prompt
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},
    "xmod": {"is_decoder": True, "languages": ["en_XX"], "default_language": "en_XX"},
    # Its first three layers are fixed; the third and the fifth share one attention.
    "zamba": {
        "num_hidden_layers": 5,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "layers_block_type": DEFAULT,
        "use_mamba_kernels": False,
    },
    "zaya": {"num_experts_per_tok": 1},
}
