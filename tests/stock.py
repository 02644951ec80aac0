"""What transformers does on its own, to compare with, and what a call did to its caller."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
import torch
from oracle import ROWS, Reply, alone, build
from torch import Tensor

import padfix
from padfix import PadfixWarning

# An argument that stands in the way of moving columns, and that transformers takes for every row and column.
REFUSED = {"position_ids": torch.zeros(1, 1, dtype=torch.long)}

# The cache of a re-laid batch comes back as None until caches move too.
CACHE_IS_NONE = pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")


@functools.cache
def _expected(name: str, rows: tuple[tuple[int, ...], ...], arguments: tuple[tuple[str, Any], ...]) -> list[Reply]:
    return alone(build(name), rows, **dict(arguments))


def expected(name: str, rows: Sequence[Sequence[int]] = ROWS, **arguments: Any) -> list[Reply]:
    """The replies that a model of the table gives to the prompts as batches of one; computed once."""
    return _expected(name, tuple(map(tuple, rows)), tuple(sorted(arguments.items())))


def endless(name: str) -> Any:
    """A model of the table that never ends a reply by itself."""
    model = build(name)
    model.generation_config.eos_token_id = None
    return model


def new_tokens(model: Any, rows: Sequence[Sequence[int]], **arguments: Any) -> list[list[int]]:
    """The new tokens of the prompts as batches of one, from transformers as it is."""
    with padfix.suppressed():
        return [
            model.generate(input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row)).long(), **arguments)[
                0, len(row) :
            ].tolist()
            for row in rows
        ]


@dataclass(frozen=True)
class Outcome:
    """What came of a call: its output or its exception, and the warnings of padfix."""

    output: Any = None
    error: BaseException | None = None
    said: list[str] = field(default_factory=list)

    @property
    def raised(self) -> tuple[type[BaseException], str] | None:
        return None if self.error is None else (type(self.error), str(self.error))


def outcome(call: Callable[[], Any]) -> Outcome:
    """Makes the call and keeps what came of it; warnings of others are ignored."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        output: Any = None
        error: BaseException | None = None
        try:
            output = call()
        except Exception as raised:
            error = raised
    said = [str(one.message) for one in seen if issubclass(one.category, PadfixWarning)]
    return Outcome(output, error, said)


def suppressed_outcome(call: Callable[[], Any]) -> Outcome:
    """What comes of the call in transformers as it is."""
    with padfix.suppressed():
        return outcome(call)


def assert_stocks(got: Outcome, stock: Outcome) -> None:
    """Fails unless a call came to what it comes to in transformers as it is: the same exception or the same output."""
    assert got.raised == stock.raised
    assert_same(got.output, stock.output)


def assert_replies(output: Any, prompt: Tensor | None, wanted: Sequence[Sequence[int] | None]) -> None:
    """Fails unless the output is the caller's prompt and after it the wanted tokens of each row; None wants nothing."""
    ids = sequences(output)
    width = 0 if prompt is None else prompt.shape[1]
    assert ids.shape[0] == len(wanted)
    if prompt is not None:
        assert torch.equal(ids[:, :width], prompt)
    for row, reply in enumerate(wanted):
        if reply is not None:
            assert ids[row, width : width + len(reply)].tolist() == list(reply), f"row {row}"


def sequences(output: Any) -> Tensor:
    """The sequences of an output of either form."""
    return output if isinstance(output, Tensor) else output.sequences


def assert_same(output: Any, other: Any) -> None:
    """Fails unless two outputs are the same, bit for bit: class, fields, dtypes, values."""
    assert type(output) is type(other)
    if isinstance(output, Tensor):
        assert output.dtype == other.dtype
        assert torch.equal(output.nan_to_num(), other.nan_to_num())
    elif isinstance(output, (list, tuple)):
        assert len(output) == len(other)
        for one, another in zip(output, other, strict=True):
            assert_same(one, another)
    elif hasattr(output, "__dataclass_fields__"):
        for name in (one.name for one in fields(output)):
            value, another = getattr(output, name), getattr(other, name)
            if name in ("cache", "past_key_values"):  # two objects of one class; compared by what they say
                assert type(value) is type(another)
            else:
                assert_same(value, another)
    else:
        assert output == other


@contextmanager
def unchanged(model: Any, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Fails when the block changes a tensor, list or config among the arguments, the model's configs or attributes."""
    before = _state(model, arguments)
    yield
    for (name, was), (_, now) in zip(before, _state(model, arguments), strict=True):
        if isinstance(was, Tensor):
            assert torch.equal(was, now), f"the call changed {name}"
        else:
            assert was == now, f"the call changed {name}"


def _state(model: Any, arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    state: list[tuple[str, Any]] = [
        ("model.generation_config", model.generation_config.to_dict()),
        ("model.config", model.config.to_dict()),
        ("the attributes of the model", sorted(vars(model))),
        ("the names of the arguments", list(arguments)),
    ]
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            state += [(f"the version of {name}", value._version), (name, value.detach().clone().nan_to_num())]
        elif hasattr(value, "to_dict"):
            state.append((name, dict(vars(value))))
        elif isinstance(value, (list, dict)):
            state.append((name, copy.copy(value)))
        elif isinstance(value, np.ndarray):
            state.append((name, value.tolist()))
    return state
