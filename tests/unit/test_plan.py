"""The plan beside its laws in properties/: wide batches, the default device, what it says of itself."""

from __future__ import annotations

import pytest
import torch

from padfix.layout.plan import LayoutPlan

MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 0, 0]])


def test_real_tokens_of_a_wide_batch_keep_their_order() -> None:
    mask = torch.rand(3, 2000, generator=torch.Generator().manual_seed(0)) < 0.5
    plan = LayoutPlan.from_mask(mask)
    for order, real, row in zip(plan.order, plan.real, mask, strict=True):
        assert order[real].tolist() == row.nonzero()[:, 0].tolist()


def test_plan_is_made_where_the_mask_is_whatever_the_default_device() -> None:
    with torch.device("meta"):
        plan = LayoutPlan.from_mask(MASK, cached=1)
        rest = plan.without_first(1)
    assert plan.order.tolist() == [[0, 1, 2], [0, 4, 2]]
    assert rest.order.tolist() == [[0, 1], [3, 1]]


def test_plan_for_the_rest_says_what_the_whole_says() -> None:
    for mask in (MASK, torch.tensor([[1, 0, 0, 1, 1], [1, 0, 0, 0, 1]])):
        plan = LayoutPlan.from_mask(mask, cached=1)
        rest = plan.without_first(1)
        assert rest.trim == plan.trim == 2
        assert rest.in_place == plan.in_place


def test_two_moves_are_in_place_where_each_is() -> None:
    left, right = (LayoutPlan.from_mask(torch.tensor([[1, 1], row])) for row in ([0, 1], [1, 0]))
    assert left.then(left).in_place
    assert not left.then(right).in_place
    assert not right.then(left).in_place


def test_moves_of_other_widths_do_not_meet() -> None:
    with pytest.raises(ValueError, match="a plan for 5 columns cannot follow one that gives 3"):
        LayoutPlan.from_mask(MASK).then(LayoutPlan.from_mask(MASK))
