"""Models under the hooks of accelerate: weights on other devices, offloaded to memory or to disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import recipes
import torch
from oracle import GREEDY, PADDERS, ROWS, alone, build, check, compare, right_padded, together
from recipes import PROMPTS
from stock import CACHE_IS_NONE
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import padfix
from padfix import SettingsError, pipeline
from padfix.loading import EMBEDDED, embedded
from padfix.strategies import STRATEGIES, packed_prefill

accelerate = pytest.importorskip("accelerate")

pytestmark = [pytest.mark.integrations, CACHE_IS_NONE]

CPU = torch.device("cpu")
PAD = 57


def _on_disk(model: Any, folder: Path) -> Any:
    accelerate.disk_offload(model, str(folder), execution_device=CPU)
    return model


def _split(model: Any, folder: Path) -> Any:
    """The model with its first part on disk and the others in memory."""
    names = [name for name, _ in model.named_children()]
    places = {name: "cpu" if at else "disk" for at, name in enumerate(names)}
    return accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=str(folder), force_hooks=True)


HOOKS: Mapping[str, Callable[[Any, Path], Any]] = {
    "cpu_offload": lambda model, _: accelerate.cpu_offload(model, execution_device=CPU),
    "cpu_offload, buffers": lambda model, _: accelerate.cpu_offload(model, execution_device=CPU, offload_buffers=True),
    "cpu_offload_with_hook": lambda model, _: accelerate.cpu_offload_with_hook(model, execution_device=CPU)[0],
    "disk_offload": _on_disk,
    "dispatch_model": lambda model, _: accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True),
    "dispatch_model, split": _split,
}
# A model, and the strategy that it has without hooks.
MODELS = {"llama": "left_pad", "mistral": "left_pad", "blenderbot": "equal_length", "rwkv": "equal_length"}
RAGGED = [ROWS[0] * 8, *ROWS]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The strategies that calls take; nothing of a batch that is right as it is."""
    seen: list[Any] = []
    decide = pipeline.decide

    def noting(*arguments: Any) -> Any:
        repair = decide(*arguments)
        seen.append(None if repair is None else repair.strategy)
        return repair

    monkeypatch.setattr(pipeline, "decide", noting)
    return seen


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("name", MODELS)
def test_hooked_models_are_exact_by_the_strategy_that_they_have_without_hooks(
    name: str, kind: str, tmp_path: Path, taken: list[Any]
) -> None:
    plain = alone(build(name), ROWS, pad_token_id=PAD)
    model = HOOKS[kind](build(name), tmp_path)
    assert any(hasattr(module, "_hf_hook") for module in model.modules())
    for layout, pad in PADDERS.items():
        taken.clear()
        compare(together(model, pad(ROWS, pad=PAD), pad_token_id=PAD), plain)
        left_as_it_is = layout == "left" and MODELS[name] == "left_pad"
        assert taken == ([] if left_as_it_is else [STRATEGIES[MODELS[name]]])


@pytest.mark.parametrize("kind", HOOKS)
def test_without_padfix_they_are_wrong(kind: str, tmp_path: Path) -> None:
    model = HOOKS[kind](build("llama"), tmp_path)
    replies = together(model, right_padded(ROWS, pad=PAD), pad_token_id=PAD)
    wanted = alone(build("llama"), ROWS, pad_token_id=PAD)
    assert [one.tokens == other.tokens for one, other in zip(replies, wanted, strict=True)] == [True, False, False]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", HOOKS)
def test_ragged_prompts_of_a_hooked_model_are_not_packed(
    kind: str, tmp_path: Path, taken: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_prefill, "fewest_saved", lambda *_: 1)  # else only a large batch would pay
    check(build("llama"), right_padded(RAGGED, pad=PAD), RAGGED, pad_token_id=PAD)
    model = HOOKS[kind](build("llama"), tmp_path)
    check(model, right_padded(RAGGED, pad=PAD), RAGGED, pad_token_id=PAD)
    assert taken == [STRATEGIES["packed_prefill"], STRATEGIES["left_pad"]]
    with padfix.override(strategy="packed_prefill"), pytest.raises(SettingsError, match="not the library's own"):
        model.generate(**right_padded(RAGGED, pad=PAD), **GREEDY)


class Wrapped(LlamaForCausalLM):
    """A class that stands in no table."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", HOOKS)
def test_an_unknown_class_is_tried_out_under_hooks(kind: str, tmp_path: Path, taken: list[Any]) -> None:
    model = build("llama")
    model.__class__ = Wrapped
    model = HOOKS[kind](model, tmp_path)
    devices = [parameter.device for parameter in model.parameters()]
    check(model, right_padded(ROWS, pad=PAD), ROWS, pad_token_id=PAD)
    assert taken == [STRATEGIES["left_pad"]]
    assert [parameter.device for parameter in model.parameters()] == devices


@pytest.mark.parametrize("kind", HOOKS)
def test_policy_and_verify_keep_the_prompts_of_an_offloaded_model(kind: str, tmp_path: Path) -> None:
    model, tokenizer = embedded()
    model = HOOKS[kind](model, tmp_path)
    batch, _ = padfix.BatchPolicy().prepare(model, tokenizer, PROMPTS[:2])
    assert {value.device for value in batch.values()} == {CPU}
    report = padfix.verify(model, tokenizer, PROMPTS[:3], max_new_tokens=6)
    assert [row.verdict for row in report.rows] == ["equal"] * 3


@pytest.mark.parametrize("device_map", ["cpu", "auto", {"": "cpu"}], ids=str)
def test_model_that_is_loaded_with_a_device_map_is_exact(device_map: Any) -> None:
    _, tokenizer = embedded()
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED, device_map=device_map)
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    stock = model.generate(**batch, max_new_tokens=12, do_sample=False)
    padfix.install()
    out = model.generate(**batch, max_new_tokens=12, do_sample=False)
    width = batch["input_ids"].shape[1]
    wanted = recipes.alone(model, tokenizer)
    assert tokenizer.batch_decode(out[:, width:], skip_special_tokens=True) == wanted
    assert tokenizer.batch_decode(stock[:, width:], skip_special_tokens=True) != wanted


def test_recipe() -> None:
    model, tokenizer = embedded()
    wanted = recipes.alone(model, tokenizer)
    ran = recipes.run("accelerate", model=model, tokenizer=tokenizer)
    assert ran["replies"] == wanted
    assert ran["offloaded"].device.type == "meta"
    assert not bool(ran["batch"]["attention_mask"].all())
