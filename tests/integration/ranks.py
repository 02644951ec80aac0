"""What each rank of a process group gets from `generate`: run by torchrun, for test_ranks.py.

    python -m torch.distributed.run --nproc-per-node 2 ranks.py FOLDER

Every case of `CASES` runs on all ranks, each with its own batch, and leaves `FOLDER/NAME-RANK.json`: how many forwards
there were, by which strategy, what padfix warned of, and where the replies are not those of the prompts alone. The last
one raises on rank 0 alone.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from oracle import ROWS, alone, build, compare, left_padded, right_padded, together
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import padfix
from padfix.demo.prompts import embedded_prompts
from padfix.loading import EMBEDDED, embedded
from padfix.strategies import packed_prefill

PAD = 57
WAIT = 20  # seconds after which a rank that waits for another gives up

LONG = [[*range(40, 52)], [61, 24, 9], [5, 17, 33, 8, 61]]
RAGGED = [ROWS[0] * 8, *ROWS]  # packed where it may be
FULL = [ROWS[0], [8, 61, 24, 9, 5, 17, 33]]

Padder = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One call on every rank.

    Attributes:
        model: What it is called on, of `WRAPPERS` and a name.
        batches: The rows of each rank and how they are padded.
        flags: What is passed beside them.
        ends_early: Whether the replies of rank 0 end after two tokens, by its EOS.
        pads: The columns of pads behind the longest row, on rank 0.
        exact: Whether every row gets what its prompt gets alone, for each rank.
    """

    model: tuple[str, str]
    batches: tuple[tuple[Padder, list[list[int]]], ...]
    flags: Mapping[str, Any] = field(default_factory=dict)
    ends_early: bool = False
    pads: int = 0
    exact: tuple[bool, bool] = (True, True)


class Unknown(LlamaForCausalLM):
    """A class that stands in no table."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


def unknown() -> Any:
    model = build("llama")
    model.__class__ = Unknown
    return model


def made(name: str) -> Any:
    return unknown() if name == "unknown" else build(name)


def sharded(model: Any) -> Any:
    """The model under FSDP2, each layer and the whole."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sharded_layers(model: Any) -> Any:
    """The model with its layers under FSDP2, which `generate` cannot tell."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    return model


def layers(model: Any) -> Any:
    return next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))


WRAPPERS: Mapping[str, Callable[[Any], Any]] = {
    "fsdp2": sharded,
    "fsdp2 layers": sharded_layers,
    "ddp": lambda model: DistributedDataParallel(model).module,
    "none": lambda model: model,
}

CASES: Mapping[str, Case] = {
    "right-padded, full": Case(("fsdp2", "llama"), ((right_padded, ROWS), (right_padded, FULL))),
    "left-padded, right-padded": Case(("fsdp2", "llama"), ((left_padded, ROWS), (right_padded, LONG))),
    "synced_gpus": Case(
        ("fsdp2", "llama"), ((right_padded, LONG), (left_padded, ROWS)), {"synced_gpus": True, "num_beams": 2}
    ),
    "ends early": Case(("fsdp2", "llama"), ((right_padded, ROWS), (right_padded, LONG)), ends_early=True),
    "worth packing, full": Case(("fsdp2", "llama"), ((right_padded, RAGGED), (right_padded, FULL))),
    "unknown class": Case(("fsdp2", "unknown"), ((right_padded, ROWS), (right_padded, FULL))),
    "not exact": Case(("fsdp2", "blenderbot"), ((right_padded, ROWS), (right_padded, FULL)), exact=(False, True)),
    "not exact, synced_gpus=False": Case(
        ("fsdp2", "blenderbot"),
        ((right_padded, ROWS), (right_padded, FULL)),
        {"synced_gpus": False},
        exact=(False, True),
    ),
    "not exact, some layers sharded": Case(
        ("fsdp2 layers", "blenderbot"), ((right_padded, ROWS), (right_padded, FULL)), exact=(False, True)
    ),
    "one row and its pads": Case(("fsdp2", "blenderbot"), ((right_padded, ROWS[:1]), (right_padded, FULL)), pads=5),
    "chunks": Case(("fsdp2", "llama"), ((right_padded, ROWS), (right_padded, LONG)), {"prefill_chunk_size": 4}, pads=5),
    "ddp": Case(("ddp", "llama"), ((right_padded, ROWS), (left_padded, LONG))),
    "ddp, not exact": Case(("ddp", "blenderbot"), ((right_padded, ROWS), (left_padded, FULL))),
}


def report(name: str, folder: Path) -> None:
    """Runs a case on this rank and writes down what came of it."""
    case, rank = CASES[name], dist.get_rank()
    wrapper, kind = case.model
    pad, rows = case.batches[rank]
    flags: dict[str, Any] = {"pad_token_id": PAD, **case.flags}
    plain = made(kind)
    if case.ends_early and rank == 0:
        flags["eos_token_id"] = [reply.tokens[1] for reply in alone(plain, rows, **flags)]
    wanted = alone(plain, rows, **{**flags, "synced_gpus": None, "prefill_chunk_size": None})
    model = WRAPPERS[wrapper](plain if wrapper == "none" else copy.deepcopy(plain))
    batch = pad(rows, pad=PAD, extra=0 if rank else case.pads)
    write(folder, name, outcome(model, batch, wanted, flags))


def outcome(model: Any, batch: Mapping[str, Any], wanted: Any, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What one call gives: forwards, strategies, warnings, and where its replies are not the wanted ones."""
    forwards, before = 0, padfix.stats()

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1

    count.__module__ = "torch"  # hooks of others would keep padfix from more than one call
    hook = model.register_forward_pre_hook(count)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replies = together(model, batch, **flags)
    hook.remove()
    try:
        compare(replies, wanted)
        wrong = ""
    except AssertionError as error:
        wrong = str(error)
    after = padfix.stats()
    strategies = [one for one in after.strategies if after.strategies[one] != before.strategies.get(one)]
    said = [str(one.message) for one in caught if issubclass(one.category, padfix.PadfixWarning)]
    return {"forwards": forwards, "strategies": strategies, "warnings": said, "wrong": wrong}


def tensor_parallel(folder: Path) -> None:
    """The same batch on every rank of a model whose layers are split between them, by each strategy."""
    plain, tokenizer = embedded()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the keyword, which older releases have alone
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED, tp_plan="auto")
    rows = [tokenizer(prompt)["input_ids"] for prompt in embedded_prompts()]
    batch = right_padded(rows, pad=plain.generation_config.pad_token_id)
    here, whole = (sum(one.numel() for one in local(each)) for each in (model, plain))
    for strategy in ("left_pad", "equal_length"):
        with padfix.override(strategy=strategy):
            found = outcome(model, batch, alone(plain, rows), {})
        write(folder, f"tensor parallel, {strategy}", {**found, "share": here / whole})


def local(model: Any) -> list[torch.Tensor]:
    return [one.to_local() if hasattr(one, "to_local") else one for one in model.parameters()]


def write(folder: Path, name: str, content: Any) -> None:
    (folder / f"{name}-{dist.get_rank()}.json").write_text(json.dumps(content))


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    dist.init_process_group("gloo", timeout=timedelta(seconds=WAIT))
    packed_prefill.fewest_saved = lambda *_: 1
    padfix.install("fix")
    for name in CASES if len(sys.argv) < 3 else sys.argv[2:]:
        report(name, folder)
    tensor_parallel(folder)
    with padfix.override("strict"):
        batch = right_padded(ROWS) if dist.get_rank() == 0 else right_padded(FULL)
        write(folder, "strict", {})
        sharded(build("llama")).generate(**batch)


if __name__ == "__main__":
    main()
