"""Prompts, strings or chats, from code or a file, as token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import PromptError

__all__ = ["Prompt", "as_list", "read", "shown", "token_ids"]

# A string, or a chat: messages such as {"role": "user", "content": "Hi!"}.
Prompt = str | Sequence[Mapping[str, Any]]


def as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """The prompts as a list; a single string or a single chat as a list of one.

    Raises:
        PromptError: There are none, or one is neither a string nor a list of messages.
    """
    given: Any = prompts
    if isinstance(given, str) or (_is_sequence(given) and given and isinstance(given[0], Mapping)):
        given = [given]
    if not _is_sequence(given):
        raise PromptError(f"prompts is a {type(given).__name__}. Pass a list of strings, or of chats.")
    if not given:
        raise PromptError("There are no prompts. Pass a list with at least one string or chat.")
    for number, prompt in enumerate(given):
        is_chat = (
            _is_sequence(prompt)
            and len(prompt) > 0
            and all(isinstance(one, Mapping) and "role" in one for one in prompt)
        )
        if not (isinstance(prompt, str) or is_chat):
            raise PromptError(
                f"Prompt {number} is neither a string nor a list of messages but a {type(prompt).__name__}. "
                'A chat is a list such as [{"role": "user", "content": "Hi!"}].'
            )
    return list(given)


def token_ids(tokenizer: Any, prompts: Prompt | Sequence[Prompt]) -> list[list[int]]:
    """The token ids of each prompt as the model should get them alone; the tokenizer stays as it is.

    A string gets the tokenizer's special tokens, but no second BOS where it begins with one. A chat goes through the
    chat template, which writes every special token itself, and ends in the opening of the reply; a chat whose last
    message is the assistant's is continued.

    Raises:
        PromptError: A prompt has no tokens, or the tokenizer has no chat template for a chat.
    """
    rows, bos = [], tokenizer.bos_token_id
    for number, prompt in enumerate(as_list(prompts)):
        text = prompt if isinstance(prompt, str) else _templated(tokenizer, prompt, number)
        try:
            ids = tokenizer(text, add_special_tokens=isinstance(prompt, str), verbose=False)["input_ids"]
        except (TypeError, UnicodeEncodeError) as error:  # a lone surrogate
            raise PromptError(f"Prompt {number} is no Unicode text: the tokenizer cannot encode it.") from error
        row = [int(token) for token in ids]
        if isinstance(prompt, str) and row[:2] == [bos] * 2 and not _begins_with_two(tokenizer, text):
            row = row[1:]
        if not row:
            raise PromptError(f"Prompt {number} has no tokens: a model cannot continue from nothing. Leave it out.")
        rows.append(row)
    return rows


def shown(prompt: Prompt) -> str:
    """What stands for a prompt in a table: the string itself, or a chat's last message."""
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content", ""))


def read(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a UTF-8 file: its lines that are not blank; of a .jsonl file a JSON string or chat a line.

    Raises:
        PromptError: The file cannot be read, or holds no prompts.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise PromptError(f"The prompts in {path} are not UTF-8. Save the file as UTF-8.") from error
    except OSError as error:
        raise PromptError(
            f"Cannot read prompts from {path}: {error.strerror}. Pass a text file with one prompt a line."
        ) from error
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise PromptError(f"{path} holds no prompts, only blank lines. Write one prompt a line.")
    if path.suffix != ".jsonl":
        return tuple(line for _, line in filled)
    return tuple(_parsed(path, number, line) for number, line in filled)


def _parsed(path: Path, number: int, line: str) -> Prompt:
    try:
        value = json.loads(line)
        if isinstance(value, Mapping):
            raise PromptError("A JSON object is one message, not a chat.")
        return as_list([value])[0]
    except (json.JSONDecodeError, PromptError) as error:
        raise PromptError(
            f"Line {number} of {path} is neither a JSON string nor a JSON list of messages. Write one of them a line."
        ) from error


def _templated(tokenizer: Any, chat: Sequence[Mapping[str, Any]], number: int) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"Prompt {number} is a chat, and the tokenizer has no chat_template. Set one, or pass strings."
        )
    continues = chat[-1]["role"] == "assistant"
    if continues and chat[:-1] and chat[-1].get("content") == "":  # the opening of the reply; 4.46 would close it
        chat, continues = chat[:-1], False
    try:
        text = tokenizer.apply_chat_template(
            list(chat), tokenize=False, add_generation_prompt=not continues, continue_final_message=continues
        )
    except Exception as error:  # jinja's, and whatever a template and the library make of odd messages
        raise PromptError(f"The chat template refuses prompt {number} ({error}). Change the chat.") from error
    return str(text)


def _begins_with_two(tokenizer: Any, text: str) -> bool:
    """Whether the text itself begins with two BOS."""
    written = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return list(written[:2]) == [tokenizer.bos_token_id] * 2


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
