"""Models that stand in no table: a trial run tells whether left padding is exact for them; and what users register."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from oracle import BOS, ROWS, alone, build, check, compare, embedded, left_padded, right_padded, together
from torch import Tensor
from transformers import BartForConditionalGeneration, LlamaForCausalLM

import padfix
from padfix import registry
from padfix.generation import compat, traits
from padfix.generation.traits import is_known
from padfix.strategies import probe

# Caches of rows that ran apart are not joined.
pytestmark = pytest.mark.filterwarnings("ignore:the field .* of this output is None:padfix.PadfixWarning")

PADDERS: Mapping[str, Callable[..., dict[str, Tensor]]] = {"right": right_padded, "left": left_padded}
WARNING = "stands in no table of padfix, and cannot be tried out here"


class Exact(LlamaForCausalLM):
    """A class of the user's own that overrides something and is exact all the same."""

    forwards = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        type(self).forwards += 1
        return super().forward(*args, **kwargs)


class MaskIgnored(Exact):
    """Attends to pads."""

    def forward(self, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


class ColumnsCounted(Exact):
    """Exact on the first token; after it, positions are counted in columns of the cache."""

    def forward(
        self, input_ids: Any = None, position_ids: Any = None, attention_mask: Any = None, **kwargs: Any
    ) -> Any:
        if input_ids is not None and input_ids.shape[1] == 1 and attention_mask is not None:
            position_ids = torch.full_like(input_ids, attention_mask.shape[1] - 1)
        return super().forward(input_ids=input_ids, position_ids=position_ids, attention_mask=attention_mask, **kwargs)


class Overrun(Exact):
    """Raises for a prompt with pads."""

    def forward(self, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        if attention_mask is not None and not bool((attention_mask != 0).all()):
            raise IndexError("index out of range")
        return super().forward(*args, attention_mask=attention_mask, **kwargs)


class Remembers(Exact):
    """Keeps things on its modules from one forward for the next, and draws at random."""

    log: Any
    seen: int

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        torch.rand(1)
        self.seen += 1
        self.log.append(self.seen)
        self.model.layers[0].kept = torch.ones(1)
        self.counter = torch.zeros(1)
        return super().forward(*args, **kwargs)


WRONG = (MaskIgnored, ColumnsCounted, Overrun)


def made(model_class: type, **attributes: Any) -> Any:
    """The tiny Llama as another class."""
    model = build("llama")
    model.__class__ = model_class
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


@pytest.fixture(autouse=True)
def _fix() -> None:
    padfix.install(mode="fix")


def forwards(model: Any, batch: Mapping[str, Tensor]) -> int:
    """The number of forwards that a call takes."""
    type(model).forwards = 0
    together(model, batch)
    return int(type(model).forwards)


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("model_class", [Exact, *WRONG])
def test_every_row_gets_what_it_gets_alone(model_class: type, side: str) -> None:
    check(made(model_class), PADDERS[side](ROWS), ROWS)


@pytest.mark.parametrize("model_class", WRONG)
def test_models_are_wrong_when_left_padded(model_class: type) -> None:
    """Else the test above would prove nothing."""
    model = made(model_class)
    with pytest.raises((AssertionError, IndexError)), padfix.suppressed():
        check(model, left_padded(ROWS), ROWS)


def test_second_token_is_needed_to_tell() -> None:
    model = made(ColumnsCounted)
    with padfix.suppressed():
        check(model, left_padded(ROWS), ROWS, max_new_tokens=1)


def test_verdict_is_remembered() -> None:
    model = made(Exact)
    assert forwards(model, right_padded(ROWS)) == 6 + 3 * probe.STEPS
    assert forwards(model, right_padded(ROWS)) == 6
    assert forwards(model, left_padded(ROWS)) == 6
    assert forwards(made(Exact), right_padded(ROWS)) == 6 + 3 * probe.STEPS


def test_rows_run_one_at_a_time_after_a_bad_verdict() -> None:
    model, rows = made(ColumnsCounted), [*ROWS, ROWS[0][::-1]]
    together(model, right_padded(rows))
    assert forwards(model, right_padded(rows)) == 6 * len(rows)
    check(model, right_padded(rows), rows)


def test_wider_batches_are_tried_again() -> None:
    model, long = made(Exact), [list(range(5, 5 + 15)), [9, 8, 7, 6, 5]]
    together(model, right_padded(ROWS))
    assert forwards(model, right_padded(long)) == 6 + 3 * probe.STEPS
    assert forwards(model, right_padded(long)) == 6


def test_other_attention_is_tried_again() -> None:
    model = made(Exact)
    together(model, right_padded(ROWS))
    model.set_attn_implementation("eager") if hasattr(model, "set_attn_implementation") else setattr(
        model.config, "_attn_implementation", "eager"
    )
    assert forwards(model, right_padded(ROWS)) == 6 + 3 * probe.STEPS


@pytest.mark.parametrize("mode", ["off", "warn"])
def test_modes_that_change_nothing_try_nothing(mode: Any) -> None:
    model = made(Exact)
    with padfix.override(mode), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert forwards(model, right_padded(ROWS)) == 6


def test_batches_without_pads_are_not_tried() -> None:
    assert forwards(made(Exact), right_padded(ROWS[:1])) == 6
    assert forwards(made(Exact), right_padded(ROWS[:1], extra=3)) == 6  # its pads are dropped


def test_random_state_attributes_and_tensors_stay() -> None:
    model = made(Remembers, log=[], seen=40)
    model.register_buffer("counter", torch.ones(1))
    counter, batch = model.counter, right_padded(ROWS)
    before = [dict(vars(module)) for module in model.modules()]
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    traits_seen, seen = [], []

    def see(original: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((torch.rand(3), model.seen, list(model.log), model.counter is counter, kwargs))
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        true = probe.probed

        def spied(*args: Any) -> Any:
            traits_seen.append(true(*args))
            see(lambda: None)
            return traits_seen[-1]

        patched.setattr("padfix.pipeline.probed", spied)
        together(model, batch)
    [(drawn, count, log, same, _)] = seen
    assert traits_seen[0].known
    assert torch.equal(drawn, expected)
    assert (count, log, same) == (40, [], True)
    assert "kept" not in before[1]
    assert model.seen == 46


def test_hooks_see_no_trial() -> None:
    model, calls = made(Exact), []
    model.register_forward_hook(lambda *_: calls.append(1))
    with pytest.warns(padfix.PadfixWarning, match=f"{WARNING}: forward hooks"):
        together(model, right_padded(ROWS))
    assert len(calls) == 6


@pytest.mark.parametrize("name", ["steps_together", "several_ranks"])
def test_ranks_that_step_together_try_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ranked(Exact):
        pass

    with monkeypatch.context() as patched:
        patched.setattr(probe, name, lambda *_: True)
        with pytest.warns(padfix.PadfixWarning, match=rf"Ranked {WARNING}: ranks .*padfix.register_architecture"):
            assert forwards(made(Ranked), right_padded(ROWS)) == 6


def test_several_ranks_are_told_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compat.several_ranks()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert compat.several_ranks()


def test_training_mode_is_not_tried() -> None:
    model = made(Exact).train()
    with pytest.warns(padfix.PadfixWarning, match="training mode"):
        together(model, right_padded(ROWS))


@pytest.mark.parametrize(("model_class", "calls"), [(Exact, 1), (ColumnsCounted, len(ROWS))])
def test_arguments_of_the_call_are_not_those_of_the_trial(model_class: type, calls: int) -> None:
    """Beams, processors and lengths of the caller's neither disturb it nor see it."""
    model, steps = made(model_class), []

    def processor(ids: Tensor, scores: Tensor) -> Tensor:
        steps.append(ids.shape)
        return scores

    expected = alone(model, ROWS, num_beams=2, repetition_penalty=1.3, no_repeat_ngram_size=2)
    replies = together(
        model,
        right_padded(ROWS),
        num_beams=2,
        repetition_penalty=1.3,
        no_repeat_ngram_size=2,
        logits_processor=[processor],
        max_length=len(ROWS[0]) + 6,
    )
    compare(replies, expected)
    assert len(steps) == 6 * calls


class OwnBart(BartForConditionalGeneration):
    """A class of the user's own, of which nobody knows whether rows of one batch change one another."""

    forwards = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        type(self).forwards += 1
        return super().forward(*args, **kwargs)


def test_decoder_prompts_run_one_at_a_time() -> None:
    model, rows = build("bart"), [[BOS, *row] for row in (*ROWS, ROWS[0][::-1])]
    model.__class__ = OwnBart
    batch = {f"decoder_{name}": value for name, value in right_padded(rows).items()}
    assert forwards(model, batch | {"input_ids": torch.tensor([[5, 6, 7]] * 4)}) == 6 * len(rows)


@pytest.mark.parametrize("model_class", [Exact, MaskIgnored])
def test_embeddings_alone(model_class: type) -> None:
    model = made(model_class)
    expected = alone(model, ROWS, each=lambda row: {"input_ids": None, **embedded(model, right_padded([ROWS[row]]))})
    compare(together(model, embedded(model, right_padded(ROWS))), expected)


@pytest.mark.parametrize("model_class", [Exact, ColumnsCounted])
def test_narrow_dtypes(model_class: type) -> None:
    model = made(model_class).to(torch.bfloat16)
    together(model, right_padded(ROWS))
    assert probe._verdicts[model].exact == (model_class is Exact)


def test_prompts_as_long_as_the_positions() -> None:
    """No column is tried for which the model has no position: on a device that would be a fault of its own."""
    model, room = made(Exact), len(ROWS[0]) + 6
    model.config.max_position_embeddings = room
    widths: list[int] = []
    inner = model.model.forward

    def measured(*args: Any, **kwargs: Any) -> Any:
        widths.append(kwargs["attention_mask"].shape[-1])
        return inner(*args, **kwargs)

    model.model.forward = measured
    together(model, right_padded(ROWS))
    assert max(widths) < room


def test_verdict_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Fresh(ColumnsCounted):
        pass

    with caplog.at_level(logging.INFO, "padfix"):
        together(made(Fresh), right_padded(ROWS))
    assert "Fresh stands in no table of padfix; in a trial run left padding was not exact" in caplog.text


def test_strategy_that_is_asked_for_and_is_not_exact() -> None:
    with padfix.override(strategy="left_pad"), pytest.raises(padfix.SettingsError, match="trial run"):
        together(made(MaskIgnored), right_padded(ROWS))


def test_known_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(LlamaForCausalLM):
        def answer(self) -> int:
            return 42

    class Initialised(LlamaForCausalLM):
        def __init__(self, config: Any) -> None:
            super().__init__(config)

    class Sharded(torch.nn.Module):
        def _apply(self, *args: Any, **kwargs: Any) -> Any:
            return self

    assert is_known(LlamaForCausalLM)
    assert is_known(Named)
    assert is_known(type("Sharded", (Sharded, LlamaForCausalLM), {}))
    assert not is_known(Initialised)
    assert not is_known(Exact)
    assert not is_known(torch.nn.Module)
    monkeypatch.setattr(traits, "installed", lambda: (99, 0))
    assert not is_known(LlamaForCausalLM)


# What users register.


@pytest.mark.parametrize("key", [ColumnsCounted, "ColumnsCounted", Exact, "Exact"])
def test_registered_as_not_exact(key: Any) -> None:
    padfix.register_architecture(key, left_padding_exact=False, reason="it counts columns")
    model, rows = made(ColumnsCounted), [*ROWS, ROWS[0][::-1]]
    assert forwards(model, right_padded(rows)) == 6 * len(ROWS)  # rows of one length share a call
    check(model, right_padded(rows), rows)
    with padfix.override(strategy="left_pad"), pytest.raises(padfix.SettingsError, match="it counts columns"):
        together(model, right_padded(rows))


def test_registered_as_exact() -> None:
    padfix.register_architecture("Exact", left_padding_exact=True)
    assert forwards(made(Exact), right_padded(ROWS)) == 6


def test_nearest_class_counts() -> None:
    padfix.register_architecture(Exact, left_padding_exact=True)
    padfix.register_architecture(ColumnsCounted, left_padding_exact=False)
    check(made(ColumnsCounted), right_padded(ROWS), ROWS)


def test_registered_as_mixing_rows() -> None:
    padfix.register_architecture("Exact", left_padding_exact=False, mixes_rows=True)
    rows = [*ROWS, ROWS[0][::-1]]
    assert forwards(made(Exact), right_padded(rows)) == 6 * len(rows)


def test_what_is_registered_wins_over_the_tables() -> None:
    padfix.register_architecture("RwkvForCausalLM", left_padding_exact=True)
    assert traits.traits_of(build("rwkv")).exact_up_to == float("inf")
    padfix.register_architecture("LlamaForCausalLM", left_padding_exact=False)
    assert traits.traits_of(build("llama")).exact_up_to == 0


class Segments(Exact):
    """Adds an embedding of segments, which come as a tensor with one label a token."""

    def forward(
        self,
        input_ids: Any = None,
        segments: Any = None,
        attention_mask: Any = None,
        inputs_embeds: Any = None,
        **kwargs: Any,
    ) -> Any:
        embeds = self.get_input_embeddings()(input_ids)
        if segments is not None and input_ids.shape[1] > 1:
            labels = segments.T if segments.shape[0] != input_ids.shape[0] else segments
            embeds = embeds * (0.5 + labels[..., None] * 0.5)
        return super().forward(inputs_embeds=embeds, attention_mask=attention_mask, **kwargs)

    def prepare_inputs_for_generation(self, *args: Any, segments: Any = None, **kwargs: Any) -> Any:
        return {**super().prepare_inputs_for_generation(*args, **kwargs), "segments": segments}


LABELS = [[1 + (column + row) % 3 for column in range(len(tokens))] for row, tokens in enumerate(ROWS)]


@pytest.mark.parametrize("turned", [False, True])
def test_registered_prompt_tensor(turned: bool) -> None:
    model = made(Segments)
    labels = right_padded(LABELS)["input_ids"]
    batch = right_padded(ROWS) | {"segments": labels.T.contiguous() if turned else labels}
    expected = alone(model, ROWS, each=lambda row: {"segments": torch.tensor([LABELS[row]])})
    if turned:
        padfix.register_prompt_tensor("segments", 1, 0)
    else:
        with pytest.warns(padfix.PadfixWarning, match=r"segments= .*padfix.register_prompt_tensor"):
            together(model, batch)
        padfix.register_prompt_tensor("segments")
    compare(together(model, batch), expected)


def test_registered_prompt_tensor_of_another_shape_is_named() -> None:
    padfix.register_prompt_tensor("segments", 0, 2)
    batch = right_padded(ROWS) | {"segments": right_padded(LABELS)["input_ids"]}
    with pytest.warns(padfix.PadfixWarning, match=r"segments= of shape \(3, 7\), where the prompt has shape"):
        together(made(Segments), batch)


@pytest.mark.parametrize("key", [3, None, ""])
def test_bad_architectures(key: Any) -> None:
    with pytest.raises(padfix.SettingsError, match="class or its name"):
        padfix.register_architecture(key, left_padding_exact=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3,), "name of a keyword"),
        (("a b",), "name of a keyword"),
        (("input_ids",), "moves input_ids= by itself"),
        (("segments", 1, 1), "two axes"),
        (("segments", True, 0), "two axes"),
        (("segments", 0, None), "two axes"),
    ],
)
def test_bad_prompt_tensors(arguments: Any, words: str) -> None:
    with pytest.raises(padfix.SettingsError, match=words):
        padfix.register_prompt_tensor(*arguments)
    assert not registry.PROMPT_TENSORS
