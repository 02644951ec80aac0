"""The checks of the environment: versions, settings, the patch, and who else has patched the same methods."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

from transformers.generation.utils import GenerationMixin

from .. import settings as settings_module
from ..generation.compat import installed
from ..patch import PATCH_POINTS, state
from ..releases import NEWEST_TESTED, OLDEST, SUPPORTED, TESTED
from ..settings import ENVIRONMENT, VARIABLES, Settings, effective
from ..wrapped import wrapped_by
from .subject import Seen, Subject

__all__ = ["others", "patch", "settings", "versions"]

PACKAGES = ("padfix", "torch", "transformers", "tokenizers", "wrapt")
PACKAGES_BESIDE = ("peft", "accelerate")
# Whose layers around a method of transformers are no one else's: ours, and decorators such as torch.no_grad.
OWN_PACKAGES = ("padfix", "torch", "transformers")

# Values of settings that mean less than a repair: what they mean, and what would mean one.
UNUSUAL = {
    "warn": ("it reports padded batches and changes nothing", "fix"),
    "packed_prefill": ("a batch that cannot be packed raises SettingsError", "auto"),
    "stock": ("the library's processors see the pads that the model sees, so that flags are not exact", "pad_aware"),
}


def versions(subject: Subject) -> Iterator[Seen]:
    """Python and the packages that count, and whether this transformers is one that padfix knows."""
    found = {name: _version(name) for name in (*PACKAGES, *PACKAGES_BESIDE)}
    named = [f"{name} {number or 'not found'}" for name, number in found.items() if number or name in PACKAGES]
    yield "ok", f"{', '.join((f'python {python_version()}', *named))}.", ""
    if not OLDEST <= installed() < (6, 0):
        seen = f"transformers {found['transformers']} is outside the range that padfix supports."
        yield "problem", seen, f'Install "{SUPPORTED}".'
    elif installed() > NEWEST_TESTED:
        seen = (
            f"transformers {found['transformers']} is newer than {TESTED[-1]}, the newest that padfix was tested with."
        )
        yield "note", seen, f"If a reply differs from the prompt's alone, try transformers {TESTED[-1]}."


def settings(subject: Subject) -> Iterator[Seen]:
    """The settings in force and where each comes from."""
    base = state().settings or ENVIRONMENT
    now, blank = effective(base), effective(Settings("", "", ""))
    for field, variable in VARIABLES.items():
        value = getattr(now, field)
        if getattr(blank, field):
            source = "padfix.override()"
        elif value != getattr(ENVIRONMENT, field):
            source = "padfix.install()"
        else:
            source = "the environment" if field in settings_module.NAMED_IN_ENVIRONMENT else "the default"
        seen = f"{variable.name} is {value} (from {source})"
        if value in UNUSUAL:
            meaning, better = UNUSUAL[value]
            yield "note", f"{seen}: {meaning}.", f"Set it to {better}."
        else:
            yield "ok", f"{seen}.", ""


def patch(subject: Subject) -> Iterator[Seen]:
    """Whether calls of `GenerationMixin.generate` go through padfix."""
    now = state()
    missing = [point for point in PATCH_POINTS if point not in now.in_place]
    if now.refused:
        seen = "padfix could not be put in place; in strict mode every generate raises UnsupportedVersionError."
        yield "problem", seen, f'Install "{SUPPORTED}", or set PADFIX=off.'
    elif now.settings is None and ENVIRONMENT.mode != "off":
        seen = f"PADFIX={ENVIRONMENT.mode} in the environment, and yet padfix is not installed."
        yield "problem", seen, "Look for padfix.uninstall(), or for an error of the logger padfix at the start."
    elif now.settings is None:
        off = "mode" in settings_module.NAMED_IN_ENVIRONMENT
        first = "Take PADFIX=off out of the environment, which wins. Then call" if off else "Call"
        yield (
            "note",
            "padfix is not installed: generate is the library's.",
            f"{first} padfix.install(), or set PADFIX=fix and import padfix; padfix run does both for a program.",
        )
    elif missing:
        there = ", ".join(f"{one.owner}.{one.name} ({_origin(_method(one.name))})" for one in missing)
        seen = f"padfix is installed, but someone has replaced its methods since: {there}."
        yield (
            "problem",
            f"{seen} Nothing tells whether they call it.",
            "Call padfix.install() once more, after the one that replaces them.",
        )
    else:
        yield "ok", f"padfix is installed, and in place at {len(PATCH_POINTS)} of {len(PATCH_POINTS)} methods.", ""


def others(subject: Subject) -> Iterator[Seen]:
    """Who else has put something around the methods that padfix stands in for, or around the model's own."""
    found = []
    for point in PATCH_POINTS:
        layers = list(wrapped_by(_method(point.name)))
        ours = next((n for n, layer in enumerate(layers) if _origin(layer).startswith("padfix.")), None)
        for number, layer in enumerate(layers):
            if _is_foreign(layer):
                where = "" if ours is None else " above padfix" if number < ours else " beneath padfix"
                found.append(f"{_origin(layer)} around {point.owner}.{point.name}{where}")
    for place, home, method in _own_methods(subject.model):
        layers = list(wrapped_by(getattr(method, "__func__", method)))
        hands_on = any(getattr(layer, "__func__", layer) is _method("generate") for layer in layers)
        foreign = [_origin(layer) for layer in layers if _is_foreign(layer) and _origin(layer).split(":")[0] != home]
        below = "as it is now" if hands_on else "perhaps as it was before"
        found += [f"{one} on {place}, calling GenerationMixin.generate {below}" for one in foreign]
    if found:
        remedy = "Nothing, where they hand on what they get. Else call padfix.install() after them; before what goes "
        yield "note", f"Others wrap what padfix wraps: {'; '.join(found)}.", f"{remedy}on a model or its class."
    else:
        yield "ok", "No one else has wrapped the methods that padfix stands in for.", ""


def _own_methods(model: Any) -> Iterator[tuple[str, str, Any]]:
    """Each `generate` that hides the library's, with the place it is at and the module that it would be from."""
    if "generate" in getattr(model, "__dict__", {}):
        yield f"this {type(model).__name__} itself", "", vars(model)["generate"]
    owner = next((one for one in type(model).__mro__ if "generate" in vars(one)), GenerationMixin)
    if owner is not GenerationMixin:
        yield owner.__name__, owner.__module__, vars(owner)["generate"]


def _method(name: str) -> Any:
    return vars(GenerationMixin).get(name)


def _is_foreign(layer: Any) -> bool:
    return _origin(layer).split(":")[0].split(".")[0] not in OWN_PACKAGES


def _origin(layer: Any) -> str:
    """Where a function was written, as module:name, whatever functools.wraps has made of its name."""
    function = getattr(layer, "_self_wrapper", layer)  # wrapt's
    function = getattr(function, "func", function)  # functools.partial
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{type(layer).__module__}:{type(layer).__qualname__}"
    return f"{function.__globals__.get('__name__')}:{getattr(code, 'co_qualname', code.co_name)}"  # from Python 3.11


def _version(name: str) -> str | None:
    """The version of a package: of the one that runs, else of the one that is installed; None where neither is."""
    seen = getattr(sys.modules.get(name), "__version__", None)
    if isinstance(seen, str):
        return seen
    try:
        return version(name)
    except PackageNotFoundError:
        return None
