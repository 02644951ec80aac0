"""The laws of `LayoutPlan`, over every mix of pads and every place where rows and columns may stand in a tensor."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from padfix.layout.plan import LayoutPlan

from . import laws
from .layouts import Move, masks, moves


@given(moves())
def test_the_model_sees_pads_first_and_real_tokens_in_their_order(move: Move) -> None:
    laws.the_model_sees_pads_first(move)


@given(moves())
def test_trim_drops_the_columns_that_are_pads_in_every_row(move: Move) -> None:
    laws.trim_drops_pads_alone(move)


@given(moves())
def test_a_tensor_moves_as_the_layouts_are_defined(move: Move) -> None:
    laws.moves_as_defined(move)


@given(moves())
def test_real_positions_come_back_and_fills_stand_elsewhere(move: Move) -> None:
    laws.there_and_back(move)


@given(moves())
def test_columns_past_the_prompt_pass_through(move: Move) -> None:
    laws.columns_past_the_prompt_pass_through(move)


@given(moves())
def test_a_left_padded_batch_stays_apart_from_the_trim(move: Move) -> None:
    laws.a_left_padded_batch_stays(move)


@given(moves())
def test_rows_can_be_repeated_for_beams(move: Move) -> None:
    laws.rows_repeat_for_beams(move)


@given(moves())
def test_one_row_counts_for_all(move: Move) -> None:
    laws.a_shared_row_counts_for_all(move)


@st.composite
def two_moves(draw: st.DrawFn) -> tuple[Move, Tensor]:
    """A move, and a mask over its model's layout for a second one."""
    move = draw(moves())
    plan = LayoutPlan.from_mask(move.mask, trim=move.trim)
    return move, draw(masks(batch=move.mask.shape[0], width=plan.model_width))


@given(two_moves())
def test_plans_compose(both: tuple[Move, Tensor]) -> None:
    laws.plans_compose(*both)


@given(moves(), st.integers(0, 5))
def test_columns_in_a_cache_can_be_left_out(move: Move, cached: int) -> None:
    laws.columns_in_a_cache_can_be_left_out(move, cached)


@given(moves())
def test_no_input_is_mutated(move: Move) -> None:
    laws.inputs_are_not_mutated(move)


@given(moves())
def test_what_does_not_fit_is_refused(move: Move) -> None:
    laws.misfits_are_refused(move)


@given(mask=masks(), axes=st.sampled_from(((-2, -1), (1, 2))), shared=st.booleans())
def test_positions_of_three_axes_move_with_their_tokens(mask: Tensor, axes: tuple[int, int], shared: bool) -> None:
    """position_ids of shape (3, batch, width), as of mRoPE, or (3, 1, width)."""
    batch, width = mask.shape
    x = torch.arange(1000, 1000 + 3 * (1 if shared else batch) * width).reshape(3, -1, width)
    move = Move(mask, True, x, *axes, times=1, shared=shared, fill=7, back=-1)
    laws.moves_as_defined(move)
    laws.there_and_back(move)
