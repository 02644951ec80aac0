"""`padfix.show` and `padfix show`: what a picture says of a batch, what it fits, and what it does not let through."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from words import worded

import padfix
from padfix.cli import main
from padfix.errors import LoadingError, PromptError
from padfix.loading import embedded
from padfix.picture.batch import of_prompts
from padfix.picture.cells import ASCII, SIGNS
from padfix.picture.texts import shown, token_texts

Output = pytest.CaptureFixture[str]
MASKS = {
    "right": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
    "left": [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]],
    "holes": [[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1]],
    "empty rows": [[0, 0, 0], [1, 1, 0], [0, 0, 0]],
    "all empty": [[0, 0], [0, 0]],
    "one row": [[1, 1, 0, 0]],
    "one cell": [[1]],
    "full": [[1, 1], [1, 1]],
    "trimmed": [[0, 0, 1, 1], [0, 0, 1, 0]],
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


class Tokens:
    """A tokenizer with these texts, the first of which is its pad token."""

    pad_token_id = 0
    eos_token_id: int | None = None
    padding_side = "right"

    def __init__(self, *texts: str) -> None:
        self.texts = ["<pad>", *texts]
        self.all_special_ids = [0]

    def __len__(self) -> int:
        return len(self.texts)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.texts[token] for token in ids)

    def convert_ids_to_tokens(self, token: int) -> str:
        return f"name{token}"


def drawn(picture: Any, width: int = 80, *, ascii_only: bool = False) -> list[str]:
    return ["".join(one.text for one in line) for line in picture.lines(width, ascii_only=ascii_only)]


def layouts(picture: Any, width: int = 80) -> tuple[list[str], list[str]]:
    """The cells and the mark of each row in both layouts, side by side or not; where nothing moves there is one."""
    before: list[str] = []
    after: list[str] = []
    below = False
    for line in drawn(picture, width):
        below |= line.startswith("after")
        found = ["".join(one) for one in re.findall(r"\d+  (\S.*?) ► (.)", line)]
        (after if below else before).extend(found[:1])
        after.extend(found[1:])
    return before, after or before


# What it says


@every_mask
@pytest.mark.parametrize("width", [40, 80])
def test_cells_are_those_of_the_two_layouts(mask: list[list[int]], width: int) -> None:
    before, after = layouts(padfix.show(mask), width)
    longest = max(1, *map(sum, mask))
    for row, left, right in zip(mask, before, after, strict=True):
        assert left == _expected(row)
        moved = "·" * (longest - sum(row)) + "■" * sum(row) + ("✓" if any(row) else "!")
        assert right == moved


def _expected(row: list[int]) -> str:
    """The cells of a row in the caller's layout and its mark, from the words of the legend."""
    text = "".join(map(str, row))
    if "1" not in text:
        return "·" * len(row) + "!"
    start, end = text.index("1"), text.rindex("1") + 1
    middle = text[start:end].replace("0", "○").replace("1", "■")
    wrong = "10" in text
    return "·" * start + middle + "×" * (len(row) - end) + ("✗" if wrong else "✓")


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("right", "2 of 3 rows are wrong in your layout: the reply starts after a pad"),
        ("holes", "2 of 3 rows are wrong"),
        ("one row", "1 of 1 rows is wrong"),
        ("left", "Padded on the left already: no token moves."),
        ("full", "No pads: both layouts are the same."),
        ("trimmed", "2 columns of pads in every row are dropped."),
        ("empty rows", "1 column of pads in every row is dropped."),
        ("empty rows", "! no token in the row"),
    ],
)
def test_sentences_say_what_is_seen(mask: str, said: str) -> None:
    assert said in " ".join(drawn(padfix.show(MASKS[mask])))


def test_legend_explains_the_signs_that_are_there_and_no_others() -> None:
    for mask in MASKS.values():
        lines = drawn(padfix.show(mask))
        at = lines.index("")
        cells = set("".join(lines[:at])) & set(SIGNS.values())
        explained = {word for word in " ".join(lines[at:]).split() if word in SIGNS.values()}
        assert explained == cells


def test_tokens_are_written_where_there_is_room() -> None:
    tokenizer = worded("<s> $A", pad_token="w9")
    batch = tokenizer(["w11 w12 w13", "w14"], padding=True, return_tensors="pt")
    picture = padfix.show(batch, tokenizer)
    assert drawn(picture)[:3] == [
        "before: your layout     after: the model's layout",
        "0  ◆ w11 w12 w13 ► ✓    0  ◆ w11 w12 w13 ► ✓",
        "1  ◆ w14 ××× ××× ► ✗    1  · ··· ◆   w14 ► ✓",
    ]
    assert "◆ special token" in str(picture)
    assert "■" not in str(picture)
    assert layouts(picture, 40) == (["◆ w11 w12 w13✓", "◆ w14 ××× ×××✗"], ["◆ w11 w12 w13✓", "· ··· ◆   w14✓"])
    many = tokenizer(["w11 " * 30, "w14"], padding=True, return_tensors="pt")
    assert "w11" not in str(padfix.show(many, tokenizer))


def test_embedded_prompts_keep_their_text_in_both_layouts() -> None:
    _, tokenizer = embedded()
    lines = drawn(padfix.show(of_prompts(tokenizer, ["reverse: ab =", "reverse: abcdef ="]), tokenizer))
    assert lines[1] == "0  ◆reverse:␣ab␣=×××× ► ✗    0  ····◆reverse:␣ab␣= ► ✓"
    assert lines[2] == "1  ◆reverse:␣abcdef␣= ► ✓    1  ◆reverse:␣abcdef␣= ► ✓"


# What it reads


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.tensor([[5, 6], [7, 0]]), "attention_mask": torch.tensor([[1, 1], [1, 0]])},
        {"input_ids": [[5, 6], [7, 0]], "attention_mask": [[True, True], [True, False]], "labels": "x"},
        {"input_ids": numpy.array([[5, 6], [7, 0]]), "attention_mask": numpy.array([[1.0, 1.0], [1.0, 0.0]])},
        {"input_ids": [torch.tensor([5, 6]), torch.tensor([7, 0])], "attention_mask": ((1, 1), (1, 0))},
        {"attention_mask": [[1, 1], [1, 0]]},
        {"input_ids": [[5, 6], [7, 0]]},
        torch.tensor([[1, 1], [1, 0]], dtype=torch.bool),
        [[1, 1], [1, 0]],
    ],
)
def test_batch_of_any_kind_is_read(batch: Any) -> None:
    before, after = layouts(padfix.show(batch, pad_token_id=0))
    assert (before, after) == (["■■✓", "■×✗"], ["■■✓", "·■✓"])


def test_row_alone_is_a_batch_of_one() -> None:
    assert layouts(padfix.show({"input_ids": [4, 5], "attention_mask": [1, 0]}))[0] == ["■×✗"]


def test_pads_without_a_mask_are_read_as_generate_is_repaired() -> None:
    ids = [[5, 2, 6, 2, 2], [7, 8, 9, 5, 2]]
    every_pad = padfix.show({"input_ids": ids}, pad_token_id=2)
    assert layouts(every_pad)[0] == ["■○■××✗", "■■■■×✗"]
    assert "the pads are read from the pad id." in str(every_pad)
    runs = padfix.show({"input_ids": ids}, pad_token_id=2, eos_token_id=2)
    assert layouts(runs)[0] == ["■■■■×✗", "■■■■■✓"]
    assert "which is an EOS id too: a guess" in " ".join(str(runs).split())
    tokenizer = Tokens(*"abcdefghi")
    tokenizer.pad_token_id = tokenizer.eos_token_id = 2
    assert layouts(padfix.show({"input_ids": ids}, tokenizer))[0] == ["ebfb×✗", "ghieb✓"]


def test_nothing_of_the_caller_is_changed() -> None:
    ids, mask = torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]])
    batch = {"input_ids": ids, "attention_mask": mask}
    copies = ids.clone(), mask.clone()
    str(padfix.show(batch, Tokens(*"abcdefg")))
    assert batch == {"input_ids": ids, "attention_mask": mask}
    assert torch.equal(ids, copies[0])
    assert torch.equal(mask, copies[1])


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        ({}, "The batch holds nothing, and neither input_ids nor attention_mask."),
        ({"ids": 1, "mask": 2}, "The batch holds 'ids', 'mask', and neither"),
        ({"input_ids": [[1, 2], [3]]}, "Row 1 of input_ids has 1 columns and row 0 has 2 columns."),
        ({"input_ids": [[1, 2], 3]}, "Row 1 of input_ids is no row and row 0 has 2 columns."),
        ({"input_ids": [[1, 2]], "attention_mask": [[1]]}, "input_ids has shape (1, 2) and attention_mask (1, 1)"),
        ({"input_ids": [[1.5]], "attention_mask": [[1]]}, "input_ids holds torch.float32, not whole numbers."),
        ({"input_ids": [[True]], "attention_mask": [[1]]}, "input_ids holds torch.bool, not whole numbers."),
        ({"input_ids": [["a"]]}, "input_ids holds something else than numbers of 64 bits"),
        ({"input_ids": [[None]]}, "input_ids holds something else than numbers of 64 bits"),
        ({"input_ids": [[10**30]]}, "input_ids holds something else than numbers of 64 bits"),
        ({"input_ids": "a text"}, "input_ids is of type str."),
        ({"input_ids": 5}, "input_ids is of type int."),
        ({"input_ids": [[1]]}, "The batch has no attention_mask, and without a pad id nothing tells its pads."),
        ([[1], [1, 0]], "Row 1 of the batch has 2 columns and row 0 has 1 columns."),
        ([], "The batch has no rows: there is nothing to draw."),
        ([[5, 6, 0], [5, 6, 7]], "The batch is rows alone, and not of 0 and 1: that is no mask."),
        ({"input_ids": [[7, 2]], "attention_mask": [[0, -10000]]}, "attention_mask holds values other than 0 and 1:"),
        ({"input_ids": []}, "input_ids has no rows: there is nothing to draw."),
        ([[], []], "The batch has shape (2, 0): there is nothing to draw."),
        (torch.ones(2, 1, 3, 3), "The batch has shape (2, 1, 3, 3) and holds torch.float32."),
        (torch.ones(2, 2, dtype=torch.complex64), "holds torch.complex64"),
        (None, "The batch is of type NoneType."),
        ("text", "The batch is of type str."),
        ({1: 2}, "The batch holds 1, and neither"),
    ],
)
def test_what_is_no_batch_is_named(batch: Any, complaint: str) -> None:
    with pytest.raises(PromptError, match=re.escape(complaint)) as raised:
        padfix.show(batch)
    assert "Pass " in str(raised.value) or "draw the mask alone" in str(raised.value)


# What it fits into


def _random(rows: int, columns: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, columns + 1, (rows, 1), generator=draw)
    holes = torch.rand(rows, columns, generator=draw) < 0.1
    return ((torch.arange(columns) < lengths) & ~holes).long()


@pytest.mark.parametrize("width", [40, 41, 57, 80, 200])
@pytest.mark.parametrize("columns", [1, 9, 23, 40, 700])
def test_lines_fit_the_width(columns: int, width: int) -> None:
    mask = _random(30, columns, columns)
    tokenizer = Tokens("a", " hours", "日本語", "é́", "🙂", "\n")
    ids = torch.randint(1, 7, mask.shape, generator=torch.Generator().manual_seed(width))
    for picture in (padfix.show(mask), padfix.show({"input_ids": ids, "attention_mask": mask}, tokenizer)):
        for ascii_only in (False, True):
            lines = drawn(picture, width, ascii_only=ascii_only)
            assert max(map(cell_len, lines)) <= width
            rows = [line for line in lines[: lines.index("")] if re.match(r" *\d+  ", line)]
            assert len(rows) == 24
            assert len(set(map(cell_len, rows))) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_one_cell_for_several_columns_says_what_all_of_them_are(size: int) -> None:
    mask = _random(12, 40 * size + 1, size)
    picture = padfix.show(mask)
    width = next(width for width in range(150, 40, -1) if _size(picture, width) == size)
    before, after = layouts(picture, width)
    assert len(after) == 12
    full = [_expected(row)[:-1] for row in mask.tolist()]
    for row, cells in zip(full, before, strict=True):
        groups = [row[max(end - size, 0) : end] for end in range(len(row), 0, -size)][::-1]
        assert cells[:-1] == "".join(group[0] if len(set(group)) == 1 else "▒" for group in groups)


def _size(picture: Any, width: int) -> int:
    found = re.search(r"One cell stands for (\d+) columns", " ".join(drawn(picture, width)))
    return int(found[1]) if found else 1


def test_rows_that_are_not_drawn_are_counted() -> None:
    mask = torch.ones(1000, 12, dtype=torch.int64)
    mask[10:20, -1] = 0
    picture = padfix.show(mask, max_rows=5)
    lines = drawn(picture)
    assert [line.split()[0] for line in lines[1:7]] == ["0", "1", "2", "...", "998", "999"]
    assert "10 of 1000 rows are wrong in your layout" in str(picture)
    assert "995 of 1000 rows are not drawn; wrong among them: 10." in str(picture)
    mask[998, -1] = 0
    assert "wrong among them: 10." in str(padfix.show(mask, max_rows=5))
    assert "1 of 3 rows is not drawn; wrong among them: 0." in str(padfix.show(torch.ones(3, 2), max_rows=2))


def test_model_layout_is_as_wide_as_the_longest_row_that_is_not_drawn() -> None:
    mask = torch.zeros(9, 6, dtype=torch.int64)
    mask[:, :2] = 1
    mask[4, :5] = 1
    assert layouts(padfix.show(mask, max_rows=2))[1] == ["···■■✓", "···■■✓"]


def test_huge_batch_is_drawn() -> None:
    mask = _random(3000, 5000, 0)
    assert len(str(padfix.show(mask)).splitlines()) < 70


# What it does not let through


HOSTILE = (
    "[red]x[/red]",
    "<b>&\"'",
    "\x1b[31mred",
    "\r\x07\b",
    "\u202eabc",
    "\u0301",
    "a\u200d",
    "\ud800",
    "",
    "\x9b2J",
)


def test_hostile_tokens_are_harmless() -> None:
    tokenizer = Tokens(*HOSTILE)
    ids = [[*range(1, len(HOSTILE) + 1)], [99, -1, *[0] * (len(HOSTILE) - 2)]]
    picture = padfix.show(
        {"input_ids": ids, "attention_mask": [[1] * len(ids[0]), [1, 1, *[0] * (len(ids[0]) - 2)]]}, tokenizer
    )
    text = "\n".join(drawn(picture, 200))
    assert "[red]x[/r… <b>&\"' �[31mred ��� �abc ◌\u0301 a� � name9 �2J" in text
    assert re.search(r"^1  \? +\? +×", text, re.M)
    assert not {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs")} - {"\n"}
    paper = io.StringIO()
    Console(file=paper, width=200).print(picture)
    assert paper.getvalue() == text + "\n"
    assert _tags(picture._repr_html_()) == {"pre", "span", "bdi"}
    assert "&lt;b&gt;&amp;&quot;" in picture._repr_html_()


def _tags(html: str) -> set[str]:
    seen: set[str] = set()
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: seen.add(tag)  # type: ignore[method-assign]
    reader.feed(html)
    reader.close()
    return seen


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        (" ", "␣"),
        ("  a", "␣a"),
        ("\n\n", "↵↵"),
        ("\ta", "⇥a"),
        ("exactly ten"[:10], "exactly␣te"),
        ("internationally", "internati…"),
        ("日本語日本語", "日本語日…"),
        ("e\u0301" * 10, "e\u0301" * 10),
        ("\u2028", "�"),
    ],
)
def test_text_of_a_token_is_one_short_line(text: str, cell: str) -> None:
    assert shown(text) == cell
    assert cell_len(cell) <= 10


def test_colour_is_never_the_only_difference() -> None:
    assert all(len(set(signs.values())) == len(signs) for signs in (SIGNS, ASCII))
    assert SIGNS.keys() == ASCII.keys()
    assert all(sign.isascii() for sign in ASCII.values())
    assert all(cell_len(sign) == 1 for signs in (SIGNS, ASCII) for sign in signs.values())
    lines = "".join(drawn(padfix.show(MASKS["holes"]), ascii_only=True))
    assert lines.isascii()
    assert "#o##x > X" in lines


# The command


def test_command_draws_the_embedded_prompts(capsys: Output) -> None:
    assert main(["show"]) == 0
    out, err = capsys.readouterr()
    assert "11  ◆reverse:␣transforms␣= ► ✓" in out
    assert "11 of 12 rows are wrong in your layout" in out
    assert err == ""


def test_command_draws_a_file_or_standard_input(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"input_ids": [[5, 6], [7, 2]], "attention_mask": [[1, 1], [1, 0]]})
    path = tmp_path / "batch.json"
    path.write_text(text)
    assert main(["show", str(path)]) == 0
    first = capsys.readouterr().out
    assert "1  ■× ► ✗" in first
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["show", "-"]) == 0
    assert capsys.readouterr().out == first
    path.write_text('{"input_ids": [[5, 6], [7, 2]]}')
    assert main(["show", str(path), "--pad-token-id", "2", "--rows", "1"]) == 0
    assert "1 of 2 rows is not drawn; wrong among them: 1." in capsys.readouterr().out


def test_command_draws_prompts_as_the_tokenizer_pads_them(capsys: Output, tmp_path: Path) -> None:
    worded("<s> $A", pad_token="w9").save_pretrained(tmp_path / "words")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w5 w6\nw7\n")
    tokenizer = ("--tokenizer", str(tmp_path / "words"))
    assert main(["show", *tokenizer, "w5 w6", "w7"]) == 0
    out = capsys.readouterr().out
    assert "1  ◆ w7 ×× ► ✗" in out
    assert main(["show", *tokenizer, "--prompts", str(prompts)]) == 0
    assert capsys.readouterr().out == out
    assert main(["show", *tokenizer, "--padding-side", "left", "w5 w6", "w7"]) == 0
    assert "Padded on the left already: no token moves." in capsys.readouterr().out


def test_command_writes_a_file(capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["show", "--svg", str(tmp_path / "picture.svg")]) == 0
    capsys.readouterr()
    text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg ")
    assert len(set(re.findall(r"fill: (#\w+)", text))) > 3
    assert _words_of(text) == _words_of(README_PICTURE.read_text(encoding="utf-8"))


README_PICTURE = Path(__file__).parents[2] / "docs" / "images" / "before-after.svg"


def _words_of(svg: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", svg)


def test_no_color_is_respected(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(["show"]) == 0
    assert re.search(r"\x1b\[[\d;]*31m", capsys.readouterr().out)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["show"]) == 0
    assert not re.search(r"\x1b\[[\d;]*3\dm", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nosuch.json",), "Cannot read a batch from nosuch.json: No such file or directory."),
        (("a prompt",), "Prompts need a tokenizer: pass --tokenizer PATH_OR_ID. A batch is a file that ends in .json."),
        (("a.json", "b.json"), "Prompts need a tokenizer"),
        (("--prompts", "x"), "Prompts need a tokenizer"),
        (("--prompts", "x", "a prompt"), "There are prompts in x, and 'a prompt' too."),
        (("--tokenizer", "no such model", "a"), "transformers cannot load no such model"),
        (("--padding-side", "left", "x.json"), "x.json is padded already: --padding-side is for prompts."),
        (("--svg", "no folder/x.svg"), "no folder/x.svg cannot be written: No such file or directory."),
    ],
)
def test_mistake_is_one_line_and_status_2(arguments: tuple[str, ...], complaint: str, capsys: Output) -> None:
    assert main(["show", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"padfix: {complaint}")
    assert err.count("\n") == 1


def test_file_that_holds_no_batch_is_one_line_and_status_2(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text("null")
    assert main(["show", str(tmp_path / "batch.json")]) == 2
    assert capsys.readouterr().err.startswith("padfix: The batch is of type NoneType.")


@pytest.mark.parametrize("text", ["", "{", "\xff", "[" * 100_000])
def test_file_that_is_no_json_is_one_line_and_status_2(text: str, capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_bytes(text.encode("latin-1"))
    assert main(["show", str(tmp_path / "batch.json")]) == 2
    assert "batch.json is no JSON (" in capsys.readouterr().err


def test_command_without_rich_names_it(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["show"]) == 2
    assert 'pip install "padfix[cli]"' in capsys.readouterr().err
    picture = padfix.show([[1, 0]])
    assert str(picture).startswith("before: your layout")
    assert repr(picture) == str(picture)


def test_error_of_loading_is_padfix_s_own() -> None:
    assert issubclass(LoadingError, padfix.PadfixError)


@pytest.mark.parametrize("fault", [IndexError, KeyError, OverflowError, TypeError, ValueError])
def test_token_that_the_tokenizer_cannot_decode_is_unknown(fault: type[Exception]) -> None:
    class Faulty(Tokens):
        def decode(self, ids: Sequence[int]) -> str:
            if ids == [1]:
                raise fault
            return super().decode(ids)

    assert token_texts(Faulty("one", "two"), [1, 2, 9]) == {1: "?", 2: "two", 9: "?"}
