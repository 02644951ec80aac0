"""The checklist for diagnosis: every finding in its good and its bad form, on real small models and tokenizers."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
import wrapt
from facts import RELEASE
from oracle import EOS, build, is_there
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.generation.utils import GenerationMixin

import padfix
from padfix import patch, settings
from padfix.checklist import CHECKS, doctor, environment
from padfix.checklist.report import WIDTH, Diagnosis, Finding
from padfix.generation.exceptions import PACKABLE
from padfix.loading import EMBEDDED, embedded, skeleton
from padfix.settings import Settings
from padfix.special import pad_token_id

MIXIN: Any = GenerationMixin
NAMES = [name for name, _, _ in CHECKS]
WORDS = ["<pad>", "<bos>", "<eos>", "<unk>", "Hello", "user", "there"]
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"


@pytest.fixture(autouse=True)
def stock_again() -> Iterator[None]:
    stock = {point.name: vars(MIXIN)[point.name] for point in patch.PATCH_POINTS}
    yield
    padfix.uninstall()
    for name, method in stock.items():
        setattr(MIXIN, name, method)


def tokenizer(
    *, before: str = "", after: str = "", template: str | None = None, words: list[str] = WORDS, **arguments: Any
) -> Any:
    """A tokenizer of words that puts special tokens before and after each text."""
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single = " ".join(filter(None, (before, "$A", after)))
    specials = [(one, words.index(one)) for one in dict.fromkeys((before, after)) if one]
    raw.post_processor = processors.TemplateProcessing(single=single, special_tokens=specials)
    named = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    settings = {"padding_side": "left", "model_max_length": 256, "chat_template": template}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **named | settings | arguments)


def findings(check: str, model: Any = None, tokenizer: Any = None) -> list[Finding]:
    return [finding for finding in doctor(model, tokenizer).findings if finding.check == check]


def finding(check: str, model: Any = None, tokenizer: Any = None) -> Finding:
    [one] = findings(check, model, tokenizer)
    return one


def settings_from(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """What an environment with these variables would have been read as."""
    read, named = settings.read_environment(variables)
    for module in (settings, patch, environment, padfix.checklist):
        monkeypatch.setattr(module, "ENVIRONMENT", read)
    monkeypatch.setattr(settings, "NAMED_IN_ENVIRONMENT", named)


@pytest.fixture
def llama() -> Any:
    return build("llama")


# The whole


def test_environment_alone() -> None:
    diagnosis = doctor()
    assert {one.check for one in diagnosis.findings} == {"versions", "settings", "patch", "other patches"}
    assert diagnosis.problems == ()


def test_every_check_is_made_and_nothing_is_wrong_with_a_good_pair(installed: None, llama: Any) -> None:
    diagnosis = doctor(llama, tokenizer())
    assert list(dict.fromkeys(one.check for one in diagnosis.findings)) == NAMES
    assert {one.level for one in diagnosis.findings} == {"ok"}
    assert {one.remedy for one in diagnosis.findings} == {""}


def test_embedded_model_has_one_problem_until_padfix_is_installed() -> None:
    model, words = embedded()
    assert [one.check for one in doctor(model, words).problems] == ["padding side"]
    padfix.install()
    assert doctor(model, words).problems == ()


def test_skeleton_is_diagnosed_as_the_model_is() -> None:
    pairs = (embedded(), skeleton(str(EMBEDDED)))
    assert pairs[1][0].device.type == "meta"
    assert str(doctor(*pairs[0])) == str(doctor(*pairs[1]))


def test_nothing_is_changed(llama: Any) -> None:
    words = tokenizer(template=TEMPLATE, before="<bos>", padding_side="right", pad_token=None)
    words.backend_tokenizer.enable_truncation(3)
    words.backend_tokenizer.enable_padding(length=5)

    def state() -> Any:
        attributes = {name: value for name, value in vars(words).items() if name != "_tokenizer"}
        configs = llama.config.to_dict(), llama.generation_config.to_dict()
        return copy.deepcopy((attributes, words.backend_tokenizer.to_str(), configs, sorted(vars(llama))))

    before = state()
    assert doctor(llama, words).problems
    assert state() == before


def test_nothing_is_computed(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        type(llama), "forward", lambda self, input_ids=None, attention_mask=None, position_ids=None: 1 / 0
    )
    monkeypatch.setattr(MIXIN, "generate", lambda self: 1 / 0)
    assert finding("strategy", llama).level == "ok"


def test_diagnosis_is_plain_types(llama: Any) -> None:
    diagnosis = doctor(llama, tokenizer(padding_side="right"))
    read = json.loads(json.dumps(diagnosis.as_dict(), allow_nan=False))
    assert [Finding(**one) for one in read["findings"]] == list(diagnosis.findings)


def test_text_is_wrapped_and_has_a_remedy_for_what_is_not_ok(llama: Any) -> None:
    words = tokenizer(before="<bos>", after="<eos>", template=TEMPLATE, padding_side="right", pad_token="<eos>")
    diagnosis = doctor(llama, words)
    text = str(diagnosis)
    assert text.isascii()
    assert all(len(line) <= WIDTH for line in text.splitlines())
    bad = [one for one in diagnosis.findings if one.level != "ok"]
    assert text.count("\n" + " " * 25 + "-> ") == len(bad) > 4
    assert all(one.remedy for one in bad)
    squeezed = " ".join(text.split())
    for one in diagnosis.findings:
        assert f"{one.level} {one.check} {one.seen}" in squeezed
        assert one.level == "ok" or f"{one.seen} -> {one.remedy}" in squeezed


def test_text_counts_the_levels() -> None:
    ok, note, problem = (Finding(level, "x", "seen", "do") for level in ("ok", "note", "problem"))
    assert str(Diagnosis((ok, note, problem))).startswith("padfix doctor: 1 problem, 1 note, 1 ok\n")
    assert str(Diagnosis((note, note, problem, problem))).startswith("padfix doctor: 2 problems, 2 notes, 0 ok\n")
    assert Diagnosis((ok, note, problem)).problems == (problem,)
    assert str(ok).splitlines() == ["ok       x               seen"]


def test_text_holds_no_path_and_no_prompt(tmp_path: Path, llama: Any) -> None:
    llama.config._name_or_path = llama.name_or_path = str(tmp_path)
    words = tokenizer(before="<bos>", template=TEMPLATE, name_or_path=str(tmp_path))
    text = str(doctor(llama, words))
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text
    assert "Hello" not in text


# What cannot be checked


def test_what_was_not_passed_is_named(llama: Any) -> None:
    without = finding("not checked", llama)
    assert without.level == "note"
    assert without.seen == (
        "No tokenizer was passed, so these were not looked at: padding side, pad token, pad ids, BOS of chats, "
        "end of prompts, positions."
    )
    without = finding("not checked", None, tokenizer())
    assert without.seen.startswith("No model was passed")
    assert without.seen.endswith("generate, strategy, pad ids, end of replies, positions.")
    assert findings("not checked", llama, tokenizer()) == findings("not checked") == []


@pytest.mark.parametrize("odd", [object(), 7, "gpt2", torch.nn.Linear(1, 1), SimpleNamespace(config=None), Path])
def test_odd_objects_are_noted_and_never_raise(odd: Any) -> None:
    for model, words in ((odd, odd), (odd, tokenizer()), (build("llama"), odd), (odd, None), (None, odd)):
        diagnosis = doctor(model, words)
        assert any(one.level == "note" for one in diagnosis.findings)
        assert words is not odd or any("could not be made" in one.seen for one in diagnosis.findings)
        assert str(diagnosis)


def test_error_of_a_check_is_told_by_its_type_alone() -> None:
    class Secret:
        @property
        def padding_side(self) -> str:
            raise OSError("/home/someone/secret")

    class Tokenizer:
        padding_side = property(lambda self: 1 / 0)

    told = finding("padding side", None, SimpleNamespace(tokenizer=Tokenizer()))
    assert told.level == "note"
    assert told.seen == "It could not be made: ZeroDivisionError (model none, tokenizer Tokenizer)."
    assert "secret" not in str(doctor(build("llama"), SimpleNamespace(padding_side="left", tokenizer=Secret())))


def test_tokenizer_of_a_processor_is_looked_at() -> None:
    processor = SimpleNamespace(tokenizer=tokenizer(padding_side="right"))
    assert finding("padding side", None, processor).level == "problem"


# Versions


def test_versions_are_named() -> None:
    seen = finding("versions").seen
    assert re.match(r"python 3\.\d+\.\d+, padfix \d", seen)
    for name in ("torch", "transformers", "tokenizers", "wrapt"):
        assert re.search(rf"\b{name} \d", seen)
    assert f"padfix {padfix.__version__}" in seen


def test_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("padfix", "no_such_package"))
    monkeypatch.setattr(environment, "PACKAGES_BESIDE", ("no_such_adapter",))
    seen = finding("versions").seen
    assert seen.endswith(f"padfix {padfix.__version__}, no_such_package not found.")


@pytest.mark.parametrize(
    ("release", "level", "words"),
    [
        ((4, 45), "problem", "outside the range"),
        ((4, 46), "ok", ""),
        ((5, 24), "ok", ""),
        ((5, 25), "note", "newer than 5.24.0"),
        ((6, 0), "problem", "outside the range"),
    ],
)
def test_release_of_transformers(
    release: tuple[int, int], level: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "installed", lambda: release)
    last = findings("versions")[-1]
    assert last.level == level
    assert words in last.seen


# Settings


def test_settings_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_from(monkeypatch, PADFIX_DECODING="stock")
    padfix.install("strict")
    with padfix.override(strategy="left_pad"):
        mode, strategy, decoding = findings("settings")
    assert mode == Finding("ok", "settings", "PADFIX is strict (from padfix.install()).", "")
    assert strategy.seen == "PADFIX_STRATEGY is left_pad (from padfix.override())."
    assert decoding.seen.startswith("PADFIX_DECODING is stock (from the environment): ")
    assert (decoding.level, decoding.remedy) == ("note", "Set it to pad_aware.")
    assert findings("settings")[1].seen == "PADFIX_STRATEGY is auto (from the default)."


def test_setting_that_repairs_nothing_is_noted() -> None:
    padfix.install("warn")
    mode = findings("settings")[0]
    assert (mode.level, mode.remedy) == ("note", "Set it to fix.")
    assert mode.seen == "PADFIX is warn (from padfix.install()): it reports padded batches and changes nothing."


def test_forced_packing_is_noted_and_a_problem_where_it_is_not_exact(llama: Any) -> None:
    padfix.install(strategy="packed_prefill")
    assert findings("settings")[1].level == "note"
    if PACKABLE["LlamaForCausalLM"] <= RELEASE:
        chosen = finding("strategy", llama)
        assert chosen.level == "ok"
        assert chosen.seen.startswith("packed_prefill: ")
    chosen = finding("strategy", build("bloom"))
    assert chosen.level == "problem"
    assert "BloomForCausalLM (it was not measured to be exact when prompts share a row)" in chosen.seen
    assert "auto" in chosen.remedy


def test_rows_that_run_apart_are_noted_and_a_hook_that_forbids_it_is_a_problem() -> None:
    padfix.install(strategy="equal_length")
    model = build("rwkv")
    assert finding("strategy", model).level == "note"
    assert finding("strategy", model).seen.startswith("equal_length: rows of one length share a call")
    model.register_forward_hook(lambda *_: None)
    assert finding("strategy", model).level == "problem"
    assert "hooks on the forwards of RwkvForCausalLM" in finding("strategy", model).seen


# The patch


def test_patch_that_is_not_there() -> None:
    seen = finding("patch")
    assert (seen.level, seen.seen) == ("note", "padfix is not installed: generate is the library's.")
    assert (
        seen.remedy == "Call padfix.install(), or set PADFIX=fix and import padfix; padfix run does both for a program."
    )


def test_patch_that_is_there(installed: None) -> None:
    assert finding("patch").level == "ok"
    assert finding("patch").seen == "padfix is installed, and in place at 3 of 3 methods."


def test_off_in_the_environment_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_from(monkeypatch, PADFIX="off")
    assert "PADFIX=off" in finding("patch").remedy


def test_environment_that_was_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_from(monkeypatch, PADFIX="fix")
    seen = finding("patch")
    assert seen.level == "problem"
    assert seen.seen.startswith("PADFIX=fix in the environment, and yet")


def test_refused_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "state", lambda: patch.State(Settings(mode="strict"), (), True))
    assert finding("patch").level == "problem"
    assert "UnsupportedVersionError" in finding("patch").seen


@pytest.mark.parametrize("name", [point.name for point in patch.PATCH_POINTS])
def test_patch_that_was_replaced(name: str, installed: None) -> None:
    setattr(MIXIN, name, foreign(lambda: None))
    seen = finding("patch")
    assert seen.level == "problem"
    assert f"GenerationMixin.{name} ({__name__}:" in seen.seen
    assert "Nothing tells whether they call it." in seen.seen


def foreign(method: Any, *, says: bool = False) -> Any:
    """Another library's method around a method; it may say what it wraps."""

    def of_another(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    return functools.wraps(method)(of_another) if says else of_another


def test_others_above_and_beneath_are_named() -> None:
    assert finding("other patches").level == "ok"
    MIXIN.generate = foreign(MIXIN.generate, says=True)
    assert re.search(rf"{__name__}:\S*of_another around GenerationMixin\.generate\.$", finding("other patches").seen)
    padfix.install()
    others = finding("other patches")
    assert others.level == "note"
    assert others.seen.endswith("of_another around GenerationMixin.generate beneath padfix.")
    wrapt.wrap_function_wrapper(GenerationMixin, "generate", hand_on)
    both = finding("other patches").seen
    assert f"{__name__}:hand_on around GenerationMixin.generate above padfix; {__name__}:" in both
    assert both.endswith("beneath padfix.")
    assert finding("patch").level == "ok"


def hand_on(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


def test_other_around_a_list_of_processors_is_named(installed: None) -> None:
    MIXIN._get_logits_processor = foreign(MIXIN._get_logits_processor, says=True)
    assert "of_another around GenerationMixin._get_logits_processor above padfix" in finding("other patches").seen


class Callable:
    def __call__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("method", "named"),
    [
        (hand_on, "hand_on"),
        (functools.partial(hand_on, 1), "hand_on"),
        (Callable(), "Callable"),
    ],
)
def test_method_on_the_instance_is_named(method: Any, named: str, llama: Any) -> None:
    llama.generate = method
    others = finding("other patches", llama)
    assert others.level == "note"
    assert f"{__name__}:{named} on this LlamaForCausalLM itself, calling GenerationMixin.generate" in others.seen


def test_method_on_the_instance_from_before_is_told_from_one_of_now(llama: Any) -> None:
    llama.generate = foreign(llama.generate, says=True).__get__(llama)
    assert "as it is now" in finding("other patches", llama).seen
    padfix.install()
    assert "perhaps as it was before" in finding("other patches", llama).seen


def test_method_on_the_class_is_named(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(llama), "generate", foreign(MIXIN.generate, says=True), raising=False)
    assert (
        "of_another on LlamaForCausalLM, calling GenerationMixin.generate as it is now"
        in finding("other patches", llama).seen
    )


def test_method_that_a_class_defines_itself_is_no_patch() -> None:
    assert finding("other patches", Looping(build("llama").config)).level == "ok"


# The model


class Looping(transformers.LlamaForCausalLM):
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return None


class Inner(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.llm, self.config = model, model.config

    def generate(self, **kwargs: Any) -> Any:
        return self.llm.generate(**kwargs)


def test_reach(llama: Any) -> None:
    assert finding("generate", llama).level == "ok"
    own = Looping(llama.config)
    assert finding("generate", own).level == "problem"
    assert finding("generate", own).remedy
    assert "no call comes to padfix" in finding("strategy", own).seen
    assert finding("strategy", own).level == "note"
    own.config.is_encoder_decoder = True
    assert finding("generate", own).level == "note"
    without = finding("generate", torch.nn.Linear(1, 1))
    assert (without.level, "AutoModelForCausalLM" in without.remedy) == ("problem", True)


def test_reach_that_is_not_known() -> None:
    class Unclear(transformers.LlamaForCausalLM):
        generate = print

    assert finding("generate", Unclear(build("llama").config)).level == "note"


def test_strategy_of_an_exact_model(llama: Any) -> None:
    assert finding("strategy", llama).seen == "left_pad: LlamaForCausalLM is exact at any length."


def test_strategy_of_a_model_that_is_exact_up_to_a_length() -> None:
    model = build("llama", index_topk=48)
    limited = finding("strategy", model)
    assert limited.level == "note"
    assert "exact up to 48 columns, since its sparse attention" in limited.seen


def test_strategy_of_a_model_that_is_not_exact() -> None:
    model = build("rwkv")
    for mode in ("off", "fix"):
        if mode == "fix":
            padfix.install()
        chosen = finding("strategy", model)
        assert chosen.level == "note"
        assert chosen.seen.startswith("equal_length: ")
        assert "RwkvForCausalLM" in chosen.seen
    assert finding("padding side", model, tokenizer(padding_side="right")).level == "note"
    model.register_forward_hook(lambda *_: None)
    chosen = finding("strategy", model)
    assert (chosen.level, "one at a time" in chosen.remedy) == ("problem", True)
    assert "RwkvForCausalLM (rows" in chosen.seen
    assert "hooks on the forwards" in chosen.seen
    assert finding("padding side", model, tokenizer(padding_side="right")).level == "problem"


def test_strategy_of_an_encoder_decoder() -> None:
    assert finding("strategy", build("bart")).level == "ok"
    assert "encoder" in finding("strategy", build("bart")).seen


def test_strategy_is_that_of_the_inner_model() -> None:
    assert finding("strategy", Inner(build("llama"))).seen.startswith("left_pad: LlamaForCausalLM")
    assert "RwkvForCausalLM" in finding("strategy", Inner(build("rwkv"))).seen


def test_obstacle_in_the_generation_config(llama: Any) -> None:
    llama.generation_config.penalty_alpha = 0.6
    chosen = finding("strategy", llama)
    assert chosen.level == "note"
    assert chosen.seen.startswith("equal_length: ")
    assert "penalty_alpha" in chosen.seen
    llama.generation_config.max_time = 1.0
    assert finding("strategy", llama).level == "problem"
    llama.generation_config.penalty_alpha = llama.generation_config.max_time = None
    llama.generation_config.cache_implementation = "paged"
    assert "paged" in finding("strategy", llama).seen


def test_class_of_remote_code_is_noted(llama: Any) -> None:
    class Remote(transformers.PreTrainedModel, GenerationMixin):
        config_class = transformers.LlamaConfig
        _supports_sdpa = True

        def forward(self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None) -> Any:
            return None

    exact, unknown = findings("strategy", Remote(llama.config))
    assert exact.level == "ok"
    assert unknown.level == "note"
    assert unknown.seen.startswith("Remote stands in no table")
    assert len(findings("strategy", llama)) == 1


def test_end_of_replies(llama: Any) -> None:
    assert finding("end of replies", llama, tokenizer()).level == "ok"
    assert finding("end of replies", llama).seen == f"model.generation_config.eos_token_id is {EOS}."
    llama.generation_config.eos_token_id = [4, 5]
    other = finding("end of replies", llama, tokenizer())
    assert other.level == "note"
    assert "is 4, 5, and tokenizer.eos_token_id is 2" in other.seen
    assert other.remedy.endswith("eos_token_id = [4, 5, 2].")
    assert finding("end of replies", llama, tokenizer(eos_token=None)).level == "ok"
    llama.generation_config.eos_token_id = None
    assert finding("end of replies", llama, tokenizer()).level == "problem"
    assert finding("end of replies", llama, tokenizer()).remedy.endswith("eos_token_id = 2.")
    assert "id of an EOS" in finding("end of replies", llama).remedy
    llama.generation_config = None
    assert finding("end of replies", llama, tokenizer()).level == "note"


# The tokenizer


def test_padding_side_that_is_right_while_padfix_is_off() -> None:
    side = finding("padding side", None, tokenizer(padding_side="right"))
    assert side.level == "problem"
    assert 'in mode "off"' in side.seen
    assert 'padding_side = "left"' in side.remedy
    assert finding("padding side", None, tokenizer()) == Finding(
        "ok", "padding side", 'tokenizer.padding_side is "left".', ""
    )


@pytest.mark.parametrize(("mode", "level"), [("fix", "note"), ("warn", "problem"), ("strict", "problem")])
def test_padding_side_in_each_mode(mode: str, level: str, llama: Any) -> None:
    padfix.install(mode)
    words = tokenizer(padding_side="right")
    assert {finding("padding side", model, words).level for model in (llama, None)} == {level}
    assert finding("padding side", llama, tokenizer()).level == "ok"
    with padfix.suppressed():
        assert finding("padding side", llama, words).level == "problem"


def test_padding_side_of_what_padfix_does_not_see(installed: None, llama: Any) -> None:
    side = finding("padding side", Looping(llama.config), tokenizer(padding_side="right"))
    assert side.level == "problem"
    assert "does not repair" in side.seen


def test_padding_side_of_an_encoder() -> None:
    assert finding("padding side", build("bart"), tokenizer(padding_side="right")).level == "ok"


def test_pad_token(llama: Any) -> None:
    assert finding("pad token", llama, tokenizer()) == Finding("ok", "pad token", "tokenizer.pad_token_id is 0.", "")
    as_eos = finding("pad token", llama, tokenizer(pad_token="<eos>"))
    assert as_eos.level == "note"
    assert "attention_mask" in as_eos.remedy
    llama.generation_config.eos_token_id = [2, 0]
    assert finding("pad token", llama, tokenizer()).level == "note"
    assert finding("pad token", None, tokenizer()).level == "ok"


@pytest.mark.parametrize("words", [WORDS, ["<none>", *WORDS[1:]]])
def test_missing_pad_token_has_the_choice_of_the_policy_for_a_remedy(words: list[str], llama: Any) -> None:
    without = tokenizer(words=words, pad_token=None)
    llama.generation_config.pad_token_id = None
    missing = finding("pad token", llama, without)
    assert missing.level == "problem"
    chosen = pad_token_id(llama, without)
    assert chosen == (0 if words is WORDS else EOS)
    assert f"convert_ids_to_tokens({chosen})," in missing.remedy
    assert f"convert_ids_to_tokens({chosen})," in finding("pad token", None, without).remedy


def test_missing_pad_token_where_nothing_can_stand_in(llama: Any) -> None:
    llama.generation_config.pad_token_id = llama.generation_config.eos_token_id = None
    nothing = tokenizer(words=["a", "b", "c", "<unk>"], pad_token=None, bos_token=None, eos_token=None)
    assert finding("pad token", llama, nothing).remedy == "Set tokenizer.pad_token to a token of the vocabulary."


def test_pad_token_without_an_embedding(llama: Any) -> None:
    words = tokenizer(words=[*WORDS, *(f"w{number}" for number in range(92)), "[PAD]"], pad_token="[PAD]")
    assert words.pad_token_id == 99 == llama.config.vocab_size
    outside = finding("pad token", llama, words)
    assert outside.level == "problem"
    assert "is 99, but the embedding has 99 rows" in outside.seen
    assert "convert_ids_to_tokens(0)," in outside.remedy
    assert "resize_token_embeddings" in outside.remedy
    llama.generation_config.pad_token_id = 98
    assert "convert_ids_to_tokens(98)," in finding("pad token", llama, words).remedy
    llama.generation_config.pad_token_id = 99
    assert "convert_ids_to_tokens(0)," in finding("pad token", llama, words).remedy


def test_pad_ids(llama: Any) -> None:
    assert finding("pad ids", llama, tokenizer()).level == "ok"
    for place, value in ((llama.generation_config, 5), (llama.generation_config, None), (llama.config, 5)):
        before, place.pad_token_id = place.pad_token_id, value
        unequal = finding("pad ids", llama, tokenizer())
        assert unequal.level == "note"
        assert f"pad_token_id is {value}" in unequal.seen
        assert unequal.remedy
        place.pad_token_id = before
    llama.config.pad_token_id = None
    assert finding("pad ids", llama, tokenizer()).level == "ok"
    llama.generation_config = None
    assert finding("pad ids", llama, tokenizer()).level == "note"


def test_second_bos_of_a_chat() -> None:
    twice = finding("BOS of chats", None, tokenizer(before="<bos>", template=TEMPLATE.replace("}}{%", "}} {%")))
    assert twice.level == "note"
    assert "2 at the start" in twice.seen
    assert "add_special_tokens=False" in twice.remedy
    once = finding("BOS of chats", None, tokenizer(template=TEMPLATE.replace("}}{%", "}} {%")))
    assert (once.level, once.seen) == ("ok", "A chat that is templated and then tokenized begins with 1 BOS.")
    assert finding("BOS of chats", None, tokenizer(before="<bos>")).seen == "The tokenizer has no chat template."
    assert (
        finding("BOS of chats", None, tokenizer(bos_token=None, template=TEMPLATE)).seen == "The tokenizer has no BOS."
    )


def test_template_that_raises_is_a_problem() -> None:
    raising = finding("BOS of chats", None, tokenizer(template="{{ raise_exception('no') }}"))
    assert (raising.level, raising.remedy) == ("problem", "Mend tokenizer.chat_template.")
    assert raising.seen == "The chat template refuses a chat of one message: TemplateError."


def test_eos_after_a_prompt(llama: Any) -> None:
    ended = finding("end of prompts", llama, tokenizer(after="<eos>"))
    assert ended.level == "problem"
    assert "id 2" in ended.seen
    assert finding("end of prompts", build("bart"), tokenizer(after="<eos>")).level == "ok"
    assert finding("end of prompts", llama, tokenizer(before="<bos>")).level == "ok"
    assert finding("end of prompts", llama, tokenizer(eos_token=None)).level == "ok"


def test_positions(llama: Any) -> None:
    assert finding("positions", llama, tokenizer()).seen == (
        "The model has 256 positions; tokenizer.model_max_length is 256."
    )
    assert finding("positions", llama, tokenizer()).level == "ok"
    longer = finding("positions", llama, tokenizer(model_max_length=257))
    assert longer.level == "note"
    assert "model_max_length = 256," in longer.remedy
    unset = finding("positions", llama, tokenizer(model_max_length=10**30))
    assert unset.level == "note"
    assert "is not set" in unset.seen
    if is_there("mamba2"):
        unlimited = finding("positions", build("mamba2"), tokenizer(model_max_length=10**30))
        assert (unlimited.level, "no limit" in unlimited.seen) == ("ok", True)


def test_right_side_has_the_remedy_that_helps(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tokenizer(padding_side="right")
    hooked = build("rwkv")
    hooked.register_forward_hook(lambda *_: None)
    assert finding("padding side", hooked, words).remedy == "See strategy."
    padfix.install("strict")
    strict = finding("padding side", llama, words)
    assert (strict.level, strict.remedy) == ("problem", 'Set tokenizer.padding_side = "left".')
    assert "raises RightPaddingError" in strict.seen
    padfix.uninstall()
    assert 'call padfix.install("fix")' in finding("padding side", llama, words).remedy
    monkeypatch.setattr(settings, "NAMED_IN_ENVIRONMENT", frozenset({"mode"}))
    assert "take PADFIX=off out of the environment" in finding("padding side", llama, words).remedy


def test_tokenizer_in_place_of_the_model_is_named(llama: Any) -> None:
    with pytest.raises(TypeError, match="Pass the model first"):
        doctor(tokenizer(), llama)


def test_pad_ids_that_nobody_names(llama: Any) -> None:
    llama.config.pad_token_id = llama.generation_config.pad_token_id = None
    words = tokenizer()
    words.pad_token = None
    seen = finding("pad ids", llama, words)
    assert (seen.level, seen.remedy) == ("note", "See pad token.")
    assert "tokenizer.pad_token_id is None, model.config.pad_token_id is None" in seen.seen
