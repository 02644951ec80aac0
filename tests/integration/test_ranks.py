"""Two ranks with batches of their own: as many forwards on each, and every row as its prompt alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import ROWS, build, check, right_padded
from ranks import CASES, FULL, PAD, RAGGED

import padfix
from padfix.strategies import packed_prefill

pytestmark = pytest.mark.integrations

HERE = Path(__file__).parent
LIMIT = 150  # seconds
STEPS = 6  # new tokens of every call
# Cases in which a rank may run more forwards than another, since none waits for the other.
APART = {"ddp, not exact"}
TRIED = "stands in no table of padfix, and cannot be tried out here: ranks have to run the same number of forwards"
REFUSED = "synced_gpus (every rank has to run the same number of forwards)"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """The folder with what the ranks wrote, the exit status of torchrun, and what it printed."""
    folder = tmp_path_factory.mktemp("ranks")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = [str(HERE), str(HERE.parent), str(Path(padfix.__file__).parents[1])]
    process = subprocess.Popen(
        [*words, str(HERE / "ranks.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks
        printed, _ = process.communicate()
    return folder, process.returncode, printed


def told(ran: tuple[Path, int, str], name: str) -> list[dict[str, Any]]:
    """What each rank wrote of a case."""
    folder, _, printed = ran
    paths = [folder / f"{name}-{rank}.json" for rank in range(2)]
    missing = [path.stem for path in paths if not path.exists()]
    assert not missing, f"a rank hung or stopped before {missing}: {printed[-3000:]}"
    return [json.loads(path.read_text()) for path in paths]


@pytest.mark.parametrize("name", CASES)
def test_ranks_run_the_same_number_of_forwards_and_every_row_is_right(ran: Any, name: str) -> None:
    ranks = told(ran, name)
    forwards = [rank["forwards"] for rank in ranks]
    chunks = 2 if name == "chunks" else 0  # 12 columns, 4 at a time
    assert forwards[0] == forwards[1] == STEPS + chunks or name in APART
    assert [not rank["wrong"] for rank in ranks] == list(CASES[name].exact), [rank["wrong"] for rank in ranks]
    for rank, exact in zip(ranks, CASES[name].exact, strict=True):  # never silently wrong
        assert exact or any(REFUSED in one for one in rank["warnings"])


def test_an_unknown_class_is_not_tried_out(ran: Any) -> None:
    first, second = told(ran, "unknown class")
    assert [TRIED in one for one in first["warnings"]] == [True]
    assert second["warnings"] == []


def test_packing_is_left_out_where_one_rank_would_pack(ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = told(ran, "worth packing, full")
    assert (first["strategies"], second["strategies"]) == (["left_pad"], [])
    monkeypatch.setattr(packed_prefill, "fewest_saved", lambda *_: 1)
    padfix.install("fix")
    before = padfix.stats().strategies.get("packed_prefill", 0)
    check(build("llama"), right_padded(RAGGED, pad=PAD), RAGGED, pad_token_id=PAD)
    assert padfix.stats().strategies.get("packed_prefill", 0) == before + 1


def test_rows_run_apart_where_no_rank_waits(ran: Any) -> None:
    first, second = told(ran, "ddp, not exact")
    assert first["strategies"] == ["equal_length"]
    assert first["forwards"] == STEPS * len(set(map(len, ROWS)))
    assert second["forwards"] == STEPS * len(set(map(len, FULL)))


@pytest.mark.parametrize(("strategy", "calls"), [("left_pad", 1), ("equal_length", 10)])
def test_tensor_parallel_model_is_exact(ran: Any, strategy: str, calls: int) -> None:
    for rank in told(ran, f"tensor parallel, {strategy}"):
        assert rank["share"] < 0.6
        assert rank["strategies"] == [strategy]
        assert rank["forwards"] >= calls
        assert rank["wrong"] == ""
    assert len({rank["forwards"] for rank in told(ran, f"tensor parallel, {strategy}")}) == 1


def test_error_of_one_rank_ends_the_others(ran: Any) -> None:
    _, status, printed = ran
    told(ran, "strict")
    assert status == 1
    assert "padfix.errors.RightPaddingError: Rows 1, 2 of input_ids (shape (3, 7))" in printed
