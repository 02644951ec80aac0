"""What is remembered on a cache: which tokens its columns hold, through whatever is done to its rows and columns."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import EOS, build
from torch import Tensor
from transformers import DynamicCache

from padfix.generation.call import GenerateCall, bind
from padfix.generation.columns import columns_of
from padfix.generation.marks import ENDED, MARK, PAD, UNKNOWN, contradiction, remember, tokens_of

IDS = torch.tensor([[5, 6, 7], [8, 9, 10]])
MASK = torch.tensor([[1, 1, 1], [0, 1, 1]], dtype=torch.bool)
REPLY = torch.tensor([[21, 22, 23], [EOS, 0, 0]])
# The last token of a reply is in no cache.
HELD = [[5, 6, 7, 21, 22], [PAD, 9, 10, EOS, ENDED]]


def filled(columns: int = 5, *, rows: int = 2, **config: Any) -> Any:
    """A cache of two layers whose keys tell row, head and column."""
    cache = DynamicCache(config=build("mistral", **config).config) if config else DynamicCache()
    row, head, column = torch.meshgrid(torch.arange(rows), torch.arange(2), torch.arange(columns), indexing="ij")
    keys = (1 + column + 10 * head + 100 * row).float()[..., None].expand(-1, -1, -1, 4).clone()
    for layer in range(2):
        cache.update(keys + layer, -keys, layer)
    return cache


def call(*, ids: Tensor | None = IDS, **arguments: Any) -> GenerateCall:
    prompt = {"inputs_embeds": torch.zeros(2, 3, 4)} if ids is None else {"input_ids": ids}
    made = bind(build("llama"), (), prompt | {"eos_token_id": EOS} | arguments)
    assert made is not None
    return made


def marked(cache: Any, *, reply: Tensor = REPLY, real: Tensor | None = MASK, **arguments: Any) -> Any:
    """The cache, after a call that has filled it."""
    remember(torch.cat((IDS, reply), 1), call(past_key_values=cache, **arguments), real)
    return cache


def test_prompt_pads_and_reply_are_remembered() -> None:
    tokens = tokens_of(marked(filled()))
    assert tokens is not None
    assert tokens.tolist() == HELD


def more(cache: Any) -> Any:
    """The cache after two columns more."""
    for layer in range(2):
        cache.update(torch.full((2, 2, 2, 4), 77.0), torch.zeros(2, 2, 2, 4), layer)
    return cache


def cropped(cache: Any) -> Any:
    cache.crop(3 - columns_of(cache))
    return cache


def reordered(cache: Any) -> Any:
    cache.reorder_cache(torch.tensor([1, 0]))
    return cache


def repeated(cache: Any) -> Any:
    cache.batch_repeat_interleave(2)
    return cache


def selected(cache: Any) -> Any:
    cache.batch_select_indices(torch.tensor([1]))
    return cache


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (copy.deepcopy, HELD),
        (lambda cache: pickle.loads(pickle.dumps(cache)), HELD),
        (more, HELD),
        (cropped, [row[:3] for row in HELD]),
        (reordered, HELD[::-1]),
        (repeated, [HELD[0], HELD[0], HELD[1], HELD[1]]),
        (selected, HELD[1:]),
        (lambda cache: reordered(cropped(more(cache))), [row[:3] for row in HELD[::-1]]),
    ],
)
def test_rows_and_columns_are_followed(change: Callable[[Any], Any], held: list[list[int]]) -> None:
    tokens = tokens_of(change(marked(filled())))
    assert tokens is not None
    assert tokens.tolist() == held


def test_tuples_of_old_releases_are_known_by_their_first_tensor() -> None:
    keys = torch.arange(2 * 2 * 5 * 4).reshape(2, 2, 5, 4).float()
    cache = ((keys, -keys), (keys + 1, -keys))
    for one in (marked(cache), copy.deepcopy(cache)):
        tokens = tokens_of(one)
        assert tokens is not None
        assert tokens.tolist() == HELD


def test_pickled_cache_holds_nothing_of_ours() -> None:
    assert b"padfix." not in pickle.dumps(marked(filled()))


def test_rows_that_are_not_known_again() -> None:
    cache = marked(filled())
    keys = cache.layers[0].keys if hasattr(cache, "layers") else cache.key_cache[0]
    keys[0, 0, 1, 0] = 0.5
    tokens = tokens_of(cache)
    assert tokens is not None
    assert tokens.tolist() == [[UNKNOWN] * 5, HELD[1]]


@pytest.mark.skipif(not hasattr(DynamicCache(), "layers"), reason="this release keeps every column")
@pytest.mark.parametrize("later", [0, 1, 2])
def test_window_is_known_by_the_columns_that_it_has(later: int) -> None:
    cache = marked(filled(sliding_window=4))
    assert cache.layers[0].keys.shape[2] == 3
    for _ in range(later):
        for layer in range(2):
            cache.update(torch.full((2, 2, 1, 4), 77.0), torch.zeros(2, 2, 1, 4), layer)
    tokens = tokens_of(cache)
    assert tokens is not None
    assert tokens.tolist() == HELD


@pytest.mark.skipif(not hasattr(DynamicCache(), "layers"), reason="this release keeps every column")
def test_window_that_has_moved_on_is_not_known() -> None:
    cache = marked(filled(sliding_window=4))
    for layer in range(2):
        cache.update(torch.full((2, 2, 3, 4), 77.0), torch.zeros(2, 2, 3, 4), layer)
    assert tokens_of(cache) is None


@pytest.mark.parametrize(
    ("cache", "arguments"),
    [
        (filled(4), {}),  # not the columns that the call leaves behind, such as those of prefix tuning
        (filled(6), {}),
        (filled(rows=3), {}),
        (DynamicCache(), {}),
        (SimpleNamespace(get_seq_length=lambda: 5), {}),
    ],
)
def test_what_is_not_understood_is_not_remembered(cache: Any, arguments: dict[str, Any]) -> None:
    assert not hasattr(marked(cache, **arguments), MARK)
    assert tokens_of(cache) is None


@pytest.mark.parametrize("output", [None, (REPLY,), {"sequences": REPLY}, torch.zeros(2, 3, 4), SimpleNamespace()])
def test_outputs_of_other_kinds_say_nothing(output: Any) -> None:
    cache = filled()
    remember(output, call(past_key_values=cache), MASK)
    assert not hasattr(cache, MARK)


def test_beams_hold_the_prompt_for_sure() -> None:
    cache = filled(rows=4)
    remember(torch.cat((IDS, REPLY), 1), call(past_key_values=cache, num_beams=2), MASK)
    tokens = tokens_of(cache)
    assert tokens is not None
    assert tokens.tolist() == [row[:3] + [UNKNOWN] * 2 for row in (HELD[0], HELD[0], HELD[1], HELD[1])]


def test_embeddings_are_tokens_that_are_not_known() -> None:
    cache = filled()
    remember(REPLY, call(ids=None, past_key_values=cache), MASK)
    tokens = tokens_of(cache)
    assert tokens is not None
    assert tokens.tolist() == [[UNKNOWN] * 3 + HELD[0][3:], [PAD, UNKNOWN, UNKNOWN, *HELD[1][3:]]]


def test_new_tokens_alone_follow_what_is_remembered() -> None:
    cache = more(marked(filled()))
    new = call(ids=torch.tensor([[23], [4]]), past_key_values=cache)
    past = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=torch.bool)
    remember(torch.tensor([[23, 31, 32], [4, 33, 34]]), new, torch.ones(2, 1, dtype=torch.bool), past)
    tokens = tokens_of(cache)
    assert tokens is not None
    assert tokens.tolist() == [[*HELD[0], 23, 31], [*HELD[1], 4, 33]]


def test_cached_columns_hold_what_the_model_has_seen() -> None:
    """Whatever the ids of a later call say."""
    cache = more(marked(filled()))
    ids = torch.tensor([[5, 6, 99, 21, 22, 23], [8, 9, 10, EOS, 0, 4]])
    remember(torch.cat((ids, REPLY[:, :2]), 1), call(ids=ids, past_key_values=cache))
    tokens = tokens_of(cache)
    assert tokens is not None
    assert tokens[:, :5].tolist() == HELD


# What a call says about it


def against(ids: list[list[int]] | None, mask: list[list[int]] | None = None, *, padded: bool = True) -> str | None:
    real = torch.ones(2, 6, dtype=torch.bool) if mask is None else torch.tensor(mask) != 0
    return contradiction(marked(filled()), 5, real, None if ids is None else torch.tensor(ids), padded=padded)


SAME = [[5, 6, 7, 21, 22, 23], [8, 9, 10, EOS, 0, 4]]
LEFT = [[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 1]]


def test_the_same_tokens() -> None:
    assert against(SAME, LEFT) is None
    assert against(SAME, [[0] * 5 + [1], [0] * 5 + [1]]) is None
    assert against(None, LEFT) is None


def test_pads_that_are_taken_for_tokens() -> None:
    said = "the mask takes for tokens what were pads when it was filled"
    for padded in (True, False):
        assert against(SAME, padded=padded) == said
        assert against(None, padded=padded) == said


def test_other_tokens() -> None:
    other = [[5, 6, 7, 21, 99, 23], SAME[1]]
    assert against(other, LEFT) == "it holds other tokens than those in its columns"
    assert against(other, LEFT, padded=False) is None


def test_pads_after_the_end_are_tokens_where_the_mask_says_so() -> None:
    full = [[1] * 6, [0, 1, 1, 1, 1, 1]]
    assert against(SAME, full) is None
    assert against(None, full) is None
    other = [SAME[0], [8, 9, 10, EOS, 44, 4]]
    for padded in (True, False):
        assert against(other, full, padded=padded) == "it holds other tokens than those in its columns"


def test_nothing_is_known_of_other_rows() -> None:
    cache = marked(filled())
    assert contradiction(cache, columns_of(cache), torch.ones(3, 6, dtype=torch.bool), None, padded=True) is None
    assert contradiction(filled(), 5, torch.ones(2, 6, dtype=torch.bool), None, padded=True) is None
