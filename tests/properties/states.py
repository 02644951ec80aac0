"""Hidden states and attentions of random padded batches, cell by cell against each prompt alone.

states_equal_single("llama", StateCase(rows=((5, 17, 33), (11,)), width=3, columns=((0, 1, 2), (0,))))
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from facts import RELEASE
from hypothesis import strategies as st
from oracle import BOS, EOS, assert_close, build, is_there
from torch import Tensor
from torch.nn.functional import pad

import padfix

from .batches import STATIC, beams_mix_rows, boards, runs_alone

__all__ = ["MODELS", "StateCase", "is_comparable", "state_cases", "states_equal_single"]

# Of the table's models those that the installed release has, and what comes back of each.
HIDDEN, BOTH = ("hidden_states",), ("hidden_states", "attentions")
GIVEN: Mapping[str, tuple[str, ...]] = {
    "llama": BOTH,
    "gpt2": BOTH,
    "mistral": BOTH,
    "opt": BOTH,
    "bloom": BOTH,
    "gemma3": BOTH if RELEASE >= (4, 57) else HIDDEN,  # before, its cache is static: see states_bound
    "mamba2": HIDDEN,
    "blenderbot": BOTH,
    "rwkv": HIDDEN,
    "bart": ("decoder_hidden_states", "decoder_attentions", "cross_attentions"),
}
MODELS = tuple(filter(is_there, GIVEN))
# Those whose rows of one length run apart.
APART = ("blenderbot", "rwkv", "bart")

Row = tuple[int, ...]
Flags = tuple[tuple[str, Any], ...]

FLAGS: tuple[Flags, ...] = (
    (),
    (),
    (("use_cache", False),),
    (("num_beams", 2),),
    (("num_beams", 3), ("num_return_sequences", 2)),
    (("num_beams", 2), ("use_cache", False)),
    (("do_sample", True), ("top_k", 1), ("num_return_sequences", 2)),
)
if RELEASE >= (4, 57):
    FLAGS += ((STATIC,), (STATIC, ("num_beams", 2)))

# An id under masked cells that is nobody's 0.
PAD = 57


@dataclass(frozen=True)
class StateCase:
    """One call of `generate`.

    Attributes:
        rows: The prompts.
        width: The number of columns.
        columns: For each row the columns of its tokens.
        flags: Further arguments.
        new: The largest number of new tokens.
        ends: The step of the first prompt's own reply whose token ends replies; None for the usual EOS.
        strategy: The strategy that padfix is asked for.
    """

    rows: tuple[Row, ...]
    width: int
    columns: tuple[tuple[int, ...], ...]
    flags: Flags = ()
    new: int = 4
    ends: int | None = None
    strategy: str = "auto"


@st.composite
def state_cases(draw: st.DrawFn) -> StateCase:
    """Calls that ask for hidden states and attentions."""
    rows, width, columns = draw(boards(empty=False))
    return StateCase(
        rows,
        width,
        columns,
        flags=draw(st.sampled_from(FLAGS)),
        new=draw(st.sampled_from((4, 5, 1, 2))),
        ends=draw(st.sampled_from((None, None, 0, 1, 2))),
        strategy=draw(st.sampled_from(("auto", "auto", "auto", "equal_length"))),
    )


def is_comparable(name: str, case: StateCase) -> bool:
    """Whether transformers gives the prompts alone what it gives them in a batch without pads."""
    flags = dict(case.flags)
    if beams_mix_rows() and "num_beams" in flags and len(case.rows) > 1:
        return False
    if name == "rwkv" and (flags or (len(case.rows) > 1 and all(len(row) == case.width for row in case.rows))):
        return False  # rows and beams of one call change one another
    if name == "mamba2" and RELEASE < (4, 51) and len(case.rows) > 1 == len({len(row) for row in case.rows}):
        return False  # several rows run whole at every step, one row a token at a time
    return all(runs_alone(name, row) for row in (*case.rows, range(case.width)))


@functools.cache
def model(name: str) -> Any:
    """The model of every case of that name; eager, so that it has attentions to give."""
    return build(name) if GIVEN[name] == HIDDEN else build(name, attn_implementation="eager")


def _generated(
    name: str, rows: Sequence[Row], ids: Tensor, mask: Tensor, case: StateCase, eos: int, **more: Any
) -> Any:
    arguments = {"input_ids": ids, "attention_mask": mask}
    if name == "bart":
        encoded = torch.tensor([[5 + (7 * len(row) + row[0] + 11 * at) % 90 for at in range(4)] for row in rows])
        arguments = {"input_ids": encoded, "decoder_input_ids": ids, "decoder_attention_mask": mask}
    asked = {"output_hidden_states": True, "output_attentions": GIVEN[name] != HIDDEN}
    return model(name).generate(
        **arguments,
        **{"do_sample": False, **dict(case.flags), **more},
        **asked,
        max_new_tokens=case.new,
        eos_token_id=eos,
        pad_token_id=PAD,
        return_dict_in_generate=True,
    )


@functools.cache
def _alone(name: str, row: Row, case: StateCase, eos: int) -> Any:
    ids = torch.tensor([row])
    with padfix.suppressed():
        return _generated(name, [row], ids, torch.ones_like(ids), case, eos)


def alone(name: str, row: Row, case: StateCase, eos: int) -> Any:
    """The output for a prompt alone from transformers as it is, with a cache that grows."""
    flags = tuple(flag for flag in case.flags if flag[0] != "cache_implementation")
    return _alone(name, row, StateCase((), 0, (), flags, case.new), eos)


def states_equal_single(name: str, case: StateCase) -> None:
    """Each cell of a real token holds what it holds for the prompt alone, and each cell of a pad 0.

    For every layer of every step that the prompt alone has. Of a batch that stays as it is, the real tokens' alone.
    """
    if name == "bart":  # prompts with the start token of their own and prompts without cannot be joined
        case = StateCase(tuple((5, *row[1:]) if row[0] == BOS else row for row in case.rows), *_rest(case))
    eos = EOS if case.ends is None else _end(name, case)
    ids = torch.full((len(case.rows), case.width), PAD)
    mask = torch.zeros_like(ids)
    for at, (row, columns) in enumerate(zip(case.rows, case.columns, strict=True)):
        ids[at, list(columns)], mask[at, list(columns)] = torch.tensor(row), 1
    with warnings.catch_warnings(), padfix.override(strategy=case.strategy):
        warnings.filterwarnings("ignore", "the field (past_key_values|cache|cache_params) of", padfix.PadfixWarning)
        output = _generated(name, case.rows, ids, mask, case, eos)
    some_pads = not bool(mask.all())
    apart = some_pads and (name in APART or case.strategy == "equal_length")
    added = _added(name)
    moved = apart or bool(((mask.diff(dim=1)) < 0).any())
    for at, (row, columns) in enumerate(zip(case.rows, case.columns, strict=True)):
        single = alone(name, row, case, eos)
        for field in GIVEN[name]:
            got, want = getattr(output, field), getattr(single, field)
            assert want, f"the oracle has no {field}"
            assert len(got) >= len(want), f"{field}: {len(got)} steps, {len(want)} alone"
            for step, (layers, singles) in enumerate(zip(got, want, strict=False)):
                assert len(layers) == len(singles)
                for layer, (x, y) in enumerate(zip(layers, singles, strict=True)):
                    places = [*range(added), *(added + column for column in columns)]
                    where = _Place(places, added + case.width, added + len(row) + step, moved)
                    _compare(x, y, at, field, where, f"row {at}, {field}, step {step}, layer {layer}")


def _rest(case: StateCase) -> tuple[Any, ...]:
    return case.width, case.columns, case.flags, case.new, case.ends, case.strategy


def _added(name: str) -> int:
    """The number of columns that transformers puts before the prompt."""
    return 1 if name == "bart" else 0


def _end(name: str, case: StateCase) -> int:
    reply = alone(name, case.rows[0], case, EOS).sequences[0, _added(name) + len(case.rows[0]) :]
    assert case.ends is not None
    return int(reply[min(case.ends, len(reply) - 1)])


@dataclass(frozen=True)
class _Place:
    """Where the tokens of a row stand: their caller's columns, the width, how many columns a step sees alone."""

    columns: Sequence[int]
    width: int
    seen: int
    moved: bool

    def spread(self, x: Tensor, axis: int) -> Tensor:
        """A tensor of the prompt alone with its columns on `axis` where the caller has them, 0 elsewhere."""
        later = x.shape[axis] - len(self.columns)
        places = torch.tensor([*self.columns, *range(self.width, self.width + later)])
        sizes = [*x.shape]
        sizes[axis] = self.width + later
        return x.new_zeros(sizes).index_copy(axis, places, x)


def _compare(x: Tensor, y: Tensor, row: int, field: str, place: _Place, what: str) -> None:
    """One layer of a step in the batch, and for the prompt alone."""
    copies = y.shape[0]
    x = x[row * copies : (row + 1) * copies]
    queries = 1 if field.endswith("hidden_states") else 2
    is_real = torch.ones_like(y, dtype=torch.bool)
    axes = []
    if y.shape[queries] == place.seen:
        axes.append(queries)
    if field.endswith("attentions") and field != "cross_attentions":
        axes.append(3)
        lost = place.seen - y.shape[3]  # by a sliding layer
        y, is_real = pad(y, (lost, 0)), pad(is_real, (lost, 0), value=True)
        later = x.shape[3] - (place.width + place.seen - len(place.columns))
        if not place.moved and later < 0:  # the sliding layer of a batch that stays as it is
            x, later = pad(x, (-later, 0)), 0
        y, is_real = pad(y, (0, later)), pad(is_real, (0, later), value=True)  # tokens to come, in a static cache
    for axis in axes:
        y, is_real = place.spread(y, axis), place.spread(is_real, axis)
    assert x.shape == y.shape, f"{what}: shape {tuple(x.shape)}, {tuple(y.shape)} expected"
    if place.moved:
        assert not x[~is_real].any(), f"{what}: not 0 in the cells of pads"
    assert_close(torch.where(is_real, x, 0), y, what=what)
