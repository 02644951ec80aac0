"""Hooks on the layers: those in which PEFT keeps something for each row of a batch, and those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

__all__ = ["adapters_of_rows", "has_forward_hooks", "has_offsets", "names_adapters"]

# PEFT takes these off the arguments of generate and puts each into partial functions that hand it to every adapted
# layer: one entry a row, or under beams one a beam.
NAMES, OFFSETS = "adapter_names", "alora_offsets"


@contextmanager
def adapters_of_rows(model: Any, rows: Sequence[int], batch: int) -> Iterator[None]:
    """A block in which the layers are told the adapters of some rows of a batch; as they were afterwards."""
    told = [
        (module._forward_pre_hooks, number, hook)
        for module in model.modules()
        for number, hook in module._forward_pre_hooks.items()
        if names_adapters(hook, batch)
    ]
    for hooks, number, hook in told:
        names = hook.keywords[NAMES]
        copies = len(names) // batch
        ours = [names[row * copies + one] for row in rows for one in range(copies)]
        hooks[number] = partial(hook.func, *hook.args, **{**hook.keywords, NAMES: ours})
    try:
        yield
    finally:
        for hooks, number, hook in told:
            hooks[number] = hook


def names_adapters(hook: Any, batch: int) -> bool:
    """Whether a hook tells a layer which adapter each row of a batch has."""
    names = _told(hook, NAMES)
    return isinstance(names, (list, tuple)) and len(names) > 0 and len(names) % batch == 0


def has_offsets(model: Any) -> bool:
    """Whether an aLoRA adapter is told how many columns before the last one of a row it begins."""
    offsets = (_told(hook, OFFSETS) for module in model.modules() for hook in module._forward_pre_hooks.values())
    return any(one is not None for each in offsets for one in each or ())


def _told(hook: Any, name: str) -> Any:
    return hook.keywords.get(name) if isinstance(hook, partial) else None


def has_forward_hooks(model: Any, batch: int) -> bool:
    """Whether someone else watches the model's forwards: hooks of others than transformers and accelerate.

    Those by which PEFT tells a layer the adapter of each row of the batch follow the rows.
    """
    hooks = (
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    )
    ours = ("transformers", "accelerate", "torch")
    return any(_package(hook) not in ours and not names_adapters(hook, batch) for hook in hooks)


def _package(function: Any) -> str:
    function = getattr(function, "func", function)  # functools.partial
    return str(getattr(function, "__module__", "")).partition(".")[0]
