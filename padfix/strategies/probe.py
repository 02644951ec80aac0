"""A trial run of a model that stands in no table, to see whether left padding is exact for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from ..forks import at_fork
from ..generation.adapters import adapters_of_rows, has_forward_hooks
from ..generation.apart import group_bound, of_rows
from ..generation.call import GenerateCall
from ..generation.compat import (
    CACHE_NAMES,
    eos_ids,
    positional_parameters,
    several_ranks,
    steps_together,
)
from ..generation.lengths import position_limit
from ..generation.limits import misfits
from ..generation.media import media_of
from ..generation.traits import Traits
from ..generation.untouched import untouched
from ..layout.plan import LayoutPlan
from ..notices import info_once, warn_once
from .job import Job
from .left_pad import to_model, valid_pad_id

__all__ = ["OUT_OF_MEMORY", "PADS", "STEPS", "probed"]

# On whatever device. Another call, or fewer prompts, may still have room.
OUT_OF_MEMORY = (MemoryError, torch.cuda.OutOfMemoryError)

# The columns of pads before the longest prompt, and the new tokens: one token is not enough, since of the models that
# left padding gets wrong about half are exact on the first.
PADS, STEPS = 8, 6
# The second prompt has this many tokens, if one has.
FEWEST = 4
# The largest difference of logits that counts as none, in units of their scale; for narrow dtypes, of their precision.
TOLERANCE, NARROW = 1e-4, 8.0


@dataclass(frozen=True)
class _Verdict:
    """What came of a trial run.

    Attributes:
        exact: Whether the left-padded rows got what they get alone.
        columns: The number of columns that it had; it stands for batches up to twice as wide.
        attention: The model's attention implementation at that time.
    """

    exact: bool
    columns: int
    attention: Any


_verdicts: WeakKeyDictionary[Any, _Verdict] = WeakKeyDictionary()
_lock = threading.RLock()  # a trial run may call generate within


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()  # a thread that is not there may hold the parent's


at_fork(in_child=_in_child)


def probed(traits: Traits, job: Job, original: Callable[..., Any]) -> Traits:
    """The traits of an unknown model after a trial run: exact, or to be run one row at a time.

    Two prompts of the batch, each alone and both left-padded, get the same few tokens; what is compared is the logits
    of each step. Remembered for the model. Where none can be made, the model is taken for exact, and a warning says so.

    Cost: three short calls of `original` (four in narrow dtypes), once for a model and again for batches more than
    twice as wide.
    """
    model, name = job.call.model, traits.name
    with _lock:
        verdict = _verdicts.get(model)
        attention = getattr(model.config, "_attn_implementation", None)
        if verdict is None or verdict.attention != attention or job.plan.model_width > 2 * verdict.columns:
            trial = _Trial(job, original)
            why_not = trial.obstacle()
            seen = None if why_not else trial.is_exact()
            if seen is None:
                warn_once(
                    f"{name} stands in no table of padfix, and cannot be tried out here: "
                    f"{why_not or 'a prompt alone fails'}. Left padding is taken to be exact for it; "
                    "padfix.register_architecture says whether it is.",
                    type(model),
                )
                return traits
            verdict = _verdicts[model] = _Verdict(seen, job.plan.model_width, attention)
            found = "exact" if seen else "not exact: its rows run one at a time"
            info_once(f"{name} stands in no table of padfix; in a trial run left padding was {found}.", type(model))
    if verdict.exact:
        return replace(traits, known=True)
    reason = "in a trial run its left-padded rows differed from the prompts alone"
    return replace(traits, known=True, exact_up_to=0, reason=reason, one_at_a_time=True)


class _Trial:
    """Two rows of a batch, to be run alone and left-padded."""

    def __init__(self, job: Job, original: Callable[..., Any]) -> None:
        self.call, self.original = _bare(job.call), original
        self.config = job.config
        self.real = job.plan.to_caller(job.plan.real, fill=False)
        lengths = job.plan.lengths
        by_length = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: lengths[row])
        others = by_length[:-1]
        self.rows = [*by_length[-1:], *([row for row in others if lengths[row] >= FEWEST] or others[-1:])[:1]]
        self.lengths = [lengths[row] for row in self.rows]
        limit = position_limit(job.call.model)  # a table of positions that is overrun is a fault of the device
        self.pads = PADS if limit is None else max(0, min(PADS, limit - STEPS - max(self.lengths)))
        self.tokens = self._forced()

    def obstacle(self) -> str:
        """Why the model cannot be tried out; empty where it can."""
        model = self.call.model
        if steps_together(self.call) or several_ranks():
            return "ranks have to run the same number of forwards"
        if has_forward_hooks(model, self.call.batch):
            return "forward hooks would see the trial run"
        if model.training:
            return "the model is in training mode"
        if not self.tokens or (self.pads == 0 and len(set(self.lengths)) < 2):
            return "the prompts leave no room for it"
        plan = LayoutPlan.from_mask(self.real)
        return "; ".join((*misfits(self.call), *group_bound(self.call, self.config, plan)))

    def is_exact(self) -> bool | None:
        """Whether each row gets left-padded what it gets alone; None where a prompt alone cannot be run."""
        with untouched(self.call.model), torch.no_grad():
            try:
                alone = [self._logits([row], 0) for row in self.rows]
                tolerance = self._tolerance(alone[0])
            except Exception:  # then the call itself fails, and says why
                return None
            try:
                together = self._logits(self.rows, self.pads)
            except OUT_OF_MEMORY:
                return None
            except Exception:  # such as an index out of range: pads were taken for tokens
                return False
        return all(_alike(one, together[:, row : row + 1], tolerance) for row, one in enumerate(alone))

    def _logits(self, rows: Sequence[int], pads: int) -> Tensor:
        """The logits of shape (steps, rows, vocabulary) for some rows, with columns of pads before the longest."""
        part = of_rows(self.call, rows, media_of(self.call, self.real))
        plan = LayoutPlan.from_mask(self.real[torch.tensor(rows, device=self.real.device)])
        moved = _padded(to_model(part, self.config, plan, pad_aware=True), self.config, pads)
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=len(self.tokens),
            num_beams=1,
            num_return_sequences=1,
            output_logits=True,
            pad_token_id=valid_pad_id(self.call, self.config),
            return_dict_in_generate=True,
            use_cache=self.config.use_cache,
        )
        forced = LogitsProcessorList([_Forced(self.tokens)])
        steered = {"generation_config": config, "logits_processor": forced}
        with adapters_of_rows(self.call.model, rows, self.call.batch):
            output = self.original(self.call.model, **moved.arguments, **steered)
        return torch.stack([one.float() for one in output.logits])

    def _tolerance(self, alone: Tensor) -> float:
        scale = max(1.0, float(alone.abs().nan_to_num(0, 0, 0).max()))
        dtype = self.call.model.dtype
        if torch.finfo(dtype).bits >= 32:
            return TOLERANCE * scale
        copies = self._logits([self.rows[0]] * 2, 0)[:, :1]
        noise = float((copies - alone).abs().nan_to_num(0, 0, 0).max())
        return NARROW * max(noise, torch.finfo(dtype).eps * scale)

    def _forced(self) -> list[int]:
        """The new tokens of every row: the longest prompt's own, none of which ends it."""
        ends = {*eos_ids(self.config), *eos_ids(self.call.model.generation_config)}
        ids = self.call.ids
        own = range(STEPS + len(ends)) if ids is None else ids[self.rows[0]][self.real[self.rows[0]]].tolist()
        tokens = [token for token in own if token not in ends]
        return (tokens * STEPS)[:STEPS]


class _Forced(LogitsProcessor):
    """Gives every row the same token at each step, whatever the scores."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.tokens.pop(0)] = 0
        return forced


def _bare(call: GenerateCall) -> GenerateCall:
    """The call without what steers decoding: what remains goes to the model's forward."""
    steering = {*positional_parameters(), *vars(GenerationConfig()), *CACHE_NAMES} - {call.ids_name}
    return call.without(*(name for name, value in call.arguments.items() if name in steering or value is None))


def _padded(call: GenerateCall, config: GenerationConfig, columns: int) -> GenerateCall:
    """A call in the model's layout with columns of pads in front."""
    fills: dict[str, tuple[int, float]] = {call.mask_name: (1, 0)}
    if call.ids_name is not None:
        fills[call.ids_name] = (1, valid_pad_id(call, config))
    fills |= {name: (axes.prompt, axes.fill) for name, axes in call.sequence_axes.items() if call.get(name) is not None}
    changes = {}
    for name, (axis, fill) in fills.items():
        value = call.arguments[name]
        shape = list(value.shape)
        shape[axis] = columns
        changes[name] = torch.cat((value.new_full(shape, fill), value), axis)
    return call.changed(changes)


def _alike(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Whether logits are the same but for a tolerance; an infinity or NaN is like itself alone."""
    same = (one == other) | (one.isnan() & other.isnan()) | ((one - other).abs() <= tolerance)
    return one.shape == other.shape and bool(same.all())
