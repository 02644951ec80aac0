"""How `generate` reaches the library's method: read from classes of every release and from classes of these tests."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import pytest
import torch
import transformers
from oracle import build
from transformers.generation.utils import GenerationMixin

import padfix
from padfix.generation.reach import (
    Reach,
    reach_of,
    reach_of_class,
    reached_models,
    reaches_generation_mixin,
)

MIXIN: Any = GenerationMixin
Llama: Any = transformers.LlamaForCausalLM
LLAMA = "LlamaForCausalLM"

# Read by eye in 5.24.0: the kind and the inner models.
CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "LlamaForCausalLM": ("directly", ()),
    "T5ForConditionalGeneration": ("directly", ()),
    "BarkSemanticModel": ("through super", ()),
    "BarkCoarseModel": ("through super", ()),
    "CsmForConditionalGeneration": ("through super", ()),
    "JanusForConditionalGeneration": ("through super", ()),
    "KyutaiSpeechToTextForConditionalGeneration": ("through super", ()),
    "MoshiForConditionalGeneration": ("through super", ()),
    "Pop2PianoForConditionalGeneration": ("through super", ()),
    "SeamlessM4TModel": ("through super", ()),
    "WhisperForConditionalGeneration": ("through super", ()),  # in generate_with_fallback
    "BarkModel": ("through an inner model", ("coarse_acoustics", "fine_acoustics", "semantic")),
    "Blip2ForConditionalGeneration": ("through an inner model", ("language_model",)),
    "BlipForConditionalGeneration": ("through an inner model", ("text_decoder",)),
    "ClvpModelForConditionalGeneration": ("through an inner model", ("speech_decoder_model",)),
    "InstructBlipForConditionalGeneration": ("through an inner model", ("language_model",)),
    "Kosmos2ForConditionalGeneration": ("through an inner model", ("text_model",)),
    "Qwen2_5OmniForConditionalGeneration": ("through an inner model", ("talker", "thinker")),
    "RagSequenceForGeneration": ("through an inner model", ("generator",)),
    "BarkFineModel": ("never", ()),
    "DiaForConditionalGeneration": ("never", ()),
    "MusicgenForCausalLM": ("never", ()),
    "MusicgenForConditionalGeneration": ("never", ()),
    "PatchTSTForPrediction": ("never", ()),
    "RagTokenForGeneration": ("never", ()),
    "SpeechT5ForTextToSpeech": ("never", ()),
    "TimeSeriesTransformerForPrediction": ("never", ()),
}


@pytest.mark.parametrize("name", CLASSES)
def test_class_of_the_library(name: str) -> None:
    if not hasattr(transformers, name):
        pytest.skip(f"this release has no {name}")
    model_class = getattr(transformers, name)
    found = reach_of_class(model_class)
    assert (found.kind, found.through) == CLASSES[name]
    owner = next(one for one in model_class.__mro__ if "generate" in vars(one))
    assert (found.model, found.owner) == (name, owner.__name__)


def test_owner_is_the_class_that_has_the_method() -> None:
    assert reach_of_class(transformers.WhisperForConditionalGeneration).owner == "WhisperGenerationMixin"
    assert reach_of_class(Llama).owner == "GenerationMixin"


# Classes of our own


class Super(Llama):  # type: ignore[misc]
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return super().generate(*args, **kwargs)


class NotTheFirst(Super):
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return super().generate(*args, **kwargs)


class ThroughAMethod(Llama):  # type: ignore[misc]
    def generate(self, **kwargs: Any) -> Any:
        return self.in_parts(**kwargs)

    def in_parts(self, **kwargs: Any) -> Any:
        above: Any = super()
        again = above
        return [again.generate(**kwargs)]


class ByName(Llama):  # type: ignore[misc]
    def generate(this, **kwargs: Any) -> Any:  # noqa: N805
        return functools.partial(GenerationMixin.generate, this)(**kwargs)


class Decorated(Llama):  # type: ignore[misc]
    @torch.no_grad()
    def generate(self, **kwargs: Any) -> Any:
        return super().generate(**kwargs)


class Inner(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.llm: Any = model

    def generate(self, **kwargs: Any) -> Any:
        model = self.llm
        return model.generate(**kwargs)


class Nested(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.parts: Any = torch.nn.Module()
        self.parts.inner = Inner(model)

    def generate(self, **kwargs: Any) -> Any:
        return self.parts.inner.generate(**kwargs)


class Loop(Llama):  # type: ignore[misc]
    def generate(self, input_ids: Any, **kwargs: Any) -> Any:
        """Not as in `super().generate` or self.model.generate()."""
        kwargs.pop("generate", None)
        return self.forward(input_ids)


class OnTopOfTheLoop(Loop):
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return super().generate(*args, **kwargs)


class Unclear(Llama):  # type: ignore[misc]
    def generate(self, **kwargs: Any) -> Any:
        return find_a_model(kwargs).generate(**kwargs)


def find_a_model(kwargs: Any) -> Any:
    return kwargs


exec("class NoSource(Llama):\n    def generate(self, **kwargs):\n        return super().generate(**kwargs)")
NoSource: Any = locals()["NoSource"]

OWN: list[tuple[Any, str, tuple[str, ...]]] = [
    (Super, "through super", ()),
    (NotTheFirst, "through super", ()),
    (ThroughAMethod, "through super", ()),
    (ByName, "through super", ()),
    (Decorated, "through super", ()),
    (Inner, "through an inner model", ("llm",)),
    (Nested, "through an inner model", ("parts.inner",)),
    (Loop, "never", ()),
    (OnTopOfTheLoop, "never", ()),
    (Unclear, "unknown", ()),
    (NoSource, "unknown", ()),
]


@pytest.mark.parametrize(("model_class", "kind", "through"), OWN, ids=lambda value: getattr(value, "__name__", ""))
def test_class_with_a_method_of_its_own(model_class: Any, kind: str, through: tuple[str, ...]) -> None:
    found = reach_of_class(model_class)
    assert (found.kind, found.through, found.owner) == (kind, through, model_class.__name__)


def test_class_without_the_method_never_reaches_it() -> None:
    assert reach_of_class(torch.nn.Linear) == Reach("never", "Linear")


def test_method_that_was_put_on_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Llama):  # type: ignore[misc]
        pass

    stock = Mine.generate

    @functools.wraps(stock)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return stock(self, *args, **kwargs)

    monkeypatch.setattr(Mine, "generate", wrapper)
    assert reach_of_class(Mine) == Reach("directly", "Mine", "Mine")
    padfix.install()  # the wrapper still calls the method from before
    assert reach_of_class(Mine).kind == "unknown"
    padfix.uninstall()
    monkeypatch.setattr(Mine, "generate", lambda self, **kwargs: stock(self, **kwargs))
    assert reach_of_class(Mine).kind == "unknown"
    monkeypatch.setattr(Mine, "generate", print)
    assert reach_of_class(Mine).kind == "unknown"


# Models


def test_model_whose_inner_model_reaches_it() -> None:
    model = build("llama")
    for outer, through in ((Inner(model), "llm"), (Nested(model), "parts.inner")):
        assert reach_of(outer) == Reach(
            "through an inner model", type(outer).__name__, type(outer).__name__, (through,)
        )
        assert reached_models(outer) == (model,)
        assert not reaches_generation_mixin(outer)


def test_inner_model_counts_only_where_its_own_method_reaches_it() -> None:
    loop = Loop(build("llama").config)
    assert reach_of(Inner(loop)) == Reach("never", "Inner", "Inner")
    assert reach_of(Inner(Unclear(loop.config))).kind == "unknown"
    assert reach_of(Inner(None)).kind == "unknown"
    absent = Inner(None)
    del absent.llm
    assert reach_of(absent).kind == "unknown"
    assert reached_models(Inner(loop)) == reached_models(absent) == reached_models(loop) == ()


@pytest.mark.filterwarnings("ignore")
def test_inner_models_of_a_model_of_the_library() -> None:
    with torch.device("meta"):
        bark: Any = transformers.BarkModel(transformers.BarkConfig())
    assert reach_of(bark).through == ("coarse_acoustics", "semantic")  # the fine one has a loop of its own
    assert reached_models(bark) == (bark.coarse_acoustics, bark.semantic)


@pytest.mark.parametrize(
    ("model", "kind"), [(build("llama"), "directly"), (Super(build("llama").config), "through super")]
)
def test_reached_model_is_the_model_itself(model: Any, kind: str) -> None:
    assert reach_of(model).kind == kind
    assert reached_models(model) == (model,)
    assert reaches_generation_mixin(model) is (kind == "directly")


@pytest.mark.filterwarnings("ignore")
def test_compiled_model_is_what_the_model_in_it_is() -> None:
    model = build("llama")
    compiled = torch.compile(model)
    assert reach_of(compiled) == Reach("directly", LLAMA, "GenerationMixin")
    assert reached_models(compiled) == (model,)
    assert reaches_generation_mixin(compiled)
    assert not reaches_generation_mixin(torch.compile(Inner(model)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs peft")
def test_adapter_of_peft_is_what_the_model_beneath_it_is() -> None:
    import peft

    adapted: Any = peft.get_peft_model(
        build("llama"), peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"])
    )
    assert reach_of(adapted) == Reach("directly", LLAMA, "GenerationMixin")
    assert reached_models(adapted) == (adapted,)  # its prompt learning counts
    assert reaches_generation_mixin(adapted)
    own = peft.get_peft_model(Loop(build("llama").config), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    assert reach_of(own).kind == "never"
    assert not reaches_generation_mixin(own)


def test_method_on_the_instance_is_not_looked_at() -> None:
    model = build("llama")
    model.generate = print
    assert reach_of(model).kind == "directly"
    assert reaches_generation_mixin(model)


def test_installed_padfix_is_the_librarys_method(installed: None) -> None:
    assert reach_of(build("llama")).kind == "directly"
    assert reach_of_class(Super).kind == "through super"


# Sentences


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Reach("directly", LLAMA, "GenerationMixin"), "LlamaForCausalLM.generate is the library's own method."),
        (Reach("through super", "A", "A"), "A.generate calls GenerationMixin.generate through super()."),
        (
            Reach("through an inner model", "A", "B", ("x", "y.z")),
            "A.generate (of B) calls self.x.generate and self.y.z.generate.",
        ),
        (
            Reach("never", "A", "A"),
            "A.generate has a loop of its own and never calls GenerationMixin.generate.",
        ),
        (Reach("never", "A"), "A has no method generate."),
        (
            Reach("unknown", "A", "A"),
            "A.generate cannot be read: whether it calls GenerationMixin.generate is not known.",
        ),
    ],
)
def test_sentence(found: Reach, sentence: str) -> None:
    assert found.sentence == sentence
