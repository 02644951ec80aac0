"""Hidden states and attentions of whole calls: what stays stock's own, what is left out, what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import transformers
from facts import CACHE_FIELD, RELEASE
from oracle import BOS, GREEDY, PADDERS, ROWS, assert_close, build, holed, left_padded, right_padded
from stock import CACHE_IS_NONE, expected
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput

import padfix
from padfix import PadfixWarning, UnsupportedCallError

pytestmark = [pytest.mark.usefixtures("installed"), CACHE_IS_NONE]

STATES: dict[str, Any] = {
    "return_dict_in_generate": True,
    "output_hidden_states": True,
    "output_attentions": True,
    **GREEDY,
}


def eager(name: str) -> Any:
    return build(name, attn_implementation="eager")


def cells(name: str = "llama", row: int = 1, **more: Any) -> Any:
    """The output for one prompt alone."""
    with padfix.suppressed():
        return eager(name).generate(**right_padded([ROWS[row]]), **STATES | more)


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What transformers' own method gives from now on."""
    padfix.uninstall()
    original, outputs = GenerationMixin.generate, list[Any]()

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs.append(original(self, *args, **kwargs))
        return outputs[-1]

    monkeypatch.setattr(GenerationMixin, "generate", spy)
    padfix.install("fix")
    return outputs


@pytest.mark.parametrize("pad", [0, 104], ids=["as it is", "ids under pads replaced"])
def test_a_left_padded_batch_keeps_stocks_own_objects(pad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = _spied(monkeypatch)
    output = eager("mistral").generate(**left_padded(ROWS, pad=pad), **STATES)
    assert output.hidden_states is outputs[0].hidden_states
    assert output.attentions is outputs[0].attentions
    assert output.hidden_states[0][1][1, 0].any()  # a pad's, which nobody reads


@pytest.mark.parametrize("beams", [{}, {"num_beams": 2}], ids=["greedy", "beams"])
def test_class_and_order_of_the_fields_stay(beams: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = _spied(monkeypatch)
    output = eager("llama").generate(**right_padded(ROWS), **STATES, **beams, output_scores=True)
    assert type(output) is type(outputs[0])
    assert list(output.keys()) == list(outputs[0].keys())
    for name in ("hidden_states", "attentions"):
        assert type(getattr(output, name)) is type(getattr(output, name)[0]) is tuple


@pytest.mark.filterwarnings("ignore:`return_dict_in_generate` is NOT set:UserWarning")
@pytest.mark.parametrize("where", ["keyword", "passed", "own", "the model's configuration"])
def test_wherever_they_are_asked_for_they_come_back_in_the_callers_layout(where: str) -> None:
    asked = {"output_hidden_states": True}
    model = build("llama", **asked) if where.startswith("the model's") else build("llama")
    arguments: dict[str, Any] = {"return_dict_in_generate": True, **GREEDY}
    if where == "keyword":
        arguments |= asked
    elif where == "passed":
        arguments = {"generation_config": GenerationConfig(**arguments, **asked, pad_token_id=0)}
    elif where == "own":
        model.generation_config.output_hidden_states = True
    output = model.generate(**right_padded(ROWS), **arguments)
    single = cells()
    for layer, alone in zip(output.hidden_states[0], single.hidden_states[0], strict=True):
        assert_close(layer[1:2, : len(ROWS[1])], alone)
        assert not layer[1, len(ROWS[1]) :].any()


def test_a_sliding_layer_has_all_columns_and_0_before_its_window() -> None:
    """As without a cache, where transformers itself gives all columns."""
    batch, window = holed(ROWS), 4
    output = eager("mistral").generate(**batch, **STATES)
    for row, real in enumerate(batch["attention_mask"].bool()):
        whole = cells("mistral", row, use_cache=False).attentions
        for step in range(1, len(whole)):
            keys = torch.cat((real, torch.ones(step, dtype=torch.bool)))
            for layer, alone in zip(output.attentions[step], whole[step], strict=True):
                assert_close(layer[row, :, 0, keys], alone[0, :, -1])
                assert not layer[row][..., ~keys].any()
                assert not layer[row][..., keys][..., :-window].any()


# A turn of a chat that goes on from a cache

NEW = [[7, 8, 9], [10], [12, 13]]


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("brings", ["whole sequences", "new tokens alone"])
def test_a_turn_has_the_hidden_states_of_its_own_tokens_and_attention_to_all(brings: str, side: str) -> None:
    if brings == "new tokens alone" and RELEASE < (5, 24):
        pytest.skip("older releases want the whole sequences")
    model, first, second = eager("llama"), right_padded(ROWS), PADDERS[side](NEW, extra=1)
    model.generation_config.eos_token_id = None
    turn = model.generate(**first, **STATES, **{CACHE_FIELD: transformers.DynamicCache()})
    cache = getattr(turn, CACHE_FIELD)
    cached, ids = cache.get_seq_length(), torch.cat((turn.sequences, second["input_ids"]), 1)
    mask = torch.cat(
        (first["attention_mask"], torch.ones(3, GREEDY["max_new_tokens"]).long(), second["attention_mask"]), 1
    )
    fed = ids if brings == "whole sequences" else ids[:, cached:]
    output = model.generate(fed, attention_mask=mask, **{CACHE_FIELD: cache}, **STATES)
    for row, real in enumerate(mask.bool()):
        prompt, news = ids[row][real], real[cached:]
        with padfix.suppressed():
            single = model.generate(prompt[None], attention_mask=torch.ones(1, len(prompt)).long(), **STATES)
        for layer, alone in zip(output.hidden_states[0], single.hidden_states[0], strict=True):
            assert_close(layer[row][news], alone[0, -int(news.sum()) :])
            assert not layer[row][~news].any()
        for step, (layers, singles) in enumerate(zip(output.attentions, single.attentions, strict=True)):
            keys = torch.cat((real, torch.ones(step, dtype=torch.bool)))
            for layer, alone in zip(layers, singles, strict=True):
                cells = layer[row] if step else layer[row][:, news]
                assert_close(cells[..., keys], alone[0, :, -cells.shape[1] :])
                assert not layer[row][..., ~keys].any()


# Rows of one length apart


def test_rows_that_ended_earlier_have_0() -> None:
    model, batch = eager("blenderbot"), right_padded(ROWS)
    replies = [one.tokens for one in expected("blenderbot")]
    output = model.generate(**batch, **STATES, eos_token_id=replies[1][0], pad_token_id=57)
    ended = output.sequences[1, batch["input_ids"].shape[1] :].tolist()
    assert ended[0] == replies[1][0]
    assert set(ended[1:]) == {57}
    for step in range(1, len(ended)):
        for name in ("hidden_states", "attentions"):
            for layer in getattr(output, name)[step]:
                assert not layer[1].any()
                assert layer[0].any()


def _encoder_inputs() -> dict[str, Tensor]:
    return {"input_ids": torch.tensor([[4, 9, 16, 25], [36, 49, 64, 81], [7, 11, 13, 17]])}


@pytest.mark.parametrize("passed", [False, True], ids=["ids", "encoder_outputs"])
def test_what_the_encoder_gave_is_joined_in_the_callers_order(passed: bool) -> None:
    model, batch, encoder = eager("bart"), right_padded(ROWS), _encoder_inputs()
    encoded = model.get_encoder()(**encoder, output_hidden_states=True, output_attentions=True)
    inputs = {"encoder_outputs": BaseModelOutput(**encoded)} if passed else encoder
    prompts = {"decoder_input_ids": batch["input_ids"], "decoder_attention_mask": batch["attention_mask"]}
    output = model.generate(**inputs, **prompts, **STATES)
    for name, wanted in (("hidden_states", encoded.hidden_states), ("attentions", encoded.attentions)):
        got = getattr(output, f"encoder_{name}")
        assert len(got) == len(wanted) > 0
        for layer, one in zip(got, wanted, strict=True):
            assert_close(layer, one)
    added = int(output.sequences[0, 0] == BOS)
    for layer in output.cross_attentions[0]:
        assert layer.shape[2:] == (added + batch["input_ids"].shape[1], 4)
        assert layer[0].all()
        assert not layer[1, :, added + len(ROWS[1]) :].any()


# What is left out, and what is refused


class Stretched(transformers.LlamaForCausalLM):
    """A model whose hidden states are not one a token."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.hidden_states = output.hidden_states and tuple(
            layer.repeat_interleave(2, 1) for layer in output.hidden_states
        )
        return output


@pytest.mark.parametrize("strategy", ["left_pad", "equal_length"])
def test_what_has_no_known_shape_is_left_out_and_said_once(strategy: str) -> None:
    model = eager("llama")
    model.__class__ = Stretched
    words = "the field hidden_states of this output is None: its tensors have none of the shapes"
    with padfix.override(strategy=strategy), pytest.warns(PadfixWarning, match=words) as said:
        output = model.generate(**right_padded(ROWS), **STATES)
    assert sum(words in str(one.message) for one in said) == 1
    assert "hidden_states" not in output
    assert output.attentions is not None
    assert output.sequences[:, 7:].tolist() == [[*one.tokens] for one in expected("llama")]


def test_layers_and_steps_that_are_none_stay_none() -> None:
    class Sparse(transformers.LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.attentions = output.attentions and (None, output.attentions[1])
            output.hidden_states = None
            return output

    model = eager("llama")
    model.__class__ = Sparse
    output = model.generate(**right_padded(ROWS), **STATES)
    assert output.hidden_states == (None,) * GREEDY["max_new_tokens"]
    assert all(first is None for first, _ in output.attentions)
    assert_close(output.attentions[0][1][1:2, :, :3, :3], cells().attentions[0][1])


# Older releases have no prefill in chunks, compile it or raise.
HAS_CHUNKS = RELEASE >= (5, 24)
REFUSED: Mapping[str, tuple[Mapping[str, Any], list[list[int]], str]] = {
    "prompt lookup": (
        {"prompt_lookup_num_tokens": 3},
        [ROWS[0]],
        r"output_\w+=True with prompt_lookup_num_tokens= \(a step",
    ),
}
if HAS_CHUNKS:
    REFUSED = {
        **REFUSED,
        "a prefill in chunks": (
            {"prefill_chunk_size": 3},
            ROWS,
            r"output_\w+=True with prefill_chunk_size=3 \(what comes back",
        ),
    }


@pytest.mark.parametrize("name", REFUSED)
def test_what_comes_back_of_several_tokens_a_step_is_refused_by_name(name: str) -> None:
    flags, rows, words = REFUSED[name]
    batch, model = right_padded(rows, extra=1), eager("llama")
    with pytest.warns(PadfixWarning, match=words):
        output = model.generate(**batch, **STATES, **flags)
    with padfix.suppressed():
        stock = model.generate(**batch, **STATES, **flags)
    for one, other in zip(output.hidden_states, stock.hidden_states, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.skipif(not HAS_CHUNKS, reason="older releases raise, or compile it")
def test_rows_apart_are_refused_in_strict_mode_likewise() -> None:
    batch, words = left_padded(ROWS), "output_hidden_states=True with prefill_chunk_size=3"
    with padfix.override("strict"), pytest.raises(UnsupportedCallError, match=words):
        eager("blenderbot").generate(**batch, **STATES, prefill_chunk_size=3)


@pytest.mark.skipif(not HAS_CHUNKS, reason="older releases raise, or compile it")
def test_a_chunk_that_holds_the_whole_prompt_is_no_obstacle() -> None:
    output = eager("llama").generate(**right_padded(ROWS), **STATES, prefill_chunk_size=7)
    single = cells(prefill_chunk_size=7)
    for layer, alone in zip(output.hidden_states[0], single.hidden_states[0], strict=True):
        assert_close(layer[1:2, : len(ROWS[1])], alone)
