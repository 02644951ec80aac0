"""Prompts: what counts as one, its token ids, and the files that hold them."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from oracle import BOS, EOS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from words import TEMPLATE, WITH_BOS, worded

from padfix.errors import PromptError
from padfix.prompts import as_list, read, shown, token_ids

ASKS: dict[str, Any] = {"role": "user", "content": "w5 w6"}
SAYS: dict[str, Any] = {"role": "assistant", "content": "w7"}
BOTH: list[Any] = ["w8", [ASKS]]


# What counts as a prompt


@pytest.mark.parametrize(
    ("prompts", "listed"),
    [
        ("w5", ["w5"]),
        ("", [""]),
        ([ASKS, SAYS], [[ASKS, SAYS]]),
        ((ASKS,), [(ASKS,)]),
        (["w5", [ASKS]], ["w5", [ASKS]]),
        (("w5", "w6"), ["w5", "w6"]),
        ([[MappingProxyType(ASKS)]], [[ASKS]]),
    ],
    ids=["string", "empty", "chat", "tuple of messages", "both", "tuple of strings", "mapping"],
)
def test_prompts_are_listed_and_a_single_one_is_a_list_of_one(prompts: Any, listed: Any) -> None:
    assert as_list(prompts) == listed


def test_list_is_a_new_one() -> None:
    prompts = ["w5"]
    assert as_list(prompts) is not prompts


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "There are no prompts. Pass a list with at least one string or chat."),
        (iter(["w5"]), "prompts is a list_iterator. Pass a list of strings, or of chats."),
        (b"w5", "prompts is a bytes. Pass a list of strings, or of chats."),
        (ASKS, "prompts is a dict. Pass a list of strings, or of chats."),
        (["w5", 3], "Prompt 1 is neither a string nor a list of messages but a int."),
        ([b"w5"], "Prompt 0 is neither a string nor a list of messages but a bytes."),
        ([["w5", "w6"]], "Prompt 0 is neither a string nor a list of messages but a list."),
        (["w5", []], "Prompt 1 is neither a string nor a list of messages but a list."),
        ([ASKS, "w5"], "Prompt 0 is neither a string nor a list of messages but a list."),
    ],
)
def test_what_is_no_prompt_is_named(prompts: Any, message: str) -> None:
    with pytest.raises(PromptError, match=re.escape(message)):
        as_list(prompts)


# Token ids


@pytest.mark.parametrize(
    ("template", "ids"),
    [(None, [5, 6]), (WITH_BOS, [BOS, 5, 6]), ("<s> $A </s>", [BOS, 5, 6, EOS]), ("$A </s>", [5, 6, EOS])],
)
def test_string_gets_the_tokenizers_special_tokens(template: str | None, ids: list[int]) -> None:
    assert token_ids(worded(template), ["w5 w6"]) == [ids]


@pytest.mark.parametrize("template", [None, WITH_BOS])
def test_string_that_begins_with_bos_gets_no_second_one(template: str | None) -> None:
    assert token_ids(worded(template), ["<s> w5", "w5 <s>"])[0] == [BOS, 5]


def test_tokenizer_without_bos_takes_its_text_for_text() -> None:
    assert token_ids(worded(bos_token=None), ["w5 w6", "w7"]) == [[5, 6], [7]]


def test_empty_string_is_the_special_tokens_alone() -> None:
    assert token_ids(worded(WITH_BOS), ["", "w5"]) == [[BOS], [BOS, 5]]


def test_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(PromptError, match=re.escape("Prompt 1 has no tokens: a model cannot continue from nothing.")):
        token_ids(worded(), ["w5", ""])


@pytest.mark.parametrize("template", [None, WITH_BOS, "<s> $A </s>"])
@pytest.mark.parametrize(("writes", "begins"), [("", []), ("<s> ", [BOS])], ids=["no bos", "bos"])
def test_chat_has_the_special_tokens_of_its_template_alone(
    template: str | None, writes: str, begins: list[int]
) -> None:
    tokenizer = worded(template, chats=writes + TEMPLATE)
    assert token_ids(tokenizer, [[ASKS]]) == [[*begins, 3, 5, 6, EOS, 4]]
    assert token_ids(tokenizer, [[ASKS, SAYS, ASKS]]) == [[*begins, 3, 5, 6, EOS, 4, 7, EOS, 3, 5, 6, EOS, 4]]


def test_chat_that_ends_in_an_answer_is_continued() -> None:
    assert token_ids(worded(WITH_BOS, chats="<s> " + TEMPLATE), [[ASKS, SAYS]]) == [[BOS, 3, 5, 6, EOS, 4, 7]]


def test_chat_without_a_template_is_refused() -> None:
    with pytest.raises(PromptError, match=re.escape("Prompt 1 is a chat, and the tokenizer has no chat_template.")):
        token_ids(worded(), BOTH)


def test_strings_and_chats_go_together() -> None:
    assert token_ids(worded(WITH_BOS, chats=TEMPLATE), BOTH) == [[BOS, 8], [3, 5, 6, EOS, 4]]


def test_text_beyond_ascii_comes_back_from_its_ids() -> None:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([], trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
    texts = ["日本語 🙂", " leading and\ttabs\n", "naïve é", "\u200f\x00"]
    rows = token_ids(tokenizer, texts)
    assert [tokenizer.decode(row) for row in rows] == texts
    assert all(type(token) is int for row in rows for token in row)


def test_truncation_and_padding_of_the_tokenizer_change_nothing() -> None:
    tokenizer = worded(WITH_BOS, pad_token="<unk>", padding_side="left", model_max_length=3)
    tokenizer(["w5 w6 w7", "w8"], truncation=True, max_length=2, padding=True)
    assert token_ids(tokenizer, ["w5 w6 w7 w8", "w9"]) == [[BOS, 5, 6, 7, 8], [BOS, 9]]


def test_tokenizer_and_chat_stay_as_they_were() -> None:
    tokenizer = worded(WITH_BOS, chats=TEMPLATE, model_max_length=3)
    chat: list[Any] = [dict(ASKS), dict(SAYS)]
    prompts: list[Any] = [chat, "w5 w6 w7 w8"]

    def state() -> Any:
        names = ("special_tokens_map", "padding_side", "truncation_side", "model_max_length", "chat_template")
        return copy.deepcopy([chat, tokenizer.get_vocab(), *(getattr(tokenizer, name) for name in names)])

    before = state()
    token_ids(tokenizer, prompts)
    assert state() == before


@pytest.mark.parametrize(("prompt", "text"), [("w5", "w5"), ([ASKS, SAYS], "w7"), ([{"role": "user"}], "")])
def test_table_shows_the_string_or_the_last_message(prompt: Any, text: str) -> None:
    assert shown(prompt) == text


# Files


def test_text_file_is_one_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes('\ufeffreverse: ab =\r\n\r\n  \n "日本" \x0b \x85'.encode())
    assert read(file) == ("reverse: ab =", ' "日本" \x0b \x85')


def test_jsonl_file_is_one_string_or_chat_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = ["two\nlines", [ASKS, SAYS], "日本", ""]
    text = "\ufeff" + "\r\n\n".join(json.dumps(line, ensure_ascii=line == "日本") for line in lines)
    file.write_text(text, encoding="utf-8")
    assert read(file) == tuple(lines)


@pytest.mark.parametrize("line", ["Hi!", "3", "null", "[]", '["Hi!"]', '[{"role": "user"}, 3]', '"Hi!" "you"'])
def test_line_of_a_jsonl_file_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'"Hi!"\n\n{line}\n', encoding="utf-8")
    message = f"Line 3 of {file} is neither a JSON string nor a JSON list of messages. Write one of them a line."
    with pytest.raises(PromptError, match=re.escape(message)):
        read(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read prompts from {file}: No such file or directory. Pass a text file with one prompt a line."),
        (b"\n  \n", "{file} holds no prompts, only blank lines. Write one prompt a line."),
        (b"\xff\xfe", "The prompts in {file} are not UTF-8. Save the file as UTF-8."),
    ],
)
@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_file_without_prompts_is_named(tmp_path: Path, content: bytes | None, message: str, suffix: str) -> None:
    file = tmp_path / f"prompts.{suffix}"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PromptError, match=re.escape(message.format(file=file))):
        read(file)


def test_string_that_begins_with_bos_keeps_the_other_special_tokens() -> None:
    assert token_ids(worded("<s> $A </s>"), ["<s> w5", "w5"]) == [[BOS, 5, EOS], [BOS, 5, EOS]]


@pytest.mark.parametrize("line", [ASKS, {"prompt": "Hi!"}, {"messages": [ASKS]}, {}])
def test_object_is_no_line_of_a_jsonl_file(tmp_path: Path, line: Any) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(PromptError, match="is neither a JSON string nor a JSON list of messages"):
        read(file)


@pytest.mark.parametrize("chat", [[{"content": "w5"}], [{}], [ASKS, {"prompt": "w5"}]])
def test_message_without_a_role_is_no_message(chat: Any) -> None:
    with pytest.raises(PromptError, match="Prompt 0 is neither a string nor a list of messages"):
        as_list([chat])


@pytest.mark.parametrize(
    ("template", "last"),
    [
        ("{{ raise_exception('roles must alternate') }}", ASKS),
        (TEMPLATE.replace("one['content']", "one['content'].upper()"), {"role": "assistant", "content": "w7"}),
        (TEMPLATE, {"role": "assistant", "content": None}),
        (TEMPLATE, {"role": "assistant"}),
        ({"rag": TEMPLATE}, ASKS),
    ],
)
def test_chat_that_the_template_refuses_is_named(template: Any, last: Any) -> None:
    prompts: list[Any] = ["w5", [ASKS, last]]
    with pytest.raises(PromptError, match="rompt 1"):
        token_ids(worded(chats=template), prompts)


def test_empty_answer_is_the_opening_of_the_reply() -> None:
    prompts: list[Any] = [[ASKS, {"role": "assistant", "content": ""}]]
    assert token_ids(worded(chats=TEMPLATE), prompts) == [[3, 5, 6, EOS, 4]]


def test_text_that_is_no_unicode_is_named() -> None:
    with pytest.raises(PromptError, match="Prompt 1"):
        token_ids(worded(WITH_BOS), ["w5", "\ud800"])


def test_two_bos_that_are_written_stay() -> None:
    assert token_ids(worded(), ["<s> <s> w5"]) == [[BOS, BOS, 5]]
    assert token_ids(worded(), ["<s> w5"]) == [[BOS, 5]]
