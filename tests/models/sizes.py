"""The values that configurations are made tiny with, by the name of the parameter."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SIZES", "TOKENS", "VOCABULARY"]

VOCABULARY = 128

# Every size is 32 or less, and those that have to divide or to multiply to another do: 4 heads of 8 are 32.
SIZES: Mapping[str, int | float] = {
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size", "unpadded_vocab_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "embedding_dim"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "input_embedding_size", "lru_width"), 32),
    **dict.fromkeys(("output_embedding_size", "hidden_size_global", "encoder_hidden_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "dim_ff", "dff", "d_inner", "feed_forward_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "ffn_hidden_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "swa_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "swa_num_key_value_heads", "kv_n_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "dim_head", "kv_channels", "attention_head_size", "swa_head_dim"), 8),
    **dict.fromkeys(("global_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank", "gated_norm_rank", "lora_rank"), 16),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "dense_intermediate_size"), 16),
    **dict.fromkeys(("shared_intermediate_size", "shared_experts_intermediate_size"), 16),
    **dict.fromkeys(("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"), 256),
    **dict.fromkeys(("max_encoder_position_embeddings", "max_decoder_position_embeddings"), 256),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), 256),
    **dict.fromkeys(("sliding_window", "window_size", "sliding_window_size", "attention_window_size"), 4),
    **dict.fromkeys(("attention_chunk_size", "local_attention", "relative_attention_num_buckets"), 8),
    **dict.fromkeys(("state_size", "mamba_d_state", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 8),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_headdim"), 8),
    **dict.fromkeys(("mamba_dt_rank", "time_step_rank", "linear_num_key_heads", "linear_num_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim", "index_head_dim"), 8),
    **dict.fromkeys(("linear_num_value_heads", "index_n_heads"), 4),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size"), 4),
    "encoder_hash_byte_group_vocab": 500,
    "relative_attention_max_distance": 16,
    "sliding_window_pattern": 2,
    # Parts that see: pictures of 4 by 4 patches.
    **dict.fromkeys(("image_size", "resolution"), 16),
    **dict.fromkeys(("patch_size", "pos_emb_height", "pos_emb_width", "posemb_grid_size"), 4),
    **dict.fromkeys(("depth", "resampler_depth", "num_global_layers", "layers"), 2),
    **dict.fromkeys(("out_hidden_size", "embed_dim", "projection_dim", "projector_hidden_size", "output_dim"), 32),
    **dict.fromkeys(("text_hidden_size", "vision_hidden_size", "projection_hidden_dim", "projection_hidden_size"), 32),
    **dict.fromkeys(("output_channels", "image_text_hidden_size", "adapter_in_dim", "adapter_out_dim"), 32),
    **dict.fromkeys(("projector_input_dim", "projector_output_dim", "moe_hidden_size", "patch_embed_hidden_size"), 32),
    **dict.fromkeys(("mlp_dim", "projection_intermediate_size", "alignment_intermediate_size"), 48),
    **dict.fromkeys(("mm_tokens_per_image", "image_seq_length", "latent_query_num", "num_query_tokens"), 4),
    **dict.fromkeys(("resampler_n_latents", "resampler_num_latents", "resampler_n_heads", "resampler_heads"), 4),
    **dict.fromkeys(("resampler_head_dim", "resampler_dim_head"), 8),
    **dict.fromkeys(("num_position_embeddings", "num_patches"), 16),
    "position_embedding_size": 64,
    # Parts that hear.
    **dict.fromkeys(
        ("num_mel_bins", "n_mel_bins", "feature_size", "input_feat_size", "feature_projection_input_dim"), 16
    ),
    **dict.fromkeys(("input_feat_per_channel", "mel_dim", "input_size", "input_dim"), 16),
    **dict.fromkeys(("hidden_dim", "downsample_hidden_size", "adapter_input_size", "audio_hidden_size"), 32),
    **dict.fromkeys(("subsampling_conv_channels", "conv_channels", "num_filters"), 8),
    **dict.fromkeys(("speech_encoder_layers", "encoder_num_hidden_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(
        ("speech_encoder_attention_heads", "t2u_encoder_attention_heads", "t2u_decoder_attention_heads"), 4
    ),
    **dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("encoder_num_key_value_heads", "decoder_num_key_value_heads"), 4),
    **dict.fromkeys(("speech_encoder_intermediate_size", "t2u_encoder_ffn_dim", "t2u_decoder_ffn_dim"), 48),
    **dict.fromkeys(("context_size", "n_window"), 8),
}

# The ids of tokens that mean something, for parameters whose own are beyond the vocabulary: by how the name begins.
TOKENS: Mapping[str, int] = {
    "image_token": 120,
    "video_token": 119,
    "audio_token": 118,
    "vision_start": 117,
    "vision_end": 116,
    "image_start": 115,
    "image_end": 114,
    "video_start": 113,
    "video_end": 112,
    "boi_token": 111,
    "eoi_token": 110,
    "image_patch": 109,
    "": 108,
}
