"""Every class that padfix packs: prompts that share a row in the prefill get what they get alone."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from facts import RELEASE
from oracle import alone, compare, left_padded, right_padded, together

import padfix
from padfix.generation import cache
from padfix.generation.exceptions import PACKABLE
from padfix.strategies import packed_prefill

from .test_text import told_apart
from .text import CAUSAL, PAD, Case, cases, class_of, model_of, prompts_for

FAST = {"LlamaForCausalLM", "GPTNeoXForCausalLM", "MixtralForCausalLM"}
# Without their last tokens they fill three rows, the last of which holds three of them and two empty cells.
LENGTHS = (12, 7, 3, 1, 12, 2)
# Wider than any prompt here: within its window a sliding layer sees what a full one does.
WIDE = dict.fromkeys(("sliding_window", "attention_chunk_size", "window_size"), 64)

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("error::padfix.PadfixWarning")]


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many columns each call has found in its cache since."""
    found: list[int] = []
    refill = cache.refill

    def counted(filled: Any, columns: int, change: Any) -> None:
        found.append(columns)
        refill(filled, columns, change)

    monkeypatch.setattr(packed_prefill, "refill", counted)
    padfix.install("fix", strategy="packed_prefill")
    yield found
    padfix.uninstall()


def _with_wide_window(case: Case) -> Case:
    named = inspect.signature(class_of(case).config_class.__init__).parameters
    return replace(case, config={**case.config, **{name: size for name, size in WIDE.items() if name in named}})


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in FAST else [pytest.mark.architectures])
        for case in cases(CAUSAL)
        if PACKABLE.get(case.class_name, (99, 0)) <= RELEASE
    ],
)
def test_prompts_that_share_a_row_get_what_they_get_alone(case: Case, attention: str, packed: list[int]) -> None:
    case = _with_wide_window(case)
    if attention == "sdpa" and not getattr(class_of(case), "_supports_sdpa", False):
        pytest.skip("it has no such attention")
    model = model_of(replace(case, config={**case.config, "attn_implementation": attention}))
    assert model.config._attn_implementation == attention
    rows = prompts_for(model, lengths=LENGTHS)
    expected = told_apart(alone(model, rows, distinct=False))
    compare(together(model, right_padded(rows, pad=PAD)), expected)
    compare(together(model, left_padded(rows, pad=PAD, extra=1)), expected)
    beams: dict[str, Any] = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4}
    compare(together(model, right_padded(rows, pad=PAD), **beams), alone(model, rows, distinct=False, **beams))
    assert packed == [11, 12, 11]


def test_table_names_classes_that_are_there() -> None:
    if RELEASE >= (5, 24):
        assert set(PACKABLE) <= {case.class_name for case in cases(CAUSAL)}
