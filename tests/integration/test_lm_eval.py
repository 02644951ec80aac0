"""lm-evaluation-harness: a task of the kind `generate_until` gets in batches what it gets one document at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import recipes
from oracle import build
from recipes import COUNTS_PADS, PROMPTS

import padfix
from padfix.demo.prompts import WORDS
from padfix.demo.task import answer
from padfix.loading import embedded

lm_eval = pytest.importorskip("lm_eval")
HFLM: Any = pytest.importorskip("lm_eval.models.huggingface").HFLM
instance = pytest.importorskip("lm_eval.api.instance")
tasks = pytest.importorskip("lm_eval.tasks")

pytestmark = [pytest.mark.integrations]

# Stop sequences of one token and of several, and a flag.
FLAGS: tuple[dict[str, Any], ...] = (
    {},
    COUNTS_PADS,
    {"until": ["e"]},
    {"until": ["tt", "dd", "mro"]},
    {"num_beams": 2},
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with the task `reverse`: words, and what they are in reverse."""
    lines = [json.dumps({"word": word, "answer": answer(word)}) + "\n" for word in WORDS]
    (tmp_path / "words.jsonl").write_text("".join(lines))
    task = {
        "task": "reverse",
        "dataset_path": "json",
        "dataset_kwargs": {
            "data_files": {"test": str(tmp_path / "words.jsonl")},
            "cache_dir": str(tmp_path / "cache"),
        },
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "reverse: {{word}} =",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["<eos>"], "max_gen_toks": 12, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (tmp_path / "reverse.yaml").write_text(json.dumps(task))  # which is YAML too
    return str(tmp_path)


def evaluated(folder: str, batch_size: int, flags: Mapping[str, Any]) -> tuple[float, list[str]]:
    """The score of the task, and the replies to its documents."""
    model, tokenizer = embedded()
    results = lm_eval.simple_evaluate(
        model=HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size),
        tasks=["reverse"],
        task_manager=tasks.TaskManager(include_path=folder, include_defaults=False),
        gen_kwargs={**flags},
        bootstrap_iters=0,
    )
    return scored(results)


def scored(results: Any) -> tuple[float, list[str]]:
    replies = [sample["resps"][0][0] for sample in results["samples"]["reverse"]]
    return float(results["results"]["reverse"]["exact_match,none"]), replies


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_task_gets_in_batches_what_it_gets_one_document_at_a_time(folder: str, flags: Mapping[str, Any]) -> None:
    single, stock = evaluated(folder, 1, flags), evaluated(folder, 4, flags)
    padfix.install()
    assert evaluated(folder, 4, flags) == single
    assert (stock != single) is (flags == COUNTS_PADS)  # it pads on the left itself
    assert len(set(single[1])) == len(WORDS)
    assert (single[0] == 1.0) is (flags in ({}, {"num_beams": 2}))


class PadsOnTheRight(HFLM):  # type: ignore[misc]
    """A harness whose batches are padded on the other side."""

    def tok_batch_encode(self, strings: list[str], padding_side: str = "left", **arguments: Any) -> Any:
        return super().tok_batch_encode(strings, padding_side="right", **arguments)


def generated(model: Any, harness: Any, batch_size: int, until: Sequence[str]) -> list[str]:
    """The replies to all prompts, up to a stop sequence."""
    flags = {"until": list(until), "max_gen_toks": 8, "do_sample": False}
    requests = [
        instance.Instance("generate_until", {}, (prompt, dict(flags)), number) for number, prompt in enumerate(PROMPTS)
    ]
    made = harness(pretrained=model, tokenizer=embedded()[1], batch_size=batch_size, max_length=64)
    replies: list[str] = made.generate_until(requests, disable_tqdm=True)
    return replies


@pytest.mark.parametrize("harness", [HFLM, PadsOnTheRight])
@pytest.mark.parametrize("name", ["gpt2", "mamba2", "blenderbot", "rwkv"])
def test_models_of_each_strategy_get_what_each_prompt_gets_alone(name: str, harness: Any) -> None:
    model, end = build(name, vocab_size=len(embedded()[1])), ["<eos>"]
    single, stock = generated(model, harness, 1, end), generated(model, harness, 4, end)
    padfix.install()
    assert generated(model, harness, 4, end) == single
    assert len(set(single)) > len(PROMPTS) // 2
    assert (stock != single) is (harness is PadsOnTheRight or name in ("blenderbot", "rwkv"))
    until = [single[0][3:5], single[-1][2]]
    with padfix.suppressed():
        stopped = generated(model, harness, 1, until)
    assert generated(model, harness, 4, until) == stopped
    assert stopped != single


def test_recipe(folder: str) -> None:
    model, tokenizer = embedded()
    wanted = recipes.alone(model, tokenizer, **COUNTS_PADS)
    ran = recipes.run("lm-evaluation-harness", model=model, tokenizer=tokenizer, folder=folder)
    assert scored(ran["results"])[1] == wanted
