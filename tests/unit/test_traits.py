"""Traits: which models left padding makes exact, up to how many columns, and why not beyond."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import math
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
import transformers
from facts import RELEASE, ROPE_FIELD
from oracle import MODELS, ROWS, alone, build, compare, left_padded, right_padded, together
from transformers import GenerationMixin, LlamaForCausalLM, PreTrainedModel

from padfix.generation import traits
from padfix.generation.compat import positions_advance
from padfix.generation.exceptions import (
    EXACT_BEFORE,
    EXACT_SINCE,
    NOT_EXACT,
    POSITION_TABLES,
    WINDOW_COUNTS_PADS_BEFORE,
)
from padfix.generation.limits import CUT_BEFORE_US
from padfix.generation.traits import Traits, prompt_device, traits_of
from padfix.layout.plan import LayoutPlan
from padfix.releases import NEWEST_TESTED, OLDEST
from padfix.strategies import choose

COUNTED = "it counts positions from column 0 or from the length of the cache, pads included"


def expected(
    model: Any, exact_up_to: float = math.inf, reason: str = "", *, known: bool = True, encoder_decoder: bool = False
) -> Traits:
    name = type(model).__name__
    mixes_rows, is_early = "Rwkv" in name, reason.startswith("in transformers below")
    return Traits(name, encoder_decoder, exact_up_to, reason, mixes_rows, mixes_rows or is_early, True, known)


LIMIT = 16  # columns
ROPES: dict[str, tuple[dict[str, Any], str]] = {
    "dynamic": ({"rope_type": "dynamic", "factor": 8.0}, "dynamic NTK scales every row by the longest one"),
    "longrope": (
        {
            "rope_type": "longrope",
            "factor": 4.0,
            "short_factor": [1.0] * 4,
            "long_factor": [8.0] * 4,
            "original_max_position_embeddings": LIMIT,
        },
        "LongRoPE switches its factors for every row by the longest one",
    ),
}


def with_rope(kind: str) -> Any:
    """The Llama of the oracle with this rotary embedding."""
    longest = LIMIT if kind == "dynamic" else 4 * LIMIT
    plain = build("llama")
    sizes = {**MODELS["llama"][1], "max_position_embeddings": longest, ROPE_FIELD: dict(ROPES[kind][0])}
    if kind == "longrope":
        sizes["original_max_position_embeddings"] = LIMIT  # where 4.57 looks for it
    model = LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    model.load_state_dict(plain.state_dict())
    model.generation_config = plain.generation_config
    return model


def test_tokens_that_see_those_that_follow() -> None:
    """Gemma's flag: alone, sdpa drops the mask, and beside pads it is causal."""
    said = "its tokens see those that follow, and pads turn them causal"
    assert traits_of(build("llama", use_bidirectional_attention=True)) == expected(build("llama"), 0, said)
    assert traits_of(build("llama", use_bidirectional_attention="vision")) == expected(build("llama"))


def test_queries_that_are_scaled_by_their_column() -> None:
    model = build("llama")
    rope = {"rope_type": "yarn", "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": LIMIT}
    setattr(model.config, ROPE_FIELD, rope)
    said = "this release scales its queries by their column, pads included"
    assert traits_of(model) == (expected(model) if positions_advance() else expected(model, LIMIT, said))


class WithoutMask(LlamaForCausalLM):
    def forward(self, input_ids: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        return super().forward(input_ids=input_ids, position_ids=position_ids, **kwargs)


class Remote(PreTrainedModel, GenerationMixin):
    """A model of remote code: it derives from no model of the library's."""

    config_class = transformers.LlamaConfig

    def forward(self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None) -> Any:
        raise NotImplementedError

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class OwnRwkv(transformers.RwkvForCausalLM):
    pass


def other_class(name: str, model_class: type) -> Any:
    model = build(name)
    model.__class__ = model_class
    return model


def bart_decoder() -> Any:
    return transformers.BartForCausalLM(build("bart").config)


def remote() -> Any:
    return Remote(transformers.LlamaConfig(**MODELS["llama"][1]))


def sparse() -> Any:
    model = build("llama")
    model.config.index_topk = 12
    return model


def prompt_learning(active: bool = True) -> Any:
    """A Llama as PEFT leaves it while one of its prompt learning models generates."""

    class Wrapper:
        active_peft_config = SimpleNamespace(is_prompt_learning=active)

        def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    model = build("llama")
    model.prepare_inputs_for_generation = Wrapper().prepare_inputs_for_generation
    return model


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2", "opt", "bloom"])
def test_model_that_left_padding_makes_exact(name: str) -> None:
    model = build(name)
    assert traits_of(model) == expected(model)
    assert traits_of(model).name == MODELS[name][0]


@pytest.mark.parametrize(
    ("make", "exact_up_to", "reason"),
    [
        pytest.param(lambda: build("rwkv"), 0, "its recurrence runs over pads, whatever the mask says", id="class"),
        pytest.param(
            lambda: other_class("rwkv", OwnRwkv),
            0,
            "its recurrence runs over pads, whatever the mask says",
            id="subclass",
        ),
        pytest.param(lambda: other_class("llama", WithoutMask), 0, "its forward takes no attention_mask", id="no mask"),
        pytest.param(bart_decoder, 0, COUNTED, id="positions by column"),
        pytest.param(
            prompt_learning,
            0,
            "PEFT puts its virtual tokens before the pads, away from the prompt",
            id="virtual tokens",
        ),
        pytest.param(lambda: with_rope("dynamic"), LIMIT, ROPES["dynamic"][1], id="dynamic NTK"),
        pytest.param(lambda: with_rope("longrope"), LIMIT, ROPES["longrope"][1], id="LongRoPE"),
        pytest.param(sparse, 12, "its sparse attention ranks padded columns too", id="top-k"),
    ],
)
def test_model_with_a_limit_names_its_reason(make: Callable[[], Any], exact_up_to: int, reason: str) -> None:
    model = make()
    assert traits_of(model) == expected(model, exact_up_to, reason, known=not isinstance(model, WithoutMask))


def test_encoder_decoder_is_one() -> None:
    model = build("bart")
    assert traits_of(model) == expected(model, 0, COUNTED, encoder_decoder=True)


def test_class_from_elsewhere_is_unknown_and_its_subclass_of_a_librarys_is_known() -> None:
    model = remote()
    assert traits_of(model) == expected(model, known=False)
    assert traits_of(other_class("llama", type("Own", (LlamaForCausalLM,), {"__module__": "own"}))).known


def test_adapter_without_virtual_tokens_is_exact() -> None:
    model = prompt_learning(active=False)
    assert traits_of(model) == expected(model)


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs peft")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["prompt", "lora"])
def test_adapter_of_peft_is_seen_while_it_generates(kind: str) -> None:
    import peft

    seen: list[Traits] = []
    model = build("llama")
    if kind == "prompt":
        config: Any = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    else:
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"])
    adapted: Any = peft.get_peft_model(model, config)
    forward = model.forward

    def looked_at(*args: Any, **kwargs: Any) -> Any:
        seen.append(traits_of(model))
        return forward(*args, **kwargs)

    looked_at.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    model.forward = looked_at
    adapted.generate(**right_padded(ROWS[:1]), max_new_tokens=1, do_sample=False)
    exact_up_to = 0 if kind == "prompt" else math.inf
    assert [one.exact_up_to for one in seen] == [exact_up_to]
    outer = traits_of(adapted)
    assert (outer.name, outer.exact_up_to, outer.known) == ("LlamaForCausalLM", exact_up_to, True)


# Tables of classes


@pytest.mark.skipif(RELEASE < NEWEST_TESTED, reason="the tables name classes of the newest release")
def test_classes_of_the_tables_exist() -> None:
    models = Path(transformers.__file__).parent / "models"
    text = "".join(file.read_text(encoding="utf-8") for file in models.glob("*/modeling_*.py"))
    classes = set(re.findall(r"^class (\w+)", text, re.MULTILINE))
    assert "LlamaForCausalLM" in classes
    gone = {"XLMProphetNetForCausalLM", "XLMProphetNetForConditionalGeneration"}  # up to 4.x
    assert {*NOT_EXACT, *EXACT_SINCE, *CUT_BEFORE_US, *WINDOW_COUNTS_PADS_BEFORE} - gone <= classes


@pytest.mark.parametrize(
    ("release", "exact"), [((4, 46), False), ((5, 23), False), ((5, 24), True), ((5, 25), True), ((6, 0), True)]
)
def test_class_is_exact_from_the_release_of_the_table_on(
    release: tuple[int, int], exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_release(monkeypatch, release)
    model = other_class("llama", type("MambaForCausalLM", (LlamaForCausalLM,), {}))
    reason = "in transformers below 5.24 its left-padded rows differ from the prompts alone"
    tested = release <= NEWEST_TESTED
    assert traits_of(model) == (expected(model, known=tested) if exact else expected(model, 0, reason))


@pytest.mark.parametrize(("name", "since"), EXACT_SINCE.items())
def test_class_of_a_later_release_names_that_release(
    name: str, since: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = other_class("llama", type(name, (LlamaForCausalLM,), {}))
    on_release(monkeypatch, since)
    assert traits_of(model) == expected(model)
    on_release(monkeypatch, (since[0], since[1] - 1))
    assert traits_of(model).exact_up_to == 0
    assert f"below {since[0]}.{since[1]} " in traits_of(model).reason


@pytest.mark.parametrize(("name", "before"), EXACT_BEFORE.items())
def test_class_that_was_exact_in_the_first_releases_is_named_from_the_first_on_that_was_not(
    name: str, before: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = other_class("llama", type(name, (LlamaForCausalLM,), {}))
    assert OLDEST < before < EXACT_SINCE[name]
    on_release(monkeypatch, OLDEST)
    assert traits_of(model) == expected(model)
    on_release(monkeypatch, before)
    assert traits_of(model).exact_up_to == 0


@pytest.mark.parametrize("name", NOT_EXACT)
def test_class_that_is_not_exact_says_why(name: str) -> None:
    seen = traits_of(other_class("llama", type(name, (LlamaForCausalLM,), {})))
    assert (seen.exact_up_to, seen.reason) == (0, NOT_EXACT[name])
    assert seen.reason


# Positions by column


class Positional(torch.nn.Module):
    def forward(self, shape: Any, past: int = 0) -> Any:
        raise NotImplementedError


class MaskedPositional(torch.nn.Module):
    def forward(self, attention_mask: Any, past: int = 0) -> Any:
        raise NotImplementedError


class Table(torch.nn.Module):
    def forward(self, shape: Any) -> Any:
        raise NotImplementedError


class Counting(torch.nn.Module):
    """A decoder with some module under some name."""

    config = SimpleNamespace(is_encoder_decoder=False)

    def __init__(self, path: str, module: torch.nn.Module) -> None:
        super().__init__()
        *parents, last = path.split(".")
        inner: torch.nn.Module = self
        for parent in parents:
            inner.add_module(parent, torch.nn.Module())
            inner = inner.get_submodule(parent)
        inner.add_module(last, module)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        raise NotImplementedError

    def prepare_inputs_for_generation(self, *args: Any) -> Any:
        raise NotImplementedError


class DecoderTold(Counting):
    def forward(self, input_ids: Any, attention_mask: Any = None, decoder_position_ids: Any = None) -> Any:
        raise NotImplementedError


class Told(Counting):
    def forward(self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "exact_up_to"),
    [
        *((Counting(name, Positional()), 0) for name in POSITION_TABLES),
        (Counting("model.decoder.embed_positions", Positional()), 0),
        *(
            (Counting(f"model.{part}.embed_positions", Positional()), math.inf)
            for part in ("encoder", "vision_tower", "visual", "image_model", "audio")
        ),
        (Counting("model.decoder.embed_positions", MaskedPositional()), math.inf),
        (Counting("model.decoder.embed_positions", Table()), 0),
        (Counting("transformer.wpe", Table()), 0),
        (Counting("vision_tower.position_embedding", Table()), math.inf),
        (Counting("model.decoder.embed_tokens", Positional()), math.inf),
        (Counting("model.decoder.old_embed_positions", Positional()), math.inf),
        (Told("model.decoder.embed_positions", Positional()), math.inf),
        (DecoderTold("model.decoder.embed_positions", Positional()), math.inf),  # Whisper
    ],
)
def test_decoder_that_asks_its_positions_by_column(model: Any, exact_up_to: float) -> None:
    for _ in range(2):  # read, and remembered
        seen = traits_of(model)
        assert (seen.exact_up_to, seen.reason) == (exact_up_to, COUNTED if exact_up_to == 0 else "")


def test_what_is_remembered_of_a_model_does_not_keep_it_alive() -> None:
    model = Counting("embed_positions", Positional())
    gone = weakref.ref(model)
    traits_of(model)
    del model
    gc.collect()
    assert gone() is None


# Rotary embeddings


def on_release(monkeypatch: pytest.MonkeyPatch, release: tuple[int, int]) -> None:
    """As if this release were installed, and nothing remembered of another."""
    monkeypatch.setattr(traits, "installed", lambda: release)
    monkeypatch.setattr(traits, "_seen", WeakKeyDictionary())


class Configured:
    """A model of nothing but a configuration."""

    def __init__(self, **config: Any) -> None:
        self.config = SimpleNamespace(**config)

    def forward(self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None) -> Any:
        raise NotImplementedError

    def prepare_inputs_for_generation(self) -> Any:
        raise NotImplementedError

    def named_modules(self) -> list[Any]:
        return []


class Encoding(Configured):
    """An encoder-decoder whose encoder is told nothing of pads, since it reads no text."""

    def forward(self, pixel_values: Any, decoder_attention_mask: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_encoder_without_a_mask_says_nothing_of_the_decoder() -> None:
    model = Encoding(is_encoder_decoder=True)
    assert traits_of(model).exact_up_to == math.inf
    model.config.is_encoder_decoder = False
    assert traits_of(model).reason == "its forward takes no attention_mask"


PLAIN: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("config", "exact_up_to"),
    [
        ({}, math.inf),
        ({"rope_scaling": None, "rope_parameters": None}, math.inf),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, math.inf),
        ({"rope_parameters": PLAIN}, math.inf),
        ({"rope_scaling": {"type": "dynamic"}, "max_position_embeddings": 32}, 32),
        ({"rope_parameters": {"rope_type": "dynamic"}, "max_position_embeddings": 32}, 32),
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 24}, 24),
        ({"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 24}, 24),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 24}}, 24),
        ({"rope_scaling": {"type": "longrope"}}, 0),  # nobody knows
        # one for each type of layer
        (
            {
                "rope_parameters": {"full_attention": {"rope_type": "dynamic"}, "sliding_attention": PLAIN},
                "max_position_embeddings": 32,
            },
            32,
        ),
        ({"rope_parameters": {"full_attention": PLAIN, "sliding_attention": PLAIN}}, math.inf),
        ({"index_topk": 2048}, 2048),
        ({"index_topk": None}, math.inf),
    ],
)
def test_configuration_gives_the_limit(config: dict[str, Any], exact_up_to: float) -> None:
    assert traits_of(Configured(**config)).exact_up_to == exact_up_to


def test_configuration_of_the_text_model_counts() -> None:
    text = SimpleNamespace(rope_scaling={"rope_type": "dynamic"}, max_position_embeddings=32)
    model = Configured(get_text_config=lambda *, decoder: text if decoder else None)
    assert traits_of(model).exact_up_to == 32


SWITCHING = {
    "dynamic": True,
    "longrope": hasattr(transformers.modeling_rope_utils, "dynamic_rope_update"),  # not yet in 4.46, save in Phi-3
}


@pytest.mark.parametrize("kind", ROPES)
def test_left_padded_batch_is_exact_up_to_the_limit_and_not_beyond(kind: str) -> None:
    batch = left_padded(ROWS)
    width = batch["input_ids"].shape[1]
    plan = LayoutPlan.from_mask(batch["attention_mask"])
    for new, exact in ((LIMIT - width, True), (LIMIT - width + 1, False), (LIMIT - width + 3, False)):
        replies = together(with_rope(kind), batch, max_new_tokens=new)
        apart = alone(with_rope(kind), ROWS, max_new_tokens=new)
        if exact:
            compare(replies, apart)
        elif SWITCHING[kind] and new > LIMIT - width + 1:  # what is computed beyond the limit shows one token later
            with pytest.raises(AssertionError, match=r"row [12]"):
                compare(replies, apart)
        strategy, reason = choose("left_pad", traits_of(with_rope(kind)), plan, new)
        assert (strategy is not None, reason) == (exact, "" if exact else f"LlamaForCausalLM ({ROPES[kind][1]})")


@pytest.mark.parametrize("kind", ROPES)
def test_repaired_batch_is_exact_up_to_the_limit_and_beyond(kind: str, installed: None) -> None:
    width = max(map(len, ROWS))
    model = with_rope(kind)
    batch = right_padded(ROWS)
    for new in (LIMIT - width, LIMIT - width + 1, LIMIT - width + 4):
        output = model.generate(**batch, do_sample=False, max_new_tokens=new)
        replies = [reply.tokens for reply in alone(with_rope(kind), ROWS, max_new_tokens=new)]
        assert output[:, width:].tolist() == replies


def test_one_padded_row_is_right_on_a_model_that_left_padding_cannot_make_right(installed: None) -> None:
    model = build("rwkv")
    output = model.generate(**right_padded(ROWS[:1], extra=3), do_sample=False, max_new_tokens=4)
    (expected,) = alone(model, ROWS[:1], max_new_tokens=4)
    assert output[0, -4:].tolist() == expected.tokens
    output = model.generate(**right_padded(ROWS), do_sample=False, max_new_tokens=4)
    assert output[:, -4:].tolist() == [reply.tokens for reply in alone(model, ROWS, max_new_tokens=4)]


# What an adversary found


def test_forward_that_hands_everything_on_takes_a_mask() -> None:
    model = build("llama")
    inner = model.forward
    model.forward = lambda *args, **kwargs: inner(*args, **kwargs)
    assert traits_of(model).exact_up_to == math.inf
    model.forward = lambda input_ids=None, **kwargs: inner(input_ids=input_ids, **kwargs)
    assert traits_of(model).reason == "its forward takes no attention_mask"


def test_forward_that_hands_everything_on_to_one_without_a_mask_takes_none() -> None:
    model = other_class("llama", type("Own", (PreTrainedModel,), {"forward": lambda self, input_ids: None}))
    model.prepare_inputs_for_generation = lambda *args: None
    model.forward = lambda *args, **kwargs: None
    assert traits_of(model).reason == "its forward takes no attention_mask"


def test_learned_positions_that_forward_hides_are_counted_by_column() -> None:
    model = build("gpt2")
    inner = model.forward
    model.forward = lambda *args, **kwargs: inner(*args, **kwargs)
    assert traits_of(model).reason == COUNTED


@pytest.mark.parametrize(
    ("config", "exact_up_to"),
    [
        ({"attn_temperature_tuning": True, "no_rope_layers": [1, 0], "floor_scale": 32}, 31),
        ({"attn_temperature_tuning": False, "no_rope_layers": [1, 0], "floor_scale": 32}, math.inf),
        ({"attn_temperature_tuning": True, "no_rope_layers": [1, 1], "floor_scale": 32}, math.inf),
        ({"keep_window_size": 64}, 64),
        ({"index_topk": 64}, 64),
    ],
)
def test_what_counts_columns_by_configuration_is_exact_up_to_a_number_of_them(
    config: dict[str, Any], exact_up_to: float
) -> None:
    assert traits_of(Configured(**config)).exact_up_to == exact_up_to


def test_sliding_cache_of_an_old_release_counts_pads_once_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gemma2ForCausalLM(Configured):
        pass

    model = Gemma2ForCausalLM(sliding_window=32)
    for release, exact_up_to in (((4, 46), 32), ((4, 47), 0), ((4, 56), 0), ((4, 57), math.inf)):
        on_release(monkeypatch, release)
        assert traits_of(model).exact_up_to == exact_up_to, release


def test_a_peft_model_is_known_by_the_model_beneath_it() -> None:
    model = build("llama")
    model.get_base_model = lambda: build("gpt2")
    assert (traits_of(model).name, traits_of(model).known) == ("GPT2LMHeadModel", True)


def test_the_smallest_of_several_limits_counts() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0}
    model = Configured(keep_window_size=8, rope_parameters=rope, max_position_embeddings=4096)
    assert (traits_of(model).exact_up_to, traits_of(model).reason) == (
        8,
        "its sparse attention ranks padded columns too",
    )


def test_a_peft_model_has_the_limits_of_the_model_beneath_it() -> None:
    class Wrapper:
        def __init__(self, model: Any) -> None:
            self.model, self.config = model, model.config
            self.prepare_inputs_for_generation = model.prepare_inputs_for_generation

        def get_base_model(self) -> Any:
            return self.model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    for name in ("gpt2", "rwkv", "blenderbot"):
        model = build(name)
        assert traits_of(Wrapper(model)) == traits_of(model)


def test_a_compiled_model_is_what_the_model_beneath_it_is() -> None:
    model = build("llama")
    assert traits_of(torch.compile(model, backend="eager")) == traits_of(model)


def test_prompt_goes_where_the_model_is_or_where_accelerates_hooks_fetch_it() -> None:
    model = build("llama")
    assert prompt_device(model) == torch.device("cpu")
    model.to("meta")
    assert prompt_device(model) == torch.device("meta")  # a model without weights
    model.model.layers[0]._hf_hook = object()
    assert prompt_device(model) == torch.device("cpu")


@pytest.mark.parametrize(
    "value",
    [torch.tensor([1.0, 2.0]), {"a": torch.ones(2)}, threading.Lock(), (one for one in "ab")],
    ids=["tensor", "mapping", "lock", "generator"],
)
def test_configuration_may_hold_anything(value: Any) -> None:
    model = build("llama")
    first = traits_of(model)
    model.config.held = value
    try:
        assert traits_of(model) == traits_of(model) == first
    finally:
        del model.config.held


def test_class_that_is_changed_after_a_first_look_is_seen() -> None:
    class Derived(LlamaForCausalLM):
        pass

    model = Derived(build("llama").config)
    assert traits_of(model).known
    setattr(Derived, "prepare_inputs_for_generation", lambda self, *args, **kwargs: {})  # noqa: B010
    assert not traits_of(model).known


def test_configuration_that_is_changed_in_place_is_read_anew() -> None:
    model = build("llama")
    setattr(model.config, ROPE_FIELD, {"rope_type": "default", "rope_theta": 10000.0})
    assert traits_of(model).exact_up_to == math.inf
    getattr(model.config, ROPE_FIELD).update(rope_type="dynamic", factor=2.0)
    assert traits_of(model).exact_up_to < math.inf
