"""BatchPolicy: the batch that prompts become, the pad token, what is cut off, and the replies in what comes back."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from oracle import BOS, EOS, PADDERS, VOCABULARY, build, left_padded
from transformers.generation.utils import GenerateDecoderOnlyOutput
from words import TEMPLATE, UNK, WITH_BOS, text, worded

import padfix
from padfix.errors import MissingPadTokenError, PadfixWarning, PromptError
from padfix.policy import BatchPolicy, PreparedBatch, named_positions
from padfix.special import RESERVED_PAD_TOKENS, end_ids, pad_token_id, until_end

RESERVED = {50: "<pad>"}
OUTSIDE = VOCABULARY  # the first id without a row


@pytest.fixture
def llama() -> Any:
    """A model without a pad token, whose replies end at EOS."""
    model = build("llama")
    model.generation_config.pad_token_id = None
    return model


def prepared(model: Any, tokenizer: Any, prompts: Any, **arguments: Any) -> PreparedBatch:
    return BatchPolicy().prepare(model, tokenizer, prompts, **arguments)[0]


# The batch


@pytest.mark.parametrize(
    ("policy", "ids", "mask"),
    [
        (BatchPolicy(), [[BOS, 5, 6, 7], [50, 50, BOS, 8]], [[1, 1, 1, 1], [0, 0, 1, 1]]),
        (BatchPolicy("left"), [[BOS, 5, 6, 7], [50, 50, BOS, 8]], [[1, 1, 1, 1], [0, 0, 1, 1]]),
        (BatchPolicy("right"), [[BOS, 5, 6, 7], [BOS, 8, 50, 50]], [[1, 1, 1, 1], [1, 1, 0, 0]]),
    ],
)
def test_batch_is_padded_on_the_side_of_the_policy(policy: BatchPolicy, ids: Any, mask: Any, llama: Any) -> None:
    batch, arguments = policy.prepare(llama, worded(WITH_BOS, pad_token="w50"), ["w5 w6 w7", "w8"])
    assert list(batch) == ["input_ids", "attention_mask"]
    assert batch["input_ids"].tolist() == ids
    assert batch["attention_mask"].tolist() == mask
    assert batch["input_ids"].dtype == batch["attention_mask"].dtype == torch.int64
    assert arguments == {"max_new_tokens": 64, "pad_token_id": 50}
    assert (batch.pad_token_id, batch.end_token_ids, batch.cut) == (50, (EOS,), (0, 0))


def test_side_of_the_tokenizer_is_not_asked(llama: Any) -> None:
    tokenizer = worded(padding_side="right", pad_token="w50")
    assert prepared(llama, tokenizer, ["w5 w6", "w7"])["attention_mask"].tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_input_of_an_encoder_is_padded_on_the_right(side: Any) -> None:
    batch, _ = BatchPolicy(side).prepare(build("bart"), worded(pad_token="w50"), ["w5 w6 w7", "w8"])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 50, 50]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("prompt", ["w5 w6", [{"role": "user", "content": "w5"}]])
def test_single_prompt_is_a_batch_of_one(prompt: Any, llama: Any) -> None:
    batch = prepared(llama, worded(chats=TEMPLATE), prompt)
    assert batch["input_ids"].shape[0] == 1
    assert bool(batch["attention_mask"].all())


def test_strings_and_chats_share_a_batch(llama: Any) -> None:
    tokenizer = worded(WITH_BOS, chats="<s> " + TEMPLATE, pad_token="w50")
    batch = prepared(llama, tokenizer, ["w8", [{"role": "user", "content": "w5"}]])
    assert batch["input_ids"].tolist() == [[50] * 3 + [BOS, 8], [BOS, 3, 5, EOS, 4]]


def test_batch_is_on_the_device_of_the_model(llama: Any) -> None:
    batch = prepared(llama.to("meta"), worded(), ["w5", "w6 w7"])
    assert {value.device.type for value in batch.values()} == {"meta"}


@pytest.mark.parametrize("new_tokens", [0, -1, 1.0, True, None, "8"])
def test_number_of_new_tokens_is_checked(new_tokens: Any, llama: Any) -> None:
    message = f"max_new_tokens is {new_tokens!r}. Pass a whole number, 1 or more."
    with pytest.raises(ValueError, match=re.escape(message)):
        prepared(llama, worded(), "w5", max_new_tokens=new_tokens)


def test_side_is_checked() -> None:
    side: Any = "top"
    with pytest.raises(ValueError, match=re.escape("padding_side is 'top'. Use 'left' or 'right'.")):
        BatchPolicy(side)


def test_what_is_no_prompt_is_refused(llama: Any) -> None:
    with pytest.raises(PromptError, match=re.escape("There are no prompts.")):
        prepared(llama, worded(), [])


@pytest.mark.parametrize("pad", [None, "w50", "<unk>"])
def test_model_and_tokenizer_stay_as_they_were(pad: str | None, llama: Any) -> None:
    tokenizer = worded(WITH_BOS, chats=TEMPLATE, pad_token=pad, padding_side="right", model_max_length=9)

    def state() -> Any:
        names = ("special_tokens_map", "padding_side", "truncation_side", "model_max_length", "chat_template")
        configs = [llama.config.to_dict(), llama.generation_config.to_dict()]
        return copy.deepcopy([configs, tokenizer.get_vocab(), *(getattr(tokenizer, name) for name in names)])

    before = state()
    with pytest.warns(PadfixWarning, match="Cut off the beginning"):
        batch = prepared(llama, tokenizer, [text(*range(5, 20)), [{"role": "user", "content": "w5"}]])
    BatchPolicy().decode_replies(tokenizer, batch["input_ids"], batch)
    assert state() == before


# The pad token


def test_candidates_follow_one_another(llama: Any) -> None:
    tokenizer = worded(named=RESERVED, pad_token="w60")
    llama.generation_config.pad_token_id = 55
    assert pad_token_id(llama, tokenizer) == 60
    tokenizer.pad_token = None
    assert pad_token_id(llama, tokenizer) == 55
    llama.generation_config.pad_token_id = None
    assert pad_token_id(llama, tokenizer) == 50
    assert pad_token_id(llama, worded(eos_token="w61")) == 61
    llama.generation_config.eos_token_id = [7, 8]
    assert pad_token_id(llama, worded(eos_token=None)) == 7


@pytest.mark.parametrize("token", RESERVED_PAD_TOKENS)
def test_token_that_the_vocabulary_reserves_is_taken_before_eos(token: str, llama: Any) -> None:
    assert pad_token_id(llama, worded(named={50: token})) == 50


@pytest.mark.parametrize("unk", ["<unk>", None])
def test_reserved_token_that_is_not_there_is_not_the_unknown_one(unk: str | None, llama: Any) -> None:
    assert pad_token_id(llama, worded(unk_token=unk)) == EOS


def test_pad_token_that_is_the_unknown_one_is_taken(llama: Any) -> None:
    batch = prepared(llama, worded(pad_token="<unk>"), ["w5 w6", "<unk>"])
    assert batch["input_ids"].tolist() == [[5, 6], [UNK, UNK]]
    assert batch["attention_mask"].tolist() == [[1, 1], [0, 1]]


def test_pad_tokens_without_a_row_in_the_embedding_are_passed_over_and_named(llama: Any) -> None:
    tokenizer = worded()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    assert tokenizer.pad_token_id == OUTSIDE
    llama.generation_config.pad_token_id = -1
    message = (
        f"tokenizer.pad_token_id is {OUTSIDE}; generation_config.pad_token_id is -1; the reserved token [PAD] is "
        f"{OUTSIDE}: the embedding has {VOCABULARY} rows. The pads are {EOS} instead."
    )
    with pytest.warns(PadfixWarning, match=re.escape(message)):
        batch = prepared(llama, tokenizer, ["w5 w6", "w7"])
    assert batch["input_ids"].tolist() == [[5, 6], [EOS, 7]]


@pytest.mark.parametrize("pad_is_eos", [True, False])
@pytest.mark.parametrize("ends", [EOS, None])
def test_eos_stands_in_where_the_policy_lets_it(pad_is_eos: bool, ends: int | None, llama: Any) -> None:
    llama.generation_config.eos_token_id = ends
    tokenizer = worded(eos_token="</s>" if ends else None)
    policy = BatchPolicy(pad_is_eos=pad_is_eos)
    if pad_is_eos and ends:
        assert policy.prepare(llama, tokenizer, ["w5 w6", "w7"])[1]["pad_token_id"] == EOS
    else:
        with pytest.raises(MissingPadTokenError, match="have no token to pad a batch with"):
            policy.prepare(llama, tokenizer, ["w5 w6", "w7"])


def test_error_says_what_was_seen_and_what_to_do(llama: Any) -> None:
    tokenizer = worded(eos_token=None)
    tokenizer.add_special_tokens({"pad_token": "<new>"})
    llama.generation_config.eos_token_id = None
    message = (
        f"LlamaForCausalLM and its tokenizer have no token to pad a batch with (tokenizer.pad_token_id is {OUTSIDE}: "
        f"the embedding has {VOCABULARY} rows). Set tokenizer.pad_token to a token of the vocabulary"
    )
    with pytest.raises(MissingPadTokenError, match=re.escape(message)):
        pad_token_id(llama, tokenizer)


def test_model_without_a_generation_config_is_padded_with_what_the_tokenizer_has(llama: Any) -> None:
    llama.generation_config = None
    batch = prepared(llama, worded(named=RESERVED), ["w5 w6", "w7"])
    assert (batch.pad_token_id, batch.end_token_ids) == (50, (EOS,))


@pytest.mark.parametrize(
    ("configured", "ends"), [(5, (5,)), ([7, 6], (7, 6)), (torch.tensor([7, 6]), (7, 6)), (None, (EOS,))]
)
def test_replies_end_where_generate_stops(configured: Any, ends: tuple[int, ...], llama: Any) -> None:
    llama.generation_config.eos_token_id = configured
    assert end_ids(llama, worded()) == ends


def test_nothing_ends_a_reply_where_there_is_no_eos(llama: Any) -> None:
    llama.generation_config.eos_token_id = None
    assert end_ids(llama, worded(eos_token=None)) == ()


# What is cut off


@pytest.mark.parametrize(
    ("template", "prompt", "kept"),
    [
        (WITH_BOS, text(*range(5, 12)), [BOS, 9, 10, 11]),
        (None, text(*range(5, 12)), [8, 9, 10, 11]),
        (None, "<s> " + text(*range(5, 12)), [BOS, 9, 10, 11]),
        ("$A </s>", text(*range(5, 12)), [9, 10, 11, EOS]),
        (WITH_BOS, text(5, 6, 7), [BOS, 5, 6, 7]),
    ],
    ids=["bos", "no bos", "bos in the text", "eos", "fits"],
)
def test_prompt_keeps_its_bos_and_its_end(template: str | None, prompt: str, kept: list[int]) -> None:
    model = build("llama", max_position_embeddings=8)
    tokenizer = worded(template, pad_token="w50")
    length = len(tokenizer(prompt)["input_ids"])
    if length > 4:
        message = (
            f"Cut off the beginning of prompt 1 ({length} tokens): with max_new_tokens=4 there is room for 4 tokens. "
        )
        with pytest.warns(PadfixWarning, match=re.escape(message)):
            batch = prepared(model, tokenizer, ["w12", prompt], max_new_tokens=4)
    else:
        batch = prepared(model, tokenizer, ["w12", prompt], max_new_tokens=4)
    assert batch["input_ids"][1].tolist() == kept
    assert batch.cut == (0, length - 4)


def test_last_token_is_what_one_token_leaves_room_for() -> None:
    model = build("llama", max_position_embeddings=8)
    with pytest.warns(PadfixWarning, match=re.escape("there is room for 1 token")):
        batch = prepared(model, worded(WITH_BOS), "w5 w6", max_new_tokens=7)
    assert batch["input_ids"].tolist() == [[6]]
    assert batch.cut == (2,)


def test_chat_keeps_the_opening_of_the_reply() -> None:
    model = build("llama", max_position_embeddings=8)
    with pytest.warns(PadfixWarning, match="Cut off"):
        batch = prepared(
            model, worded(chats="<s> " + TEMPLATE), [{"role": "user", "content": text(5, 6, 7)}], max_new_tokens=3
        )
    assert batch["input_ids"].tolist() == [[BOS, 6, 7, EOS, 4]]


def test_limit_of_the_tokenizer_holds_too(llama: Any) -> None:
    with pytest.warns(PadfixWarning, match=re.escape("room for 3 tokens")):
        batch = prepared(llama, worded(WITH_BOS, model_max_length=3), ["w5 w6 w7 w8", "w9"])
    assert batch["input_ids"].tolist() == [[BOS, 7, 8], [EOS, BOS, 9]]


def test_nothing_is_cut_where_nothing_limits_it() -> None:
    batch = prepared(build("bloom"), worded(), text(*[5] * 3000))
    assert batch["input_ids"].shape == (1, 3000)


def test_encoder_needs_no_room_for_new_tokens() -> None:
    model = build("bart", max_position_embeddings=8)
    assert prepared(model, worded(), text(*range(5, 13)), max_new_tokens=7).cut == (0,)
    with pytest.warns(PadfixWarning, match=re.escape("room for 8 tokens")):
        assert prepared(model, worded(), text(*range(5, 14)), max_new_tokens=7).cut == (1,)


def test_warning_names_the_first_of_many_prompts() -> None:
    model = build("llama", max_position_embeddings=8)
    named = ", ".join(f"prompt {number} (5 tokens)" for number in range(1, 9))
    with pytest.warns(PadfixWarning, match=re.escape(f"Cut off the beginning of {named} and 2 more: ")) as caught:
        prepared(model, worded(), ["w5", *[text(5, 6, 7, 8, 9)] * 10], max_new_tokens=4)
    assert len(caught) == 1
    assert caught[0].filename == __file__


# The replies

ROWS = [[5, 17, 33, 8], [11, 42]]
REPLIES = [[21, 22, EOS], [23, EOS, 50]]
TEXTS = ["w21 w22", "w23"]


def output(batch: Any, replies: Sequence[Sequence[int]] = REPLIES) -> torch.Tensor:
    """What generate gives: for each row its prompt, as often as there are replies to it, and a reply."""
    prompts = batch["input_ids"].repeat_interleave(len(replies) // len(batch["input_ids"]), 0)
    return torch.cat((prompts, torch.tensor(replies)), 1)


def decoded(generated: Any, batch: Any, tokenizer: Any = None) -> list[str]:
    return BatchPolicy().decode_replies(tokenizer or worded(pad_token="w50"), generated, batch)


@pytest.mark.parametrize("layout", PADDERS)
@pytest.mark.parametrize("pad", [50, EOS, UNK])
def test_replies_of_any_layout(layout: str, pad: int) -> None:
    batch = PADDERS[layout](ROWS, pad=pad, extra=1)
    replies = [[21, 22, EOS], [23, EOS, pad]]
    assert decoded(output(batch, replies), batch) == TEXTS


def test_replies_begin_where_the_number_of_real_tokens_is_wrong() -> None:
    batch = left_padded(ROWS, pad=50)
    generated = output(batch)
    tokenizer = worded(pad_token="w50")
    lengths = batch["attention_mask"].sum(1).tolist()
    widespread = [
        tokenizer.decode(row[length:], skip_special_tokens=True) for row, length in zip(generated, lengths, strict=True)
    ]
    assert widespread == ["w21 w22", "w11 w42 w23"]  # the second one leaks its prompt
    assert decoded(generated, batch) == ["w21 w22", "w23"]


def test_several_replies_to_a_prompt_stand_in_turn() -> None:
    batch = left_padded(ROWS, pad=50)
    replies = [[21, EOS], [22, EOS], [23, EOS], [24, 25], [26, 27], [EOS, EOS]]
    assert decoded(output(batch, replies), batch) == ["w21", "w22", "w23", "w24 w25", "w26 w27", ""]


def test_model_output_lists_and_arrays_are_read() -> None:
    batch = left_padded(ROWS, pad=50)
    generated = output(batch)
    made: Any = GenerateDecoderOnlyOutput
    for form in (made(sequences=generated), generated.tolist(), generated.numpy(), generated.int()):
        assert decoded(form, batch) == TEXTS


@pytest.mark.parametrize("batch", [left_padded(ROWS), {"inputs_embeds": torch.zeros(2, 4, 8)}, {}], ids=str)
def test_columns_without_the_prompt_are_all_reply(batch: Any) -> None:
    assert decoded(torch.tensor(REPLIES), batch) == TEXTS
    long = [[*range(21, 31), EOS], [EOS] + [50] * 10]
    assert decoded(torch.tensor(long), batch) == [text(*range(21, 31)), ""]


def test_prompt_alone_has_empty_replies() -> None:
    batch = left_padded(ROWS, pad=50)
    assert decoded(batch["input_ids"], batch) == ["", ""]


def test_special_tokens_in_a_reply_are_left_out() -> None:
    batch = left_padded(ROWS, pad=50)
    assert decoded(output(batch, [[BOS, 21, UNK], [50, 22, EOS]]), batch) == ["w21", "w22"]


def test_replies_end_at_each_id_at_which_generate_stops(llama: Any) -> None:
    llama.generation_config.eos_token_id = [7, 8]
    tokenizer = worded()
    batch = prepared(llama, tokenizer, ["w5 w17", "w11", "w12"])
    generated = output(batch, [[21, 7, 30, 31], [22, 23, 8, 31], [24, EOS, 30, 31]])
    assert decoded(generated, batch, tokenizer) == ["w21 w7", "w22 w23 w8", "w24"]
    # A batch that does not come from `prepare` knows the EOS of the tokenizer alone.
    assert decoded(generated, dict(batch), tokenizer) == ["w21 w7 w30 w31", "w22 w23 w8 w31", "w24"]


def test_tokenizer_without_eos_has_replies_to_the_last_column() -> None:
    batch = left_padded(ROWS, pad=50)
    assert decoded(output(batch), batch, worded(eos_token=None)) == ["w21 w22 </s>", "w23 </s> w50"]


@pytest.mark.parametrize(
    ("generated", "message"),
    [
        (torch.zeros(3, 9, dtype=torch.long), "generated has 3 rows, which are no multiple of the batch's 2."),
        (torch.zeros(9, dtype=torch.long), "generated has shape (9,). Pass what generate gave: (rows, columns)."),
        (torch.zeros(2, 9, 4), "generated has shape (2, 9, 4). Pass what generate gave: (rows, columns)."),
        (output(left_padded([ROWS[0], [11, 43]])), "Some rows of generated begin with the batch's input_ids and some"),
    ],
)
def test_output_of_something_else_is_refused(generated: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        decoded(generated, left_padded(ROWS))


def test_batch_and_output_stay_as_they_were() -> None:
    batch = left_padded(ROWS, pad=50)
    generated = output(batch)
    before = copy.deepcopy((batch, generated))
    decoded(generated, batch)
    assert torch.equal(generated, before[1])
    assert all(torch.equal(batch[name], value) for name, value in before[0].items())


@pytest.mark.parametrize(
    ("ends", "tokens", "kept"),
    [
        ({2}, [9, 8, 2, 0, 0], [9, 8, 2]),
        ({2}, [9, 8, 7], [9, 8, 7]),
        ((7, 8), [9, 8, 7], [9, 8]),
        ((), [9, 2, 9], [9, 2, 9]),
        ([2], [2, 9, 9], [2]),
        ({2}, [], []),
    ],
)
def test_reply_goes_to_its_first_eos(ends: Any, tokens: list[int], kept: list[int]) -> None:
    assert until_end(tokens, ends) == kept


def test_policy_is_public_under_both_names() -> None:
    assert padfix.BatchPolicy is padfix.LlamaBatchPolicy is BatchPolicy
    assert BatchPolicy() == BatchPolicy(padding_side="left", pad_is_eos=True)


@pytest.mark.parametrize("start", [EOS, 3])
def test_start_token_of_a_decoder_ends_no_reply(start: int) -> None:
    model, tokenizer = build("bart", decoder_start_token_id=start), worded("$A </s>", pad_token="<unk>")
    batch, _ = BatchPolicy().prepare(model, tokenizer, TEXTS)
    generated = torch.tensor([[start, 21, 22, EOS], [start, 23, EOS, 0]])
    got = BatchPolicy().decode_replies(tokenizer, generated, batch)
    assert [reply.removeprefix("w3 ") for reply in got] == ["w21 w22", "w23"]
    got = BatchPolicy().decode_replies(tokenizer, generated, dict(batch))
    assert [reply.removeprefix("w3 ") for reply in got] == ["w21 w22", "w23"]


def test_decoder_that_repeats_the_encoders_input_has_a_reply() -> None:
    model, tokenizer = build("bart", decoder_start_token_id=BOS), worded("<s> $A </s>", pad_token="<unk>")
    batch, _ = BatchPolicy().prepare(model, tokenizer, ["w5 w6", "w7 w8"])
    both = torch.tensor([[BOS, 5, 6, EOS], [BOS, 7, 8, EOS]])
    one = torch.tensor([[BOS, 5, 6, EOS], [BOS, 7, 9, EOS]])
    assert BatchPolicy().decode_replies(tokenizer, both, batch) == ["w5 w6", "w7 w8"]
    assert BatchPolicy().decode_replies(tokenizer, one, batch) == ["w5 w6", "w7 w9"]


def test_prompt_of_a_decoder_is_no_reply_behind_its_start_token() -> None:
    model, tokenizer = build("bart", decoder_start_token_id=EOS), worded("$A </s>", pad_token="<unk>")
    batch, arguments = BatchPolicy().prepare(model, tokenizer, TEXTS, max_new_tokens=3)
    given = {**batch, "decoder_input_ids": torch.tensor([[9, 10], [9, 10]])}
    generated = model.generate(**given, **arguments, do_sample=False, eos_token_id=None)
    assert generated[0, :3].tolist() == [EOS, 9, 10]
    got = BatchPolicy().decode_replies(tokenizer, generated, given)
    assert got == [text(*row) for row in generated[:, 3:].tolist()]


def test_each_pad_token_that_is_passed_over_is_named() -> None:
    model = build("llama")
    for name in ("[PAD]", "<newer>"):
        tokenizer = worded()
        tokenizer.add_special_tokens({"pad_token": name})
        model.resize_token_embeddings(99 - len(name))
        with pytest.warns(PadfixWarning, match=re.escape(f"the embedding has {99 - len(name)} rows")):
            pad_token_id(model, tokenizer)


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copy_of_a_batch_knows_what_the_batch_knows(through: Any) -> None:
    model = build("llama")
    model.generation_config.eos_token_id = [7, 8]
    batch = through(BatchPolicy().prepare(model, worded(), TEXTS)[0])
    assert (batch.pad_token_id, batch.end_token_ids, batch.cut) == (0, (7, 8), (0, 0))


def test_batch_of_lists_is_read() -> None:
    batch = {name: value.tolist() for name, value in left_padded([[5, 6], [7]]).items()}
    got = BatchPolicy().decode_replies(worded(), torch.tensor([[5, 6, 9], [0, 7, 10]]), batch)
    assert got == ["w9", "w10"]


def test_table_of_positions_that_has_no_room_is_named() -> None:
    gpt2 = build("gpt2", n_positions=8)
    with pytest.raises(PromptError, match="max_new_tokens=8 leaves no room for a prompt in the 8 positions of GPT2"):
        prepared(gpt2, worded(pad_token="w50"), "w5 w6", max_new_tokens=8)
    rotary = build("llama", max_position_embeddings=8)
    assert prepared(rotary, worded(pad_token="w50"), "w5 w6", max_new_tokens=8).cut == (0,)


def test_arguments_in_another_order_are_named() -> None:
    model, tokenizer = build("llama"), worded(pad_token="w50")
    batch = prepared(model, tokenizer, ["w5 w6"])
    with pytest.raises(TypeError, match="in this order"):
        prepared(tokenizer, model, ["w5"])
    for wrong in (batch["input_ids"], None):
        with pytest.raises(TypeError, match="in this order"):
            BatchPolicy().decode_replies(tokenizer, torch.tensor([[5, 6, 7]]), wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="in this order"):
        BatchPolicy().decode_replies(torch.tensor([[5, 6, 7]]), tokenizer, batch)


def test_an_index_that_is_out_of_another_range_passes(llama: Any) -> None:
    limit = llama.config.max_position_embeddings
    with pytest.raises(IndexError, match="of theirs"), named_positions(llama, limit - 3, 3):
        raise IndexError("of theirs")
    with pytest.raises(PromptError, match=f"has {limit - 2} tokens"), named_positions(llama, limit - 2, 3):
        raise IndexError("of the table")
