"""Methods of ours in the place of others', each a layer that can be taken out again. The only user of wrapt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .notices import logger
from .wrapped import wrapped_by

__all__ = ["Layer", "Layers", "PatchPoint"]


class PatchPoint(NamedTuple):
    """A method that padfix stands in for."""

    module: str
    owner: str
    name: str


@dataclass(eq=False)
class Layer:
    """One method of ours in the place of another.

    A layer that was taken out never works again: where someone has wrapped it, it hands every call through.
    """

    owner: Any
    original: Any
    replacement: Any = None
    active: bool = True


# Gives the method to put in the place of `layer.original`.
Replace = Callable[[Layer], Callable[..., Any]]


@dataclass
class Layers:
    """The layers that are in place, by point, and those that were taken out beneath someone's wrapper."""

    placed: dict[PatchPoint, Layer] = field(default_factory=dict)
    retired: list[Layer] = field(default_factory=list)

    def put(self, points: Collection[PatchPoint], replacements: Callable[[PatchPoint], Replace]) -> None:
        """Puts a layer at each point where none is reached; a point that its module lacks is left out."""
        import wrapt

        for point in points:
            owner = _owner(point)
            original = None if owner is None else vars(owner).get(point.name)
            if original is None or self._is_reached(point):
                continue
            # A layer of ours that was switched off beneath a wrapper, since removed, is no original.
            original = next((one.original for one in self.retired if one.replacement is original), original)
            if point in self.placed:  # out of reach: whoever may still hold it must not work twice
                self._retire(self.placed.pop(point))
            layer = Layer(owner, original)
            layer.replacement = replacements(point)(layer)
            wrapt.apply_patch(owner, point.name, layer.replacement)
            self.placed[point] = layer

    def take_out(self, points: Collection[PatchPoint]) -> None:
        """Puts the originals back; a layer beneath someone's wrapper stays there, switched off for good."""
        for point in points:
            layer = self.placed.pop(point, None)
            if layer is None:
                continue
            if vars(layer.owner).get(point.name) is layer.replacement:
                setattr(layer.owner, point.name, layer.original)
                layer.active = False
            else:
                self._retire(layer)
                logger.info("%s.%s was wrapped by someone else: padfix is switched off in place.", *point[1:])

    def are_in_place(self, points: Collection[PatchPoint]) -> bool:
        """Whether ours are there, or beneath wrappers that say what they wrap, at each point that there is."""
        there = [point for point in points if hasattr(_owner(point), point.name)]
        return bool(there) and all(self._is_reached(point) for point in there)

    def _is_reached(self, point: PatchPoint) -> bool:
        layer = self.placed.get(point)
        return layer is not None and any(
            one is layer.replacement for one in wrapped_by(vars(layer.owner).get(point.name))
        )

    def _retire(self, layer: Layer) -> None:
        layer.active = False
        self.retired.append(layer)


def _owner(point: PatchPoint) -> Any:
    return getattr(sys.modules.get(point.module), point.owner, None)
