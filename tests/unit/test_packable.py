"""What keeps prompts from sharing a row: every obstacle by its phrase, and nothing that changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from facts import RELEASE
from oracle import build, embedded, right_padded
from transformers import GenerationConfig, LlamaForCausalLM

import padfix
from padfix.generation import packable
from padfix.generation.call import bind
from padfix.generation.compat import takes_masks_by_kind
from padfix.generation.exceptions import PACKABLE
from padfix.generation.packable import FIELDS, copies_of, packing_bound, windows_by_kind
from padfix.generation.traits import traits_of
from padfix.layout.plan import LayoutPlan

pytestmark = pytest.mark.skipif(PACKABLE["LlamaForCausalLM"] > RELEASE, reason="this release packs nothing")

BATCH = right_padded([[5, 6, 7, 8], [9, 10]])


def named(value: Any) -> str | None:
    """The id of a case by the names of what it sets."""
    return ",".join(value) if isinstance(value, dict) else None


@pytest.fixture
def llama() -> Any:
    return build("llama", attn_implementation="sdpa")


def obstacles(
    model: Any, fields: Mapping[str, Any] | None = None, /, *, traits: Any = None, **changes: Any
) -> list[str]:
    """Why a padded batch of two prompts cannot be packed, with these fields of the config and arguments."""
    arguments = {name: value for name, value in {**BATCH, **changes}.items() if value is not None}
    call = bind(model, (), arguments)
    assert call is not None
    config = GenerationConfig(max_new_tokens=3)
    vars(config).update(fields or {})
    mask: Any = call.mask
    seen = dataclasses.replace(traits_of(model), **(traits or {}))
    return list(packing_bound(call, config, LayoutPlan.from_mask(mask), seen))


def test_a_plain_call_meets_no_obstacle(llama: Any) -> None:
    assert obstacles(llama) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"use_cache": False}, ["use_cache=False"]),
        ({"use_cache": None}, []),
        ({"cache_implementation": "offloaded"}, ["cache_implementation=offloaded"]),
        ({"max_time": 0.5}, ["max_time=0.5"]),
        ({"guidance_scale": 1}, []),
        ({"guidance_scale": 1.5}, ["guidance_scale=1.5"]),
        ({"num_beam_groups": 1}, []),
        ({"num_beam_groups": 2}, ["num_beam_groups=2"]),
        ({"output_hidden_states": True}, ["output_hidden_states=True"]),
        ({"a_new_flag": {}}, []),
        ({"a_new_flag": False}, []),
        ({"a_new_flag": 0}, []),
        ({"a_new_flag": {"x": 1}}, ["a_new_flag=..."]),
        ({"a_new_flag": torch.tensor([0])}, ["a_new_flag=..."]),
        ({"_a_private_flag": True}, []),
    ],
    ids=named,
)
def test_a_field_that_says_something_is_named(llama: Any, fields: dict[str, Any], said: list[str]) -> None:
    assert obstacles(llama, fields) == said


def test_fields_that_change_nothing_before_the_first_token_are_not_named(llama: Any) -> None:
    assert obstacles(llama, dict.fromkeys(FIELDS, 3)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"streamer": object()}, []),
        ({"logits_processor": [print]}, []),
        ({"a_tensor_of_its_own": torch.zeros(2, 4)}, ["a_tensor_of_its_own="]),
        ({"assistant_model": None}, []),
        ({"output_router_logits": False}, []),
        ({"max_length": 9, "temperature": 0.5}, []),
        ({"synced_gpus": True}, ["synced_gpus=", "ranks have to run the same number of forwards"]),
    ],
    ids=named,
)
def test_an_argument_that_says_something_is_named(llama: Any, changes: dict[str, Any], said: list[str]) -> None:
    assert obstacles(llama, **changes) == said


def test_a_prompt_has_to_be_ids_alone(llama: Any) -> None:
    alone = "a prompt that is not token ids alone"
    assert obstacles(llama, input_ids=None, **embedded(llama, BATCH)) == ["inputs_embeds=", alone]
    codes = BATCH["input_ids"][..., None].expand(-1, -1, 3)
    assert obstacles(llama, input_ids=codes) == [alone]


def test_a_row_has_to_have_a_token(llama: Any) -> None:
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert obstacles(llama, attention_mask=mask) == ["a row has no real token"]


def test_each_new_shape_must_cost_nothing(llama: Any) -> None:
    said = obstacles(llama, {"cache_implementation": "static"})
    assert said == ["cache_implementation=static", "each new shape would cost a new graph"]


def test_under_autocast_it_was_not_measured(llama: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert obstacles(llama) == ["autocast"]


def test_several_ranks_run_the_same_number_of_forwards(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packable, "several_ranks", lambda: True)
    assert obstacles(llama) == ["ranks have to run the same number of forwards"]


NAME = "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"is_causal": False}, "its tokens see those that follow"),
        ({"use_bidirectional_attention": True}, "its tokens see those that follow"),
        ({"output_router_logits": True}, "it is asked for what its router gives for each column"),
        ({"alibi": True}, "it makes its ALiBi from a mask with one axis"),
    ],
    ids=named,
)
def test_a_configuration_that_cannot_be_packed_is_named(llama: Any, config: dict[str, Any], reason: str) -> None:
    seen = traits_of(llama)
    vars(llama.config).update(config)
    assert obstacles(llama, traits=dataclasses.asdict(seen)) == [f"{NAME} ({reason})"]


@pytest.mark.parametrize("name", ["output_attentions", "output_hidden_states"])
def test_states_that_the_configuration_asks_for_are_named(name: str) -> None:
    model = build("llama", attn_implementation="eager")
    setattr(model.config, name, True)
    assert obstacles(model) == ["the model's configuration asks for hidden states or attentions"]


@pytest.mark.parametrize(
    ("traits", "reason"),
    [
        ({"known": False}, "it was not measured to be exact when prompts share a row"),
        ({"exact_up_to": 9, "reason": "it counts"}, "it counts"),
        ({"mixes_rows": True}, "rows of one batch change one another"),
    ],
    ids=named,
)
def test_traits_that_keep_a_model_from_it(llama: Any, traits: dict[str, Any], reason: str) -> None:
    assert obstacles(llama, traits=traits) == [f"{NAME} ({reason})"]


def test_a_class_is_packed_from_the_release_on_in_which_it_was_measured(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [f"{NAME} (it was not measured to be exact when prompts share a row)"]
    monkeypatch.setattr(packable, "installed", lambda: PACKABLE[NAME])
    assert obstacles(llama) == []
    monkeypatch.setattr(packable, "installed", lambda: (4, PACKABLE[NAME][1] - 1))
    assert obstacles(llama) == said
    monkeypatch.undo()
    padfix.register_architecture(NAME, left_padding_exact=True)
    assert obstacles(llama) == said


class OfSomebody(LlamaForCausalLM):  # type: ignore[misc, unused-ignore]
    """A class that derives from one of the table, and changes nothing."""


def test_a_class_that_derives_from_one_of_the_table_is_packed_as_that(llama: Any) -> None:
    llama.__class__ = OfSomebody
    assert obstacles(llama) == []


def test_layers_that_keep_a_state_are_named(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packable, "growing_cache", lambda model: object())
    said = f"{NAME} (some of its layers keep a state rather than a column for each token)"
    assert obstacles(llama) == [said]


@pytest.mark.parametrize("attention", ["flash_attention_2", "flex_attention", None])
def test_attention_takes_a_mask_with_an_axis_for_queries(
    llama: Any, attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packable, "runs_as_written", lambda model: True)  # it looks at what the attention needs
    llama.config._attn_implementation_internal = attention
    if llama.config._attn_implementation != attention:
        pytest.skip("this release keeps no such name")
    said = f"attn_implementation={attention} (it takes no mask with an axis for queries)"
    assert obstacles(llama) == [said]


def training(model: Any) -> None:
    model.train()


def quantised(model: Any) -> None:
    model.hf_quantizer = object()


def hooked(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda *_: None)


def hooked_before(model: Any) -> None:
    model.model.layers[0].register_forward_pre_hook(lambda *_: None)


def with_its_own_forward(model: Any) -> None:
    model.model.layers[1].mlp.forward = model.model.layers[1].mlp.forward


def with_its_own_inputs(model: Any) -> None:
    model.prepare_inputs_for_generation = model.prepare_inputs_for_generation


def told(model: Any, **told_of_rows: Any) -> None:
    """Tells a layer something for each row, as PEFT does."""
    model.model.layers[0].register_forward_pre_hook(partial(torch.nn.functional.relu, **told_of_rows))


def with_adapters_of_rows(model: Any) -> None:
    told(model, adapter_names=["one", "other"])


def with_offsets_of_rows(model: Any) -> None:
    told(model, alora_offsets=[3, None])


WATCHED = "forward hooks would see packed rows"
OWN = "a forward of the model, or what prepares its inputs and masks, is not the library's own"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (training, "the model is in training mode"),
        (quantised, "the model is quantised"),
        (hooked, WATCHED),
        (hooked_before, WATCHED),
        (with_adapters_of_rows, WATCHED),
        (with_offsets_of_rows, WATCHED),
        (with_its_own_forward, OWN),
        (with_its_own_inputs, OWN),
    ],
)
def test_what_was_done_to_a_model_is_named(llama: Any, change: Callable[[Any], None], said: str) -> None:
    change(llama)
    assert obstacles(llama) == [said]


@pytest.fixture(params=["register_module_forward_hook", "register_module_forward_pre_hook"])
def hook_on_every_module(request: pytest.FixtureRequest) -> Iterator[None]:
    handle = getattr(torch.nn.modules.module, request.param)(lambda *_: None)
    yield
    handle.remove()


@pytest.mark.usefixtures("hook_on_every_module")
def test_a_hook_on_every_module_is_named(llama: Any) -> None:
    assert obstacles(llama) == [WATCHED]


# The rows of each prompt


@pytest.mark.parametrize(
    ("beams", "returned", "copies"),
    [(1, 1, 1), (3, 1, 3), (1, 4, 4), (4, 2, 4), (None, None, 1), (0, 0, 1), ("three", 2, 2)],
)
def test_rows_of_each_prompt(beams: Any, returned: Any, copies: int) -> None:
    config = GenerationConfig()
    vars(config).update(num_beams=beams, num_return_sequences=returned)
    assert copies_of(config) == copies


# Windows


def windowed(name: str, **config: Any) -> Any:
    model = build(name)
    vars(model.config).update(config)
    return model


def test_without_a_window_a_token_sees_all_before_it() -> None:
    assert windows_by_kind(build("llama"), 9) == {"full_attention": None}


@pytest.mark.parametrize("width", [1, 3, 4])
def test_window_that_no_prompt_fills_is_none(width: int) -> None:
    assert windows_by_kind(windowed("mistral", sliding_window=4), width) == {"full_attention": None}


def test_window_of_layers_that_all_slide() -> None:
    assert windows_by_kind(windowed("mistral", sliding_window=4, layer_types=None), 5) == {"sliding_attention": 4}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("llama", {"sliding_window": 4}),
        ("mistral", {"sliding_window": 1}),
        ("mistral", {"sliding_window": 4, "attention_chunk_size": 3}),
        ("mistral", {"sliding_window": 4, "layer_types": ["full_attention"]}),
        ("gpt_neo", {}),
    ],
    ids=named,
)
def test_window_of_which_it_is_not_known_what_the_layers_make(name: str, config: dict[str, Any]) -> None:
    model = windowed(name, **config)
    assert windows_by_kind(model, 9) is None
    seen = traits_of(model)
    said = f"{seen.name} (it is not known what its layers make of the window in its configuration)"
    wide = right_padded([list(range(5, 14)), [9, 10]])
    assert obstacles(model, **wide)[-1] == said


def test_kinds_of_layers_count_where_the_forward_makes_a_mask_for_each() -> None:
    kinds = ["full_attention", "sliding_attention"]
    mistral = windowed("mistral", sliding_window=4, layer_types=kinds)
    assert not takes_masks_by_kind(mistral)
    assert windows_by_kind(mistral, 9) is None
    if PACKABLE["Gemma3ForCausalLM"] <= RELEASE:
        gemma = windowed("gemma3", sliding_window=4, layer_types=kinds)
        assert windows_by_kind(gemma, 9) == {"full_attention": None, "sliding_attention": 4}
