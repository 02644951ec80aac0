"""Putting padfix in the place of `GenerationMixin.generate`, and taking it out again. The only user of wrapt.

Neither torch nor transformers is imported here: the patch waits for transformers, or finds it imported.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
class _Record:
    """What is in place: the settings while installed (None when not), and for each point what we put there.

    `refusal` is the reason why this transformers could not be patched; strict mode raises it at the first call.
    """

    settings: Settings | None = None
    waiting: bool = False
    refusal: UnsupportedVersionError | None = None

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.applied: dict[PatchPoint, tuple[Any, Any, Any]] = {}  # owner, original, replacement


_record = _Record()


def install(mode: str | None = None, *, strategy: str | None = None, decoding: str | None = None) -> None:
    """Patches transformers now, importing it where it is not yet imported.

    Without a mode, the environment's counts, else `fix`; but an explicit `PADFIX=off` in the environment wins and is
    logged. A second install changes the settings where they differ and nothing else.

    Raises:
        SettingsError: A value is not in its list.
        UnsupportedVersionError: transformers is older than 4.46, or has no `GenerationMixin.generate`.
    """
    asked = (mode or ENVIRONMENT.mode) if ENVIRONMENT.mode != "off" else mode or "fix"
    wanted = ENVIRONMENT.changed(mode=asked, strategy=strategy, decoding=decoding)
    if "mode" in settings_module.NAMED_IN_ENVIRONMENT and ENVIRONMENT.mode == "off":
        logger.warning("padfix.install() does nothing: PADFIX=off in the environment wins.")
        return
    with _record.lock:
        if _record.settings == wanted and _is_applied():
            logger.info("padfix is installed already: nothing to do.")
            return
        before, _record.settings = _record.settings, wanted
        try:
            import transformers.generation.utils as utils

            _apply(utils)
        except BaseException:
            _record.settings = before if _is_applied() else None
            raise


def uninstall() -> None:
    """Puts the original back, the very object that it was.

    Where another library has wrapped our method since, ours stays beneath it, switched off: it hands every call
    through. Does nothing where padfix is not installed.
    """
    with _record.lock:
        _record.settings = None
        _record.refusal = None
        for point, (owner, original, replacement) in _record.applied.items():
            if vars(owner).get(point.name) is replacement:
                setattr(owner, point.name, original)
            else:
                logger.info("%s.%s was wrapped by someone else: padfix is switched off in place.", *point[1:])
        _record.applied.clear()


def is_installed() -> bool:
    """Whether calls of `generate` go through padfix (or will, once transformers is imported)."""
    return _record.settings is not None


def suppressed() -> AbstractContextManager[None]:
    """A block in which this thread or task gets transformers' own `generate`, as if padfix were not installed."""
    return settings_module.override(mode="off")


def activate_from_environment() -> None:
    """Follows `PADFIX`: nothing for `off`, else patches transformers as soon as it is imported.

    Never breaks `import transformers`: what goes wrong is logged, and in strict mode raised by the first `generate`.
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
            logger.error("padfix stays out: %s", error, exc_info=not isinstance(error, UnsupportedVersionError))
            if _record.settings.mode == "strict" and isinstance(error, UnsupportedVersionError):
                _record.refusal = error
                _put(module, check=False)
            else:
                _record.settings = None


def _apply(module: ModuleType) -> None:
    """Puts our methods in place; nothing is half done."""
    if not _is_applied():
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


def _put(module: ModuleType, *, check: bool = True) -> None:
    import wrapt

    for point in PATCH_POINTS:
        owner = getattr(module, point.owner, None)
        original = vars(owner).get(point.name) if owner is not None else None
        if original is None:
            assert not check, "checked before"
            continue
        replacement = _replacement(original)
        wrapt.apply_patch(owner, point.name, replacement)
        _record.applied[point] = (owner, original, replacement)


def _is_applied() -> bool:
    return bool(_record.applied) and all(
        vars(owner).get(point.name) is replacement for point, (owner, _, replacement) in _record.applied.items()
    )


def _replacement(original: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function in the place of `original`: its name, signature and docs, pickled by its name, bound as usual.

    `__wrapped__` is what `model.generate.__wrapped__` is in transformers, the method beneath the outermost decorator
    (the known way to generate with gradients), repaired as well.
    """
    generate: Callable[..., Any] = _standing_in_for(original)
    beneath = getattr(original, "__wrapped__", None)
    if beneath is not None:
        inner = _standing_in_for(beneath)
        inner.__dict__["__wrapped__"] = original
        generate.__dict__["__wrapped__"] = inner
    return generate


def _standing_in_for(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        base = _record.settings
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
