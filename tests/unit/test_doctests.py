"""The examples in padfix's docstrings, run as they stand."""

import doctest
import importlib
import pkgutil

import pytest

import padfix

MODULES = [
    module.name
    for module in pkgutil.walk_packages(padfix.__path__, "padfix.")
    if not module.name.endswith(("__main__", "train"))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_some_examples_are_found() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [example for name in MODULES for example in finder.find(importlib.import_module(name)) if example.examples]
    assert len(found) >= 3
