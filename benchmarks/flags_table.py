"""The flags of `generate`, each in a padded batch against each prompt alone, in stock and with padfix.

Measured on the tiny Llama and GPT-2 of the tests, in float32, on tokens and on the processed scores of every step: a
cell says `equal` where both models give every row what its prompt gets alone. Where a flag samples, every draw takes
the likeliest token. No network; prints the table, or writes it into docs/flags.md::

    OMP_NUM_THREADS=1 python benchmarks/flags_table.py [--write]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
import transformers
from oracle import EOS, PAD, build, compare, embedded, left_padded, right_padded, together
from properties.flags import likeliest_drawn

import padfix

PAGE = Path(__file__).resolve().parents[1] / "docs" / "flags.md"
BEGIN, END = "<!-- flags_table.py -->", "<!-- end -->"
MODELS = ("llama", "gpt2")
# A prompt of one token, one that repeats itself, one with EOS inside, the longest.
PROMPTS = [[17], [5, 33, 5, 33, 5], [61, EOS, 8, 61], [24, 8, 61, 17, 33, 5, 24, 8, 61, 17, 33]]
NEGATIVE = [[5], [8, 61, 24], [17, 33], [33]]


class Flag(NamedTuple):
    """A flag with a value, what has to stand beside it, and whether the prompts are embeddings alone."""

    name: str
    value: Any
    beside: Mapping[str, Any] = {}
    embeds: bool = False


def _sampled(name: str, value: Any) -> Flag:
    return Flag(name, value, {"do_sample": True, "top_k": 0} if name != "top_k" else {"do_sample": True})


def flags() -> list[Flag]:
    """Every flag of the table, by kind."""
    watermark, synthid = transformers.WatermarkingConfig, transformers.SynthIDTextWatermarkingConfig
    return [
        Flag("do_sample", False),
        Flag("num_beams", 3),
        Flag("num_return_sequences", 2, {"num_beams": 2}),
        Flag("use_cache", False),
        Flag("max_new_tokens", 4),
        Flag("min_new_tokens", 3),
        Flag("min_length", 10),
        Flag("repetition_penalty", 1.6),
        Flag("min_length", 10, embeds=True),
        Flag("repetition_penalty", 1.6, embeds=True),
        Flag("encoder_repetition_penalty", 2.5),
        Flag("no_repeat_ngram_size", 1),
        Flag("no_repeat_ngram_size", 2),
        Flag("encoder_no_repeat_ngram_size", 1),
        Flag("sequence_bias", {(5,): 3.0, (8, 61): 9.0}),
        Flag("bad_words_ids", [[PAD, 17, 42], [33, 51]]),
        Flag("forced_bos_token_id", 7),
        Flag("forced_eos_token_id", EOS),
        Flag("exponential_decay_length_penalty", (1, 2.0)),
        Flag("suppress_tokens", [19, 42]),
        Flag("begin_suppress_tokens", [19, 42]),
        Flag("begin_suppress_tokens", [19, 42], {"forced_bos_token_id": 7}),
        Flag("watermarking_config", watermark(bias=6.0, context_width=4, seeding_scheme="selfhash")),
        Flag("watermarking_config", synthid(ngram_len=3, keys=[11, 5, 7]), {"do_sample": True}),
        Flag("guidance_scale", 2.0),
        Flag("guidance_scale", 2.0, {"negative_prompt_ids": NEGATIVE}),
        Flag("remove_invalid_values", True),
        Flag("renormalize_logits", True),
        *(
            _sampled(name, value)
            for name, value in (
                ("temperature", 0.6),
                ("top_k", 5),
                ("top_p", 0.6),
                ("min_p", 0.2),
                ("typical_p", 0.6),
                ("epsilon_cutoff", 0.02),
                ("eta_cutoff", 0.02),
            )
        ),
    ]


def is_equal(model: Any, flag: Flag, side: str) -> bool:
    """Whether every row of the batch gets what its prompt gets alone."""
    arguments = {"pad_token_id": PAD, "max_new_tokens": 6, **flag.beside, flag.name: flag.value}
    negative = arguments.pop("negative_prompt_ids", None)
    pad = right_padded if side == "right" else left_padded
    # 4.51 and 4.57 misplace a prompt that is one embedding, alone.
    prompts = [prompt * 2 if flag.embeds and len(prompt) == 1 else prompt for prompt in PROMPTS]
    batch: dict[str, Any] = dict(pad(prompts))
    if negative is not None:
        padded = pad(negative)
        batch["negative_prompt_ids"] = padded["input_ids"]
        batch["negative_prompt_attention_mask"] = padded["attention_mask"]
    expected = []
    with padfix.suppressed():
        for row, prompt in enumerate(prompts):
            single: dict[str, Any] = dict(right_padded([prompt]))
            if negative is not None:
                single["negative_prompt_ids"] = torch.tensor([negative[row]])
            expected += together(model, embedded(model, single) if flag.embeds else single, **arguments)
    try:
        compare(together(model, embedded(model, batch) if flag.embeds else batch, **arguments), expected)
    except AssertionError:
        return False
    return True


def rows() -> list[tuple[str, list[bool]]]:
    """Each flag as it is shown, and whether it is equal in stock and with padfix, right- and left-padded each."""
    models = [build(name) for name in MODELS]
    measured = []
    with likeliest_drawn(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for flag in flags():
            cells = []
            for mode, side in (("off", "right"), ("off", "left"), ("fix", "right"), ("fix", "left")):
                with padfix.override(mode):
                    cells.append(all(is_equal(model, flag, side) for model in models))
            measured.append((shown(flag), cells))
    return measured


def shown(flag: Flag) -> str:
    """A flag as the table names it."""
    value = type(flag.value).__name__ if isinstance(flag.value, (list, dict, tuple)) else flag.value
    value = type(value).__name__ if "Config" in type(value).__name__ else value
    beside = [name for name in flag.beside if name not in ("do_sample", "top_k")]
    beside += ["inputs_embeds"] if flag.embeds else []
    return f"`{flag.name}={value}`" + (f" with `{', '.join(beside)}`" if beside else "")


def table(measured: Sequence[tuple[str, Sequence[bool]]]) -> str:
    """The table in Markdown."""
    lines = ["| flag | stock, right-padded | stock, left-padded | padfix, either |", "|---|---|---|---|"]
    for name, (right, left, ours_right, ours_left) in measured:
        cells = ["equal" if one else "**differs**" for one in (right, left, ours_right and ours_left)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the table into docs/flags.md")
    write = parser.parse_args().write
    transformers.logging.set_verbosity_error()
    padfix.install("fix")
    text = table(rows())
    if not write:
        print(text)
        return
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
