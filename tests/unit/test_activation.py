"""Activation: what `import padfix` loads, when transformers is patched, and what keeps padfix out."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from oracle import GREEDY, ROWS, build, right_padded
from transformers.generation import utils
from transformers.generation.utils import GenerationMixin

import padfix
from padfix import patch, pipeline, settings
from padfix.errors import PadfixError, UnsupportedVersionError
from padfix.settings import Settings

ROOT = Path(padfix.__file__).parents[1]

Log = pytest.LogCaptureFixture


def python(*arguments: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python with these arguments, and of our environment variables these alone."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PADFIX", "PYTHON", "COV_"))}
    found = os.pathsep.join(str(folder) for folder in (path, ROOT) if folder)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, "PYTHONPATH": found, "PYTHONWARNINGS": "ignore", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run(code: str, *, path: Path | None = None, **variables: str) -> str:
    """What a fresh Python prints that runs this code, to its two streams together."""
    done = python("-c", textwrap.dedent(code), path=path, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# `loaded()` in a fresh Python: which of the packages that cost something have been imported.
LOADED = """
import sys
def loaded():
    return [name for name in ("torch", "transformers", "wrapt") if name in sys.modules]
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a transformers that is imported at once; its version is in the variable FAKE_VERSION."""
    folder = tmp_path_factory.mktemp("site")
    sources = {
        "__init__.py": "import os\n__version__ = os.environ['FAKE_VERSION']\n",
        "generation/__init__.py": "",
        "generation/utils.py": """
            class GenerationMixin:
                def generate(self, *args, **kwargs):
                    return "stock"
            """,
    }
    for name, source in sources.items():
        file = folder / "transformers" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(source), encoding="utf-8")
    return folder


# What import loads


@pytest.mark.parametrize("variables", [{}, {"PADFIX": "off"}, {"PADFIX": ""}], ids=["unset", "off", "empty"])
def test_inert_import_loads_neither_torch_nor_transformers_nor_wrapt(variables: dict[str, Any]) -> None:
    code = """
    import padfix
    assert loaded() == [], loaded()
    public = [getattr(padfix, name) for name in padfix.__all__ if name not in padfix._LAZY]
    assert padfix.is_installed() is False
    padfix.uninstall()
    with padfix.suppressed(), padfix.override("fix"):
        pass
    assert set(padfix.__all__) <= set(dir(padfix))
    assert loaded() == [], loaded()
    """
    assert run(LOADED + textwrap.dedent(code), **variables) == ""


@pytest.mark.parametrize("mode", ["fix", "warn", "strict"])
def test_active_import_loads_wrapt_alone_and_patches_when_transformers_comes(mode: str, fake: Path) -> None:
    code = """
    import padfix
    assert loaded() == ["wrapt"], loaded()
    assert padfix.is_installed()
    import transformers
    assert "padfix.pipeline" not in sys.modules
    import transformers.generation.utils as utils
    method = vars(utils.GenerationMixin)["generate"]
    assert method.__code__.co_filename.endswith("patch.py"), method
    stock = method.__wrapped__ if hasattr(method, "__wrapped__") else None
    padfix.uninstall()
    assert vars(utils.GenerationMixin)["generate"] is stock
    assert utils.GenerationMixin().generate() == "stock"
    assert not padfix.is_installed()
    assert loaded() == ["transformers", "wrapt"], loaded()
    """
    assert run(LOADED + textwrap.dedent(code), path=fake, PADFIX=mode, FAKE_VERSION="5.24.0") == ""


def test_uninstall_before_transformers_is_imported_keeps_padfix_out(fake: Path) -> None:
    code = """
    import padfix
    padfix.uninstall()
    assert not padfix.is_installed()
    import transformers.generation.utils as utils
    assert vars(utils.GenerationMixin)["generate"].__code__.co_filename == utils.__file__
    assert not padfix.is_installed()
    """
    assert run(code, path=fake, PADFIX="fix", FAKE_VERSION="5.24.0") == ""


def test_install_imports_transformers_itself(fake: Path) -> None:
    code = """
    import padfix
    padfix.install()
    utils = sys.modules["transformers.generation.utils"]
    method = vars(utils.GenerationMixin)["generate"]
    assert method.__code__.co_filename.endswith("patch.py"), method
    padfix.uninstall()
    assert utils.GenerationMixin().generate() == "stock"
    """
    assert run(LOADED + textwrap.dedent(code), path=fake, FAKE_VERSION="5.24.0") == ""


def test_real_transformers_is_patched_when_it_comes_and_at_once_where_it_is_there() -> None:
    """One Python for both, since importing transformers takes seconds: padfix is imported twice."""
    code = """
    import os, sys
    import padfix
    import transformers  # without its modules, which are imported when they are first needed
    assert "torch" not in sys.modules or "transformers.generation.utils" not in sys.modules
    from transformers import GenerationMixin
    utils = sys.modules["transformers.generation.utils"]
    assert GenerationMixin is utils.GenerationMixin
    ours = vars(GenerationMixin)["generate"]
    assert ours.__code__.co_filename.endswith("patch.py"), ours
    padfix.uninstall()
    stock = vars(GenerationMixin)["generate"]
    assert not stock.__code__.co_filename.endswith("patch.py"), stock

    for name in [name for name in sys.modules if name.partition(".")[0] == "padfix"]:
        del sys.modules[name]
    os.environ["PADFIX"] = "warn"
    import padfix
    assert padfix.is_installed()
    assert vars(GenerationMixin)["generate"].__code__.co_filename.endswith("patch.py")
    padfix.uninstall()
    assert vars(GenerationMixin)["generate"] is stock
    """
    assert run(code, PADFIX="fix") == ""


# What is refused, and what wins


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PADFIX": "maybe"}, "PADFIX='maybe' is not a value that padfix knows. Use one of: off, fix, warn, strict."),
        (
            {"PADFIX": "off", "PADFIX_STRATEGY": "Luck"},
            "PADFIX_STRATEGY='Luck' is not a value that padfix knows. "
            "Use one of: auto, left_pad, equal_length, packed_prefill.",
        ),
        (
            {"PADFIX_DECODING": "1"},
            "PADFIX_DECODING='1' is not a value that padfix knows. Use one of: pad_aware, stock.",
        ),
    ],
    ids=["PADFIX", "PADFIX_STRATEGY", "PADFIX_DECODING"],
)
def test_bad_variable_is_refused_at_import(variables: dict[str, Any], message: str) -> None:
    done = python("-c", "import padfix", **variables)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"padfix.errors.SettingsError: {message}"


def test_install_under_off_in_the_environment_is_logged_and_does_nothing() -> None:
    code = """
    import logging, padfix
    logging.basicConfig(format="%(name)s: %(message)s")
    padfix.install("strict")
    assert not padfix.is_installed()
    assert loaded() == [], loaded()
    """
    said = run(LOADED + textwrap.dedent(code), PADFIX="No")
    assert said == "padfix: padfix.install() does nothing: PADFIX=off in the environment wins.\n"


def test_module_is_run_as_the_command() -> None:
    done = python("-X", "importtime", "-m", "padfix", "--version")
    assert (done.returncode, done.stdout) == (0, f"padfix {padfix.__version__}\n")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "padfix.cli" in imported
    assert not imported & {"torch", "transformers", "wrapt", "rich"}


def test_install_beside_the_import_hook_patches_once(fake: Path) -> None:
    code = """
    import padfix
    padfix.install("strict")
    import transformers.generation.utils as utils
    method = vars(utils.GenerationMixin)["generate"]
    padfix.install("strict")
    assert vars(utils.GenerationMixin)["generate"] is method
    padfix.uninstall()
    assert utils.GenerationMixin().generate() == "stock"
    assert vars(utils.GenerationMixin)["generate"].__code__.co_filename == utils.__file__
    """
    assert run(code, path=fake, PADFIX="warn", FAKE_VERSION="5.24.0") == ""


def test_install_while_another_thread_imports_transformers(fake: Path) -> None:
    code = """
    import faulthandler, sys, threading, time
    faulthandler.dump_traceback_later(3, exit=True)
    import padfix
    began = threading.Event()

    class Slow:
        def find_spec(self, name, path=None, target=None):
            if name == "transformers.generation.utils" and not began.is_set():
                began.set()
                time.sleep(0.5)

    sys.meta_path.insert(0, Slow())
    thread = threading.Thread(target=lambda: __import__("transformers.generation.utils"))
    thread.start()
    began.wait()
    padfix.install()
    thread.join()
    assert padfix.is_installed()
    """
    assert run(code, path=fake, PADFIX="fix", FAKE_VERSION="5.24.0") == ""


# In this process


MIXIN: Any = GenerationMixin
STOCK = vars(MIXIN)["generate"]


@pytest.fixture(autouse=True)
def stock_again() -> Iterator[None]:
    """The library's own method before and after each test, with nothing of padfix in it."""
    assert vars(GenerationMixin).get("generate") is STOCK
    yield
    padfix.uninstall()
    MIXIN.generate = STOCK


def given(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """The settings as they are where padfix was imported with these variables."""
    read, named = settings.read_environment(variables)
    monkeypatch.setattr(settings, "ENVIRONMENT", read)
    monkeypatch.setattr(patch, "ENVIRONMENT", read)
    monkeypatch.setattr(settings, "NAMED_IN_ENVIRONMENT", named)


@pytest.fixture
def tellers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`generate` of any object gives `stock`, or the settings that padfix treats the call by."""
    monkeypatch.setattr(GenerationMixin, "generate", lambda self: "stock")
    monkeypatch.setattr(pipeline, "run", lambda original, model, args, kwargs, settings, hooks: settings)


def in_force() -> Any:
    return GenerationMixin.generate(object())


@pytest.mark.usefixtures("tellers")
@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        ({}, {}, Settings("fix")),
        ({}, {"mode": "warn"}, Settings("warn")),
        ({}, {"mode": "off"}, "stock"),
        ({"PADFIX": "warn"}, {}, Settings("warn")),
        ({"PADFIX": "yes"}, {}, Settings("fix")),
        ({"PADFIX": "warn"}, {"mode": "STRICT"}, Settings("strict")),
        ({"PADFIX": "strict"}, {"mode": "off"}, "stock"),
        ({"PADFIX": "off"}, {}, "stock"),
        ({"PADFIX": "0"}, {"mode": "strict"}, "stock"),
        ({"PADFIX": ""}, {}, Settings("fix")),
        ({"PADFIX_STRATEGY": "left_pad"}, {}, Settings("fix", "left_pad")),
        ({"PADFIX_STRATEGY": "left_pad"}, {"strategy": "auto"}, Settings("fix", "auto")),
        ({"PADFIX_STRATEGY": "left_pad"}, {"decoding": "stock"}, Settings("fix", "left_pad", "stock")),
        ({"PADFIX": "warn", "PADFIX_DECODING": "stock"}, {"decoding": "pad_aware"}, Settings("warn")),
    ],
    ids=str,
)
def test_argument_wins_over_the_environment_and_that_over_the_default(
    variables: dict[str, str], arguments: dict[str, str], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, **variables)
    padfix.install(**arguments)
    assert in_force() == expected
    with padfix.override("strict"):
        assert in_force() == ("stock" if variables.get("PADFIX") in ("off", "0") else strict(expected))


def strict(seen: Any) -> Settings:
    return seen.changed(mode="strict") if isinstance(seen, Settings) else Settings("strict")


@pytest.mark.usefixtures("tellers")
@pytest.mark.parametrize("word", ["fix", "warn", "strict", "on"])
def test_environment_patches_a_transformers_that_is_imported_already(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, PADFIX=word, PADFIX_STRATEGY="left_pad")
    patch.activate_from_environment()
    assert padfix.is_installed()
    assert in_force() == Settings("fix" if word == "on" else word, "left_pad")
    padfix.uninstall()
    assert in_force() == "stock"


@pytest.mark.parametrize("variables", [{}, {"PADFIX": "off"}, {"PADFIX_STRATEGY": "left_pad"}], ids=str)
def test_inert_environment_patches_nothing(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, **variables)
    patch.activate_from_environment()
    assert not padfix.is_installed()
    assert vars(GenerationMixin)["generate"] is STOCK


def test_bad_argument_is_refused_under_off_in_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, PADFIX="off")
    with pytest.raises(PadfixError, match="mode='maybe'"):
        padfix.install("maybe")


def test_real_model_is_repaired_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, PADFIX="fix")
    model, batch = build("llama"), right_padded(ROWS)
    padfix.install()
    expected = model.generate(**batch, **GREEDY)
    padfix.uninstall()
    assert not torch.equal(model.generate(**batch, **GREEDY), expected)
    patch.activate_from_environment()
    assert torch.equal(model.generate(**batch, **GREEDY), expected)


# Releases that cannot be patched


TOO_OLD = "transformers 4.45.2 is older than padfix supports. Install transformers>=4.46,<6."


def pretend(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """Makes the transformers of this process say that it is another release."""
    # 5.24 puts another module in its own place when the first class is taken from it.
    monkeypatch.setattr(sys.modules["transformers"], "__version__", release)


@pytest.fixture
def too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "4.45.2")


@pytest.mark.parametrize("release", ["4.46.0", "4.46.3", "4.57.6", "5.0.0rc1", "5.24.0", "5.25.0.dev0", "6.0.0"])
def test_release_from_the_oldest_on_is_patched(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, release)
    padfix.install()
    assert padfix.is_installed()
    assert vars(GenerationMixin)["generate"] is not STOCK


@pytest.mark.parametrize("release", ["4.45.2", "4.9.0", "4.4.46", "3.50.0", "0.0.1"])
def test_release_below_the_oldest_is_refused_with_the_range(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, release)
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError) as raised:
            padfix.install()
        assert str(raised.value) == TOO_OLD.replace("4.45.2", release)
        assert not padfix.is_installed()
        assert vars(GenerationMixin)["generate"] is STOCK


def test_refused_install_after_someone_took_ours_away_says_that_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    padfix.install()
    MIXIN.generate = STOCK
    pretend(monkeypatch, "4.45.2")
    with pytest.raises(UnsupportedVersionError):
        padfix.install()
    assert not padfix.is_installed()


@pytest.mark.parametrize(("release", "newer"), [("5.24.9", False), ("5.25.0", True), ("6.1", True), ("4.46.3", False)])
def test_release_newer_than_the_newest_tested_is_logged_once(
    release: str, newer: bool, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    pretend(monkeypatch, release)
    with caplog.at_level(logging.INFO, logger="padfix"):
        for _ in range(2):
            padfix.install()
            padfix.uninstall()
    message = f"transformers {release} is newer than 5.24, the newest that padfix was tested with."
    assert [(record.levelname, record.message) for record in caplog.records] == [("INFO", message)] * newer


@pytest.mark.usefixtures("too_old")
@pytest.mark.parametrize("mode", ["fix", "warn"])
def test_environment_stays_out_of_an_older_release_and_logs_an_error(
    mode: str, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    given(monkeypatch, PADFIX=mode)
    patch.activate_from_environment()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", f"padfix stays out: {TOO_OLD}")
    ]
    assert not caplog.records[0].exc_info
    assert not padfix.is_installed()
    assert vars(GenerationMixin)["generate"] is STOCK


@pytest.mark.usefixtures("too_old")
def test_strict_environment_raises_at_every_generate_of_an_older_release(
    monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    given(monkeypatch, PADFIX="strict")
    model, row = build("llama"), right_padded(ROWS[:1])
    expected = model.generate(**row, **GREEDY)
    patch.activate_from_environment()
    assert caplog.messages == [f"padfix stays out: {TOO_OLD}"]
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=r"transformers 4\.45\.2 is older"):
            model.generate(**row, **GREEDY)
    with padfix.suppressed():
        assert torch.equal(model.generate(**row, **GREEDY), expected)
    padfix.uninstall()
    assert vars(GenerationMixin)["generate"] is STOCK
    assert torch.equal(model.generate(**row, **GREEDY), expected)
    monkeypatch.undo()
    padfix.install("strict")  # the refusal is forgotten
    assert torch.equal(model.generate(**row, **GREEDY), expected)


@pytest.mark.usefixtures("too_old")
@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_install_after_a_strict_environment_was_refused_raises_too(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, PADFIX="strict")
    patch.activate_from_environment()
    with pytest.raises(UnsupportedVersionError):
        padfix.install(mode)


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_import_of_an_older_transformers_works(mode: str, fake: Path) -> None:
    code = """
    import padfix
    import transformers.generation.utils as utils
    try:
        print(utils.GenerationMixin().generate())
    except padfix.UnsupportedVersionError as error:
        print("raised", error)
    """
    said = run(code, path=fake, PADFIX=mode, FAKE_VERSION="4.45.2").splitlines()
    assert said == ["stock" if mode == "fix" else f"raised {TOO_OLD}", f"padfix stays out: {TOO_OLD}"]


def test_install_that_imports_an_older_transformers_beside_the_import_hook_raises(fake: Path) -> None:
    code = """
    import padfix
    try:
        padfix.install()
    except padfix.UnsupportedVersionError as error:
        print("raised", error)
    import transformers.generation.utils as utils
    print(padfix.is_installed(), utils.GenerationMixin().generate())
    """
    said = run(code, path=fake, PADFIX="fix", FAKE_VERSION="4.45.2").splitlines()
    assert said[:2] == [f"raised {TOO_OLD}", "False stock"]


@pytest.mark.parametrize("lacks", ["method", "class", "callable"])
@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_missing_patch_point_is_named(lacks: str, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: Log) -> None:
    if lacks == "class":
        monkeypatch.delattr(utils, "GenerationMixin")
    elif lacks == "method":
        monkeypatch.delattr(GenerationMixin, "generate")
    else:
        monkeypatch.setattr(GenerationMixin, "generate", None)
    message = (
        f"transformers {transformers.__version__} has no transformers.generation.utils.GenerationMixin.generate. "
        "Install a release that padfix was tested with, up to 5.24."
    )
    before = vars(GenerationMixin).get("generate")
    with pytest.raises(UnsupportedVersionError) as raised:
        padfix.install(mode)
    assert str(raised.value) == message
    assert not padfix.is_installed()
    given(monkeypatch, PADFIX=mode)
    patch.activate_from_environment()
    assert caplog.messages == [f"padfix stays out: {message}"]
    assert vars(GenerationMixin).get("generate") is before
    padfix.uninstall()
    assert vars(GenerationMixin).get("generate") is before


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_any_other_error_in_the_import_hook_is_logged_with_its_traceback(
    mode: str, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    def broken(module: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(patch, "_check", broken)
    given(monkeypatch, PADFIX=mode)
    patch.activate_from_environment()
    assert caplog.messages == ["padfix stays out: broken"]
    assert caplog.records[0].exc_info
    if mode == "strict":
        with pytest.raises(UnsupportedVersionError, match=r"RuntimeError\('broken'\). Set PADFIX=off"):
            build("llama").generate(**right_padded([ROWS[1]]), **GREEDY)
        padfix.uninstall()
    assert not padfix.is_installed()
    assert vars(GenerationMixin)["generate"] is STOCK
