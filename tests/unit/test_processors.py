"""The twins of the library's processors: in a padded batch each row gets what the stock processor gives it alone."""

from __future__ import annotations

import copy
import functools
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation import logits_process
from transformers.generation import stopping_criteria as criteria

from padfix.generation.compat import encoder_penalty_reaches_every_row, repetition_penalty_skips_pads
from padfix.generation.history import History
from padfix.generation.processors import COLUMN_FIELDS, TWINS, Scene, in_model_columns
from padfix.layout.plan import LayoutPlan

stock: Any = logits_process
stopping_criteria: Any = criteria

VOCABULARY, EOS = 50, 2
# Few ids, the pads' among them, so that n-grams, penalties and biases meet what they look for.
FEW = (3, 4, 5, 6, 0, EOS)
PADS = (0, 5, 41)

SKIPS_A_PROMPT = "prompt_ignore_length" in inspect.signature(stock.RepetitionPenaltyLogitsProcessor).parameters
needs_ignore_length = pytest.mark.skipif(not SKIPS_A_PROMPT, reason="this release has no prompt_ignore_length")


class Letters:
    """A tokenizer whose token `i` reads as one or two letters."""

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [-1]}

    def _convert_id_to_token(self, token: int) -> str:
        return "abcdef"

    def get_vocab(self) -> dict[str, int]:
        return {f"token {token}": token for token in range(VOCABULARY)}

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        numbers = [int(one.removeprefix("token ")) for one in tokens[1:]]
        return tokens[0] + "".join("pqrs"[number % 4] * (1 + number % 2) for number in numbers)


@dataclass(frozen=True)
class Batch:
    """Prompts with their pads, in the caller's layout and the model's."""

    rows: list[list[int]]
    mask: Tensor
    prompt: Tensor
    history: History

    @classmethod
    def drawn(cls, seed: int, *, trim: bool, least: int = 1) -> Batch:
        """Three or four prompts of a few ids, one of them of the least length, with pads anywhere."""
        draw = random.Random(seed)
        lengths = [least, *(draw.randint(least, 7) for _ in range(draw.randint(2, 3)))]
        rows = [[draw.choice(FEW) for _ in range(length)] for length in lengths]
        width = max(lengths) + draw.choice((0, 1, 2))
        prompt, mask = torch.full((len(rows), width), PADS[seed % 3]), torch.zeros(len(rows), width)
        for row, tokens in enumerate(rows):
            places = sorted(draw.sample(range(width), len(tokens)))
            prompt[row, places], mask[row, places] = torch.tensor(tokens), 1
        return cls(rows, mask, prompt, History(LayoutPlan.from_mask(mask, trim=trim), prompt))

    @property
    def moved(self) -> Tensor:
        return self.history.plan.to_model(self.prompt, fill=int(self.prompt[0, 0]))


def drawn_steps(seed: int, rows: int, steps: int = 5) -> list[tuple[Tensor, Tensor]]:
    """For each step the new tokens so far, of shape (rows, steps before), and the scores."""
    generator = torch.Generator().manual_seed(seed)
    new = torch.tensor(FEW)[torch.randint(0, len(FEW), (rows, steps), generator=generator)]
    return [(new[:, :step], torch.randn(rows, VOCABULARY, generator=generator)) for step in range(steps)]


def as_alone(batch: Batch, twin: Any, each: Callable[[int], Any], *, copies: int, seed: int) -> bool:
    """Fails unless the twin gives each row what `each(row)`, a stock processor, gives it without pads.

    Says whether the stock processors have changed any score: else it would prove nothing.
    """
    lonely = [each(row) for row in range(len(batch.rows))]
    effective = False
    for step, (new, scores) in enumerate(drawn_steps(seed, len(batch.rows) * copies)):
        ids = torch.cat((batch.moved.repeat_interleave(copies, 0), new), 1)
        before, kept = scores.clone(), ids.clone()
        got = twin(ids, scores)
        assert torch.equal(ids, kept), "the ids were written to"
        for row, tokens in enumerate(batch.rows):
            at = slice(row * copies, (row + 1) * copies)
            alone = torch.cat((torch.tensor([tokens] * copies), new[at]), 1)
            want = lonely[row](alone, before[at].clone())
            assert torch.equal(got[at], want), f"row {row} ({tokens}), step {step}"
            effective = effective or not torch.equal(want, before[at])
    return effective


# A stock processor for a prompt: the encoder's ids, of shape (rows, columns), are given.
Make = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Case:
    """A processor as `generate` makes it, with the flags that it is made from."""

    make: Make
    flags: Mapping[str, Any] = field(default_factory=dict)
    copies: tuple[int, ...] = (1, 3)

    def alone(self, batch: Batch, row: int) -> Any:
        """The stock processor for one of the prompts, without pads."""
        return self.make(torch.tensor([batch.rows[row]]))


BIASES = {(3,): 2.0, (4, 5): -3.0, (5, 3, 4): 7.0, (0, 0): 4.0, (5, 5): 1.5}
BAD_WORDS = [[3], [4, 5], [5, 3, 6], [0, 4], [41, 3]]


@functools.cache
def watermark(scheme: str, width: int) -> Any:
    """One processor for all rows: it keeps nothing of one call for the next, and its table takes long to make."""
    return stock.WatermarkLogitsProcessor(
        VOCABULARY, "cpu", greenlist_ratio=0.5, bias=2.0, seeding_scheme=scheme, context_width=width
    )


def banning_ngrams(size: int) -> Make:
    return lambda ids: stock.NoRepeatNGramLogitsProcessor(size)


def banning_the_encoders(size: int) -> Make:
    return lambda ids: stock.EncoderNoRepeatNGramLogitsProcessor(size, ids)


# Up to 5.0 it reaches the first rows alone, as many as there are prompts, and stays out where rows are more.
ENCODER_COPIES = (1, 3) if encoder_penalty_reaches_every_row() else (1,)

CASES: Mapping[str, Case] = {
    "repetition_penalty": Case(lambda ids: stock.RepetitionPenaltyLogitsProcessor(1.7)),
    "encoder_repetition_penalty": Case(
        lambda ids: stock.EncoderRepetitionPenaltyLogitsProcessor(1.7, ids), copies=ENCODER_COPIES
    ),
    **{f"no_repeat_ngram_size={size}": Case(banning_ngrams(size)) for size in (1, 2, 3)},
    **{f"encoder_no_repeat_ngram_size={size}": Case(banning_the_encoders(size)) for size in (1, 2, 3)},
    "sequence_bias": Case(lambda ids: stock.SequenceBiasLogitsProcessor(dict(BIASES))),
    "bad_words_ids": Case(lambda ids: stock.NoBadWordsLogitsProcessor([list(one) for one in BAD_WORDS], EOS)),
    "lefthash": Case(lambda ids: watermark("lefthash", 2)),
    "selfhash": Case(lambda ids: watermark("selfhash", 4)),
    "min_length": Case(lambda ids: stock.MinLengthLogitsProcessor(6, EOS), {"min_length": 6}),
    "forced_bos_token_id": Case(lambda ids: stock.ForcedBOSTokenLogitsProcessor(9), {"forced_bos_token_id": 9}),
    "stop_strings": Case(lambda ids: stopping_criteria.StopStringCriteria(Letters(), ["qqp", "ps", "rrqs"])),
}


@pytest.mark.parametrize("by_caller", [False, True], ids=["library's", "caller's"])
@pytest.mark.parametrize("name", CASES)
def test_a_row_gets_what_it_gets_alone(name: str, by_caller: bool) -> None:
    case = CASES[name]
    changed = []
    for seed in range(12):
        batch = Batch.drawn(seed, trim=seed % 2 == 0)
        # What the caller makes, it makes from the prompt as it passes it.
        processor = case.make(batch.prompt.clone() if by_caller else batch.moved)
        config = GenerationConfig(**({} if by_caller else case.flags))
        scene = Scene(batch.history, config, None if by_caller else batch.moved, by_caller)
        twin = TWINS[type(processor)](processor, scene)
        copies = case.copies[seed % len(case.copies)]
        changed.append(as_alone(batch, twin, lambda row: case.alone(batch, row), copies=copies, seed=seed))  # noqa: B023
    assert any(changed)


@pytest.mark.parametrize("name", CASES)
def test_the_processor_stays_as_it_was(name: str) -> None:
    batch = Batch.drawn(1, trim=True)
    for by_caller in (False, True):
        processor = CASES[name].make(batch.prompt.clone() if by_caller else batch.moved)
        kept = {key: value for key, value in vars(processor).items() if isinstance(value, (int, float, Tensor))}
        copies = {key: copy.deepcopy(value) for key, value in kept.items()}
        scene = Scene(batch.history, GenerationConfig(**CASES[name].flags), batch.moved, by_caller)
        TWINS[type(processor)](processor, scene)(batch.moved, torch.zeros(len(batch.rows), VOCABULARY))
        for key, value in kept.items():
            # A bias prepares its tables at its first call, wherever that is.
            assert vars(processor)[key] is value or key in ("prepared_bias_variables", "length_1_bias")
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(copies[key]))


def test_every_twin_has_a_case_here_or_in_the_tests_of_guidance() -> None:
    there = {type(case.make(torch.tensor([[3, 4, 5, 6]]))) for case in CASES.values()}
    apart = {stock.SuppressTokensAtBeginLogitsProcessor, stock.UnbatchedClassifierFreeGuidanceLogitsProcessor}
    assert there | apart == set(TWINS)


ENCODER = [name for name in CASES if name.startswith("encoder")]


@pytest.mark.parametrize("same_shape", [True, False])
@pytest.mark.parametrize("name", ENCODER)
def test_a_processor_made_from_other_ids_keeps_them(name: str, same_shape: bool) -> None:
    changed = []
    for seed in range(6):
        batch = Batch.drawn(seed, trim=True)
        shape = batch.prompt.shape if same_shape else (len(batch.prompt), 3)
        generator = torch.Generator().manual_seed(seed)
        other = torch.tensor(FEW)[torch.randint(0, len(FEW), tuple(shape), generator=generator)]
        processor = CASES[name].make(other)
        twin = TWINS[type(processor)](processor, Scene(batch.history, GenerationConfig(), None, by_caller=True))
        lonely = [CASES[name].make(other[row : row + 1]) for row in range(len(batch.rows))]
        changed.append(as_alone(batch, twin, lonely.__getitem__, copies=1, seed=seed))
    assert any(changed)


@pytest.mark.parametrize("name", ENCODER)
def test_beside_embeddings_alone_a_processor_of_the_callers_keeps_its_ids(name: str) -> None:
    batch = Batch.drawn(1, trim=True)
    history = History(batch.history.plan, None)
    other = torch.tensor([[3, 4, 5, 3, 4]] * len(batch.rows))
    processor = CASES[name].make(other)
    twin = TWINS[type(processor)](processor, Scene(history, GenerationConfig(), None, by_caller=True))
    for new, scores in drawn_steps(1, len(batch.rows)):
        if new.shape[1] > 0:
            assert torch.equal(twin(new, scores.clone()), CASES[name].make(other)(new, scores.clone()))


# The repetition penalty, and what it leaves out.


@pytest.mark.skipif(not repetition_penalty_skips_pads(), reason="this release counts no pads")
def test_the_librarys_own_count_of_pads_is_not_needed() -> None:
    batch = Batch.drawn(1, trim=False)
    pads = batch.history.pads.of(torch.zeros(len(batch.rows), 1))
    processor = stock.RepetitionPenaltyLogitsProcessor(1.7, prompt_ignore_length=pads)
    twin = TWINS[type(processor)](processor, Scene(batch.history, GenerationConfig(), None))
    for copies in (1, 3):
        assert as_alone(batch, twin, lambda row: stock.RepetitionPenaltyLogitsProcessor(1.7), copies=copies, seed=1)
    assert processor.prompt_ignore_length is pads


def leaves_out(columns: int, *, trim: bool, copies: int) -> None:
    """Rows under a penalty of the caller's that leaves out `columns` columns, from the right if negative."""
    changed = []
    for seed in range(8):
        batch = Batch.drawn(seed, trim=trim)
        skipped = columns if columns > 0 else batch.prompt.shape[1] + columns
        processor = stock.RepetitionPenaltyLogitsProcessor(1.7, prompt_ignore_length=skipped)
        twin = TWINS[type(processor)](processor, Scene(batch.history, GenerationConfig(), None, by_caller=True))
        counts = [int(row[:skipped].sum()) for row in batch.mask]
        lonely = [stock.RepetitionPenaltyLogitsProcessor(1.7, prompt_ignore_length=count) for count in counts]
        changed.append(as_alone(batch, twin, lonely.__getitem__, copies=copies, seed=seed))
        assert processor.prompt_ignore_length == skipped
    assert any(changed)


@needs_ignore_length
@pytest.mark.parametrize("trim", [True, False])
def test_a_penalty_of_the_callers_leaves_out_the_callers_prompt(trim: bool) -> None:
    for copies in (1, 3):
        leaves_out(0, trim=trim, copies=copies)


@needs_ignore_length
@pytest.mark.parametrize("columns", [1, 2, -1])
def test_a_penalty_of_the_callers_leaves_out_some_columns(columns: int) -> None:
    leaves_out(columns, trim=True, copies=2)


# Counts of columns.


def test_min_length_made_from_min_new_tokens_counts_columns_as_it_is() -> None:
    batch = Batch.drawn(1, trim=True)
    least = batch.history.width + 2
    processor = stock.MinLengthLogitsProcessor(least, EOS)
    config = GenerationConfig(min_new_tokens=2)
    assert TWINS[type(processor)](processor, Scene(batch.history, config, None)) is processor
    # A number of the caller's own counts tokens.
    by_caller = TWINS[type(processor)](processor, Scene(batch.history, config, None, by_caller=True))
    assert as_alone(batch, by_caller, lambda row: stock.MinLengthLogitsProcessor(least, EOS), copies=2, seed=1)


def test_min_length_beside_embeddings_alone_counts_their_real_tokens_unless_the_caller_made_it() -> None:
    plan = LayoutPlan.from_mask(torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]))
    processor = stock.MinLengthLogitsProcessor(5, EOS)

    def banned(by_caller: bool) -> list[list[bool]]:
        scene = Scene(History(plan, None), GenerationConfig(min_length=5), None, by_caller)
        twin = TWINS[type(processor)](processor, scene)
        ids = [torch.zeros(4, new, dtype=torch.long) for new in (0, 1, 3, 5)]
        return [twin(one, torch.zeros(4, VOCABULARY))[:, EOS].isneginf().tolist() for one in ids]

    assert banned(False) == [[True] * 4, [False, False, True, True], [False] * 4, [False] * 4]
    assert banned(True) == [[True] * 4] * 3 + [[False] * 4]  # it sees no prompt, and counts what it sees


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("with_bos", [True, False])
def test_a_reply_begins_after_a_forced_bos(with_bos: bool, copies: int) -> None:
    config = GenerationConfig(begin_suppress_tokens=[3, 9], forced_bos_token_id=9 if with_bos else None)

    def suppressing(width: int) -> Any:  # as `generate` makes it
        begin = width if width > 1 or not with_bos else width + 1
        return stock.SuppressTokensAtBeginLogitsProcessor([3, 9], begin)

    changed = []
    for seed in range(6):
        batch = Batch.drawn(seed, trim=seed % 2 == 0)
        processor = suppressing(batch.history.width)
        begin = processor.begin_index
        twin = TWINS[type(processor)](processor, Scene(batch.history, config, None))
        assert (twin is processor) is not (with_bos and batch.history.has_pads)
        lonely = [suppressing(len(tokens)) for tokens in batch.rows]
        changed.append(as_alone(batch, twin, lonely.__getitem__, copies=copies, seed=seed))
        assert processor.begin_index == begin
    assert any(changed)


def test_where_no_pad_is_in_the_ids_the_begin_is_the_librarys() -> None:
    plan = LayoutPlan.from_mask(torch.tensor([[1, 0], [1, 0]]))
    config = GenerationConfig(begin_suppress_tokens=[3], forced_bos_token_id=9)
    processor = stock.SuppressTokensAtBeginLogitsProcessor([3], 2)
    for history in (History(plan, torch.tensor([[5, 0], [6, 0]])), History(plan, None)):
        assert TWINS[type(processor)](processor, Scene(history, config, None)) is processor


@pytest.mark.parametrize("name", ["forced_bos_token_id", "min_length"])
def test_scores_are_handed_back_where_no_row_is_concerned(name: str) -> None:
    batch = Batch.drawn(0, trim=True)
    processor = CASES[name].make(batch.moved)
    twin = TWINS[type(processor)](processor, Scene(batch.history, GenerationConfig(**CASES[name].flags), None))
    scores = torch.zeros(len(batch.rows), VOCABULARY)
    long = torch.cat((batch.moved, torch.full((len(batch.rows), 8), 3)), 1)
    assert twin(long, scores) is scores


# Columns of the caller's


def counting(width: int) -> dict[type, Any]:
    """Of each class that keeps a number of columns one that the caller made for a prompt of `width` columns."""
    made = (
        stock.AlternatingCodebooksLogitsProcessor(width, 20, 10),
        stock.ExponentialDecayLengthPenalty((1, 1.5), EOS, width),
        stock.ForcedEOSTokenLogitsProcessor(width + 4, EOS),
        stock.MinNewTokensLengthLogitsProcessor(width, 2, EOS),
        stock.SuppressTokensAtBeginLogitsProcessor([3, 9], width),
        stopping_criteria.MaxLengthCriteria(width + 3),
    )
    return {type(one): one for one in made}


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("kind", COLUMN_FIELDS, ids=lambda kind: kind.__name__)
def test_columns_that_the_caller_counted_are_counted_in_the_models_layout(kind: type, trim: bool) -> None:
    mask = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]])
    prompt = torch.tensor([[8, 3, 4, 5, 8, 8], [8, 6, 8, 8, 8, 8]])
    history = History(LayoutPlan.from_mask(mask, trim=trim), prompt)
    callers = counting(prompt.shape[1])[kind]
    kept = dict(vars(callers))
    moved: Any = in_model_columns(callers, history)
    changed = []
    for new, scores in drawn_steps(3, 2):
        ids = torch.cat((history.plan.to_model(prompt, fill=8), new), 1)
        got, want = moved(ids, scores.clone()), callers(history.to_caller(ids), scores.clone())
        assert torch.equal(got, want)
        changed.append(bool(want.any()) if want.dtype == torch.bool else not torch.equal(want, scores))
    assert any(changed)
    assert type(moved) is kind
    assert {key: value for key, value in vars(callers).items() if key != "eos_token_id"} == {
        key: value for key, value in kept.items() if key != "eos_token_id"
    }
    if trim:
        assert getattr(moved, COLUMN_FIELDS[kind]) == kept[COLUMN_FIELDS[kind]] - 3


@pytest.mark.parametrize("kind", COLUMN_FIELDS, ids=lambda kind: kind.__name__)
def test_beside_embeddings_alone_the_callers_columns_are_those_of_new_tokens(kind: type) -> None:
    callers = counting(3)[kind]
    plan = LayoutPlan.from_mask(torch.tensor([[0, 1, 1], [0, 1, 0]]))
    assert in_model_columns(callers, History(plan, None)) is callers
