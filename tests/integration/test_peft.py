"""Adapters of PEFT: a padded batch gets what each prompt gets alone through the same adapted model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import recipes
import torch
import torch.distributed.tensor  # PEFT asks for it, and older releases of transformers do not import it
from facts import CACHE_FIELD
from oracle import GREEDY, PADDERS, ROWS, Reply, alone, build, check, compare, right_padded, together
from stock import CACHE_IS_NONE

import padfix
from padfix import PadfixWarning, UnsupportedCallError
from padfix.generation import compat
from padfix.loading import embedded

peft = pytest.importorskip("peft")

PAD = 57
# Two rows of one length, and others.
MORE = [*ROWS, [8, 90, 21], [64, 3, 19, 44, 27]]
NAMES = ["one", "two", "__base__", "two", "one"]
TASKS = torch.tensor([0, 2, 1, 1, 0])
TARGETS = ["q_proj", "v_proj"]
BEAMS: Sequence[dict[str, Any]] = ({}, {"num_beams": 2})

pytestmark = [
    pytest.mark.usefixtures("installed"),
    CACHE_IS_NONE,
    # Of PEFT and transformers, for a prompt alone too.
    pytest.mark.filterwarnings("ignore:Position ids are not supported"),
    pytest.mark.filterwarnings("ignore:Both `past_key_values` and `cache` are set"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*already has a `peft_config`"),
]


def _adapted(config: Any, name: str = "llama", **adapter: Any) -> Any:
    return _decisive(peft.get_peft_model(build(name), config, **adapter))


def _decisive(model: Any) -> Any:
    """The model with adapters that change what it says: most begin as zeros."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in ("lora_", "ia3_", "prompt_encoder", "adaption_", "poly_")):
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
    return model.eval()


def _lora(task: str = "CAUSAL_LM", **more: Any) -> Any:
    return peft.LoraConfig(task_type=task, r=2, target_modules=TARGETS, **more)


def _merged(model: Any) -> Any:
    model.merge_adapter()
    return model


LAYERS: Mapping[str, Callable[[], Any]] = {
    "LoRA": lambda: _adapted(_lora()),
    "LoRA, merged": lambda: _merged(_adapted(_lora())),
    "LoRA, unloaded": lambda: _adapted(_lora()).merge_and_unload(),
    "LoRA without a task": lambda: _adapted(peft.LoraConfig(r=2, target_modules=TARGETS)),
    "IA3": lambda: _adapted(
        peft.IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"])
    ),
    "adaption prompt": lambda: _adapted(
        peft.AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=3, adapter_layers=2)
    ),
}

VIRTUAL: Mapping[str, Callable[[], Any]] = {
    "prompt tuning": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "P-tuning": lambda: peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=16),
    "prefix tuning": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "CPT": lambda: peft.CPTConfig(
        task_type="CAUSAL_LM", cpt_token_ids=[3, 4, 5], cpt_mask=[1, 1, 1], cpt_tokens_type_mask=[1, 2, 2]
    ),
}


def _plain(**arguments: Any) -> list[list[int]]:
    return [reply.tokens for reply in alone(build("llama"), MORE, pad_token_id=PAD, **arguments)]


def _tokens(replies: Sequence[Reply]) -> list[list[int]]:
    return [reply.tokens for reply in replies]


@pytest.mark.parametrize("beams", BEAMS, ids=str)
@pytest.mark.parametrize("layout", PADDERS)
@pytest.mark.parametrize("kind", LAYERS)
def test_adapted_layers_are_exact(kind: str, layout: str, beams: dict[str, Any]) -> None:
    check(LAYERS[kind](), PADDERS[layout](MORE, pad=PAD), MORE, pad_token_id=PAD, **beams)


@pytest.mark.parametrize("kind", LAYERS)
def test_those_adapters_change_the_replies(kind: str) -> None:
    assert _tokens(alone(LAYERS[kind](), MORE, pad_token_id=PAD)) != _plain()


def _two_adapters(name: str = "llama", task: str = "CAUSAL_LM") -> Any:
    model = peft.get_peft_model(build(name), _lora(task), adapter_name="one")
    model.add_adapter("two", _lora(task))
    return _decisive(model)


@pytest.mark.parametrize("layout", PADDERS)
def test_the_active_one_of_several_adapters_counts(layout: str) -> None:
    model, batch = _two_adapters(), PADDERS[layout](MORE, pad=PAD)
    check(model, batch, MORE, pad_token_id=PAD)
    first = _tokens(together(model, batch, pad_token_id=PAD))
    model.set_adapter("two")
    check(model, batch, MORE, pad_token_id=PAD)
    assert _tokens(together(model, batch, pad_token_id=PAD)) != first
    with model.disable_adapter():
        assert _tokens(together(model, batch, pad_token_id=PAD)) == _plain()


def _own_name(row: int) -> dict[str, list[str]]:
    return {"adapter_names": [NAMES[row]]}


@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("beams", BEAMS, ids=str)
@pytest.mark.parametrize("layout", PADDERS)
def test_each_row_has_its_own_adapter(layout: str, beams: dict[str, Any], strategy: str) -> None:
    model, batch = _two_adapters(), PADDERS[layout](MORE, pad=PAD) | {"adapter_names": list(NAMES)}
    with padfix.override(strategy=strategy):
        check(model, batch, MORE, each=_own_name, pad_token_id=PAD, **beams)
    assert batch["adapter_names"] == NAMES


@pytest.mark.parametrize("beams", BEAMS, ids=str)
@pytest.mark.parametrize("layout", PADDERS)
def test_each_row_has_its_own_adapter_in_a_model_whose_rows_run_apart(layout: str, beams: dict[str, Any]) -> None:
    batch = PADDERS[layout](MORE, pad=PAD) | {"adapter_names": NAMES}
    check(_two_adapters("blenderbot"), batch, MORE, each=_own_name, pad_token_id=PAD, **beams)


def _hooks(model: Any) -> list[Any]:
    return [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]


def test_the_layers_are_told_the_adapters_of_all_rows_again_after_a_call() -> None:
    model, seen = _two_adapters("blenderbot"), []

    class Failing:
        """A criterion that fails, and sees what the layers are told."""

        def __call__(self, *_: Any, **__: Any) -> Any:
            seen.append({tuple(hook.keywords["adapter_names"]) for hook in _hooks(model)})
            raise RuntimeError("from the criterion")

    base, batch = model.get_base_model(), right_padded(MORE, pad=PAD)
    with model.base_model._enable_peft_forward_hooks(adapter_names=NAMES):
        before = _hooks(base)
        with pytest.raises(RuntimeError, match="from the criterion"):
            base.generate(**batch, **GREEDY, pad_token_id=PAD, stopping_criteria=[Failing()])
        base.generate(**batch, **GREEDY, pad_token_id=PAD)
        assert [one is other for one, other in zip(_hooks(base), before, strict=True)] == [True] * len(before)
        assert seen == [{("two", "two")}]  # the rows of three tokens


def test_too_few_adapter_names_are_refused_by_peft_as_without_pads() -> None:
    model = _two_adapters("blenderbot")
    with (
        pytest.warns(PadfixWarning, match="hooks on the forwards"),
        pytest.raises(ValueError, match="Length of `adapter_names`"),
    ):
        model.generate(**right_padded(MORE, pad=PAD), **GREEDY, pad_token_id=PAD, adapter_names=NAMES[:3])


@pytest.mark.parametrize("beams", BEAMS, ids=str)
@pytest.mark.parametrize("layout", PADDERS)
@pytest.mark.parametrize("kind", VIRTUAL)
def test_virtual_tokens_stand_before_the_prompt_of_every_row(kind: str, layout: str, beams: dict[str, Any]) -> None:
    arguments = {"pad_token_id": PAD, **beams, **_seen(kind)}
    check(_adapted(VIRTUAL[kind]()), PADDERS[layout](MORE, pad=PAD), MORE, distinct=not beams, **arguments)


def _seen(kind: str) -> dict[str, Any]:
    """What makes PEFT's prefix count: 5.24 prefers its own cache, which is empty, to the one that PEFT hands it."""
    return {"use_cache": False} if kind == "prefix tuning" and CACHE_FIELD == "cache" else {}


@pytest.mark.parametrize("kind", VIRTUAL)
def test_those_virtual_tokens_change_the_replies(kind: str) -> None:
    arguments = {"pad_token_id": PAD, **_seen(kind)}
    assert _tokens(alone(_adapted(VIRTUAL[kind]()), MORE, **arguments)) != _plain()


@pytest.mark.parametrize("beams", BEAMS, ids=str)
@pytest.mark.parametrize("layout", PADDERS)
def test_each_row_has_the_virtual_tokens_of_its_own_task(layout: str, beams: dict[str, Any]) -> None:
    config = peft.MultitaskPromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, num_tasks=3, num_ranks=2)
    batch = PADDERS[layout](MORE, pad=PAD) | {"task_ids": TASKS}

    def own(row: int) -> dict[str, Any]:
        return {"task_ids": TASKS[row : row + 1]}

    model = _adapted(config)
    check(model, batch, MORE, each=own, pad_token_id=PAD, **beams)
    others = alone(model, MORE, each=lambda _: {"task_ids": torch.tensor([0])}, pad_token_id=PAD)
    assert _tokens(others)[1:4] != _tokens(alone(model, MORE, each=own, pad_token_id=PAD))[1:4]


def test_poly_tasks_stay_with_their_rows_or_are_refused() -> None:
    config = peft.PolyConfig(task_type="CAUSAL_LM", r=2, n_tasks=3, n_skills=2, target_modules=TARGETS)
    model, batch = _adapted(config), right_padded(MORE, pad=PAD) | {"task_ids": TASKS}
    check(model, batch, MORE, each=lambda row: {"task_ids": TASKS[row : row + 1]}, pad_token_id=PAD)
    padfix.install("strict", strategy="equal_length")
    batch = PADDERS["left"](MORE, pad=PAD) | {"task_ids": TASKS}
    with pytest.raises(UnsupportedCallError, match="hooks on the forwards of LlamaForCausalLM"):
        model.generate(**batch, **GREEDY, pad_token_id=PAD)


needs_alora = pytest.mark.skipif(compat.installed() < (4, 53), reason="PEFT wants transformers 4.52.1 for aLoRA")


def _activated() -> tuple[Any, list[list[int]]]:
    """A model with an aLoRA adapter, and prompts of which each holds its invocation tokens somewhere."""
    rows = [[*row[:1], 70, 71, *row[1:]] for row in MORE]
    return _adapted(_lora(alora_invocation_tokens=[70, 71])), rows


@needs_alora
def test_an_alora_adapter_keeps_its_place_in_a_left_padded_batch() -> None:
    model, rows = _activated()
    check(model, PADDERS["left"](rows, pad=PAD), rows, pad_token_id=PAD)


@needs_alora
@pytest.mark.parametrize("layout", ["right", "both", "holes"])
def test_an_alora_adapter_whose_columns_would_move_is_refused_by_name(layout: str) -> None:
    model, rows = _activated()
    batch = PADDERS[layout](rows, pad=PAD)
    with padfix.suppressed():
        stock = model.generate(**batch, **GREEDY, pad_token_id=PAD)
    with pytest.warns(PadfixWarning, match="alora_offsets="):
        assert torch.equal(model.generate(**batch, **GREEDY, pad_token_id=PAD), stock)
    with padfix.override(strategy="equal_length"), pytest.warns(PadfixWarning, match="alora_offsets="):
        model.generate(**batch, **GREEDY, pad_token_id=PAD)


@pytest.mark.parametrize("named", [False, True], ids=["one adapter", "an adapter a row"])
@pytest.mark.parametrize("beams", BEAMS, ids=str)
@pytest.mark.parametrize("layout", PADDERS)
def test_prompts_of_an_adapted_decoder_are_exact(layout: str, beams: dict[str, Any], named: bool) -> None:
    model = _two_adapters("bart", "SEQ_2_SEQ_LM")
    compare(*_decoder_prompts(model, layout, beams, (lambda row: NAMES[row : row + 1]) if named else None))


@pytest.mark.parametrize("kind", ["prompt tuning", "prefix tuning"])
@pytest.mark.parametrize("layout", PADDERS)
def test_prompts_of_a_decoder_with_virtual_tokens_are_exact(layout: str, kind: str) -> None:
    config = VIRTUAL[kind]()
    config.task_type = "SEQ_2_SEQ_LM"
    compare(*_decoder_prompts(_adapted(config, "bart"), layout, {}, None))


def _decoder_prompts(
    model: Any, layout: str, beams: dict[str, Any], named: Callable[[int], list[str]] | None
) -> tuple[list[Reply], list[Reply]]:
    """The replies to a batch of ragged decoder prompts, and those that each gets alone."""
    encoder = torch.tensor([[5, 6, 7, 8], [9, 10, 66, 67], [11, 12, 13, 68], [14, 15, 16, 17], [18, 19, 20, 21]])
    prompts = [[1, *row] for row in MORE]  # 1 is the start token
    padded = PADDERS[layout](prompts, pad=PAD)
    batch: dict[str, Any] = {
        "input_ids": encoder,
        "attention_mask": torch.ones_like(encoder),
        "decoder_input_ids": padded["input_ids"],
        "decoder_attention_mask": padded["attention_mask"],
    }
    if named:
        batch["adapter_names"] = [name for row in range(len(MORE)) for name in named(row)]

    def own(row: int) -> dict[str, Any]:
        return {
            "input_ids": encoder[row : row + 1],
            "attention_mask": torch.ones(1, 4, dtype=torch.long),
            "decoder_input_ids": torch.tensor([prompts[row]]),
            **({"adapter_names": named(row)} if named else {}),
        }

    arguments = {"pad_token_id": PAD, **beams}
    return together(model, batch, **arguments), alone(model, MORE, each=own, distinct=False, **arguments)


def test_recipe(tmp_path: Path) -> None:
    model, tokenizer = embedded()
    _decisive(peft.get_peft_model(embedded()[0], _lora())).save_pretrained(tmp_path)
    plain = recipes.alone(model, tokenizer)
    ran = recipes.run("PEFT", model=model, tokenizer=tokenizer, adapter=tmp_path)
    assert ran["replies"] == recipes.alone(ran["adapted"], tokenizer)
    assert ran["replies"] != plain
    assert not bool(ran["batch"]["attention_mask"][:, -1].all())
