"""What every test starts from: no network, one thread, padfix as it was after import."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for variable in ("PADFIX", "PADFIX_STRATEGY", "PADFIX_DECODING"):  # tests say themselves what they want
    os.environ.pop(variable, None)

from collections.abc import Iterator  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import padfix  # noqa: E402
from padfix import notices, registry  # noqa: E402

# The modules beside the tests that hold asserts, before any test imports them.
pytest.register_assert_rewrite(
    "oracle",
    "stock",
    "properties.laws",
    "properties.layouts",
    "properties.batches",
    "properties.flags",
    "properties.states",
)

# How many examples a property gets: HYPOTHESIS_PROFILE is dev (50; the default), ci (300; where CI is set), brief (100;
# CI on older releases), mutation (30, not made small where they fail) or deep (5,000). ci and brief draw the same
# examples in every run, so that a red run speaks of the change and not of the draw; dev and deep search anew each time,
# and what they find is kept in .hypothesis and printed as a blob to replay.
hypothesis.settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "ci", max_examples=300, deadline=None, print_blob=True, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "brief", max_examples=100, deadline=None, print_blob=True, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "mutation",
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
hypothesis.settings.register_profile("deep", max_examples=5000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors in these tests; here rather than in pyproject.toml, which other suites may be run under."""
    config.addinivalue_line("filterwarnings", "error")


@pytest.fixture(autouse=True)
def as_after_import() -> Iterator[None]:
    """Nothing installed, nothing registered, nothing said yet; the same again after the test."""
    padfix.uninstall()
    notices.forget()
    yield
    padfix.uninstall()
    registry.ARCHITECTURES.clear()
    registry.PROMPT_TENSORS.clear()


@pytest.fixture
def installed() -> Iterator[None]:
    """padfix installed in the mode `fix`."""
    padfix.install("fix")
    yield
    padfix.uninstall()
