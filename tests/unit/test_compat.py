"""What is read off a model and a process group, whatever the release of transformers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from padfix.generation import compat, limits
from padfix.generation.call import GenerateCall, bind


class Model(torch.nn.Module):
    """A model of one layer, with an embedding whose weight has the shape that is asked for."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=False, vocab_size=7)
        self.layer = torch.nn.Linear(1, 1)
        self.shape = shape

    def get_input_embeddings(self) -> Any:
        return SimpleNamespace(weight=torch.zeros(self.shape))


def call(model: Any, **arguments: Any) -> GenerateCall:
    made = bind(model, (), {"input_ids": torch.tensor([[5, 6, 0]]), **arguments})
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("shape", "size"),
    [((9, 2), 9), ((0,), 7), ((18,), 7), ((0, 2), 7)],  # whole; in shards, as ZeRO-3 and FSDP1 leave it
)
def test_size_of_a_vocabulary_in_shards_is_that_of_the_configuration(shape: tuple[int, ...], size: int) -> None:
    assert compat.vocabulary_size(Model(*shape)) == size


@pytest.mark.parametrize("asked", [{}, {"synced_gpus": False}, {"synced_gpus": True}])
@pytest.mark.parametrize("sharded", ["", "model", "layer"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_step_together_where_asked_or_where_weights_are_in_shards(
    asked: dict[str, bool], sharded: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "several_ranks", lambda: ranks > 1)
    model = Model(9, 2)
    marked = {"model": model, "layer": model.layer}.get(sharded)
    monkeypatch.setattr(compat, "is_fsdp_managed_module", lambda module: module is marked)
    together = bool(asked.get("synced_gpus")) or (ranks > 1 and bool(sharded))
    made = call(model, **asked)
    assert compat.steps_together(made) is together
    chunks = GenerationConfig(prefill_chunk_size=4)
    assert list(limits.width_bound(made, GenerationConfig())) == []
    named = "prefill_chunk_size=4 (every rank has to run the same number of chunks)"
    assert list(limits.width_bound(made, chunks)) == ([named] if together else [])


@pytest.mark.parametrize("ids", [[5, 7], (5, 7), torch.tensor([5, 7]), torch.tensor([[5], [7]])], ids=str)
def test_ends_of_a_row_are_read_whatever_holds_them(ids: Any) -> None:
    config = GenerationConfig()
    config.eos_token_id = ids
    assert compat.eos_ids(config) == (5, 7)
