"""What each mode does with each kind of batch, whom a warning points at, and what the settings decide."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import re
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from oracle import EOS, GREEDY, PADDERS, ROWS, alone, build, embedded, left_padded, right_padded
from stock import (
    REFUSED,
    assert_replies,
    assert_same,
    assert_stocks,
    expected,
    new_tokens,
    outcome,
    suppressed_outcome,
    unchanged,
)
from torch import Tensor

import padfix
from padfix import (
    AmbiguousPaddingError,
    PadfixError,
    PadfixWarning,
    RightPaddingError,
    SettingsError,
    UnsupportedCallError,
)

MODES = ("fix", "warn", "strict")
EQUAL = [ROWS[0], ROWS[0][::-1]]
ENDS_EARLY = {"min_length": 6, "eos_token_id": expected("llama")[1].tokens[0]}  # what ROWS[1] says first, alone


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="padfix"):
        yield


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.split(".")[0] == "padfix" and one.levelno == level]


class Cell(NamedTuple):
    """What comes of a call: `stock`, `repaired` or an error; and what the warnings and the INFO records say."""

    result: str | type[PadfixError]
    warns: str | None = None
    info: str | None = None


class Cells(NamedTuple):
    """A row of the table: what each mode makes of a kind of batch."""

    fix: Cell
    warn: Cell
    strict: Cell


class Kind(NamedTuple):
    """A kind of batch; `rows` are its prompts, to be compared with what they get alone under `flags`."""

    cells: Cells
    rows: Sequence[Sequence[int]]
    batch: Mapping[str, Tensor]
    flags: Mapping[str, Any] = {}
    model: str = "llama"
    pad_is_eos: bool = False


SILENT = Cell("stock")
LEAVES = "It runs as it is, and its padded rows may be wrong. (Take out what is named|Pass a mask)"
MISPLACED = r"Rows 1, 2 of input_ids \(shape \(3, 7\)\) have pads after real tokens"
PADDED = r"Rows 1, 2 of input_ids \(shape \(3, 7\)\) are padded\."
GUESSED = r"Rows 1, 2 of input_ids \(shape \(3, 7\)\) start or end in more pad ids than other rows"
EMPTY = r"Row 1 of input_ids \(shape \(4, 7\)\) has no real token"
OTHERS = r"Rows 2, 3 of input_ids \(shape \(4, 7\)\) have pads after real tokens"
FLAG = r"position_ids= of shape \(1, 1\), where the prompt has shape \(3, 7\)"
HISTORY = r"Pads are seen by min_length=6 \(it counts pads; min_new_tokens does not\)"
RWKV = r"RwkvForCausalLM \(rows of one batch change one another"
UNREADABLE = r"attention_mask= of shape \(3, 7\) with values other than 0 and 1"

STOCKS = Cells(SILENT, SILENT, SILENT)
RIGHT = Cells(
    fix=Cell("repaired", info=f"{MISPLACED}.* Repaired"),
    warn=Cell("stock", MISPLACED),
    strict=Cell(RightPaddingError),
)
WITH_EMPTY = [ROWS[0], [], *ROWS[1:]]


def _trimmed(rows: str) -> Cells:
    """Left-padded, not exact that way, and exact without the pads that all rows share."""
    repaired = Cell("repaired", info=f"{rows} Repaired")
    return Cells(fix=repaired, warn=Cell("stock", f'{rows} .*Use the mode "fix"'), strict=repaired)


def _left_repaired(warns: str) -> Cells:
    """Left-padded, not exact that way, and made right."""
    repaired = Cell("repaired", info=f"{PADDED} Repaired")
    return Cells(fix=repaired, warn=Cell("stock", warns), strict=repaired)


def _left(cause: str) -> Cells:
    """Left-padded and not exact that way."""
    return Cells(
        fix=Cell("stock", f"{PADDED} .*{cause}.*{LEAVES}"),
        warn=Cell("stock", f"{PADDED} .*{cause}"),
        strict=Cell(UnsupportedCallError),
    )


def _hopeless(cause: str) -> Cells:
    """Padded after real tokens, and there is no help."""
    return Cells(
        fix=Cell("stock", f"{MISPLACED}.*{cause}.*{LEAVES}"),
        warn=Cell("stock", f"{MISPLACED}.*{cause}"),
        strict=Cell(RightPaddingError),
    )


def _everywhere(warns: str) -> Cells:
    """A warning and stock's result in every mode."""
    return Cells(*[Cell("stock", warns)] * 3)


def _without_mask(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"input_ids": batch["input_ids"]}


def _doubled_mask(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"] * 2}


# Stands in the way of running rows of one length apart.
WHOLE = {"max_time": 600.0}

KINDS: Mapping[str, Kind] = {
    "no pads": Kind(STOCKS, EQUAL, right_padded(EQUAL)),
    "no pads, no mask": Kind(STOCKS, EQUAL, _without_mask(right_padded(EQUAL))),
    "left-padded, exact": Kind(STOCKS, ROWS, left_padded(ROWS)),
    "left-padded, exact, pads without an embedding row": Kind(
        Cells(Cell("repaired"), Cell("stock", f'{PADDED} Use the mode "fix"'), Cell("repaired")),
        ROWS,
        left_padded(ROWS, pad=104),
    ),
    "left-padded, flag not exact that way, pads shared": Kind(
        _trimmed(r"Rows 0, 1 of input_ids \(shape \(2, 8\)\) are padded\."),
        [ROWS[1], ROWS[1][::-1]],
        left_padded([ROWS[1], ROWS[1][::-1]], extra=5),
        flags=ENDS_EARLY,
    ),
    "left-padded, model not exact that way, pads shared": Kind(
        _trimmed(r"Row 0 of input_ids \(shape \(1, 9\)\) is padded\."),
        ROWS[:1],
        left_padded(ROWS[:1], extra=2),
        model="rwkv",
    ),
    "left-padded, flag not exact that way": Kind(
        _left_repaired(f'{PADDED} {HISTORY}. Use the mode "fix"'),
        ROWS,
        left_padded(ROWS),
        flags=ENDS_EARLY,
    ),
    "left-padded, model not exact that way": Kind(
        _left_repaired(f'{PADDED} Use the mode "fix"'),
        ROWS,
        left_padded(ROWS),
        model="rwkv",
    ),
    "left-padded, no way to make it right": Kind(_left(RWKV), ROWS, left_padded(ROWS), model="rwkv", flags=WHOLE),
    **{
        f"padded {side}": Kind(RIGHT, ROWS, PADDERS[side](ROWS), model=model)
        for side, model in (("right", "llama"), ("both", "llama"), ("holes", "mistral"))
    },
    "padded right, no mask, pad id of its own": Kind(RIGHT, ROWS, _without_mask(right_padded(ROWS))),
    **{
        f"padded {side}, no mask, pad is EOS": Kind(
            Cells(
                fix=Cell("repaired", GUESSED, None if side == "left" else f"{MISPLACED}.* Repaired"),
                warn=Cell("stock", PADDED if side == "left" else MISPLACED),
                strict=Cell(AmbiguousPaddingError),
            ),
            ROWS,
            _without_mask(PADDERS[side](ROWS, pad=EOS)),
            pad_is_eos=True,
        )
        for side in ("right", "left", "both")
    },
    "padded right, argument that cannot be made right": Kind(_hopeless(FLAG), ROWS, right_padded(ROWS), flags=REFUSED),
    "padded right, model not exact under left padding": Kind(RIGHT, ROWS, right_padded(ROWS), model="rwkv"),
    "padded right, model that cannot be made right": Kind(
        _hopeless(RWKV), ROWS, right_padded(ROWS), model="rwkv", flags=WHOLE
    ),
    "a mask that cannot be read": Kind(
        Cells(
            fix=Cell("stock", f"{UNREADABLE}.*{LEAVES}"),
            warn=Cell("stock", UNREADABLE),
            strict=Cell(UnsupportedCallError),
        ),
        ROWS,
        _doubled_mask(right_padded(ROWS)),
    ),
    "a row without a real token, others padded left": Kind(_everywhere(EMPTY), WITH_EMPTY, left_padded(WITH_EMPTY)),
    "a row without a real token, others padded right": Kind(
        Cells(
            fix=Cell("repaired", EMPTY, f"{OTHERS}.* Repaired"),
            warn=Cell("stock", OTHERS),
            strict=Cell(RightPaddingError),
        ),
        WITH_EMPTY,
        right_padded(WITH_EMPTY),
    ),
    "no row with a real token": Kind(
        _everywhere(r"Rows 0, 1 of input_ids \(shape \(2, 3\)\) have no real token"),
        [[], []],
        right_padded([[], []], extra=3),
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_mode_does_with_each_kind_of_batch_what_the_table_says(
    kind: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = KINDS[kind]
    cell: Cell = getattr(case.cells, mode)
    model = build(case.model)
    if case.pad_is_eos:
        model.generation_config.pad_token_id = EOS
    arguments = {**case.batch, **GREEDY, **case.flags}
    padfix.install(mode)
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    with unchanged(model, arguments):
        got = outcome(lambda: model.generate(**arguments))

    assert len(got.said) == (cell.warns is not None)
    for said in got.said:
        assert re.search(str(cell.warns), said)
    assert logged(caplog, logging.WARNING) == got.said
    assert len(logged(caplog, logging.INFO)) == (cell.info is not None)
    for said in logged(caplog, logging.INFO):
        assert re.search(str(cell.info), said)

    if cell.result == "stock":
        assert_stocks(got, stock)
    elif cell.result == "repaired":
        assert got.error is None
        wanted = [new_tokens(model, [row], **GREEDY, **case.flags)[0] if row else None for row in case.rows]
        assert_replies(got.output, case.batch["input_ids"], wanted)
        assert stock.error or not torch.equal(stock.output, got.output)  # it needed the repair
    else:
        assert got.raised is not None
        assert got.raised[0] is cell.result
        assert padfix.is_installed()


def test_every_column_of_the_table_is_tried_with_every_result() -> None:
    for mode in ("fix", "strict"):
        results = {getattr(kind.cells, mode).result for kind in KINDS.values()}
        assert {"stock", "repaired"} <= results
    assert {kind.cells.warn.result for kind in KINDS.values()} == {"stock"}


# What strict mode says

PAD_LEFT = 'Pad on the left (tokenizer.padding_side = "left"), or use the mode "fix" (PADFIX=fix).'
TAKE_OUT = "Take out what is named, or run the prompts one at a time without pads."
PASS_MASK = "Pass a mask of 0s and 1s with the shape of the prompt."
CONTINUES = "pads after real tokens: generation would continue from a pad."
TWELVE = right_padded([ROWS[0], *[ROWS[1]] * 11])


def _named(name: str, batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name if key == "input_ids" else key: value for key, value in batch.items()}


STRICT: Mapping[str, tuple[Callable[[Any], dict[str, Any]], type[PadfixError], str]] = {
    "two rows": (
        lambda model: right_padded(ROWS),
        RightPaddingError,
        f"Rows 1, 2 of input_ids (shape (3, 7)) have {CONTINUES} {PAD_LEFT}",
    ),
    "one row": (
        lambda model: right_padded(ROWS[1:2], extra=2),
        RightPaddingError,
        f"Row 0 of input_ids (shape (1, 5)) has {CONTINUES} {PAD_LEFT}",
    ),
    "many rows": (
        lambda model: TWELVE,
        RightPaddingError,
        f"Rows 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of input_ids (shape (12, 7)) have {CONTINUES} {PAD_LEFT}",
    ),
    "inputs": (
        lambda model: _named("inputs", right_padded(ROWS)),
        RightPaddingError,
        f"Rows 1, 2 of inputs (shape (3, 7)) have {CONTINUES} {PAD_LEFT}",
    ),
    "embeddings": (
        lambda model: embedded(model, right_padded(ROWS)),
        RightPaddingError,
        f"Rows 1, 2 of inputs_embeds (shape (3, 7, 32)) have {CONTINUES} {PAD_LEFT}",
    ),
    "pad is EOS": (
        lambda model: _without_mask(right_padded(ROWS, pad=EOS)) | {"pad_token_id": EOS},
        AmbiguousPaddingError,
        "Rows 1, 2 of input_ids (shape (3, 7)) start or end in more pad ids than other rows, and without "
        "attention_mask they count as content. Pass the tokenizer's mask.",
    ),
    "history": (
        lambda model: left_padded(ROWS) | {"penalty_alpha": 0.6, "top_k": 4, **WHOLE},
        UnsupportedCallError,
        "Rows 1, 2 of input_ids (shape (3, 7)) are padded. padfix cannot make this call right: "
        f"penalty_alpha=... (its decoding loop looks at pads). {TAKE_OUT}",
    ),
    "mask of another width": (
        lambda model: right_padded(ROWS) | {"attention_mask": right_padded(ROWS, extra=1)["attention_mask"]},
        UnsupportedCallError,
        "padfix cannot make this call right: attention_mask= of shape (3, 8), where the prompt has shape (3, 7). "
        f"{PASS_MASK}",
    ),
    "mask with other values": (
        lambda model: _doubled_mask(right_padded(ROWS)),
        UnsupportedCallError,
        "padfix cannot make this call right: attention_mask= of shape (3, 7) with values other than 0 and 1. "
        f"{PASS_MASK}",
    ),
}


@pytest.mark.parametrize("case", STRICT)
def test_strict_names_rows_shape_and_remedy(case: str) -> None:
    arguments, error, message = STRICT[case]
    model = build("llama")
    padfix.install("strict")
    got = outcome(lambda: model.generate(**arguments(model), **GREEDY))
    assert got.raised == (error, message)
    assert got.said == []


@pytest.mark.parametrize("mode", MODES)
def test_no_token_id_is_in_any_message(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = [[95, 96, 97, 98, 94, 93, 92], [91, 90, 89], [88, 87, 86, 85]]
    model = build("llama")
    padfix.install(mode)
    texts = []
    for side in PADDERS:
        for flags in ({}, {"bad_words_ids": [[84, 83]]}, {"stop_strings": ["91 90"]}):
            got = outcome(functools.partial(model.generate, **PADDERS[side](rows), **GREEDY, **flags))
            texts += [*got.said, str(got.error) if isinstance(got.error, PadfixError) else ""]
    texts += [one.getMessage() for one in caplog.records]
    assert any(texts)
    assert not re.search(r"\b[89]\d\b", " ".join(texts))


# Whom a warning points at

THROUGH = "def passed_on(call, **arguments):\n    return call(**arguments)\n"


def _module(name: str, text: str, path: Path | None = None) -> Any:
    """A module of this name and text; with `path`, written there and loaded as a user's file."""
    if path is None:
        module: Any = types.ModuleType(name)
        exec(compile(text, f"<{name}>", "exec"), module.__dict__)
        return module
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


USERS_FILE = """\
def one(call, **arguments):
    return call(**arguments)  # line 2


def other(call, **arguments):
    return call(  # line 6
        **arguments,
    )


def through(call, passed_on, **arguments):
    return passed_on(call, **arguments)  # line 12
"""


@pytest.fixture
def users(tmp_path: Path) -> Any:
    """A module in a file of the user's, with three lines that call."""
    return _module("users_script", USERS_FILE, tmp_path / "users_script.py")


def _places(seen: Sequence[warnings.WarningMessage]) -> list[tuple[str, int]]:
    return [(Path(one.filename).name, one.lineno) for one in seen if one.category is PadfixWarning]


@pytest.mark.parametrize("mode", ["fix", "warn"])
@pytest.mark.parametrize("library", ["transformers.pipelines.text", "peft.peft_model", "accelerate.hooks", "torch.x"])
def test_a_warning_points_at_the_users_line_through_libraries(library: str, mode: str, users: Any) -> None:
    model, between = build("llama"), _module(library, THROUGH)
    arguments = right_padded(ROWS) | GREEDY | REFUSED
    padfix.install(mode)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        users.through(model.generate, between.passed_on, **arguments)
        users.one(model.generate, **arguments)
        users.other(model.generate, **arguments)
    assert _places(seen) == [("users_script.py", 12), ("users_script.py", 2), ("users_script.py", 6)]


def test_a_users_module_whose_name_only_begins_like_a_librarys_is_the_users(users: Any) -> None:
    model, between = build("llama"), _module("transformers_at_home", THROUGH)
    padfix.install("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        users.through(model.generate, between.passed_on, **right_padded(ROWS), **GREEDY)
    assert _places(seen) == [("<transformers_at_home>", 2)]


def test_warn_reports_each_call_site_once(users: Any, caplog: pytest.LogCaptureFixture) -> None:
    model, arguments = build("llama"), right_padded(ROWS) | GREEDY
    padfix.install("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            users.one(model.generate, **arguments)
        users.other(model.generate, **arguments)
        threads = [threading.Thread(target=users.one, args=(model.generate,), kwargs=arguments) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert _places(seen) == [("users_script.py", 2), ("users_script.py", 6)]
    assert len(logged(caplog, logging.WARNING)) == 2


@pytest.mark.parametrize("kind", ["a mask that cannot be read", "no row with a real token"])
def test_warn_reports_what_is_no_padding_to_repair_once_a_call_site_too(kind: str, users: Any) -> None:
    model, arguments = build("llama"), {**KINDS[kind].batch, **GREEDY}
    padfix.install("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            users.one(model.generate, **arguments)
    assert _places(seen) == [("users_script.py", 2)]


def test_fix_logs_every_call_that_it_leaves_as_it_is(users: Any, caplog: pytest.LogCaptureFixture) -> None:
    model, arguments = build("llama"), right_padded(ROWS) | GREEDY | REFUSED
    padfix.install("fix")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            users.one(model.generate, **arguments)
    assert _places(seen) == [("users_script.py", 2)]
    assert len(logged(caplog, logging.WARNING)) == 3


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_a_repair_is_logged_once_a_call_site(mode: str, users: Any, caplog: pytest.LogCaptureFixture) -> None:
    kind = "padded right" if mode == "fix" else "left-padded, flag not exact that way, pads shared"
    model, arguments = build("llama"), {**KINDS[kind].batch, **GREEDY, **KINDS[kind].flags}
    padfix.install(mode)
    for _ in range(3):
        users.one(model.generate, **arguments)
    users.other(model.generate, **arguments)
    assert len(logged(caplog, logging.INFO)) == 2
    assert logged(caplog, logging.WARNING) == []


# What the settings decide

# Models that left padding does not make exact, and rows that share all their pads.
TRIMMABLE = {"one row": ("rwkv", ROWS[1:2]), "rows of one length": ("blenderbot", EQUAL)}


def _rwkv(rows: Sequence[Sequence[int]], side: str) -> tuple[Any, dict[str, Any]]:
    return build("rwkv"), PADDERS[side](rows, extra=2) | GREEDY


@pytest.mark.parametrize(
    ("mode", "side", "error"),
    [
        ("fix", "right", SettingsError),
        ("fix", "left", SettingsError),
        ("fix", "holes", SettingsError),
        ("strict", "left", SettingsError),
        ("strict", "right", RightPaddingError),  # the batch is refused before any strategy is
    ],
)
def test_a_forced_strategy_that_is_not_exact_is_refused(mode: str, side: str, error: type[PadfixError]) -> None:
    model, arguments = _rwkv(ROWS, side)
    padfix.install(mode, strategy="left_pad")
    with unchanged(model, arguments), pytest.raises(error) as caught:
        model.generate(**arguments)
    if error is SettingsError:
        assert str(caught.value) == (
            "RwkvForCausalLM (rows of one batch change one another, with or without pads). Set the strategy to 'auto'."
        )


@pytest.mark.parametrize("rows", TRIMMABLE)
@pytest.mark.parametrize(("mode", "side"), [("fix", "right"), ("fix", "left"), ("strict", "left")])
def test_a_forced_strategy_holds_where_dropping_shared_pads_makes_it_exact(mode: str, side: str, rows: str) -> None:
    name, prompts = TRIMMABLE[rows]
    model, arguments = build(name), PADDERS[side](prompts, extra=2) | GREEDY
    padfix.install(mode, strategy="left_pad")
    got = outcome(lambda: model.generate(**arguments))
    assert got.raised is None
    assert got.said == []
    replies = [reply.tokens for reply in alone(model, prompts, distinct=False)]
    assert_replies(got.output, arguments["input_ids"], replies)


@pytest.mark.parametrize("strategy", ["left_pad", "equal_length", "packed_prefill"])
@pytest.mark.parametrize("side", PADDERS)
def test_warn_mode_never_raises_for_a_forced_strategy(side: str, strategy: str) -> None:
    model, arguments = _rwkv(ROWS, side)
    padfix.install("warn", strategy=strategy)
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    got = outcome(lambda: model.generate(**arguments))
    assert len(got.said) == 1
    assert_stocks(got, stock)


@pytest.mark.parametrize(("mode", "side"), [("fix", "right"), ("fix", "left"), ("strict", "left")])
def test_packing_that_is_not_exact_is_refused_where_it_is_forced(mode: str, side: str) -> None:
    model = build("bloom")
    padfix.install(mode, strategy="packed_prefill")
    with pytest.raises(SettingsError) as caught:
        model.generate(**PADDERS[side](ROWS), **GREEDY)
    assert str(caught.value) == (
        "strategy 'packed_prefill' is not exact here: BloomForCausalLM (it was not measured to be exact when prompts "
        "share a row). Set the strategy to 'auto'."
    )


@pytest.mark.parametrize("strategy", ["left_pad", "equal_length", "packed_prefill"])
@pytest.mark.parametrize("mode", MODES)
def test_no_strategy_concerns_a_batch_without_pads(mode: str, strategy: str) -> None:
    model, arguments = build("rwkv"), right_padded(EQUAL) | GREEDY
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    padfix.install(mode, strategy=strategy)
    assert_same(model.generate(**arguments), stock.output)


HISTORY_FLAGS: Mapping[str, dict[str, Any]] = {
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 3.0},
    "bad_words_ids": {"bad_words_ids": [[5, 6], [7]]},
}


@pytest.mark.parametrize("flag", HISTORY_FLAGS)
@pytest.mark.parametrize("side", ["right", "both", "holes"])
def test_with_stocks_decoding_a_flag_runs_as_in_the_batch_that_was_left_padded_by_hand(side: str, flag: str) -> None:
    model, flags = build("llama"), HISTORY_FLAGS[flag] | GREEDY
    batch = PADDERS[side](ROWS)
    by_hand = suppressed_outcome(lambda: model.generate(**left_padded(ROWS), **flags)).output
    padfix.install("fix", decoding="stock")
    output = model.generate(**batch, **flags)
    assert torch.equal(output[:, :7], batch["input_ids"])
    assert torch.equal(output[:, 7:], by_hand[:, 7:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("flag", HISTORY_FLAGS)
def test_with_stocks_decoding_a_left_padded_batch_with_a_flag_is_stocks(flag: str, mode: str) -> None:
    model, arguments = build("llama"), left_padded(ROWS) | GREEDY | HISTORY_FLAGS[flag]
    padfix.install(mode, decoding="stock")
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    assert_same(model.generate(**arguments), stock.output)


def test_with_stocks_decoding_a_model_that_is_not_exact_is_refused_all_the_same() -> None:
    model, arguments = _rwkv(ROWS, "left")
    padfix.install("fix", decoding="stock")
    with pytest.warns(PadfixWarning, match=RWKV):
        model.generate(**arguments, **WHOLE)


@pytest.mark.parametrize("mode", MODES)
def test_override_changes_the_mode_for_its_block_alone(mode: str) -> None:
    model, arguments = build("llama"), right_padded(ROWS) | GREEDY
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    padfix.install("fix")
    with padfix.override(mode):
        inside = outcome(lambda: model.generate(**arguments))
    after = outcome(lambda: model.generate(**arguments))
    assert (inside.error is not None) == (mode == "strict")
    assert len(inside.said) == (mode == "warn")
    if mode == "warn":
        assert_stocks(inside, stock)
    assert after.said == []
    assert not torch.equal(after.output, stock.output)


# padfix.generate


class OwnGenerate(transformers.LlamaForCausalLM):
    """A model whose method gives back the new tokens alone."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return super().generate(*args, **kwargs)[:, 7:]


def test_generate_names_a_method_that_it_cannot_repair() -> None:
    model = build("llama")
    model.__class__ = OwnGenerate
    stock = suppressed_outcome(lambda: model.generate(**right_padded(ROWS), **GREEDY))
    got = outcome(lambda: padfix.generate(model, **right_padded(ROWS), **GREEDY))
    assert len(got.said) == 1
    assert "OwnGenerate has a generate of its own" in got.said[0]
    assert_stocks(got, stock)


@pytest.mark.parametrize("mode", ["fix", "warn"])
def test_generate_treats_a_call_once_where_padfix_is_installed(mode: str) -> None:
    padfix.install(mode, decoding="stock")
    model = build("llama")
    arguments = right_padded(ROWS) | GREEDY | REFUSED
    stock = suppressed_outcome(lambda: model.generate(**arguments))
    got = outcome(lambda: padfix.generate(model, **arguments))
    assert len(got.said) == 1
    assert_stocks(got, stock)


def test_strict_sees_a_call_with_every_argument_by_position() -> None:
    padfix.install("strict")
    parameters = inspect.signature(transformers.GenerationMixin.generate).parameters.values()
    count = sum(one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in parameters) - 1
    batch = right_padded(ROWS)
    with pytest.raises(RightPaddingError):
        build("llama").generate(
            batch["input_ids"], *[None] * (count - 1), attention_mask=batch["attention_mask"], **GREEDY
        )


def test_a_second_install_keeps_the_settings_that_it_does_not_name() -> None:
    padfix.install("strict")
    padfix.install(decoding="stock")
    with pytest.raises(RightPaddingError):
        build("llama").generate(**right_padded(ROWS), **GREEDY)
