"""Chats of several turns in one batch, from a cache or without: each row gets what the same chat held alone gets."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from chat import THREE, Chat, cache_name, cache_of, takes_new_tokens_alone
from facts import ROPE_FIELD
from oracle import EOS, PAD, alone, build, compare, left_padded, right_padded, together
from torch import Tensor
from transformers import DynamicCache

import padfix
from padfix.generation.columns import columns_of

PADDERS: Mapping[str, Callable[..., dict[str, Tensor]]] = {"right": right_padded, "left": left_padded}
PROMPTS = [[5, 17, 33, 8], [11, 42], [7, 9, 23, 61, 14]]
EQUAL = [[5, 17, 33], [11, 42, 9], [7, 9, 23]]
TURNS = [[[21, 22], [31, 32, 34], [44]], [[51], [61, 62], [71, 72, 73]]]
MODELS = ("llama", "gpt2", "opt", "bloom")

GEMMA = ["gemma3"] if hasattr(transformers, "Gemma3ForCausalLM") else []
NEEDS_NEW_ALONE = pytest.mark.skipif(
    not takes_new_tokens_alone(), reason="this release wants the whole sequences beside a cache"
)
ONLY_NEW = [False, pytest.param(True, marks=NEEDS_NEW_ALONE)]

pytestmark = pytest.mark.usefixtures("installed")


def first_keys(cache: Any) -> Tensor:
    """The keys of a cache's first layer, of shape (rows, heads, columns, size)."""
    layers = cache if isinstance(cache, tuple) else getattr(cache, "layers", None)
    found: Any = cache.key_cache[0] if layers is None else getattr(layers[0], "keys", layers[0])
    keys: Tensor = found[0] if isinstance(found, tuple) else found
    return keys


def skip_tuples(cache: Any) -> None:
    """Skips where the release gives nested tuples, on which nothing can be remembered."""
    if isinstance(cache, tuple):
        pytest.skip("this release gives tuples")


@pytest.mark.parametrize("only_new", ONLY_NEW)
@pytest.mark.parametrize("sides", ["right right right", "left left left", "right left right", "left right right"])
@pytest.mark.parametrize("name", MODELS)
def test_turns_from_the_cache(name: str, sides: str, only_new: bool) -> None:
    chat, (first, *others) = Chat(build(name)), sides.split()
    chat.turn(PROMPTS, PADDERS[first])
    for texts, side in zip(TURNS, others, strict=True):
        chat.turn(texts, PADDERS[side], only_new=only_new)


@pytest.mark.parametrize("name", [*MODELS, "mistral", *GEMMA, "mamba2", "rwkv"])
@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
def test_turns_without_a_cache(name: str) -> None:
    chat = Chat(build(name))
    for texts in (PROMPTS, *TURNS):
        chat.turn(texts, right_padded, cached=False)


@pytest.mark.parametrize("name", ["mistral", "gpt_neo", *GEMMA])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("brings_one", [False, True])
@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
def test_windows_prefill_anew(name: str, side: str, brings_one: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Pads between cached and new tokens would count in a window that fills up, also where the cache has no window."""
    chat = Chat(build(name))
    chat.cache = DynamicCache() if brings_one else None
    with caplog.at_level(logging.INFO, "padfix"):
        for texts in (PROMPTS, *TURNS):
            chat.turn(texts, PADDERS[side])


@pytest.mark.parametrize("only_new", ONLY_NEW)
def test_windows_that_are_not_full_yet(only_new: bool) -> None:
    chat = Chat(build("mistral", sliding_window=64))
    for texts in (PROMPTS, *TURNS):
        chat.turn(texts, right_padded, only_new=only_new)
        assert chat.cache is not None


def ending_early(prompts: list[list[int]] | None = None) -> Any:
    """A Llama whose second row ends with its second token."""
    model = build("llama")
    ends = [reply.tokens for reply in alone(model, EQUAL if prompts is None else prompts, **THREE)]
    model.generation_config.eos_token_id = model.config.eos_token_id = EOS
    with torch.no_grad():
        model.lm_head.weight[[EOS, ends[1][1]]] = model.lm_head.weight[[ends[1][1], EOS]]
    return model


def test_rows_that_end_early() -> None:
    """After an EOS only pads follow, which the next turn masks."""
    chat = Chat(ending_early(PROMPTS), eos_token_id=EOS, min_new_tokens=None)
    for texts in (PROMPTS, *TURNS):
        chat.turn(texts, right_padded)
    assert not bool(chat.mask[1].all())


HISTORY = [{"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}]


@pytest.mark.parametrize("flags", HISTORY, ids=str)
@pytest.mark.parametrize("sides", ["right right right", "left left left"])
def test_processors_see_no_pad_among_the_cached_tokens(flags: dict[str, Any], sides: str) -> None:
    chat = Chat(build("llama"), **flags)
    prompts = [[17, 5, 17, 33, 8], [11, 42], [9, 7, 9, 23, 9, 14]]
    turns = [[[17, 5], [42, 11, 42], [9]], [[11], [61, 62], [71, 9, 73]]]
    for texts, side in zip((prompts, *turns), sides.split(), strict=True):
        chat.turn(texts, PADDERS[side])


@pytest.mark.parametrize("flags", HISTORY, ids=str)
def test_processors_see_no_pad_of_the_turn_before(flags: dict[str, Any]) -> None:
    """What is said next has no pads, so that no column moves."""
    chat = Chat(build("llama"), **flags)
    for texts in (PROMPTS, [[17, 5], [42, 11], [9, 9]]):
        chat.turn(texts, right_padded)


def test_sequence_that_begins_before_the_pads() -> None:
    """A bias on what follows the last two tokens of a reply and what was said then; pads stand between those two."""
    chat, said = Chat(build("llama")), [[22], [32, 34], [44]]
    chat.turn(PROMPTS, right_padded)
    chat.arguments["sequence_bias"] = [[[*row[-2:], *text, 7], 40.0] for row, text in zip(chat.rows, said, strict=True)]
    output = chat.turn(said, right_padded)
    assert output.sequences[:, -3].tolist() == [7, 7, 7]


@NEEDS_NEW_ALONE
@pytest.mark.parametrize("side", PADDERS)
def test_new_tokens_alone_count_with_the_cached_columns(side: str) -> None:
    """Dynamic NTK scales every row by the longest one from so many columns on, cached ones among them."""
    config = build("llama", max_position_embeddings=12).config
    setattr(config, ROPE_FIELD, {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0})
    model, batch = transformers.LlamaForCausalLM(config).eval(), PADDERS[side](PROMPTS)
    with padfix.suppressed():
        output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    new = right_padded(TURNS[0])
    ids = torch.cat((output.sequences[:, -1:], new["input_ids"]), 1)
    mask = torch.cat((batch["attention_mask"], torch.ones(3, 3).long(), new["attention_mask"]), 1)
    with padfix.override("strict"), pytest.raises(padfix.PadfixError):
        model.generate(input_ids=ids, attention_mask=mask, **{cache_name(): cache_of(output)}, **THREE)
    with pytest.warns(padfix.PadfixWarning, match="dynamic NTK scales every row by the longest one"):
        model.generate(input_ids=ids, attention_mask=mask, **{cache_name(): cache_of(output)}, **THREE)


@NEEDS_NEW_ALONE
def test_looking_ahead_beside_pads_in_the_cache_is_refused_by_name() -> None:
    model, batch = build("llama"), right_padded(PROMPTS[:1], extra=2)
    output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    mask = torch.cat((batch["attention_mask"], torch.ones(1, 5).long()), 1)
    arguments = {"input_ids": torch.cat((output.sequences[:, -1:], torch.tensor([[21, 22]])), 1)}
    arguments |= {"attention_mask": mask, cache_name(): cache_of(output)} | THREE
    with pytest.warns(padfix.PadfixWarning, match=r"prompt_lookup_num_tokens= \(another decoding loop\)"):
        model.generate(**arguments, prompt_lookup_num_tokens=2)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_loop_of_forwards_from_the_cache(name: str) -> None:
    """The caller's own loop, with the caller's own mask and the positions that it implies."""
    model, batch = build(name), right_padded(PROMPTS)
    output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    cache = cache_of(output)
    mask = torch.cat((batch["attention_mask"], torch.ones(3, 3, dtype=torch.long)), 1)
    with torch.no_grad():
        step = model(
            output.sequences[:, -1:],
            attention_mask=mask,
            position_ids=mask.sum(1, keepdim=True) - 1,
            **{cache_name(): cache},
        )
    with padfix.suppressed():
        rows = [model.generate(torch.tensor([row]), **THREE)[0].tolist() for row in PROMPTS]
        for row, ids in enumerate(rows):
            want = model(torch.tensor([ids])).logits[0, -1]
            assert (step.logits[row, -1] - want).abs().max() < 1e-4 * want.abs().max()


def test_cache_has_the_callers_columns() -> None:
    model, batch = build("llama"), right_padded(PROMPTS, extra=3)
    cache = cache_of(model.generate(**batch, **THREE, return_dict_in_generate=True))
    keys = first_keys(cache)
    assert keys.shape[2] == batch["input_ids"].shape[1] + 2
    pads = batch["attention_mask"] == 0
    assert not keys[:, :, : pads.shape[1]].movedim(2, 1)[pads].any()
    assert keys[:, :, : pads.shape[1]].movedim(2, 1)[~pads].any()


@pytest.mark.parametrize("dictionary", [False, True])
def test_cache_of_the_callers_is_filled(dictionary: bool) -> None:
    model, cache, batch = build("llama"), DynamicCache(), right_padded(PROMPTS)
    output = model.generate(**batch, **THREE, **{cache_name(): cache}, return_dict_in_generate=dictionary)
    sequences = output.sequences if dictionary else output
    more = right_padded(TURNS[0])
    history = {
        "input_ids": torch.cat((sequences, more["input_ids"]), 1),
        "attention_mask": torch.cat(
            (batch["attention_mask"], torch.ones(3, 3, dtype=torch.long), more["attention_mask"]), 1
        ),
    }
    with padfix.suppressed():
        rows = [
            model.generate(torch.tensor([row]), **THREE)[0].tolist() + text
            for row, text in zip(PROMPTS, TURNS[0], strict=True)
        ]
    compare(together(model, history | {cache_name(): cache}), alone(model, rows))
    assert cache.get_seq_length() == history["input_ids"].shape[1] + 5


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("sides", ["right right right", "left left left", "right left left", "left right left"])
@pytest.mark.parametrize("prompts", [PROMPTS, EQUAL], ids=["ragged", "equal"])
@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
def test_chat_that_is_tokenized_anew_each_turn(name: str, sides: str, prompts: list[list[int]]) -> None:
    """Its rows are one run of tokens again each time, and stand in other columns than in the cache."""
    chat, (first, *others) = Chat(build(name)), sides.split()
    chat.turn(prompts, PADDERS[first])
    for texts, side in zip(TURNS, others, strict=True):
        chat.turn(texts, PADDERS[side], retokenized=True)


@pytest.mark.parametrize(
    ("prompts", "side", "said"),
    [(PROMPTS, "right", "tokens what were pads"), (EQUAL, "left", "holds other tokens")],
    ids=["pads", "tokens"],
)
def test_cache_that_is_left_is_named(
    prompts: list[list[int]], side: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat = Chat(build("llama"))
    chat.turn(prompts, PADDERS[side])
    rows = [[*row, *text] for row, text in zip(chat.rows, TURNS[0], strict=True)]
    arguments = PADDERS[side](rows) | {cache_name(): chat.cache} | THREE
    with caplog.at_level(logging.INFO, "padfix"):
        chat.model.generate(**arguments)
    assert said in caplog.text
    with padfix.override("warn"), pytest.warns(padfix.PadfixWarning, match=said):
        chat.model.generate(**arguments)


def test_pads_in_the_cache_of_a_batch_without_pads() -> None:
    """The chats are of one length by now."""
    chat = Chat(build("llama"))
    chat.turn(PROMPTS, left_padded)
    chat.turn([[21, 22], [31, 32, 34, 35], [44]], left_padded, retokenized=True)
    assert bool(chat.mask.all())


def test_rows_that_ended_early_are_tokenized_anew_without_a_pad() -> None:
    model = ending_early()
    chat = Chat(model, eos_token_id=EOS, min_new_tokens=None)
    chat.turn(EQUAL, right_padded)
    lengths = [len(row) for row in chat.rows]
    assert min(lengths) < max(lengths)
    chat.turn([[21] * (1 + max(lengths) - length) for length in lengths], right_padded, retokenized=True)


def test_pads_after_the_end_that_count_as_tokens() -> None:
    """A mask that says so is right about the cache: they were tokens to the model as well."""
    model, batch = ending_early(), right_padded(EQUAL)
    arguments = THREE | {"eos_token_id": EOS, "min_new_tokens": None, "pad_token_id": PAD}
    output = model.generate(**batch, **arguments, return_dict_in_generate=True)
    assert PAD in output.sequences
    more = right_padded(TURNS[0])
    mask = torch.cat((torch.ones_like(output.sequences), more["attention_mask"]), 1)
    history = {"input_ids": torch.cat((output.sequences, more["input_ids"]), 1), "attention_mask": mask}
    rows = [ids[real.bool()].tolist() for ids, real in zip(history["input_ids"], mask, strict=True)]
    passed = cache_of(output)
    columns = columns_of(passed)
    compare(together(model, history | {cache_name(): passed}, **arguments), alone(model, rows, **arguments))
    assert isinstance(passed, tuple) or columns_of(passed) > columns  # it served


def test_prompt_alone_goes_on_from_whatever_cache_it_brings() -> None:
    """Other tokens than those that the cache holds: that is the caller's business where there is no padding."""
    model = build("llama")
    output = model.generate(torch.tensor([[5, 17, 33]]), **THREE, return_dict_in_generate=True)
    skip_tuples(cache_of(output))
    other = {"input_ids": torch.tensor([[5, 18, 33, 21, 22, 23, 24]]), cache_name(): copy.deepcopy(cache_of(output))}
    with padfix.suppressed():
        (want,) = together(model, other | {cache_name(): copy.deepcopy(cache_of(output))})
    (got,) = together(model, other)
    assert got.tokens == want.tokens
    assert got.logits is not None
    assert want.logits is not None
    assert torch.equal(got.logits, want.logits)


@pytest.mark.parametrize("only_new", ONLY_NEW)
def test_row_to_which_nothing_is_said(only_new: bool) -> None:
    """It goes on from the last token of its reply, which is in no cache yet."""
    chat = Chat(build("llama"))
    chat.turn(PROMPTS, right_padded)
    chat.turn([[21, 22], [], [44]], right_padded, only_new=only_new)


def test_row_without_a_token_beside_the_cached_ones(caplog: pytest.LogCaptureFixture) -> None:
    model, batch = build("llama"), right_padded(PROMPTS)
    output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    mask = torch.cat((batch["attention_mask"], torch.ones(3, 3, dtype=torch.long)), 1)
    mask[1, -2:] = 0
    rows = [ids[real.bool()].tolist() for ids, real in zip(output.sequences, mask, strict=True)]
    history = {"input_ids": output.sequences, "attention_mask": mask, cache_name(): cache_of(output)}
    with caplog.at_level(logging.INFO, "padfix"):
        compare(together(model, history), alone(model, rows))
    assert "no token beside the cached ones" in caplog.text


def test_cache_that_was_copied_and_cropped() -> None:
    model, batch = build("llama"), right_padded(PROMPTS)
    output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    skip_tuples(cache_of(output))
    cache = copy.deepcopy(cache_of(output))
    cache.crop(-1) if hasattr(cache, "layers") else cache.crop(cache.get_seq_length() - 1)
    more = right_padded(TURNS[0])
    history = {
        "input_ids": torch.cat((output.sequences[:, :-1], more["input_ids"]), 1),
        "attention_mask": torch.cat(
            (batch["attention_mask"], torch.ones(3, 2, dtype=torch.long), more["attention_mask"]), 1
        ),
    }
    with padfix.suppressed():
        rows = [
            model.generate(torch.tensor([row]), **THREE)[0, :-1].tolist() + text
            for row, text in zip(PROMPTS, TURNS[0], strict=True)
        ]
    compare(together(model, history | {cache_name(): cache}), alone(model, rows))


@NEEDS_NEW_ALONE
def test_new_tokens_alone_and_a_full_window_are_refused_by_name() -> None:
    model, batch = build("mistral"), left_padded(PROMPTS)
    with padfix.suppressed():
        output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    more = right_padded(TURNS[0])
    ids = torch.cat((output.sequences[:, -1:], more["input_ids"]), 1)
    mask = torch.cat((batch["attention_mask"], torch.ones(3, 3, dtype=torch.long), more["attention_mask"]), 1)
    with pytest.warns(padfix.PadfixWarning, match="its pads would count in the window"):
        model.generate(input_ids=ids, attention_mask=mask, **{cache_name(): cache_of(output)}, **THREE)


def test_mask_over_the_new_tokens_alone_is_refused_by_name() -> None:
    model, batch = build("llama"), left_padded(PROMPTS)
    with padfix.suppressed():
        output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    more = right_padded(TURNS[0])
    arguments = more | {cache_name(): cache_of(output)} | THREE
    stocks_answer = contextlib.suppress(IndexError, RuntimeError, ValueError)
    with stocks_answer, pytest.warns(padfix.PadfixWarning, match=r"attention_mask= of shape \(3, 3\), where the cache"):
        model.generate(**arguments)


@NEEDS_NEW_ALONE
@pytest.mark.parametrize("side", PADDERS)
def test_positions_of_new_tokens(side: str) -> None:
    """The caller's own position ids, which say what the mask says, and which stock would take."""
    model, batch = build("llama"), PADDERS[side](PROMPTS)
    output = model.generate(**batch, **THREE, return_dict_in_generate=True)
    more = right_padded(TURNS[0])
    ids = torch.cat((output.sequences[:, -1:], more["input_ids"]), 1)
    mask = torch.cat((batch["attention_mask"], torch.ones(3, 3, dtype=torch.long), more["attention_mask"]), 1)
    positions = (mask.cumsum(1) - 1)[:, -ids.shape[1] :]
    with padfix.suppressed():
        rows = [
            model.generate(torch.tensor([row]), **THREE)[0].tolist() + text
            for row, text in zip(PROMPTS, TURNS[0], strict=True)
        ]
    batch = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, cache_name(): cache_of(output)}
    compare(together(model, batch), alone(model, rows))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_static_cache_of_the_callers(name: str) -> None:
    from transformers import StaticCache

    model, batch = build(name), right_padded(PROMPTS)
    try:
        cache = StaticCache(config=model.config, max_cache_len=32)
    except TypeError:  # up to 4.55
        pytest.skip("this release wants sizes")
    output = model.generate(**batch, **THREE, **{cache_name(): cache})
    layer: Any = cache.layers[0]
    keys = layer.keys[:, :, : batch["input_ids"].shape[1]].movedim(2, 1)
    assert not keys[batch["attention_mask"] == 0].any()
    assert output.shape[1] == batch["input_ids"].shape[1] + 3
    assert PAD not in output[:, batch["input_ids"].shape[1] :]


@pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")
def test_rows_apart_leave_the_callers_cache() -> None:
    """RWKV and the like cannot share one; the prompt runs without it."""
    model, cache = build("llama"), DynamicCache()
    with padfix.override(strategy="equal_length"):
        replies = together(model, right_padded(PROMPTS) | {cache_name(): cache})
    compare(replies, alone(model, PROMPTS))
    assert cache.get_seq_length() == 0
