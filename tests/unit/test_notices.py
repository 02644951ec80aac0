"""Notices: where a warning points, what is said once and what every time, and the counts under threads."""

from __future__ import annotations

import logging
import sys
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import padfix
from padfix import PadfixWarning, notices

LIBRARIES = ["padfix.pipeline", "transformers.generation.utils", "peft.peft_model", "torch.utils._contextlib", "wrapt"]


@pytest.fixture(autouse=True)
def records(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="padfix"):
        yield caplog


def through(*modules: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, reached through a function of each of these modules, the first one outermost."""
    for name in reversed(modules):
        module = types.ModuleType(name)
        module.__dict__["call"] = call
        exec("def passed_on(*args):\n    return call(*args)", module.__dict__)
        call = module.__dict__["passed_on"]
    return call


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def shown(call: Callable[..., Any], *args: Any) -> warnings.WarningMessage:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args)
    (one,) = caught
    return one


@pytest.mark.parametrize("modules", [[], *([name] for name in LIBRARIES), LIBRARIES, ["transformers", "padfix"]])
def test_warning_points_at_the_callers_line(modules: list[str]) -> None:
    say = through(*modules, call=notices.warn)

    def users_code() -> int:
        say("look here")
        return here() - 1

    lines: list[int] = []
    warning = shown(lambda: lines.append(users_code()))
    assert (warning.filename, [warning.lineno], warning.category) == (__file__, lines, PadfixWarning)
    assert str(warning.message) == "look here"


@pytest.mark.parametrize("name", ["padfix_user", "transformers_extras", "my.peft", "__main__"])
def test_module_with_a_similar_name_is_the_callers(name: str) -> None:
    assert shown(through(name, call=notices.warn), "x").filename == "<string>"


def test_warning_points_at_the_innermost_line_of_the_caller() -> None:
    say = through("peft", "users", "transformers", call=notices.warn)
    assert shown(say, "x").filename == "<string>"
    assert notices.call_site()[0] == __file__


def test_warning_where_every_frame_is_a_librarys_points_at_the_outermost() -> None:
    seen: list[Any] = []
    site = through("padfix.x", call=notices.call_site)
    code = compile("seen.append(site())", "outermost.py", "exec")
    thread = threading.Thread(target=exec, args=(code, {"__name__": "transformers", "seen": seen, "site": site}))
    import_name = threading.__dict__["__name__"]
    threading.__dict__["__name__"] = "transformers.threading"  # the frames beneath the thread's target
    try:
        thread.start()
        thread.join()
    finally:
        threading.__dict__["__name__"] = import_name
    ((filename, line),) = seen
    assert filename == threading.__file__
    assert line > 0


def test_call_site_is_the_callers_file_and_line() -> None:
    assert through(*LIBRARIES, call=notices.call_site)() == (__file__, here())


def test_python_shows_a_warning_once_a_line_and_the_log_has_every_one(records: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            notices.warn("again")
        notices.warn("again")
    assert len(caught) == 2
    assert [(record.name, record.levelname, record.message) for record in records.records] == [
        ("padfix", "WARNING", "again")
    ] * 4
    assert notices.counts() == {"warnings": 4}


def test_warning_that_is_turned_into_an_error_is_still_logged_and_counted(records: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PadfixWarning, match=r"^stop$"):
        notices.warn("stop")
    assert records.messages == ["stop"]
    assert notices.counts() == {"warnings": 1}


def test_warning_can_be_silenced_by_message_and_by_module() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="quiet", category=PadfixWarning)
        warnings.filterwarnings("ignore", module="^mine$", category=PadfixWarning)
        notices.warn("quiet please")
        through("mine", call=notices.warn)("loud")
        notices.warn("loud")
    assert [str(one.message) for one in caught] == ["loud"]


def test_percent_signs_in_a_message_are_left_alone(records: pytest.LogCaptureFixture) -> None:
    assert str(shown(notices.warn, "100% of %s").message) == "100% of %s"
    assert records.messages == ["100% of %s"]


def test_warn_once_says_it_once_for_each_key() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in (("a.py", 1), ("a.py", 2), ("a.py", 1), ("b.py", 1), ("a.py", 2)):
            notices.warn_once(str(key), key)
    assert [str(one.message) for one in caught] == ["('a.py', 1)", "('a.py', 2)", "('b.py', 1)"]
    assert notices.counts() == {"warnings": 3}


def test_info_once_logs_once_for_each_key_and_warns_of_nothing(records: pytest.LogCaptureFixture) -> None:
    for key in ("one", "two", "one"):
        notices.info_once(f"about {key}", key)
    assert [(record.levelname, record.message) for record in records.records] == [
        ("INFO", "about one"),
        ("INFO", "about two"),
    ]
    assert notices.counts() == {}


def test_a_key_of_a_warning_is_not_a_key_of_the_log(records: pytest.LogCaptureFixture) -> None:
    notices.info_once("a", "key")
    assert str(shown(notices.warn_once, "b", "key").message) == "b"
    assert records.messages == ["a", "b"]


def test_forget_starts_anew(records: pytest.LogCaptureFixture) -> None:
    notices.tally("calls")
    notices.info_once("a", "key")
    notices.forget()
    assert notices.counts() == {}
    notices.info_once("a", "key")
    assert records.messages == ["a", "a"]


def test_counts_are_a_copy() -> None:
    notices.tally("calls")
    notices.counts()["calls"] = 7
    assert notices.counts() == {"calls": 1}


class SlowCounts(Counter[str]):
    """Counts that let another thread in between reading and writing."""

    def __getitem__(self, key: str) -> int:
        value = super().__getitem__(key)
        time.sleep(0)
        return value


class SlowSet(set[object]):
    """A set that lets another thread in between asking and adding."""

    def __contains__(self, key: object) -> bool:
        there = super().__contains__(key)
        time.sleep(0)
        return there


def test_threads_lose_no_count_and_say_a_thing_once(
    records: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_counts", SlowCounts())
    monkeypatch.setattr(notices, "_seen", SlowSet())
    threads, rounds = 8, 50
    start = threading.Barrier(threads)

    def work() -> None:
        start.wait()
        for turn in range(rounds):
            notices.tally("calls")
            notices.info_once(str(turn), turn)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert notices.counts() == {"calls": threads * rounds}
    assert sorted(records.messages, key=int) == [str(turn) for turn in range(rounds)]


@pytest.mark.parametrize(("level", "printed"), [("error", True), ("warning", False)])
def test_only_errors_are_printed_where_no_logging_is_set_up(
    level: str, printed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    getattr(notices.logger, level)("something happened")
    assert capsys.readouterr().err == ("something happened\n" if printed else "")


def test_where_logging_is_set_up_nothing_is_printed_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert logging.getLogger().handlers  # pytest's own
    notices.logger.error("something happened")
    assert capsys.readouterr().err == ""


# What has been done


def test_stats_name_what_was_counted_and_start_anew() -> None:
    assert notices.stats() == notices.Stats(0, 0, 0, {}, 0, 0, 0, {}, 0)
    notices.tally("calls", 3)
    notices.ran("left_pad", needed=True, pads=7, columns=2)
    notices.ran("left_pad", needed=False, pads=1, columns=0)
    notices.ran("packed_prefill", needed=True, pads=4, columns=0)
    notices.refused(["a= of shape (4, 12)", "b="])
    notices.refused(["a= of shape (5, 9)"])
    expected = {
        "calls": 3,
        "padded": 0,
        "repaired": 2,
        "strategies": {"left_pad": 2, "packed_prefill": 1},
        "pads": 12,
        "columns": 2,
        "refused": 2,
        "reasons": {"a= of shape (...)": 2, "b=": 1},
        "warnings": 0,
    }
    assert padfix.stats(reset=True).as_dict() == expected
    assert padfix.stats().calls == 0


def test_reasons_are_not_kept_without_end() -> None:
    for number in range(2 * notices.MOST_REASONS):
        notices.refused([f"reason {number}"])
    reasons = padfix.stats().reasons
    assert len(reasons) == notices.MOST_REASONS + 1
    assert reasons["others"] == notices.MOST_REASONS
    notices.refused(["reason 3"])
    assert padfix.stats().reasons["reason 3"] == 2


class Span:
    def __init__(self, *, recording: bool) -> None:
        self.recording, self.attributes = recording, dict[str, Any]()

    def is_recording(self) -> bool:
        return self.recording

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self.attributes |= attributes


@pytest.mark.parametrize("recording", [True, False])
def test_span_that_is_recording_gets_attributes(recording: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    span = Span(recording=recording)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", SimpleNamespace(get_current_span=lambda: span))
    notices.ran("left_pad", needed=True, pads=7, columns=2)
    notices.refused(["b="])
    told = {"padfix.strategy": "left_pad", "padfix.repaired": True, "padfix.pads": 7, "padfix.refused": True}
    assert span.attributes == (told if recording else {})
