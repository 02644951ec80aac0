"""The caller's own code: it sees the caller's layout, and is otherwise what it was."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from padfix.generation.callbacks import CallersStreamer, InCallersLayout, prefix_function
from padfix.generation.history import History
from padfix.layout.plan import LayoutPlan

# The middle column is a pad in every row.
MASK = torch.tensor([[1, 0, 1], [1, 0, 0]])
PROMPT = torch.tensor([[11, 90, 12], [21, 91, 92]])
HISTORY = History(LayoutPlan.from_mask(MASK), PROMPT)
IDS: Any = torch.tensor([[11, 12, 51], [7, 21, 52]])  # in the model's layout, with a new token
SHOWN = [[11, 90, 12, 51], [21, 91, 92, 52]]


class Remembering(LogitsProcessor):
    """Adds what it is told to, and remembers what it was shown."""

    name = "of the class"

    def __init__(self, amount: float = 1.0) -> None:
        self.amount = amount
        self.seen: list[list[list[int]]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(input_ids.tolist())
        return scores + self.amount


class Asking(LogitsProcessor):
    """Wants a third argument, as LogitsProcessorList hands on to those that name one."""

    def __call__(self, input_ids: Tensor, scores: Tensor, cfg_scale: float) -> Tensor:
        return scores * cfg_scale + input_ids.shape[1]


def test_ids_are_shown_in_the_callers_layout() -> None:
    callback = Remembering()
    scores = torch.zeros(2, 3)
    assert torch.equal(InCallersLayout(callback, HISTORY)(IDS, scores), scores + 1)
    assert callback.seen == [SHOWN]


def test_attributes_are_the_callbacks_own() -> None:
    callback = Remembering(2.0)
    view = InCallersLayout(callback, HISTORY)
    assert view.amount == 2.0
    assert view.name == "of the class"
    callback.amount = 3.0
    assert view.amount == 3.0
    assert view.seen is callback.seen
    with pytest.raises(AttributeError, match="missing"):
        _ = view.missing
    with pytest.raises(AttributeError, match="__len__"):
        _ = view.__len__


def test_parameters_are_the_callbacks_own() -> None:
    view = InCallersLayout(Asking(), HISTORY)
    assert list(inspect.signature(view.__call__).parameters) == ["input_ids", "scores", "cfg_scale"]
    listed = LogitsProcessorList([InCallersLayout(Remembering(), HISTORY), view])
    got = listed(IDS, torch.ones(2, 3), cfg_scale=5.0)
    assert got.tolist() == [[14.0] * 3] * 2  # (1 + 1) * 5 + four columns
    with pytest.raises(ValueError, match="cfg_scale"):
        listed(IDS, torch.ones(2, 3))


def test_a_criterion_gets_its_keywords() -> None:
    class Stops(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            assert kwargs == {"told": "more"}
            return input_ids[:, 0] == 21

    listed = StoppingCriteriaList([InCallersLayout(Stops(), HISTORY)])
    assert listed(IDS, None, told="more").tolist() == [False, True]


def test_a_function_is_a_callback_too() -> None:
    view = InCallersLayout(lambda input_ids, scores: scores + input_ids.shape[1], HISTORY)
    assert LogitsProcessorList([view])(IDS, torch.zeros(1)).tolist() == [4.0]


def test_what_a_callback_raises_reaches_the_caller_as_it_is() -> None:
    error = KeyError("mine")

    def fails(input_ids: Tensor, scores: Tensor) -> Tensor:
        raise error

    with pytest.raises(KeyError) as caught:
        InCallersLayout(fails, HISTORY)(IDS, torch.zeros(1))
    assert caught.value is error


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_works_as_the_view_does(make: Callable[[Any], Any]) -> None:
    view = make(InCallersLayout(Remembering(4.0), HISTORY))
    assert view(IDS, torch.zeros(1)).tolist() == [4.0]
    assert view.seen == [SHOWN]
    streamer = make(CallersStreamer(Heard(), HISTORY))
    streamer.put(IDS)
    assert streamer.heard == [SHOWN]


@pytest.mark.parametrize(("kind", "part"), [(InCallersLayout, "_callback"), (CallersStreamer, "_streamer")])
def test_a_view_without_its_parts_asks_nobody(kind: type, part: str) -> None:
    """What `copy` and `pickle` make before they fill it in."""
    hollow: Any = object.__new__(kind)
    for name in (part, "_history", "__setstate__"):
        with pytest.raises(AttributeError, match=name):
            getattr(hollow, name)


def test_a_view_can_be_pickled() -> None:
    view = pickle.loads(pickle.dumps(InCallersLayout(Remembering(4.0), HISTORY)))
    assert view(IDS, torch.zeros(1)).tolist() == [4.0]


# The prefix function


@pytest.mark.parametrize("row", [0, 1])
def test_a_prefix_function_is_shown_a_row_in_the_callers_layout(row: int) -> None:
    seen: list[tuple[int, list[int]]] = []

    def allowed(prompt: int, ids: Tensor) -> list[int]:
        seen.append((prompt, ids.tolist()))
        return [3, 4]

    assert prefix_function(allowed, HISTORY)(row, IDS[row]) == [3, 4]
    assert seen == [(row, SHOWN[row])]


# Streamers


class Heard:
    """A streamer that keeps what it is given."""

    label = "mine"

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ended = 0

    def put(self, value: Tensor) -> None:
        self.heard.append(value.tolist())

    def end(self) -> None:
        self.ended += 1


def test_a_streamer_gets_the_callers_prompt_and_then_what_comes() -> None:
    streamer = Heard()
    view = CallersStreamer(streamer, HISTORY)
    view.put(IDS[:, :2])
    view.put(torch.tensor([51, 52]))
    view.put(torch.tensor([53, 54]))
    view.end()
    assert streamer.heard == [PROMPT.tolist(), [51, 52], [53, 54]]
    assert streamer.ended == 1
    assert view.label == "mine"
    with pytest.raises(AttributeError, match="missing"):
        _ = view.missing


def test_of_embeddings_alone_a_streamer_gets_what_generate_gives() -> None:
    streamer = Heard()
    view = CallersStreamer(streamer, History(HISTORY.plan, None))
    view.put(torch.empty(2, 0, dtype=torch.long))
    view.put(torch.tensor([51, 52]))
    assert streamer.heard == [[[], []], [51, 52]]
