"""Rows apart: what is cut down to some rows of a batch, and what stands in the way of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from transformers.modeling_outputs import BaseModelOutput

from padfix.generation.adapters import has_forward_hooks
from padfix.generation.apart import group_bound, of_rows, trackers_of_rows, tracks_rows, wants_one_row
from padfix.generation.call import GenerateCall, bind
from padfix.generation.media import media_of
from padfix.layout.plan import LayoutPlan

IMAGE = 7
IDS = torch.tensor([[7, 5, 7], [5, 6, 0], [7, 5, 0]])
MASK = (IDS != 0).long()


class Model(torch.nn.Module):
    """A model of no size."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(**{"is_encoder_decoder": False, "image_token_id": IMAGE} | config)


class MllamaForConditionalGeneration(Model):
    """A model that fills rows with fewer pictures up."""


def call(model: Any = None, /, **arguments: Any) -> GenerateCall:
    made = bind(model or Model(), (), {"input_ids": IDS, "attention_mask": MASK, **arguments})
    assert made is not None
    return made


def bound(made: GenerateCall) -> list[str]:
    return list(group_bound(made, GenerationConfig(), LayoutPlan.from_mask(MASK)))


def cut(made: GenerateCall, *rows: int) -> GenerateCall:
    return of_rows(made, rows, media_of(made, MASK.bool()))


def test_prompt_is_cut_down_to_its_rows() -> None:
    made = call(
        position_ids=torch.arange(27).reshape(3, 3, 3),
        token_type_ids=torch.zeros(1, 3),
        other=torch.tensor([3, 4, 5]),
        number=torch.tensor(2),
        top_k=3,
    )
    part = cut(made, 2, 0)
    assert part.batch == 2
    assert part.ids is not None
    assert torch.equal(part.ids, IDS[[2, 0]])
    assert part.mask is not None
    assert torch.equal(part.mask, MASK[[2, 0]])
    assert torch.equal(part.arguments["position_ids"], made.arguments["position_ids"][:, [2, 0]])
    assert part.arguments["token_type_ids"].shape == (1, 3)
    assert part.arguments["other"].tolist() == [5, 3]
    assert part.arguments["number"] == 2
    assert part.arguments["top_k"] == 3


def test_what_an_encoder_gave_and_a_prefix_function_are_the_rows() -> None:
    def allowed(prompt: int, ids: torch.Tensor) -> list[int]:
        return [prompt]

    encoded = BaseModelOutput(last_hidden_state=torch.arange(3)[:, None])
    part = cut(call(encoder_outputs=encoded, prefix_allowed_tokens_fn=allowed), 2, 1)
    assert part.arguments["encoder_outputs"].last_hidden_state.tolist() == [[2], [1]]
    assert part.arguments["prefix_allowed_tokens_fn"](0, IDS[0]) == [2]


def test_pictures_are_cut_down_and_left_out_where_a_row_has_none() -> None:
    pictures = torch.arange(3.0).reshape(3, 1, 1, 1)
    made = call(pixel_values=pictures, image_sizes=[(4, 4)] * 3, mm_token_type_ids=(IDS == IMAGE).long())
    assert bound(made) == []
    assert cut(made, 0).arguments["pixel_values"].flatten().tolist() == [0, 1]
    assert cut(made, 2).arguments["pixel_values"].flatten().tolist() == [2]
    assert cut(made, 2, 0).arguments["pixel_values"].flatten().tolist() == [2, 0, 1]
    assert cut(made, 2).arguments["image_sizes"] == [(4, 4)]
    without = cut(made, 1)
    assert set(without.arguments) == {"input_ids", "attention_mask", "mm_token_type_ids"}
    assert cut(made, 1, 2).arguments["pixel_values"].flatten().tolist() == [2]


def test_empty_pictures_that_fill_a_row_up_are_cut_off() -> None:
    made = call(
        MllamaForConditionalGeneration(),
        pixel_values=torch.zeros(3, 2, 4, 3, 8, 8),
        aspect_ratio_ids=torch.tensor([[1, 2], [0, 0], [3, 0]]),
        aspect_ratio_mask=torch.zeros(3, 2, 4, dtype=torch.long),
        cross_attention_mask=torch.zeros(3, 3, 2, 4, dtype=torch.long),
    )
    assert bound(made) == []
    one = cut(made, 2).arguments
    assert one["pixel_values"].shape == (1, 1, 4, 3, 8, 8)
    assert one["aspect_ratio_ids"].tolist() == [[3]]
    assert one["cross_attention_mask"].shape == (1, 3, 1, 4)
    assert cut(made, 0).arguments["aspect_ratio_ids"].tolist() == [[1, 2]]
    assert set(cut(made, 1).arguments) == {"input_ids", "attention_mask"}


UNTOLD = "what belongs to a row cannot be told"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"pixel_values": torch.zeros(2, 3, 4, 4)}, [f"pixel_values= ({UNTOLD})"]),
        ({"other": torch.zeros(4, 2)}, [f"other= of shape (4, 2) ({UNTOLD})"]),
        ({"other": torch.zeros(3, 2)}, []),
        ({"other": torch.tensor(1)}, []),
        ({"others": [torch.zeros(3)] * 3}, [f"others= of type list ({UNTOLD})"]),
        ({"others": [1, 2, 3]}, []),
        ({"mm_encoder_outputs": {"image": object()}}, [f"mm_encoder_outputs= ({UNTOLD})"]),
        ({"mm_encoder_outputs": {}}, []),
        (
            {"encoder_outputs": (torch.zeros(3, 1),)},
            ["encoder_outputs= of type tuple (only a ModelOutput can be split)"],
        ),
        ({"streamer": object()}, ["streamer= (it has to see all rows at once)"]),
        ({"synced_gpus": True}, ["synced_gpus (every rank has to run the same number of forwards)"]),
        ({"prompt_lookup_num_tokens": 2}, ["prompt_lookup_num_tokens= (a decoding loop for one prompt)"]),
    ],
)
def test_what_cannot_be_cut_down_is_named(arguments: dict[str, Any], named: list[str]) -> None:
    assert bound(call(**arguments)) == named


def test_unknown_tensor_is_taken_for_the_rows_own_only_where_pictures_are_too() -> None:
    given = {"pixel_values": torch.zeros(3, 3, 4, 4), "other": torch.zeros(3, 2)}
    assert bound(call(**given, batch_num_images=torch.tensor([2, 0, 1]))) == [f"other= of shape (3, 2) ({UNTOLD})"]
    even = bind(Model(), (), {"input_ids": torch.tensor([[7, 5], [5, 7], [7, 6]]), **given})
    assert even is not None
    assert list(group_bound(even, GenerationConfig(), LayoutPlan.from_mask(torch.ones(3, 2)))) == []


def test_max_time_is_named() -> None:
    config = GenerationConfig(max_time=3.0)
    named = list(group_bound(call(), config, LayoutPlan.from_mask(MASK)))
    assert named == ["max_time (it counts for the whole call)"]


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        ({}, False),
        ({"pixel_values": torch.zeros(3, 1)}, True),
        ({"image_sizes": [(4, 4)] * 3}, True),
        ({"other": torch.zeros(3)}, True),
        ({"other": torch.zeros(3, dtype=torch.long)}, False),
        ({"inputs_embeds": torch.zeros(3, 3, 4)}, False),
        ({"attention_mask": MASK.float()}, False),
    ],
)
def test_rows_with_pictures_or_sounds_run_one_at_a_time(arguments: dict[str, Any], alone: bool) -> None:
    assert wants_one_row(call(**arguments), GenerationConfig()) is alone


def test_hooks_of_others_are_found() -> None:
    model = Model()
    assert not has_forward_hooks(model, 1)
    handle = model.register_forward_hook(lambda *_: None)
    assert has_forward_hooks(model, 1)
    handle.remove()
    model.register_forward_pre_hook(lambda *_: None)
    assert has_forward_hooks(model, 1)
    assert bound(call(model)) == ["hooks on the forwards of Model (they would see some rows at a time)"]


# What callbacks track


class Tracking:
    """A criterion that tracks its rows."""

    def __init__(self, done: Any) -> None:
        self.done, self.words = done, ["one", "two", "three"]


@pytest.mark.parametrize("rebinds", [False, True])
@pytest.mark.parametrize("make", [list, torch.tensor], ids=["list", "tensor"])
def test_what_a_callback_tracks_goes_with_its_rows(make: Any, rebinds: bool) -> None:
    held = make([False, False, True])
    criterion = Tracking(held)
    with trackers_of_rows([criterion, criterion], (2, 0), 3):
        assert list(criterion.done) == [True, False]
        assert criterion.words == ["one", "two", "three"]
        if rebinds:
            criterion.done = make([True, False])
        criterion.done[1] = True
    assert list(criterion.done) == [True, False, True]
    assert (criterion.done is held) is not rebinds
    assert bool(held[0]) is not rebinds


def test_what_a_callback_tracks_is_whole_again_after_an_error() -> None:
    criterion = Tracking(done := [True, False, True])

    def failing() -> None:
        with trackers_of_rows([criterion], (1,), 3):
            criterion.done = []
            raise RuntimeError("from the criterion")

    with pytest.raises(RuntimeError, match="from the criterion"):
        failing()
    assert criterion.done == done == [True, False, True]


@pytest.mark.parametrize("value", [[0, 1, 0], [True, False], (True, False, True), torch.ones(3), None, "yes"])
def test_other_values_are_not_taken_for_what_tracks_rows(value: Any) -> None:
    assert not tracks_rows(value, 3)
