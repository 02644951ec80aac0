"""The guard around single tests: what it records, what turns red, and that afterwards everything is as before.

In this process, where torch is imported already; test_plugin.py has the runs in processes of their own.
"""

from __future__ import annotations

import pytest
from transformers import GenerationMixin

import padfix

from .conftest import MISPLACED, Project


def test_mode_comes_from_the_closest_marker_then_the_option_then_the_ini_key(project: Project) -> None:
    project.add(
        ini="padfix = warn",
        test_it="""
import pytest
import padfix

@pytest.mark.padfix("off")
class TestMarked:
    def test_class(self, padfix_guard):
        assert padfix_guard.mode == "off"

    @pytest.mark.padfix(mode="STRICT")
    def test_function(self, padfix_guard):
        assert padfix_guard.mode == "strict"

    @pytest.mark.padfix
    def test_no_argument(self, padfix_guard):
        assert padfix_guard.mode == "fix"

def test_session(padfix_guard, pytestconfig):
    assert padfix_guard.mode == (pytestconfig.getoption("padfix") or "warn")
""",
    )
    for arguments, mode in (((), "warn"), (("--padfix=strict",), "strict"), (("--padfix=off",), "off")):
        result = project.run_here("--strict-markers", *arguments)
        result.assert_outcomes(passed=4)
        result.stdout.fnmatch_lines([f"padfix: {mode}"])


def test_mode_holds_for_every_thread_and_anew_for_each_test(project: Project) -> None:
    project.add(
        test_it="""
import threading
import padfix
from padfix.patch import _record

def test_uninstalls():
    assert _record.settings.mode == "strict"
    padfix.uninstall()

def test_installs():
    assert _record.settings.mode == "strict"
    padfix.install("fix")

def test_in_a_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(_record.settings.mode))
    thread.start()
    thread.join()
    assert seen == ["strict"]
"""
    )
    before = vars(GenerationMixin)["generate"]
    project.run_here("--padfix=strict").assert_outcomes(passed=3)
    assert vars(GenerationMixin)["generate"] is before
    assert not padfix.is_installed()


def test_mode_of_the_run_holds_from_its_start_to_its_end(project: Project) -> None:
    project.add(
        conftest="""
import padfix

def pytest_sessionstart():
    assert padfix.is_installed()

def pytest_sessionfinish():
    assert padfix.is_installed()
""",
        test_it="def test_it(): pass",
    )
    before = vars(GenerationMixin)["generate"]
    project.run_here("--padfix=strict").assert_outcomes(passed=1)
    assert vars(GenerationMixin)["generate"] is before
    assert not padfix.is_installed()


def test_marked_test_leaves_what_was_installed_before_it(project: Project) -> None:
    project.add(
        conftest="""
import padfix
padfix.install("warn", decoding="stock")
""",
        test_it="""
import pytest
from padfix.patch import _record

@pytest.mark.padfix("strict")
def test_marked():
    assert _record.settings.mode == "strict"

def test_after():
    assert (_record.settings.mode, _record.settings.decoding) == ("warn", "stock")
""",
    )
    project.run_here().assert_outcomes(passed=2)


def test_fixture_alone_gives_fix_for_its_test_also_where_it_is_asked_for_late(project: Project) -> None:
    project.add(
        test_it="""
import padfix
import pytest

@pytest.fixture
def before():
    assert padfix.is_installed()

def test_takes_it(before, padfix_guard):
    assert padfix_guard.mode == "fix" and padfix.is_installed()

def test_asks_late(request):
    assert not padfix.is_installed()
    assert request.getfixturevalue("padfix_guard").mode == "fix" and padfix.is_installed()

def test_other():
    assert not padfix.is_installed()
"""
    )
    project.run_here().assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("'stric'", "@pytest.mark.padfix: mode='stric' is not a value that padfix knows. Use one of: off, fix,*"),
        ("None", "@pytest.mark.padfix: mode=None is not a value that padfix knows. Use one of: off, fix,*"),
        ("'fix', 'warn'", "@pytest.mark.padfix takes one argument, the mode. Use one of: off, fix, warn, strict."),
        ("'fix', mode='warn'", "@pytest.mark.padfix takes one argument, the mode. Use one of: off, fix, warn, strict."),
        ("strategy='auto'", "@pytest.mark.padfix takes one argument, the mode. Use one of: off, fix, warn, strict."),
    ],
)
def test_bad_marker_fails_its_test_with_name_and_list(project: Project, marker: str, message: str) -> None:
    project.add(test_it=f"import pytest\n\n@pytest.mark.padfix({marker})\ndef test_one(): pass\n\ndef test_two(): pass")
    result = project.run_here("--padfix=fix")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([f"test_it.py::test_one: {message}"])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(("option", "ini"), [("--padfix=stric", ""), ("", "padfix = stric")])
def test_bad_mode_of_the_run_is_a_usage_error(project: Project, option: str, ini: str) -> None:
    project.add(ini=ini, test_it="def test_it(): pass")
    result = project.run_here(*filter(None, [option]))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shown = f"{(option or ini).removesuffix('stric')}'stric' is not a value that padfix knows. Use one of: off, fix, "
    assert [line for line in result.errlines if line] == [f"ERROR: {shown}warn, strict."]


def test_expected_errors_are_dropped_and_have_to_come(project: Project) -> None:
    project.add(
        test_it="""
import padfix
import pytest
import server

def test_expects(padfix_guard):
    with padfix_guard.expected():
        server.careless()
    with padfix_guard.expected(), pytest.raises(padfix.RightPaddingError):
        server.reply()
    with padfix_guard.expected() as came:
        server.padless()
    assert [one.file for one in came] == ["server.py"]
    assert padfix_guard.findings == ()

def test_expects_in_vain(padfix_guard):
    with padfix_guard.expected():
        server.reply(server.LEFT)

def test_says_nothing(padfix_guard):
    with pytest.raises(padfix.RightPaddingError):
        server.reply()
    assert [one.file for one in padfix_guard.findings] == ["server.py"]

@pytest.fixture
def expecting(padfix_guard):
    with padfix_guard.expected():
        yield

def test_expects_by_a_fixture(expecting):
    server.careless()
"""
    )
    result = project.run_here("--padfix=strict")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: padfix raised no error in this block; it is in the mode 'strict'.",
            f"server.py:{project.line('generates')}: {MISPLACED}*".replace("(", "[(]").replace(")", "[)]"),
        ]
    )


def test_red_test_gets_the_findings_as_a_section(project: Project) -> None:
    project.add(
        test_it="""
import unittest
import server

def test_fails_later():
    assert server.careless() is not None, "no reply"

class TestCase(unittest.TestCase):
    def test_fails_later(self):
        self.assertIsNotNone(server.careless(), "no reply")

    def test_swallows(self):
        server.careless()
"""
    )
    result = project.run_here("--padfix=strict", "-rN")
    result.assert_outcomes(failed=3)
    printed = result.stdout.str()
    assert printed.count("no reply") >= 2
    assert printed.count("- padfix -") == 2
    assert printed.count(f"server.py:{project.line('generates')}: {MISPLACED}") == 3


def test_every_outcome_but_a_known_failure_turns_red(project: Project) -> None:
    project.add(
        test_it="""
import pytest
import server

def test_skips():
    server.careless()
    pytest.skip("no reply")

@pytest.mark.xfail
def test_passes_though_not_expected_to():
    server.careless()

@pytest.mark.xfail
def test_known():
    server.reply()
"""
    )
    project.run_here("--padfix=strict").assert_outcomes(failed=2, xfailed=1)


def test_what_fixtures_and_imports_swallow_turns_red_where_it_happens(project: Project) -> None:
    project.add(
        test_fixtures="""
import pytest
import server

@pytest.fixture
def early():
    server.careless()

@pytest.fixture
def late():
    yield
    server.careless()

def test_early(early): raise RuntimeError("not reached")

def test_late(late): pass
""",
        test_import="""
import server
server.careless()

def test_it(): pass
""",
    )
    result = project.run_here("--padfix=strict", "--continue-on-collection-errors")
    result.assert_outcomes(errors=3, passed=1)
    printed = result.stdout.str()
    for what in ("ERROR collecting test_import.py", "ERROR at setup of test_early", "ERROR at teardown of test_late"):
        assert what in printed
    assert printed.count(f"\nserver.py:{project.line('generates')}: {MISPLACED}") == 3


def test_help_and_markers_name_what_there_is(project: Project) -> None:
    result = project.run_here("--help")
    result.stdout.fnmatch_lines(["*--padfix={off,fix,warn,strict}*"])
    project.run_here("--markers").stdout.fnmatch_lines(["@pytest.mark.padfix(mode='fix'): run the test with padfix*"])
