"""A block after which a model is as it was: what forwards leave behind on modules is put back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["untouched"]

# What modules keep hooks in, and below torch 2.5 their buffers, is the second.
CONTAINERS = (dict, OrderedDict, list)


@contextmanager
def untouched(model: Any) -> Iterator[None]:
    """A block after which the attributes of the model's modules and the random state are what they were before.

    Attributes and buffers are put back as the objects that they were, and so are the entries of dicts and lists; a
    tensor that is changed in place is not undone.
    """
    before = [(module, _entries(module)) for module in model.modules()]
    device = torch.device(getattr(model, "device", "cpu"))
    on_cpu = device.type in ("cpu", "meta")
    try:
        with torch.random.fork_rng([] if on_cpu else [device], device_type="cuda" if on_cpu else device.type):
            yield
    finally:
        for module, entries in before:
            _put_back(vars(module), entries[None])
            for name, held in entries.items():
                if name is not None and not _same(vars(module)[name], held):
                    _put_back(vars(module)[name], held)


def _entries(module: torch.nn.Module) -> dict[str | None, Any]:
    """The attributes of a module (under None), and the entries of those that are dicts or lists, as copies."""
    attributes = vars(module)
    containers = {name: value for name, value in attributes.items() if type(value) in CONTAINERS}
    return {None: dict(attributes), **{name: value.copy() for name, value in containers.items()}}


def _same(now: Any, before: Any) -> bool:
    """Whether a dict or list holds the very objects that it held."""
    if len(now) != len(before):
        return False
    if isinstance(now, Mapping):
        return all(name in now and now[name] is value for name, value in before.items())
    return all(one is other for one, other in zip(now, before, strict=True))


def _put_back(now: Any, before: Any) -> None:
    if isinstance(now, list):
        now[:] = before
        return
    for name in [name for name in now if name not in before]:
        del now[name]
    now.update(before)
