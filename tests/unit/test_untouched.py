"""After the block a model is the very one that it was: attributes, what dicts and lists hold, the random state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from padfix.generation.untouched import untouched


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.state: Any = "before"
        self.seen: list[Any] = [1, 2]
        self.single: list[Any] = [1]
        self.held: dict[str, Any] = {"a": 1, "b": 2}
        self.in_order: OrderedDict[str, Any] = OrderedDict(a=1)
        self.register_buffer("counted", torch.zeros(2))


def kept(model: nn.Module) -> list[Any]:
    """The objects of a model and of its containers, by module."""
    found: list[Any] = []
    for module in model.modules():
        for name, value in vars(module).items():
            entries = value.items() if isinstance(value, dict) else enumerate(value) if type(value) is list else ()
            found += [(name, id(value)), *((name, key, id(one)) for key, one in entries)]
    return found


CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "an attribute is new": lambda model: setattr(model, "other", 3),
    "an attribute is another": lambda model: setattr(model, "state", "after"),
    "an attribute is gone": lambda model: delattr(model, "state"),
    "an attribute of an inner module": lambda model: setattr(model.inner, "state", "after"),
    "a list has grown": lambda model: model.seen.append(3),
    "a list has shrunk": lambda model: model.seen.clear(),
    "a list holds another": lambda model: model.seen.__setitem__(1, 9),
    "a list holds nothing of before": lambda model: model.single.__setitem__(0, 9),
    "a list is another": lambda model: setattr(model, "seen", []),
    "a dict has grown": lambda model: model.held.update(c=3),
    "a dict has shrunk": lambda model: model.held.pop("a"),
    "a dict holds another": lambda model: model.held.update(b=9),
    "a dict holds another name": lambda model: (model.held.pop("a"), model.held.update(c=1)),
    "a dict is another": lambda model: setattr(model, "held", {}),
    "an ordered dict has grown": lambda model: model.in_order.update(b=2),
    "a buffer is another": lambda model: setattr(model, "counted", torch.ones(2)),
    "a buffer is new": lambda model: model.register_buffer("other", torch.ones(2)),
    "a weight is another": lambda model: setattr(model.inner, "weight", nn.Parameter(torch.ones(2, 2))),
    "a hook is new": lambda model: model.register_forward_hook(print),
    "a module is gone": lambda model: delattr(model, "inner"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_is_put_back(what: str) -> None:
    model = Model()
    before = kept(model)
    with untouched(model):
        CHANGES[what](model)
        assert kept(model) != before
    assert sorted(map(str, kept(model))) == sorted(map(str, before))


def test_it_is_put_back_after_an_error_which_passes() -> None:
    model = Model()

    def fails() -> None:
        model.state = "after"
        raise KeyError

    with pytest.raises(KeyError), untouched(model):
        fails()
    assert model.state == "before"


@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu", "meta", None], ids=repr)
def test_random_numbers_go_on_as_if_nothing_had_been_drawn(device: Any) -> None:
    model: Any = Model()
    if device is not None:  # a model that names none is on the CPU
        model = model.to(device)
        model.device = device
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with untouched(model):
        torch.rand(5)
    assert torch.equal(torch.rand(2), expected)
