"""Media: which pictures, videos and sounds belong to which row, and where that cannot be told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from padfix.generation.call import GenerateCall, bind
from padfix.generation.media import MEDIA, Media, filled_up, is_medium, media_of

IMAGE, VIDEO, AUDIO, PAD = 7, 8, 9, 0
CONFIG = {"is_encoder_decoder": False, "image_token_id": IMAGE, "video_token_id": VIDEO, "audio_token_id": AUDIO}


def call(ids: list[list[int]], arguments: dict[str, Any], name: str = "Some", **config: Any) -> GenerateCall:
    model = type(name, (), {"config": SimpleNamespace(**CONFIG | config)})()
    tensor = torch.tensor(ids)
    made = bind(model, (), {"input_ids": tensor, "attention_mask": (tensor != PAD).long(), **arguments})
    assert made is not None
    return made


def found(ids: list[list[int]], arguments: dict[str, Any], name: str = "Some", **config: Any) -> Media:
    made = call(ids, arguments, name, **config)
    assert made.mask is not None
    return media_of(made, made.mask.bool())


def places(media: Media, name: str) -> list[list[int]]:
    return [list(each) for each in media.places[name]]


def refused(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}= (what belongs to a row cannot be told)" for name in names)


def pixels(items: int) -> Tensor:
    return torch.zeros(items, 3, 4, 4)


VISION = SimpleNamespace(spatial_merge_size=2)
# Three pictures of 4, 2 and 1 placeholders: 16, 8 and 4 patches.
GRID = torch.tensor([[1, 4, 4], [1, 2, 4], [1, 2, 2]])


def test_patches_and_grids_follow_the_placeholders_that_they_fill() -> None:
    ids = [[1, 7, 7, 7, 7, 5, 7, 7], [5, 6, 0, 0, 0, 0, 0, 0], [7, 5, 0, 0, 0, 0, 0, 0]]
    media = found(ids, {"pixel_values": torch.zeros(28, 6), "image_grid_thw": GRID}, vision_config=VISION)
    assert places(media, "image_grid_thw") == [[0, 1], [], [2]]
    assert places(media, "pixel_values") == [[*range(24)], [], [*range(24, 28)]]
    assert not media.unknown
    assert not media.one_each
    assert media.absent[0] == media.absent[2] == frozenset()
    assert {"pixel_values", "image_grid_thw"} <= media.absent[1]


def test_as_many_pictures_as_rows_are_not_taken_for_one_a_row() -> None:
    media = found([[7, 7, 5, 7, 7], [5, 6, 0, 0, 0]], {"pixel_values": pixels(2)})
    assert places(media, "pixel_values") == [[0, 1], []]


def test_placeholder_under_a_pad_is_no_picture() -> None:
    ids = torch.tensor([[7, 5, 6], [7, 7, 5]])
    made = call(ids.tolist(), {"pixel_values": pixels(2)})
    media = media_of(made, torch.tensor([[True, True, True], [False, True, True]]))
    assert places(media, "pixel_values") == [[0], [1]]
    assert media.one_each


@pytest.mark.parametrize(
    ("ids", "grid"),
    [
        ([[7, 7, 7, 5], [7, 7, 7, 5]], [[1, 4, 4], [1, 2, 4]]),  # a row ends within a picture
        ([[7, 7, 7, 7], [5, 5, 5, 5]], [[1, 4, 4], [1, 2, 4]]),  # a picture is left
        ([[5, 5, 5, 5], [5, 5, 5, 5]], [[1, 4, 4], [1, 2, 4]]),  # no placeholder at all
    ],
)
def test_grids_that_do_not_come_out_even_are_named(ids: list[list[int]], grid: list[list[int]]) -> None:
    media = found(ids, {"pixel_values": torch.zeros(24, 6), "image_grid_thw": torch.tensor(grid)}, vision_config=VISION)
    assert media.unknown == refused("image_grid_thw")
    assert not media.places


def test_patches_that_do_not_fit_their_grids_are_named() -> None:
    ids = [[7, 7, 7, 7], [7, 7, 5, 5], [7, 5, 5, 5]]
    media = found(ids, {"pixel_values": torch.zeros(27, 6), "image_grid_thw": GRID}, vision_config=VISION)
    assert media.unknown == refused("image_grid_thw")


def test_pictures_of_other_sizes_are_told_by_runs_alone() -> None:
    sizes = torch.tensor([[4, 4], [4, 8], [8, 8]])
    given = {"pixel_values": pixels(3), "image_sizes": sizes}
    # By their number alone each of the three would fill two of six placeholders: the second row would have one.
    media = found([[7, 5, 7, 7, 7], [7, 7, 5, 5, 5]], given)
    assert places(media, "image_sizes") == [[0, 1], [2]]
    adjoining = found([[7, 7, 7, 7, 5], [7, 7, 5, 5, 5]], given)
    assert adjoining.unknown == refused("pixel_values", "image_sizes")


def test_runs_that_contradict_the_sizes_are_named() -> None:
    sizes = torch.tensor([[4, 4], [4, 4], [8, 8]])
    media = found([[7, 5, 7, 7, 7], [7, 5, 5, 5, 5]], {"pixel_values": pixels(3), "image_sizes": sizes})
    assert media.unknown == refused("pixel_values", "image_sizes")


def test_sizes_of_pixtrals_pictures_say_how_many_placeholders_they_fill() -> None:
    vision = SimpleNamespace(model_type="pixtral", patch_size=4)
    sizes = torch.tensor([[8, 16], [16, 16]])  # two rows of two, four of ... merged two by two
    ids = [[7, 7, 5, 0, 0, 0], [7, 7, 5, 7, 7, 5]]  # 5 ends a row of patches
    media = found(ids, {"pixel_values": pixels(2), "image_sizes": sizes}, vision_config=vision, spatial_merge_size=2)
    assert places(media, "pixel_values") == [[0], [1]]


def test_two_ways_of_counting_that_disagree_are_named() -> None:
    # 8, 8, 4 and 4 placeholders, or as HunYuan-VL counts 4, 4, 8 and 8: the first row has one picture or two.
    grid = torch.tensor([[8, 2, 2], [8, 2, 2], [1, 4, 4], [1, 4, 4]])
    given = {"pixel_values": torch.zeros(96, 6), "image_grid_thw": grid}
    assert found([[7] * 8 + [5] * 8, [7] * 16], given, vision_config=VISION).unknown == refused("image_grid_thw")
    media = found([[7] * 16, [7] * 8 + [5] * 8], given, vision_config=VISION)  # 4 + 4 + 8, or 8 + 8: two or three
    assert media.unknown == refused("image_grid_thw")
    assert places(found([[7] * 24, [5] * 24], given, vision_config=VISION), "image_grid_thw") == [[0, 1, 2, 3], []]


def test_pictures_that_nothing_tells_apart_fill_as_many_each() -> None:
    media = found([[7, 7, 7, 7], [5, 7, 5, 7]], {"pixel_values": pixels(3)})  # three runs, three pictures
    assert places(media, "pixel_values") == [[0, 1], [2]]


def test_sizes_in_a_list_follow_their_pictures() -> None:
    given = {"pixel_values": [pixels(1), pixels(2)], "image_sizes": [(4, 4), (8, 8)]}
    media = found([[5, 5, 5, 5], [7, 7, 5, 7]], given)
    assert places(media, "image_sizes") == [[], [0, 1]]


def test_grids_in_lists_are_read() -> None:
    ids = [[7, 7, 7, 7], [7, 7, 7, 5]]
    for grid in (GRID.tolist(), list(GRID)):
        media = found(ids, {"pixel_values": torch.zeros(28, 6), "image_grid_thw": grid}, vision_config=VISION)
        assert places(media, "pixel_values") == [[*range(16)], [*range(16, 28)]]


@pytest.mark.parametrize("nested", [[[(4, 4)], [(8, 8), (4, 8)]], [[], [(8, 8)]], ["4x4", "8x8"], [None, None]])
def test_numbers_that_cannot_be_read_are_named(nested: list[Any]) -> None:
    vision = SimpleNamespace(model_type="pixtral", patch_size=4)
    configs: list[dict[str, Any]] = [{"vision_config": vision}, {}]
    for config in configs:
        given = {"pixel_values": [[pixels(1)], [pixels(1), pixels(2)]], "image_sizes": nested}
        media = found([[7, 7, 7, 7], [5, 5, 5, 5]], given, **config)
        assert media.unknown == refused("pixel_values", "image_sizes")
    grids = found([[7, 7, 7, 7], [5, 5, 5, 5]], {"pixel_values": pixels(2), "image_grid_thw": nested})
    assert grids.unknown == refused("image_grid_thw")


def test_crops_follow_the_pictures_that_count_them() -> None:
    given = {
        "pixel_values": pixels(3),
        "pixel_values_local": pixels(5),
        "num_local_patches": torch.tensor([2, 0, 3]),
    }
    media = found([[7, 5, 7], [7, 7, 5]], given)
    assert places(media, "pixel_values_local") == [[0, 1], [2, 3, 4]]
    without = found([[7, 5, 7], [7, 7, 5]], {name: given[name] for name in ("pixel_values", "pixel_values_local")})
    assert without.unknown == refused("pixel_values", "pixel_values_local")


# Other media


def test_videos_and_sounds_have_placeholders_of_their_own() -> None:
    ids = [[7, 8, 8, 5], [9, 9, 8, 8], [9, 9, 5, 5]]
    given = {
        "pixel_values": pixels(1),
        "pixel_values_videos": torch.zeros(2, 8, 3, 4, 4),
        "input_features": torch.zeros(2, 8, 30),
        "feature_attention_mask": torch.tensor([[1, 1], [1, 0]]),
    }
    media = found(ids, given)
    assert places(media, "pixel_values") == [[0], [], []]
    assert places(media, "pixel_values_videos") == [[0], [1], []]
    assert places(media, "input_features") == places(media, "feature_attention_mask") == [[], [0], [1]]


def test_videos_in_the_placeholders_of_pictures_are_told_where_there_are_no_pictures() -> None:
    given = {"pixel_values_videos": torch.zeros(32, 6), "video_grid_thw": torch.tensor([[2, 4, 4]])}
    ids = [[5] * 8, [7, 7, 7, 7, 7, 7, 7, 7]]
    assert places(found(ids, given, vision_config=VISION), "video_grid_thw") == [[], [0]]
    both = given | {"pixel_values": torch.zeros(16, 6), "image_grid_thw": GRID[:1]}
    assert "video_grid_thw= (what belongs to a row cannot be told)" in found(ids, both, vision_config=VISION).unknown


def test_seconds_in_a_list_follow_their_videos() -> None:
    given = {
        "pixel_values_videos": torch.zeros(48, 6),
        "video_grid_thw": torch.tensor([[2, 4, 4], [1, 4, 4]]),
        "second_per_grid_ts": [0.5, 1.0],
    }
    ids = [[8] * 8, [5, 5, 5, 5, 8, 8, 8, 8]]
    assert places(found(ids, given, vision_config=VISION), "second_per_grid_ts") == [[0], [1]]


# Rows of their own


def test_where_nothing_stands_for_a_picture_they_are_the_rows_own() -> None:
    config: dict[str, Any] = {"image_token_id": None, "video_token_id": None}
    media = found([[5, 6], [6, 5]], {"pixel_values": pixels(2)}, **config)
    assert places(media, "pixel_values") == [[0], [1]]
    assert media.one_each
    assert found([[5, 6], [6, 5]], {"pixel_values": pixels(3)}, **config).unknown == refused("pixel_values")


def test_models_with_an_axis_of_rows_keep_it() -> None:
    given = {"pixel_values": torch.zeros(3, 2, 3, 4, 4)}
    ids = [[7, 5, 7], [5, 5, 5], [7, 5, 5]]
    media = found(ids, given, "Idefics2ForConditionalGeneration")
    assert places(media, "pixel_values") == [[0], [], [2]]
    assert "pixel_values" in media.absent[1]
    assert media.pictures is None


def test_rows_with_fewer_pictures_are_named_where_empty_ones_are_seen() -> None:
    given = {"pixel_values": torch.zeros(3, 2, 3, 4, 4)}
    for ids, named in (([[7, 5, 7], [5, 5, 5], [7, 5, 5]], True), ([[7, 5], [7, 5], [5, 7]], False)):
        made = call(ids, given, "MllamaForConditionalGeneration")
        real = torch.ones(3, len(ids[0]), dtype=torch.bool)
        assert bool(list(filled_up(made, real))) is named
        assert list(filled_up(call(ids, given, "Idefics2ForConditionalGeneration"), real)) == []
        assert list(filled_up(call(ids, {}, "MllamaForConditionalGeneration"), real)) == []


def test_prompt_without_ids_tells_nothing() -> None:
    model = SimpleNamespace(config=SimpleNamespace(**CONFIG))
    made = bind(model, (), {"inputs_embeds": torch.zeros(2, 3, 4), "pixel_values": pixels(2)})
    assert made is not None
    assert media_of(made, torch.ones(2, 3, dtype=torch.bool)).unknown == refused("pixel_values")


def test_encoders_ids_hold_the_placeholders_of_an_encoder_decoder() -> None:
    given = {
        "input_ids": torch.tensor([[5, 5, 7], [7, 5, 7]]),
        "attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
        "decoder_input_ids": torch.tensor([[7, 7], [5, 0]]),
        "pixel_values": pixels(2),
    }
    model = SimpleNamespace(config=SimpleNamespace(**CONFIG | {"is_encoder_decoder": True}))
    made = bind(model, (), given)
    assert made is not None
    media = media_of(made, torch.tensor([[True, True], [True, False]]))
    assert places(media, "pixel_values") == [[], [0, 1]]


@pytest.mark.parametrize("name", ["cross_attention_mask", "image_attention_mask", "image_embeds_position_mask"])
def test_what_has_the_prompts_columns_is_no_medium(name: str) -> None:
    made = call([[5, 6]], {name: torch.zeros(1, 2)})
    assert not is_medium(made, name)


def test_number_is_no_medium() -> None:
    made = call([[5, 6]], {"image_size": 4, "pixel_scale": torch.tensor(1.0), "image_sizes": [(4, 4)]})
    assert [name for name in made.arguments if is_medium(made, name)] == ["image_sizes"]


def test_keywords_are_told_apart() -> None:
    heads = [name for medium in MEDIA for name in medium.names]
    assert len(set(heads)) == len(heads)
    assert not [one for one in MEDIA[2].names for other in heads if one != other and other.startswith(one)]
