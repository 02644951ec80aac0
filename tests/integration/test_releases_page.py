"""docs/releases.md says what transformers does on its own: each cell of the installed release is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from facts import CACHE_FIELD, ROPE_FIELD
from oracle import GREEDY, PAD, build, embedded, left_padded, right_padded
from stock import endless
from torch import Tensor
from transformers import DynamicCache, GenerationConfig

from padfix import loading
from padfix.generation.exceptions import EXACT_BEFORE, EXACT_SINCE
from padfix.releases import TESTED

PAGE = (Path(__file__).parents[2] / "docs" / "releases.md").read_text(encoding="utf-8")
INSTALLED = transformers.__version__

pytestmark = [
    pytest.mark.skipif(INSTALLED not in TESTED, reason=f"docs/releases.md has no column for transformers {INSTALLED}"),
    pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning"),
]

PROMPT = [5, 17, 33, 8, 61, 24, 9]


def _table(heading: str) -> dict[str, dict[str, str]]:
    """The table beneath a heading: a row's first cell, and its other cells by release."""
    lines = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    releases = cells[0][1:]
    return {row[0]: dict(zip(releases, row[1:], strict=True)) for row in cells[2:]}


def _forwards(batch: Mapping[str, Any], **arguments: Any) -> list[dict[str, Any]]:
    """The keywords of each forward of a call of three new tokens."""
    model, seen = endless("llama"), list[dict[str, Any]]()

    def note(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        seen.append({name: value.clone() if isinstance(value, Tensor) else value for name, value in kwargs.items()})

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.generate(**batch, **GREEDY | {"max_new_tokens": 3}, **arguments)
    return seen


def _own_positions() -> str:
    own = torch.arange(len(PROMPT))[None] * 3
    later = _forwards(right_padded([PROMPT]) | {"position_ids": own})[1]["position_ids"]
    return "go on" if later.tolist() == [[int(own[0, -1]) + 1]] else "do not go on"


def _positions() -> str:
    batch = right_padded([PROMPT, PROMPT[:3]])
    first, second = (step["position_ids"][1] for step in _forwards(batch)[:2])
    return {3: "the mask", int(first[-1]) + 1: "the last column"}[int(second[-1])]


def _masked_position() -> str:
    return str(int(_forwards(left_padded([PROMPT, PROMPT[:3]]))[0]["position_ids"][1, 0]))


def _granted(config: Mapping[str, Any] | None = None, own: int | None = None, *, embeds: bool = False) -> str:
    """What a length counts: the columns of the prompt as well, or new tokens alone."""
    model, batch = endless("llama"), right_padded([PROMPT])
    length = own or 20
    if own is not None:
        model.generation_config.max_length = own
    passed = {} if config is None else {"generation_config": GenerationConfig(**config, do_sample=False)}
    output = model.generate(**(embedded(model, batch) if embeds else batch), **passed)
    new = int(output.shape[1]) - (0 if embeds else len(PROMPT))
    return {length: "new tokens", length - len(PROMPT): "columns"}[new]


def _penalty_of_pads() -> str:
    output = build("llama").generate(
        **left_padded([PROMPT, PROMPT[:3]], pad=70),
        **GREEDY,
        repetition_penalty=3.0,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return "no" if output.scores[0][1, 70] == output.logits[0][1, 70] else "yes"


def _penalty_of_rows() -> str:
    output = build("llama").generate(
        **right_padded([PROMPT]),
        **GREEDY,
        num_beams=2,
        encoder_repetition_penalty=3.0,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    beams = output.scores[0], output.logits[0].log_softmax(-1)
    return "every row" if bool((beams[0][1, PROMPT] != beams[1][1, PROMPT]).any()) else "the first rows"


def _beams_of_others() -> str:
    model, tokenizer = loading.embedded()
    prompts = ["reverse: a =", "abcdefghijkl", "reverse: abc"]  # of one length
    flags: dict[str, Any] = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 12, "do_sample": False}

    def scores(batch: list[str]) -> Tensor:
        encoded = tokenizer(batch, return_tensors="pt")
        output = model.generate(**encoded, **flags, output_scores=True, return_dict_in_generate=True)
        found: Tensor = output.sequences_scores
        return found

    alone = torch.cat([scores([prompt]) for prompt in prompts])
    return "no" if torch.allclose(scores(prompts), alone, atol=1e-4) else "yes"


def _mask_beside_embeddings() -> str:
    model, batch = build("llama"), left_padded([PROMPT, PROMPT[:3]])
    embeds = embedded(model, batch)["inputs_embeds"]
    mask = _forwards({"input_ids": batch["input_ids"], "inputs_embeds": embeds})[0]["attention_mask"]
    return {True: "the ids", False: "nothing: all ones"}[torch.equal(mask, batch["attention_mask"])]


def _cache() -> str:
    output = build("llama").generate(**right_padded([PROMPT]), **GREEDY, return_dict_in_generate=True)
    assert output[CACHE_FIELD] is not None
    assert CACHE_FIELD in _forwards(right_padded([PROMPT]))[1]
    return f"`{CACHE_FIELD}`"


def _rotary() -> str:
    assert hasattr(transformers.LlamaConfig(), ROPE_FIELD)
    return f"`{ROPE_FIELD}`"


def _compile_config() -> str:
    return "no" if getattr(GenerationConfig(), "compile_config", None) is None else "yes"


def _chunks() -> str:
    if not hasattr(GenerationConfig(), "prefill_chunk_size"):
        return "no such flag"
    model, seen = endless("llama"), list[Tensor]()

    def note(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        seen.append(kwargs["position_ids"] if "position_ids" in kwargs else args[1])

    model.model.rotary_emb.register_forward_pre_hook(note, with_kwargs=True)  # 4.57 calls forward past other hooks
    batch = left_padded([PROMPT, PROMPT[:3]]) | {CACHE_FIELD: DynamicCache()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function=None, **_: function)  # 4.51 compiles, which takes minutes
        model.generate(**batch, **GREEDY, prefill_chunk_size=64)
    last = seen[0].shape[1] - 1  # up to 4.57 the last column of the prompt is no part of a chunk
    return {last - (len(PROMPT) - 3): "the mask", last: "the columns"}[int(seen[0][-1, -1])]


MEASURES: Mapping[str, Callable[[], str]] = {
    "your own `position_ids`, while decoding": _own_positions,
    "positions while decoding come from": _positions,
    "position of a masked cell": _masked_position,
    "the default length counts": _granted,
    "the default length counts, with embeddings alone": lambda: _granted(embeds=True),
    "`max_length=20` in a config that you pass counts": lambda: _granted({"max_length": 20}),
    "`max_length=20` of the model's own config counts": lambda: _granted(own=20),
    "another `max_length` of the model's own config counts": lambda: _granted(own=15),
    "positions of a prompt that is read in chunks come from": _chunks,
    "every generation config holds a `compile_config`": _compile_config,
    "`repetition_penalty` counts leading pads": _penalty_of_pads,
    "`encoder_repetition_penalty` with beams holds for": _penalty_of_rows,
    "what the beams of a row find depends on the other rows, pads or none": _beams_of_others,
    "without a mask, ids beside embeddings: the mask comes from": _mask_beside_embeddings,
    "the cache, as an argument and in the output": _cache,
    "the rotary embedding in a configuration": _rotary,
    "Python": lambda: str(metadata("transformers")["Requires-Python"]).removesuffix(".0"),
}


@pytest.mark.parametrize("fact", MEASURES)
def test_the_page_says_what_the_installed_release_does(fact: str) -> None:
    assert MEASURES[fact]() == _table("What differs")[fact][INSTALLED]


@pytest.mark.parametrize("heading", ["What differs", "Models"])
def test_the_page_has_a_column_for_each_release(heading: str) -> None:
    assert {tuple(row) for row in _table(heading).values()} == {TESTED}


def test_every_row_is_measured() -> None:
    assert [*_table("What differs")] == [*MEASURES]


def test_the_page_lists_the_models_of_the_tables() -> None:
    def is_exact(name: str, release: str) -> bool:
        number = tuple(map(int, release.split(".")[:2]))
        return number >= EXACT_SINCE[name] or number < EXACT_BEFORE.get(name, (0, 0))

    wanted = {f"`{name}`": {one: "exact" if is_exact(name, one) else "" for one in TESTED} for name in EXACT_SINCE}
    assert _table("Models") == wanted


def test_the_prompts_of_this_file_hold_no_pad() -> None:
    assert not {PAD, 70} & {*PROMPT}
