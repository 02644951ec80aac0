"""SmolLM2-135M-Instruct, for every test of this folder."""

import pytest

from .smollm2 import SmolLM2, load, missing


@pytest.fixture(scope="module")
def smollm2(request: pytest.FixtureRequest) -> SmolLM2:
    """The model and its tokenizer; a copy that later runs load faster stays in pytest's cache folder."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    cache = getattr(request.config, "cache", None)  # absent under -p no:cacheprovider
    return load(None if cache is None else cache.mkdir("smollm2"))
