"""The pytest plugin: padfix in one mode for each test, and every error that it raises there turns the test red.

Outside of the package, so that a test run that asks for nothing imports nothing: padfix comes with the option, the ini
key, a marker or the fixture. What is done is in padfix/testing.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from padfix.testing import Guard

__all__ = ["padfix_guard"]

_session_mode = pytest.StashKey[str]()
_header = pytest.StashKey[str]()
_guard = pytest.StashKey["Guard"]()
_refusal = pytest.StashKey[str]()

_MODES = "off,fix,warn,strict"
# What padfix raises while it is imported or installed; its classes cannot be named before it is imported.
_ERRORS = (ValueError, RuntimeError)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option and the ini key."""
    what = "install padfix in this mode for the test run"
    parser.getgroup("padfix").addoption("--padfix", metavar=f"{{{_MODES}}}", default=None, help=f"{what}.")
    parser.addini("padfix", f"{what}: {_MODES}.", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and installs padfix where the option or the ini key asks for it.

    Raises:
        UsageError: A mode is none, PADFIX in the environment is none or contradicts the option, or padfix cannot be
            installed.
    """
    config.addinivalue_line("markers", "padfix(mode='fix'): run the test with padfix in this mode, in all its threads.")
    option, ini = config.getoption("padfix"), config.getini("padfix")
    if option is None and not ini:
        return
    try:
        _install(config, option, ini)
    except _ERRORS as error:
        raise pytest.UsageError(str(error)) from error


def _install(config: pytest.Config, option: str | None, ini: str) -> None:
    from padfix import testing
    from padfix.patch import installed
    from padfix.settings import is_off_in_environment

    name, value = ("--padfix=", option) if option is not None else ("padfix = ", ini)
    mode = header = testing.read_mode(value, name)
    if not is_off_in_environment():
        stack = ExitStack()
        stack.enter_context(installed(mode))
        config.add_cleanup(stack.close)
    elif mode != "off":
        if option is not None:
            raise ValueError(f"{name}{value} contradicts PADFIX=off in the environment. Take one of the two away.")
        header = f"off (PADFIX=off in the environment wins over {name}{value})"
    config.stash[_session_mode] = mode
    config.stash[_header] = f"padfix: {header}"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Names the mode of the test run, where there is one."""
    return [config.stash[_header]] if _header in config.stash else []


def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    """Says where the environment wins over markers."""
    marked = any(item.get_closest_marker("padfix") is not None for item in items)
    if not marked or not _is_off_in_environment():
        return []
    return ["padfix: off (PADFIX=off in the environment wins over @pytest.mark.padfix)"]


def _is_off_in_environment() -> bool:
    try:
        from padfix.settings import is_off_in_environment
    except _ERRORS:  # said in each marked test
        return False
    return is_off_in_environment()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Installs padfix anew for a test that has a mode, with a guard; afterwards as before."""
    with ExitStack() as stack:
        try:
            mode = _mode_of(item)
            if mode is not None:
                _enter(stack, item, mode)
        except _ERRORS as error:
            item.stash[_refusal] = f"{item.nodeid}: {error}"
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test whose mode is none."""
    if _refusal in item.stash:
        pytest.fail(item.stash[_refusal], pytrace=False)


def _mode_of(item: pytest.Item) -> str | None:
    """The mode of a test, or None: the closest marker's, else the session's, else `fix` where it takes the fixture."""
    marker = item.get_closest_marker("padfix")
    if marker is None:
        default = "fix" if "padfix_guard" in getattr(item, "fixturenames", ()) else None
        return item.config.stash.get(_session_mode, default)
    from padfix.testing import read_mode

    given = [*marker.args, *(value for name, value in marker.kwargs.items() if name == "mode")]
    if len(given) > 1 or set(marker.kwargs) - {"mode"}:
        raise ValueError(f"@pytest.mark.padfix takes one argument, the mode. Use one of: {_MODES.replace(',', ', ')}.")
    return read_mode(given[0] if given else "fix", "@pytest.mark.padfix: mode=")


def _enter(stack: ExitStack, item: pytest.Item, mode: str) -> Guard:
    from padfix.testing import guarded

    item.stash[_guard] = guard = stack.enter_context(guarded(mode, item.config.rootpath))
    return guard


@pytest.fixture
def padfix_guard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    """The guard of this test: `mode`, `findings`, and `expected()` for a block in which padfix has to raise."""
    with ExitStack() as stack:
        # None yet where the fixture was asked for by request.getfixturevalue alone.
        yield request.node.stash.get(_guard, None) or _enter(stack, request.node, "fix")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turns a phase of a test red in which padfix raised an error, whatever the code made of the error."""
    outcome: Any = yield
    if _guard in item.stash:
        _tell(outcome.get_result(), item, item.stash[_guard])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for what a test module does while it is imported."""
    mode = collector.config.stash.get(_session_mode, None)
    if mode is None or not isinstance(collector, pytest.File):
        yield
        return
    from padfix.testing import guarded

    with guarded(mode, collector.config.rootpath) as guard:
        outcome: Any = yield
    _tell(outcome.get_result(), collector, guard)


def _tell(report: Any, node: Any, guard: Guard) -> None:
    """Adds the guard's new findings to a report: as a section where it is red anyway, else as what makes it red."""
    text = "\n".join(map(str, guard.untold()))
    if not text:
        return
    if report.failed or (report.skipped and hasattr(report, "wasxfail")):
        report.sections.append(("padfix", text))
        return
    report.outcome = "failed"
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception:
        report.longrepr = node.repr_failure(pytest.ExceptionInfo.from_current())
