"""How many columns a cache holds, and where its tensors lie: every kind, and what has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from padfix.generation.columns import columns_of, slots

KEYS = torch.arange(2 * 3 * 5 * 4).reshape(2, 3, 5, 4).float()


def filled() -> Any:
    cache = DynamicCache()
    for layer in range(2):
        cache.update(KEYS + layer, -KEYS - layer, layer)
    return cache


@pytest.mark.parametrize(
    ("cache", "columns"),
    [
        (filled(), 5),
        (DynamicCache(), 0),
        (((KEYS, -KEYS), (KEYS, -KEYS)), 5),
        ((), 0),
        (((),), 0),
        ((KEYS, KEYS), 0),  # no pairs
        ((((KEYS, KEYS), (KEYS, KEYS)),), 0),  # pairs of pairs
        (((KEYS[0], KEYS[0]),), 0),  # three axes
        (((None, None),), 0),
        (object(), 0),
        (SimpleNamespace(get_seq_length=lambda: torch.tensor(7)), 7),
        (SimpleNamespace(get_seq_length=lambda: None), 0),
        (SimpleNamespace(get_seq_length=lambda: [][0]), 0),
        (SimpleNamespace(get_seq_length=lambda: int("none")), 0),
        (SimpleNamespace(get_seq_length=lambda: torch.zeros(2).view(3)), 0),
    ],
)
def test_columns_of_a_cache(cache: Any, columns: int) -> None:
    assert columns_of(cache) == columns
    assert type(columns_of(cache)) is int


def test_other_faults_of_a_cache_are_its_own() -> None:
    with pytest.raises(KeyError):
        columns_of(SimpleNamespace(get_seq_length=lambda: dict[str, int]()["columns"]))


def test_tensors_lie_by_layer_the_keys_first() -> None:
    found = [container[key] for container, key in slots(filled())]
    expected = [KEYS, -KEYS, KEYS + 1, -KEYS - 1]
    assert len(found) == 4
    assert all(map(torch.equal, found, expected))


def test_what_is_put_there_is_in_the_cache() -> None:
    cache = filled()
    for container, key in slots(cache):
        container[key] = container[key][:, :, :2]
    assert columns_of(cache) == 2


def test_lists_of_old_releases() -> None:
    cache = SimpleNamespace(key_cache=[1, 2], value_cache=[3, 4])
    assert [container[key] for container, key in slots(cache)] == [1, 3, 2, 4]
    assert list(slots(SimpleNamespace())) == []
    assert list(slots(object())) == []


def test_layers_that_hold_nothing_are_left_out() -> None:
    layers = [
        SimpleNamespace(keys=1, values=2, is_initialized=False),
        SimpleNamespace(keys=None, values=None),
        SimpleNamespace(states=1),
        SimpleNamespace(keys=3, values=4),
        SimpleNamespace(keys=5, values=6, is_initialized=True),
    ]
    assert [container[key] for container, key in slots(SimpleNamespace(layers=layers))] == [3, 4, 5, 6]
