"""Random padded batches through `generate` on tiny models, against each prompt alone.

A `Case` says what a call is like in small words, so that a failing one reads well and can be replayed:

    equals_single("gpt2", Case(rows=((5, 17, 33), (11,)), width=3, columns=((0, 1, 2), (0,))))

The single runs are remembered, so that an example costs little more than its own call.
"""

from __future__ import annotations

import functools
import inspect
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from facts import RELEASE
from hypothesis import strategies as st
from oracle import BOS, EOS, VOCABULARY, Reply, alone, build, compare, is_there, read
from torch import Tensor
from transformers import GenerationConfig

import padfix
from padfix import notices
from padfix.layout.plan import LayoutPlan

from .laws import read_real
from .layouts import SIDES, columns

__all__ = [
    "FLAGS",
    "MODELS",
    "POOL",
    "STATIC",
    "Case",
    "beams_mix_rows",
    "boards",
    "cases",
    "equals_left_padding_by_hand",
    "equals_single",
    "is_promised",
    "may_be_refused",
    "runs_alone",
    "sampled_cases",
    "single",
]

# Those of them that the installed release has.
MODELS = tuple(filter(is_there, ("llama", "gpt2", "mistral", "bloom", "opt", "mamba2", "gemma3")))
# Models that padfix may refuse below a release, by a warning that names their class, wherever the model would see pads.
MAY_BE_REFUSED_BEFORE = {"gemma3": (4, 57), "mamba2": (5, 24)}
# Models that cannot run a prompt of one token below a release: transformers 4.46.3 cannot, 4.51.3 can.
ONE_TOKEN_FAILS_BEFORE = {"mamba2": (4, 51)}
LONGEST, WIDEST = 14, 17

Row = tuple[int, ...]
Flags = tuple[tuple[str, Any], ...]


def _pool() -> tuple[Row, ...]:
    """Prompts of 1 to 14 tokens, all different: some start with BOS, some hold ids that serve as pad or EOS."""
    draw = random.Random(11)
    drawn = [[draw.randrange(VOCABULARY) for _ in range(1 + at % LONGEST)] for at in range(4 * LONGEST)]
    rows = {tuple([BOS, *row[1:]] if at % 5 == 4 else row) for at, row in enumerate(drawn)}
    return tuple(sorted(rows, key=lambda row: (len(row), row)))


POOL = _pool()

# A cache of fixed shape: the prompt keeps its width. Nothing is compiled on a CPU.
STATIC = ("cache_implementation", "static")

# Flags under which a row gets what it gets alone.
FLAGS: tuple[Flags, ...] = (
    (),
    (("use_cache", False),),
    (("num_beams", 2),),
    (("num_beams", 3), ("num_return_sequences", 2)),
    (("num_beams", 3), ("num_return_sequences", 3), ("early_stopping", True)),
    (("num_beams", 2), ("length_penalty", 2.0)),
    (("num_beams", 2), ("use_cache", False)),
    (("suppress_tokens", (5, 17, 33)),),
    (("bad_words_ids", ((61,), (24,))),),
    (("forced_eos_token_id", 7),),
)
if RELEASE >= (4, 57):  # 4.46 and 4.51 have no static cache for some of the models
    FLAGS += ((STATIC,), (STATIC, ("num_beams", 2)))

# What bounds the reply, how many new tokens it grants (None: max_length=20, or no word at all), and where it stands:
# as a keyword, in the config that is passed, in the model's own (whether one is passed or not), or in both of these, of
# which the model's own then grants two more.
LENGTHS: tuple[tuple[str, str, int | None], ...] = (
    ("max_new_tokens", "keyword", 5),
    ("max_new_tokens", "keyword", 1),
    ("max_new_tokens", "passed", 4),
    ("max_new_tokens", "own", 4),
    ("max_length", "keyword", 5),
    ("max_length", "keyword", 1),
    ("max_length", "keyword", None),
    ("max_length", "passed", 5),
    ("max_length", "passed", 3),
    ("max_length", "passed", None),
    ("max_length", "own", 5),
    ("max_length", "own", 2),
    ("max_length", "own", None),
    ("max_length", "both", 4),
    ("max_length", "both", 2),
    ("default", "", None),
)


@dataclass(frozen=True)
class Case:
    """One call of `generate`.

    Attributes:
        rows: The prompts; an empty one is a row of nothing but pads.
        width: The number of columns.
        columns: For each row the columns of its tokens.
        mask: The dtype of the mask, or None where none is given.
        ids_as, mask_as: How each lies in memory: `own` (contiguous), `view` (every other column of a larger tensor),
            `turned` (column by column), `expanded` (one row for all, where all are alike; else `own`).
        ids_dtype: The dtype of the ids.
        pad: The pad id; `eos` for the first EOS id, None for unset.
        filler: The id under masked cells; None for the pad id that transformers will use.
        eos_at: Where the EOS ids come from, so that they are really hit: (row, step) of the single greedy replies.
        flags: Further arguments.
        length: A row of LENGTHS.
        passed: Whether a generation config is passed (else the model's own is set).
        specials_in, flags_in: `keyword` or `config`, where pad, BOS and EOS, and where the flags stand.
        positions: None, `implied` (from the mask) or `arange` (one row that counts the columns, or one for each); a
            model that takes none gets none.
        as_tensor: Whether plain ids are asked for, rather than a ModelOutput.
    """

    rows: tuple[Row, ...]
    width: int
    columns: tuple[tuple[int, ...], ...]
    mask: str | None = "int64"
    ids_as: str = "own"
    mask_as: str = "own"
    ids_dtype: str = "int64"
    pad: int | str | None = 0
    filler: int | None = None
    eos_at: tuple[tuple[int, int], ...] = ()
    flags: Flags = ()
    length: tuple[str, str, int | None] = LENGTHS[0]
    passed: bool = False
    specials_in: str = "keyword"
    flags_in: str = "keyword"
    positions: str | None = None
    as_tensor: bool = False


@st.composite
def boards(draw: st.DrawFn, *, empty: bool) -> tuple[tuple[Row, ...], int, tuple[tuple[int, ...], ...]]:
    """Prompts (once in a while an empty one among them, or none but such), a width and the columns of their tokens.

    Once in a while all prompts are the same, or of one length and in the same columns.
    """
    batch = draw(st.sampled_from((2, 3, 1, 4, 5, 6)))
    one_length = _seldom(draw)
    length = draw(st.integers(1, LONGEST)) if one_length else None
    prompts = draw(
        st.lists(st.sampled_from([row for row in POOL if length in (None, len(row))]), min_size=batch, max_size=batch)
    )
    if len(prompts) > 1 and not one_length and _seldom(draw):
        prompts = [prompts[0]] * len(prompts)
        one_length = draw(st.booleans())
    if empty and not one_length and _seldom(draw):
        prompts[draw(st.integers(0, len(prompts) - 1))] = ()
        if _seldom(draw):
            prompts = [()] * len(prompts)
    longest = max(1, *map(len, prompts))
    alike = len(set(map(len, prompts))) == 1
    width = min(longest + draw(st.sampled_from((1, 2, 4, 0) if alike else (0, 0, 1, 3, 5))), WIDEST)
    side = draw(st.sampled_from(("each", *SIDES, "right", "each")))
    placed = tuple(
        draw(columns(len(row), width, draw(st.sampled_from(SIDES)) if side == "each" else side))
        for row in (prompts[:1] if one_length else prompts)
    )
    return tuple(prompts), width, placed * len(prompts) if one_length else placed


def _seldom(draw: st.DrawFn) -> bool:
    return bool(draw(st.sampled_from((False,) * 6 + (True,))))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Calls whose rows have to get what they get alone."""
    rows, width, placed = draw(boards(empty=True))
    mask = draw(st.sampled_from(("int64", "int64", "bool", "float32", "int32", None, None)))
    pad = draw(st.sampled_from((57, "eos", 0, 98, None, BOS, "eos", VOCABULARY, 150)))
    filler = None if mask is None else draw(st.sampled_from((None, None, 0, 57, EOS, -1, VOCABULARY)))
    length = draw(st.sampled_from(LENGTHS))
    place = st.sampled_from(("keyword", "config"))
    in_memory = st.sampled_from(("own", "view", "turned", "own"))
    if len(rows) > 1 and len(set(placed)) == 1:
        in_memory = st.sampled_from(("expanded", "own", "view", "turned", "expanded", "expanded"))
    return Case(
        rows,
        width,
        placed,
        mask=mask,
        ids_as=draw(in_memory),
        mask_as=draw(in_memory),
        ids_dtype=draw(st.sampled_from(("int64", "int64", "int64", "int32"))),
        pad=pad,
        filler=filler,
        eos_at=tuple(draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=2))),
        flags=draw(st.sampled_from(FLAGS[:1] if length[2] is None else FLAGS)),
        length=length,
        passed=length[1] in ("passed", "both") or draw(st.booleans()),
        specials_in=draw(place),
        flags_in=draw(place),
        positions=draw(st.sampled_from((None, None, None, "implied", "arange"))),
        as_tensor=draw(st.sampled_from((False, False, True))),
    )


@functools.cache
def model(name: str) -> Any:
    """The model that every case of that name runs on; its generation config is set case by case."""
    return build(name)


def may_be_refused(name: str) -> bool:
    """Whether padfix may refuse the model in this release, wherever it would see pads."""
    return MAY_BE_REFUSED_BEFORE.get(name, (0, 0)) > RELEASE


def beams_mix_rows() -> bool:
    """Whether the beams of one row depend on the other rows of the batch, with or without pads: in 4.51 they do.

    There a row's search goes on, and finds better replies, until that of every row is done.
    """
    return (4, 51) <= RELEASE < (4, 57)


def runs_alone(name: str, row: Sequence[int]) -> bool:
    """Whether transformers itself can run the prompt alone."""
    return len(row) != 1 or ONE_TOKEN_FAILS_BEFORE.get(name, (0, 0)) <= RELEASE


@functools.cache
def takes_positions(name: str) -> bool:
    """Whether the forward of the model has position_ids."""
    return "position_ids" in inspect.signature(model(name).forward).parameters


def single(name: str, row: Row, new: int, flags: Flags = (), eos: Row = (EOS,)) -> tuple[Reply, ...]:
    """What a prompt gets alone from transformers as it is: one reply, or one for each returned sequence.

    With a cache that grows, also where the flags ask for a static one.
    """
    return _single(name, row, new, tuple(flag for flag in flags if flag != STATIC), eos)


@functools.cache
def _single(name: str, row: Row, new: int, flags: Flags, eos: Row) -> tuple[Reply, ...]:
    lists = {key: _listed(value) for key, value in flags}
    arguments = {"max_new_tokens": new, "eos_token_id": list(eos), "pad_token_id": eos[0], **lists}
    return tuple(alone(model(name), [row], distinct=False, **arguments))


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Call:
    """A case as a call of `generate`.

    Attributes:
        ids: Shape (batch, width).
        mask: The same shape, or None.
        real: Which cells are real, by the mask or by the rule for ids.
        keywords: The other arguments.
        own: The fields of the model's own generation config.
        effective: What the call runs with, wherever it stands: for reading its output.
        eos: The EOS ids.
        pad: The pad id that transformers would use.
    """

    ids: Tensor
    mask: Tensor | None
    real: list[list[bool]]
    keywords: Mapping[str, Any]
    own: Mapping[str, Any]
    effective: Mapping[str, Any]
    eos: Row
    pad: int

    @property
    def rows(self) -> list[Row]:
        """The real tokens of each row."""
        cells = zip(self.ids.tolist(), self.real, strict=True)
        return [tuple(one for one, is_real in zip(*pair, strict=True) if is_real) for pair in cells]

    @property
    def is_padded(self) -> bool:
        """Whether any cell is a pad."""
        return not all(all(cells) for cells in self.real)

    @property
    def is_misplaced(self) -> bool:
        """Whether a pad follows a real token in some row."""
        return any(list(cells) != sorted(cells) for cells in self.real)


def call_of(name: str, case: Case) -> Call:
    """The tensors and arguments of a case."""
    eos = _ends(name, case)
    pad = eos[0] if case.pad == "eos" else case.pad
    assert pad is None or isinstance(pad, int)
    used = eos[0] if pad is None else pad
    filler = used if case.filler is None else case.filler
    cells = [[filler] * case.width for _ in case.rows]
    real = [[False] * case.width for _ in case.rows]
    for row, (tokens, places) in enumerate(zip(case.rows, case.columns, strict=True)):
        for token, column in zip(tokens, places, strict=True):
            cells[row][column], real[row][column] = token, True
    mask = None
    if case.mask is None:
        real = read_real(cells, used, eos)
    else:
        mask = _laid_out(torch.tensor(real).to(getattr(torch, case.mask)), case.mask_as)
    ids = _laid_out(torch.tensor(cells, dtype=getattr(torch, case.ids_dtype)), case.ids_as)

    keywords: dict[str, Any] = {}
    own: dict[str, Any] = {}
    config: dict[str, Any] = {} if case.passed else own
    specials = {"eos_token_id": eos[0] if len(eos) == 1 else list(eos), "bos_token_id": BOS, "pad_token_id": pad}
    (keywords if case.specials_in == "keyword" else config).update(
        {key: value for key, value in specials.items() if value is not None}
    )
    flags = {key: _listed(value) for key, value in case.flags}
    (keywords if case.flags_in == "keyword" else config).update(flags)
    field, place, new = case.length
    if field != "default":
        columns_before = case.width if field == "max_length" else 0
        value = 20 if new is None else columns_before + new
        {"keyword": keywords, "passed": config, "own": own, "both": config}[place][field] = value
        if place == "both":
            own[field] = value + 2
    if case.passed:
        keywords["generation_config"] = GenerationConfig(**config)
    if case.positions and takes_positions(name) and any(map(any, real)) and not all(map(all, real)):
        # transformers does not repeat a single row of positions for beams.
        rows = len(real) if "num_beams" in flags else 1
        keywords["position_ids"] = _positions(case.positions, real, rows)
    effective = {**flags, "eos_token_id": list(eos), "pad_token_id": used}
    return Call(ids, mask, real, keywords, own, effective, eos, used)


def _ends(name: str, case: Case) -> Row:
    prompts = [row for row in case.rows if row]
    found = [single(name, prompts[row % len(prompts)], 5)[0].tokens for row, _ in case.eos_at] if prompts else []
    tokens = (reply[step % len(reply)] for reply, (_, step) in zip(found, case.eos_at, strict=False))
    return tuple(dict.fromkeys(tokens)) or (EOS,)


def _laid_out(x: Tensor, lying: str) -> Tensor:
    """The values of `x`, in memory as a case says."""
    if lying == "view":
        return torch.stack((x, (x == 0).to(x.dtype)), 2).flatten(1)[:, ::2]
    if lying == "turned":
        return x.t().contiguous().t()
    if lying == "expanded" and bool((x == x[:1]).all()):
        return x[:1].expand(len(x), -1)
    return x


def _positions(kind: str, real: Sequence[Sequence[bool]], rows: int) -> Tensor:
    if kind == "arange":
        return torch.arange(len(real[0])).repeat(rows, 1)
    mask = torch.tensor(real).long()
    return (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)


@functools.cache
def granted(length: tuple[str, str, int | None], passed: bool, width: int) -> int:
    """How many new tokens transformers itself grants a prompt of that width, without padding."""
    row = tuple(3 + at for at in range(width))
    case = Case((row,), width, (tuple(range(width)),), length=length, passed=passed)
    call = call_of("llama", case)
    keywords = {**call.keywords, "eos_token_id": [VOCABULARY]}  # never hit
    with padfix.suppressed(), own_config(model("llama"), call.own), heard():
        output = model("llama").generate(call.ids, **keywords)
    return int(output.shape[1]) - width


@contextmanager
def own_config(model: Any, fields: Mapping[str, Any]) -> Iterator[None]:
    """A block in which the model's own generation config has these fields and no others; it must not change."""
    before, model.generation_config = model.generation_config, GenerationConfig(**fields)
    mine, as_it_was = model.generation_config, model.generation_config.to_dict()
    try:
        yield
        assert model.generation_config is mine, "the model's generation config is another object"
        assert mine.to_dict() == as_it_was, "the model's generation config has changed"
    finally:
        model.generation_config = before


# What padfix may say about a call, and in which words.
EMPTY, GUESSED, CACHE = "no real token", "was taken for padding", "its cache belongs to the left-padded batch"
REFUSED = "padfix cannot make this call right"
# What transformers says where no length is asked for.
DEFAULT_LENGTH = "Using the model-agnostic default `max_length`"


@contextmanager
def heard() -> Iterator[list[str]]:
    """A block and what padfix says in it; anything else that is said fails, but for the default length."""
    ours: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield ours
    for one in said:
        if issubclass(one.category, padfix.PadfixWarning):
            ours.append(str(one.message))
        else:
            assert DEFAULT_LENGTH in str(one.message), f"unexpected {one.category}: {one.message}"


@contextmanager
def first_width(model: Any) -> Iterator[list[int]]:
    """A block and the number of columns of each forward's input in it."""
    seen: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        yield seen
    finally:
        hook.remove()


def generated(name: str, case: Case, call: Call, **extra: Any) -> Any:
    """The output of the call, checked for what it must leave alone, for what it must say and for the model's width.

    It must leave alone the caller's tensors and configs and the global random state. It must say which rows are empty
    and which pads are a guess, and may say that it has no cache. A batch with pads after real tokens has to have been
    repaired, without the columns that are pads in every row unless the cache is static; one without pads has to have
    been left to transformers. None for a call that padfix has refused, where it may: by name, and run as it is.
    """
    keywords = {**call.keywords, **extra}
    if call.mask is not None:
        keywords["attention_mask"] = call.mask
    tensors = {"input_ids": call.ids, **{k: v for k, v in keywords.items() if isinstance(v, Tensor)}}
    copies = {key: value.clone() for key, value in tensors.items()}
    config = keywords.get("generation_config")
    fields = None if config is None else config.to_dict()
    before = notices.counts().get("repaired", 0)
    runs = model(name)
    random_state = torch.get_rng_state()
    with own_config(runs, call.own), heard() as said, first_width(runs) as widths:
        output = runs.generate(input_ids=call.ids, **keywords)
    if not keywords.get("do_sample"):
        assert torch.equal(torch.get_rng_state(), random_state), "the call drew from the global random state"
    for key, value in copies.items():
        assert torch.equal(tensors[key], value), f"the call changed the caller's {key}"
    assert config is None or config.to_dict() == fields, "the call changed the caller's generation config"
    repaired = notices.counts().get("repaired", 0) - before
    refused = [message for message in said if REFUSED in message]
    _only_says_what_it_must(case, call, said, refused)
    if refused:
        lengths = [len(row) for row in call.rows if row]
        assert may_be_refused(name), f"refused: {refused}"
        assert len(set(lengths)) > 1, f"refused, though no pad would be left: {refused}"
        assert not repaired, "refused and repaired"
        assert type(runs).__name__ in refused[0], f"the warning does not name the model: {refused[0]}"
        torch.set_rng_state(random_state)
        with own_config(runs, call.own), padfix.suppressed(), heard():
            stock = runs.generate(input_ids=call.ids, **keywords)
        assert torch.equal(_sequences(output), _sequences(stock)), "a refused call did not run as it is"
        return None
    some = any(map(any, call.real))
    assert repaired or not (call.is_misplaced and some), "the call was left as it is"
    assert call.is_padded or not repaired, "a call without pads was repaired"
    longest = max(map(len, call.rows))
    trimmed = call.is_misplaced and some and STATIC not in case.flags
    allowed = {longest, case.width} if may_be_refused(name) else {longest if trimmed else case.width}
    assert widths[0] in allowed, f"the model saw {widths[0]} columns of {case.width}, the longest row has {longest}"
    return output


def _only_says_what_it_must(case: Case, call: Call, said: Sequence[str], refused: Sequence[str]) -> None:
    guessed = call.mask is None and call.is_padded and call.pad in call.eos and not refused
    has_empty = not all(map(any, call.real))
    always = [words for words, expected in ((EMPTY, has_empty), (GUESSED, guessed)) if expected]
    maybe = [CACHE] if call.is_padded and not case.as_tensor else []
    for words in always:
        assert any(words in message for message in said), f"no warning says {words!r}"
    for message in said:
        assert message in refused or any(words in message for words in (*always, *maybe)), f"unexpected: {message}"


def _sequences(output: Any) -> Tensor:
    sequences: Tensor = output if isinstance(output, Tensor) else output.sequences
    return sequences


def is_promised(name: str, case: Case) -> bool:
    """Whether transformers gives prompts in a batch what it gives them alone, and can run both.

    It runs no ids outside the vocabulary, and in 4.46 to 5.0 no padded batch whose positions are passed: the caller's
    own fault where padfix leaves a call as it is.
    """
    if beams_mix_rows() and "num_beams" in dict(case.flags) and len(case.rows) > 1:
        return False
    if not all(runs_alone(name, row) for row in (*case.rows, range(case.width))):
        return False
    call = call_of(name, case)
    if not all(runs_alone(name, row) for row in call.rows):
        return False
    valid = 0 <= call.pad < VOCABULARY
    filler = call.pad if case.filler is None else case.filler
    if not call.is_padded:
        return valid
    if may_be_refused(name) or not any(map(any, call.real)):
        return valid and 0 <= filler < VOCABULARY and "position_ids" not in call.keywords
    return True


def equals_single(name: str, case: Case) -> None:
    """Every row of the batch gets what its prompt gets alone, in the caller's layout.

    Tokens and beam scores equal, logits and scores of every step close, prompt columns bit for bit the caller's; a
    row without a real token is left out of the comparison, since nothing is promised for it. A call that padfix
    refuses is compared with nothing.
    """
    call = call_of(name, case)
    new = granted(case.length, case.passed, case.width)
    copies = dict(case.flags).get("num_return_sequences", 1)
    expected = [single(name, row, new, case.flags, call.eos) if row else (None,) * copies for row in call.rows]
    batch = {"input_ids": call.ids}
    wanted = [reply for replies in expected for reply in replies]
    if case.as_tensor:
        output = generated(name, case, call)
        if output is None:
            return
        assert isinstance(output, Tensor)
        got = [Reply(tokens, None, None, None) for tokens in _new_tokens(output, call, copies)]
    else:
        details = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
        output = generated(name, case, call, **details)
        if output is None:
            return
        got = read(model(name), output, batch, **call.effective)
    assert len(got) == len(wanted)
    pairs = [(one, other) for one, other in zip(got, wanted, strict=True) if other is not None]
    if case.as_tensor:
        assert [one.tokens for one, _ in pairs] == [other.tokens for _, other in pairs]
    else:
        compare([one for one, _ in pairs], [other for _, other in pairs])


def _new_tokens(sequences: Tensor, call: Call, copies: int) -> list[list[int]]:
    """The new tokens of each row up to its first EOS, after prompt columns that are the caller's."""
    batch, width = call.ids.shape
    assert sequences.dtype == torch.int64
    assert sequences.shape[0] == batch * copies, f"{sequences.shape[0]} rows of sequences"
    prompts = sequences[:, :width].tolist()
    assert prompts == call.ids.repeat_interleave(copies, 0).tolist(), "the prompt part is not the caller's"
    replies = []
    for new in sequences[:, width:].tolist():
        stops = [step + 1 for step, token in enumerate(new) if token in call.eos]
        replies.append(new[: stops[0]] if stops else new)
    return replies


@st.composite
def sampled_cases(draw: st.DrawFn) -> tuple[Case, int]:
    """Calls that sample, each with its seed: no row is empty, and no EOS is met, so that every call draws as often."""
    rows, width, placed = draw(boards(empty=False))
    flags: Flags = draw(
        st.sampled_from(
            (
                (("top_k", 0),),
                (("top_k", 5), ("num_return_sequences", 3)),
                (("temperature", 0.7), ("top_p", 0.9)),
                (("num_return_sequences", 2), ("use_cache", False)),
            )
        )
    )
    case = Case(
        rows,
        width,
        placed,
        mask=draw(st.sampled_from(("int64", "bool", "float32"))),
        pad=draw(st.sampled_from((57, 0, VOCABULARY))),
        filler=draw(st.sampled_from((None, 5, -1))),
        flags=(("do_sample", True), *flags),
        length=draw(st.sampled_from(LENGTHS[:5])),
        as_tensor=draw(st.booleans()),
    )
    return case, draw(st.integers(0, 999))


def equals_left_padding_by_hand(name: str, case: Case, seed: int) -> None:
    """With the same seed a sampled batch draws what transformers draws on the batch padded on the left by hand.

    And a second time the same; the global random state is afterwards what it is after that call.
    """
    call = call_of(name, case)
    plan = LayoutPlan.from_mask(torch.tensor(call.real))
    left = torch.tensor([[3] * (plan.model_width - len(row)) + list(row) for row in call.rows])
    mask = torch.tensor([[0] * (plan.model_width - len(row)) + [1] * len(row) for row in call.rows])
    flags = {key: _listed(value) for key, value in case.flags}
    never = {"eos_token_id": [VOCABULARY]}
    new = granted(case.length, case.passed, case.width)

    stock = model(name)  # built, if it is not yet, before the seed is set
    torch.manual_seed(seed)
    with padfix.suppressed():
        by_hand = stock.generate(left, attention_mask=mask, max_new_tokens=new, pad_token_id=0, **never, **flags)
    expected, state = by_hand[:, plan.model_width :], torch.get_rng_state()
    details = {} if case.as_tensor else {"return_dict_in_generate": True}
    for _ in range(2):
        torch.manual_seed(seed)
        output = generated(name, case, call, **never, **details)
        sequences = _sequences(output)
        copies = len(sequences) // len(left)
        assert torch.equal(sequences[:, : case.width], call.ids.repeat_interleave(copies, 0))
        assert torch.equal(sequences[:, case.width :], expected), "other draws than left-padded by hand"
        assert torch.equal(torch.get_rng_state(), state), "another random state than left-padded by hand"
