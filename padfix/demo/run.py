"""The command `padfix demo`: load a model, compare its replies, print table and verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from ..errors import PadfixError
from . import prompts as prompt_sets
from . import table, task
from .compare import compare

EMBEDDED = Path(__file__).parent / "model"
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def main(model: str | None, prompts: Path | None, max_new_tokens: int) -> int:
    """The exit status of the demo: 0 where every padfix reply is the one that the prompt gets alone, else 1.

    `model` is a folder or a hub id of a causal LM, None for the embedded one; `prompts` is a UTF-8 file
    with one prompt a line, None for the prompts that come with padfix. Raises `PadfixError` for what the
    user can mend: no such path, no prompts, a model that cannot be loaded or that has an encoder, no rich.
    """
    if max_new_tokens < 1:
        raise PadfixError(f"max_new_tokens is {max_new_tokens}. Pass 1 or more.")
    console = table.console()
    expected: tuple[str, ...] | None = None
    if prompts is not None:
        asked = prompt_sets.read(prompts)
    elif model is not None:
        asked = prompt_sets.SENTENCES
    else:
        asked = tuple(map(task.prompt, prompt_sets.WORDS))
        expected = tuple(map(task.answer, prompt_sets.WORDS))

    causal_lm, tokenizer = embedded() if model is None else load(model)
    with quiet():
        comparison = compare(causal_lm, tokenizer, asked, max_new_tokens=max_new_tokens, expected=expected)
    name = "the embedded model" if model is None else model
    title = f"{name}, {len(asked)} prompts in one batch, transformers {transformers.__version__}"
    console.print(table.table(comparison, title=title, width=console.width))
    console.print(table.verdict(comparison), style="bold", highlight=False, markup=False, soft_wrap=True)
    return 0 if all(comparison.equal("right_padfix")) else 1


def embedded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that comes with padfix, in float32 on the CPU, and its tokenizer; no network is used."""
    with quiet():
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
    return model, tokenizer


def load(source: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The causal LM in float32 on the CPU and the tokenizer of a folder or a hub id, without remote code.

    Raises `PadfixError` where there is no such folder, where transformers cannot load what is in it, and
    for an encoder-decoder model.
    """
    if not Path(source).is_dir() and (Path(source).exists() or not HUB_ID.fullmatch(source)):
        raise PadfixError(f"{source} is neither a folder nor a hub id. Pass the folder that holds config.json.")
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        if config.is_encoder_decoder:
            raise PadfixError(
                f"{source} ({config.model_type}) is an encoder-decoder model, which has no padded prompt to "
                "decode after. Pass a causal LM."
            )
        model: Any = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=False)
        return model.float(), AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except PadfixError:
        raise
    except Exception as error:  # hub, JSON, safetensors and torch have no common one
        seen = shorten(f"{type(error).__name__}: {error}", 240, placeholder=" ...")
        raise PadfixError(
            f"transformers cannot load {source} as a causal LM ({seen}). Pass a folder or hub id that "
            "AutoModelForCausalLM and AutoTokenizer load."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' own warnings and progress bars out of the demo's output."""
    library: Any = logging  # untyped
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
