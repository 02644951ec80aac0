"""Prompts packed for the prefill: every row gets what its prompt gets alone, and the caller sees nothing of it."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
import wrapt
from chat import Chat, cache_of
from facts import RELEASE
from oracle import GREEDY, PADDERS, alone, assert_close, build, check, embedded, left_padded, right_padded, together
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, StoppingCriteria
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerationMixin
from transformers.models.llama import modeling_llama

import padfix
from padfix import SettingsError
from padfix.generation.exceptions import PACKABLE
from padfix.layout.packing import Packing
from padfix.strategies import packed_prefill

# Without their last tokens 11, 3, 2, 0, 5: two rows, of which the second holds three prompts and an empty cell.
LENGTHS = (12, 4, 3, 1, 6)
# Long enough to be packed without being asked for.
LONG = (200, 30, 25, 20, 15, 12)

pytestmark = [
    pytest.mark.skipif(PACKABLE["LlamaForCausalLM"] > RELEASE, reason="this release packs nothing"),
    pytest.mark.filterwarnings("ignore:.*return_legacy_cache"),
]


def prompts(lengths: tuple[int, ...]) -> list[list[int]]:
    drawn = torch.Generator().manual_seed(3)
    return [torch.randint(3, 99, (length,), generator=drawn).tolist() for length in lengths]


ROWS, MANY = prompts(LENGTHS), prompts(LONG)

Shapes = list[tuple[int, ...]]


@pytest.fixture(autouse=True)
def forced() -> Iterator[None]:
    padfix.install("fix", strategy="packed_prefill")
    yield
    padfix.uninstall()


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Shapes:
    """The shape of the ids of each forward of a Llama since, where they are looked up."""
    seen: Shapes = []
    embedding = torch.nn.functional.embedding

    def watched(ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(tuple(ids.shape))
        return embedding(ids, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "embedding", watched)
    return seen


FLAGS: Mapping[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "beams, several returned": {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "min_length": {"min_length": 14, "max_new_tokens": 14},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 2.0},
    "bad_words_ids": {"bad_words_ids": [[5, 6], [7]]},
    "max_new_tokens": {"max_new_tokens": 1},
}


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("flag", FLAGS)
def test_rows_get_what_their_prompts_get_alone(flag: str, side: str, shapes: Shapes) -> None:
    model, arguments = build("llama"), GREEDY | FLAGS[flag]
    expected = alone(model, ROWS, **arguments)
    shapes.clear()
    replies = together(model, PADDERS[side](ROWS, pad=57, extra=2), pad_token_id=57, **arguments)
    for got, want in zip(replies, expected, strict=True):
        assert got.tokens == want.tokens
        if want.scores is not None:
            assert got.scores is not None
            assert_close(got.scores, want.scores)
    rows = len(ROWS) * arguments.get("num_beams", 1)
    assert shapes[:2] == [(2, 11), (rows, 1)]
    assert set(shapes[1:]) == {(rows, 1)}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_either_attention(name: str, attention: str) -> None:
    model = build(name, attn_implementation=attention, sliding_window=64)
    assert model.config._attn_implementation == attention
    check(model, right_padded(ROWS), ROWS)


@pytest.mark.filterwarnings("ignore:the field .* of this output is None")  # the cache of a full window
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_windows_narrower_than_the_prompts(name: str, side: str) -> None:
    if PACKABLE[f"{name.capitalize()}ForCausalLM"] > RELEASE:
        pytest.skip("this release does not pack it")
    padfix.install("fix", strategy="auto")
    model, batch, packed = build(name), PADDERS[side](MANY), []
    assert model.config.sliding_window < min(LONG)
    poured = vars(packed_prefill)["poured"]

    def counted(*given: Any) -> Any:
        packed.append(given)
        return poured(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_prefill, "poured", counted)
        check(model, batch, MANY)
    assert len(packed) == 1


WINDOW_THAT_NOBODY_READS: Mapping[str, Any] = {
    "a class without windows": ("llama", {}),
    "layers that slide whatever their kind": ("mistral", {"layer_types": ["full_attention"] * 2}),
}


@pytest.mark.filterwarnings("ignore:the field .* of this output is None")
@pytest.mark.parametrize("why", WINDOW_THAT_NOBODY_READS)
def test_window_that_the_layers_do_not_take_as_it_is_said(why: str) -> None:
    name, config = WINDOW_THAT_NOBODY_READS[why]
    model = build(name, sliding_window=8)
    vars(model.config).update(config)
    with pytest.raises(SettingsError, match="what its layers make of the window"):
        model.generate(**right_padded(MANY), **GREEDY)
    padfix.install("fix", strategy="auto")
    check(model, left_padded(MANY), MANY)


def test_two_tokens_a_row() -> None:
    rows = [[5, 6], [7], [8, 9]]
    check(build("llama"), right_padded(rows), rows)


def test_several_samples_of_each_prompt_are_those_of_left_padding() -> None:
    model, batch = build("llama"), right_padded(ROWS)
    outputs = []
    for strategy in ("packed_prefill", "left_pad"):
        torch.manual_seed(0)
        with padfix.override(strategy=strategy):
            outputs.append(
                model.generate(
                    **batch,
                    do_sample=True,
                    num_return_sequences=3,
                    max_new_tokens=6,
                    top_k=20,
                    return_dict_in_generate=True,
                    output_scores=True,
                )
            )
    packed, padded = outputs
    assert torch.equal(packed.sequences, padded.sequences)
    for one, other in zip(packed.scores, padded.scores, strict=True):
        assert_close(one, other)


# What the caller's own code sees


class Processor(LogitsProcessor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(input_ids.tolist())
        return scores


class Criterion(StoppingCriteria):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.seen.append(input_ids.tolist())
        return torch.zeros(len(input_ids), dtype=torch.bool)


class Streamer(BaseStreamer):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def put(self, value: Tensor) -> None:
        self.seen.append(value.tolist())

    def end(self) -> None:
        self.seen.append("end")


@pytest.mark.parametrize("side", ["right", "left"])
def test_callers_code_sees_what_it_sees_left_padded(side: str, shapes: Shapes) -> None:
    model, batch, seen = build("llama"), PADDERS[side](ROWS), []
    for strategy in ("packed_prefill", "left_pad"):
        processor, criterion, prefixes = Processor(), Criterion(), []

        def allowed(row: int, ids: Tensor) -> list[int]:
            prefixes.append((row, ids.tolist()))  # noqa: B023
            return list(range(3, 99))

        with padfix.override(strategy=strategy):
            model.generate(
                **batch,
                **GREEDY,
                logits_processor=[processor],
                stopping_criteria=[criterion],
                prefix_allowed_tokens_fn=allowed,
            )
        seen.append((processor.seen, criterion.seen, prefixes))
    assert seen[0] == seen[1]
    assert seen[0][0][0] == batch["input_ids"].tolist()
    assert shapes[0] == (2, 11)


def test_streamer_gets_the_prompt_first(shapes: Shapes) -> None:
    batch, seen = left_padded(ROWS[1:2], extra=3), []  # one row, whose pads stay where they are
    for strategy in ("packed_prefill", "left_pad"):
        streamer = Streamer()
        with padfix.override(strategy=strategy):
            build("llama").generate(**batch, **GREEDY, streamer=streamer)
        seen.append(streamer.seen)
    assert seen[0] == seen[1]
    assert seen[0][0] == batch["input_ids"].tolist()
    assert seen[0][-1] == "end"
    assert shapes[0] == (1, 3)


# Caches


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("beams", [1, 2])
def test_cache_is_that_of_left_padding(side: str, beams: int) -> None:
    model, batch = build("llama"), PADDERS[side](ROWS)
    outputs = []
    for strategy in ("packed_prefill", "left_pad"):
        with padfix.override(strategy=strategy):
            outputs.append(model.generate(**batch, **GREEDY, num_beams=beams, return_dict_in_generate=True))
    packed, padded = map(cache_of, outputs)
    assert type(packed) is type(padded) is DynamicCache
    assert packed.get_seq_length() == padded.get_seq_length()
    assert set(vars(packed)) == set(vars(padded))
    real = torch.nn.functional.pad(batch["attention_mask"].bool(), (0, 5), value=True).repeat_interleave(beams, 0)
    for one, other in zip(_tensors(packed), _tensors(padded), strict=True):
        assert one.shape == other.shape
        assert_close(one.transpose(1, 2)[real], other.transpose(1, 2)[real])


def _tensors(cache: Any) -> list[Tensor]:
    if hasattr(cache, "layers"):
        return [each for layer in cache.layers for each in (layer.keys, layer.values)]
    return [*cache.key_cache, *cache.value_cache]


@pytest.mark.parametrize("side", [right_padded, left_padded])
def test_next_turn_goes_on_from_it(side: Callable[..., dict[str, Tensor]], shapes: Shapes) -> None:
    chat = Chat(build("llama"), rows=len(ROWS))
    padfix.install("fix", strategy="auto")  # what goes on from a cache is not packed
    with padfix.override(strategy="packed_prefill"):
        chat.turn(ROWS, side)
    assert (2, 11) in shapes
    chat.turn([[21, 22], [31], [44, 45, 46], [9], [8, 7]], side)


# The choice


def test_ragged_batch_is_packed_without_being_asked_for(shapes: Shapes) -> None:
    padfix.install("fix", strategy="auto")
    model = build("llama")
    for side in ("right", "left"):
        expected = alone(model, MANY)
        shapes.clear()
        for got, want in zip(together(model, PADDERS[side](MANY)), expected, strict=True):
            assert got.tokens == want.tokens
        assert shapes[:2] == [(2, 199), (6, 1)]


@pytest.mark.parametrize("rows", [ROWS, prompts((200, 199, 190, 180))])
def test_batch_that_gains_little_is_not(rows: list[list[int]], shapes: Shapes) -> None:
    padfix.install("fix", strategy="auto")
    build("llama").generate(**right_padded(rows), **GREEDY)
    assert shapes[0] == (len(rows), max(map(len, rows)))


@pytest.mark.parametrize(
    ("lengths", "width", "copies", "expected"),
    [
        ((400, 60, 40, 35, 30, 28, 25, 22), 400, 1, True),
        ((200, 30, 25, 20, 15, 12), 200, 1, True),
        ((200, 200, 200, 200), 200, 1, False),  # nothing shares a row
        ((200, 200, 200, 200), 200, 4, True),  # each prompt once, rather than four times
        ((12, 5, 4, 1, 6, 3), 12, 1, False),  # too few to be worth it
        ((200, 150, 50), 200, 1, False),  # two rows of three
        ((1, 1), 900, 1, True),
        ((1000,) * 5 + (333,) * 3, 1000, 1, True),  # six rows of eight
        ((1000,) * 6 + (500,) * 2, 1000, 1, False),  # seven
    ],
)
def test_it_pays_by_lengths_alone(lengths: tuple[int, ...], width: int, copies: int, expected: bool) -> None:
    assert packed_prefill.pays(lengths, width, copies, least=512) is expected


def test_it_has_to_save_more_where_a_forward_of_few_cells_takes_as_long_as_one_of_many() -> None:
    fewest = packed_prefill.fewest_saved
    assert packed_prefill.FEWEST == fewest("cpu", 256) < fewest("cpu", 255) < fewest("cuda", 4096)
    assert packed_prefill.pays(LONG, 200, 1, least=796)
    assert not packed_prefill.pays(LONG, 200, 1, least=797)


def test_left_padded_batch_is_packed_silently(caplog: pytest.LogCaptureFixture) -> None:
    padfix.install("fix", strategy="auto")
    with caplog.at_level(logging.INFO, "padfix"):
        build("llama").generate(**left_padded(MANY), **GREEDY)
    assert caplog.records == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_warn_mode_packs_nothing(side: str, shapes: Shapes) -> None:
    padfix.install("warn")
    if side == "right":
        with pytest.warns(padfix.PadfixWarning, match=r"Pad on the left|padding_side"):
            build("llama").generate(**right_padded(MANY), **GREEDY)
    else:
        build("llama").generate(**left_padded(MANY), **GREEDY)
    assert shapes[0] == (6, 200)


def gradient(strategy: str, rows: list[list[int]]) -> Tensor:
    """That of the first logits by the embeddings, through the method beneath the decorator of `generate`."""
    model = build("llama")
    generate = type(model).generate.__wrapped__
    asked = {"do_sample": False, "max_new_tokens": 2, "return_dict_in_generate": True, "output_logits": True}
    with padfix.override(strategy=strategy):
        output = generate(model, **right_padded(rows), **asked)
    sum(logits.square().sum() for logits in output.logits).backward()
    found: Tensor = model.model.embed_tokens.weight.grad
    return found


@pytest.mark.skipif(
    hasattr(getattr(GenerationMixin.generate, "__wrapped__", None), "__wrapped__"),
    reason="this release has another decorator around the one that takes gradients away",
)
def test_gradients_go_through_the_prompts(shapes: Shapes) -> None:
    packed = gradient("packed_prefill", ROWS)
    assert shapes[0] == (2, 11)
    assert_close(packed, gradient("left_pad", ROWS))
    assert packed[ROWS[0][0]].abs().max() > 0


# What cannot be packed


def hooked() -> Any:
    model = build("llama")
    model.model.layers[0].register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_hook_on_every_module(register: str) -> None:
    handle = getattr(torch.nn.modules.module, register)(lambda *_: None)
    try:
        with pytest.raises(SettingsError, match="forward hooks would see packed rows"):
            build("llama").generate(**right_padded(ROWS), **GREEDY)
    finally:
        handle.remove()


def with_own_forward() -> Any:
    model = build("llama")
    model.model.layers[1].mlp.forward = model.model.layers[1].mlp.forward
    return model


def with_own_inputs() -> Any:
    model = build("llama")
    model.prepare_inputs_for_generation = model.prepare_inputs_for_generation
    return model


def adapted() -> Any:
    peft = pytest.importorskip("peft")
    model = build("llama")
    peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"]))
    return model


def training() -> Any:
    return build("llama").train()


class Mine(modeling_llama.LlamaForCausalLM):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


def of_somebody() -> Any:
    model = build("llama")
    mine: Any = Mine(model.config)
    mine.eval()
    mine.load_state_dict(model.state_dict())
    mine.generation_config = model.generation_config
    return mine


LLAMA: Callable[[], Any] = functools.partial(build, "llama")

NOT_PACKABLE: Mapping[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "hidden states": (
        LLAMA,
        {"return_dict_in_generate": True, "output_hidden_states": True},
        "output_hidden_states=True",
    ),
    "attentions": (
        functools.partial(build, "llama", attn_implementation="eager"),
        {"return_dict_in_generate": True, "output_attentions": True},
        "output_attentions=True",
    ),
    "no cache": (LLAMA, {"use_cache": False}, "use_cache=False"),
    "static cache": (LLAMA, {"cache_implementation": "static"}, "cache_implementation=static"),
    "max_time": (LLAMA, {"max_time": 1000.0}, "max_time=1000.0"),
    "guidance": (LLAMA, {"guidance_scale": 1.5}, "guidance_scale=1.5"),
    "hooks": (hooked, {}, "forward hooks would see packed rows"),
    "a forward": (with_own_forward, {}, "is not the library's own"),
    "an adapter": (adapted, {}, "is not the library's own"),
    "what prepares inputs": (with_own_inputs, {}, "is not the library's own"),
    "router": (functools.partial(build, "llama", output_router_logits=True), {}, "what its router gives"),
    "not causal": (functools.partial(build, "llama", is_causal=False), {}, "its tokens see those that follow"),
    "training": (training, {}, "the model is in training mode"),
    "ALiBi": (functools.partial(build, "bloom"), {}, "it was not measured to be exact when prompts share a row"),
    "a window": (functools.partial(build, "gpt_neo"), {}, "what its layers make of the window in its configuration"),
    "an unknown class": (of_somebody, {}, "it was not measured to be exact when prompts share a row"),
}


@pytest.mark.parametrize("why", NOT_PACKABLE)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_forced_where_it_is_not_exact(why: str) -> None:
    make, arguments, reason = NOT_PACKABLE[why]
    with pytest.raises(SettingsError) as caught:
        make().generate(**right_padded(ROWS), **GREEDY | arguments)
    assert str(caught.value).startswith("strategy 'packed_prefill' is not exact here: ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith(". Set the strategy to 'auto'.")


METHODS = [
    ("LlamaModel", "forward"),
    ("LlamaDecoderLayer", "forward"),
    ("LlamaDecoderLayer", "__call__"),
    ("LlamaForCausalLM", "prepare_inputs_for_generation"),
]


def by_functools(original: Any) -> Any:
    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    return wrapped


def by_wrapt(original: Any) -> Any:
    return wrapt.FunctionWrapper(original, lambda wrapped, instance, args, kwargs: wrapped(*args, **kwargs))


@pytest.mark.parametrize("wrap", [by_functools, by_wrapt])
@pytest.mark.parametrize(("owner", "method"), METHODS)
def test_methods_that_somebody_has_wrapped(
    owner: str, method: str, wrap: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model_class = getattr(modeling_llama, owner)
    monkeypatch.setattr(model_class, method, wrap(getattr(model_class, method)))
    with pytest.raises(SettingsError, match="is not the library's own"):
        build("llama").generate(**right_padded(ROWS), **GREEDY)


@pytest.mark.skipif(not hasattr(modeling_llama, "create_causal_mask"), reason="this release makes masks elsewhere")
def test_masks_that_somebody_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    masking = importlib.import_module("transformers.masking_utils")
    makers = masking.ALL_MASK_ATTENTION_FUNCTIONS
    model, original = build("llama"), makers["sdpa"]
    with monkeypatch.context() as patch:
        patch.setattr(modeling_llama, "create_causal_mask", by_functools(vars(modeling_llama)["create_causal_mask"]))
        with pytest.raises(SettingsError, match="is not the library's own"):
            model.generate(**right_padded(ROWS), **GREEDY)
    makers.register("sdpa", by_functools(original))
    try:
        with pytest.raises(SettingsError, match="is not the library's own"):
            model.generate(**right_padded(ROWS), **GREEDY)
    finally:
        makers.register("sdpa", original)
    check(model, right_padded(ROWS), ROWS)


@pytest.mark.parametrize(
    "flags", [{"eos_token_id": torch.tensor([1, 2])}, {"suppress_tokens": torch.tensor([4, 5])}], ids=str
)
def test_tensors_among_the_flags(flags: dict[str, Any], shapes: Shapes) -> None:
    """A config takes them, whatever else it asks for."""
    model = build("llama")
    try:
        with padfix.suppressed():
            want = [model.generate(torch.tensor([row]), **GREEDY, **flags)[0, len(row) :].tolist() for row in ROWS]
    except (RuntimeError, TypeError, ValueError):
        pytest.skip("transformers refuses it")
    shapes.clear()
    batch = right_padded(ROWS)
    output = model.generate(**batch, **GREEDY, **flags)
    assert shapes[0] == (2, 11)
    for row, tokens in zip(output[:, batch["input_ids"].shape[1] :].tolist(), want, strict=True):
        assert row[: len(tokens)] == tokens


@pytest.mark.parametrize("why", ["hidden states", "no cache", "static cache", "hooks", "a window", "ALiBi", "max_time"])
def test_left_padded_without_a_word_where_nobody_forces_it(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was packed")

    monkeypatch.setattr(packed_prefill, "_prefilled", refuse)
    padfix.install("fix", strategy="auto")
    make, arguments, _ = NOT_PACKABLE[why]
    model, batch = make(), right_padded(MANY)
    output = model.generate(**batch, **GREEDY | arguments)
    ids = getattr(output, "sequences", output)
    assert torch.equal(ids[:, : batch["input_ids"].shape[1]], batch["input_ids"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_prompts_that_are_not_ids_alone() -> None:
    model = build("llama")
    for batch in (embedded(model, right_padded(ROWS)), right_padded(ROWS) | {"past_key_values": DynamicCache()}):
        with pytest.raises(SettingsError, match="is not exact here"):
            model.generate(**batch, **GREEDY)


def test_registered_class() -> None:
    try:
        padfix.register_architecture("LlamaForCausalLM", left_padding_exact=True)
        with pytest.raises(SettingsError, match="it was not measured"):
            build("llama").generate(**right_padded(ROWS), **GREEDY)
    finally:
        from padfix.registry import ARCHITECTURES

        ARCHITECTURES.pop("LlamaForCausalLM", None)


def test_unknown_field_of_a_configuration() -> None:
    config = GenerationConfig(**GREEDY)
    vars(config)["something_new"] = True
    with pytest.raises(SettingsError, match="something_new=True"):
        build("llama").generate(**right_padded(ROWS), generation_config=config)


# Faults that have to be seen


def _going_on(packing: Packing) -> Tensor:
    return torch.arange(packing.width).expand(len(packing.rows), -1)


def _causal(packing: Packing, device: Any = None, *, window: int | None = None) -> Tensor:
    return torch.ones(len(packing.rows), 1, packing.width, packing.width, dtype=torch.bool, device=device).tril()


UNPACK = Packing.unpack


def _one_off(packing: Packing, states: Tensor, columns: int, *, copies: int = 1) -> Tensor:
    return UNPACK(packing, states, columns, copies=copies).roll(1, 2)


FAULTS: Mapping[str, Any] = {"positions": property(_going_on), "mask": _causal, "unpack": _one_off}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_planted_fault_is_seen(fault: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama", attn_implementation=attention)
    check(model, right_padded(ROWS), ROWS)
    monkeypatch.setattr(Packing, fault, FAULTS[fault])
    with pytest.raises(AssertionError, match="row"):
        check(model, right_padded(ROWS), ROWS)
