"""Tokenizers whose ids can be read off their text: the token of id 17 is `w17`; no file, no network.

    worded(template="<s> $A")("w5 w17")["input_ids"]  # [1, 5, 17]

The ids are those of `oracle`: BOS is 1, EOS is 2, and the vocabulary has as many tokens as the tiny models have rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle import BOS, EOS, VOCABULARY
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

UNK = 0
SPECIALS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
WITH_BOS = "<s> $A"

# Each message between its role and an EOS, then the role whose turn it is: `w3 w7 </s> w4`.
ROLES = {"user": "w3", "assistant": "w4"}
TEMPLATE = (
    "{% for one in messages %}{{ {'user': 'w3', 'assistant': 'w4'}[one['role']] + ' ' + one['content'] + ' </s> ' }}"
    "{% endfor %}{% if add_generation_prompt %}w4{% endif %}"
)


def worded(
    template: str | None = None, *, named: Mapping[int, str] | None = None, chats: str | None = None, **specials: Any
) -> Any:
    """A tokenizer of the words w3, w4, ..., `<unk>`, `<s>` and `</s>`; the caller's own.

    Args:
        template: What it makes of a text, as `TemplateProcessing` reads it; None for nothing but the text.
        named: Ids whose token has another name.
        chats: The chat template.
        specials: Arguments of the tokenizer, on top of `SPECIALS`; None takes one away.
    """
    names = {UNK: "<unk>", BOS: "<s>", EOS: "</s>"} | dict(named or {})
    vocabulary = {names.get(token, f"w{token}"): token for token in range(VOCABULARY)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if template is not None:
        made.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    given = {name: value for name, value in (SPECIALS | specials).items() if value is not None}
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=made, **given)
    tokenizer.chat_template = chats
    return tokenizer


def text(*tokens: int) -> str:
    """The text of the tokens."""
    return " ".join(f"w{token}" for token in tokens)
