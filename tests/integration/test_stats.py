"""`padfix.stats()` after calls of each kind."""

from __future__ import annotations

import pytest
from oracle import GREEDY, ROWS, build, left_padded, right_padded

import padfix


@pytest.mark.usefixtures("installed")
def test_calls_are_counted_by_what_was_done() -> None:
    model, right, left = build("llama"), right_padded(ROWS), left_padded(ROWS)
    pads = int((right["attention_mask"] == 0).sum())
    model.generate(left["input_ids"][:1, -1:], **GREEDY)  # no pad
    model.generate(**right, **GREEDY)
    model.generate(**right_padded(ROWS, extra=3), **GREEDY)  # three columns of pads, and as many more in each row
    model.generate(**left, **GREEDY)  # right as it is
    model.generate(**left, **GREEDY, no_repeat_ngram_size=2)
    with padfix.override(strategy="equal_length"):
        model.generate(**right, **GREEDY)
    model.generate(**left, **GREEDY, max_length=3)  # transformers ignores it beside max_new_tokens
    with padfix.suppressed():
        model.generate(**right, **GREEDY)
    found = padfix.stats()
    assert (found.calls, found.padded, found.repaired, found.refused, found.warnings) == (7, 6, 4, 0, 0)
    assert found.strategies == {"left_pad": 3, "equal_length": 1}
    assert found.pads == 4 * pads + 3 * len(ROWS)
    assert found.columns == 3
    assert found.reasons == {}


@pytest.mark.usefixtures("installed")
def test_refusals_are_counted_by_their_reasons() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    with padfix.override("warn"), pytest.warns(padfix.PadfixWarning, match="Pad on the left"):
        model.generate(**batch, **GREEDY)
    with pytest.warns(padfix.PadfixWarning, match="values other than 0 and 1"):
        model.generate(batch["input_ids"], attention_mask=batch["attention_mask"] * 2, **GREEDY)
    found = padfix.stats()
    assert (found.padded, found.repaired, found.refused, found.warnings) == (2, 0, 2, 2)
    assert found.strategies == {}
    assert found.reasons == {"attention_mask= of shape (...) with values other than 0 and 1": 1}
