"""The checks of a tokenizer, by itself and against its model."""

from __future__ import annotations

from collections.abc import Iterator

from ..generation.lengths import position_limit
from ..settings import is_off_in_environment
from ..special import pad_choice
from .subject import Seen, Subject

__all__ = ["appended_eos", "double_bos", "pad_ids", "pad_token", "padding_side", "positions"]

CONTINUES = "All prompts but the longest would continue from a pad."
UNSET_LENGTH = 10**9  # a tokenizer's model_max_length where nothing says one is 10**30


def padding_side(subject: Subject) -> Iterator[Seen]:
    """Whether the tokenizer pads where the model continues."""
    side = subject.tokenizer.padding_side
    seen = f'tokenizer.padding_side is "{side}"'
    set_left = 'Set tokenizer.padding_side = "left"'
    mode = subject.settings.mode
    repairable = subject.model is None or (subject.outlooks and all(outlook.strategy for outlook in subject.outlooks))
    if subject.encodes:
        yield "ok", f"{seen}: an encoder takes either.", ""
    elif side == "left":
        yield "ok", f"{seen}.", ""
    elif not repairable:
        yield "problem", f"{seen}, and padfix does not repair batches of this model. {CONTINUES}", "See strategy."
    elif mode == "fix":
        yield "note", f"{seen}; padfix moves the pads of every padded batch.", f"{set_left} to be right without it too."
    elif mode == "strict":
        yield (
            "problem",
            f"{seen}, and padfix is in mode strict: a padded batch raises RightPaddingError.",
            f"{set_left}.",
        )
    else:
        first = "take PADFIX=off out of the environment and " if is_off_in_environment() else ""
        seen = f'{seen}, and padfix is in mode "{mode}". {CONTINUES}'
        yield "problem", seen, f'{set_left}, or have it repaired: {first}call padfix.install("fix").'


def pad_token(subject: Subject) -> Iterator[Seen]:
    """Whether there is a token to pad with, which the model can tell from content and has an embedding for."""
    pad, size = subject.tokenizer.pad_token_id, subject.size
    ends = {*subject.ends, subject.tokenizer.eos_token_id} - {None}
    if pad is None:
        yield "problem", "The tokenizer has no pad token: it cannot pad a batch.", _choice(subject)
    elif pad < 0 or (size is not None and pad >= size):
        seen = f"tokenizer.pad_token_id is {pad}, but the embedding has {size} rows: transformers cannot embed it."
        yield "problem", seen, f"{_choice(subject)} Or add rows: model.resize_token_embeddings(len(tokenizer))."
    elif pad in ends:
        seen = f"tokenizer.pad_token_id is {pad}, an EOS: without the attention_mask pads cannot be told from content."
        yield "note", seen, "Pass the attention_mask with the ids: model.generate(**batch)."
    else:
        yield "ok", f"tokenizer.pad_token_id is {pad}.", ""


def pad_ids(subject: Subject) -> Iterator[Seen]:
    """Whether tokenizer and model mean the same token by the pad."""
    named = {
        "tokenizer": subject.tokenizer.pad_token_id,
        "model.config": getattr(subject.model.config, "pad_token_id", None),
        "model.generation_config": getattr(subject.generation_config, "pad_token_id", None),
    }
    seen = ", ".join(f"{place}.pad_token_id is {value}" for place, value in named.items())
    ours = named["tokenizer"]
    if set(named.values()) == {None}:
        yield "note", f"{seen}.", "See pad token."
    elif named["model.generation_config"] != ours or named["model.config"] not in (None, ours):
        remedy = "Set model.generation_config.pad_token_id and model.config.pad_token_id to tokenizer.pad_token_id"
        yield "note", f"{seen}.", f"{remedy}. Without the attention_mask, generate goes by its own."
    else:
        yield "ok", f"{seen}.", ""


def double_bos(subject: Subject) -> Iterator[Seen]:
    """Whether a chat that goes through the chat template gets a second BOS from the tokenizer."""
    tokenizer, bos = subject.trial_tokenizer, subject.tokenizer.bos_token_id
    if bos is None or not getattr(tokenizer, "chat_template", None):
        yield "ok", f"The tokenizer has no {'BOS' if bos is None else 'chat template'}.", ""
        return
    chat = [{"role": "user", "content": "Hello"}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # jinja's, and whatever a template makes of a chat
        seen = f"The chat template refuses a chat of one message: {type(error).__name__}."
        yield "problem", seen, "Mend tokenizer.chat_template."
        return
    count = next((n for n, token in enumerate(tokenizer(text)["input_ids"]) if token != bos), 0)
    if count > 1:
        seen = f"The chat template writes BOS and the tokenizer adds it again: {count} at the start of a chat."
        remedy = "Tokenize the text of the template with add_special_tokens=False, or use "
        yield "note", seen, f"{remedy}tokenizer.apply_chat_template(..., tokenize=True)."
    else:
        yield "ok", f"A chat that is templated and then tokenized begins with {count} BOS.", ""


def appended_eos(subject: Subject) -> Iterator[Seen]:
    """Whether the tokenizer ends prompts in an EOS, from which a decoder-only model would have to continue."""
    eos = subject.tokenizer.eos_token_id
    ids = list(subject.trial_tokenizer("Hello")["input_ids"])
    if eos is not None and ids[-1:] == [eos] and not subject.encodes:
        seen = f"The tokenizer puts an EOS (id {eos}) after every prompt: a decoder-only model continues from it."
        remedy = "Set tokenizer.add_eos_token = False where it has that, or tokenize with add_special_tokens=False."
        yield "problem", seen, remedy
    else:
        yield "ok", "The tokenizer puts no EOS after a prompt." if ids[-1:] != [eos] else "EOS ends encoder inputs.", ""


def positions(subject: Subject) -> Iterator[Seen]:
    """Whether the tokenizer cuts prompts off where the model's positions end."""
    limit, own = position_limit(subject.model), subject.tokenizer.model_max_length
    unset = own >= UNSET_LENGTH
    seen = (
        f"The model has {limit or 'no limit of'} positions; tokenizer.model_max_length is {'not set' if unset else own}"
    )
    if limit is not None and own > limit:
        seen = f"{seen}: truncation=True does not keep prompts within the model's positions."
        remedy = f"Set tokenizer.model_max_length = {limit}, and leave room for the new tokens."
        yield "note", seen, f"{remedy} padfix.BatchPolicy keeps prompts within both."
    else:
        yield "ok", f"{seen}.", ""


def _choice(subject: Subject) -> str:
    """What to pad with: what `BatchPolicy` chooses."""
    chosen, _ = pad_choice(subject.model, subject.tokenizer)
    if chosen is None:
        return "Set tokenizer.pad_token to a token of the vocabulary."
    return f"Set tokenizer.pad_token = tokenizer.convert_ids_to_tokens({chosen}), as padfix.BatchPolicy would choose."
