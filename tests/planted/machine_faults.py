"""Faults of the patch, the settings and the way of a call: each with where it is planted and what is wrong there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

import padfix
from padfix import layers, notices, once, patch, pipeline
from padfix import settings as settings_module
from padfix.layers import Layers
from padfix.settings import Settings

from .faults import Plant, instead

__all__ = ["FAULTS", "MachineFault"]


class MachineFault(NamedTuple):
    """A fault: the object and attribute that it replaces, the replacement, and whether the record alone shows it."""

    owner: Any
    attribute: str
    plant: Plant
    in_the_record_alone: bool = False


def forwarding(around: Callable[..., Any]) -> Plant:
    """`around(original, *args, **kwargs)` in the place of the original."""
    return lambda original: lambda *args, **kwargs: around(original, *args, **kwargs)


def put_back(how: Callable[[Layers, Any, Any], None]) -> Plant:
    """A `take_out` that does `how` to each point's layer."""

    def spoiled(self: Layers, points: Any) -> None:
        names = {point.name for point in points}
        for place in [one for one in self.placed if one.name in names]:
            how(self, place, self.placed.pop(place))

    return instead(spoiled)


# Taking out


def nothing_is_restored(self: Layers, point: Any, layer: Any) -> None:
    layer.active = False
    self.retired.append(layer)


def whoever_stands_there_is_torn_off(self: Layers, point: Any, layer: Any) -> None:
    layer.active = False
    setattr(layer.owner, point.name, layer.original)


def a_copy_is_restored(self: Layers, point: Any, layer: Any) -> None:
    if vars(layer.owner)[point.name] is layer.replacement:
        setattr(layer.owner, point.name, lambda *args, **kwargs: layer.original(*args, **kwargs))
        layer.active = False
    else:
        self._retire(layer)


def what_is_taken_out_stays_awake(original: Any, self: Layers, points: Any) -> None:
    names = {point.name for point in points}
    taken = [layer for place, layer in self.placed.items() if place.name in names]
    original(self, points)
    for layer in taken:
        layer.active = True


def first_point_alone(original: Any, self: Layers, points: Any) -> None:
    original(self, tuple(points)[:1])


def retired_but_awake(self: Layers, layer: Any) -> None:
    self.retired.append(layer)


def retired_without_a_note(self: Layers, layer: Any) -> None:
    layer.active = False


# Putting


def retired_wake_up(original: Any, self: Layers, points: Any, replacements: Any) -> None:
    original(self, points, replacements)
    for layer in self.retired:
        layer.active = True


def dead_layers_count_as_originals(original: Any, self: Layers, points: Any, replacements: Any) -> None:
    layers_of = layers._layers_of
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layers, "_layers_of", lambda method: [one for one in layers_of(method) if one.active])
        original(self, points, replacements)


def top_alone_is_looked_at(method: Any) -> Iterator[Any]:
    yield method


def named_settings_alone(original: Any, *args: Any, **kwargs: Any) -> None:
    patch._record.settings = None
    original(*args, **kwargs)


def environment_does_not_count(original: Any, *args: Any, **kwargs: Any) -> None:
    named, settings_module.NAMED_IN_ENVIRONMENT = settings_module.NAMED_IN_ENVIRONMENT, frozenset()
    try:
        original(*args, **kwargs)
    finally:
        settings_module.NAMED_IN_ENVIRONMENT = named


def out_before_it_is_refused(original: Any, *args: Any, **kwargs: Any) -> None:
    try:
        original(*args, **kwargs)
    except padfix.SettingsError:
        padfix.uninstall()
        raise


# Blocks


@contextmanager
def never_left(mode: str | None = None, **named: str | None) -> Iterator[None]:
    """A block that goes on after its end."""
    given = {"mode": mode, **named}
    known = tuple((field, value) for field, value in given.items() if value is not None)
    Settings().changed(mode=mode, **named)
    settings_module._changes.set(settings_module._changes.get() + known)
    yield


@contextmanager
def left_only_in_peace(mode: str | None = None, **named: str | None) -> Iterator[None]:
    """A block that goes on where it ends by an exception."""
    before = settings_module._changes.get()
    with never_left(mode, **named):
        yield
    settings_module._changes.set(before)


class Everywhere:
    """In the place of a ContextVar: one value for all threads and contexts."""

    def __init__(self, original: ContextVar[Any]) -> None:
        self.value = original.get()

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> Any:
        before, self.value = self.value, value
        return before

    def reset(self, token: Any) -> None:
        self.value = token


def mode_alone(base: Settings) -> Settings:
    mode = dict(settings_module._changes.get()).get("mode")
    return base if mode is None else replace(base, mode=mode)


def outermost_wins(base: Settings) -> Settings:
    return replace(base, **dict(reversed(settings_module._changes.get())))


def threads_are_let_through(original: Any, base: Settings) -> Settings:
    settings: Settings = original(base)
    return settings if threading.current_thread() is threading.main_thread() else replace(settings, mode="off")


# Calls

_inside: ContextVar[bool] = ContextVar("inside", default=False)


def calls_within_are_skipped(original: Any, run: Any, model: Any, args: Any, kwargs: Any, *rest: Any) -> Any:
    if _inside.get():
        return run(model, *args, **kwargs)
    token = _inside.set(True)
    try:
        return original(run, model, args, kwargs, *rest)
    finally:
        _inside.reset(token)


def original_runs_twice(original: Any, run: Any, model: Any, args: Any, kwargs: Any, *rest: Any) -> Any:
    result = original(run, model, args, kwargs, *rest)
    if not kwargs.get("stopping_criteria"):
        with padfix.suppressed():
            run(model, *args, **kwargs)
    return result


def warn_repairs(original: Any, call: Any, found: Any, settings: Settings) -> Any:
    return original(call, found, replace(settings, mode="fix") if settings.mode == "warn" else settings)


def every_call_is_left(original: Any, call: Any, found: Any, settings: Settings) -> Any:
    original(call, found, settings)


# A callback's calls are taken for the call's own: the lists of both are rewritten.
def announced_for_good(original: Any, build: Any, model: Any, args: Any, kwargs: Any) -> Any:
    from padfix.generation import decoding

    announced = decoding._announced.get()
    result = original(build, model, args, kwargs)
    decoding._announced.set(announced)
    return result


def _decoding() -> Any:
    from padfix.generation import decoding

    return decoding


FAULTS: Mapping[str, MachineFault] = {
    "uninstall restores nothing": MachineFault(Layers, "take_out", put_back(nothing_is_restored)),
    "uninstall tears off whoever stands over ours": MachineFault(
        Layers, "take_out", put_back(whoever_stands_there_is_torn_off)
    ),
    "uninstall restores another object": MachineFault(Layers, "take_out", put_back(a_copy_is_restored)),
    "uninstall leaves the hooks": MachineFault(Layers, "take_out", forwarding(first_point_alone)),
    "a layer that was taken out works again": MachineFault(
        Layers, "take_out", forwarding(what_is_taken_out_stays_awake)
    ),
    "a layer that was left behind stays awake": MachineFault(Layers, "_retire", instead(retired_but_awake)),
    "a layer that was left behind is forgotten": MachineFault(
        Layers, "_retire", instead(retired_without_a_note), in_the_record_alone=True
    ),
    "a layer that was left behind wakes up": MachineFault(Layers, "put", forwarding(retired_wake_up)),
    "a layer that was left behind counts as an original": MachineFault(
        Layers, "put", forwarding(dead_layers_count_as_originals)
    ),
    "a second install wraps ours again": MachineFault(Layers, "_is_reached", instead(lambda *_: False)),
    "ours is not found beneath a wrapper": MachineFault(layers, "wrapped_by", instead(top_alone_is_looked_at)),
    "a second install forgets what it does not name": MachineFault(padfix, "install", forwarding(named_settings_alone)),
    "PADFIX=off does not count": MachineFault(padfix, "install", forwarding(environment_does_not_count)),
    "a refused install takes padfix out": MachineFault(padfix, "install", forwarding(out_before_it_is_refused)),
    "padfix is installed while a layer is left": MachineFault(
        padfix, "is_installed", instead(lambda: bool(patch._record.settings or patch._record.layers.retired))
    ),
    "an override goes on after its block": MachineFault(padfix, "override", instead(never_left)),
    "suppressed goes on after its block": MachineFault(settings_module, "override", instead(never_left)),
    "a block goes on where it ends by an exception": MachineFault(padfix, "override", instead(left_only_in_peace)),
    "suppressed does nothing": MachineFault(padfix, "suppressed", instead(nullcontext)),
    "an override holds in every thread": MachineFault(settings_module, "_changes", Everywhere),
    "an override changes the mode alone": MachineFault(patch, "effective", instead(mode_alone)),
    "the outermost override wins": MachineFault(patch, "effective", instead(outermost_wins)),
    "padfix.generate does not see overrides": MachineFault(once, "effective", instead(lambda base: base)),
    "padfix.generate's call is treated once more": MachineFault(once, "seen_to", instead(nullcontext)),
    "other threads are let through": MachineFault(patch, "effective", forwarding(threads_are_let_through)),
    "a call within a call is let through": MachineFault(pipeline, "run", forwarding(calls_within_are_skipped)),
    "a call within a call is rewritten like it": MachineFault(
        _decoding(), "stopping_criteria", forwarding(announced_for_good)
    ),
    "the original runs twice": MachineFault(pipeline, "run", forwarding(original_runs_twice)),
    "fix leaves every call as it is": MachineFault(pipeline, "decide", forwarding(every_call_is_left)),
    "warn repairs": MachineFault(pipeline, "decide", forwarding(warn_repairs)),
    "warn says it at every call": MachineFault(
        notices, "warn_once", forwarding(lambda original, message, *key: notices.warn(message))
    ),
    "warn says nothing": MachineFault(notices, "warn_once", instead(lambda *_: None)),
    "strict lets misplaced pads pass": MachineFault(pipeline, "raise_if_misplaced", instead(lambda *_: None)),
    "a call is not counted": MachineFault(notices, "tally", instead(lambda what: None)),
    "a block is entered twice": MachineFault(
        settings_module,
        "_changes",
        lambda original: Twice(original),
        in_the_record_alone=True,
    ),
}


class Twice:
    """A ContextVar that keeps each value twice; nothing that a caller can see."""

    def __init__(self, original: ContextVar[Any]) -> None:
        self.original = original

    def get(self) -> Any:
        return self.original.get() * 2

    def set(self, value: Any) -> Any:
        return self.original.set(value)

    def reset(self, token: Any) -> None:
        self.original.reset(token)
