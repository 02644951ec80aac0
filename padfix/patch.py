"""Putting padfix in the place of `GenerationMixin.generate`, and taking it out again.

Neither torch nor transformers is imported here: the patch waits for transformers, or finds it imported.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from . import settings as settings_module
from .errors import UnsupportedVersionError
from .layers import Layer, PatchPoint
from .nesting import is_part, on_its_own
from .notices import info_once, logger, tell
from .record import Block, record
from .releases import NEWEST_TESTED, OLDEST, SUPPORTED
from .settings import ENVIRONMENT, Settings, effective

__all__ = [
    "PATCH_POINTS",
    "State",
    "activate_from_environment",
    "hooks_in_place",
    "install",
    "installed",
    "is_installed",
    "state",
    "suppressed",
    "uninstall",
]


_MODULE, _OWNER = "transformers.generation.utils", "GenerationMixin"
GENERATE = PatchPoint(_MODULE, _OWNER, "generate")
# Where `generate` builds its lists of processors and criteria; inert but for a call that is being repaired.
HOOKS = (
    PatchPoint(_MODULE, _OWNER, "_get_logits_processor"),
    PatchPoint(_MODULE, _OWNER, "_get_stopping_criteria"),
)
PATCH_POINTS = (GENERATE, *HOOKS)

_record = record


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
        if _record.settings == wanted and _record.layers.are_in_place(PATCH_POINTS):
            logger.info("padfix is installed already: nothing to do.")
            return
        try:
            _apply(utils)
        except BaseException:
            if not _record.layers.are_in_place(PATCH_POINTS):
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
        _record.layers.take_out(PATCH_POINTS if not _record.under_way else (GENERATE,))


@contextmanager
def installed(mode: str) -> Iterator[None]:
    """A block in which padfix is installed in this mode, for every thread; afterwards as before.

    Afterwards means: not installed, or installed with the settings from before (those of the environment where it was
    waiting for transformers), whatever was installed or uninstalled within. Where blocks of several threads overlap,
    the mode is that of the one that was entered last; after the last of them it is as before the first. An explicit
    `PADFIX=off` in the environment wins, as over `install`.

    Raises:
        SettingsError: The mode is not in its list.
        UnsupportedVersionError: As `install`.
    """
    if not settings_module.is_off_in_environment():
        import transformers.generation.utils  # noqa: F401  # before the lock, as in `install`

    with _record.lock:
        block = Block(_record.settings)
        install(mode)
        _record.blocks.append(block)
    try:
        yield
    finally:
        with _record.lock:
            _leave(block)


def _leave(block: Block) -> None:
    at = _record.blocks.index(block)
    del _record.blocks[at]
    if at < len(_record.blocks):  # the next is open still, and ends where this one began
        _record.blocks[at].before = block.before
    elif block.before is None:
        uninstall()
    else:
        install(block.before.mode, strategy=block.before.strategy, decoding=block.before.decoding)


@contextmanager
def hooks_in_place() -> Iterator[None]:
    """A block in which the hooks are in place for one call that is being repaired, installed or not."""
    with _record.lock:
        _put(HOOKS)
        _record.under_way.append(threading.get_ident())
    try:
        yield
    finally:
        with _record.lock:
            _record.under_way.remove(threading.get_ident())
            if not _record.under_way and _record.settings is None:
                _record.layers.take_out(HOOKS)


def is_installed() -> bool:
    """Whether calls of `generate` go through padfix (or will, once transformers is imported)."""
    return _record.settings is not None


class State(NamedTuple):
    """What is installed: its settings (None where nothing is), where it is reached, and whether it could not be."""

    settings: Settings | None
    in_place: tuple[PatchPoint, ...]
    refused: bool


def state() -> State:
    """What is installed at the moment."""
    with _record.lock:
        in_place = tuple(point for point in PATCH_POINTS if _record.layers.are_in_place((point,)))
        return State(_record.settings, in_place, _record.refusal is not None)


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
            wrapt.register_post_import_hook(_when_imported, _MODULE)


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
                _put((GENERATE,))
            else:
                _record.settings = None


def _apply(module: ModuleType) -> None:
    """Puts our methods in place where they are not; nothing is half done."""
    if not _record.layers.are_in_place(PATCH_POINTS):
        _check(module)
        _put(PATCH_POINTS)


def _check(module: ModuleType) -> None:
    """Raises where this transformers cannot be patched."""
    seen = _transformers_version(module)
    numbers = tuple(int(part) for part in seen.split(".")[:2])
    if numbers < OLDEST:
        raise UnsupportedVersionError(f"transformers {seen} is older than padfix supports. Install {SUPPORTED}.")
    if not callable(vars(getattr(module, GENERATE.owner, object)).get(GENERATE.name)):
        raise UnsupportedVersionError(
            f"transformers {seen} has no {'.'.join(GENERATE)}. Install a release that padfix was tested with, up to "
            f"{NEWEST_TESTED[0]}.{NEWEST_TESTED[1]}."
        )
    if numbers > NEWEST_TESTED:
        newest = ".".join(map(str, NEWEST_TESTED))
        info_once(f"transformers {seen} is newer than {newest}, the newest that padfix was tested with.", "newest")


def _put(points: Collection[PatchPoint]) -> None:
    _record.layers.put(points, lambda point: _replacement if point == GENERATE else functools.partial(_hook, point))


def _replacement(layer: Layer) -> Callable[..., Any]:
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


def _standing_in_for(original: Callable[..., Any], layer: Layer) -> Callable[..., Any]:
    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_part(self):
            with on_its_own():
                return original(self, *args, **kwargs)
        base = _record.settings if layer.active else None
        settings = None if base is None else effective(base)
        if settings is None or settings.mode == "off":
            return original(self, *args, **kwargs)
        if _record.refusal is not None and settings.mode == "strict":
            tell(_record.refusal)
            raise _record.refusal
        from .pipeline import run

        return run(original, self, args, kwargs, settings, hooks_in_place)

    return generate


def _hook(point: PatchPoint, layer: Layer) -> Callable[..., Any]:
    """A plain function in the place of the method that builds one of the lists of `generate`."""

    @functools.cache
    def rewrite() -> Callable[..., Any]:
        from .generation import decoding

        return decoding.logits_processors if point == HOOKS[0] else decoding.stopping_criteria

    @functools.wraps(layer.original)
    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not layer.active:
            return layer.original(self, *args, **kwargs)
        return rewrite()(layer.original, self, args, kwargs)

    return build


def _transformers_version(module: ModuleType) -> str:
    package = sys.modules.get(module.__name__.partition(".")[0])
    seen = getattr(package, "__version__", None)
    if isinstance(seen, str):
        return seen
    from importlib.metadata import PackageNotFoundError, version  # takes longer than padfix itself

    try:
        return version("transformers")
    except PackageNotFoundError:
        return "0.0"
