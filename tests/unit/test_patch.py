"""The patch: in and out again without a trace, beside other libraries' wrappers, and a method like the stock one."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import inspect
import logging
import pickle
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
import wrapt
from oracle import GREEDY, ROWS, alone, build, right_padded
from transformers import LlamaForCausalLM
from transformers.generation.utils import GenerationMixin

import padfix
from padfix import notices, patch
from padfix.errors import AmbiguousPaddingError, RightPaddingError, SettingsError

MIXIN: Any = GenerationMixin
STOCK = vars(MIXIN)["generate"]

BATCH = right_padded(ROWS)
WIDTH = BATCH["input_ids"].shape[1]

Replies = list[list[int]]


def in_place() -> Any:
    return vars(GenerationMixin)["generate"]


@pytest.fixture(autouse=True)
def stock_again() -> Iterator[None]:
    """The library's own method before and after each test, whatever the test wrapped around it."""
    assert in_place() is STOCK
    yield
    padfix.uninstall()
    MIXIN.generate = STOCK


@pytest.fixture(scope="module")
def right() -> Replies:
    """What each prompt gets alone."""
    return [reply.tokens for reply in alone(build("llama"), ROWS)]


@pytest.fixture(scope="module")
def wrong(right: Replies) -> Replies:
    """What transformers itself gives the batch."""
    replies = replies_of(build("llama"))
    assert replies != right
    return replies


@pytest.fixture
def model() -> Any:
    return build("llama")


def replies_of(model: Any, generate: Callable[..., Any] | None = None, **arguments: Any) -> Replies:
    output = (generate or model.generate)(**BATCH, **GREEDY, **arguments)
    assert torch.equal(output[:, :WIDTH], BATCH["input_ids"])
    tokens: Replies = output[:, WIDTH:].tolist()
    return tokens


def treatment(model: Any, right: Replies, wrong: Replies) -> str:
    """The mode in force, told by what a right-padded batch meets."""
    notices.forget()  # a call site is warned once
    try:
        replies = replies_of(model)
    except padfix.PadfixWarning:
        return "warn"
    except RightPaddingError:
        return "strict"
    return {str(right): "fix", str(wrong): "off"}[str(replies)]


# In and out


def test_install_repairs_and_uninstall_puts_the_very_object_back(model: Any, right: Replies, wrong: Replies) -> None:
    assert replies_of(model) == wrong
    padfix.install()
    assert in_place() is not STOCK
    assert padfix.is_installed()
    assert replies_of(model) == right
    padfix.uninstall()
    assert in_place() is STOCK
    assert not padfix.is_installed()
    assert replies_of(model) == wrong


def test_second_install_is_a_logged_no_op_and_one_uninstall_undoes_both(caplog: pytest.LogCaptureFixture) -> None:
    padfix.install()
    ours = in_place()
    with caplog.at_level(logging.INFO, logger="padfix"):
        padfix.install()
        padfix.install("fix", strategy="auto", decoding="pad_aware")
    assert [(record.name, record.levelname) for record in caplog.records] == [("padfix", "INFO")] * 2
    assert set(caplog.messages) == {"padfix is installed already: nothing to do."}
    assert in_place() is ours
    padfix.uninstall()
    assert in_place() is STOCK


def test_uninstall_where_nothing_is_installed_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="padfix"):
        padfix.uninstall()
        padfix.uninstall()
    assert in_place() is STOCK
    assert caplog.messages == []


def test_many_rounds_leave_no_layer_behind(model: Any, right: Replies, wrong: Replies) -> None:
    for _ in range(3):
        padfix.install()
        assert inspect.unwrap(in_place()) is inspect.unwrap(STOCK)
        assert notices.counts().get("calls", 0) == 0
        assert replies_of(model) == right
        assert notices.counts()["calls"] == 1
        padfix.uninstall()
        notices.forget()
    assert in_place() is STOCK


@pytest.mark.parametrize("mode", ["fix", "warn", "strict", "off"])
@pytest.mark.parametrize("before", ["fix", "warn", "strict"])
def test_second_install_changes_the_settings_in_place(
    model: Any, right: Replies, wrong: Replies, before: str, mode: str
) -> None:
    padfix.install(before)
    ours = in_place()
    assert treatment(model, right, wrong) == before
    padfix.install(mode)
    assert in_place() is ours
    assert treatment(model, right, wrong) == mode


@pytest.mark.parametrize("arguments", [{"mode": "sometimes"}, {"strategy": "luck"}, {"decoding": "none"}], ids=str)
def test_refused_install_leaves_everything_as_it_was(
    model: Any, right: Replies, wrong: Replies, arguments: dict[str, str]
) -> None:
    with pytest.raises(SettingsError):
        padfix.install(**arguments)
    assert in_place() is STOCK
    assert not padfix.is_installed()
    padfix.install("strict")
    with pytest.raises(SettingsError):
        padfix.install(**arguments)
    assert treatment(model, right, wrong) == "strict"


def test_every_public_function_is_called_without_arguments(model: Any, right: Replies, wrong: Replies) -> None:
    assert padfix.is_installed() is False
    assert padfix.install() is None  # type: ignore[func-returns-value]
    assert padfix.is_installed() is True
    with padfix.override():
        assert replies_of(model) == right
    with padfix.suppressed() as nothing:
        assert nothing is None
        assert replies_of(model) == wrong
    assert padfix.uninstall() is None  # type: ignore[func-returns-value]
    assert padfix.is_installed() is False


def test_settings_other_than_the_mode_are_keyword_only() -> None:
    for function in (padfix.install, padfix.override):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == ["mode", "strategy", "decoding"]
        assert [one.kind.name for one in parameters.values()] == ["POSITIONAL_OR_KEYWORD", *["KEYWORD_ONLY"] * 2]
        assert {one.default for one in parameters.values()} == {None}


def test_forced_strategy_and_decoding_reach_the_call(model: Any, right: Replies) -> None:
    padfix.install(strategy="packed_prefill")
    with pytest.raises(SettingsError, match="strategy 'packed_prefill' is not exact here"):
        replies_of(build("bloom"))
    padfix.install(strategy="left_pad", decoding="pad_aware")
    assert replies_of(model) == right
    one_token_more: dict[str, Any] = {
        "min_length": len(ROWS[1]) + 1,
        "eos_token_id": right[1][0],
    }  # as that row counts, not the batch
    assert replies_of(model, **one_token_more)[1][1] != 0
    padfix.install(decoding="stock")
    assert replies_of(model, **one_token_more)[1] == [right[1][0], *[0] * 5]


# Which answer wins


@pytest.mark.parametrize(
    ("installed_as", "overridden", "expected"),
    [
        ("fix", "off", "off"),
        ("fix", "strict", "strict"),
        ("warn", "fix", "fix"),
        ("off", "fix", "fix"),
        ("strict", None, "strict"),
    ],
)
def test_override_wins_over_install(
    model: Any, right: Replies, wrong: Replies, installed_as: str, overridden: str | None, expected: str
) -> None:
    padfix.install(installed_as)
    with padfix.override(overridden):
        assert treatment(model, right, wrong) == expected
    assert treatment(model, right, wrong) == installed_as


def test_override_does_nothing_where_padfix_is_not_installed(model: Any, wrong: Replies) -> None:
    with padfix.override("strict"):
        assert replies_of(model) == wrong


def test_install_inside_suppressed_takes_effect_after_it(model: Any, right: Replies, wrong: Replies) -> None:
    with padfix.suppressed():
        padfix.install()
        assert replies_of(model) == wrong
    assert replies_of(model) == right


def test_suppressed_nests_and_ends_with_an_exception(model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    with padfix.suppressed():
        with pytest.raises(KeyboardInterrupt), padfix.suppressed():
            raise KeyboardInterrupt
        assert replies_of(model) == wrong
    assert replies_of(model) == right


def test_suppressed_block_counts_and_says_nothing(model: Any) -> None:
    padfix.install("strict")
    with padfix.suppressed():
        replies_of(model)
    assert notices.counts() == {}


@pytest.mark.parametrize("inside", [True, False], ids=["in the thread", "around its start"])
def test_suppressed_holds_for_its_own_thread_alone(model: Any, right: Replies, wrong: Replies, inside: bool) -> None:
    padfix.install()
    entered, leave = threading.Event(), threading.Event()
    seen: list[Replies] = []

    def work() -> None:
        if inside:
            with padfix.suppressed():
                entered.set()
                leave.wait(30)
                seen.append(replies_of(model))
        else:
            seen.append(replies_of(model))

    thread = threading.Thread(target=work)
    if inside:
        thread.start()
        assert entered.wait(30)
        assert replies_of(model) == right
        leave.set()
    else:
        with padfix.suppressed():
            thread.start()
            thread.join()
            assert replies_of(model) == wrong
    thread.join()
    assert seen == [wrong if inside else right]


def test_call_that_is_running_finishes_as_it_began(model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    forward = model.forward

    @functools.wraps(forward)
    def uninstalling(*args: Any, **kwargs: Any) -> Any:
        padfix.uninstall()
        return forward(*args, **kwargs)

    model.forward = uninstalling
    assert replies_of(model) == right
    model.forward = forward
    assert replies_of(model) == wrong
    assert in_place() is STOCK


def test_call_without_pads_reaches_the_original_with_the_callers_own_objects(model: Any) -> None:
    seen: list[tuple[Any, ...]] = []

    def original(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((self, args, kwargs))
        return seen

    MIXIN.generate = original
    padfix.install("strict")
    ids, mask, config = torch.tensor([[5, 6]]), torch.ones(1, 2), object()
    assert model.generate(ids, None, attention_mask=mask, extra=config) is seen
    ((self, args, kwargs),) = seen
    assert self is model
    assert args[0] is ids
    assert args[1] is None
    assert list(kwargs) == ["attention_mask", "extra"]
    assert kwargs["attention_mask"] is mask
    assert kwargs["extra"] is config


def test_exceptions_of_the_library_pass_through(model: Any) -> None:
    messages = []
    for act in (padfix.uninstall, padfix.install):
        act()
        with pytest.raises(ValueError, match="nonsense") as raised:
            replies_of(model, nonsense=1)
        messages.append((type(raised.value), str(raised.value)))
    assert messages[0] == messages[1]


# Beside other libraries' wrappers


class Theirs:
    """Another library's wrapper around `generate`, which counts its calls."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = 0
        self.beneath: Any = None
        self.wrapper: Any = None

    def put(self) -> None:
        self.beneath = in_place()
        if self.kind == "wrapt":
            wrapt.wrap_function_wrapper("transformers.generation.utils", "GenerationMixin.generate", self._wrapt)
        else:
            beneath = self.beneath

            @functools.wraps(beneath)
            def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
                self.calls += 1
                return beneath(model, *args, **kwargs)

            MIXIN.generate = generate
        self.wrapper = in_place()
        assert self.wrapper is not self.beneath

    def _wrapt(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        self.calls += 1
        return wrapped(*args, **kwargs)

    def take(self) -> None:
        """What a careful library does: it puts back what it had found."""
        MIXIN.generate = self.beneath

    def called(self, model: Any) -> Replies:
        """The replies of a call, which has to go through the wrapper once."""
        before = self.calls
        replies = replies_of(model)
        assert self.calls == before + 1
        return replies


@pytest.fixture(params=["function", "wrapt"])
def theirs(request: pytest.FixtureRequest) -> Theirs:
    return Theirs(request.param)


def test_wrapper_beneath_ours_survives_both(theirs: Theirs, model: Any, right: Replies, wrong: Replies) -> None:
    theirs.put()
    padfix.install()
    assert theirs.called(model) == right
    padfix.uninstall()
    assert in_place() is theirs.wrapper
    assert theirs.called(model) == wrong
    theirs.take()
    assert in_place() is STOCK


def test_wrapper_beneath_ours_sees_the_repaired_batch(model: Any) -> None:
    seen: list[torch.Tensor] = []

    def looking(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append(kwargs["attention_mask"])
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper("transformers.generation.utils", "GenerationMixin.generate", looking)
    padfix.install()
    replies_of(model)
    assert [mask.sum(1).tolist() for mask in seen] == [[7, 3, 5]]
    assert seen[0][:, -1].tolist() == [1, 1, 1]


def test_wrapper_over_ours_survives_and_ours_is_switched_off_in_place(
    theirs: Theirs, model: Any, right: Replies, wrong: Replies, caplog: pytest.LogCaptureFixture
) -> None:
    padfix.install()
    theirs.put()
    assert theirs.called(model) == right
    with caplog.at_level(logging.INFO, logger="padfix"):
        padfix.uninstall()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "GenerationMixin.generate was wrapped by someone else" in caplog.text
    assert not padfix.is_installed()
    assert in_place() is theirs.wrapper
    assert theirs.called(model) == wrong
    theirs.take()
    assert replies_of(model) == wrong
    padfix.uninstall()
    assert replies_of(model) == wrong


def test_wrapper_over_ours_that_goes_first_leaves_ours(theirs: Theirs, model: Any, right: Replies) -> None:
    padfix.install()
    ours = in_place()
    theirs.put()
    theirs.take()
    assert in_place() is ours
    assert replies_of(model) == right
    padfix.uninstall()
    assert in_place() is STOCK


def test_wrapper_beneath_ours_that_takes_ours_away_does_not_come_back(
    theirs: Theirs, model: Any, right: Replies, wrong: Replies
) -> None:
    theirs.put()
    padfix.install()
    theirs.take()  # puts the stock method in place, over our head
    assert replies_of(model) == wrong
    padfix.install()
    assert replies_of(model) == right
    padfix.uninstall()
    assert in_place() is STOCK


def test_reinstall_over_a_wrapper_that_holds_ours(theirs: Theirs, model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    theirs.put()
    padfix.uninstall()
    padfix.install()
    assert theirs.called(model) == right
    padfix.uninstall()
    assert in_place() is theirs.wrapper
    assert theirs.called(model) == wrong


def test_reinstall_after_ours_was_left_behind(theirs: Theirs, model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    theirs.put()
    padfix.uninstall()
    theirs.take()
    padfix.install()
    assert replies_of(model) == right
    padfix.uninstall()
    assert replies_of(model) == wrong
    assert in_place() is STOCK


def test_layer_that_was_taken_out_never_works_again(model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    taken = in_place()
    padfix.uninstall()
    padfix.install()
    assert in_place() is not taken
    assert replies_of(model, functools.partial(taken, model)) == wrong
    assert replies_of(model) == right


def test_install_over_a_wrapper_that_hides_what_it_wraps(model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    beneath = in_place()

    def opaque(model: Any, *args: Any, **kwargs: Any) -> Any:
        return beneath(model, *args, **kwargs)

    MIXIN.generate = opaque
    padfix.install()
    notices.forget()
    assert replies_of(model) == right
    done = padfix.stats()
    assert (done.calls, done.padded, done.repaired) == (1, 1, 1)
    padfix.uninstall()
    assert in_place() is opaque
    assert replies_of(model) == wrong


def test_wrapper_beneath_ours_is_found_by_who_follows_wrapped(theirs: Theirs) -> None:
    theirs.put()
    padfix.install()
    chain = [in_place()]
    while hasattr(chain[-1], "__wrapped__"):
        chain.append(chain[-1].__wrapped__)
    assert any(one is theirs.wrapper for one in chain)


def test_theirs_ours_theirs(model: Any, right: Replies, wrong: Replies) -> None:
    one, other = Theirs("function"), Theirs("wrapt")
    one.put()
    padfix.install()
    other.put()
    assert one.called(model) == other.called(model) == right
    padfix.uninstall()
    assert one.called(model) == other.called(model) == wrong
    other.take()
    assert one.called(model) == wrong


def test_second_install_beneath_a_wrapper_adds_no_layer(theirs: Theirs, model: Any, right: Replies) -> None:
    padfix.install("strict")
    theirs.put()
    padfix.install("fix")
    assert in_place() is theirs.wrapper
    assert theirs.called(model) == right


@pytest.mark.parametrize("stays", [True, False], ids=["under theirs", "under ours"])
def test_reinstall_does_not_treat_a_call_twice(theirs: Theirs, model: Any, stays: bool) -> None:
    padfix.install()
    theirs.put()
    padfix.uninstall()
    if not stays:
        theirs.take()
    padfix.install()
    notices.forget()
    with pytest.warns(padfix.PadfixWarning, match="of shape .* with values other than 0 and 1") as caught:
        model.generate(**{**right_padded(ROWS), "attention_mask": right_padded(ROWS)["attention_mask"] * 2}, **GREEDY)
    assert len(caught) == 1
    assert notices.counts()["calls"] == 1


# A method like the stock one


def test_signature_name_docs_and_kind_are_the_stock_ones() -> None:
    stock = {name: getattr(STOCK, name) for name in ("__name__", "__qualname__", "__module__", "__doc__")}
    signature, annotations = inspect.signature(STOCK), dict(STOCK.__annotations__)
    bound = inspect.signature(LlamaForCausalLM.generate)
    padfix.install()
    ours = GenerationMixin.generate
    assert ours is not STOCK
    assert {name: getattr(ours, name) for name in stock} == stock
    assert stock["__doc__"]
    assert inspect.signature(ours) == signature
    assert inspect.signature(LlamaForCausalLM.generate) == bound
    assert ours.__annotations__ == annotations
    assert inspect.isfunction(ours)
    assert inspect.isroutine(ours)
    assert not inspect.isclass(ours)


def test_bound_method_is_a_method_with_the_stock_signature(model: Any) -> None:
    signature = inspect.signature(model.generate)
    padfix.install()
    method: Any = model.generate
    assert inspect.signature(method) == signature
    assert "self" not in signature.parameters
    assert (method.__self__ is model, method.__func__ is in_place()) == (True, True)
    assert inspect.ismethod(method)


def test_class_gives_the_same_function_on_every_way() -> None:
    padfix.install()
    assert MIXIN.generate is in_place()
    assert inspect.getattr_static(LlamaForCausalLM, "generate") is in_place()
    assert "generate" not in vars(LlamaForCausalLM)


def test_unwrap_reaches_the_librarys_own_function() -> None:
    own = inspect.unwrap(STOCK)
    padfix.install()
    assert inspect.unwrap(GenerationMixin.generate) is own
    assert inspect.getsource(GenerationMixin.generate) == inspect.getsource(own)


def test_unwrap_passes_through_a_wrapper_beneath(theirs: Theirs) -> None:
    own = inspect.unwrap(STOCK)
    theirs.put()
    padfix.install()
    assert inspect.unwrap(GenerationMixin.generate) is own


def test_method_of_the_class_is_pickled_by_its_name() -> None:
    padfix.install()
    text = pickle.dumps(GenerationMixin.generate)
    assert pickle.loads(text) is in_place()
    padfix.uninstall()
    assert pickle.loads(text) is STOCK


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda method: pickle.loads(pickle.dumps(method))])
def test_copied_and_pickled_methods_work(model: Any, right: Replies, again: Callable[[Any], Any]) -> None:
    padfix.install()
    method = again(model.generate)
    assert (method.__self__ is model) is (again is copy.copy)
    assert method.__func__ is in_place()
    assert replies_of(model, method) == right


def test_deep_copy_of_a_model_is_repaired(model: Any, right: Replies) -> None:
    padfix.install()
    assert replies_of(copy.deepcopy(model)) == right


def test_beneath_the_outermost_decorator_the_call_is_repaired(model: Any, right: Replies, wrong: Replies) -> None:
    stock = model.generate.__wrapped__
    assert replies_of(model, functools.partial(stock, model)) == wrong
    padfix.install()
    beneath = model.generate.__wrapped__
    assert replies_of(model, functools.partial(beneath, model)) == right
    assert inspect.isfunction(beneath)
    assert inspect.signature(beneath) == inspect.signature(stock)
    assert beneath.__name__ == stock.__name__
    with padfix.suppressed():
        assert replies_of(model, functools.partial(beneath, model)) == wrong
    padfix.uninstall()
    assert replies_of(model, functools.partial(beneath, model)) == wrong


@pytest.mark.parametrize("batch", [BATCH, right_padded(ROWS[:1])], ids=["padded", "unpadded"])
def test_gradients_are_those_of_stock(model: Any, batch: Any) -> None:
    """On transformers whose outermost decorator is no_grad, `__wrapped__` generates with gradients."""

    def has_gradients(generate: Callable[..., Any]) -> bool:
        arguments = {**GREEDY, "use_cache": False, "return_dict_in_generate": True, "output_logits": True}
        return bool(generate(model, **batch, **arguments).logits[-1].requires_grad)

    stock = [has_gradients(STOCK), has_gradients(STOCK.__wrapped__)]
    assert stock == [False, STOCK.__code__.co_name == "decorate_context"]
    padfix.install()
    assert [has_gradients(in_place()), has_gradients(in_place().__wrapped__)] == stock


# Other ways to the method


class Overriding(LlamaForCausalLM):
    """A model class with a `generate` of its own that calls the library's."""

    calls = 0

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return super().generate(*args, **kwargs)


def test_subclass_that_calls_super_is_repaired_and_called(model: Any, right: Replies, wrong: Replies) -> None:
    model.__class__ = Overriding
    padfix.install()
    assert replies_of(model) == right
    assert model.calls == 1
    padfix.uninstall()
    assert replies_of(model) == wrong


def test_unbound_call_through_the_class_is_repaired(model: Any, right: Replies) -> None:
    padfix.install()
    assert replies_of(model, functools.partial(LlamaForCausalLM.generate, model)) == right
    assert replies_of(model, functools.partial(GenerationMixin.generate, model)) == right


def test_partial_on_the_instance_is_repaired(model: Any, right: Replies, wrong: Replies) -> None:
    padfix.install()
    model.generate = functools.partial(model.generate, max_new_tokens=GREEDY["max_new_tokens"])
    short = model.generate(**BATCH, do_sample=False)
    assert short[:, WIDTH:].tolist() == right
    padfix.uninstall()
    assert model.generate(**BATCH, do_sample=False)[:, WIDTH:].tolist() == wrong


def test_method_that_was_taken_before_install_stays_stock(model: Any, right: Replies, wrong: Replies) -> None:
    taken = model.generate
    padfix.install()
    assert replies_of(model, taken) == wrong
    assert replies_of(model) == right


@pytest.mark.parametrize("undo", [False, True], ids=["install", "install and uninstall"])
def test_threads_that_install_at_once_put_one_layer(undo: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []
    put = patch._put

    def slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.001)
        put(*args, **kwargs)

    monkeypatch.setattr(patch, "_put", slowly)

    def work(turn: int) -> None:
        try:
            start.wait(30)
            for _ in range(5):
                padfix.install(("fix", "warn")[turn % 2])
                if undo:
                    padfix.uninstall()
        except BaseException as error:
            failures.append(error)

    crew = [threading.Thread(target=work, args=(turn,)) for turn in range(8)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert failures == []
    padfix.uninstall()
    assert in_place() is STOCK
    assert not padfix.is_installed()


def test_method_that_was_taken_while_installed_is_off_after_uninstall(model: Any, wrong: Replies) -> None:
    padfix.install("strict")
    taken = model.generate
    padfix.uninstall()
    assert replies_of(model, taken) == wrong


def test_guessed_padding_is_refused_in_strict_mode(model: Any) -> None:
    padfix.install("strict")
    ids = right_padded(ROWS, pad=2)["input_ids"]
    with pytest.raises(AmbiguousPaddingError, match="Rows 1, 2 of input_ids"):
        model.generate(input_ids=ids, pad_token_id=2, **GREEDY)


def test_release_is_told_by_the_installed_package_where_the_module_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nameless = types.ModuleType("no_package_of_this_name.utils")
    assert patch._transformers_version(nameless) == transformers.__version__

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert patch._transformers_version(nameless) == "0.0"
    assert patch._transformers_version(types.ModuleType("transformers.utils")) == transformers.__version__


def test_output_without_sequences_stays_as_the_model_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = (torch.zeros(2), "of somebody")
    monkeypatch.setattr(GenerationMixin, "generate", lambda self, *args, **kwargs: given)
    padfix.install("fix")
    with pytest.warns(padfix.PadfixWarning, match="the output is a tuple without sequences"):
        assert build("llama").generate(**BATCH, **GREEDY) is given
    padfix.uninstall()
