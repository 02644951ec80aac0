"""Tiny models, padded batches, and the oracle: what each prompt gets alone, as a batch of one.

    model = build("llama")
    check(model, right_padded(ROWS), ROWS)

`check` fails, naming the row, when a row of the batch does not get what its prompt gets alone (tokens, the logits and
scores of every step, beam scores), or when the output is not in the caller's layout. Where the oracle itself would
prove nothing (replies that are all alike, or constant) it raises RuntimeError, which no test takes for a failure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

import padfix

VOCABULARY, PAD, BOS, EOS = 99, 0, 1, 2

# A row without pads, one with four, one with two.
ROWS = [[5, 17, 33, 8, 61, 24, 9], [11, 42, 7], [71, 13, 55, 29, 3]]

GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 6}

LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}

# Name -> (class, configuration); heads are untied, since a tied one tends to repeat its last token.
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", LLAMA),
    "mistral": ("MistralForCausalLM", LLAMA | {"sliding_window": 4}),
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 256,
            "tie_word_embeddings": False,
        },
    ),
    "gpt_neo": (  # a full layer, then a local one
        "GPTNeoForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 256,
            "tie_word_embeddings": False,
        },
    ),
    "opt": (
        "OPTForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 256,
            "word_embed_proj_dim": 32,
            "tie_word_embeddings": False,
        },
    ),
    "bloom": (
        "BloomForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
            "initializer_range": 0.04,  # with less its replies hang on the last token alone
            "tie_word_embeddings": False,
        },
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 8,
            "state_size": 8,
            "n_groups": 2,
            "chunk_size": 4,
            "tie_word_embeddings": False,
        },
    ),
    "gemma3": (  # a sliding layer, then a full one; up to 4.51 the pattern says so
        "Gemma3ForCausalLM",
        LLAMA
        | {
            "head_dim": 8,
            "sliding_window": 4,
            "sliding_window_pattern": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "tie_word_embeddings": False,
        },
    ),
    "bart": (
        "BartForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "decoder_start_token_id": BOS,
            "forced_eos_token_id": None,
            "tie_word_embeddings": False,
        },
    ),
    "blenderbot": (
        "BlenderbotForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 48,
            "is_decoder": True,
            "is_encoder_decoder": False,
            "tie_word_embeddings": False,
        },
    ),
    "rwkv": (
        "RwkvForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2},
    ),
}


@functools.cache
def _weights(name: str, config: tuple[tuple[str, Any], ...]) -> Any:
    class_name, sizes = MODELS[name]
    model_class = getattr(transformers, class_name)
    specials = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**specials | sizes | dict(config))).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim >= 2:  # the default initialisation leaves the logits flat, and ties hide faults
                weight.mul_(4.0)
    for special, value in specials.items():
        setattr(model.generation_config, special, value)
    return model


def is_there(name: str) -> bool:
    """Whether the installed release of transformers has the model."""
    return hasattr(transformers, MODELS[name][0])


def build(name: str, **config: Any) -> Any:
    """A model of the table in float32 with fixed, decisive weights, `config` on top of its row; the caller's own."""
    import copy

    return copy.deepcopy(_weights(name, tuple(sorted(config.items()))))


def right_padded(rows: Sequence[Sequence[int]], *, pad: int = PAD, extra: int = 0) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` of shape (rows, longest + extra): each row's pads after its tokens."""
    return _padded(rows, lambda row, pads: [*row, *pads], pad, extra)


def left_padded(rows: Sequence[Sequence[int]], *, pad: int = PAD, extra: int = 0) -> dict[str, Tensor]:
    """As `right_padded`, each row's pads before its tokens."""
    return _padded(rows, lambda row, pads: [*pads, *row], pad, extra)


def both_padded(rows: Sequence[Sequence[int]], *, pad: int = PAD, extra: int = 0) -> dict[str, Tensor]:
    """As `right_padded`, with half of each row's pads (rounded up) before its tokens."""

    def place(row: Sequence[int], pads: Sequence[int]) -> list[int]:
        half = (len(pads) + 1) // 2
        return [*pads[:half], *row, *pads[half:]]

    return _padded(rows, place, pad, extra)


def holed(rows: Sequence[Sequence[int]], *, pad: int = PAD, extra: int = 0) -> dict[str, Tensor]:
    """As `right_padded`, with each row's pads in the middle of its tokens."""
    return _padded(rows, lambda row, pads: [*row[: len(row) // 2], *pads, *row[len(row) // 2 :]], pad, extra)


PADDERS: Mapping[str, Callable[..., dict[str, Tensor]]] = {
    "right": right_padded,
    "left": left_padded,
    "both": both_padded,
    "holes": holed,
}


def _padded(
    rows: Sequence[Sequence[int]],
    place: Callable[[Sequence[int], Sequence[int]], list[int]],
    pad: int,
    extra: int,
) -> dict[str, Tensor]:
    width = max(map(len, rows)) + extra
    ids = [place(row, [pad] * (width - len(row))) for row in rows]
    mask = [place([1] * len(row), [0] * (width - len(row))) for row in rows]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def embedded(model: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch with its ids as embeddings of shape (rows, width, hidden)."""
    embeds = model.get_input_embeddings()(batch["input_ids"]).detach()
    return {"inputs_embeds": embeds} | {name: value for name, value in batch.items() if name != "input_ids"}


@dataclass(frozen=True)
class Reply:
    """What one row got: its new tokens up to the first EOS inclusive, and what they were chosen from."""

    tokens: list[int]
    logits: Tensor | None  # (steps, vocabulary), as the model gave them; None under beams
    scores: Tensor | None  # (steps, vocabulary), after the logits processors; None under beams
    beam_score: float | None


def alone(
    model: Any,
    rows: Sequence[Sequence[int]],
    *,
    each: Callable[[int], Mapping[str, Any]] | None = None,
    distinct: bool = True,
    **arguments: Any,
) -> list[Reply]:
    """The replies that the prompts get as batches of one, unpadded, from transformers as it is.

    `each(i)` gives the arguments of row i's own; None takes one away. RuntimeError where the replies prove nothing,
    unless `distinct` is False.
    """
    replies: list[Reply] = []
    for index, row in enumerate(rows):
        inputs = {**right_padded([row]), **(each(index) if each else {})}
        inputs = {name: value for name, value in inputs.items() if value is not None}
        with padfix.suppressed():
            replies += together(model, inputs, **arguments)
    tokens = [tuple(reply.tokens) for reply in replies]
    if distinct and (len(set(tokens)) < len(tokens) or all(len(set(one)) == 1 < len(one) for one in tokens)):
        raise RuntimeError(f"the oracle proves nothing: alone the prompts get {tokens}")
    return replies


def together(model: Any, batch: Mapping[str, Any], **arguments: Any) -> list[Reply]:
    """The replies of one call of `model.generate`, its output checked for the caller's layout.

    The caller's tensors are checked to be as they were.
    """
    arguments = dict(arguments) if "max_length" in arguments else GREEDY | arguments
    arguments.setdefault("do_sample", False)
    before = {name: value.clone() for name, value in batch.items() if isinstance(value, Tensor)}
    output = model.generate(**batch, **arguments, return_dict_in_generate=True, output_logits=True, output_scores=True)
    for name, value in before.items():
        assert torch.equal(batch[name], value), f"the call changed the caller's {name}"
    return read(model, output, batch, **arguments)


def read(model: Any, output: Any, batch: Mapping[str, Any], **arguments: Any) -> list[Reply]:
    """The replies in an output, whose prompt columns have to be the caller's own, with nothing but pads after EOS."""
    config = arguments.get("generation_config") or model.generation_config
    eos = arguments.get("eos_token_id", config.eos_token_id)
    ends = list(eos) if isinstance(eos, (list, tuple)) else [eos]
    pad = arguments.get("pad_token_id", config.pad_token_id)
    pad = ends[0] if pad is None else pad
    copies = arguments.get("num_return_sequences") or 1
    searched = (arguments.get("num_beams") or 1) > 1
    prompt = batch.get("decoder_input_ids" if model.config.is_encoder_decoder else "input_ids")
    width = 0 if prompt is None else prompt.shape[1]
    if prompt is not None:
        expected = prompt.repeat_interleave(copies, 0)
        assert torch.equal(output.sequences[:, :width], expected), "the prompt part of the output is not the caller's"
    elif model.config.is_encoder_decoder:
        width = 1  # the decoder's start token

    replies = []
    for row, new in enumerate(output.sequences[:, width:].tolist()):
        stops = [step for step, token in enumerate(new) if token in ends]
        end = stops[0] + 1 if stops else len(new)
        # Beam search fills finished rows with EOS where the pad id is 0.
        fills = {pad, ends[0]} if searched else {pad}
        assert set(new[end:]) <= fills, f"row {row}: not only pads ({pad}) after EOS: {new}"
        replies.append(
            Reply(
                tokens=new[:end],
                logits=None if searched else torch.stack([step[row] for step in output.logits])[:end],
                scores=None if searched else torch.stack([step[row] for step in output.scores])[:end],
                beam_score=output.sequences_scores[row].item() if searched else None,
            )
        )
    return replies


def compare(replies: Sequence[Reply], expected: Sequence[Reply], *, tolerance: float = 1e-4) -> None:
    """Fails where a reply is not the expected one; logits and scores within `tolerance` of their scale."""
    assert len(replies) == len(expected), f"{len(replies)} replies, {len(expected)} expected"
    for row, (got, want) in enumerate(zip(replies, expected, strict=True)):
        assert got.tokens == want.tokens, f"row {row}: {want.tokens} alone, {got.tokens} in the batch"
        for name in ("logits", "scores"):
            one, other = getattr(got, name), getattr(want, name)
            if other is not None:
                assert_close(one, other, tolerance=tolerance, what=f"row {row}: {name}")
        if want.beam_score is not None and got.beam_score is not None:
            allowed = tolerance * max(1.0, abs(want.beam_score))
            assert abs(got.beam_score - want.beam_score) < allowed, f"row {row}: beam score"


def assert_close(value: Tensor, expected: Tensor, *, tolerance: float = 1e-4, what: str = "value") -> None:
    """Fails unless `value` equals `expected` within `tolerance` of its scale, infinities in the same places."""
    finite = expected.isfinite()
    assert value.shape == expected.shape, f"{what}: shape {tuple(value.shape)}, {tuple(expected.shape)} alone"
    assert torch.equal(value.isfinite(), finite), f"{what}: infinities at other places than alone"
    if finite.any():
        scale = expected[finite].abs().max().clamp(min=1e-6)
        worst = ((value - expected)[finite].abs().max() / scale).item()
        assert worst < tolerance, f"{what} off by {worst:.1e} of the scale"


def check(
    model: Any,
    batch: Mapping[str, Any],
    rows: Sequence[Sequence[int]],
    *,
    each: Callable[[int], Mapping[str, Any]] | None = None,
    distinct: bool = True,
    tolerance: float = 1e-4,
    **arguments: Any,
) -> None:
    """Fails unless every row of the batch gets what its prompt gets alone, in the caller's layout."""
    expected = alone(model, rows, each=each, distinct=distinct, **arguments)
    compare(together(model, batch, **arguments), expected, tolerance=tolerance)
