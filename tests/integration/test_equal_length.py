"""Rows of one length apart: batches of models that left padding does not make right, against each prompt alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import transformers
from facts import CACHE_FIELD
from oracle import EOS, GREEDY, PADDERS, ROWS, alone, build, check, compare, is_there, right_padded, together

import padfix
from padfix import PadfixWarning, UnsupportedCallError

PAD = 57
# Two rows of one length, and others.
MORE = [*ROWS, [8, 90, 21], [64, 3, 19, 44, 27]]

pytestmark = [pytest.mark.filterwarnings("ignore:the field .* of this output is None")]


@pytest.fixture(autouse=True)
def repairing() -> Iterator[None]:
    padfix.install("fix")
    yield
    padfix.uninstall()


MODELS = [name for name in ("rwkv", "blenderbot") if is_there(name)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layout", PADDERS)
def test_every_row_gets_what_its_prompt_gets_alone(name: str, layout: str) -> None:
    check(build(name), PADDERS[layout](MORE, pad=PAD), MORE, pad_token_id=PAD)


@pytest.mark.parametrize("layout", ["right", "left"])
def test_beams_are_joined(layout: str) -> None:
    batch = PADDERS[layout](MORE, pad=PAD)
    beams: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2, "pad_token_id": PAD}
    model = build("blenderbot")
    check(model, batch, MORE, **beams)
    output = model.generate(**batch, **GREEDY, **beams, return_dict_in_generate=True, output_scores=True)
    transitions = model.compute_transition_scores(output.sequences, output.scores, output.beam_indices)
    for row, prompt in enumerate(MORE):
        with padfix.suppressed():
            single = model.generate(
                **right_padded([prompt]), **GREEDY, **beams, return_dict_in_generate=True, output_scores=True
            )
        expected = model.compute_transition_scores(single.sequences, single.scores, single.beam_indices)
        got = transitions[2 * row : 2 * row + 2, : expected.shape[1]]
        assert torch.allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("flags", [{"min_length": 9}, {"no_repeat_ngram_size": 1}, {"repetition_penalty": 2.0}])
def test_flags_are_exact(flags: Mapping[str, Any]) -> None:
    check(build("blenderbot"), right_padded(MORE, pad=PAD), MORE, pad_token_id=PAD, **flags)


def test_replies_that_end_are_padded_to_the_longest() -> None:
    model = build("blenderbot")
    first = alone(model, MORE)
    ends = [EOS, first[1].tokens[1]]
    batch = right_padded(MORE, pad=PAD)
    replies = together(model, batch, pad_token_id=PAD, eos_token_id=ends)
    compare(replies, alone(model, MORE, pad_token_id=PAD, eos_token_id=ends))
    assert len({len(reply.tokens) for reply in replies}) > 1
    plain = model.generate(**batch, **GREEDY, pad_token_id=PAD, eos_token_id=ends)
    assert plain.shape[1] == 7 + max(len(reply.tokens) for reply in replies)
    assert set(plain[1, 7 + len(replies[1].tokens) :].tolist()) <= {PAD}


def test_max_length_counts_the_callers_columns() -> None:
    model, batch = build("blenderbot"), right_padded(MORE, pad=PAD)
    output = model.generate(**batch, max_length=11, do_sample=False, pad_token_id=PAD)
    expected = alone(model, MORE, max_new_tokens=4)
    assert output[:, 7:].tolist() == [reply.tokens for reply in expected]


def test_prefix_function_is_told_the_prompts_own_number() -> None:
    seen: list[tuple[int, list[int]]] = []

    def allowed(prompt: int, ids: torch.Tensor) -> list[int]:
        seen.append((prompt, ids.tolist()))
        return [20 + prompt, 60 + prompt]

    batch = right_padded(MORE, pad=PAD)
    output = build("blenderbot").generate(**batch, **GREEDY, pad_token_id=PAD, prefix_allowed_tokens_fn=allowed)
    for row in range(len(MORE)):
        assert set(output[row, 7:].tolist()) <= {20 + row, 60 + row, EOS}  # its last one is forced
    for prompt, ids in seen:
        assert ids[:7] == batch["input_ids"][prompt].tolist()


class Counting:
    """A logits processor that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return scores


class Banning:
    """A logits processor without a state: bans a token."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        banned = scores.clone()
        banned[:, self.token] = -torch.inf
        return banned


def test_callback_of_the_callers_is_called_for_each_length() -> None:
    model, batch = build("blenderbot"), right_padded(MORE, pad=PAD)
    token = alone(model, MORE)[0].tokens[0]
    check(model, batch, MORE, pad_token_id=PAD, logits_processor=[Banning(token)])
    with pytest.warns(PadfixWarning, match="Counting keeps something from one call for the next"):
        model.generate(**batch, **GREEDY, pad_token_id=PAD, logits_processor=[Counting()])


class UntilAllHaveSaid:
    """A criterion that is made for a batch, tracks which of its rows have said a token, and ends when all have."""

    def __init__(self, token: int, rows: int) -> None:
        self.token, self.said = token, [False] * rows

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> bool:
        for row in range(len(self.said)):
            self.said[row] = self.said[row] or int(input_ids[row, -1]) == self.token
        return all(self.said)


def test_what_a_criterion_tracks_for_each_row_goes_with_the_rows() -> None:
    model, batch = build("blenderbot"), right_padded(MORE, pad=PAD)
    token = alone(model, MORE)[1].tokens[1]
    criterion = UntilAllHaveSaid(token, len(MORE))
    output = model.generate(**batch, **GREEDY, pad_token_id=PAD, stopping_criteria=[criterion])
    replies = [reply.tokens for reply in alone(model, MORE, pad_token_id=PAD)]
    assert criterion.said == [token in reply for reply in replies]
    assert True in criterion.said
    assert False in criterion.said
    for row, reply in enumerate(replies):
        until = reply[: reply.index(token) + 1] if token in reply else reply
        assert output[row, 7 : 7 + len(until)].tolist() == until


class Streamer:
    """A streamer that takes what comes."""

    def put(self, value: Any) -> None: ...

    def end(self) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"synced_gpus": True}, "synced_gpus"),
        ({"max_time": 60.0}, "max_time"),
        ({"streamer": Streamer()}, "streamer="),
    ],
)
def test_what_cannot_be_joined_is_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    padfix.install("strict")
    with pytest.raises(UnsupportedCallError, match=named):
        build("blenderbot").generate(**PADDERS["left"](MORE[:2], pad=PAD), **GREEDY, pad_token_id=PAD, **arguments)


def test_forward_hook_is_refused_by_name() -> None:
    model = build("blenderbot")
    model.register_forward_hook(lambda *_: None)
    with pytest.warns(PadfixWarning, match="hooks on the forwards of BlenderbotForCausalLM"):
        model.generate(**right_padded(MORE, pad=PAD), **GREEDY, pad_token_id=PAD)


def test_cache_of_rows_apart_is_none_and_said() -> None:
    model = build("blenderbot")
    with pytest.warns(PadfixWarning, match=f"the field {CACHE_FIELD} of this output is None: rows of other length"):
        output = model.generate(**right_padded(MORE, pad=PAD), **GREEDY, pad_token_id=PAD, return_dict_in_generate=True)
    assert getattr(output, CACHE_FIELD) is None


def test_other_models_run_apart_as_well_where_it_is_asked_for() -> None:
    padfix.install("fix", strategy="equal_length")
    check(build("llama"), right_padded(MORE, pad=PAD), MORE, pad_token_id=PAD)
    padfix.install("fix", strategy="left_pad")
    with pytest.raises(padfix.SettingsError, match="BlenderbotForCausalLM"):
        build("blenderbot").generate(**right_padded(MORE, pad=PAD), **GREEDY, pad_token_id=PAD)


def test_decoding_for_one_prompt_is_left_to_the_library_where_there_are_several() -> None:
    model, batch = build("llama"), right_padded(MORE, pad=PAD)
    with pytest.warns(PadfixWarning, match="assistant_model="), pytest.raises(ValueError, match="batch_size = 1"):
        model.generate(**batch, **GREEDY, pad_token_id=PAD, assistant_model=build("llama"))


@pytest.mark.parametrize("layout", PADDERS)
@pytest.mark.parametrize("starts", [True, False])
def test_prompts_of_a_decoder_run_apart(starts: bool, layout: str) -> None:
    model = build("bart", pad_token_id=PAD)
    model.generation_config.pad_token_id = PAD
    prompts = [[1, *row] for row in ROWS] if starts else ROWS  # 1 is the start token
    batch = PADDERS[layout](prompts, pad=PAD)
    encoder = torch.tensor([[5, 6, 7, 8], [9, 10, PAD, PAD], [11, 12, 13, PAD]])
    encoder = torch.nn.functional.pad(encoder, (0, batch["input_ids"].shape[1] - 4), value=PAD)  # of the same shape
    given = {
        "input_ids": encoder,
        "attention_mask": (encoder != PAD).long(),
        "decoder_input_ids": batch["input_ids"],
        "decoder_attention_mask": batch["attention_mask"],
    }
    arguments = {**GREEDY, "return_dict_in_generate": True, "output_logits": True, "output_scores": True}
    output = model.generate(**given, **arguments)
    width = batch["input_ids"].shape[1] + (not starts)
    assert torch.equal(output.sequences[:, width - batch["input_ids"].shape[1] : width], batch["input_ids"])
    for row, prompt in enumerate(prompts):
        with padfix.suppressed():
            single = model.generate(
                input_ids=encoder[row : row + 1],
                attention_mask=given["attention_mask"][row : row + 1],
                decoder_input_ids=torch.tensor([prompt]),
                **arguments,
            )
        new = single.sequences[0, len(prompt) + (not starts) :]
        assert torch.equal(output.sequences[row, width : width + len(new)], new)
        for step, logits in enumerate(single.logits):
            assert torch.allclose(output.logits[step][row], logits[0], atol=1e-4)


def test_what_an_encoder_gave_follows_its_rows() -> None:
    model, batch = build("bart", pad_token_id=PAD), right_padded([[1, *row] for row in ROWS], pad=PAD)
    encoder = torch.tensor([[5, 6, 7], [9, 10, 8], [11, 12, 13]])
    decoder = {"decoder_input_ids": batch["input_ids"], "decoder_attention_mask": batch["attention_mask"]}
    arguments = {**decoder, **GREEDY, "attention_mask": torch.ones(3, 3, dtype=torch.long), "pad_token_id": PAD}
    expected = model.generate(input_ids=encoder, **arguments)
    encoded = model.get_encoder()(encoder)
    assert torch.equal(model.generate(encoder_outputs=encoded, **arguments), expected)


@pytest.mark.parametrize(("rows", "says"), [([[5], [6, 7, 8]], True), ([[5, 9], [6, 7, 8]], False)])
def test_prompt_of_one_token_that_depends_on_the_call_before_is_named(rows: list[list[int]], says: bool) -> None:
    model = build("llama")
    model.__class__ = type("RecurrentGemmaForCausalLM", (transformers.LlamaForCausalLM,), {})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.generate(**right_padded(rows), **GREEDY)
    words = "takes a prompt of one token for a step of the call before"
    assert any(words in str(one.message) for one in said) == says
