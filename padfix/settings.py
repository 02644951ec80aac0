"""The settings: one frozen value, one table of environment variables, and `override` for a block of code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from .errors import SettingsError

__all__ = [
    "ENVIRONMENT",
    "VARIABLES",
    "Settings",
    "Variable",
    "effective",
    "is_off_in_environment",
    "override",
    "read_environment",
]


@dataclass(frozen=True)
class Settings:
    """How calls are treated.

    Attributes:
        mode: `off` (inert), `fix` (repair), `warn` (report each call site once, change nothing) or `strict` (raise).
        strategy: `auto`, or one strategy for every padded batch: `left_pad`, or `equal_length` (rows of one length
            share a call, without pads), or `packed_prefill` (prompts share rows in the prefill).
        decoding: `pad_aware` (the library's processors see no pads) or `stock` (they see those that the model sees).
    """

    mode: str = "off"
    strategy: str = "auto"
    decoding: str = "pad_aware"

    def changed(self, *, mode: str | None = None, strategy: str | None = None, decoding: str | None = None) -> Settings:
        """These settings with the given fields replaced; None keeps a field.

        Raises:
            SettingsError: A value is not in its field's list.
        """
        given = {"mode": mode, "strategy": strategy, "decoding": decoding}
        return replace(
            self,
            **{
                field: VARIABLES[field].parse(value, f"{field}=") for field, value in given.items() if value is not None
            },
        )


@dataclass(frozen=True)
class Variable:
    """One environment variable: its name, its values, and the words that stand for one of them."""

    name: str
    values: tuple[str, ...]
    words: Mapping[str, str]

    def parse(self, value: object, shown_as: str) -> str:
        """The listed value that `value` stands for, whatever its case.

        Raises:
            SettingsError: `value` is not listed.
        """
        word = value.strip().lower() if isinstance(value, str) else None
        word = self.words.get(word, word) if word is not None else None
        if word not in self.values:
            listed = ", ".join(self.values)
            raise SettingsError(f"{shown_as}{value!r} is not a value that padfix knows. Use one of: {listed}.")
        return word


NO_WORDS = dict.fromkeys(("", "0", "false", "f", "no", "n"), "off")
YES_WORDS = dict.fromkeys(("1", "true", "t", "yes", "y", "on"), "fix")

VARIABLES: Mapping[str, Variable] = {
    "mode": Variable("PADFIX", ("off", "fix", "warn", "strict"), {**NO_WORDS, **YES_WORDS}),
    "strategy": Variable("PADFIX_STRATEGY", ("auto", "left_pad", "equal_length", "packed_prefill"), {"": "auto"}),
    "decoding": Variable("PADFIX_DECODING", ("pad_aware", "stock"), {"": "pad_aware"}),
}


def read_environment(environ: Mapping[str, str]) -> tuple[Settings, frozenset[str]]:
    """The settings that `environ` asks for, and the fields that it names (an empty value names nothing).

    Raises:
        SettingsError: A variable has a value that is not listed.
    """
    given = {
        field: variable.parse(environ[variable.name], f"{variable.name}=")
        for field, variable in VARIABLES.items()
        if environ.get(variable.name, "").strip()
    }
    return Settings(**given), frozenset(given)


# Read once, when padfix is imported.
ENVIRONMENT, NAMED_IN_ENVIRONMENT = read_environment(os.environ)


def is_off_in_environment() -> bool:
    """Whether an explicit `PADFIX=off` in the environment keeps padfix out, whatever else is asked for."""
    return "mode" in NAMED_IN_ENVIRONMENT and ENVIRONMENT.mode == "off"


_changes: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("padfix_override", default=())


def effective(base: Settings) -> Settings:
    """`base` with the changes of the `override` blocks that the calling thread or task stands in."""
    changes = _changes.get()
    return replace(base, **dict(changes)) if changes else base


@contextmanager
def override(mode: str | None = None, *, strategy: str | None = None, decoding: str | None = None) -> Iterator[None]:
    """A block in which the given settings hold, for this thread or task alone; None leaves a setting as it is.

    It changes how an installed padfix (or `padfix.generate`) treats calls; it installs nothing.

    Blocks nest, and the innermost wins. A thread that is started inside the block does not inherit it.

    Raises:
        SettingsError: A value is not in its list.
    """
    asked = Settings().changed(mode=mode, strategy=strategy, decoding=decoding)
    given = {"mode": mode, "strategy": strategy, "decoding": decoding}
    named = tuple((field, getattr(asked, field)) for field, value in given.items() if value is not None)
    token = _changes.set(_changes.get() + named)
    try:
        yield
    finally:
        _changes.reset(token)
