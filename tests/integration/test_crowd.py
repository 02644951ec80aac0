"""A crowd of threads on shared models, while padfix comes and goes: each call gets what it gets by itself.

A short one in every run; the marker `soak` has 32 threads with 50 jobs each, and one that runs for SOAK_SECONDS.
"""

from __future__ import annotations

import os
from itertools import combinations

import pytest
from crowd import JOBS, Crowd, is_same

both = pytest.mark.parametrize("changing", [False, True], ids=["installed", "coming and going"])


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    """A crowd that knows two states of padfix."""
    return Crowd((None, "fix"))


@pytest.fixture(scope="module")
def whole_crowd() -> Crowd:
    """A crowd that knows every state of padfix."""
    return Crowd()


def test_results_tell_padfix_from_transformers_and_one_job_from_another(crowd: Crowd) -> None:
    alike = {name for name, by_mode in crowd.alone.items() if is_same(by_mode["fix"], by_mode[None])}
    assert alike == {"left", "unpadded", "unpadded beams", "fails", "suppressed", "warn"}
    assert {name for name, by_mode in crowd.alone.items() if by_mode["fix"].error} == {"fails", "strict"}
    assert not [pair for pair in combinations(JOBS, 2) if is_same(*(crowd.alone[name]["fix"] for name in pair))]
    others = {name for name, result in crowd.direct.items() if not is_same(result, crowd.alone[name]["fix"])}
    assert others == {"suppressed"}  # which padfix.generate takes no notice of


@both
def test_each_call_of_a_crowd_gets_what_it_gets_alone(crowd: Crowd, changing: bool) -> None:
    crowd.run(threads=8, calls=6, changing=changing)


@pytest.mark.soak
@both
def test_32_threads_get_what_each_call_gets_alone(whole_crowd: Crowd, changing: bool) -> None:
    whole_crowd.run(threads=32, calls=50, changing=changing)


@pytest.mark.soak
def test_soak(whole_crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the time with padfix installed, half with it coming and going."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    made = whole_crowd.made
    for changing in (False, True):
        whole_crowd.run(threads=32, seconds=seconds / 2, changing=changing)
    with capsys.disabled():
        done = whole_crowd.made - made
        print(f"\n{done} jobs by 32 threads in {seconds:.0f} s; padfix changed {whole_crowd.changes} times meanwhile")
