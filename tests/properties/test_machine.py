"""install, uninstall, override and other libraries' wrappers in any order: after every step each call comes out right.

`World` says what must be true; the machine does the same with padfix and compares. After every step a right-padded
batch is generated from, besides the calls that the steps themselves make.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule
from oracle import compare, read
from transformers import StoppingCriteria, StoppingCriteriaList

import padfix
from padfix import notices, patch
from padfix import settings as settings_module
from padfix.errors import SettingsError

from .machine import (
    FLAGS,
    FOREIGN,
    GENERATE,
    HELD_BY,
    MIXIN,
    MODELS,
    POINTS,
    SIDES,
    STOCK,
    Block,
    Call,
    Chain,
    Link,
    World,
    arguments,
    below,
    by_hand,
    each_alone,
    in_place,
    model,
    remember,
    same_as_stocks,
    same_replies,
    stocks,
)

# What the counts of calls are, beside those by strategy and reason.
COUNTED = ("calls", "padded", "repaired", "left_as_is", "warnings")


class Method(NamedTuple):
    """A method that was taken at some step: the link it is, and the model that it is bound to, if it is."""

    method: Callable[..., Any]
    link: Link
    bound_to: str | None


class Asking(StoppingCriteria):
    """A user's criterion that never stops; the first time it notes the ids that it is shown, and calls `ask`."""

    def __init__(self, ask: Callable[[], None], shown: list[Any]) -> None:
        self.ask, self.shown = ask, shown

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        if not self.shown:
            self.shown.append(input_ids.clone())
            self.ask()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


# Two lines of a user's; a warning points at them.
CALLERS: dict[str, Callable[..., Any]] = {
    "one line": lambda call, *args, **kwargs: call(*args, **kwargs),
    "another": lambda call, *args, **kwargs: call(*args, **kwargs),
}


@st.composite
def changes(draw: st.DrawFn) -> Block:
    """Settings that are named to `install` or `override`: mostly a mode, with or without the others."""
    named = {
        "mode": draw(st.sampled_from(("fix", "warn", "strict", "off", None))),
        "strategy": draw(st.sampled_from((None, None, "auto", "left_pad", "packed_prefill"))),
        "decoding": draw(st.sampled_from((None, None, "pad_aware", "stock"))),
    }
    return {field: value for field, value in named.items() if value is not None}


calls = st.builds(Call, st.sampled_from(MODELS), st.sampled_from((*SIDES, "right")), st.sampled_from(("", *FLAGS)))
# Who does a step. `thread` is a new one each time; `copy` is a task's context, which starts as a copy of main's.
actors = st.sampled_from(("main", "main", "worker", "thread", "copy"))
callers = st.sampled_from(tuple(CALLERS))
points = st.sampled_from((GENERATE, *POINTS))
ways = st.sampled_from(("model", "class", "subclass", "padfix"))


class Machine(RuleBasedStateMachine):
    """padfix in one process, and beside it the world as it must be."""

    taken = Bundle("taken")

    reads_record = True  # whether padfix's private record is looked at, beside what a caller can see

    def __init__(self) -> None:
        super().__init__()
        remember()
        notices.forget()
        self.world = World()
        self.open: dict[str, list[AbstractContextManager[None]]] = {holder: [] for holder in HELD_BY}
        self.worker = contextvars.Context()
        self.standing: list[tuple[str, Link]] = []
        self.layers: dict[Link, Any] = {}
        self.retired_before = list(patch._record.layers.retired)
        self.to_hear: list[str] = []
        self.turn = 0
        self.as_in_stock()

    # Steps

    @rule(actor=actors, named=changes())
    def install(self, actor: str, named: Block) -> None:
        self.world.install(named)
        self._as(actor, lambda: padfix.install(**named))
        for chain in self.world.chains.values():
            assert any(link is chain.ours for link in below(chain.top)), "install is out of reach"

    @rule(actor=actors, named=changes())
    def install_anew(self, actor: str, named: Block) -> None:
        self.uninstall(actor)
        self.what_is_in_place_is_known()
        self.install(actor, named)

    @rule(actor=actors)
    def uninstall(self, actor: str) -> None:
        self.world.uninstall()
        self._as(actor, padfix.uninstall)

    @rule(why=st.sampled_from(("environment", "environment", "mode", "strategy", "decoding")))
    def in_vain(self, why: str) -> None:
        """PADFIX=off in the environment, or a value that is not listed: everything stays as it was."""
        if why == "environment":
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(settings_module, "NAMED_IN_ENVIRONMENT", frozenset({"mode"}))
                padfix.install("strict", decoding="stock")
            return
        with pytest.raises(SettingsError):
            padfix.install(**{"mode": "strict", why: "nonsense"})
        with pytest.raises(SettingsError), padfix.override(**{"mode": "strict", why: "nonsense"}):
            pytest.fail("a block under a value that is not listed")

    @rule(holder=st.sampled_from(HELD_BY), named=st.none() | changes())
    def enter(self, holder: str, named: Block | None) -> None:
        """An override, or `suppressed` where no settings are named."""
        block = padfix.suppressed() if named is None else padfix.override(**named)
        self._as(holder, block.__enter__)
        self.open[holder].append(block)
        self.world.blocks[holder].append({"mode": "off"} if named is None else named)

    @precondition(lambda self: any(self.open.values()))
    @rule(holder=st.sampled_from(HELD_BY), raising=st.booleans())
    def leave(self, holder: str, raising: bool) -> None:
        if not self.open[holder]:
            (holder,) = set(HELD_BY) - {holder}
        block = self.open[holder].pop()
        self.world.blocks[holder].pop()
        error = KeyboardInterrupt() if raising else None
        kind = KeyboardInterrupt if raising else None
        swallowed = self._as(holder, lambda: block.__exit__(kind, error, None))
        assert not swallowed

    @rule(point=points, kind=st.sampled_from(tuple(FOREIGN)))
    def wrap(self, point: str, kind: str) -> None:
        link = self.world.wrap(point, kind)
        setattr(MIXIN, point, link.method)
        self.standing.append((point, link))

    @precondition(lambda self: self._on_top())
    @rule(at=st.integers(0, 2))
    def take_a_top_wrapper_off(self, at: int) -> None:
        there = self._on_top()
        self._take(*there[at % len(there)])

    @precondition(lambda self: self.standing)
    @rule(at=st.integers(0, 9))
    def take_some_wrapper_off(self, at: int) -> None:
        """In no order: whoever put it restores what it had found, and what has come since is gone."""
        self._take(*self.standing[at % len(self.standing)])

    @rule(target=taken, name=st.none() | st.sampled_from(MODELS))
    def take_method(self, name: str | None) -> Method:
        method = MIXIN.generate if name is None else model(name).generate
        return Method(method, self.world.chains[GENERATE].top, name)

    @rule(actor=actors, way=ways, call=calls, caller=callers)
    def generate(self, actor: str, way: str, call: Call, caller: str) -> None:
        with self._hearing():
            self._as(actor, lambda: self._call(actor, way, call, caller))

    @rule(actor=actors, method=taken, call=calls, caller=callers)
    def generate_by_what_was_taken(self, actor: str, method: Method, call: Call, caller: str) -> None:
        call = call._replace(model=method.bound_to or call.model)
        with self._hearing():
            self._as(actor, lambda: self._call(actor, method, call, caller))

    @rule(
        actor=actors,
        way=ways,
        call=calls,
        inner_way=ways,
        inner=calls,
        named=st.none() | changes(),
        first=st.sampled_from((None, None, "install", "uninstall")),
    )
    def generate_inside_a_callback(
        self, actor: str, way: str, call: Call, inner_way: str, inner: Call, named: Block | None, first: str | None
    ) -> None:
        """A user's criterion generates from another batch, in a block or not; padfix may come or go first."""
        blocks = self._blocks(actor)
        if way == "padfix" and first == "install":  # it may be met, and cannot be told from what its own call calls
            first = None

        def ask() -> None:
            if first == "install":
                self.world.install({"mode": "fix"})
                padfix.install("fix")
            elif first == "uninstall":
                self.world.uninstall()
                padfix.uninstall()
            with nullcontext() if named is None else padfix.override(**named):
                inside = blocks if named is None else [*blocks, named]
                self._call(actor, inner_way, inner, "another", blocks=inside)
                self._call(actor, "model", Call(call.model, "none", "history"), "another", blocks=inside)

        with self._hearing():
            self._as(actor, lambda: self._call(actor, way, call, "one line", ask=ask))

    # What holds after every step

    @invariant()
    def what_is_in_place_is_known(self) -> None:
        for point, chain in self.world.chains.items():
            if chain.top.method is None:
                assert chain.top.kind == "ours"
                assert in_place(point) not in [link.method for link in self._links(chain)], f"{point}: nothing new"
                chain.top.method = in_place(point)
                self.layers[chain.top] = self._placed().get(point)
            assert in_place(point) is chain.top.method, f"{point}: in place is not {chain.top}"
        assert padfix.is_installed() is (self.world.settings is not None)

    @invariant()
    def a_padded_batch_comes_out_right(self) -> None:
        """By `model.generate`, and by one of the other ways in turn, by a layer that was taken out among them."""
        self.what_is_in_place_is_known()
        self.turn += 1
        gone = [link for link in self.layers if link.point == GENERATE and link is not self.world.chains[GENERATE].ours]
        last = Method(gone[-1].method, gone[-1], None) if gone else "class"
        others: list[tuple[str, str | Method]] = [("main", "padfix"), ("worker", "subclass"), ("thread", last)]
        for actor, way in (("main", "model"), others[self.turn % 3]):
            with self._hearing():
                self._as(actor, functools.partial(self._call, actor, way, Call("gpt2", "right"), "one line"))
        self.what_is_in_place_is_known()

    @invariant()
    def every_call_was_counted_and_passed_on_once(self) -> None:
        counted = {what: times for what, times in notices.counts().items() if what in COUNTED}
        assert counted == {what: times for what, times in self.world.counts.items() if times}
        for link in self.world.wrappers:
            assert link.calls == link.due, f"{link}: called {link.calls} times, due {link.due}"

    @invariant()
    def the_record_is_true(self) -> None:
        if not self.reads_record:
            return
        self.what_is_in_place_is_known()
        record = patch._record
        assert (record.waiting, record.refusal, record.under_way) == (False, None, [])
        seen = None if record.settings is None else dataclasses.asdict(record.settings)
        assert seen == self.world.settings
        working = {point: self.layers[chain.ours] for point, chain in self.world.chains.items() if chain.ours}
        assert self._placed() == working
        retired = {one.replacement for one in record.layers.retired if one not in self.retired_before}
        assert retired == {link.method for chain in self.world.chains.values() for link in chain.left}
        for link, layer in self.layers.items():
            assert link.beneath is not None
            assert (layer.replacement, layer.original) == (link.method, link.beneath.method), f"{link}: {layer}"
            assert layer.active is (layer in working.values()), f"{link}: active is {layer.active}"

    @invariant()
    def the_open_blocks_are_known(self) -> None:
        if not self.reads_record:
            return
        for holder in HELD_BY:
            named = [pair for block in self.world.blocks[holder] for pair in block.items()]
            seen = self._as(holder, settings_module._changes.get)
            assert list(seen) == named, f"{holder} stands in {seen}"

    def teardown(self) -> None:
        """Everything is taken off in its order, and transformers' own method is there."""
        try:
            if sys.exc_info()[0] is None:
                self._undo()
        finally:
            while any(self.open.values()):
                self.leave("main", False)
            settings_module._changes.set(())
            patch.uninstall()
            patch._record.layers.placed.clear()
            patch._record.layers.retired[:] = self.retired_before
            for point, method in STOCK.items():
                setattr(MIXIN, point, method)

    def _undo(self) -> None:
        while any(self.open.values()):
            self.leave("main", False)
        self.the_open_blocks_are_known()
        while any(chain.top.kind != "stock" for chain in self.world.chains.values()):
            for point, chain in self.world.chains.items():
                while chain.top.is_foreign:
                    self._take(point, chain.top)
                if chain.top.kind == "ours" and chain.top not in (chain.ours, *chain.left):
                    # Put back by a wrapper that had found it there, long after it was taken out.
                    assert chain.top.beneath is not None
                    chain.top = chain.top.beneath
                    setattr(MIXIN, point, chain.top.method)
            self.install("main", {})  # instead of what was left behind
            self.what_is_in_place_is_known()
            self.uninstall("main")
            self.what_is_in_place_is_known()
        self.uninstall("main")
        self.as_in_stock()
        assert self._as("main", settings_module._changes.get) == ()
        self.a_padded_batch_comes_out_right()
        self.every_call_was_counted_and_passed_on_once()

    def as_in_stock(self) -> None:
        """Fails unless transformers' own methods are there, and nothing of padfix's."""
        assert {point: in_place(point) for point in POINTS} == STOCK
        assert not padfix.is_installed()
        assert not self._placed()

    # How a step is done

    def _as(self, actor: str, act: Callable[[], Any]) -> Any:
        """What `act` gives in the thread and context of the actor."""
        if actor == "main":
            return act()
        if actor == "copy":
            return contextvars.copy_context().run(act)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self.worker.run, act).result() if actor == "worker" else thread.submit(act).result()

    def _blocks(self, actor: str) -> list[Block]:
        """The blocks that the actor stands in: a new thread stands in none, a copied context in main's."""
        return self.world.blocks.get("main" if actor == "copy" else actor, [])

    def _on_top(self) -> list[tuple[str, Link]]:
        return [(point, link) for point, link in self.standing if self.world.chains[point].top is link]

    def _take(self, point: str, link: Link) -> None:
        if (point, link) in self.standing:  # else one that is back because it was found beneath another
            self.standing.remove((point, link))
        assert link.beneath is not None
        self.world.chains[point].top = link.beneath
        setattr(MIXIN, point, link.beneath.method)

    def _links(self, chain: Chain) -> list[Link]:
        """Every other link that is known to have stood in the chain's place."""
        known = (*below(chain.top), *self.layers, *self.world.wrappers)
        return [link for link in known if link.point == chain.point and link is not chain.top]

    @staticmethod
    def _placed() -> dict[str, Any]:
        return {point.name: layer for point, layer in patch._record.layers.placed.items()}

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """A block in which what has to be said is said, and nothing else."""
        self.to_hear.clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
        texts = [str(one.message) for one in said]
        assert len(texts) == len(self.to_hear), f"to be said: {self.to_hear}, said: {texts}"
        for words in self.to_hear:
            found = [text for text in texts if words in text]
            assert found, f"no warning says {words!r}: {texts}"
            texts.remove(found[0])

    def _call(
        self,
        actor: str,
        way: str | Method,
        call: Call,
        caller: str,
        *,
        ask: Callable[[], None] | None = None,
        blocks: list[Block] | None = None,
    ) -> None:
        """One call, which has to come to what the world expects."""
        subject, given = model(call.model), arguments(call)
        ids, before = given["input_ids"], {name: given[name].clone() for name in ("input_ids", "attention_mask")}
        shown: list[Any] = []
        if ask is not None:
            given["stopping_criteria"] = StoppingCriteriaList([Asking(ask, shown)])
        start = way.link if isinstance(way, Method) else self.world.chains[GENERATE].top
        blocks = self._blocks(actor) if blocks is None else blocks
        expected = self.world.expect(blocks, start, call, caller, direct=way == "padfix")
        if expected.says:
            self.to_hear.append(expected.says)

        def made() -> Any:
            line = CALLERS[caller]
            if isinstance(way, Method):
                return line(way.method, **given) if way.bound_to else line(way.method, subject, **given)
            if way == "model":
                return line(subject.generate, **given)
            if way == "padfix":
                return line(padfix.generate, subject, **given)
            owner = MIXIN if way == "class" else type(subject)
            return line(owner.generate, subject, given.pop("input_ids"), **given)

        error: Exception | None = None
        try:
            output = made()
        except Exception as raised:
            error = raised
        if not isinstance(expected.result, str):
            assert type(error) is expected.result, f"{call}: not {expected.result.__name__} but {error!r}"
        else:
            assert error is None, f"{call}: not {expected.result} but {error!r}"
            if expected.result == "stock":
                same_as_stocks(output, call)
            else:
                same_replies(output, call, by_hand(call) if expected.result == "by hand" else each_alone(call))
        assert bool(shown) is (ask is not None and isinstance(expected.result, str)), "when was the callback asked?"
        for seen in shown:
            assert torch.equal(seen[:, : ids.shape[1]], ids), f"{call}: the callback was shown another prompt"
        for name, value in before.items():
            assert torch.equal({"input_ids": ids, **given}[name], value), f"the call changed the caller's {name}"


TestMachine = Machine.TestCase
# A machine makes some eighty calls of generate, so a quarter as many of them as other properties have examples.
TestMachine.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=30)


@pytest.mark.parametrize("side", ["right", "both"])
@pytest.mark.parametrize("name", MODELS)
def test_a_repair_that_is_missing_is_seen(name: str, side: str) -> None:
    """On its own transformers gives the padded rows other logits than they get alone, and the full row the same."""
    remember()
    for flag in FLAGS:
        call = Call(name, side, flag)
        wrong, right = read(model(name), stocks(call), arguments(call)), each_alone(call)
        compare(wrong[:1], right[:1])
        for row in (1, 2):
            with pytest.raises(AssertionError):
                compare(wrong[row : row + 1], right[row : row + 1])


@pytest.mark.parametrize("name", MODELS)
def test_a_flag_that_sees_pads_is_seen(name: str) -> None:
    """Padded on the left by hand, a row gets other scores than alone under a flag that reads the history."""
    remember()
    call = Call(name, "left", "history")
    with pytest.raises(AssertionError):
        compare(by_hand(call), each_alone(call))
