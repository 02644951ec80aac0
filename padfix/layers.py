"""Methods of ours in the place of others', each a layer that can be taken out again. The only user of wrapt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .notices import logger
from .wrapped import wrapped_by

__all__ = ["Layer", "Layers", "PatchPoint", "Place"]


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


class Place(NamedTuple):
    """A method of one class. The class of a point is another once its module was reloaded."""

    owner: Any
    name: str


# What a replacement is known by, also in a padfix that is imported anew beside an older one.
_LAYER = "__padfix_layer__"
# Gives the method to put in the place of `layer.original`.
Replace = Callable[[Layer], Callable[..., Any]]


@dataclass
class Layers:
    """The layers that are in place, and those that were taken out beneath someone's wrapper."""

    placed: dict[Place, Layer] = field(default_factory=dict)
    retired: list[Layer] = field(default_factory=list)

    def put(self, points: Collection[PatchPoint], replacements: Callable[[PatchPoint], Replace]) -> None:
        """Puts a layer at each point where none is reached; a point that its module lacks is left out."""
        import wrapt

        for point, place in _places(points):
            original = vars(place.owner).get(place.name)
            if original is None or self._is_reached(place):
                continue
            for other in tuple(_layers_of(original)):  # retired, or of a padfix that was imported before this one
                other.active = False
                original = other.original if other.replacement is original else original
            if place in self.placed:  # out of reach: whoever may still hold it must not work twice
                self._retire(self.placed.pop(place))
            layer = Layer(place.owner, original)
            layer.replacement = replacements(point)(layer)
            layer.replacement.__dict__[_LAYER] = layer
            wrapt.apply_patch(place.owner, place.name, layer.replacement)
            self.placed[place] = layer

    def take_out(self, points: Collection[PatchPoint]) -> None:
        """Puts the originals back; a layer beneath someone's wrapper stays there, switched off for good."""
        names = {point.name for point in points}
        for place in [one for one in self.placed if one.name in names]:
            layer = self.placed.pop(place)
            if vars(layer.owner).get(place.name) is layer.replacement:
                setattr(layer.owner, place.name, layer.original)
                layer.active = False
            else:
                self._retire(layer)
                owner = layer.owner.__name__
                logger.info("%s.%s was wrapped by someone else: padfix is switched off in place.", owner, place.name)

    def are_in_place(self, points: Collection[PatchPoint]) -> bool:
        """Whether ours are there, or beneath wrappers that say what they wrap, at each point that there is."""
        there = [place for _, place in _places(points) if hasattr(*place)]
        return bool(there) and all(self._is_reached(place) for place in there)

    def _is_reached(self, place: Place) -> bool:
        layer = self.placed.get(place)
        return layer is not None and any(
            one is layer.replacement for one in wrapped_by(vars(layer.owner).get(place.name))
        )

    def _retire(self, layer: Layer) -> None:
        layer.active = False
        self.retired.append(layer)


def _places(points: Collection[PatchPoint]) -> Iterator[tuple[PatchPoint, Place]]:
    """Each point with its class: that of its module, and that of the package, where the module was reloaded.

    The models that were there before the reload have the latter.
    """
    for point in points:
        package = sys.modules.get(point.module.rpartition(".")[0])
        owner = getattr(sys.modules.get(point.module), point.owner, None)
        older = getattr(package, "__dict__", {}).get(point.owner)
        if owner is not None:
            yield point, Place(owner, point.name)
        if owner is not None and older is not None and older is not owner:
            yield point, Place(older, point.name)


def _layers_of(method: Any) -> Iterator[Layer]:
    """The layers of which a method, or one beneath it, is the replacement."""
    for one in wrapped_by(method):
        layer = getattr(one, "__dict__", {}).get(_LAYER)
        if layer is not None and layer.replacement is one:  # a wrapper may have copied it
            yield layer
