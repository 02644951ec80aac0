"""What is no sound call: stock's own exception or result, or one of ours that names argument and shape."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from facts import CACHE_FIELD
from oracle import GREEDY, PADDERS, ROWS, build
from stock import assert_replies, assert_stocks, new_tokens, outcome, suppressed_outcome, unchanged
from torch import Tensor
from transformers import GenerationConfig

import padfix
from padfix import RightPaddingError, UnsupportedCallError

pytestmark = pytest.mark.usefixtures("installed")

Batch = dict[str, Any]


class Case(NamedTuple):
    """A change that makes a call unsound.

    Attributes:
        change: From the arguments of a padded batch to those of the case.
        named: Our message about it, a pattern; without one the case is stock's alone, whatever the mode.
        readable: Whether its pads can be read all the same: then strict mode speaks first of those on the right.
    """

    change: Callable[[Batch], Batch]
    named: str | None = None
    readable: bool = False


def _mask(change: Callable[[Tensor], Any]) -> Callable[[Batch], Batch]:
    return lambda batch: batch | {"attention_mask": change(batch["attention_mask"])}


def _ids(change: Callable[[Tensor], Any]) -> Callable[[Batch], Batch]:
    return lambda batch: batch | {"input_ids": change(batch["input_ids"])}


def _both(change: Callable[[Tensor], Tensor]) -> Callable[[Batch], Batch]:
    return lambda batch: batch | {name: change(batch[name]) for name in ("input_ids", "attention_mask")}


def _with(**arguments: Any) -> Callable[[Batch], Batch]:
    return lambda batch: batch | arguments


def _nan_in_a_cell(mask: Tensor) -> Tensor:
    changed = mask.float()
    changed[0, 3] = float("nan")
    return changed


def _wider(mask: Tensor) -> Tensor:
    return torch.cat((mask, mask[:, :1]), 1)


def _doubled_ids(batch: Batch) -> Batch:
    return batch | {"inputs": batch["input_ids"].clone()}


def _negative_content(ids: Tensor) -> Tensor:
    return ids.masked_fill(ids == 17, -3)


def _unknown_content(ids: Tensor) -> Tensor:
    return ids.masked_fill(ids == 17, 500)


SHAPE = r"attention_mask= of shape {}, where the prompt has shape \(3, 7\)"
VALUES = r"attention_mask= of shape \(3, 7\) with values other than 0 and 1"

CASES: Mapping[str, Case] = {
    "mask one column wider": Case(_mask(_wider), SHAPE.format(r"\(3, 8\)")),
    "mask one column narrower": Case(_mask(lambda mask: mask[:, :6]), SHAPE.format(r"\(3, 6\)")),
    "mask of fewer rows": Case(_mask(lambda mask: mask[1:]), SHAPE.format(r"\(2, 7\)")),
    "mask of more rows": Case(_mask(lambda mask: mask[[0, 1, 2, 1]]), SHAPE.format(r"\(4, 7\)")),
    "mask of one row": Case(_mask(lambda mask: mask[1:2]), SHAPE.format(r"\(1, 7\)")),
    "mask transposed": Case(_mask(lambda mask: mask.T), SHAPE.format(r"\(7, 3\)")),
    "mask without a column": Case(_mask(lambda mask: mask[:, :0])),
    "mask of no axis": Case(_mask(lambda mask: torch.tensor(1))),
    "mask of one axis": Case(_mask(lambda mask: mask[1])),
    "mask of three axes": Case(_mask(lambda mask: mask[:, None])),
    "mask of four axes": Case(_mask(lambda mask: mask[:, None, None].expand(-1, 1, 7, -1).bool())),
    "mask that is a list": Case(_mask(Tensor.tolist)),
    "mask that is an array": Case(_mask(Tensor.numpy)),
    "NaN in a float mask": Case(_mask(_nan_in_a_cell), VALUES),
    "additive mask": Case(_mask(lambda mask: torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))), VALUES),
    "additive mask of finite numbers": Case(_mask(lambda mask: (mask - 1.0) * 1e4), VALUES),
    "mask of other numbers": Case(_mask(lambda mask: mask * 2), VALUES),
    "mask of weights": Case(_mask(lambda mask: mask * 0.5), VALUES),
    "ids that are floats": Case(_ids(Tensor.float)),
    "ids that are bools": Case(_ids(Tensor.bool)),
    "ids of one axis": Case(_both(lambda x: x[1])),
    "ids that are a list": Case(_ids(Tensor.tolist)),
    "ids that are an array": Case(_ids(Tensor.numpy)),
    "ids that are text": Case(_ids(lambda ids: "the quick brown fox")),
    "empty batch": Case(_both(lambda x: x[:0])),
    "no columns": Case(_both(lambda x: x[:, :0])),
    "inputs and input_ids": Case(_doubled_ids),
    "negative ids as content": Case(_ids(_negative_content), readable=True),
    "ids outside the vocabulary as content": Case(_ids(_unknown_content), readable=True),
    "embeddings of two axes": Case(_with(inputs_embeds=torch.zeros(3, 32))),
    "unknown keyword": Case(_with(colour=3), readable=True),
    "config that is a dict": Case(_with(generation_config={"max_new_tokens": 3})),
    "bad_words_ids that is a number": Case(_with(bad_words_ids=5), readable=True),
    "num_beams that is a word": Case(_with(num_beams="two"), readable=True),
    "num_beams=0": Case(_with(num_beams=0), readable=True),
    "more sequences than beams": Case(_with(num_beams=2, num_return_sequences=3), readable=True),
    "max_length below the prompt": Case(_with(max_length=5, max_new_tokens=None), readable=True),
    "max_length of the prompt": Case(_with(max_length=7, max_new_tokens=None), readable=True),
    "max_length below the prompt, beside a flag that cannot be made right": Case(
        _with(max_length=5, max_new_tokens=None, no_repeat_ngram_size=2), readable=True
    ),
    "max_new_tokens=0": Case(_with(max_new_tokens=0)),
    "max_new_tokens below 0": Case(_with(max_new_tokens=-1)),
    "unknown cache": Case(_with(cache_implementation="of gold"), readable=True),
    "position_ids of another width": Case(
        _with(position_ids=torch.arange(5)[None]),
        r"position_ids= of shape \(1, 5\), where the prompt has shape \(3, 7\)",
        readable=True,
    ),
    "position_ids that are a list": Case(
        _with(position_ids=[[0, 1, 2, 3, 4, 5, 6]] * 3),
        r"position_ids= of type list, where the prompt has shape \(3, 7\)",
        readable=True,
    ),
}

# Left-padded columns stay where they are: what does not fit them is stock's business.
NEED_NO_COLUMNS = ("position_ids of another width", "position_ids that are a list")


def _arguments(case: Case, layout: str) -> Batch:
    rows = [ROWS[0], ROWS[0][::-1], ROWS[0][1:] + ROWS[0][:1]] if layout == "none" else ROWS
    return case.change({**PADDERS["right" if layout == "none" else layout](rows), **GREEDY})


EMPTY = r"Rows 0, 1, 2 of input_ids \(shape \(3, 7\)\) have no real token"


def _named(name: str, arguments: Batch, layout: str) -> str | None:
    """What padfix has to say of a case: nothing where no cell is masked, or where nothing has to move."""
    mask = arguments["attention_mask"]
    if isinstance(mask, Tensor) and mask.ndim == 2:
        if bool((mask != 0).all()) or (layout == "left" and name in NEED_NO_COLUMNS):
            return None
        if bool((mask == 0).all()) and mask.numel():
            return EMPTY
    return CASES[name].named


@pytest.mark.parametrize("layout", ["right", "left", "none"])
@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize("name", CASES)
def test_an_unsound_call_is_answered_by_stock_or_named(name: str, mode: str, layout: str) -> None:
    case = CASES[name]
    stock = suppressed_outcome(lambda: build("llama").generate(**_arguments(case, layout)))
    model, arguments = build("llama"), _arguments(case, layout)
    with padfix.override(mode), unchanged(model, arguments):
        got = outcome(lambda: model.generate(**arguments))

    named = _named(name, arguments, layout)
    if mode == "strict" and case.readable and layout == "right" and got.raised != stock.raised:
        assert isinstance(got.error, RightPaddingError)
        assert str(got.error).startswith("Rows 1, 2 of input_ids (shape (3, 7)) have pads after real tokens")
    elif mode == "strict" and named not in (None, EMPTY):
        assert isinstance(got.error, UnsupportedCallError)
        assert re.search(f"padfix cannot make this call right: {named}", str(got.error))
    else:
        assert_stocks(got, stock)
        assert len(got.said) == (named is not None)
        for said in got.said:
            assert re.search(str(named), said)


@pytest.mark.parametrize("layout", ["right", "left", "none"])
@pytest.mark.parametrize("name", CASES)
def test_an_unsound_call_is_stocks_in_warn_mode(name: str, layout: str) -> None:
    case = CASES[name]
    stock = suppressed_outcome(lambda: build("llama").generate(**_arguments(case, layout)))
    model, arguments = build("llama"), _arguments(case, layout)
    with padfix.override("warn"), unchanged(model, arguments):
        got = outcome(lambda: model.generate(**arguments))
    assert_stocks(got, stock)
    named = _named(name, arguments, layout)
    assert len(got.said) <= 1
    assert named is None or re.search(named, got.said[0])


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize(
    "call",
    [
        lambda model, ids: model.generate(ids, inputs=ids),
        lambda model, ids: model.generate(ids, *[None] * 14),
        lambda model, ids: model.generate(ids, input_ids=ids),
    ],
    ids=["a name twice", "too many positions", "ids twice"],
)
def test_arguments_that_do_not_bind_get_stocks_answer(call: Callable[[Any, Tensor], Any], mode: str) -> None:
    model, ids = build("llama"), PADDERS["right"](ROWS)["input_ids"]
    stock = suppressed_outcome(lambda: call(model, ids))
    with padfix.override(mode):
        got = outcome(lambda: call(model, ids))
    assert stock.raised is not None
    assert got.raised == stock.raised
    assert got.said == []


def test_most_cases_are_errors_in_stock() -> None:
    model, raised = build("llama"), []
    for name, case in CASES.items():
        stock = suppressed_outcome(functools.partial(model.generate, **_arguments(case, "right")))
        raised += [name] if stock.raised else []
    assert len(raised) > len(CASES) / 2


@pytest.mark.parametrize("layout", ["right", "left"])
@pytest.mark.parametrize("use_cache", [None, 0])
@pytest.mark.parametrize("in_config", [False, True], ids=["keyword", "config"])
def test_a_use_cache_that_is_neither_true_nor_false_is_exact(in_config: bool, use_cache: Any, layout: str) -> None:
    asked: dict[str, Any] = {**GREEDY, "use_cache": use_cache}
    asked = {"generation_config": GenerationConfig(**asked)} if in_config else asked
    alone = outcome(lambda: new_tokens(build("llama"), ROWS, **asked))
    batch = PADDERS[layout](ROWS)
    got = outcome(lambda: build("llama").generate(**batch, **asked))
    assert type(got.error) is type(alone.error)  # up to 4.51 a prompt alone raises under some
    if alone.error is None:
        assert_replies(got.output, batch["input_ids"], alone.output)


@pytest.mark.parametrize("value", [{}, 3, [[5]], object()], ids=["a dict", "a number", "a list", "an object"])
def test_a_cache_that_is_none_is_stocks_to_refuse(value: Any) -> None:
    batch = {**PADDERS["right"](ROWS), **GREEDY, "past_key_values": value}
    stock = suppressed_outcome(lambda: build("blenderbot").generate(**batch))
    got = outcome(lambda: build("blenderbot").generate(**batch))
    assert stock.raised is not None
    assert type(got.error) is type(stock.error)


def test_arguments_that_cannot_be_read_are_named_in_strict_mode_and_stocks_else() -> None:
    batch = {**PADDERS["right"](ROWS), **GREEDY, "assistant_model": torch.ones(3, 5)}
    stock = suppressed_outcome(lambda: build("llama").generate(**batch))
    got = outcome(lambda: build("llama").generate(**batch))
    assert got.raised == stock.raised
    assert got.said == []
    with padfix.override("strict"):
        strict = outcome(lambda: build("llama").generate(**batch))
    assert isinstance(strict.error, (RightPaddingError, UnsupportedCallError))


@pytest.mark.filterwarnings("ignore:Row 0 of decoder_input_ids:padfix.PadfixWarning")
def test_a_decoder_row_without_a_token_shifts_no_other() -> None:
    model, encoder = build("bart"), {"input_ids": torch.tensor([[5, 17, 2], [33, 8, 2]])}
    prompts, mask = torch.tensor([[1, 5, 17, 0], [1, 11, 42, 0]]), torch.tensor([[0] * 4, [1, 1, 1, 0]])
    output = model.generate(**encoder, decoder_input_ids=prompts, decoder_attention_mask=mask, **GREEDY)
    alone = suppressed_outcome(
        lambda: model.generate(input_ids=encoder["input_ids"][1:], decoder_input_ids=prompts[1:, :3], **GREEDY)
    )
    assert torch.equal(output[:, :4], prompts)
    assert output[1, 4 : 4 + alone.output.shape[1] - 3].tolist() == alone.output[0, 3:].tolist()


def test_a_cache_of_other_rows_is_stocks_to_refuse() -> None:
    model = build("mistral")
    with padfix.suppressed():
        rows = torch.tensor([ROWS[0][:2], ROWS[1][:2]])
        held = model.generate(rows, max_new_tokens=1, do_sample=False, return_dict_in_generate=True, use_cache=True)
    cache = getattr(held, CACHE_FIELD)
    batch = {**PADDERS["right"](ROWS), **GREEDY, CACHE_FIELD: cache}
    stock = suppressed_outcome(lambda: model.generate(**batch | {CACHE_FIELD: copy.deepcopy(cache)}))
    got = outcome(lambda: model.generate(**batch))
    assert stock.error is not None
    assert type(got.error) is type(stock.error)


def test_output_beside_a_mask_of_another_width_is_stocks() -> None:
    batch = {**PADDERS["right"](ROWS), **GREEDY, "return_dict_in_generate": True}
    batch["attention_mask"] = torch.nn.functional.pad(batch["attention_mask"], (0, 1))
    stock = suppressed_outcome(lambda: build("gpt2").generate(**batch))
    got = outcome(lambda: build("gpt2").generate(**batch))
    assert type(got.error) is type(stock.error)
    if stock.error is None:
        assert torch.equal(got.output.sequences, stock.output.sequences)
        assert "attention_mask= of shape" in got.said[0]


def test_a_tensor_for_a_flag_that_looks_at_pads_is_named() -> None:
    batch = {**PADDERS["right"](ROWS), **GREEDY, "penalty_alpha": torch.ones(2), "top_k": 1}
    stock = suppressed_outcome(lambda: build("llama").generate(**batch))
    got = outcome(lambda: build("llama").generate(**batch))
    assert type(got.error) is type(stock.error)
    if stock.error is None:
        assert "penalty_alpha=" in got.said[0]
