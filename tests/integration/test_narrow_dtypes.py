"""bfloat16 and float16 on the CPU: rows whose first cells see no key give numbers, and each what it gets alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from facts import CACHE_FIELD, RELEASE
from oracle import PADDERS, ROWS, alone, build, together

import padfix
from padfix.generation.columns import slots
from padfix.generation.exceptions import PACKABLE

pytestmark = [
    pytest.mark.usefixtures("installed"),
    pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning"),
]

PACKS = pytest.mark.skipif(PACKABLE["LlamaForCausalLM"] > RELEASE, reason="this release packs nothing")
NARROW = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@pytest.mark.parametrize(
    ("name", "attention", "strategy"),
    [
        ("llama", "sdpa", "auto"),
        pytest.param("llama", "eager", "packed_prefill", marks=PACKS),
        pytest.param("llama", "sdpa", "packed_prefill", marks=PACKS),
        ("mistral", "sdpa", "auto"),
        ("mistral", "eager", "auto"),
        ("gpt2", "sdpa", "auto"),
        ("bloom", "eager", "auto"),
    ],
)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_numbers_are_numbers_and_those_of_the_prompt_alone(
    name: str, dtype: torch.dtype, attention: str, strategy: str
) -> None:
    model = build(name, attn_implementation=attention).to(dtype)
    expected = alone(model, ROWS, max_new_tokens=1)
    scale = max(float(one.logits.abs().max()) for one in expected if one.logits is not None)
    for side in ("left", "holes"):
        batch = PADDERS[side](ROWS, extra=3)
        with padfix.override("fix", strategy=strategy):
            got = together(model, batch, max_new_tokens=1)
        for one, other in zip(got, expected, strict=True):
            assert one.logits is not None
            assert other.logits is not None
            assert bool(one.logits.isfinite().all())
            # What rounding of the inputs alone can make of the logits, in two layers of a few operations each.
            assert float((one.logits - other.logits).abs().max()) <= 8 * NARROW[dtype] * scale


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_hidden_states_and_caches_of_real_cells_are_numbers(name: str, dtype: torch.dtype, attention: str) -> None:
    model: Any = build(name, attn_implementation=attention).to(dtype)
    for side in ("left", "holes"):
        batch = PADDERS[side](ROWS, extra=3)
        output = model.generate(
            **batch, do_sample=False, max_new_tokens=1, return_dict_in_generate=True, output_hidden_states=True
        )
        real = batch["attention_mask"].bool()
        for layer in output.hidden_states[0]:
            assert bool(layer[real].isfinite().all())
        cache = getattr(output, CACHE_FIELD)
        states = [] if cache is None else [holder[key].transpose(1, 2) for holder, key in slots(cache)]
        assert (
            states or name == "mistral" or isinstance(cache, tuple)
        )  # a full window's is None, tuples are of old releases
        for one in states:
            assert bool(one[real[:, real.shape[1] - one.shape[1] :]].isfinite().all())
