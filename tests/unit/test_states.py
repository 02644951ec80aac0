"""States: which shapes are known and how they move, what stays, and what stands in the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, cache_utils
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from padfix.generation import states
from padfix.generation.call import GenerateCall, bind
from padfix.generation.states import STATES, Columns, states_bound, states_to_caller
from padfix.layout.plan import LayoutPlan

# Two rows of 4 columns, of which the model sees 3: [a, b, c] and [pad, d, e].
MASK = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0]])
PLAN = LayoutPlan.from_mask(MASK)
REAL = MASK.bool()


def columns(*, added: int = 0, cached: int = 0, windows: tuple[int, ...] = (), is_static: bool = False) -> Columns:
    return Columns(PLAN, added, cached, frozenset(windows), is_static)


def values(*shape: int) -> Tensor:
    """No two cells alike, and none 0."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def moved(name: str, *layers: Tensor | None, steps: int = 1, **how: Any) -> Any:
    """The last of `steps` steps in the caller's layout, where those before it have no layer; None where unknown."""
    output_class: Any = (
        GenerateDecoderOnlyOutput if name in ("hidden_states", "attentions") else GenerateEncoderDecoderOutput
    )
    given = output_class(sequences=torch.zeros(2, 1), **{name: ((None,),) * (steps - 1) + (layers,)})
    changes = states_to_caller(given, columns(**how))
    assert list(changes) == [name]
    return None if changes[name] is None else changes[name][-1]


def test_hidden_states_of_the_prefill_stand_where_the_callers_tokens_stand() -> None:
    x = values(2, 3, 5)
    [got] = moved("hidden_states", x)
    assert got.shape == (2, 4, 5)
    assert torch.equal(got[0, REAL[0]], x[0])
    assert torch.equal(got[1, REAL[1]], x[1, 1:])
    assert not got[~REAL].any()


@pytest.mark.parametrize("step", [1, 2])
def test_hidden_state_of_a_new_token_is_itself_and_without_a_cache_follows_the_prompt(step: int) -> None:
    one, whole = values(2, 1, 5), values(2, 3 + step, 5)
    same, longer = moved("decoder_hidden_states", one, whole, steps=step + 1)
    assert same is one
    assert torch.equal(longer[:, :4], moved("hidden_states", whole[:, :3])[0])
    assert torch.equal(longer[:, 4:], whole[:, 3:])


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_rows_are_repeated_for_beams_each_prompts_in_turn(copies: int) -> None:
    x = values(2 * copies, 3, 5)
    [got] = moved("hidden_states", x)
    for row in range(2 * copies):
        prompt = row // copies
        assert torch.equal(got[row, REAL[prompt]], x[row, -int(REAL[prompt].sum()) :])
        assert not got[row, ~REAL[prompt]].any()


def test_attention_moves_on_both_axes() -> None:
    x = values(2, 2, 3, 3)
    [got] = moved("attentions", x)
    assert got.shape == (2, 2, 4, 4)
    for row, lengths in ((0, 3), (1, 2)):
        cells = REAL[row][:, None] & REAL[row]
        assert torch.equal(got[row][:, cells], x[row, :, -lengths:, -lengths:].flatten(1))
        assert not got[row][:, ~cells].any()


def test_attention_of_a_new_token_moves_on_the_keys_alone() -> None:
    x = values(2, 2, 1, 5)
    [got] = moved("decoder_attentions", x, steps=3)
    assert got.shape == (2, 2, 1, 6)
    keys = torch.cat((REAL, torch.ones(2, 2, dtype=torch.bool)), 1)
    assert torch.equal(got[0][..., keys[0]], x[0])
    assert torch.equal(got[1][..., keys[1]], x[1, ..., 1:])
    assert not got[1][..., ~keys[1]].any()


def test_sliding_layer_has_the_last_columns() -> None:
    x = values(2, 2, 1, 2)
    [got] = moved("attentions", x, steps=2, windows=(2,))
    assert got[:, 0, 0].tolist() == [[0, 0, 0, 1, 2], [0, 5, 0, 0, 6]]


def test_static_cache_has_columns_for_what_is_to_come() -> None:
    x = values(2, 1, 1, 6)
    [got] = moved("attentions", x, steps=2, is_static=True)
    assert got[:, 0, 0].tolist() == [[1, 0, 2, 3, 4, 5, 6], [8, 9, 0, 0, 10, 11, 12]]


def test_columns_before_the_prompt_stay_in_front() -> None:
    [hidden] = moved("decoder_hidden_states", values(2, 4, 1), added=1)
    assert hidden[..., 0].tolist() == [[1, 2, 0, 3, 4], [5, 7, 8, 0, 0]]
    [attention] = moved("decoder_attentions", values(2, 1, 1, 5), steps=2, added=1)
    assert attention[:, 0, 0].tolist() == [[1, 2, 0, 3, 4, 5], [6, 8, 9, 0, 0, 10]]


def test_columns_in_a_cache_are_keys_alone() -> None:
    x = values(2, 1, 3, 5)
    [got] = moved("attentions", x, cached=2)
    assert got.shape == (2, 1, 4, 6)
    assert torch.equal(
        got[..., :2], torch.stack([x[0, :, [0, 0, 1, 2]], x[1, :, [1, 2, 0, 0]]])[..., :2] * (got[..., :1] != 0)
    )
    assert torch.equal(got[..., 2:], moved("attentions", x[..., 2:])[0])
    [one] = moved("attentions", values(2, 1, 1, 6), steps=2, cached=2)
    assert one[:, 0, 0].tolist() == [[1, 2, 3, 0, 4, 5, 6], [7, 8, 10, 11, 0, 0, 12]]


def test_cross_attention_moves_on_the_queries_alone() -> None:
    x = values(2, 2, 3, 7)
    [got] = moved("cross_attentions", x)
    assert got.shape == (2, 2, 4, 7)
    assert torch.equal(got[0][:, REAL[0]], x[0])
    assert torch.equal(got[1][:, REAL[1]], x[1, :, 1:])
    assert not got[1][:, ~REAL[1]].any()


def test_layers_and_steps_that_are_none_stay() -> None:
    none, layer = moved("attentions", None, values(2, 2, 3, 3))
    assert none is None
    assert layer is not None
    output: Any = GenerateDecoderOnlyOutput
    changes = states_to_caller(output(sequences=None, hidden_states=(None, None), attentions=()), columns())
    assert changes == {"hidden_states": (None, None), "attentions": ()}


def test_what_is_not_there_is_not_among_the_changes() -> None:
    output: Any = GenerateDecoderOnlyOutput
    assert states_to_caller(output(sequences=torch.zeros(2, 3)), columns()) == {}
    assert set(STATES) == {
        "hidden_states",
        "attentions",
        "decoder_hidden_states",
        "decoder_attentions",
        "cross_attentions",
    }


@pytest.mark.parametrize(
    ("name", "shape", "step", "how"),
    [
        ("hidden_states", (2, 3), 0, {}),
        ("hidden_states", (2, 3, 5, 1), 0, {}),
        ("hidden_states", (3, 3, 5), 0, {}),  # rows that are nobody's
        ("hidden_states", (2, 4, 5), 0, {}),
        ("hidden_states", (2, 1, 5), 0, {}),  # the last chunk of a prefill
        ("hidden_states", (2, 2, 5), 2, {}),  # several tokens a step
        ("hidden_states", (2, 3, 5), 1, {}),
        ("attentions", (2, 3, 5), 0, {}),
        ("attentions", (2, 2, 3, 4), 0, {}),  # a prefix that nothing tells of
        ("attentions", (2, 2, 1, 2), 1, {}),
        ("attentions", (2, 2, 1, 2), 1, {"windows": (3,)}),
        ("attentions", (2, 2, 3, 2), 0, {"windows": (2,)}),
        ("attentions", (2, 2, 2, 4), 1, {}),
        ("cross_attentions", (2, 2, 2, 7), 1, {}),
        ("cross_attentions", (2, 3, 7), 0, {}),
    ],
)
def test_what_has_no_known_shape_is_left_out(name: str, shape: tuple[int, ...], step: int, how: Any) -> None:
    assert moved(name, values(*shape), steps=step + 1, **how) is None


@pytest.mark.parametrize("layers", [torch.zeros(2, 3, 5), ("a",), ((None,),)])
def test_what_is_no_tuple_of_tensors_is_left_out(layers: Any) -> None:
    output: Any = GenerateDecoderOnlyOutput
    assert states_to_caller(output(sequences=None, hidden_states=(layers,)), columns()) == {"hidden_states": None}


# What stands in the way

BOTH = ("output_hidden_states", "output_attentions")


def call(config: Any = None, **arguments: Any) -> GenerateCall:
    ids = torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]])
    config = SimpleNamespace(**{"is_encoder_decoder": False, **(config or {})})
    made = bind(SimpleNamespace(config=config), (), {"input_ids": ids, "attention_mask": MASK, **arguments})
    assert made is not None
    return made


def bound(fields: dict[str, Any], config: Any = None, **arguments: Any) -> list[str]:
    made = GenerationConfig()
    for name, value in {"return_dict_in_generate": True, **dict.fromkeys(BOTH, True), **fields}.items():
        setattr(made, name, value)
    return list(states_bound(call(config, **arguments), made))


def test_hidden_states_and_attentions_by_themselves_are_no_obstacle() -> None:
    assert bound({}) == []


def test_prefill_in_chunks_is_named_where_it_has_several() -> None:
    because = "with prefill_chunk_size=3 (what comes back is that of the last chunk)"
    assert bound({"prefill_chunk_size": 3}) == [f"{name}=True {because}" for name in BOTH]
    assert bound({"prefill_chunk_size": 4}) == bound({"prefill_chunk_size": None}) == []


@pytest.mark.parametrize("loop", states.ONE_PROMPT_LOOPS)
def test_loop_with_several_tokens_a_step_is_named(loop: str) -> None:
    named = [f"{name}=True with {loop}= (a step holds several tokens)" for name in BOTH]
    assert bound({loop: 2}) == bound({}, **{loop: 2}) == named
    assert bound({loop: 2, "return_dict_in_generate": False}) == []
    assert bound({loop: 2, **dict.fromkeys(BOTH, False)}) == []


def test_attention_to_pictures_is_named() -> None:
    layers = {"cross_attention_layers": [3]}
    assert bound({}, layers) == ["output_attentions=True (SimpleNamespace has layers that attend to pictures)"]
    assert bound({"output_attentions": False}, layers) == []


class HybridCache: ...


class StaticCache: ...


@pytest.mark.parametrize("window", ["sliding_window", "attention_chunk_size"])
def test_static_cache_of_a_sliding_layer_is_named_in_releases_that_lose_columns(
    window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hybrid = {"cache_implementation": "hybrid"}
    monkeypatch.delattr(cache_utils, "StaticSlidingWindowLayer", raising=False)
    named = ["output_attentions=True with a static cache (its sliding layers lose columns in this release)"]
    assert bound(hybrid, {window: 4}) == bound({}, {window: 4}, past_key_values=HybridCache()) == named
    assert bound(hybrid) == bound(hybrid, {window: None}) == bound({}, {window: 4}) == []
    assert bound({"cache_implementation": "static"}, {window: 4}) == []
    assert bound({}, {window: 4}, past_key_values=StaticCache()) == []
    monkeypatch.setattr(cache_utils, "StaticSlidingWindowLayer", object, raising=False)
    assert bound(hybrid, {window: 4}) == []
