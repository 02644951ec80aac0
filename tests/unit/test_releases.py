"""The releases of padfix/releases.py are those of every other place that names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from padfix.releases import NEWEST_TESTED, OLDEST, SUPPORTED, TESTED

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def minor(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


def test_releases_are_in_order_and_named_at_both_ends() -> None:
    assert [*map(minor, TESTED)] == sorted({*map(minor, TESTED)})
    assert (minor(TESTED[0]), minor(TESTED[-1])) == (OLDEST, NEWEST_TESTED)


def test_range_is_that_of_the_package() -> None:
    assert f'"{SUPPORTED}"' in read("pyproject.toml")
    assert f">={OLDEST[0]}.{OLDEST[1]}," in SUPPORTED


def test_constraints_are_those_of_the_newest() -> None:
    assert f"transformers=={TESTED[-1]}" in read("constraints.txt").splitlines()


def test_every_older_release_has_its_pins() -> None:
    assert {file.stem for file in (ROOT / ".ci" / "releases").glob("*.txt")} == {*TESTED[:-1]}


@pytest.mark.parametrize("release", TESTED[:-1])
def test_pins_of_a_release_are_its_own(release: str) -> None:
    pins = read(f".ci/releases/{release}.txt").splitlines()
    assert f"transformers=={release}" in pins
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", pin) for pin in pins)
    assert {"tokenizers", "huggingface_hub"} <= {pin.partition("==")[0] for pin in pins}


@pytest.mark.parametrize("name", ["wrapt", "rich", "matplotlib", "pytest", "pytest-xdist"])
def test_oldest_release_runs_with_the_oldest_of_everything(name: str) -> None:
    (floor,) = re.findall(rf'"{name}>=([\d.]+)"', read("pyproject.toml"))
    pins = dict(pin.split("==") for pin in read(f".ci/releases/{TESTED[0]}.txt").splitlines())
    assert re.fullmatch(rf"{re.escape(floor)}(\.0)*", pins[name])


def test_changelog_names_them_all() -> None:
    (line,) = re.findall(r"^- Tested on transformers .*?(?=^- |\Z)", read("CHANGELOG.md"), re.MULTILINE | re.DOTALL)
    assert tuple(re.findall(r"\d+\.\d+\.\d+", line)) == TESTED
