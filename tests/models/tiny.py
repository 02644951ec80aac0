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
from .parts import PARTS
from .sizes import SIZES, TOKENS, VOCABULARY

__all__ = ["VOCABULARY", "built", "special_ids", "tiny_config"]

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
    model_type = config_class.model_type
    parts = PARTS.get(config_class.__name__, PARTS.get(model_type, {}))
    given = {**OVERRIDES.get(model_type, {}), **parts, **overrides}
    values = {**dict(_sizes(config_class, given)), **given}
    return config_class(**{name: copy.deepcopy(value) for name, value in values.items() if value is not DEFAULT})


def _sizes(config_class: type[PretrainedConfig], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the rule says; of configurations within this one, those that are not given."""
    names = set(inspect.signature(config_class.__init__).parameters)
    yield from COMMON.items()
    defaults = {name: one.default for name, one in inspect.signature(config_class.__init__).parameters.items()}
    yield from ((name, _like(defaults[name], SIZES[name])) for name in sorted(names) if name in SIZES)
    yield from ((name, _token(name)) for name in sorted(names) if _is_token(name, defaults[name]))
    if {"kv_lora_rank", "num_key_value_heads"} <= names:  # latent attention has a key for each head
        yield "num_key_value_heads", SIZES["num_attention_heads"]
    if "text_config" not in names and any(getattr(config_class, name, False) for name in NEEDS_PARTS):
        return
    plain, sub_configs = vars(config_class()), getattr(config_class, "sub_configs", {})  # none in 4.46
    yield from _layers(plain, names)
    for name in (names | set(sub_configs)) - set(given):
        inner = type(plain.get(name)) if plain.get(name) is not None else sub_configs.get(name)
        if isinstance(inner, type) and issubclass(inner, PretrainedConfig):
            yield name, tiny_config(inner).to_dict()


def _like(default: Any, size: int | float) -> Any:
    """A size where the default is one, or several where that has several."""
    return [size] * len(default) if isinstance(default, (list, tuple)) else size


def _is_token(name: str, default: Any) -> bool:
    """Whether a parameter is the id of a token that is beyond the vocabulary."""
    named = name.endswith(("token_id", "token_index", "patch_id")) and name not in COMMON
    return named and isinstance(default, int) and default >= VOCABULARY


def _token(name: str) -> int:
    return next(value for begin, value in TOKENS.items() if name.startswith(begin))


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
