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
from padfix.generation.columns import columns_of
from padfix.generation.configs import windows
from padfix.generation.exceptions import PACKABLE, SLIDING
from padfix.strategies import packed_prefill

from .test_text import told_apart
from .text import CAUSAL, PAD, Case, cases, class_of, model_of, prompts_for

FAST = {"LlamaForCausalLM", "GPTNeoXForCausalLM", "MixtralForCausalLM"}
# Without their last tokens they fill three rows, the last of which holds three of them and two empty cells.
LENGTHS = (12, 7, 3, 1, 12, 2)
# Wider than any prompt here: within its window a sliding layer sees what a full one does. And a narrow one.
WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")
WIDE, NARROW = 64, 4

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::padfix.PadfixWarning"),
    pytest.mark.filterwarnings("ignore:the field .* of this output is None"),  # the cache of a full window
]


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many columns each call has found in its cache since."""
    found: list[int] = []
    poured = cache.poured

    def counted(*arguments: Any) -> Any:
        filled = poured(*arguments)
        found.append(columns_of(filled))
        return filled

    monkeypatch.setattr(packed_prefill, "poured", counted)
    padfix.install("fix", strategy="packed_prefill")
    yield found
    padfix.uninstall()


def _with_window(case: Case, size: int) -> Case:
    named = inspect.signature(class_of(case).config_class.__init__).parameters
    return replace(case, config={**case.config, **{name: size for name in WINDOWS if name in named}})


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("window", [WIDE, NARROW])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in FAST else [pytest.mark.architectures])
        for case in cases(CAUSAL)
        if PACKABLE.get(case.class_name, (99, 0)) <= RELEASE
    ],
)
def test_prompts_that_share_a_row_get_what_they_get_alone(
    case: Case, window: int, attention: str, packed: list[int]
) -> None:
    case = _with_window(case, window)
    if attention == "sdpa" and not getattr(class_of(case), "_supports_sdpa", False):
        pytest.skip("it has no such attention")
    model = model_of(replace(case, config={**case.config, "attn_implementation": attention}))
    assert model.config._attn_implementation == attention
    if window == NARROW and not windows(model):
        pytest.skip("it has no window")
    if window == NARROW and case.class_name not in SLIDING:
        with pytest.raises(padfix.SettingsError, match="what its layers make of the window in its configuration"):
            together(model, right_padded(prompts_for(model, lengths=LENGTHS), pad=PAD))
        return
    rows = prompts_for(model, lengths=LENGTHS)
    expected = told_apart(alone(model, rows, distinct=False))
    compare(together(model, right_padded(rows, pad=PAD)), expected)
    compare(together(model, left_padded(rows, pad=PAD, extra=1)), expected)
    beams: dict[str, Any] = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4}
    compare(together(model, right_padded(rows, pad=PAD), **beams), alone(model, rows, distinct=False, **beams))
    assert packed == [11, 12, 11]


def test_table_names_classes_that_are_there() -> None:
    if RELEASE >= (5, 24):
        assert set(PACKABLE) >= SLIDING
        assert set(PACKABLE) <= {case.class_name for case in cases(CAUSAL)}
