"""Settings: every variable with every word, bad values, and which of two answers wins."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, fields
from itertools import chain
from typing import Any

import pytest

import padfix
from padfix.errors import PadfixError, SettingsError
from padfix.settings import VARIABLES, Settings, effective, override, read_environment

# Variable -> field, and for each of its values the words that stand for it.
TABLE: dict[str, tuple[str, dict[str, list[str]]]] = {
    "PADFIX": (
        "mode",
        {
            "off": ["off", "0", "false", "f", "no", "n"],
            "fix": ["fix", "1", "true", "t", "yes", "y", "on"],
            "warn": ["warn"],
            "strict": ["strict"],
        },
    ),
    "PADFIX_STRATEGY": (
        "strategy",
        {name: [name] for name in ("auto", "left_pad", "equal_length", "packed_prefill")},
    ),
    "PADFIX_DECODING": ("decoding", {name: [name] for name in ("pad_aware", "stock")}),
}

WORDS = [
    pytest.param(variable, field, spell(word), value, id=f"{variable}={spell(word)!r}")
    for variable, (field, values) in TABLE.items()
    for value, words in values.items()
    for word in words
    for spell in (str, str.upper, str.title, " {}\t\n".format)
]

BAD = [
    ("PADFIX", "maybe"),
    ("PADFIX", "Maybe "),
    ("PADFIX", "2"),
    ("PADFIX", "fixed"),
    ("PADFIX", "o n"),
    ("PADFIX", "left_pad"),
    ("PADFIX_STRATEGY", "left"),
    ("PADFIX_STRATEGY", "left-pad"),
    ("PADFIX_STRATEGY", "on"),
    ("PADFIX_DECODING", "0"),
    ("PADFIX_DECODING", "pad-aware"),
]

DEFAULT = Settings()
MIXED = Settings("warn", "left_pad", "stock")


def test_defaults_are_inert_and_careful() -> None:
    assert Settings() == Settings(mode="off", strategy="auto", decoding="pad_aware")
    assert [field.name for field in fields(Settings)] == list(VARIABLES)


@pytest.mark.parametrize("variable", TABLE)
def test_table_of_variables_holds_these_values_and_no_others(variable: str) -> None:
    field, values = TABLE[variable]
    row = VARIABLES[field]
    assert row.name == variable
    assert set(row.values) == set(values)
    assert {*row.words, *row.values} - {""} == set(chain.from_iterable(values.values()))


@pytest.mark.parametrize(("variable", "field", "word", "value"), WORDS)
def test_word_is_read_from_the_environment_and_as_argument(variable: str, field: str, word: str, value: str) -> None:
    settings, named = read_environment({variable: word, "PADFIX_OTHER": "x", "HOME": "/"})
    assert settings == Settings(**{field: value})
    assert named == {field}
    assert MIXED.changed(**{field: word}) == Settings(
        **{"mode": "warn", "strategy": "left_pad", "decoding": "stock", field: value}
    )
    with override(**{field: word}):
        assert getattr(effective(MIXED), field) == value


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
@pytest.mark.parametrize("variable", TABLE)
def test_blank_variable_names_nothing(variable: str, blank: str) -> None:
    assert read_environment({variable: blank}) == (DEFAULT, frozenset())


def test_environment_without_our_variables_gives_the_defaults() -> None:
    assert read_environment({}) == (DEFAULT, frozenset())


def test_variables_are_read_together() -> None:
    environment = {"PADFIX": "Strict", "PADFIX_STRATEGY": "EQUAL_LENGTH", "PADFIX_DECODING": "stock"}
    assert read_environment(environment) == (Settings("strict", "equal_length", "stock"), frozenset(VARIABLES))


@pytest.mark.parametrize(("variable", "value"), BAD)
def test_bad_variable_is_refused_with_its_name_its_value_and_the_list(variable: str, value: str) -> None:
    listed = ", ".join(TABLE[variable][1])
    expected = f"{variable}={value!r} is not a value that padfix knows. Use one of: {listed}."
    with pytest.raises(SettingsError, match=f"^{re.escape(expected)}$"):
        read_environment({variable: value})


@pytest.mark.parametrize(("variable", "value"), BAD)
def test_bad_argument_is_refused_and_changes_nothing(variable: str, value: str) -> None:
    field, values = TABLE[variable]
    message = re.escape(f"{field}={value!r} is not a value that padfix knows. Use one of: {', '.join(values)}.")
    with pytest.raises(SettingsError, match=message):
        MIXED.changed(**{field: value})
    with pytest.raises(SettingsError, match=message), override(**{field: value}):
        pytest.fail("the block was entered")
    with pytest.raises(SettingsError, match=message):
        padfix.install(**{field: value})
    assert effective(MIXED) == MIXED
    assert not padfix.is_installed()


@pytest.mark.parametrize("value", [True, 1, 0, b"fix", ["fix"]])
@pytest.mark.parametrize("field", VARIABLES)
def test_argument_that_is_no_string_is_refused(field: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{field}={value!r}")):
        DEFAULT.changed(**{field: value})


def test_settings_error_is_a_value_error_of_padfix() -> None:
    assert issubclass(SettingsError, PadfixError)
    assert issubclass(SettingsError, ValueError)


@pytest.mark.parametrize("field", VARIABLES)
def test_settings_are_frozen(field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(Settings(), field, "warn")
    assert hash(Settings()) == hash(Settings())


def test_changed_gives_a_new_value_and_none_keeps_a_field() -> None:
    assert MIXED.changed() == MIXED
    assert MIXED.changed(mode=None, strategy="auto") == Settings("warn", "auto", "stock")
    assert Settings("warn", "left_pad", "stock") == MIXED


# Override


def test_override_without_arguments_changes_nothing() -> None:
    with override():
        assert effective(MIXED) == MIXED
    assert effective(MIXED) == MIXED


def test_override_wins_over_what_is_installed_and_only_for_the_fields_it_names() -> None:
    with override("strict"):
        assert effective(MIXED) == Settings("strict", "left_pad", "stock")
    with override(decoding="pad_aware"):
        assert effective(MIXED) == Settings("warn", "left_pad", "pad_aware")
    assert effective(MIXED) == MIXED


def test_override_nests_and_the_innermost_wins() -> None:
    with override("strict", strategy="equal_length"):
        with override("off"):
            assert effective(MIXED) == Settings("off", "equal_length", "stock")
            with override("fix", decoding="pad_aware"):
                assert effective(MIXED) == Settings("fix", "equal_length", "pad_aware")
            assert effective(MIXED) == Settings("off", "equal_length", "stock")
        assert effective(MIXED) == Settings("strict", "equal_length", "stock")
    assert effective(MIXED) == MIXED


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_override_ends_with_an_exception_and_lets_it_through(error: type[BaseException]) -> None:
    with pytest.raises(error), override("off"), override(strategy="auto"):
        raise error
    assert effective(MIXED) == MIXED


def _in_a_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_override_does_not_reach_into_a_thread_that_starts_inside_it() -> None:
    with override("off"):
        assert _in_a_thread(lambda: effective(MIXED)) == MIXED
        assert effective(MIXED).mode == "off"


def test_override_in_a_thread_does_not_leak_out_of_it() -> None:
    entered, leave = threading.Event(), threading.Event()
    seen: list[Settings] = []

    def stay() -> None:
        with override("strict"):
            seen.append(effective(MIXED))
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(10)
    seen.append(effective(MIXED))
    leave.set()
    thread.join()
    assert [one.mode for one in seen] == ["strict", "warn"]


def test_override_holds_for_its_own_task_across_an_await() -> None:
    async def task(mode: str | None, seen: list[str]) -> None:
        with override(mode) if mode else nullcontext():
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(effective(MIXED).mode)

    async def together() -> list[list[str]]:
        seen: list[list[str]] = [[], [], []]
        await asyncio.gather(*(task(mode, one) for mode, one in zip(("off", None, "strict"), seen, strict=True)))
        return seen

    assert asyncio.run(together()) == [["off"] * 3, ["warn"] * 3, ["strict"] * 3]
