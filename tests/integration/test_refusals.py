"""What cannot be made right is named: in fix mode beside stock's own outcome, in strict mode as an error.

Beside each refusal stand the values of the same argument that are harmless: there every row gets what it gets alone.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from facts import CACHE_FIELD, RELEASE, ROPE_FIELD
from oracle import (
    BOS,
    GREEDY,
    PAD,
    PADDERS,
    ROWS,
    alone,
    build,
    check,
    compare,
    embedded,
    left_padded,
    right_padded,
    together,
)
from stock import (
    CACHE_IS_NONE,
    REFUSED,
    Outcome,
    assert_replies,
    assert_stocks,
    endless,
    expected,
    outcome,
    suppressed_outcome,
    unchanged,
)
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerationMixin

import padfix
from padfix import AmbiguousPaddingError, PadfixError, RightPaddingError, UnsupportedCallError

pytestmark = pytest.mark.usefixtures("installed")

EQUAL = [ROWS[0], ROWS[0][::-1]]
ONE = ROWS[:1]


# Code of the caller's own, which keeps what it saw


class Processor(LogitsProcessor):
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.seen.append(input_ids.tolist())
        return scores


class Criteria(StoppingCriteria):
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        self.seen.append(input_ids.tolist())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


class Streamer(BaseStreamer):
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def put(self, value: Any) -> None:
        self.seen.append(value.tolist())

    def end(self) -> None:
        self.seen.append("end")


def words() -> Any:
    """A tokenizer whose words are numbers."""
    vocabulary = {f"<{one}>": one for one in range(99)} | {"abcdef": 99}  # transformers tokenizes that word
    made = Tokenizer(WordLevel(vocabulary, unk_token="<0>"))
    made.pre_tokenizer = WhitespaceSplit()
    made.decoder = decoders.WordPiece(cleanup=False)  # joins by spaces
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<0>")


def _prefix(seen: list[Any]) -> Callable[[int, Tensor], list[int]]:
    def allowed(row: int, ids: Tensor) -> list[int]:
        seen.append((row, ids.tolist()))
        return list(range(5, 60))

    return allowed


CALLBACKS: Mapping[str, Callable[[list[Any]], Any]] = {
    "logits_processor": lambda seen: [Processor(seen)],
    "logits_processor, library's list": lambda seen: LogitsProcessorList([Processor(seen)]),
    "stopping_criteria": lambda seen: [Criteria(seen)],
    "stopping_criteria, library's list": lambda seen: StoppingCriteriaList([Criteria(seen)]),
    "prefix_allowed_tokens_fn": _prefix,
    "streamer": Streamer,
}


def _shown(prompt: Tensor, replies: Tensor, name: str) -> list[Any]:
    """What a callback has to see: the caller's prompt and, step by step, the reply so far."""
    steps = [torch.cat((prompt, replies[:, :step]), 1).tolist() for step in range(replies.shape[1])]
    if name == "stopping_criteria":  # asked after each new token
        return [*steps[1:], torch.cat((prompt, replies), 1).tolist()]
    if name == "prefix_allowed_tokens_fn":
        return [(row, ids) for step in steps for row, ids in enumerate(step)]
    if name == "streamer":
        return [prompt.tolist(), *(column.tolist() for column in replies.T), "end"]
    return steps


@pytest.mark.parametrize("pad", [PAD, 104], ids=["a pad id", "no embedding row"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", CALLBACKS)
def test_code_of_the_callers_own_sees_the_callers_layout(name: str, side: str, pad: int) -> None:
    model, argument, seen = endless("llama"), name.split(",")[0], list[Any]()
    batch = PADDERS[side](ROWS, pad=pad, extra=2)
    callback = CALLBACKS[name](seen)
    arguments = batch | GREEDY | {argument: callback}
    with unchanged(model, arguments):
        got = outcome(lambda: model.generate(**arguments))
    assert got.said == []
    assert arguments[argument] is callback
    replies = got.output[:, 9:]
    assert seen == _shown(batch["input_ids"], replies, argument)
    single = [alone(model, [row], distinct=False, **_own(argument)) for row in ROWS]
    assert replies.tolist() == [one.tokens for [one] in single]


def _own(argument: str) -> dict[str, Any]:
    """The callback of a prompt alone, where it changes the reply."""
    return {argument: CALLBACKS[argument]([])} if argument == "prefix_allowed_tokens_fn" else {}


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize("name", CALLBACKS)
def test_code_of_the_callers_own_is_fine_where_the_batch_is_left_padded(name: str, mode: str) -> None:
    model, argument = build("llama"), name.split(",")[0]
    sights: list[list[Any]] = [[], []]
    arguments = [left_padded(ROWS) | GREEDY | {argument: CALLBACKS[name](seen)} for seen in sights]
    stock = suppressed_outcome(lambda: model.generate(**arguments[0]))
    with padfix.override(mode):
        got = outcome(lambda: model.generate(**arguments[1]))
    assert got.said == []
    assert_stocks(got, stock)
    assert sights[0] == sights[1] != []


@pytest.mark.parametrize("name", CALLBACKS)
def test_code_of_the_callers_own_is_no_obstacle_where_only_positions_are_rewritten(name: str) -> None:
    model, argument, batch = build("llama"), name.split(",")[0], left_padded(ROWS)
    sights: list[list[Any]] = [[], []]
    by_hand = outcome(lambda: model.generate(**batch, **GREEDY, **{argument: CALLBACKS[name](sights[0])}))
    columns = torch.arange(7)[None]  # not the positions of left-padded rows
    got = outcome(
        lambda: model.generate(**batch, **GREEDY, position_ids=columns, **{argument: CALLBACKS[name](sights[1])})
    )
    assert got.said == []
    assert_stocks(got, by_hand)
    assert sights[0] == sights[1] != []


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("suppressed", [False, True])
def test_a_call_inside_the_callers_own_code_is_a_call_of_its_own(suppressed: bool, side: str) -> None:
    model, inner = build("llama"), right_padded(ROWS)
    replies: list[Tensor] = []

    def calls(ids: Tensor, scores: Tensor) -> Tensor:
        with padfix.suppressed() if suppressed else nullcontext():
            replies.append(model.generate(**inner, **GREEDY)[:, 7:])
        return scores

    outer = PADDERS[side](ROWS)
    output = model.generate(**outer, **GREEDY, no_repeat_ngram_size=1, logits_processor=[calls])
    single = alone(model, ROWS, no_repeat_ngram_size=1)
    assert_replies(output, outer["input_ids"], [one.tokens for one in single])
    stock = suppressed_outcome(lambda: model.generate(**inner, **GREEDY)).output[:, 7:]
    assert len(replies) == 6
    assert all(torch.equal(one, stock) == suppressed for one in replies)


# Everything else


class Extended(transformers.LlamaForCausalLM):
    """Takes tensors that stand for what models of text and images take, and ignores them."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        image_bound: Tensor | None = None,
        colour_ids: Tensor | None = None,
        aspect_ratio_ids: Tensor | None = None,
        colour_scale: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        return super().forward(input_ids, attention_mask=attention_mask, **kwargs)


def _extended() -> Any:
    model = build("llama")
    model.__class__ = Extended
    padfix.register_architecture(Extended, left_padding_exact=True)
    return model


def _eager() -> Any:
    return build("llama", attn_implementation="eager")


def _roped(kind: str, **more: Any) -> Callable[[], Any]:
    """The Llama of the table with another rotary embedding, whose scale switches at 16 columns."""

    def make() -> Any:
        base = build("llama")
        config = copy.deepcopy(base.config)
        config.max_position_embeddings = 16 if kind == "dynamic" else 64
        rope = {"rope_type": kind, "factor": 4.0, **more}
        setattr(config, ROPE_FIELD, {"rope_theta": 10000.0, **rope} if ROPE_FIELD == "rope_parameters" else rope)
        model = transformers.LlamaForCausalLM(config).eval()
        model.load_state_dict(base.state_dict())
        model.generation_config = copy.deepcopy(base.generation_config)
        return model

    return make


_dynamic = _roped("dynamic")
_longrope = _roped("longrope", short_factor=[1.0] * 4, long_factor=[3.0] * 4, original_max_position_embeddings=16)


class Refusal(NamedTuple):
    """An argument or a model that stands in the way of a repair.

    Attributes:
        named: What the message has to say, a pattern.
        arguments: The arguments beside the batch, made anew for each call.
        left: Whether it stands in the way of a left-padded batch too.
        rows: The prompts.
        extra: Columns that are pads in every row.
    """

    named: str
    arguments: Callable[[], Mapping[str, Any]] = dict
    left: bool = True
    model: Callable[[], Any] = lambda: build("llama")
    rows: Sequence[Sequence[int]] = ROWS
    extra: int = 0


# Without it, rows of one length would run apart: it counts for the whole call.
WHOLE = {"max_time": 600.0}


def _loop(name: str, value: Any, **more: Any) -> Refusal:
    return Refusal(rf"{name}=\.\.\. \(its decoding loop looks at pads\)", lambda: {name: value, **more, **WHOLE})


REFUSALS: Mapping[str, Refusal] = {
    "penalty_alpha": _loop("penalty_alpha", 0.6, top_k=4),
    "force_words_ids": _loop("force_words_ids", [[7, 8]], num_beams=2),
    "positions of another width": Refusal(
        r"position_ids= of shape \(1, 1\), where the prompt has shape \(3, 7\)", lambda: REFUSED, left=False
    ),
    "image_bound": Refusal(
        r"image_bound= \(it holds indices into the prompt\)",
        lambda: {"image_bound": torch.tensor([[0, 2]] * 3)},
        left=False,
        model=_extended,
    ),
    "an unknown keyword that looks aligned": Refusal(
        r"colour_ids= of shape \(3, 7\) \(it looks as if its columns were the prompt's",
        lambda: {"colour_ids": torch.ones(3, 7, dtype=torch.long)},
        left=False,
        model=_extended,
    ),
    "an unknown bool keyword of more axes": Refusal(
        r"colour_ids= of shape \(3, 7, 2\) \(it looks as if its columns were the prompt's",
        lambda: {"colour_ids": torch.ones(3, 7, 2, dtype=torch.bool)},
        left=False,
        model=_extended,
    ),
    "token_type_ids of another width": Refusal(
        r"token_type_ids= of shape \(3, 5\), where the prompt has shape \(3, 7\)",
        lambda: {"token_type_ids": torch.zeros(3, 5, dtype=torch.long)},
        left=False,
        model=_extended,
    ),
    "token_type_ids of other rows": Refusal(
        r"token_type_ids= of shape \(2, 7\), where the prompt has shape \(3, 7\)",
        lambda: {"token_type_ids": torch.zeros(2, 7, dtype=torch.long)},
        left=False,
        model=lambda: build("gpt2"),
    ),
    "token_type_ids that are a list": Refusal(
        r"token_type_ids= of type list, where the prompt has shape \(3, 7\)",
        lambda: {"token_type_ids": [[0] * 7] * 3},
        left=False,
        model=_extended,
    ),
    "rwkv": Refusal(
        r"RwkvForCausalLM \(rows of one batch change one another.*max_time \(it counts",
        lambda: WHOLE,
        model=lambda: build("rwkv"),
    ),
    "dynamic NTK beyond its switch": Refusal(
        r"LlamaForCausalLM \(dynamic NTK scales every row by the longest one\)",
        lambda: {"max_new_tokens": 10, **WHOLE},
        model=_dynamic,
    ),
    "LongRoPE beyond its switch": Refusal(
        r"LlamaForCausalLM \(LongRoPE switches its factors for every row by the longest one\)",
        lambda: {"max_new_tokens": 10, **WHOLE},
        model=_longrope,
    ),
}


def _stocks(refusal: Refusal, side: str) -> Outcome:
    model, arguments = _refused(refusal, side)
    return suppressed_outcome(lambda: model.generate(**arguments))


def _refused(refusal: Refusal, side: str) -> tuple[Any, dict[str, Any]]:
    model = refusal.model()
    return model, {**PADDERS[side](refusal.rows, extra=refusal.extra), **GREEDY, **refusal.arguments()}


@pytest.mark.parametrize("side", ["right", "both"])
@pytest.mark.parametrize("name", REFUSALS)
def test_what_stands_in_the_way_of_a_repair_is_named_and_stock_answers(name: str, side: str) -> None:
    refusal = REFUSALS[name]
    stock = _stocks(refusal, side)
    model, arguments = _refused(refusal, side)
    caches = [value for value in arguments.values() if isinstance(value, DynamicCache)]
    with unchanged(model, {key: value for key, value in arguments.items() if value not in caches}):
        got = outcome(lambda: model.generate(**arguments))
    assert len(got.said) == 1
    assert re.search(f"pads after real tokens: .* padfix cannot make this call right: .*{refusal.named}", got.said[0])
    assert_stocks(got, stock)
    with padfix.override("strict"), pytest.raises(RightPaddingError):
        model.generate(**arguments)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_left_padded_batch_is_refused_only_where_pads_themselves_are_in_the_way(name: str) -> None:
    refusal = REFUSALS[name]
    stock = _stocks(refusal, "left")
    model, arguments = _refused(refusal, "left")
    got = outcome(lambda: model.generate(**arguments))
    assert_stocks(got, stock)
    if refusal.left:
        assert len(got.said) == 1
        assert re.search(rf"are padded\. padfix cannot make this call right: .*{refusal.named}", got.said[0])
        with padfix.override("strict"), pytest.raises(UnsupportedCallError, match=refusal.named):
            model.generate(**arguments)
    else:
        assert got.said == []
        model, arguments = _refused(refusal, "left")
        with padfix.override("strict"):
            assert_stocks(outcome(lambda: model.generate(**arguments)), stock)


def test_two_obstacles_are_both_named() -> None:
    model = build("llama")
    arguments = right_padded(ROWS) | GREEDY | REFUSED | {"cache_position": torch.arange(7), "token_healing": True}
    [said] = outcome(lambda: model.generate(**arguments)).said
    for name in ("position_ids=", "cache_position=", "token_healing="):
        assert name in said


HISTORY_BOUND = [name for name, refusal in REFUSALS.items() if refusal.left and refusal.rows is ROWS and name != "rwkv"]


@pytest.mark.parametrize("name", HISTORY_BOUND)
def test_what_only_pads_are_in_the_way_of_is_exact_where_all_rows_share_them(name: str) -> None:
    shared = REFUSALS[name]._replace(rows=EQUAL, extra=3)

    single = [_stocks(shared._replace(rows=[row], extra=0), "right") for row in EQUAL]
    for side in PADDERS:
        model, arguments = _refused(shared, side)
        got = outcome(functools.partial(model.generate, **arguments))
        assert got.said == []
        assert got.raised == single[0].raised == single[1].raised
        if got.raised is None:
            replies = [one.output[0, 7:].tolist() for one in single]
            assert_replies(got.output, PADDERS[side](EQUAL, extra=3)["input_ids"], replies)


# Flags that are exact in a padded batch, and values that ask for nothing

HARMLESS: Mapping[str, dict[str, Any]] = {
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "no_repeat_ngram_size of one": {"no_repeat_ngram_size": 1},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 2},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.5},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "bad_words_ids": {"bad_words_ids": [[5, 6], [7]]},
    "sequence_bias": {"sequence_bias": {(5, 6): -3.0}},
    "sequence_bias as lists": {"sequence_bias": [[[5, 6], -3.0]]},
    "watermarking_config": {"watermarking_config": transformers.WatermarkingConfig()},
    "forced_bos_token_id": {"forced_bos_token_id": 7},
    "min_length": {"min_length": 9},
    "no_repeat_ngram_size=0": {"no_repeat_ngram_size": 0},
    "encoder_no_repeat_ngram_size=0": {"encoder_no_repeat_ngram_size": 0},
    "encoder_repetition_penalty=1": {"encoder_repetition_penalty": 1.0},
    "repetition_penalty=1": {"repetition_penalty": 1.0},
    "bad_words_ids of one token each": {"bad_words_ids": [[51], [93], [44]]},
    "sequence_bias of one token each": {"sequence_bias": {(51,): -9.0, (93,): 9.0}},
    "sequence_bias of one token, as a list": {"sequence_bias": [[[51], -9.0]]},
    "min_length=0": {"min_length": 0},
    "min_new_tokens": {"min_new_tokens": 3},
    "min_length beside min_new_tokens": {"min_length": 9, "min_new_tokens": 3},
    "guidance without a negative prompt": {"guidance_scale": 1.5},
    "guidance_scale=1": {"guidance_scale": 1.0},
    "stop_strings=None": {"stop_strings": None},
    "penalty_alpha=0": {"penalty_alpha": 0.0},
    "forced_eos_token_id": {"forced_eos_token_id": 7},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": (2, 1.5)},
    "suppress_tokens": {"suppress_tokens": [51, 93, 44]},
    "begin_suppress_tokens": {"begin_suppress_tokens": [51, 93, 44]},
    "logits_processor=[]": {"logits_processor": []},
    "library's empty lists": {
        "logits_processor": LogitsProcessorList(),
        "stopping_criteria": StoppingCriteriaList(),
    },
    "callbacks that are None": {"prefix_allowed_tokens_fn": None, "streamer": None, "stopping_criteria": None},
    "no assistant": {"assistant_model": None, "prompt_lookup_num_tokens": None},
    "no hidden states": {"output_hidden_states": False, "output_attentions": False},
    "no cache": {"use_cache": False},
    "a cache that is None": {CACHE_FIELD: None},
}


@CACHE_IS_NONE
@pytest.mark.filterwarnings("ignore:.*penalty_alpha.*", "ignore:.*min_length.*", "ignore:.*min_new_tokens.*")
@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_value_is_repaired_without_a_warning(name: str) -> None:
    model = build("llama")
    wanted = alone(model, ROWS, distinct=False, **HARMLESS[name])
    for side in ("right", "left", "both"):
        compare(together(model, PADDERS[side](ROWS), **HARMLESS[name]), wanted)


@pytest.mark.filterwarnings("ignore:`return_dict_in_generate` is NOT set:UserWarning")
@pytest.mark.parametrize("asked", ["output_hidden_states", "output_attentions"])
def test_hidden_states_that_do_not_come_back_are_no_obstacle(asked: str) -> None:
    batch = right_padded(ROWS)
    output = _eager().generate(**batch, **GREEDY, **{asked: True})
    assert_replies(output, batch["input_ids"], [one.tokens for one in expected("llama")])


@CACHE_IS_NONE
@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning")
@pytest.mark.parametrize("side", PADDERS)
def test_repetition_penalty_beside_embeddings_alone_counts_the_reply(side: str) -> None:
    model = build("llama")
    batch = embedded(model, PADDERS[side](ROWS))

    def each(row: int) -> dict[str, Any]:
        return {**embedded(model, right_padded([ROWS[row]])), "input_ids": None}

    check(model, batch, ROWS, each=each, repetition_penalty=3.0)


@pytest.mark.parametrize("side", PADDERS)
def test_each_row_ends_at_its_own_stop_string(side: str) -> None:
    model, batch = build("llama"), PADDERS[side](ROWS)
    # The second row's prompt must not begin with pads that complete the last of them, and the first one's is cut short.
    stops = {"stop_strings": [" <44> <98>", "<9> <51>", "<0> <11> <42> <7> <93>"], "tokenizer": words()}
    single = [one.tokens for one in alone(model, ROWS, distinct=False, **stops)]
    assert [len(one) for one in single] == [1, 6, 2]
    assert_replies(model.generate(**batch, **GREEDY, **stops), batch["input_ids"], single)


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("loop", ["assistant_model", "prompt_lookup_num_tokens"])
def test_one_padded_prompt_is_exact_in_the_loops_for_one_prompt(loop: str, side: str) -> None:
    model, row = build("llama"), [5, 6, 7, 5, 6, 7, 5, 6]
    arguments = {loop: build("llama") if loop == "assistant_model" else 2}
    batch = PADDERS[side]([row], extra=3)
    [single] = alone(model, [row], distinct=False)
    got = outcome(lambda: model.generate(**batch, **GREEDY, **arguments))
    assert got.said == []
    assert_replies(got.output, batch["input_ids"], [single.tokens])


@CACHE_IS_NONE
@pytest.mark.parametrize(
    ("argument", "shape", "dtype"),
    [
        ("aspect_ratio_ids", (3, 7), torch.long),  # known for a second axis of its own
        ("colour_scale", (3, 7), torch.float32),  # no label
        ("colour_ids", (3, 6), torch.long),
        ("colour_ids", (7, 3), torch.long),
        ("colour_ids", (3,), torch.long),
        ("token_type_ids", (1, 7), torch.long),
    ],
)
def test_a_keyword_that_does_not_look_aligned_is_no_obstacle(
    argument: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    replies = together(_extended(), {**right_padded(ROWS), argument: torch.ones(shape, dtype=dtype)})
    compare(replies, expected("llama"))


# Models


@CACHE_IS_NONE
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("model", [_dynamic, _longrope], ids=["dynamic NTK", "LongRoPE"])
def test_a_rotary_embedding_that_switches_is_exact_up_to_its_switch_and_beyond(
    model: Callable[[], Any], side: str
) -> None:
    made = model()
    made.generation_config.eos_token_id = None
    check(made, PADDERS[side](ROWS, extra=2 if side != "left" else 0), ROWS, max_new_tokens=9)
    if model is not _dynamic or RELEASE != (5, 0):  # there the same prompt alone, twice, is not the same
        check(made, PADDERS[side](ROWS), ROWS, max_new_tokens=13)


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("row", ROWS, ids=len)
def test_one_prompt_of_a_recurrent_model_is_exact_without_its_pads(row: list[int], side: str) -> None:
    batch = PADDERS[side]([row], extra=3)
    output = build("rwkv").generate(**batch, **GREEDY)
    [single] = alone(build("rwkv"), [row], distinct=False)
    assert_replies(output, batch["input_ids"], [single.tokens])


@CACHE_IS_NONE
@pytest.mark.parametrize("side", PADDERS)
def test_prompts_of_one_length_are_exact_without_their_pads(side: str) -> None:
    check(build("blenderbot"), PADDERS[side](EQUAL, extra=3), EQUAL)


@CACHE_IS_NONE
@pytest.mark.parametrize("side", PADDERS)
def test_prompts_of_one_length_run_one_at_a_time_where_a_model_mixes_rows(side: str) -> None:
    check(build("rwkv"), PADDERS[side](EQUAL, extra=3), EQUAL)


DECODER_ROWS = [[BOS, 17, 33, 8, 61], [BOS, 42], [BOS, 13, 55]]


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
@pytest.mark.parametrize("side", PADDERS)
def test_padded_prompts_of_an_encoder_decoder_are_named(side: str, masked: bool) -> None:
    if side == "holes" and not masked:
        pytest.skip("without a mask, pads within a prompt are content")
    model, prompt = build("bart"), PADDERS[side](DECODER_ROWS)
    arguments = {**right_padded(ROWS), **GREEDY, **WHOLE, "decoder_input_ids": prompt["input_ids"]}
    if masked:
        arguments["decoder_attention_mask"] = prompt["attention_mask"]
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    with unchanged(model, arguments):
        got = outcome(lambda: model.generate(**arguments))
    assert_stocks(got, stock)
    assert len(got.said) == 1
    assert re.match(r"Rows 1, 2 of decoder_input_ids \(shape \(3, 5\)\) ", got.said[0])
    assert "BartForConditionalGeneration (it counts positions from column 0" in got.said[0]
    error: type[PadfixError] = UnsupportedCallError if side == "left" else RightPaddingError
    with padfix.override("strict"), pytest.raises(error if masked else AmbiguousPaddingError) as caught:
        model.generate(**arguments)
    assert str(caught.value).startswith("Rows 1, 2 of decoder_input_ids (shape (3, 5)) ")


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize(
    "rows",
    [[[BOS, 17, 33], [BOS, 42, 7]], [[PAD, 17, 33], [PAD, 42, 7]], [[PAD], [PAD], [PAD]]],
    ids=["no pads", "all start with the pad id", "start token alone"],
)
def test_prompts_of_an_encoder_decoder_without_pads_are_stocks(rows: list[list[int]], mode: str) -> None:
    model = build("bart")
    arguments = {**right_padded(ROWS[: len(rows)]), **GREEDY, "decoder_input_ids": torch.tensor(rows)}
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    with padfix.override(mode):
        got = outcome(lambda: model.generate(**arguments))
    assert got.said == []
    assert_stocks(got, stock)


def test_a_refused_call_reaches_stock_with_the_callers_own_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    padfix.uninstall()
    original, calls = GenerationMixin.generate, []

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(GenerationMixin, "generate", spy)
    padfix.install("fix")
    batch, flags = right_padded(ROWS), GREEDY | REFUSED
    outcome(lambda: build("llama").generate(batch["input_ids"], attention_mask=batch["attention_mask"], **flags))
    [(args, kwargs)] = calls
    assert len(args) == 1
    assert args[0] is batch["input_ids"]
    assert kwargs.pop("attention_mask") is batch["attention_mask"]
    assert kwargs == flags


# A cache of an earlier turn


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_beside_a_cache_a_left_padded_mask_may_be_wider_than_the_new_tokens(mode: str) -> None:
    model, first = endless("llama"), left_padded(ROWS)

    def second() -> dict[str, Any]:
        with padfix.suppressed():
            turn = model.generate(**first, **GREEDY, return_dict_in_generate=True)
        return {
            "input_ids": torch.tensor([[7, 8], [9, 10], [11, 12]]),
            "attention_mask": torch.cat((first["attention_mask"], torch.ones(3, 7).long()), 1),
            "past_key_values": turn.past_key_values,
            **GREEDY,
        }

    stock = suppressed_outcome(functools.partial(model.generate, **second()))
    with padfix.override(mode):
        got = outcome(functools.partial(model.generate, **second()))
    assert got.said == []
    assert_stocks(got, stock)
