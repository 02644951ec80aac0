"""The demo: its embedded model, the comparison, the table, the verdict, and the command."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import padfix
from padfix.demo import prompts, run, table, task, train
from padfix.demo.compare import COLUMNS, Comparison, Reply, compare, reply
from padfix.errors import PadfixError, PromptError
from padfix.layout.rows import padded
from padfix.loading import EMBEDDED
from padfix.loading import embedded as load_embedded

WORDS = tuple(islice(task.words(2024), 30))


@pytest.fixture(scope="module")
def embedded() -> tuple[Any, Any]:
    return load_embedded()


@pytest.fixture(scope="module")
def comparison(embedded: tuple[Any, Any]) -> Comparison:
    """The embedded model on 30 random words, of which some have all 10 letters and so no pads."""
    model, tokenizer = embedded
    return compare(
        model,
        tokenizer,
        [task.prompt(word) for word in WORDS],
        max_new_tokens=task.MAX_NEW_TOKENS,
        expected=[task.answer(word) for word in WORDS],
    )


def made(*rows: tuple[str, str, str, str, str], expected: tuple[str, ...] | None = None) -> Comparison:
    """A comparison from rows of prompt and four replies, whose ids are the characters of the text."""
    columns = [
        tuple(Reply(ids=tuple(map(ord, row[i + 1])), text=row[i + 1]) for row in rows) for i in range(len(COLUMNS))
    ]
    return Comparison(tuple(row[0] for row in rows), expected, True, *columns)


# The embedded model


def test_embedded_model_is_right_alone(comparison: Comparison) -> None:
    assert {len(word) for word in WORDS} == set(range(1, 11))
    assert [one.text for one in comparison.alone] == [word[::-1] for word in WORDS]


def test_embedded_model_is_right_when_left_padded(comparison: Comparison) -> None:
    assert comparison.equal("left_by_hand") == (True,) * len(WORDS)


def test_plain_right_padding_is_wrong_in_most_padded_rows(comparison: Comparison) -> None:
    longest = max(map(len, WORDS))
    rows = [row for row, word in enumerate(WORDS) if len(word) < longest]
    wrong = [row for row in rows if comparison.right_stock[row].text != task.answer(WORDS[row])]
    assert comparison.padded
    assert len(wrong) > len(rows) / 2
    assert not any(comparison.equal("right_stock")[row] for row in wrong)


def test_padfix_column_equals_alone(comparison: Comparison) -> None:
    assert comparison.equal("right_padfix") == (True,) * len(WORDS)
    assert comparison.count("right_padfix") == len(WORDS)


def test_most_rows_of_the_default_prompts_show_the_fault(embedded: tuple[Any, Any]) -> None:
    model, tokenizer = embedded
    asked = prompts.embedded_prompts()
    comparison = compare(model, tokenizer, asked, max_new_tokens=task.MAX_NEW_TOKENS)
    assert sum(comparison.equal("right_stock")) <= len(asked) / 2


def test_shipped_files_are_those_that_the_training_script_writes(embedded: tuple[Any, Any]) -> None:
    tokenizer = embedded[1]
    for name, content in (
        ("config.json", train.CONFIG),
        ("generation_config.json", train.GENERATION_CONFIG),
        ("tokenizer_config.json", train.TOKENIZER_CONFIG),
    ):
        assert json.loads((EMBEDDED / name).read_text(encoding="utf-8")) == content
    assert tokenizer.get_vocab() == train.VOCABULARY
    encoded = tokenizer("reverse: abc =")
    made_anew = train.character_tokenizer()
    assert encoded["input_ids"] == made_anew.encode("reverse: abc =").ids
    assert made_anew.decode(encoded["input_ids"]) == "reverse: abc ="
    assert set(encoded) == {"input_ids", "attention_mask"}  # generate takes them all
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == "reverse: abc ="


# The training script


def test_training_repeats_itself_by_seed() -> None:
    def weights(seed: int) -> torch.Tensor:
        model = train.train(train.character_tokenizer(), seed=seed, steps=2, batch=4)
        return torch.cat([weight.detach().flatten() for weight in model.parameters()])

    first = weights(3)
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))


def test_labels_are_the_reply_and_its_eos() -> None:
    ids, labels = train.labelled(train.character_tokenizer(), ["abc", "z"])
    a, b, c, z = (train.VOCABULARY[letter] for letter in "abcz")
    eos, pad = train.VOCABULARY[train.EOS], train.VOCABULARY[train.PAD]
    assert labels[0][labels[0] != train.IGNORED].tolist() == [c, b, a, eos]
    assert labels[1][labels[1] != train.IGNORED].tolist() == [z, eos]
    assert ids[1].tolist()[-4:] == [pad] * 4
    assert torch.equal(ids[labels != train.IGNORED], labels[labels != train.IGNORED])


# The comparison


def test_reply_goes_to_its_first_eos_and_its_text_leaves_special_tokens_out(embedded: tuple[Any, Any]) -> None:
    assert reply(embedded[1], [9, 8, 2, 0, 0], (2,)) == Reply(ids=(9, 8, 2), text="cb")
    assert reply(embedded[1], [9, 8, 7], (7, 8)) == Reply(ids=(9, 8), text="cb")


def test_batches_are_padded_as_the_policy_pads_and_nothing_changes(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    pad_ids = set()

    def spy(rows: Any, pad_id: int, side: Any) -> Any:
        pad_ids.add(pad_id)
        return padded(rows, pad_id, side)

    monkeypatch.setattr("padfix.demo.compare.padded", spy)
    model, tokenizer = load_embedded()
    tokenizer.pad_token = None
    model.generation_config.pad_token_id = 7
    before = model.generation_config.to_dict()
    few = compare(model, tokenizer, comparison.prompts[:6], max_new_tokens=task.MAX_NEW_TOKENS)
    assert few.alone == comparison.alone[:6]
    assert few.left_by_hand == comparison.left_by_hand[:6]
    assert few.right_padfix == comparison.right_padfix[:6]
    assert pad_ids == {7}
    assert tokenizer.pad_token is None
    assert model.generation_config.to_dict() == before


def test_replies_end_where_generate_stops(comparison: Comparison) -> None:
    model, tokenizer = load_embedded()
    ends = comparison.alone[0].ids[1]
    model.generation_config.eos_token_id = [2, ends]
    few = compare(model, tokenizer, comparison.prompts[:2], max_new_tokens=task.MAX_NEW_TOKENS)
    assert few.alone[0].ids == comparison.alone[0].ids[:2]
    assert few.equal("right_padfix") == (True, True)


def test_chats_are_shown_by_their_last_message() -> None:
    model, tokenizer = load_embedded()
    tokenizer.chat_template = "<bos>{{ messages[-1]['content'] }}"
    words = ("ab", "abcd")
    got = compare(
        model,
        tokenizer,
        [[{"role": "user", "content": task.prompt(word)}] for word in words],
        max_new_tokens=task.MAX_NEW_TOKENS,
        expected=list(map(task.answer, words)),
    )
    assert got.prompts == tuple(map(task.prompt, words))
    assert got.count("alone") == got.count("right_padfix") == 2


def test_replies_are_compared_by_token_ids_and_answers_by_text() -> None:
    same = made(("p", "ab", "ab", "ab", "ab"), expected=("ab",))
    other_ids = replace(same, right_padfix=(Reply(ids=(1,), text="ab"),))
    assert same.equal("right_padfix") == (True,)
    assert other_ids.equal("right_padfix") == (False,)
    assert other_ids.count("right_padfix") == 1
    assert replace(other_ids, expected=None).count("right_padfix") == 0


def test_answers_that_do_not_fit_the_prompts_are_refused(embedded: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=re.escape("1 expected answers for 2 prompts: pass one a prompt.")):
        compare(*embedded, ["a", "b"], max_new_tokens=2, expected=["a"])


# The table and the verdict


def drawn(comparison: Comparison, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table.table(comparison, title="title", width=width))
    return out.getvalue()


def test_table_shows_replies_marks_and_counts() -> None:
    lines = drawn(made(("one", "ab", "ab", "ab", "xy"), ("two", "cd", "", "cd", "cd"))).splitlines()
    (one,) = (line.split() for line in lines if line.startswith("one"))
    (two,) = (line.split() for line in lines if line.startswith("two"))
    (counts,) = (line for line in lines if line.startswith("equal to alone"))
    assert one == ["one", "ab", "ab", "ab", "!=", "xy"]
    assert two == ["two", "cd", "!=", "cd", "cd"]
    assert re.findall(r"\d of \d", counts) == ["2 of 2", "1 of 2", "2 of 2", "1 of 2"]


def test_table_counts_right_answers_where_they_are_known() -> None:
    text = drawn(made(("one", "ab", "no", "ab", "ab"), ("two", "no", "no", "no", "cd"), expected=("ab", "cd")))
    (counts,) = (line for line in text.splitlines() if line.startswith("right answers"))
    assert re.findall(r"\d of \d", counts) == ["1 of 2", "0 of 2", "1 of 2", "2 of 2"]


def test_table_keeps_to_80_columns_and_reads_no_markup() -> None:
    long = "[red]a\nlong one " + "very " * 60
    lines = drawn(made((long, long, long, long, "short"))).splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (line for line in lines if line.startswith("[red]a l"))
    cells = re.split(r" {2,}", row.rstrip())
    assert cells == ["[red]a long on…"] * 4 + ["!= short"]


def test_table_shortens_only_what_does_not_fit() -> None:
    lines = drawn(made(("p" * 70, "ab", "ab", "ab", "日本語日本語"))).splitlines()
    (row,) = (line for line in lines if line.startswith("ppp"))
    assert re.split(r" {2,}", row.rstrip())[1:] == ["ab", "ab", "ab", "!= 日本語日本語"]
    assert "p" * 70 in drawn(made(("p" * 70, "ab", "ab", "ab", "ab")), width=200)
    assert table.fitted([30, 5, 20], 25) == [10, 5, 10]
    assert table.fitted([3, 4], 1) == [1, 1]


BROKEN = ("p", "ab", "xy", "ab", "ab")
WHOLE = ("p", "ab", "ab", "ab", "ab")


@pytest.mark.parametrize(
    ("comparison", "line"),
    [
        (
            made(BROKEN, WHOLE),
            "Right padding changes 1 of 2 replies; with padfix all 2 are those that the prompts get alone.",
        ),
        (
            made(WHOLE, WHOLE),
            "Right padding changes none of these 2 replies; padfix leaves them as they are.",
        ),
        (
            made(WHOLE, ("p", "ab", "ab", "xy", "ab")),
            "padfix FAILED: 1 of 2 replies are not those that the prompts get alone.",
        ),
        (
            replace(made(WHOLE), padded=False),
            "Nothing to repair: the prompts have one length, so the batch has no pads.",
        ),
    ],
)
def test_verdict(comparison: Comparison, line: str) -> None:
    assert table.verdict(comparison) == line


# The command


def test_command_succeeds_on_the_embedded_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(None, None, task.MAX_NEW_TOKENS) == 0
    out = capsys.readouterr().out.splitlines()
    assert f"{len(prompts.WORDS)} prompts" in out[0]
    assert out[-1].startswith("Right padding changes ")
    assert out[-1].endswith("alone.")


def test_command_fails_where_a_padfix_reply_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = made(WHOLE, ("p", "ab", "ab", "xy", "ab"))
    monkeypatch.setattr(run, "compare", lambda *_args, **_kwargs: wrong)
    assert run.main(None, None, task.MAX_NEW_TOKENS) == 1
    assert "padfix FAILED: 1 of 2" in capsys.readouterr().out


def test_command_takes_a_model_and_a_file_of_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffreverse: ab =\r\n\r\n  \nreverse: abcd =".encode())
    assert run.main(str(EMBEDDED), file, 6) == 0
    out = capsys.readouterr().out
    assert "equal to alone" in out
    assert "2 prompts" in " ".join(out.split())  # wherever the line breaks


def test_command_takes_a_jsonl_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('"reverse: ab ="\n"reverse: abcd ="\n', encoding="utf-8")
    assert run.main(None, file, 6) == 0
    assert "reverse: abcd =" in capsys.readouterr().out
    file.write_text('[{"role": "user", "content": "reverse: ab ="}]', encoding="utf-8")
    with pytest.raises(PromptError, match="the tokenizer has no chat_template"):
        run.main(None, file, 6)


def test_prompts_are_read_before_the_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="Cannot read prompts"):
        run.main(str(tmp_path / "absent"), tmp_path / "absent.txt", 6)


def test_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(PadfixError, match=re.escape(f"{tmp_path / 'absent'} is neither a folder nor a hub id.")):
        run.main(str(tmp_path / "absent"), None, 6)


def test_settings_around_the_comparison_do_not_change_it(embedded: tuple[Any, Any]) -> None:
    model, tokenizer = embedded
    asked = tuple(map(task.prompt, ("a", "fix", "left")))
    plain = compare(model, tokenizer, asked, max_new_tokens=6)
    with padfix.override("strict", strategy="packed_prefill"):
        assert compare(model, tokenizer, asked, max_new_tokens=6) == plain
