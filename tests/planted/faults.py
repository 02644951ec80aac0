"""The planted faults: each with the property that catches it, where it is planted, and what is wrong there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from oracle import BOS
from properties.batches import FLAGS, STATIC
from torch import Tensor

from padfix import pipeline
from padfix.generation import compat, pads
from padfix.generation.call import GenerateCall
from padfix.generation.lengths import reduced
from padfix.generation.outputs import sequences_to_caller
from padfix.layout import detect
from padfix.layout import plan as plan_module
from padfix.layout.detect import Padding
from padfix.layout.plan import LayoutPlan
from padfix.strategies import left_pad

__all__ = ["FAULTS", "Fault"]

# Takes what is right and gives what is planted in its place.
Plant = Callable[[Any], Any]


class Fault(NamedTuple):
    """A fault: the property that has to catch it, the object and attribute that it replaces, and the replacement."""

    caught_by: str
    owner: Any
    attribute: str
    plant: Plant


def plan(change: Callable[[LayoutPlan], LayoutPlan]) -> Plant:
    """Plans that `change` has spoiled."""

    def plant(original: Any) -> Any:
        make = original.__func__
        return classmethod(lambda cls, mask, *, trim=True: change(make(cls, mask, trim=trim)))

    return plant


def before(act: Callable[..., Any]) -> Plant:
    """The original, after `act` on the same arguments."""

    def plant(original: Any) -> Any:
        def spoiled(*args: Any, **kwargs: Any) -> Any:
            act(*args, **kwargs)
            return original(*args, **kwargs)

        return spoiled

    return plant


def after(change: Callable[..., Any]) -> Plant:
    """The original's result, spoiled by `change(result, *args)`."""
    return lambda original: lambda *args, **kwargs: change(original(*args, **kwargs), *args)


def instead(wrong: Callable[..., Any]) -> Plant:
    """Something else altogether."""
    return lambda original: wrong


# Plans


def columns_one_off(plan: LayoutPlan) -> LayoutPlan:
    return replace(plan, order=(plan.order + 1) % plan.caller_width)


def reals_reversed(plan: LayoutPlan) -> LayoutPlan:
    order = plan.order.clone()
    for row, length in enumerate(plan.lengths):
        order[row, plan.model_width - length :] = plan.order[row, plan.model_width - length :].flip(0)
    return replace(plan, order=order)


def one_column_less(plan: LayoutPlan) -> LayoutPlan:
    if plan.model_width == 1:
        return plan
    return replace(plan, order=plan.order[:, 1:], real=plan.real[:, 1:], trim=plan.trim + 1)


def never_trimmed(original: Any) -> Any:
    make = original.__func__
    return classmethod(lambda cls, mask, *, trim=True: make(cls, mask, trim=False))


def pads_last(plan: LayoutPlan) -> LayoutPlan:
    return replace(plan, order=plan.order.flip(1).sort(1).values, real=plan.real.flip(1))


def lengths_rotated(plan: LayoutPlan) -> LayoutPlan:
    return replace(plan, lengths=(*plan.lengths[1:], plan.lengths[0]))


def always_in_place(plan: LayoutPlan) -> LayoutPlan:
    return replace(plan, in_place=True)


def real_inverted(plan: LayoutPlan) -> LayoutPlan:
    return replace(plan, real=~plan.real)


def pads_keep_their_values(original: Any) -> Any:
    return lambda self, x, **kwargs: original(replace(self, real=torch.ones_like(self.real)), x, **kwargs)


def fill_is_always_0(original: Any) -> Any:
    return lambda self, x, **kwargs: original(self, x, **{**kwargs, "fill": 0})


def fill_in_the_last_cell(original: Any) -> Any:
    def spoiled(self: LayoutPlan, x: Tensor, **kwargs: Any) -> Tensor:
        real = self.real.clone()
        real[:, -1] = False
        result: Tensor = original(replace(self, real=real), x, **kwargs)
        return result

    return spoiled


def past_columns_dropped(original: Any) -> Any:
    def spoiled(self: LayoutPlan, x: Tensor, *, batch_axis: int = 0, prompt_axis: int = 1, fill: float = 0) -> Tensor:
        moved: Tensor = original(self, x, batch_axis=batch_axis, prompt_axis=prompt_axis, fill=fill)
        return moved.narrow(prompt_axis, 0, self.model_width)

    return spoiled


def axes_left_in_front(rows: Tensor, *_: Any) -> Tensor:
    return rows.contiguous()


def x_written_to(original: Any) -> Any:
    def spoiled(self: LayoutPlan, x: Tensor, **kwargs: Any) -> Tensor:
        moved: Tensor = original(self, x, **kwargs)
        if moved.shape == x.shape:
            x.copy_(moved)
        return moved

    return spoiled


def beams_tiled(self: LayoutPlan, times: int) -> LayoutPlan:
    return replace(
        self, order=self.order.repeat(times, 1), real=self.real.repeat(times, 1), lengths=self.lengths * times
    )


def second_forgotten(self: LayoutPlan, later: LayoutPlan) -> LayoutPlan:
    return replace(
        self, order=self.order[:, later.trim :], real=self.real[:, later.trim :], trim=self.trim + later.trim
    )


# Detection


def only_ones_are_real(mask: Tensor) -> Padding | None:
    real = mask == 1
    return None if bool(real.all()) else Padding(real, "given")


def one_kind_overlooked(overlooked: Callable[[Tensor], bool]) -> Plant:
    """A mask of one kind counts as one that masks nothing."""

    def plant(original: Any) -> Any:
        return lambda mask: None if overlooked(mask) else original(mask)

    return plant


def has_one_row_for_all(x: Tensor) -> bool:
    return len(x) > 1 and x.stride(0) == 0


def as_it_lies(x: Tensor) -> Tensor:
    """What somebody reads who takes the tensor for contiguous."""
    return x if has_one_row_for_all(x) else x.as_strided(x.shape, (x.shape[1], 1))


def mask_read_as_it_lies(original: Any) -> Any:
    return lambda mask: original(as_it_lies(mask))


def bos_is_content(original: Any) -> Any:
    return lambda ids, pad_id, eos_ids: None if pad_id == BOS else original(ids, pad_id, eos_ids)


def long_rows_lose_a_token(padding: Padding | None, *_: Any) -> Padding | None:
    if padding is None:
        return None
    real = padding.real.clone()
    for row in real:
        if int(row.sum()) > 10:
            row[int(row.nonzero()[0])] = False
    return replace(padding, real=real)


def padding_inverted(padding: Padding | None, *_: Any) -> Padding | None:
    return None if padding is None else replace(padding, real=~padding.real)


def only_the_end_is_looked_at(padding: Padding | None, mask: Tensor) -> Padding | None:
    return None if bool((mask[:, -1] != 0).all()) else padding


def only_outer_runs_are_pads(padding: Padding | None, *_: Any) -> Padding | None:
    if padding is None:
        return None
    some_before, some_after = padding.real.int().cummax(1).values, padding.real.flip(1).int().cummax(1).values.flip(1)
    real = (some_before * some_after).bool()
    return None if bool(real.all()) else replace(padding, real=real)


def shortest_run_is_padding(original: Any) -> Any:
    def spoiled(ids: Tensor, pad_id: int | None, eos_ids: Any) -> Padding | None:
        if pad_id is None or pad_id not in eos_ids:
            result: Padding | None = original(ids, pad_id, eos_ids)
            return result
        inner = only_outer_runs_are_pads(Padding(ids != pad_id, "inferred"))
        if inner is None:
            return None
        return replace(inner, guessed=tuple(int(row) for row in (~inner.real).any(1).nonzero()))

    return spoiled


def id_0_looked_for(original: Any) -> Any:
    return lambda ids, pad_id, eos_ids: original(ids, 0, eos_ids)


def no_rule_for_pad_as_eos(original: Any) -> Any:
    return lambda ids, pad_id, eos_ids: None if pad_id in eos_ids else original(ids, pad_id, eos_ids)


# Calls and outputs


def argument(name: str, value: Callable[[GenerateCall, LayoutPlan], Any]) -> Plant:
    """The model's call with one argument set to something else; None takes it away."""

    def change(moved: GenerateCall, call: GenerateCall, config: Any, plan: LayoutPlan) -> GenerateCall:
        wrong = value(call, plan)
        return moved.without(name) if wrong is None else moved.changed({name: wrong})

    return after(change)


def ids_of_the_caller(call: GenerateCall, plan: LayoutPlan) -> Any:
    assert call.ids is not None
    return call.ids[:, plan.trim :].clamp(0, 98)


def ids_read_as_they_lie(call: GenerateCall, plan: LayoutPlan) -> Any:
    assert call.ids is not None
    return plan.to_model(as_it_lies(call.ids), fill=57).clamp(0, 98)


def positions_of_the_caller(call: GenerateCall, plan: LayoutPlan) -> Any:
    positions = call.get("position_ids")
    return None if positions is None else positions[:, plan.trim :].expand(call.batch, -1)


def mask_of_the_caller(call: GenerateCall, plan: LayoutPlan) -> Any:
    return None if call.mask is None else call.mask[:, plan.trim :].long()


def mask_of_ones(call: GenerateCall, plan: LayoutPlan) -> Tensor:
    return torch.ones_like(plan.real).long()


def mask_of_the_next_row(call: GenerateCall, plan: LayoutPlan) -> Tensor:
    return plan.real.roll(1, 0).long()


def mask_written_to(call: GenerateCall, *_: Any, **__: Any) -> None:
    if call.mask is not None and call.mask.is_contiguous():
        call.mask.fill_(1)


def prompt_of_the_model(sequences: Tensor, prompt: Tensor, model_width: int) -> Tensor:
    missing = prompt.shape[1] - model_width
    return torch.cat((sequences[:, :1].expand(-1, missing), sequences), 1)


def prompts_tiled(sequences: Tensor, prompt: Tensor, model_width: int) -> Tensor:
    copies = sequences.shape[0] // prompt.shape[0]
    return torch.cat((prompt.to(sequences.dtype).repeat(copies, 1), sequences[:, model_width:]), 1)


def replies_of_the_next_row(sequences: Tensor, prompt: Tensor, model_width: int) -> Tensor:
    return torch.cat(
        (
            sequences_to_caller(sequences, prompt, model_width)[:, : prompt.shape[1]],
            sequences.roll(1, 0)[:, model_width:],
        ),
        1,
    )


def replies_cut_at_the_callers_width(sequences: Tensor, prompt: Tensor, model_width: int) -> Tensor:
    whole = sequences_to_caller(sequences, prompt, model_width)
    return torch.cat((whole[:, : prompt.shape[1]], sequences[:, prompt.shape[1] :]), 1)


def unreduced(set_there: Callable[[GenerateCall], bool]) -> Plant:
    """A `max_length` that stands in one place is not reduced by the trim."""

    def plant(original: Any) -> Any:
        def spoiled(call: GenerateCall, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
            changes: Mapping[str, Any] = {} if set_there(call) else original(call, *args, **kwargs)
            return changes

        return spoiled

    return plant


def in_keyword(call: GenerateCall) -> bool:
    return call.get("max_length") is not None


def in_passed_config(call: GenerateCall) -> bool:
    passed = call.get("generation_config")
    return not in_keyword(call) and passed is not None and passed.max_length not in (None, 20)


def in_own_config(call: GenerateCall) -> bool:
    return not in_keyword(call) and not in_passed_config(call)


def own_length_wins(original: Any) -> Any:
    def spoiled(call: GenerateCall, config: Any, columns: int, **kwargs: Any) -> Mapping[str, Any]:
        changes: Mapping[str, Any] = original(call, config, columns, **kwargs)
        own = call.model.generation_config.max_length
        if columns and in_passed_config(call) and own not in (None, 20) and config.max_new_tokens is None:
            return {"max_length": own - columns}
        return changes

    return spoiled


def new_tokens_reduced(original: Any) -> Any:
    def spoiled(call: GenerateCall, config: Any, columns: int, **kwargs: Any) -> Mapping[str, Any]:
        changes: Mapping[str, Any] = original(call, config, columns, **kwargs)
        if columns and config.max_new_tokens is not None:
            return {**changes, "max_new_tokens": max(config.max_new_tokens - columns, 1)}
        return changes

    return spoiled


def set_on_the_callers_config(call: GenerateCall, config: Any, columns: int, **kwargs: Any) -> Mapping[str, Any]:
    for place in (call.get("generation_config"), call.model.generation_config):
        if columns and place is not None and place.max_length and call.get("max_length") is None:
            place.max_length -= columns
            return {}
    return reduced(call, config, columns, **kwargs)


SINGLE = "batch equals single"
PLAIN = "batch equals single, plain calls"

FAULTS: Mapping[str, Fault] = {
    # The plan
    "every column is read one too far right": Fault("definition", LayoutPlan, "from_mask", plan(columns_one_off)),
    "the real tokens of a row are reversed": Fault("pads first", LayoutPlan, "from_mask", plan(reals_reversed)),
    "one column too many is trimmed": Fault("trim", LayoutPlan, "from_mask", plan(one_column_less)),
    "nothing is trimmed": Fault("trim", LayoutPlan, "from_mask", never_trimmed),
    "the pads follow the real tokens": Fault("pads first", LayoutPlan, "from_mask", plan(pads_last)),
    "a row has its neighbour's length": Fault("pads first", LayoutPlan, "from_mask", plan(lengths_rotated)),
    "every batch counts as left-padded": Fault("left-padded", LayoutPlan, "from_mask", plan(always_in_place)),
    "real cells and pads are exchanged": Fault("there and back", LayoutPlan, "from_mask", plan(real_inverted)),
    "pads keep their own values": Fault("definition", LayoutPlan, "to_model", pads_keep_their_values),
    "the fill is always 0": Fault("there and back", LayoutPlan, "to_caller", fill_is_always_0),
    "the fill leaks into the last real cell": Fault("there and back", LayoutPlan, "to_caller", fill_in_the_last_cell),
    "columns past the prompt are dropped": Fault("past columns", LayoutPlan, "to_model", past_columns_dropped),
    "rows and columns are left in front": Fault("definition", plan_module, "_back", instead(axes_left_in_front)),
    "the caller's tensor is written to": Fault("not mutated", LayoutPlan, "to_model", x_written_to),
    "rows are tiled for beams": Fault("beams", LayoutPlan, "repeated", instead(beams_tiled)),
    "the second of two plans has no effect": Fault("compose", LayoutPlan, "then", instead(second_forgotten)),
    # Detection
    "only 1 is real in a mask": Fault("masks", detect, "from_mask", instead(only_ones_are_real)),
    "a mask is read inside out": Fault("masks", detect, "from_mask", after(padding_inverted)),
    "ids are read inside out": Fault("ids as stock", detect, "from_ids", after(padding_inverted)),
    "pad ids inside a prompt are content": Fault("ids as stock", detect, "from_ids", after(only_outer_runs_are_pads)),
    "pad == eos: the shortest run is padding": Fault("ids", detect, "from_ids", shortest_run_is_padding),
    "pad == eos: nothing is padding": Fault("ids", detect, "from_ids", no_rule_for_pad_as_eos),
    # A call of generate
    "a mask is read as if it were contiguous": Fault(PLAIN, pads, "from_mask", mask_read_as_it_lies),
    "an expanded mask is overlooked": Fault(SINGLE, pads, "from_mask", one_kind_overlooked(has_one_row_for_all)),
    "a bool mask is overlooked": Fault(
        PLAIN, pads, "from_mask", one_kind_overlooked(lambda mask: mask.dtype == torch.bool)
    ),
    "a float mask is overlooked": Fault(PLAIN, pads, "from_mask", one_kind_overlooked(torch.is_floating_point)),
    "a long prompt loses its first token": Fault(SINGLE, pads, "from_mask", after(long_rows_lose_a_token)),
    "pad == bos: nothing is padding": Fault(PLAIN, pads, "from_ids", bos_is_content),
    "no prompt is trimmed": Fault(SINGLE, compat, "wants_fixed_shapes", instead(lambda *_: True)),
    "holes are overlooked": Fault(PLAIN, pads, "from_mask", after(only_the_end_is_looked_at)),
    "the inferred mask is inside out": Fault(SINGLE, pads, "from_ids", after(padding_inverted)),
    "pads are looked for by id 0": Fault(SINGLE, pads, "from_ids", id_0_looked_for),
    "the ids are not moved": Fault(SINGLE, left_pad, "to_model", argument("input_ids", ids_of_the_caller)),
    "the ids are read as if they were contiguous": Fault(
        SINGLE, left_pad, "to_model", argument("input_ids", ids_read_as_they_lie)
    ),
    "the mask is not moved": Fault(SINGLE, left_pad, "to_model", argument("attention_mask", mask_of_the_caller)),
    "the mask is dropped": Fault(SINGLE, left_pad, "to_model", argument("attention_mask", mask_of_ones)),
    "a row has its neighbour's mask": Fault(
        SINGLE, left_pad, "to_model", argument("attention_mask", mask_of_the_next_row)
    ),
    "position_ids are kept": Fault(SINGLE, left_pad, "to_model", argument("position_ids", positions_of_the_caller)),
    "the caller's mask is written to": Fault(SINGLE, left_pad, "to_model", before(mask_written_to)),
    "max_length is not reduced by the trim": Fault(SINGLE, left_pad, "reduced", instead(lambda *_, **__: {})),
    "a max_length keyword is not reduced": Fault(SINGLE, left_pad, "reduced", unreduced(in_keyword)),
    "a passed max_length is not reduced": Fault(SINGLE, left_pad, "reduced", unreduced(in_passed_config)),
    "the model's own max_length is not reduced": Fault(SINGLE, left_pad, "reduced", unreduced(in_own_config)),
    "the model's own max_length beats a passed one": Fault(SINGLE, left_pad, "reduced", own_length_wins),
    "max_new_tokens is reduced by the trim": Fault(SINGLE, left_pad, "reduced", new_tokens_reduced),
    "the caller's config is changed": Fault(SINGLE, left_pad, "reduced", instead(set_on_the_callers_config)),
    "the prompt is rebuilt from the model's": Fault(
        SINGLE, left_pad, "sequences_to_caller", instead(prompt_of_the_model)
    ),
    "prompts are tiled for returned sequences": Fault(
        "sampling", left_pad, "sequences_to_caller", instead(prompts_tiled)
    ),
    "a row has its neighbour's reply": Fault(SINGLE, left_pad, "sequences_to_caller", instead(replies_of_the_next_row)),
    "replies start at the caller's width": Fault(
        SINGLE, left_pad, "sequences_to_caller", instead(replies_cut_at_the_callers_width)
    ),
    "another pad id follows the EOS": Fault(SINGLE, left_pad, "pads_after_end", instead(lambda whole, *_: whole)),
    "a random number is drawn": Fault(SINGLE, left_pad, "to_model", before(lambda *_, **__: torch.rand(1))),
    "nothing is repaired": Fault(SINGLE, pipeline, "decide", instead(lambda *_: None)),
    "sampling starts from another state": Fault(
        "sampling", left_pad, "to_model", before(lambda *_, **__: torch.rand(1))
    ),
}
if any(STATIC in flags for flags in FLAGS):
    trimmed = Fault(SINGLE, compat, "wants_fixed_shapes", instead(lambda *_: False))
    FAULTS = {**FAULTS, "a static cache gets a trimmed prompt": trimmed}
