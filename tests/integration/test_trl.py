"""Trainers of TRL that generate with transformers: completions as each prompt gets alone, and nothing else changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import recipes
import torch
from oracle import build
from recipes import COUNTS_PADS, PROMPTS
from torch import Tensor

import padfix
from padfix.loading import embedded

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

pytestmark = [
    pytest.mark.integrations,
    # Of transformers, for names that TRL still uses.
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing.* is deprecated:FutureWarning"),
]

TWICE = [prompt for prompt in PROMPTS for _ in range(2)]

# One short step on the CPU that leaves nothing behind, for the arguments of any trainer.
ONE_STEP: dict[str, Any] = {
    "max_completion_length": 12,
    "max_steps": 1,
    "bf16": False,
    "use_cpu": True,
    "save_strategy": "no",
    "report_to": [],
}


@dataclass
class Step:
    """What came of one step of a trainer.

    Attributes:
        prompts: The prompts whose completions were rewarded, in turn.
        completions: Their text.
        tokens: Their ids.
        weights: The model's parameters afterwards.
        random: The state of the random generator afterwards.
    """

    prompts: list[str] = field(default_factory=list)
    completions: list[str] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    random: Tensor = field(default_factory=torch.get_rng_state)

    def reward(self, prompts: list[str], completions: list[str], completion_ids: Any = (), **_: Any) -> list[float]:
        """Notes what was completed; the reward differs from one completion to the next."""
        self.prompts += prompts
        self.completions += completions
        self.tokens += completion_ids
        return [float(sum(map(ord, text)) % 2) for text in completions]


def grpo(folder: Path, model: Any, tokenizer: Any, **settings: Any) -> Step:
    """One step of GRPO on all prompts, each with two completions."""
    step = Step()
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=len(TWICE),
        num_generations=2,
        learning_rate=1e-2,
        **ONE_STEP,
        **settings,
    )
    trainer = trl.GRPOTrainer(
        model=model,
        args=arguments,
        reward_funcs=step.reward,
        train_dataset=datasets.Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tokenizer,
    )
    return trained(trainer, step)


def trained(trainer: Any, step: Step) -> Step:
    trainer.train()
    step.weights = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    step.random = torch.get_rng_state()
    return step


@contextmanager
def installed() -> Iterator[None]:
    padfix.install("fix")
    yield
    padfix.uninstall()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_step_on_left_padded_prompts_is_the_one_without_padfix_bit_for_bit(tmp_path: Path, checkpointing: bool) -> None:
    settings = {"temperature": 5.0, "gradient_checkpointing": checkpointing}
    (model, tokenizer), (other, _) = embedded(), embedded()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    stock = grpo(tmp_path, model, tokenizer, **settings)
    with installed():
        step = grpo(tmp_path, other, tokenizer, **settings)
    assert step.tokens == stock.tokens
    assert torch.equal(step.random, stock.random)
    assert all(torch.equal(step.weights[name], weight) for name, weight in stock.weights.items())
    assert not any(torch.equal(step.weights[name], weight) for name, weight in before.items())  # it has learned


def test_completions_under_a_flag_are_those_that_prompts_get_alone(tmp_path: Path) -> None:
    settings = {"top_k": 1, "generation_kwargs": COUNTS_PADS}
    model, tokenizer = embedded()
    wanted = dict(zip(PROMPTS, recipes.alone(model, tokenizer, **COUNTS_PADS), strict=True))
    stock = grpo(tmp_path, embedded()[0], tokenizer, **settings)
    with installed():
        step = grpo(tmp_path, model, tokenizer, **settings)
    assert sorted(step.prompts) == sorted(TWICE)
    assert step.completions == [wanted[prompt] for prompt in step.prompts]
    assert stock.completions != [wanted[prompt] for prompt in stock.prompts]


def test_completions_of_a_model_that_left_padding_does_not_make_exact_are_right(tmp_path: Path) -> None:
    _, tokenizer = embedded()
    wanted = dict(zip(PROMPTS, recipes.alone(build("blenderbot", dropout=0.0), tokenizer), strict=True))
    settings = {"top_k": 1, "gradient_checkpointing": False}
    stock = grpo(tmp_path, build("blenderbot", dropout=0.0), tokenizer, **settings)
    with installed():
        step = grpo(tmp_path, build("blenderbot", dropout=0.0), tokenizer, **settings)
    assert step.completions == [wanted[prompt] for prompt in step.prompts]
    assert stock.completions != [wanted[prompt] for prompt in stock.prompts]


def a2po(folder: Path, side: str) -> tuple[Step, list[str]]:
    """One step of A*-PO with a tokenizer that pads on that side, and what each prompt would have got alone."""
    trainers = pytest.importorskip("trl.experimental.a2po")
    model, tokenizer = embedded()
    wanted = dict(zip(PROMPTS, recipes.alone(model, tokenizer, add_special_tokens=False), strict=True))
    tokenizer.padding_side = side
    step = Step()
    arguments = trainers.A2POConfig(
        output_dir=str(folder),
        per_device_train_batch_size=len(PROMPTS),
        num_value_samples=2,
        filter_all_incorrect=False,
        top_k=1,
        **ONE_STEP,
    )
    dataset = datasets.Dataset.from_dict({"prompt": PROMPTS})
    trainer = trainers.A2POTrainer(
        model=model, args=arguments, reward_funcs=step.reward, train_dataset=dataset, processing_class=tokenizer
    )
    trained(trainer, step)
    return step, [wanted[prompt] for prompt in step.prompts]


@pytest.mark.parametrize("side", ["left", "right"])
def test_completions_of_prompts_that_a_trainer_pads_as_the_tokenizer_does_are_right(tmp_path: Path, side: str) -> None:
    stock, wanted = a2po(tmp_path, side)
    assert (stock.completions != wanted) is (side == "right")
    with installed():
        step, wanted = a2po(tmp_path, side)
    assert step.completions == wanted
    assert len(wanted) == 3 * len(PROMPTS)  # two of the reference, one of the model


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found")
def test_recipe(tmp_path: Path) -> None:
    model, tokenizer = embedded()
    step = Step()
    recipes.run("TRL", model=model, tokenizer=tokenizer, reward=step.reward, folder=str(tmp_path))
    lengths = [len(tokenizer(prompt)["input_ids"]) for prompt in step.prompts]
    totals = [length + len(reply) for length, reply in zip(lengths, step.tokens, strict=True)]
    assert min(lengths) < COUNTS_PADS["min_length"] < min(totals)
