"""Where prompts can be packed into few rows before decoding: which models, and which calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn.modules import module as every_module
from transformers import GenerationConfig

from ..layout.plan import LayoutPlan
from ..registry import registered
from .adapters import has_forward_hooks, has_offsets, names_adapters
from .cache import is_movable
from .call import GenerateCall
from .compat import (
    autocasts,
    growing_cache,
    installed,
    several_ranks,
    steps_together,
    takes_masks_by_kind,
    wants_fixed_shapes,
)
from .configs import text_config, windows
from .exceptions import PACKABLE, SLIDING, stands_in
from .own import runs_as_written
from .traits import Traits, prompt_device

__all__ = ["copies_of", "packing_bound", "windows_by_kind"]

# The arguments that change nothing before the first new token, beside ids, mask and the fields below.
ARGUMENTS = frozenset(
    {
        "generation_config",
        "logits_processor",
        "prefix_allowed_tokens_fn",
        "stopping_criteria",
        "streamer",
        "tokenizer",
        "use_model_defaults",
    }
)

# The fields of a generation config that do not.
FIELDS = frozenset(
    {
        "assistant_confidence_threshold",  # these seven say how to ask an assistant, if there is one
        "assistant_early_exit",
        "assistant_lookbehind",
        "max_matching_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "target_lookbehind",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "decoder_start_token_id",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
        "eos_token_id",
        "epsilon_cutoff",
        "eta_cutoff",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "length_penalty",
        "max_length",
        "max_new_tokens",
        "min_length",
        "min_new_tokens",
        "min_p",
        "no_repeat_ngram_size",
        "num_beams",
        "num_return_sequences",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "remove_invalid_values",
        "renormalize_logits",
        "repetition_penalty",
        "return_dict_in_generate",
        "sequence_bias",
        "stop_strings",
        "suppress_tokens",
        "temperature",
        "top_h",
        "top_k",
        "top_p",
        "transformers_version",
        "typical_p",
        "watermarking_config",
    }
)

# The kinds of layers whose masks padfix can make, as configurations name them.
FULL, SLIDES = "full_attention", "sliding_attention"

# What says nothing in other fields, beside the default.
NEUTRAL = {"num_beam_groups": 1, "guidance_scale": 1}


def copies_of(config: GenerationConfig) -> int:
    """The number of rows that `generate` makes of each prompt before the first forward."""
    asked = (config.num_beams, config.num_return_sequences)
    return max([1, *(number for number in asked if isinstance(number, int))])  # transformers refuses anything else


def packing_bound(call: GenerateCall, config: GenerationConfig, plan: LayoutPlan, traits: Traits) -> Iterator[str]:
    """Why the prompts of a call cannot be packed, a phrase each; left padding is taken to be exact for it."""
    yield from _by_call(call, config)
    yield from _by_model(call, traits)
    if 0 in plan.lengths:
        yield "a row has no real token"
    if windows_by_kind(call.model, plan.model_width) is None:
        yield f"{traits.name} (it is not known what its layers make of the window in its configuration)"


def windows_by_kind(model: Any, width: int) -> dict[str, int | None] | None:
    """For each kind of layer how many columns a token sees, itself included; None for all, or as many as there are.

    None in place of that where it is not known what the layers make of a window in the configuration.
    """
    sizes, config = {size for size in windows(model) if size < width}, text_config(model.config)
    if not sizes:
        return {FULL: None}
    window, kinds = getattr(config, "sliding_window", None), set(getattr(config, "layer_types", None) or (SLIDES,))
    by_kind = takes_masks_by_kind(model)  # else every layer has the one window, whatever its kind
    known = stands_in(SLIDING, model) and sizes == {window} and window != 1
    if not known or not kinds <= ({FULL, SLIDES} if by_kind else {SLIDES}):
        return None
    return {kind: window if kind == SLIDES else None for kind in kinds}


def _by_call(call: GenerateCall, config: GenerationConfig) -> Iterator[str]:
    fields = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    for name, value in call.arguments.items():
        known = name in (call.ids_name, call.mask_name) or name in ARGUMENTS or name in fields
        if value is not None and value is not False and not known:
            yield f"{name}="
    if call.ids is None or call.ids.ndim != 2:
        yield "a prompt that is not token ids alone"
    default = GenerationConfig()
    for name, value in fields.items():
        neutral = (getattr(default, name, None), NEUTRAL.get(name), None, False, 0)
        says = value is False if name == "use_cache" else name not in FIELDS and not _is_one_of(value, neutral)
        if says:
            yield f"{name}={value if isinstance(value, (bool, int, float, str)) else '...'}"
    if steps_together(call) or several_ranks():
        yield "ranks have to run the same number of forwards"
    if wants_fixed_shapes(call, config):
        yield "each new shape would cost a new graph"
    if autocasts(prompt_device(call.model).type):
        yield "autocast"


def _is_one_of(value: Any, others: tuple[Any, ...]) -> bool:
    """Whether a value is among others; a tensor or an array, which no comparison is a bool of, is not."""
    return not hasattr(value, "shape") and (value in others or (hasattr(value, "__len__") and len(value) == 0))


def _by_model(call: GenerateCall, traits: Traits) -> Iterator[str]:
    model = call.model
    since = _packable_since(type(model)) if traits.known else None
    if since is None or installed() < since:
        yield f"{traits.name} (it was not measured to be exact when prompts share a row)"
        return
    if traits.exact_up_to != float("inf") or traits.mixes_rows:
        yield f"{traits.name} ({traits.reason or 'rows of one batch change one another'})"
    text = text_config(model.config)
    if getattr(text, "is_causal", True) is False or getattr(text, "use_bidirectional_attention", None) is True:
        yield f"{traits.name} (its tokens see those that follow)"
    if getattr(text, "output_router_logits", False):
        yield f"{traits.name} (it is asked for what its router gives for each column)"
    if getattr(text, "alibi", False):  # Falcon
        yield f"{traits.name} (it makes its ALiBi from a mask with one axis)"
    if not is_movable(growing_cache(model), 0, trims=False):
        yield f"{traits.name} (some of its layers keep a state rather than a column for each token)"
    attention = {getattr(one, "_attn_implementation", None) for one in (model.config, text_config(model.config))}
    if not attention <= {"eager", "sdpa"}:
        yield f"attn_implementation={'/'.join(sorted(map(str, attention)))} (it takes no mask with an axis for queries)"
    if model.training:
        yield "the model is in training mode"
    if getattr(model, "hf_quantizer", None) is not None:
        yield "the model is quantised"
    if getattr(model.config, "output_attentions", False) or getattr(model.config, "output_hidden_states", False):
        yield "the model's configuration asks for hidden states or attentions"
    if _is_watched(model, call.batch):
        yield "forward hooks would see packed rows"
    if not runs_as_written(model):
        yield "a forward of the model, or what prepares its inputs and masks, is not the library's own"


def _packable_since(model_class: type) -> tuple[int, int] | None:
    """The first release in which the library's class that this one is was measured to be packable; None for others."""
    if registered(model_class) is not None:
        return None
    first = next((one for one in model_class.__mro__ if one.__module__.startswith("transformers.models.")), None)
    return None if first is None else PACKABLE.get(first.__name__)


def _is_watched(model: Any, batch: int) -> bool:
    """Whether hooks see the forwards, those included that tell a layer something for each row of the batch."""
    if every_module._global_forward_hooks or every_module._global_forward_pre_hooks:
        return True
    hooks = (hook for module in model.modules() for hook in module._forward_pre_hooks.values())
    return has_forward_hooks(model, batch) or has_offsets(model) or any(names_adapters(hook, 1) for hook in hooks)
