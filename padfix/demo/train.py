"""Trains the embedded model of `padfix demo`.

`python -m padfix.demo.train [--seed N] [--steps N] [--out DIR]`

The same seed gives the same files on the same machine. One core needs about a minute and a half.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM

from . import task

PAD, BOS, EOS, UNK = SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
VOCABULARY = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *" :=", *task.LETTERS])}
IGNORED = -100
"""The label that the loss of transformers leaves out."""

# The keys of config.json as transformers 4 names them: 5 reads them too.
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float32",
    "vocab_size": len(VOCABULARY),
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "pad_token_id": VOCABULARY[PAD],
    "bos_token_id": VOCABULARY[BOS],
    "eos_token_id": VOCABULARY[EOS],
}
TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": PAD,
    "bos_token": BOS,
    "eos_token": EOS,
    "unk_token": UNK,
    "padding_side": "right",
    "model_input_names": ["input_ids", "attention_mask"],
    "model_max_length": CONFIG["max_position_embeddings"],
    "clean_up_tokenization_spaces": False,
}
GENERATION_CONFIG = {key: CONFIG[key] for key in ("pad_token_id", "bos_token_id", "eos_token_id")}


def character_tokenizer() -> Tokenizer:
    """A tokenizer with one token a character, which puts BOS before the text."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNK))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, VOCABULARY[BOS])]
    )
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def labelled(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels of the words' prompts and replies, both of shape (words, width) and int64.

    Labels are `IGNORED` but on the reply and its EOS. The pads on the right change nothing here: nothing
    that the loss reads comes after them.
    """
    prompts = [tokenizer.encode(task.prompt(word)).ids for word in words]
    replies = [[*(VOCABULARY[letter] for letter in task.answer(word)), VOCABULARY[EOS]] for word in words]
    width = max(len(prompt) + len(reply) for prompt, reply in zip(prompts, replies, strict=True))
    ids = torch.full((len(words), width), VOCABULARY[PAD])
    labels = torch.full((len(words), width), IGNORED)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        end = len(prompt) + len(reply)
        ids[row, :end] = torch.tensor(prompt + reply)
        labels[row, len(prompt) : end] = torch.tensor(reply)
    return ids, labels


def long_words(seed: int) -> Iterator[str]:
    """Endless random words that lean to the longer lengths, which are the hard ones to learn."""
    words = task.words(seed)
    return (max(pair, key=len) for pair in zip(words, words, strict=True))


def train(
    tokenizer: Tokenizer, *, seed: int, steps: int, batch: int = 64, rate: float = 6e-3, warmup: int = 50
) -> LlamaForCausalLM:
    """A model trained on `steps` batches of random words, in eval mode.

    The learning rate rises to `rate` over `warmup` steps and falls to 0 at the last.
    """
    torch.manual_seed(seed)
    model: LlamaForCausalLM = LlamaForCausalLM(LlamaConfig(**CONFIG))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / (warmup + 1)) * (1 - step / steps)
    )
    words = long_words(seed)
    for step in range(steps):
        ids, labels = labelled(tokenizer, list(islice(words, batch)))
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():.5f}", flush=True)
    model.train(False)
    return model


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, tokenizer: Tokenizer, words: Sequence[str]) -> float:
    """The share of words for which every token of the right reply is the model's first choice.

    Those are the words for which greedy decoding of the prompt alone gives the right reply.
    """
    ids, labels = labelled(tokenizer, words)
    choices = model(input_ids=ids).logits[:, :-1].argmax(-1)
    right = (choices == labels[:, 1:]) | (labels[:, 1:] == IGNORED)
    return float(right.all(dim=1).float().mean())


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """Writes the weights as float16 and four JSON files which transformers 4 and 5 read alike into `out`.

    The JSON files are written here and not by `save_pretrained`, whose keys differ between releases.
    """
    torch.nn.Module.to(model, torch.float16)
    model.save_pretrained(out)
    tokenizer.save(str(out / "tokenizer.json"))
    for name, content in (
        ("config.json", CONFIG),
        ("generation_config.json", GENERATION_CONFIG),
        ("tokenizer_config.json", TOKENIZER_CONFIG),
    ):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of the training command, 0; prints the loss, then the accuracy on unseen words."""
    parser = argparse.ArgumentParser(prog="python -m padfix.demo.train", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "model")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)  # sums over several threads differ in their last bits
    tokenizer = character_tokenizer()
    model = train(tokenizer, seed=options.seed, steps=options.steps)
    save(model, tokenizer, options.out)
    tested = list(islice(task.words(options.seed + 1), 1000))
    saved = LlamaForCausalLM.from_pretrained(options.out)
    print(f"{accuracy(saved, tokenizer, tested):.1%} of {len(tested)} words reversed; saved in {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
