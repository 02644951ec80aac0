"""Lengths: how many new tokens a call is granted, and the same number after columns are dropped from the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import EOS, PAD, alone, build, embedded, left_padded, right_padded
from transformers import GenerationConfig

import padfix
from padfix.generation import lengths as lengths_module
from padfix.generation.call import GenerateCall, bind
from padfix.generation.compat import own_max_length_counts_columns, resolved_config
from padfix.generation.lengths import max_length_counts_columns, new_tokens, position_limit, reduced

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning"),
    # a given max_length beside max_new_tokens, or a config beside keywords
    pytest.mark.filterwarnings("ignore:.*generation_config.*:UserWarning"),
]

# Seven columns, and three more that are pads in every row.
ROWS = [[5, 17, 33, 8, 61, 24, 9], [11, 42, 7], [71, 13, 55, 29, 3]]
TRIM = 3
WIDTH = 10

# A length of the model's own, where it counts columns.
OWN = pytest.param(
    "own", marks=pytest.mark.skipif(not own_max_length_counts_columns(), reason="in this release it counts new tokens")
)

NO_END: dict[str, Any] = {"do_sample": False, "pad_token_id": PAD, "eos_token_id": None}


@pytest.fixture(scope="module")
def llama() -> Any:
    model = build("llama")
    model.generation_config.eos_token_id = None  # every row runs to its length
    return model


@pytest.fixture
def model(llama: Any) -> Any:
    llama.generation_config = GenerationConfig(**NO_END)
    return llama


FORMS = ("ids", "embeds", "both")


def prompt(model: Any, form: str, rows: Any = ROWS, *, extra: int = TRIM) -> dict[str, Any]:
    batch = right_padded(rows, extra=extra)
    if form == "ids":
        return dict(batch)
    return {**embedded(model, batch), **({"input_ids": batch["input_ids"]} if form == "both" else {})}


def columns(model: Any, batch: Mapping[str, Any], **arguments: Any) -> int:
    """The number of new columns that a call gives."""
    output = model.generate(**batch, **arguments)
    return int(output.shape[1]) - (WIDTH if "input_ids" in batch else 0)


def bound(model: Any, batch: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[GenerateCall, GenerationConfig]:
    call = bind(model, (), {**batch, **arguments})
    assert call is not None
    config = resolved_config(call)
    assert config is not None
    return call, config


def ask(model: Any, origin: str, **lengths: int) -> dict[str, Any]:
    """The arguments of a call that asks for `lengths` this way."""
    if origin == "own":
        for name, value in lengths.items():
            setattr(model.generation_config, name, value)
        return {}
    return lengths if origin == "keyword" else {"generation_config": GenerationConfig(**NO_END, **lengths)}


# 20 is the library's default, before and after three columns are dropped.
ASKED: list[dict[str, int]] = [
    {"max_length": 12},
    {"max_length": 20},
    {"max_length": 23},
    {"max_length": 26},
    {"max_new_tokens": 4},
    {"max_new_tokens": 20},
    {"max_new_tokens": 4, "max_length": 13},
]


def cases() -> list[Any]:
    asked = [(origin, lengths) for origin in ("keyword", "passed", "own") for lengths in ASKED]
    return [("default", {}), ("passed", {}), *asked]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("origin", "lengths"), cases(), ids=str)
def test_call_gets_as_many_new_tokens_repaired_as_unrepaired(
    model: Any, form: str, origin: str, lengths: dict[str, int]
) -> None:
    batch = prompt(model, form)
    arguments = ask(model, origin, **lengths)
    expected = columns(model, batch, **arguments)
    assert expected > 0
    assert new_tokens(*bound(model, batch, arguments)) == expected
    padfix.install("fix")
    assert columns(model, batch, **arguments) == expected


@pytest.mark.parametrize(("passed", "keyword"), [(23, 15), (15, 23), (20, 23), (23, 20)])
def test_keyword_wins_over_the_passed_config(model: Any, passed: int, keyword: int) -> None:
    arguments = {**ask(model, "passed", max_length=passed), "max_length": keyword}
    batch = prompt(model, "ids")
    assert columns(model, batch, **arguments) == keyword - WIDTH
    padfix.install("fix")
    assert columns(model, batch, **arguments) == keyword - WIDTH


@pytest.mark.parametrize(("passed", "own"), [(23, 15), (15, 23), (20, 23)])
def test_passed_config_beside_the_models_own(model: Any, passed: int, own: int) -> None:
    ask(model, "own", max_length=own)
    arguments = ask(model, "passed", max_length=passed)
    batch = prompt(model, "ids")
    expected = columns(model, batch, **arguments)
    padfix.install("fix")
    assert columns(model, batch, **arguments) == expected


@pytest.mark.parametrize("origin", ["keyword", "passed", "own"])
@pytest.mark.parametrize("lengths", ASKED, ids=str)
def test_only_a_number_of_columns_counts_columns(model: Any, origin: str, lengths: dict[str, int]) -> None:
    call = bound(model, prompt(model, "ids"), ask(model, origin, **lengths))
    counted = max_length_counts_columns(*call)
    if "max_new_tokens" in lengths:
        assert not counted
    elif lengths["max_length"] != 20:  # a 20 cannot be told from the default of 4.x
        assert counted is (origin != "own" or own_max_length_counts_columns())


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_default_length_counts_what_the_library_counts(
    model: Any, form: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rule(model_input_name: str) -> bool:
        asked.append(model_input_name)
        return counts

    monkeypatch.setattr(lengths_module, "default_max_length_counts_columns", rule)
    assert max_length_counts_columns(*bound(model, prompt(model, form), {})) is counts
    assert asked == ["inputs_embeds" if form == "embeds" else "input_ids"]
    assert max_length_counts_columns(*bound(model, prompt(model, form), ask(model, "passed", max_length=26)))


@pytest.mark.parametrize(
    ("origin", "lengths", "place"),
    [
        ("keyword", {"max_length": 26}, "keyword"),
        ("keyword", {"max_length": 23}, "keyword"),
        pytest.param("own", {"max_length": 26}, "keyword", marks=OWN.marks),
        ("passed", {"max_length": 26}, "copy"),
    ],
)
def test_length_goes_back_the_way_it_came(model: Any, origin: str, lengths: dict[str, int], place: str) -> None:
    arguments = ask(model, origin, **lengths)
    changes = reduced(*bound(model, prompt(model, "ids"), arguments), TRIM, counts_columns=True)
    expected = lengths["max_length"] - TRIM
    if place == "keyword":
        assert changes == {"max_length": expected}
    else:
        passed = arguments["generation_config"]
        assert list(changes) == ["generation_config"]
        assert changes["generation_config"] is not passed
        assert changes["generation_config"].max_length == expected
        assert passed.max_length == lengths["max_length"]
        changes["generation_config"].max_length = passed.max_length
        assert changes["generation_config"] == passed  # nothing else differs
    if origin == "own":
        assert model.generation_config.max_length == lengths["max_length"]


@pytest.mark.parametrize("origin", ["keyword", "passed", "own"])
@pytest.mark.parametrize("lengths", ASKED, ids=str)
def test_without_dropped_columns_nothing_is_replaced(model: Any, origin: str, lengths: dict[str, int]) -> None:
    assert reduced(*bound(model, prompt(model, "ids"), ask(model, origin, **lengths)), 0, counts_columns=True) == {}


@pytest.mark.parametrize("origin", ["keyword", "passed", "own"])
def test_number_of_new_tokens_is_never_replaced(model: Any, origin: str) -> None:
    asked = ask(model, origin, max_new_tokens=4, min_new_tokens=2, min_length=15)
    assert reduced(*bound(model, prompt(model, "ids"), asked), TRIM, counts_columns=True) == {}


@pytest.mark.parametrize(("max_length", "granted"), [(WIDTH, 0), (WIDTH - 4, -4), (WIDTH + 1, 1)])
def test_length_without_room_grants_nothing(model: Any, max_length: int, granted: int) -> None:
    assert new_tokens(*bound(model, prompt(model, "ids"), {"max_length": max_length})) == granted


@pytest.mark.parametrize("form", ["ids", "embeds"])
@pytest.mark.parametrize("origin", ["keyword", "passed", OWN])
def test_length_without_room_is_the_librarys_own_error(model: Any, form: str, origin: str) -> None:
    arguments = ask(model, origin, max_length=WIDTH - 1)
    batch = prompt(model, form)
    outcomes = []
    for mode in ("off", "fix", "warn"):
        padfix.install(mode)
        try:
            outcomes.append(model.generate(**batch, **arguments).tolist())
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1] == outcomes[2]


# min_length


EQUAL_ROWS = [[5, 17, 33, 8, 61, 24, 9], [11, 42, 7, 71, 13, 55, 29]]
# EOS is every row's choice, and nothing but min_length keeps it from being the first token.
ENDING: dict[str, Any] = {"sequence_bias": {(EOS,): 1e4}, "eos_token_id": EOS, "max_new_tokens": 9}


def replies(model: Any, batch: Mapping[str, Any], **arguments: Any) -> list[int]:
    """The number of tokens of each reply, EOS included."""
    new = model.generate(**batch, **ENDING, **arguments)[:, batch["input_ids"].shape[1] :]
    return [(row.tolist() + [EOS]).index(EOS) + 1 for row in new]


@pytest.mark.parametrize("minimum", [{"min_new_tokens": 3}, {"min_new_tokens": 3, "min_length": 15}])
def test_minimum_of_new_tokens_holds_for_every_row(model: Any, minimum: dict[str, int]) -> None:
    padfix.install("fix")
    assert replies(model, right_padded(ROWS, extra=TRIM), **minimum) == [4, 4, 4]


@pytest.mark.parametrize("origin", ["keyword", "passed", "own"])
def test_min_length_counts_real_tokens_where_the_repair_leaves_no_pads(model: Any, origin: str) -> None:
    arguments = ask(model, origin, min_length=11)
    apart = [replies(model, right_padded([row]), **arguments)[0] for row in EQUAL_ROWS]
    assert apart == [5, 5]
    padfix.install("fix")
    assert replies(model, right_padded(EQUAL_ROWS, extra=TRIM), **arguments) == apart


def test_min_length_shorter_than_the_prompt_changes_nothing(model: Any) -> None:
    padfix.install("fix")
    assert replies(model, right_padded(EQUAL_ROWS, extra=TRIM), min_length=2) == [1, 1]


@pytest.mark.parametrize(("minimum", "less"), [(15, 12), (3, 0), (2, 0)])
@pytest.mark.parametrize("origin", ["keyword", "own", "passed"])
def test_min_length_of_stock_decoding_counts_columns(model: Any, origin: str, minimum: int, less: int) -> None:
    call = bound(model, prompt(model, "ids"), ask(model, origin, min_length=minimum, max_new_tokens=4))
    changes = dict(reduced(*call, TRIM, counts_columns=True))
    if origin == "passed" and less != GenerationConfig().min_length:
        assert changes.pop("generation_config").min_length == less
        assert changes == {}
    else:
        assert changes == {"min_length": less}
    assert reduced(*call, TRIM, counts_columns=False) == {}


@pytest.mark.parametrize("padded", [right_padded, left_padded])
def test_min_length_counts_the_real_tokens_of_each_row(model: Any, padded: Any) -> None:
    expected = [replies(model, right_padded([row]), min_length=12)[0] for row in ROWS]
    padfix.install("fix")
    assert replies(model, padded(ROWS, extra=TRIM), min_length=12) == expected


def test_tokens_of_a_call_without_any_length_are_those_of_each_prompt_alone(model: Any) -> None:
    batch = right_padded(ROWS, extra=TRIM)
    padfix.install("fix")
    output = model.generate(**batch)[:, WIDTH:]
    count = output.shape[1]
    expected = torch.tensor([reply.tokens for reply in alone(model, ROWS, max_new_tokens=count)])
    assert torch.equal(output, expected)


@pytest.mark.parametrize(
    ("name", "config", "limit"),
    [
        ("llama", {}, 256),
        ("gpt2", {"n_positions": 40}, 40),
        ("opt", {"max_position_embeddings": 40}, 40),
        ("bart", {"max_position_embeddings": 40}, 40),
        ("bloom", {}, None),
        ("mamba2", {}, None),
    ],
)
def test_positions_are_those_that_the_configuration_names(name: str, config: Any, limit: int | None) -> None:
    assert position_limit(build(name, **config)) == limit


@pytest.mark.parametrize(("named", "limit"), [(40, 40), (1, 1), (None, None), (-1, None), (0, None), ("all", None)])
def test_positions_are_a_number_of_the_text_model(named: Any, limit: int | None) -> None:
    text = SimpleNamespace(max_position_embeddings=named)
    whole = SimpleNamespace(max_position_embeddings=7, get_text_config=lambda: text)
    assert position_limit(SimpleNamespace(config=whole)) == limit
    assert position_limit(SimpleNamespace(config=text)) == limit


def test_keyword_beside_a_passed_config_is_what_is_replaced(model: Any) -> None:
    arguments = {**ask(model, "passed", max_length=23), "max_length": 15}
    changes = reduced(*bound(model, prompt(model, "ids"), arguments), TRIM, counts_columns=True)
    assert changes == {"max_length": 15 - TRIM}
