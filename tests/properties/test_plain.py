"""What `is_right_already` takes for right as it is, the whole check leaves as it is, without a word."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import VOCABULARY
from torch import Tensor
from transformers import GenerationConfig

from padfix import PadfixWarning
from padfix.generation import plain as plain_module
from padfix.generation.call import bind
from padfix.generation.pads import detect, masked_padding
from padfix.generation.plain import QUIET, is_plain
from padfix.pipeline import decide
from padfix.settings import Settings
from padfix.strategies import is_right_already

from .batches import model, own_config
from .flags import FLAGS

# Of each kind one: exact, with a position table, with a window, recurrent, exact up to a width, not exact.
NAMES = ("llama", "gpt2", "mistral", "bloom", "mamba2", "rwkv", "blenderbot")
QUIET_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "do_sample": st.booleans(),
    "output_logits": st.booleans(),
    "return_dict_in_generate": st.booleans(),
    "eos_token_id": st.sampled_from((2, [2, 5])),
    "pad_token_id": st.sampled_from((0, 2, 57, None, VOCABULARY, -1)),
    "num_beams": st.sampled_from((1, 2)),
    "position_ids": st.just("columns"),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tensor, Any, dict[str, Any], str]:
    """Ids, a mask that is mostly left-padded, flags, and where they stand."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    lengths = torch.tensor([draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, width)) for _ in range(rows)])
    mask = (torch.arange(width) >= width - lengths[:, None]).long()
    for _ in range(draw(st.sampled_from((0, 0, 0, 1)))):
        mask[draw(st.integers(0, rows - 1)), draw(st.integers(0, width - 1))] = draw(st.sampled_from((0, 1, 2, -1)))
    mask = mask.to(draw(st.sampled_from((torch.int64, torch.int64, torch.bool, torch.int32, torch.float32))))
    drawn = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    ids = torch.randint(5, VOCABULARY, (rows, width), generator=drawn)
    ids = ids.masked_fill(mask == 0, draw(st.sampled_from((0, 0, 2, -1, VOCABULARY))))
    pool = {**QUIET_VALUES, **FLAGS} if draw(st.booleans()) else QUIET_VALUES
    names = draw(st.lists(st.sampled_from(sorted(pool)), max_size=3, unique=True))
    flags = {name: draw(pool[name]) for name in names}
    return ids, mask, flags, draw(st.sampled_from(("keyword", "passed", "own")))


@pytest.mark.parametrize("name", NAMES)
@given(drawn=calls())
def test_a_plain_call_is_one_that_the_whole_check_leaves_alone(name: str, drawn: Any) -> None:
    ids, mask, flags, place = drawn
    arguments = {"input_ids": ids, "attention_mask": mask, "max_new_tokens": 2}
    if flags.pop("position_ids", None):
        arguments["position_ids"] = torch.arange(ids.shape[1]).expand(ids.shape)
    with warnings.catch_warnings():  # older releases say which flags do not go together
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", PadfixWarning)
        if place == "keyword":
            arguments |= flags
        if place == "passed":
            arguments["generation_config"] = GenerationConfig(**flags)
        with own_config(model(name), flags if place == "own" else {}):
            is_left_alone(model(name), arguments)


def is_left_alone(runs: Any, arguments: dict[str, Any]) -> None:
    """Asserts that the whole check leaves a call as it is, if it is plain."""
    call = bind(runs, (), arguments)
    assert call is not None
    masked = masked_padding(call)
    if masked is None or not is_right_already("left_pad", call, masked):
        return
    found = detect(call, masked)
    assert found is not None
    repair = decide(call, found, Settings(mode="fix", strategy="left_pad"), type(runs).generate)
    assert repair is None, f"{repair.job.reads_history or repair.obstacles or repair.job.plan}"


def plain(**changes: Any) -> bool:
    """Whether a left-padded batch of a tiny Llama is plain."""
    ids = torch.tensor([[0, 0, 7, 8], [5, 6, 7, 8]])
    call = bind(model("llama"), (), {"input_ids": ids, "attention_mask": (ids != 0).long(), **changes})
    assert call is not None
    return is_plain(call)


def test_the_commonest_call_is_plain() -> None:
    with own_config(model("llama"), {"eos_token_id": 2, "bos_token_id": 1}):
        assert plain()
        assert plain(max_new_tokens=3, do_sample=True, temperature=0.5, pad_token_id=0)
        assert plain(generation_config=GenerationConfig(max_new_tokens=3))
    for name in QUIET - {"pad_token_id"}:
        with own_config(model("llama"), {}):
            assert plain(**{name: 1}), name


@pytest.mark.parametrize("flag", ["no_repeat_ngram_size", "repetition_penalty", "min_length", "num_beams"])
@pytest.mark.parametrize("place", ["keyword", "passed", "own"])
def test_a_flag_that_may_look_at_pads_is_not_plain_wherever_it_stands(flag: str, place: str) -> None:
    fields = {flag: 3}
    with own_config(model("llama"), fields if place == "own" else {}):
        assert plain() is (place != "own")
        if place == "keyword":
            assert not plain(**fields)
        if place == "passed":
            assert not plain(generation_config=GenerationConfig(**fields))


@pytest.mark.parametrize(
    "changes",
    [
        {"input_ids": torch.tensor([[-1, 0, 7, 8], [5, 6, 7, 8]])},
        {"input_ids": torch.tensor([[VOCABULARY, 0, 7, 8], [5, 6, 7, 8]])},
        {"pad_token_id": VOCABULARY},
        {"attention_mask": torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])},
        {"attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])},
        {"attention_mask": torch.tensor([[0, 1, 0, 1], [1, 1, 1, 1]])},
        {"attention_mask": torch.tensor([[0, 0, 1, 2], [1, 1, 1, 1]])},
        {"attention_mask": torch.tensor([[0.0, 0, 1, 1], [1, 1, 1, 1]])},
        {"attention_mask": torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])},
        {"past_key_values": ()},
        {"negative_prompt_ids": torch.tensor([[5, 6]])},
    ],
)
def test_tensors_that_have_to_be_looked_at_are_not_plain(changes: dict[str, Any]) -> None:
    with own_config(model("llama"), {}):
        assert plain()
        assert not plain(**changes)


def test_a_flag_of_the_models_own_config_counts_beside_one_that_is_passed() -> None:
    with own_config(model("llama"), {"no_repeat_ngram_size": 3}):
        assert not plain(generation_config=GenerationConfig(max_new_tokens=3))


def test_a_method_of_the_instance_that_makes_its_configs_is_not_plain() -> None:
    runs = model("llama")
    with own_config(runs, {}):
        assert plain()
        runs._prepare_generation_config = runs._prepare_generation_config
        try:
            assert not plain()
        finally:
            del runs._prepare_generation_config


@pytest.mark.parametrize(
    ("value", "default", "expected"),
    [
        (float("1.5"), 1.5, True),
        (1, 1.0, False),
        (2.5, 1.5, False),
        ("no", "no", True),
        ([1], [1], True),
        ([1], [2], False),
        (torch.ones(1), torch.ones(1), False),
        (1.5, None, False),
        (None, 1.5, True),
        (False, True, True),
    ],
)
def test_a_field_at_its_default_is_plain(
    value: Any, default: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = GenerationConfig(max_new_tokens=3)
    defaults = {**vars(GenerationConfig()), "a_new_flag": default}
    monkeypatch.setattr(plain_module, "generation_defaults", lambda: defaults)
    vars(passed)["a_new_flag"] = value
    with own_config(model("llama"), {}):
        assert plain(generation_config=passed) is expected


def test_a_private_field_says_nothing() -> None:
    passed = GenerationConfig(max_new_tokens=3)
    vars(passed)["_a_flag"] = 3
    with own_config(model("llama"), {}):
        assert plain(generation_config=passed)
