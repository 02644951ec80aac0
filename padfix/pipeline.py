"""One call of `generate`, in eight steps: intercept, bind, detect, choose, re-lay, wrap, generate, restore.

`run` is what stands in the place of `GenerationMixin.generate` (intercept is patch.py); it reads as the list of its
steps. Steps five to eight belong to the strategy that step four chose; what stands in their way is in
generation/limits.py and generation/apart.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from . import notices, wording
from .errors import PadfixError, PadfixWarning, SettingsError
from .generation import apart, compat, lengths, limits, media
from .generation.cache import cache_bound
from .generation.call import GenerateCall, bind
from .generation.compat import CACHE_NAMES
from .generation.exceptions import ONE_TOKEN_GOES_ON, stands_in
from .generation.marks import remember
from .generation.pads import Found, detect, masked_padding
from .generation.start import start_bound
from .generation.traits import Traits, traits_of
from .layout.plan import LayoutPlan
from .nesting import assisted_by
from .refusals import leave, raise_if_misplaced, say, unread
from .settings import Settings
from .strategies import ONE_CALL, STRATEGIES, Strategy, choose, is_right_already, name_of, packs_too
from .strategies.encoder import encoder_aware
from .strategies.job import Job
from .strategies.left_pad import changes_nothing
from .strategies.probe import OUT_OF_MEMORY, probed

__all__ = [
    "Repair",
    "attempt",
    "choose_repair",
    "decide",
    "run",
]


def run(
    original: Callable[..., Any],
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    settings: Settings,
    hooks_in_place: Callable[[], AbstractContextManager[None]],
) -> Any:
    """The output of one call in the caller's layout: repaired, or the original's own where there is nothing to do.

    Within `hooks_in_place`, `generate` builds its lists of processors and criteria through generation/decoding.py.
    """
    notices.tally("calls")
    if getattr(model.config, "is_encoder_decoder", False) and settings.decoding == "pad_aware":
        original = encoder_aware(original, hooks_in_place, only_warn=settings.mode == "warn")
    call = bind(model, args, kwargs, compat.positional_parameters())
    if call is None:
        return original(model, *args, **kwargs)
    for watcher in notices.watchers():
        watcher.called(call)
    masked, found, repair = None, None, None
    try:
        masked = masked_padding(call)
        is_right = masked is not None and is_right_already(settings.strategy, call, masked)
        found = None if is_right else detect(call, masked)
        if is_right or found is not None:
            notices.tally("padded")
        repair = None if found is None else decide(call, found, settings, original)
    except PadfixError as error:
        notices.tell(error)
        raise
    except (PadfixWarning, *OUT_OF_MEMORY):  # a warning that a filter of the caller's makes an error
        raise
    except Exception as error:  # an argument may be of any kind
        return unread(lambda: original(model, *args, **kwargs), error, settings)
    if found is None:
        output = original(model, *args, **kwargs)
        remember(output, call, None if masked is None else masked.real)
        return output
    # An assistant's calls belong to this one: its caches have to come back to it as they are.
    assistant = call.get("assistant_model")
    with nullcontext() if assistant is None else assisted_by(assistant):
        if repair is None or repair.strategy is None:
            output = original(model, *args, **kwargs)
        else:
            call, plan, name = repair.job.call, repair.job.plan, name_of(repair.strategy)
            notices.ran(name, needed=repair.needed, pads=plan.pads, columns=plan.trim)
            with hooks_in_place():
                output = repair.strategy(repair.job, original)
    remember(output, call, found.padding.real, found.past)
    return output


@dataclass(frozen=True)
class Repair:
    """How a call can be made right.

    Attributes:
        job: The call and the layout that it would get.
        strategy: What runs it; None where no strategy is exact for the model.
        obstacles: What stands in the way, a phrase each; the call cannot be repaired where there are any.
        needed: Whether transformers would get the call wrong as it is.
        anew: Why the call, which is one without a cache, cannot go on from the cache that it brought.
    """

    job: Job
    strategy: Strategy | None
    obstacles: tuple[str, ...]
    needed: bool
    anew: tuple[str, ...] = ()


def decide(call: GenerateCall, found: Found, settings: Settings, original: Callable[..., Any]) -> Repair | None:
    """How to make the call right; None to leave it as it is, after having said so where it will be wrong.

    A model that stands in no table is tried out with `original` first.

    Raises:
        PadfixError: In strict mode, for whatever fix mode would repair by moving columns or would leave as it is.
        SettingsError: The strategy that the settings name is not exact here.
    """
    padding, config = found.padding, found.config
    unreadable = limits.unreadable_mask(call)
    if unreadable is not None:
        leave("", (unreadable,), settings, remedy=wording.PASS_MASK)
        return None
    prompt = wording.prompt(call)
    prompts = [(prompt, padding)]
    prompts += [] if found.negative is None else [(wording.negative_prompt(found.negative), found.negative)]
    if settings.mode == "strict":
        for where, each in prompts:
            raise_if_misplaced(where, each)
    if len(padding.empty) == len(padding.real) and not _goes_on(found):
        say(wording.empty(prompt, padding), settings)
        return None
    traits = traits_of(call.model)
    repair = choose_repair(call, found, traits, settings)
    call, found, repair = _without_cache(call, found, repair, traits, settings)
    padding = found.padding
    if not traits.known and settings.mode != "warn":
        again = choose_repair(call, found, _tried_out(traits, repair, original), settings)
        repair = replace(again, needed=again.needed or repair.needed, anew=repair.anew)
    packs = repair.strategy is STRATEGIES["packed_prefill"] and settings.mode != "warn"
    nothing_to_do = not repair.needed and not repair.obstacles and not packs
    if padding.empty and (nothing_to_do or settings.mode != "warn"):  # warn has one report a call site
        say(wording.empty(prompt, padding), settings)
    if nothing_to_do:
        return None
    if lengths.new_tokens(call, config) <= 0:
        return None  # transformers raises: max_length leaves no room for a new token
    where, seen = next((pair for pair in prompts if not bool(pair[1].real.all())), prompts[0])
    padded = " ".join(filter(None, (wording.padded(where, seen), wording.anew(repair.anew))))
    if settings.mode == "warn":
        helps = repair.strategy in ONE_CALL and not repair.anew
        remedy = wording.PAD_LEFT if seen.misplaced and helps else wording.USE_FIX
        sentences = (padded, wording.seen_by(repair.job.reads_history), remedy)
        leave(" ".join(filter(None, sentences)), repair.obstacles, settings)
        return None
    if repair.strategy is None and settings.strategy != "auto":
        raise SettingsError(f"{repair.obstacles[0]}. Set the strategy to 'auto'.")
    if repair.obstacles:
        leave(padded, repair.obstacles, settings)
        return None
    for where, each in prompts:
        if each.guessed:
            notices.warn(
                f"{wording.guessed(where, each)}: what exceeds the shortest run was taken for padding. Pass the "
                "tokenizer's mask to be sure and to silence this."
            )
    if 1 in repair.job.plan.lengths and stands_in(ONE_TOKEN_GOES_ON, call.model):
        notices.warn(
            f"{traits.name} takes a prompt of one token for a step of the call before, alone too: what such a row gets "
            "depends on that call. Give it a second token, such as BOS."
        )
    by_length = repair.strategy is STRATEGIES["equal_length"]
    is_same = repair.job.plan.is_identity and not repair.anew
    if by_length or not is_same or repair.job.reads_history or found.negative is not None:
        notices.info_once(f"{padded} Repaired.", notices.call_site())
    return repair


def choose_repair(call: GenerateCall, found: Found, traits: Traits, settings: Settings) -> Repair:
    """The repair that disturbs least.

    A batch that the caller left-padded keeps its columns where that is exact, and so does every batch where each new
    width costs the model a new graph, or other ranks a forward that they do not run. Else columns that are pads in
    every row are dropped: a batch without pads is exact for every model. Where left padding is not exact, or something
    stands in its way, rows of one length run apart.
    """
    keeps_width = compat.wants_fixed_shapes(call, found.config) or compat.width_counts_forwards(call, found.config)
    trims = bool(found.padding.misplaced) and not keeps_width
    first = attempt(call, found, traits, settings, trim=trims)
    repairs = [first]
    if first.obstacles and not trims:
        repairs.append(attempt(call, found, traits, settings, trim=True))
    if repairs[-1].obstacles and settings.strategy == "auto":
        repairs.append(attempt(call, found, traits, replace(settings, strategy="equal_length"), trim=False))
    if not repairs[-1].obstacles:
        return repairs[-1]
    if first.strategy is None and settings.strategy == "auto":  # what stands in the way of the one and of the other
        return replace(repairs[-1], obstacles=tuple(dict.fromkeys((*first.obstacles, *repairs[-1].obstacles))))
    return repairs[-1] if call.is_decoder_prompt else first


def _goes_on(found: Found) -> bool:
    """Whether the call goes on from cached columns."""
    return found.cache is not None and found.cache.columns > 0


def _without_cache(
    call: GenerateCall, found: Found, repair: Repair, traits: Traits, settings: Settings
) -> tuple[GenerateCall, Found, Repair]:
    """The call and its repair without the cache, where that is exact and with it none is."""
    if not repair.obstacles or found.cache is None or not found.cache.whole or not found.cache.is_one:
        return call, found, repair
    if settings.strategy == "packed_prefill" or compat.width_counts_forwards(call, found.config):
        return call, found, repair  # forced, and the cache stands in its way; other ranks may go on from theirs
    without = call.without(*CACHE_NAMES)
    again = detect(without, masked_padding(without)) or replace(
        found, cache=None, padding=replace(found.padding, cached=0)
    )
    other = choose_repair(without, again, traits, settings)
    if other.obstacles:
        return call, found, repair
    return without, again, replace(other, needed=True, anew=repair.obstacles)


def attempt(call: GenerateCall, found: Found, traits: Traits, settings: Settings, *, trim: bool) -> Repair:
    """The repair with or without columns that are pads in every row, and what stands in its way."""
    padding, config = found.padding, found.config
    # Up to 5.0 the mask of ids beside embeddings is inferred from the embeddings: all ones.
    guessed = bool(padding.guessed) or (padding.source == "inferred" and call.get(call.embeds_name) is not None)
    pad_aware = settings.decoding == "pad_aware"
    negative_width = 0 if found.negative is None else found.negative.real.shape[1]
    plan = LayoutPlan.from_mask(padding.real, trim=trim, cached=padding.cached)
    new_tokens = lengths.new_tokens(call, config)
    name, reason = choose(settings.strategy, traits, plan, new_tokens, past=found.past, negative_width=negative_width)
    if name in ("left_pad", "packed_prefill"):
        name, reason = packs_too(settings.strategy, call, config, traits, plan)
    obstacles = [reason] if name is None else []
    if name == "equal_length":
        obstacles += limits.layout_bound(call, config, pads_remain=False, apart=True)
        obstacles += apart.group_bound(call, config, plan)
        one_row = traits.one_at_a_time or found.negative is not None or apart.wants_one_row(call, config)
        job = Job(call, config, plan, rewrite=True, pad_aware=pad_aware, reads_history=(), one_row=one_row)
        return Repair(job, STRATEGIES[name], tuple(dict.fromkeys(obstacles)), needed=True)
    pads_behind = found.past is not None and not bool(found.past.all())
    pads_remain = plan.pads_remain or pads_behind
    if pads_remain:
        obstacles += [*limits.pad_bound(call, config), *start_bound(call, config, plan)]
    obstacles += limits.negative_bound(call) if found.negative is not None else ()
    obstacles += media.filled_up(call, padding.real)
    obstacles += limits.width_bound(call, config) if plan.trim else ()
    rewrite = not changes_nothing(call, config, plan, guessed=guessed)
    has_holes = padding.cached > 0 and plan.has_holes
    reads = tuple(limits.reads_history(call, config, has_holes=has_holes)) if plan.pads_remain and pad_aware else ()
    if not plan.is_identity:
        obstacles += limits.layout_bound(call, config, pads_remain=pads_remain)
    else:
        obstacles += limits.identity_bound(call) if rewrite else ()
        obstacles += limits.lookahead_bound(call, config) if pads_behind else ()
    if found.cache is not None:
        obstacles += cache_bound(call, found.cache, plan, found.past, new_tokens)
    job = Job(call, config, plan, rewrite, pad_aware=pad_aware, reads_history=reads, cache=found.cache, past=found.past)
    needed = rewrite or bool(reads) or (pad_aware and found.negative is not None)
    return Repair(job, STRATEGIES.get(name or ""), tuple(obstacles), needed)


def _tried_out(traits: Traits, repair: Repair, original: Callable[..., Any]) -> Traits:
    """The traits of a model that stands in no table, after a trial run where the model would see pads."""
    if repair.strategy is STRATEGIES["left_pad"] and repair.job.plan.pads_remain and not repair.obstacles:
        return probed(traits, repair.job, original)
    return replace(traits, one_at_a_time=True)
