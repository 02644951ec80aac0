"""Tiny configurations and models, made from the configuration classes of transformers by one rule; nothing is loaded.

    model = built(transformers.LlamaForCausalLM)

The rule: each parameter of the configuration that is a size gets the value of `SIZES`; of the layers one of each kind
stays; the rest keeps its default. Where that does not suffice, `OVERRIDES` says what does.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .overrides import DEFAULT, OVERRIDES

__all__ = ["VOCABULARY", "built", "special_ids", "tiny_config"]

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
}

# What every configuration takes: ids that the vocabulary has room for (a decoder starts with BOS), and heads that are
# not tied, since a tied one tends to repeat its last token.
COMMON: Mapping[str, Any] = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "tie_word_embeddings": False,
}

# Names that say of a class that it has to be given its parts: up to 4.51, and later.
NEEDS_PARTS = ("is_composition", "has_no_defaults_at_init")

# Names that say how many layers there are, so that lists with a value for each layer are known by their length.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")


def tiny_config(config_class: type[PretrainedConfig], **overrides: Any) -> Any:
    """A configuration of the class that is tiny, `overrides` on top of the rule and of the table."""
    given = {**OVERRIDES.get(config_class.model_type, {}), **overrides}
    values = {**dict(_sizes(config_class, given)), **given}
    return config_class(**{name: copy.deepcopy(value) for name, value in values.items() if value is not DEFAULT})


def _sizes(config_class: type[PretrainedConfig], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the rule says; of configurations within this one, those that are not given."""
    names = set(inspect.signature(config_class.__init__).parameters)
    yield from COMMON.items()
    yield from ((name, SIZES[name]) for name in sorted(names) if name in SIZES)
    if {"kv_lora_rank", "num_key_value_heads"} <= names:  # latent attention has a key for each head
        yield "num_key_value_heads", SIZES["num_attention_heads"]
    if any(getattr(config_class, name, False) for name in NEEDS_PARTS):
        return
    plain, sub_configs = vars(config_class()), getattr(config_class, "sub_configs", {})  # none in 4.46
    yield from _layers(plain, names)
    for name in (names | set(sub_configs)) - set(given):
        inner = type(plain.get(name)) if plain.get(name) is not None else sub_configs.get(name)
        if isinstance(inner, type) and issubclass(inner, PretrainedConfig):
            yield name, tiny_config(inner).to_dict()


def _layers(plain: Mapping[str, Any], names: set[str]) -> Iterator[tuple[str, Any]]:
    """The number of layers and the lists with a value for each of them, cut down to one layer of each kind.

    A list in which no value comes twice holds the numbers of layers.
    """
    counted = next((name for name in LAYERS if name in names), None)
    total = plain.get(counted) if counted else None
    if counted is None or not isinstance(total, int) or total < 2:
        return
    lists = {
        name: list(plain[name])
        for name in sorted(names)
        if isinstance(plain.get(name), (list, tuple)) and len(set(map(str, plain[name]))) < len(plain[name]) == total
    }
    kinds = [repr([one[layer] for one in lists.values()]) for layer in range(total)]
    kept = sorted({kinds.index(kind) for kind in kinds})
    kept = kept if len(kept) > 1 else [0, total - 1]
    yield counted, len(kept)
    yield from ((name, [values[layer] for layer in kept]) for name, values in lists.items())


def built(model_class: Any, model_type: str | None = None, **overrides: Any) -> Any:
    """A tiny model of the class in float32 with fixed, decisive weights, from the configuration of `model_type`.

    Where that is one of several parts and the class is built from the text's, it is built from the text's.
    """
    own: type[PretrainedConfig] = model_class.config_class
    mapped = own if model_type is None else CONFIG_MAPPING[model_type]
    is_text_of_it = own.__name__ == mapped.__name__.replace("Config", "TextConfig")
    torch.manual_seed(0)
    model = model_class(tiny_config(own if is_text_of_it else mapped, **overrides)).float().eval()
    decide(model)
    return model


# Parts of the names of weights that have a form of their own: the decay of a recurrence, frequencies.
OWN_FORM = ("A_log", "dt_", "decay", "inv_freq", "rotary", "time_", "lambda", "correction_bias")


def decide(model: Any) -> None:
    """Draws the weights anew so that logits tell prompts apart: the default initialisation leaves them flat."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not weight.requires_grad or any(part in name for part in OWN_FORM):  # a table of sines is frozen
                continue
            if weight.ndim >= 2:
                weight.normal_(0, 0.2)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)


def special_ids(config: Any) -> list[int]:
    """The ids below the size of the vocabulary that a configuration gives a meaning: pads, ends, pictures."""
    found: set[int] = set()
    for name, value in _values(config.to_dict()):
        if name.endswith(("token_id", "token_ids", "token_index", "_idx", "_index")):
            ids = value if isinstance(value, (list, tuple)) else [value]
            found |= {one for one in ids if isinstance(one, int) and 0 <= one < VOCABULARY}
    return sorted(found)


def _values(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _values(value)
        else:
            yield str(name), value
