"""What must be true of the patch, in plain Python: who stands over whom, the settings in force, what a call comes to.

`World` is told of every step and says what has to follow; it never looks at padfix. What transformers' own method
makes of each batch, and what each prompt gets alone, is run once and remembered.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import wrapt
from facts import RELEASE
from oracle import MODELS as TABLE
from oracle import PADDERS, ROWS, Reply, alone, compare, read, right_padded
from transformers.generation.utils import GenerationMixin

from padfix.errors import RightPaddingError, SettingsError
from padfix.generation.exceptions import PACKABLE

from .batches import model

__all__ = [
    "FLAGS",
    "FOREIGN",
    "GENERATE",
    "HELD_BY",
    "MISPLACED",
    "MIXIN",
    "MODELS",
    "POINTS",
    "SIDES",
    "STOCK",
    "Block",
    "Call",
    "Chain",
    "Link",
    "World",
    "arguments",
    "below",
    "by_hand",
    "each_alone",
    "in_place",
    "model",
    "remember",
    "same_as_stocks",
    "same_replies",
    "stocks",
]

MIXIN: Any = GenerationMixin
# The methods that padfix stands in for: `generate`, and two that it calls once each.
GENERATE, *HOOKS = POINTS = ("generate", "_get_logits_processor", "_get_stopping_criteria")

MODELS = ("llama", "gpt2", "opt")
MISPLACED = ("right", "both", "holes")
SIDES = ("none", "left", *MISPLACED)
EVEN = [[11, 42, 7], [71, 13, 55]]
# A flag that reads the token history, pads included, and one that stands in the way of moving columns.
FLAGS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "history": {"no_repeat_ngram_size": 1},
    "positions": {"position_ids": torch.zeros(1, 1, dtype=torch.long)},
}


class Call(NamedTuple):
    """A batch on a model, under a flag of FLAGS."""

    model: str
    side: str
    flag: str = ""


def in_place(point: str = GENERATE) -> Any:
    """The method that stands in the class now."""
    return vars(MIXIN)[point]


STOCK = {point: in_place(point) for point in POINTS}


def arguments(call: Call) -> dict[str, Any]:
    """The keyword arguments of a call, with tensors of its own."""
    batch: dict[str, Any] = dict(right_padded(EVEN) if call.side == "none" else PADDERS[call.side](ROWS))
    details = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
    return {**batch, "do_sample": False, "max_new_tokens": 2, **details, **FLAGS[call.flag]}


# What is remembered


@functools.cache
def stocks(call: Call) -> Any:
    """The output of transformers' own method."""
    return STOCK[GENERATE](model(call.model), **arguments(call))


@functools.cache
def by_hand(call: Call) -> Sequence[Reply]:
    """What transformers' own method gives the batch that was padded on the left by hand."""
    left = call._replace(side="left")
    return read(model(call.model), stocks(left), arguments(left))


@functools.cache
def each_alone(call: Call) -> Sequence[Reply]:
    """What each prompt gets alone."""
    rows = EVEN if call.side == "none" else ROWS
    return alone(model(call.model), rows, max_new_tokens=2, distinct=False, **FLAGS[call.flag])


@functools.cache
def remember() -> None:
    """Runs everything that will be compared with, while nothing stands in the place of transformers' own methods."""
    assert {point: in_place(point) for point in POINTS} == STOCK
    for name in MODELS:
        for side in SIDES:
            for flag in FLAGS:
                for run in (stocks, by_hand, each_alone):
                    run(Call(name, side, flag))


def same_as_stocks(output: Any, call: Call) -> None:
    """Fails unless the output is bit for bit what transformers' own method gives."""
    stock = stocks(call)
    assert type(output) is type(stock), f"{call}: a {type(output).__name__}, not a {type(stock).__name__}"
    assert torch.equal(output.sequences, stock.sequences), f"{call}: other tokens than transformers' own"
    for step, (one, other) in enumerate(zip(output.logits, stock.logits, strict=True)):
        assert torch.equal(one, other), f"{call}: other logits than transformers' own at step {step}"


def same_replies(output: Any, call: Call, expected: Sequence[Reply]) -> None:
    """Fails unless every row has its reply, in the caller's layout."""
    compare(read(model(call.model), output, arguments(call)), expected)


# Who stands over whom


@dataclass(eq=False)
class Link:
    """One method in the place of another: transformers' own, one of padfix's, or somebody's wrapper.

    Attributes:
        kind: `stock`, `ours`, or a name of FOREIGN.
        point: The name of the method that it stands for.
        beneath: What it was put over.
        method: The method itself; None for one of ours that is not known yet.
        calls: How often a wrapper was called.
        due: How often it had to be.
    """

    kind: str
    point: str
    beneath: Link | None = None
    method: Any = None
    calls: int = 0
    due: int = 0

    @property
    def is_foreign(self) -> bool:
        """Whether it is somebody's wrapper."""
        return self.kind in FOREIGN

    def __repr__(self) -> str:
        return self.kind if self.beneath is None else f"{self.kind} over {self.beneath!r}"


def _function(link: Link, beneath: Any) -> Any:
    @functools.wraps(beneath)
    def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        link.calls += 1
        return beneath(model, *args, **kwargs)

    return generate


def _hiding(link: Link, beneath: Any) -> Any:
    def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        link.calls += 1
        return beneath(model, *args, **kwargs)

    return generate


def _wrapt(link: Link, beneath: Any) -> Any:
    def generate(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        link.calls += 1
        return wrapped(*args, **kwargs)

    return wrapt.FunctionWrapper(beneath, generate)


# Wrappers of other libraries: `functools.wraps`, one that does not say what it wraps, and wrapt's.
FOREIGN: Mapping[str, Callable[[Link, Any], Any]] = {"function": _function, "hiding": _hiding, "wrapt": _wrapt}


def below(link: Link) -> Iterator[Link]:
    """A link, what is beneath it, and so on: the way of a call."""
    at: Link | None = link
    while at is not None:
        yield at
        at = at.beneath


class Chain:
    """Who stands in the place of one method.

    Attributes:
        top: The last link, which is called.
        ours: The one layer of padfix that works, whether a call can still reach it or not.
        left: The layers that were switched off beneath somebody's wrapper.
    """

    def __init__(self, point: str) -> None:
        self.point = point
        self.top = Link("stock", point, method=STOCK[point])
        self.ours: Link | None = None
        self.left: list[Link] = []

    def put(self) -> None:
        """A new layer, where ours is not found by who follows `__wrapped__`."""
        if self.ours is not None:
            if self.ours in self._told():
                return
            self.left.append(self.ours)
        beneath = self.top.beneath if self.top in self.left else self.top  # a layer left behind is nobody's original
        self.ours = self.top = Link("ours", self.point, beneath)

    def take_out(self) -> None:
        """What was there before comes back, or ours is switched off beneath whoever stands over it."""
        if self.ours is None:
            return
        if self.top is self.ours:
            assert self.ours.beneath is not None
            self.top = self.ours.beneath
        else:
            self.left.append(self.ours)
        self.ours = None

    def _told(self) -> Iterator[Link]:
        for link in below(self.top):
            yield link
            if link.kind == "hiding":
                return


# What a call comes to

Block = Mapping[str, str]

INERT: Block = {"mode": "off", "strategy": "auto", "decoding": "pad_aware"}


class Expected(NamedTuple):
    """What has to come of a call, what is said, if anything, and what is counted.

    `result` is an error, `stock`, `alone` (each row as its prompt alone), or `by hand` (as left padding by hand).
    """

    result: str | type[Exception]
    says: str | None = None
    counts: tuple[str, ...] = ()


def treatment(settings: Block, call: Call) -> Expected:
    """What padfix makes of a call under these settings: the table in docs/settings.md."""
    if call.side == "none":
        return Expected("stock", None, ("calls",))
    seen, misplaced = ("calls", "padded"), call.side in MISPLACED
    if settings["mode"] == "strict" and misplaced:
        return Expected(RightPaddingError, None, seen)
    forced = settings["strategy"] == "packed_prefill"
    refused = forced and (call.flag == "positions" or not packs(call.model))
    pads_are_seen = call.flag == "history" and settings["decoding"] == "pad_aware"
    needed = misplaced or pads_are_seen
    if not (needed or refused or (forced and settings["mode"] != "warn")):
        return Expected("stock", None, seen)
    if settings["mode"] == "warn":
        return Expected("stock", "pads after real tokens" if misplaced else "padded", (*seen, "left_as_is"))
    if refused:
        return Expected(SettingsError, None, seen)
    if call.flag == "positions":
        return Expected("stock", "cannot make this call right: position_ids=", (*seen, "left_as_is"))
    by_hand = call.flag == "history" and settings["decoding"] == "stock"
    return Expected("by hand" if by_hand else "alone", None, (*seen, "repaired") if needed else seen)


def packs(name: str) -> bool:
    """Whether the prompts of a model of the table can be packed."""
    return PACKABLE.get(TABLE[name][0], (99, 0)) <= RELEASE


# Who may hold blocks open: the machine's own thread, and a second one.
HELD_BY = ("main", "worker")


class World:
    """The state of the patch after the steps so far.

    Attributes:
        chains: Who stands in the place of each method.
        wrappers: Every wrapper that was ever put.
        settings: Those of `install`; None where nothing is installed.
        blocks: The open `override` blocks of each holder, the innermost last.
        counts: What has been counted.
        said: The call sites that warn mode has reported.
    """

    def __init__(self) -> None:
        self.chains = {point: Chain(point) for point in POINTS}
        self.wrappers: list[Link] = []
        self.settings: Block | None = None
        self.blocks: dict[str, list[Block]] = {holder: [] for holder in HELD_BY}
        self.counts: Counter[str] = Counter()
        self.said: set[str] = set()

    def install(self, named: Block) -> None:
        """The named settings change, and no others; layers are put where there are none."""
        self.settings = {**(self.settings or {**INERT, "mode": "fix"}), **named}
        for chain in self.chains.values():
            chain.put()

    def uninstall(self) -> None:
        """Every layer goes."""
        self.settings = None
        for chain in self.chains.values():
            chain.take_out()

    def wrap(self, point: str, kind: str) -> Link:
        """Somebody's wrapper over whatever is there."""
        chain = self.chains[point]
        link = Link(kind, point, chain.top)
        link.method = FOREIGN[kind](link, chain.top.method)
        self.wrappers.append(link)
        chain.top = link
        return link

    def expect(self, blocks: Sequence[Block], start: Link, call: Call, caller: str, *, direct: bool) -> Expected:
        """What a call that starts at a link has to come to; it is counted as made.

        Args:
            blocks: The blocks that it stands in.
            start: The method that is called.
            call: Its batch.
            caller: The name of the line that calls.
            direct: Whether it is `padfix.generate`'s, which treats the call before anyone else sees it.
        """
        way, at = list(below(start)), 0
        settings = INERT if direct else self.settings or INERT
        for block in blocks if direct or self.settings else ():
            settings = {**settings, **block}
        if direct and settings["mode"] == "off":
            settings = {**settings, "mode": "fix"}
        if not direct:
            ours = self.chains[GENERATE].ours
            if settings["mode"] == "off" or ours not in way:
                return self._made(Expected("stock"), way)
            at = way.index(ours)
        expected = treatment(settings, call)
        if expected.says and settings["mode"] == "warn":
            # A warning points at the innermost frame that is not padfix's: of whoever wraps ours, else of the caller.
            site = next((link.kind for link in reversed(way[:at]) if link.is_foreign), caller)
            if site in self.said:
                expected = expected._replace(says=None)
            self.said.add(site)
        return self._made(expected, way if isinstance(expected.result, str) else way[:at])

    def _made(self, expected: Expected, way: Sequence[Link]) -> Expected:
        for link in way:
            link.due += link.is_foreign
        for chain in (self.chains[point] for point in HOOKS):
            if "repaired" in expected.counts:  # the hooks are put where they are not, for this call
                chain.put()
                if self.settings is None:
                    chain.take_out()
            if isinstance(expected.result, str):
                for link in below(chain.top):
                    link.due += link.is_foreign
        self.counts.update(expected.counts)
        self.counts["warnings"] += bool(expected.says)
        return expected
