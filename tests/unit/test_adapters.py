"""generation.adapters: what PEFT tells each layer of each row, on layers that stand for adapted ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from padfix.generation.adapters import adapters_of_rows, has_offsets, names_adapters


class Layer(nn.Module):
    """Gives what it is told beside its input."""

    def forward(self, x: torch.Tensor, **told: Any) -> dict[str, Any]:
        return told


def tell(target: Any, args: Any, kwargs: dict[str, Any], **told: Any) -> Any:
    return args, {**kwargs, **told}


def layers(**told: Any) -> nn.Sequential:
    """Two layers, the second of which is told something."""
    model = nn.Sequential(Layer(), Layer())
    model[1].register_forward_pre_hook(partial(tell, **told), with_kwargs=True)
    return model


def seen(model: nn.Sequential) -> dict[str, Any]:
    told: dict[str, Any] = model[1](torch.zeros(1))
    return told


@pytest.mark.parametrize(
    ("names", "rows", "wanted"),
    [
        (["a", "b", "c"], (2, 0), ["c", "a"]),
        (("a", "b", "c"), (1,), ["b"]),
        (["a", "a", "b", "b", "c", "c"], (2, 0), ["c", "c", "a", "a"]),  # two beams
    ],
)
def test_names_follow_their_rows_within_the_block(names: Any, rows: tuple[int, ...], wanted: list[str]) -> None:
    model = layers(adapter_names=names, beside=7)
    with adapters_of_rows(model, rows, 3):
        assert seen(model) == {"adapter_names": wanted, "beside": 7}
    assert seen(model)["adapter_names"] is names


def test_names_are_those_of_all_rows_again_after_an_exception() -> None:
    model, names = layers(adapter_names=["a", "b"]), ["a", "b"]
    with pytest.raises(RuntimeError), adapters_of_rows(model, (1,), 2):
        raise RuntimeError
    assert seen(model)["adapter_names"] == names


@pytest.mark.parametrize("told", [{"adapter_names": ["a", "b"]}, {"adapter_names": "abc"}, {"other": ["a", "b", "c"]}])
def test_what_does_not_fit_the_batch_stays(told: dict[str, Any]) -> None:
    model = layers(**told)
    with adapters_of_rows(model, (1,), 3):
        assert seen(model) == told


@pytest.mark.parametrize(
    ("hook", "names"),
    [
        (partial(tell, adapter_names=["a", "b"]), True),
        (partial(tell, adapter_names=["a", "b", "c"]), False),
        (partial(tell, adapter_names=[]), False),
        (partial(tell, adapter_names=None), False),
        (tell, False),
    ],
)
def test_a_hook_names_adapters_where_it_has_one_for_each_row(hook: Any, names: bool) -> None:
    assert names_adapters(hook, 2) is names


@pytest.mark.parametrize(
    ("offsets", "counts"), [([3, None], True), ([0], True), ([None, None], False), ([], False), (None, False)]
)
def test_offsets_count_where_one_is_a_number(offsets: Any, counts: bool) -> None:
    assert has_offsets(layers(alora_offsets=offsets)) is counts
    assert not has_offsets(layers(adapter_names=["a"]))
