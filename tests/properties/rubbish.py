"""What a caller can pass that is no sound argument of `generate`: tensors changed, and values of any other kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

__all__ = ["ARGUMENTS", "BOTH", "IDS", "MASKS", "VALUES", "Marked"]


class Marked(Tensor):
    """A subclass of Tensor."""


def _with_cell(x: Tensor, value: float) -> Tensor:
    changed = x.clone()
    changed[0, -1] = value
    return changed


def _strided(x: Tensor) -> Tensor:
    return torch.stack((x, 1 - x if x.is_floating_point() else x ^ 1), 2).flatten(1)[:, ::2]


# Changes of a tensor that leave its values what they are; fit for masks and ids alike.
SAME: Mapping[str, Callable[[Tensor], Any]] = {
    "as it is": lambda x: x,
    "strided": _strided,
    "turned": lambda x: x.t().contiguous().t(),
    "one row, expanded": lambda x: x[:1].expand(len(x), -1),
    "a subclass": lambda x: x.clone().as_subclass(Marked),
    "int32": lambda x: x.int(),
    "int16": lambda x: x.short(),
    "int8": lambda x: x.to(torch.int8),
    "uint8": lambda x: x.to(torch.uint8),
    "a parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "a slice of a larger one": lambda x: torch.cat((x, x), 1)[:, : x.shape[1]],
}
# Changes of its form, and values that are no tensor.
FORMS: Mapping[str, Callable[[Tensor], Any]] = {
    "a list": Tensor.tolist,
    "a tuple of rows": tuple,
    "an array": Tensor.numpy,
    "an array of objects": lambda x: np.array(x.tolist(), dtype=object),
    "a word": lambda x: "the quick brown fox",
    "a number": lambda x: 3,
    "an object": lambda x: object(),
    "without a value": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "complex": lambda x: x.to(torch.complex64),
    "of no axis": lambda x: torch.tensor(1),
    "of one axis": lambda x: x[0],
    "of three axes": lambda x: x[:, None],
    "of three axes at the end": lambda x: x[:, :, None],
    "of four axes": lambda x: x[:, None, None],
    "transposed": lambda x: x.t(),
    "without a row": lambda x: x[:0],
    "without a column": lambda x: x[:, :0],
    "one row": lambda x: x[:1],
    "a row more": lambda x: torch.cat((x, x[:1])),
    "a row less": lambda x: x[1:],
    "a column more": lambda x: torch.cat((x, x[:, :1]), 1),
    "a column less": lambda x: x[:, 1:],
    "float": lambda x: x.float(),
    "half": lambda x: x.half(),
    "double": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "float with a gradient": lambda x: x.double().requires_grad_(),
    "bool": lambda x: x.bool(),
}
MASKS: Mapping[str, Callable[[Tensor], Any]] = {
    **SAME,
    **FORMS,
    "none": lambda x: None,
    "NaN in a cell": lambda x: _with_cell(x.double(), math.nan),
    "inf in a cell": lambda x: _with_cell(x.double(), math.inf),
    "-inf in a cell": lambda x: _with_cell(x.double(), -math.inf),
    "-1 in a cell": lambda x: _with_cell(x, -1),
    "2 in a cell": lambda x: _with_cell(x, 2),
    "a half in a cell": lambda x: _with_cell(x.double(), 0.5),
    "almost 0 in a cell": lambda x: _with_cell(x.double(), 1e-12),
    "-0.0": lambda x: x.double() * torch.where(x == 0, -1.0, 1.0),
    "twice": lambda x: x * 2,
    "negative": lambda x: -x,
    "additive": lambda x: torch.zeros(x.shape).masked_fill(x == 0, -math.inf),
    "additive and finite": lambda x: (x - 1.0) * 1e4,
    "turned over": lambda x: 1 - x,
    "all 0": lambda x: x * 0,
    "all 1": lambda x: x * 0 + 1,
    "first row empty": lambda x: torch.cat((x[:1] * 0, x[1:])),
}
IDS: Mapping[str, Callable[[Tensor], Any]] = {
    **SAME,
    **FORMS,
    "none": lambda x: None,
    "-1 in a cell": lambda x: _with_cell(x, -1),
    "-100 in a cell": lambda x: _with_cell(x, -100),
    "the vocabulary's size in a cell": lambda x: _with_cell(x, 99),
    "2**40 in a cell": lambda x: _with_cell(x, 2**40),
    "2**63 - 1 in a cell": lambda x: _with_cell(x, 2**63 - 1),
    "-1 for pads": lambda x: x.masked_fill(x == 0, -1),
    "-100 for pads": lambda x: x.masked_fill(x == 0, -100),
    "2**40 for pads": lambda x: x.masked_fill(x == 0, 2**40),
    "EOS for pads": lambda x: x.masked_fill(x == 0, 2),
    "all pads": lambda x: x * 0,
    "all EOS": lambda x: x * 0 + 2,
    "all one id": lambda x: x * 0 + 5,
}
BOTH = (
    "without a row",
    "without a column",
    "of one axis",
    "of three axes",
    "one row",
    "a row more",
    "a column more",
    "transposed",
    "strided",
    "a subclass",
    "int32",
    "a list",
    "an array",
    "without a value",
    "sparse",
)


class _Streamer:
    """Takes whatever comes."""

    def put(self, value: Tensor) -> None:
        assert isinstance(value, Tensor)

    def end(self) -> None:
        pass


def _cache(rows: int, columns: int) -> Any:
    cache = transformers.DynamicCache()
    if columns:
        cache.update(torch.ones(rows, 1, columns, 4).double(), torch.ones(rows, 1, columns, 4).double(), 0)
    return cache


# Values by name, made anew for each call.
VALUES: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "1": lambda: 1,
    "2": lambda: 2,
    "3": lambda: 3,
    "99": lambda: 99,
    "-1": lambda: -1,
    "-100": lambda: -100,
    "1.5": lambda: 1.5,
    "2.0": lambda: 2.0,
    "0.0": lambda: 0.0,
    "NaN": lambda: math.nan,
    "inf": lambda: math.inf,
    "'two'": lambda: "two",
    "'2'": lambda: "2",
    "''": lambda: "",
    "bytes": lambda: b"two",
    "[]": list,
    "{}": dict,
    "()": tuple,
    "[2]": lambda: [2],
    "[2, 61]": lambda: [2, 61],
    "(2, 61)": lambda: (2, 61),
    "{2, 61}": lambda: {2, 61},
    "[[5]]": lambda: [[5]],
    "[[5, 17], [33]]": lambda: [[5, 17], [33]],
    "[None]": lambda: [None],
    "['a']": lambda: ["a"],
    "{(5, 17): 4.0}": lambda: {(5, 17): 4.0},
    "{'a': 1}": lambda: {"a": 1},
    "object": object,
    "class": lambda: int,
    "function": lambda: abs,
    "numpy 2": lambda: np.int64(2),
    "numpy [2, 61]": lambda: np.array([2, 61]),
    "tensor 2": lambda: torch.tensor(2),
    "tensor [2]": lambda: torch.tensor([2]),
    "tensor [2, 61]": lambda: torch.tensor([2, 61]),
    "tensor 2.5": lambda: torch.tensor(2.5),
    "empty tensor": lambda: torch.empty(0, dtype=torch.long),
    "ids of 3 rows": lambda: torch.tensor([[5, 17], [33, 8], [61, 24]]),
    "ids of 2 rows": lambda: torch.tensor([[5, 17], [33, 8]]),
    "zeros of 3 rows": lambda: torch.zeros(3, 5, dtype=torch.long),
    "embeddings": lambda: torch.ones(3, 5, 8).double(),
    "embeddings of 2 axes": lambda: torch.ones(3, 8).double(),
    "embeddings of 1 row": lambda: torch.ones(1, 5, 8).double(),
    "meta tensor": lambda: torch.zeros(3, 5, dtype=torch.long, device="meta"),
    "range of columns": lambda: torch.arange(5)[None],
    "range of rows": lambda: torch.arange(5).repeat(3, 1),
    "range of floats": lambda: torch.arange(5.0)[None],
    "streamer": _Streamer,
    "empty cache": lambda: _cache(3, 0),
    "cache of 3 rows": lambda: _cache(3, 2),
    "cache of 2 rows": lambda: _cache(2, 2),
    "cache of many columns": lambda: _cache(3, 9),
    "tuples": lambda: ((torch.ones(3, 1, 2, 4).double(), torch.ones(3, 1, 2, 4).double()),),
    "config": lambda: transformers.GenerationConfig(max_new_tokens=2, eos_token_id=2, pad_token_id=0),
    "config of a model": transformers.LlamaConfig,
    "config of words": lambda: transformers.GenerationConfig(eos_token_id="two"),
}

# No value of a length or count makes transformers itself run for hours. `assistant_early_exit` is not here: a call of
# transformers that raises under it leaves the model's configuration changed.
ARGUMENTS = (
    "assistant_model",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "cache_position",
    "colour",
    "constraints",
    "decoder_attention_mask",
    "decoder_input_ids",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_outputs",
    "encoder_repetition_penalty",
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "generation_config",
    "guidance_scale",
    "image_bound",
    "inputs",
    "inputs_embeds",
    "length_penalty",
    "logits_processor",
    "max_length",
    "max_new_tokens",
    "max_time",
    "min_length",
    "min_new_tokens",
    "min_p",
    "negative_prompt_attention_mask",
    "negative_prompt_ids",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "past_key_values",
    "penalty_alpha",
    "pixel_values",
    "position_ids",
    "prefill_chunk_size",
    "prefix_allowed_tokens_fn",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "repetition_penalty",
    "return_dict_in_generate",
    "sequence_bias",
    "stop_strings",
    "stopping_criteria",
    "streamer",
    "suppress_tokens",
    "synced_gpus",
    "temperature",
    "token_healing",
    "token_type_ids",
    "tokenizer",
    "top_k",
    "top_p",
    "typical_p",
    "use_cache",
    "use_model_defaults",
    "watermarking_config",
)
