"""Where the pads of a call are: which mask or id tells, beside a cache, and when nothing has to be resolved."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from oracle import EOS, PAD, build, embedded
from torch import Tensor
from transformers import DynamicCache, GenerationConfig

from padfix.generation import compat
from padfix.generation.call import GenerateCall, bind
from padfix.generation.marks import remember
from padfix.generation.pads import Found, detect, inferred_padding, masked_padding
from padfix.layout.detect import Padding

IDS = torch.tensor([[5, 6, 7, PAD], [8, 9, 10, 11]])
MASK = (IDS != PAD).long()
FULL = torch.ones_like(MASK)
OTHER = 57


@pytest.fixture
def llama() -> Any:
    """A Llama whose configs name the pad and the EOS of the oracle."""
    return build("llama")


def call(model: Any, **arguments: Any) -> GenerateCall:
    made = bind(model, (), {"input_ids": IDS, **arguments})
    assert made is not None
    return made


def found(model: Any, **arguments: Any) -> Found | None:
    made = call(model, **arguments)
    return detect(made, masked_padding(made))


def real(seen: Found | Padding | None) -> list[list[int]] | None:
    padding = seen.padding if isinstance(seen, Found) else seen
    return None if padding is None else padding.real.int().tolist()


def filled(rows: int = 2, columns: int = 2) -> Any:
    cache: Any = DynamicCache()
    for layer in range(2):
        cache.update(torch.ones(rows, 2, columns, 4), torch.ones(rows, 2, columns, 4), layer)
    return cache


# The mask


def test_a_mask_wins_over_ids(llama: Any) -> None:
    assert real(found(llama, attention_mask=MASK)) == MASK.tolist()
    assert found(llama, attention_mask=FULL) is None
    assert real(found(llama, attention_mask=MASK.flip(1))) == MASK.flip(1).tolist()


@pytest.mark.parametrize("mask", [torch.zeros(2, 1, 4, 4), torch.zeros(2, 0), torch.zeros(8)])
def test_a_mask_that_cannot_be_read_describes_nothing(llama: Any, mask: Tensor) -> None:
    assert masked_padding(call(llama, attention_mask=mask)) is None
    assert found(llama, attention_mask=mask) is None


def test_what_the_call_runs_with_is_told(llama: Any) -> None:
    seen = found(llama, attention_mask=MASK, max_new_tokens=7, pad_token_id=OTHER)
    assert seen is not None
    assert (seen.config.max_new_tokens, seen.config.pad_token_id) == (7, OTHER)
    assert (seen.negative, seen.cache, seen.past) == (None, None, None)


def test_arguments_that_transformers_refuses_are_its_business(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "resolved_config", lambda call: None)
    assert found(llama, attention_mask=MASK) is None


# The ids


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[GenerateCall]:
    """The calls whose config has been resolved."""
    calls: list[GenerateCall] = []
    resolve = compat.resolved_config

    def counted(call: GenerateCall) -> Any:
        calls.append(call)
        return resolve(call)

    monkeypatch.setattr(compat, "resolved_config", counted)
    return calls


def test_ids_without_a_pad_cost_no_config(llama: Any, resolved: list[Any]) -> None:
    assert found(llama, input_ids=IDS[1:]) is None
    assert found(llama, pad_token_id=OTHER) is None
    assert found(llama, generation_config=GenerationConfig(pad_token_id=OTHER)) is None
    assert resolved == []
    assert real(found(llama)) == MASK.tolist()
    assert len(resolved) == 1


def test_embeddings_alone_tell_nothing(llama: Any, resolved: list[Any]) -> None:
    made = bind(llama, (), embedded(llama, {"input_ids": IDS}))
    assert made is not None
    assert detect(made, None) is None
    assert resolved == []


def test_several_tokens_a_column_tell_nothing(llama: Any, resolved: list[Any]) -> None:
    assert found(llama, input_ids=IDS[..., None].expand(-1, -1, 2)) is None
    assert resolved == []


def without(model: Any, *names: str) -> Any:
    """The model with None for these fields in each of its configs."""
    for config in (model.config, model.generation_config):
        for name in names:
            setattr(config, name, None)
    return model


# Each place that may name the pad id, or an EOS that stands in for it.
PLACES: list[dict[str, Any]] = [
    {"pad_token_id": OTHER},
    {"eos_token_id": OTHER},
    {"eos_token_id": [OTHER, 3]},
    {"generation_config": GenerationConfig(pad_token_id=OTHER)},
    {"generation_config": GenerationConfig(eos_token_id=OTHER)},
    {"generation_config": GenerationConfig(eos_token_id=[OTHER, 3])},
    {"eos_token_id": torch.tensor([OTHER, 3])},
]


@pytest.mark.parametrize("arguments", PLACES, ids=lambda arguments: next(iter(arguments)))
def test_the_pad_id_is_the_calls_own_or_its_first_end(llama: Any, arguments: dict[str, Any]) -> None:
    without(llama, "pad_token_id", "eos_token_id")
    ids = IDS.masked_fill(IDS == PAD, OTHER)
    assert found(llama) is None
    assert real(found(llama, input_ids=ids, **arguments)) == MASK.tolist()


@pytest.mark.parametrize("name", ["pad_token_id", "eos_token_id"])
def test_the_models_own_config_names_it_too(llama: Any, name: str) -> None:
    without(llama, "pad_token_id", "eos_token_id")
    setattr(llama.generation_config, name, OTHER)
    assert real(found(llama, input_ids=IDS.masked_fill(IDS == PAD, OTHER))) == MASK.tolist()


def test_without_any_id_nothing_is_a_pad(llama: Any) -> None:
    without(llama, "pad_token_id", "eos_token_id")
    assert found(llama) is None
    assert inferred_padding(call(llama), GenerationConfig()) is None


def test_a_pad_that_may_be_content_is_guessed(llama: Any) -> None:
    ids = IDS.masked_fill(IDS == PAD, EOS)
    seen = found(llama, input_ids=ids, pad_token_id=EOS)
    assert seen is not None
    assert (real(seen), seen.padding.guessed) == (MASK.tolist(), (0,))
    assert found(llama, input_ids=torch.full_like(IDS, EOS), pad_token_id=EOS) is None


def test_embeddings_alone_have_no_ids_to_infer_from(llama: Any) -> None:
    made = bind(llama, (), embedded(llama, {"input_ids": IDS}))
    assert made is not None
    assert inferred_padding(made, llama.generation_config) is None


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([[PAD, 5, PAD], [PAD, 6, 7]], [[1, 1, 0], [1, 1, 1]]),  # all start with it: content
        ([[PAD, 5, 7], [6, 5, 7]], [[0, 1, 1], [1, 1, 1]]),
        ([[PAD, 5, 7], [PAD, 5, 7]], None),
    ],
)
def test_a_decoders_prompt_may_start_with_the_pad_id(ids: list[list[int]], expected: Any) -> None:
    bart = build("bart")
    made = bind(bart, (), {"input_ids": IDS, "decoder_input_ids": torch.tensor(ids)})
    assert made is not None
    config = GenerationConfig(pad_token_id=PAD, eos_token_id=EOS)
    assert real(inferred_padding(made, config)) == expected


# The negative prompt


def test_pads_of_the_negative_prompt_alone_make_a_padded_call(llama: Any) -> None:
    negative = {"negative_prompt_ids": IDS, "negative_prompt_attention_mask": MASK, "guidance_scale": 2.0}
    seen = found(llama, attention_mask=FULL, **negative)
    assert seen is not None
    assert real(seen) == FULL.tolist()
    assert seen.padding.source == "given"
    assert real(seen.negative) == MASK.tolist()
    negative["negative_prompt_attention_mask"] = FULL
    assert found(llama, attention_mask=FULL, **negative) is None
    both = found(llama, attention_mask=MASK, **negative)
    assert both is not None
    assert (real(both), both.negative) == (MASK.tolist(), None)


# Beside a cache


def test_cached_columns_of_whole_sequences_are_nobodys_concern(llama: Any) -> None:
    cache = filled(columns=2)
    seen = found(llama, attention_mask=MASK, past_key_values=cache)
    assert seen is not None
    assert (seen.padding.cached, seen.past) == (2, None)
    assert seen.cache is not None
    assert seen.cache.cache is cache
    assert real(seen) == MASK.tolist()
    inferred = found(llama, past_key_values=cache)
    assert inferred is not None
    assert (inferred.padding.cached, inferred.padding.source) == (2, "inferred")


def test_the_mask_of_new_tokens_alone_covers_the_cached_columns_first(llama: Any) -> None:
    mask = torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]])
    seen = found(llama, attention_mask=mask, past_key_values=filled(columns=2))
    assert seen is not None
    assert real(seen) == MASK.tolist()
    assert seen.past is not None
    assert seen.past.int().tolist() == [[0, 1], [1, 1]]
    assert seen.padding.cached == 0
    assert seen.padding.source == "given"


def test_a_mask_that_covers_neither_is_kept_for_later_judgement(llama: Any) -> None:
    seen = found(llama, attention_mask=MASK, past_key_values=filled(columns=5))
    assert seen is not None
    assert (seen.padding.cached, seen.past, real(seen)) == (0, None, MASK.tolist())


def test_an_empty_cache_changes_nothing(llama: Any) -> None:
    seen = found(llama, attention_mask=MASK, past_key_values=DynamicCache())
    assert seen is not None
    assert (seen.padding.cached, seen.past) == (0, None)


# What is remembered on a cache

SEEN = torch.tensor([[5, 6, 7, 8], [PAD, 9, 10, 11]])
REPLY = torch.tensor([[21, 22], [EOS, 31]])
WHOLE = torch.cat((SEEN, REPLY, torch.tensor([[41], [42]])), 1)


def gone_on(model: Any) -> Any:
    """A cache that a batch with one pad has filled, and whose second row has ended early."""
    cache: Any = DynamicCache()
    keys = torch.arange(2 * 2 * 5 * 4).reshape(2, 2, 5, 4).float()
    for layer in range(2):
        cache.update(keys + layer, -keys, layer)
    first = call(model, input_ids=SEEN, attention_mask=(SEEN != PAD).long(), past_key_values=cache)
    remember(torch.cat((SEEN, REPLY), 1), first, SEEN != PAD)
    return cache


def test_pads_that_are_in_a_cache_alone_make_a_padded_call(llama: Any) -> None:
    full = torch.ones_like(WHOLE)
    cache = gone_on(llama)
    seen = found(llama, input_ids=WHOLE, attention_mask=full, past_key_values=cache)
    assert seen is not None
    assert (real(seen), seen.past, seen.negative) == (full.tolist(), None, None)
    assert seen.cache is not None
    new = torch.ones(2, 5 + 2).long()
    alone = found(llama, input_ids=WHOLE[:, -2:], attention_mask=new, past_key_values=cache)
    assert alone is None  # of new tokens alone the mask would have to say it


def test_of_a_cache_without_pads_only_what_follows_the_end_of_a_row_counts(llama: Any) -> None:
    prompt = SEEN.masked_fill(SEEN == PAD, 12)
    reply = torch.tensor([[21, 22, 23], [EOS, 31, 32]])
    cache: Any = DynamicCache()
    keys = torch.arange(2 * 2 * 6 * 4).reshape(2, 2, 6, 4).float()
    for layer in range(2):
        cache.update(keys + layer, -keys, layer)
    remember(torch.cat((prompt, reply), 1), call(llama, input_ids=prompt, past_key_values=cache))
    whole = torch.cat((prompt, reply), 1)

    def asked(row: int, column: int, token: int) -> Found | None:
        ids = whole.clone()
        ids[row, column] = token
        return found(llama, input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=cache)

    assert asked(1, 5, 31) is None  # what is there
    assert asked(0, 5, 66) is None  # other tokens are the caller's business, for a prompt alone too
    assert asked(1, 0, 66) is None
    assert asked(1, 5, 66) is not None


@pytest.mark.parametrize("ends", [[3, OTHER], [OTHER, 3]])
def test_the_first_of_several_ends_is_the_pad(llama: Any, ends: list[int], resolved: list[Any]) -> None:
    without(llama, "pad_token_id", "eos_token_id")
    for pad in ends:
        with torch.device("meta"):
            seen = found(llama, input_ids=IDS.masked_fill(IDS == PAD, pad), eos_token_id=ends)
        assert real(seen) == (MASK.tolist() if pad == ends[0] else None)
    assert len(resolved) == 2


def test_a_pad_that_the_text_models_configuration_names_is_looked_for(llama: Any, resolved: list[Any]) -> None:
    without(llama, "pad_token_id", "eos_token_id")
    text = copy.deepcopy(llama.config)
    text.eos_token_id = OTHER
    object.__setattr__(llama.config, "get_text_config", lambda **_: text)
    found(llama, input_ids=IDS.masked_fill(IDS == PAD, OTHER))
    assert len(resolved) == 1
    found(llama, input_ids=IDS)
    assert len(resolved) == 1
