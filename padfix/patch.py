"""Putting padfix in the place of `GenerationMixin.generate`, and taking it out again. The only user of wrapt.

Neither torch nor transformers is imported here: the patch waits for transformers, or finds it imported.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, NamedTuple

from . import settings as settings_module
from .errors import UnsupportedVersionError
from .notices import info_once, logger
from .settings import ENVIRONMENT, Settings, effective

__all__ = [
    "PATCH_POINTS",
    "PatchPoint",
    "activate_from_environment",
    "install",
    "is_installed",
    "suppressed",
    "uninstall",
]


class PatchPoint(NamedTuple):
    """A method that padfix stands in for."""

    module: str
    owner: str
    name: str


PATCH_POINTS = (PatchPoint("transformers.generation.utils", "GenerationMixin", "generate"),)

OLDEST = (4, 46)
NEWEST_TESTED = (5, 24)


@dataclass
class _Layer:
    """One method of ours in the place of another.

    A layer that was taken out never works again: where someone has wrapped it, it hands every call through.
    """

    owner: Any
    original: Any
    replacement: Any = None
    active: bool = True


@dataclass
class _Record:
    """What is in place: the settings while installed (None when not), and the layer at each point.

    `retired` are the layers that uninstall found beneath someone's wrapper.
    `refusal` is why this transformers could not be patched; in strict mode the layer raises it at every call.
    """

    settings: Settings | None = None
    waiting: bool = False
    refusal: UnsupportedVersionError | None = None
    layers: dict[PatchPoint, _Layer] = field(default_factory=dict)
    retired: list[_Layer] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


_record = _Record()


def install(mode: str | None = None, *, strategy: str | None = None, decoding: str | None = None) -> None:
    """Patches transformers now, importing it where it is not yet imported.

    Without a mode, the environment's counts, else `fix`; but an explicit `PADFIX=off` in the environment wins and is
    logged. A second install changes the settings that it names and nothing else.

    Raises:
        SettingsError: A value is not in its list.
        UnsupportedVersionError: transformers is older than 4.46, or has no `GenerationMixin.generate`.
    """
    before = _record.settings or ENVIRONMENT.changed(mode="fix" if ENVIRONMENT.mode == "off" else None)
    wanted = before.changed(mode=mode, strategy=strategy, decoding=decoding)
    if "mode" in settings_module.NAMED_IN_ENVIRONMENT and ENVIRONMENT.mode == "off":
        logger.warning("padfix.install() does nothing: PADFIX=off in the environment wins.")
        return
    import transformers.generation.utils as utils  # before the lock: another thread may be importing it, with our hook

    with _record.lock:
        if _record.refusal is not None:
            uninstall()
        if _record.settings == wanted and _are_in_place():
            logger.info("padfix is installed already: nothing to do.")
            return
        try:
            _apply(utils)
        except BaseException:
            if not _are_in_place():
                _record.settings = None
            raise
        _record.settings = wanted


def uninstall() -> None:
    """Puts the original back, the very object that it was.

    Where another library has wrapped our method since, ours stays beneath it, switched off for good: it hands every
    call through. Does nothing where padfix is not installed.
    """
    with _record.lock:
        _record.settings = None
        _record.refusal = None
        for point, layer in _record.layers.items():
            if vars(layer.owner).get(point.name) is layer.replacement:
                setattr(layer.owner, point.name, layer.original)
                layer.active = False
            else:
                _retire(layer)
                logger.info("%s.%s was wrapped by someone else: padfix is switched off in place.", *point[1:])
        _record.layers.clear()


def is_installed() -> bool:
    """Whether calls of `generate` go through padfix (or will, once transformers is imported)."""
    return _record.settings is not None


def suppressed() -> AbstractContextManager[None]:
    """A block in which this thread or task gets transformers' own `generate`, as if padfix were not installed."""
    return settings_module.override(mode="off")


def activate_from_environment() -> None:
    """Follows `PADFIX`: nothing for `off`, else patches transformers as soon as it is imported.

    Never breaks `import transformers`: what goes wrong is logged, and in strict mode raised by every `generate`.
    """
    if ENVIRONMENT.mode == "off":
        return
    import wrapt

    with _record.lock:
        _record.settings = ENVIRONMENT
        if not _record.waiting:
            _record.waiting = True
            wrapt.register_post_import_hook(_when_imported, PATCH_POINTS[0].module)


def _when_imported(module: ModuleType) -> None:
    with _record.lock:
        _record.waiting = False
        if _record.settings is None:  # uninstalled before transformers came
            return
        try:
            _apply(module)
        except Exception as error:
            expected = isinstance(error, UnsupportedVersionError)
            logger.error("padfix stays out: %s", error, exc_info=not expected)
            if _record.settings.mode == "strict":
                why = f"padfix could not be put in place: {error!r}. Set PADFIX=off to run without it."
                _record.refusal = error if isinstance(error, UnsupportedVersionError) else UnsupportedVersionError(why)
                _put(module)
            else:
                _record.settings = None


def _apply(module: ModuleType) -> None:
    """Puts our methods in place where they are not; nothing is half done."""
    if not _are_in_place():
        _check(module)
        _put(module)


def _check(module: ModuleType) -> None:
    """Raises where this transformers cannot be patched."""
    seen = _transformers_version(module)
    numbers = tuple(int(part) for part in seen.split(".")[:2])
    if numbers < OLDEST:
        raise UnsupportedVersionError(
            f"transformers {seen} is older than padfix supports. Install transformers>={OLDEST[0]}.{OLDEST[1]},<6."
        )
    for point in PATCH_POINTS:
        if not callable(vars(getattr(module, point.owner, object)).get(point.name)):
            raise UnsupportedVersionError(
                f"transformers {seen} has no {point.module}.{point.owner}.{point.name}. Install a release that padfix "
                f"was tested with, up to {NEWEST_TESTED[0]}.{NEWEST_TESTED[1]}."
            )
    if numbers > NEWEST_TESTED:
        newest = ".".join(map(str, NEWEST_TESTED))
        info_once(f"transformers {seen} is newer than {newest}, the newest that padfix was tested with.", "newest")


def _put(module: ModuleType) -> None:
    import wrapt

    for point in PATCH_POINTS:
        owner = getattr(module, point.owner, None)
        original = None if owner is None else vars(owner).get(point.name)
        if original is None:
            continue  # refused before, and nothing to raise from
        # A layer of ours that was switched off beneath a wrapper, since removed, is no original.
        retired = (one.original for one in _record.retired if one.replacement is original)
        original = next(retired, original)
        if point in _record.layers:  # out of reach: whoever may still hold it must not repair twice
            _retire(_record.layers.pop(point))
        layer = _Layer(owner, original)
        layer.replacement = _replacement(layer)
        wrapt.apply_patch(owner, point.name, layer.replacement)
        _record.layers[point] = layer


def _retire(layer: _Layer) -> None:
    layer.active = False
    _record.retired.append(layer)


def _are_in_place() -> bool:
    """Whether our methods are there, or beneath wrappers that say what they wrap."""
    return bool(_record.layers) and all(
        any(one is layer.replacement for one in _wrapped_by(vars(layer.owner).get(point.name)))
        for point, layer in _record.layers.items()
    )


def _wrapped_by(method: Any) -> Iterator[Any]:
    """A method, what it wraps, what that wraps, and so on."""
    seen: set[int] = set()
    while method is not None and id(method) not in seen:
        seen.add(id(method))
        yield method
        method = getattr(method, "__wrapped__", None)


def _replacement(layer: _Layer) -> Callable[..., Any]:
    """A plain function in the place of the original: its name, signature and docs, pickled by name, bound as usual.

    `__wrapped__` is what `model.generate.__wrapped__` is in transformers, the method beneath the outermost decorator
    (the known way to generate with gradients), repaired as well.
    """
    generate = _standing_in_for(layer.original, layer)
    beneath = getattr(layer.original, "__wrapped__", None)
    if beneath is not None:
        inner = _standing_in_for(beneath, layer)
        inner.__dict__["__wrapped__"] = layer.original
        generate.__dict__["__wrapped__"] = inner
    return generate


def _standing_in_for(original: Callable[..., Any], layer: _Layer) -> Callable[..., Any]:
    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        base = _record.settings if layer.active else None
        settings = None if base is None else effective(base)
        if settings is None or settings.mode == "off":
            return original(self, *args, **kwargs)
        if _record.refusal is not None and settings.mode == "strict":
            raise _record.refusal
        from .pipeline import run

        return run(original, self, args, kwargs, settings)

    return generate


def _transformers_version(module: ModuleType) -> str:
    package = sys.modules.get(module.__name__.partition(".")[0])
    seen = getattr(package, "__version__", None)
    if isinstance(seen, str):
        return seen
    try:
        return version("transformers")
    except PackageNotFoundError:
        return "0.0"
