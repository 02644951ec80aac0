"""padfix installed in the mode `fix` for every test of a module that imports the fixture."""

from collections.abc import Iterator

import pytest

import padfix

__all__ = ["repairing"]


@pytest.fixture(autouse=True)
def repairing(as_after_import: None) -> Iterator[None]:
    """padfix installed in the mode `fix`; no test may take it out."""
    padfix.install("fix")
    yield
    assert padfix.is_installed()
