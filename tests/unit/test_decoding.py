"""The lists of processors and criteria of a padded call: rewritten for that call, and for no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from oracle import EOS, GREEDY, PAD, ROWS, alone, build, compare, embedded, left_padded, right_padded, together
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import logits_process as stock
from transformers.generation import stopping_criteria as criteria

import padfix
from padfix import PadfixWarning, once, patch
from padfix.generation import decoding as decoding_module
from padfix.generation.callbacks import InCallersLayout
from padfix.generation.decoding import Decoding, logits_processors, passed_by_caller, rewritten, stopping_criteria
from padfix.generation.history import History
from padfix.layout.plan import LayoutPlan
from padfix.settings import read_environment

pytestmark = pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")

# What the pad id of ROWS is penalised by: it stands in the history of the padded rows alone.
FLAGS: dict[str, Any] = {"no_repeat_ngram_size": 1, "encoder_repetition_penalty": 0.6}

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
PROMPT = torch.tensor([[5, 6, 7, PAD], [8, PAD, PAD, PAD]])


@pytest.fixture
def model() -> Any:
    return build("llama")


def made(model: Any, *passed: Any, prompt: Tensor | None = PROMPT, **changes: Any) -> Decoding:
    arguments: dict[str, Any] = {
        "model": model,
        "history": History(LayoutPlan.from_mask(MASK), prompt),
        "pad_aware": True,
        "relaid": True,
        "passed": passed,
        "min_length": None,
        "config": GenerationConfig(),
    }
    return Decoding(**{**arguments, **changes})


# One processor


class Own(LogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores


class OwnNGrams(stock.NoRepeatNGramLogitsProcessor):
    """A subclass: code of the caller's own."""


class OwnLength(stock.ForcedEOSTokenLogitsProcessor):
    """A subclass: code of the caller's own."""


def ngrams() -> Any:
    return stock.NoRepeatNGramLogitsProcessor(2)


def forced_end() -> Any:
    return stock.ForcedEOSTokenLogitsProcessor(9, EOS)


@pytest.mark.parametrize("by_caller", [False, True])
@pytest.mark.parametrize("relaid", [False, True])
@pytest.mark.parametrize("pad_aware", [False, True])
def test_what_takes_the_place_of_one(pad_aware: bool, relaid: bool, by_caller: bool) -> None:
    for one in (Own(), OwnNGrams(2), OwnLength(9, EOS), stock.TemperatureLogitsWarper(0.5)):
        decoding = made(None, *((one,) if by_caller else ()), relaid=relaid, pad_aware=pad_aware)
        got = decoding.one(one)
        if by_caller and relaid:
            assert type(got) is InCallersLayout
            assert got._callback is one
        else:
            assert got is one

    counted = forced_end()
    got = made(None, *((counted,) if by_caller else ()), relaid=relaid, pad_aware=pad_aware).one(counted)
    assert got.max_length == (8 if by_caller and relaid else 9)
    assert (got is counted) is not (by_caller and relaid)

    twinned = ngrams()
    got = made(None, *((twinned,) if by_caller else ()), relaid=relaid, pad_aware=pad_aware).one(twinned)
    assert (got is twinned) is not pad_aware
    assert type(got) is not InCallersLayout


def test_another_processor_of_the_same_kind_is_not_the_callers() -> None:
    counted = forced_end()
    assert made(None, forced_end()).one(counted) is counted


def test_begin_suppress_of_the_callers_counts_the_callers_columns() -> None:
    """It is in both tables: its columns come first."""
    one = stock.SuppressTokensAtBeginLogitsProcessor([3], 4)
    config = GenerationConfig(forced_bos_token_id=7)
    got = made(None, one, config=config).one(one)
    assert type(got) is stock.SuppressTokensAtBeginLogitsProcessor
    assert got.begin_index == 3
    assert one.begin_index == 4


def test_what_the_caller_made_is_found_in_both_lists() -> None:
    class Call:
        def __init__(self, **arguments: Any) -> None:
            self.get = arguments.get

    first, second, third = Own(), Own(), criteria.MaxTimeCriteria(9.0)
    call: Any = Call(logits_processor=LogitsProcessorList([first, second]), stopping_criteria=[third])
    assert passed_by_caller(call) == (first, second, third)
    nothing: Any = Call(logits_processor=None, stopping_criteria=object())
    assert passed_by_caller(nothing) == ()


# The hooks


def builder(self: Any, generation_config: Any, encoder_input_ids: Any = None, **kwargs: Any) -> LogitsProcessorList:
    """Stands for `_get_logits_processor`."""
    seen.append((generation_config, encoder_input_ids, kwargs))
    return LogitsProcessorList([ngrams(), stock.TemperatureLogitsWarper(0.5)])


def criteria_builder(self: Any, **kwargs: Any) -> StoppingCriteriaList:
    return StoppingCriteriaList([criteria.MaxLengthCriteria(9)])


seen: list[tuple[Any, Any, Any]] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def kinds(listed: Any) -> list[str]:
    return [type(one).__name__ for one in listed]


STOCK_KINDS = ["NoRepeatNGramLogitsProcessor", "TemperatureLogitsWarper"]


def test_without_a_call_that_is_announced_the_hooks_do_nothing(model: Any) -> None:
    config = GenerationConfig()
    assert kinds(logits_processors(builder, model, (config,), {})) == STOCK_KINDS
    decoding = made(build("llama"))
    with rewritten(decoding):  # another model's
        assert kinds(logits_processors(builder, model, (config,), {})) == STOCK_KINDS
        assert kinds(stopping_criteria(criteria_builder, model, (), {})) == ["MaxLengthCriteria"]
        assert not decoding.reached
        assert kinds(logits_processors(builder, decoding.model, (config,), {})) != STOCK_KINDS
    assert kinds(logits_processors(builder, decoding.model, (config,), {})) == STOCK_KINDS


def test_the_lists_of_the_call_are_rewritten_until_its_last_one(model: Any) -> None:
    decoding, config = made(model), GenerationConfig()
    with rewritten(decoding):
        for args, kwargs in [((config,), {}), ((), {"generation_config": config})]:
            listed = logits_processors(builder, model, args, kwargs)
            assert type(listed) is LogitsProcessorList
            assert kinds(listed)[0] != STOCK_KINDS[0]
            assert kinds(listed)[1] == STOCK_KINDS[1]
        assert decoding.reached
        assert type(stopping_criteria(criteria_builder, model, (), {})) is StoppingCriteriaList
        assert kinds(logits_processors(builder, model, (config,), {})) == STOCK_KINDS
    assert [one[0] for one in seen] == [config] * 3
    assert all(one[0] is config for one in seen)


def test_what_was_announced_is_forgotten_where_the_call_raises(model: Any) -> None:
    with pytest.raises(KeyError), rewritten(made(model)):
        raise KeyError
    assert kinds(logits_processors(builder, model, (GenerationConfig(),), {})) == STOCK_KINDS


def test_announcements_nest(model: Any) -> None:
    outer, inner = made(model), made(model)
    with rewritten(outer):
        with rewritten(inner):
            stopping_criteria(criteria_builder, model, (), {})
        logits_processors(builder, model, (GenerationConfig(),), {})
    assert outer.reached
    assert not inner.reached


@pytest.mark.parametrize("least", [None, 7])
def test_the_fewest_tokens_are_set_on_a_copy_of_the_config(model: Any, least: int | None) -> None:
    config = GenerationConfig(min_length=3)
    with rewritten(made(model, min_length=least)):
        logits_processors(builder, model, (config,), {"prefix": 1})
    given, _, further = seen[0]
    assert given.min_length == (3 if least is None else 7)
    assert (given is config) is (least is None)
    assert config.min_length == 3
    assert further == {"prefix": 1}


def test_twins_get_the_encoder_ids_that_the_list_is_built_from(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes: list[Any] = []
    monkeypatch.setattr(
        decoding_module, "TWINS", {stock.NoRepeatNGramLogitsProcessor: lambda one, scene: scenes.append(scene)}
    )
    ids = torch.tensor([[4]])
    decoding = made(model)
    with rewritten(decoding):
        logits_processors(builder, model, (GenerationConfig(),), {"encoder_input_ids": ids})
    assert scenes[0].encoder_ids is ids
    assert scenes[0].history is decoding.history
    assert scenes[0].config is decoding.config
    assert not scenes[0].by_caller


# Whole calls


@pytest.mark.usefixtures("installed")
def test_a_call_within_a_processor_is_a_call_of_its_own(model: Any) -> None:
    inner_rows = [[71, 13, 55], [11, 42, 7, 19, 3], [8]]
    right = alone(model, inner_rows, **FLAGS)
    unpadded = [inner_rows[0]]
    results: list[Any] = []

    class Nesting(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            assert torch.equal(input_ids[:, : outer["input_ids"].shape[1]], outer["input_ids"])
            if not results:
                results.append(together(model, right_padded(inner_rows), **FLAGS))
                results.append(together(model, right_padded(unpadded), **FLAGS))
            return scores

    outer = right_padded(ROWS)
    replies = together(model, outer, logits_processor=[Nesting()], **FLAGS)
    compare(replies, alone(model, ROWS, **FLAGS))
    compare(results[0], right)
    compare(results[1], right[:1])


@pytest.mark.usefixtures("installed")
def test_an_unpadded_call_within_a_padded_one_has_the_librarys_own_lists(model: Any) -> None:
    lists: list[list[str]] = []
    hook = type(model)._get_logits_processor

    def recorded(*args: Any, **kwargs: Any) -> Any:
        listed = hook(model, *args, **kwargs)
        lists.append(kinds(listed))
        return listed

    class Nesting(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if len(lists) == 1:
                model.generate(torch.tensor(ROWS[:1]), **GREEDY, no_repeat_ngram_size=2)
            return scores

    model._get_logits_processor = recorded
    model.generate(**right_padded(ROWS), **GREEDY, no_repeat_ngram_size=2, logits_processor=[Nesting()])
    assert lists == [["_Filled", "InCallersLayout"], ["NoRepeatNGramLogitsProcessor"]]


def own_list(*args: Any, **kwargs: Any) -> LogitsProcessorList:
    return LogitsProcessorList([ngrams()])


def test_a_model_that_builds_its_own_list_is_named_where_a_flag_reads_the_history(model: Any) -> None:
    model._get_logits_processor = own_list
    padfix.install("fix")
    with pytest.warns(PadfixWarning, match="LlamaForCausalLM builds its own list of logits processors") as said:
        model.generate(**right_padded(ROWS), **GREEDY, no_repeat_ngram_size=2)
    assert len(said) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["no flag", "no pads"])
def test_where_nothing_reads_pads_a_list_of_the_models_own_is_not_named(model: Any, rows: list[list[int]]) -> None:
    model._get_logits_processor = own_list
    flags = {} if rows is ROWS else {"no_repeat_ngram_size": 2}
    model.generate(**right_padded(rows), **GREEDY, **flags)


@pytest.mark.usefixtures("installed")
def test_a_model_that_asks_the_library_for_its_list_is_repaired(model: Any) -> None:
    get = type(model)._get_logits_processor

    def extended(*args: Any, **kwargs: Any) -> Any:
        return get(model, *args, **kwargs)

    model._get_logits_processor = extended
    compare(together(model, right_padded(ROWS), **FLAGS), alone(model, ROWS, **FLAGS))


# Stock decoding


def with_twins_off(batch: Mapping[str, Tensor], model: Any) -> None:
    """Fails unless the reply is what transformers gives the batch padded on the left, pads seen by its processors."""
    with padfix.suppressed():
        seen_by_stock = together(model, left_padded(ROWS), **FLAGS)
    compare(together(model, batch, **FLAGS), seen_by_stock)


def test_stock_decoding_shows_the_librarys_processors_what_the_model_sees(model: Any) -> None:
    padfix.install("fix", decoding="stock")
    with_twins_off(right_padded(ROWS), model)
    with pytest.raises(AssertionError, match="row"):
        compare(together(model, right_padded(ROWS), **FLAGS), alone(model, ROWS, **FLAGS))
    with padfix.override(decoding="pad_aware"):
        compare(together(model, right_padded(ROWS), **FLAGS), alone(model, ROWS, **FLAGS))
    padfix.install(decoding="pad_aware")
    compare(together(model, right_padded(ROWS), **FLAGS), alone(model, ROWS, **FLAGS))


def test_the_environment_asks_for_stock_decoding(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, _ = read_environment({"PADFIX": "fix", "PADFIX_DECODING": "stock"})
    monkeypatch.setattr(patch, "ENVIRONMENT", environment)
    monkeypatch.setattr(once, "ENVIRONMENT", environment)
    padfix.install()
    with_twins_off(right_padded(ROWS), model)
    padfix.uninstall()
    once_given = padfix.generate(model, **right_padded(ROWS), **GREEDY, **FLAGS)
    assert torch.equal(once_given[:, -6:], model.generate(**left_padded(ROWS), **GREEDY, **FLAGS)[:, -6:])


def test_under_stock_decoding_a_left_padded_batch_is_stocks(model: Any) -> None:
    padfix.install("fix", decoding="stock")
    with_twins_off(left_padded(ROWS), model)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("least", [4, 9, 12])
def test_of_embeddings_alone_the_fewest_tokens_are_counted_without_pads(model: Any, least: int) -> None:
    """The library has taken the batch's columns off, and left nothing where there are as many."""
    padded = embedded(model, right_padded(ROWS, extra=2))
    embeddings = [embedded(model, right_padded([row]))["inputs_embeds"] for row in ROWS]
    # Rows that would end at once, so that something has to keep them.
    flags = {"min_length": least, "max_new_tokens": 12, "sequence_bias": {(EOS,): 50.0}}
    right = alone(
        model,
        ROWS,
        each=lambda row: {"input_ids": None, "inputs_embeds": embeddings[row]},
        distinct=False,
        **flags,
    )
    assert len({len(reply.tokens) for reply in right}) > 1
    compare(together(model, padded, **flags), right)
