"""What is to be drawn: a padded batch of ids and mask, read from whatever holds one."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import PromptError
from ..layout.detect import Padding, from_ids, from_mask
from ..layout.rows import Side, padded
from ..prompts import Prompt, token_ids

__all__ = ["Batch", "of_prompts", "read", "read_file"]

EXPECTED = 'Pass {"input_ids": rows, "attention_mask": rows}, or a mask, with rows of one width.'


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch, on the CPU.

    Attributes:
        real: Bool of shape (batch, width), True where a token is real.
        ids: Int64 of the same shape, or None where there is a mask alone.
        padding: What was found out about its pads; None where it has none.
    """

    real: Tensor
    ids: Tensor | None
    padding: Padding | None

    @property
    def wrong(self) -> tuple[int, ...]:
        """The rows whose reply would start after a pad, or that have pads between their tokens."""
        return () if self.padding is None else self.padding.misplaced

    @property
    def empty(self) -> tuple[int, ...]:
        """The rows without a token."""
        return () if self.padding is None else self.padding.empty


def read(batch: Any, *, pad_token_id: int | None = None, eos_token_ids: Collection[int] = ()) -> Batch:
    """The batch that a mapping with `input_ids` and perhaps `attention_mask` holds, or that a mask alone describes.

    Without a mask the ids are read as padfix reads them in a call of `generate`: `layout.detect.from_ids`.

    Raises:
        PromptError: That is no batch, or it has no mask and there is no pad id to find its pads by.
    """
    if not isinstance(batch, Mapping):
        mask = _matrix("The batch", batch)
        if not _is_mask(mask):
            raise PromptError(f"The batch is rows alone, and not of 0 and 1: that is no mask. {EXPECTED}")
        return _described(None, mask, from_mask(mask))
    if batch.get("input_ids") is None and batch.get("attention_mask") is None:
        named = ", ".join(map(repr, list(batch)[:8])) or "nothing"
        raise PromptError(f"The batch holds {named}, and neither input_ids nor attention_mask. {EXPECTED}")
    ids = None if batch.get("input_ids") is None else _matrix("input_ids", batch["input_ids"])
    if ids is not None and (ids.is_floating_point() or ids.dtype == torch.bool):
        raise PromptError(f"input_ids holds {ids.dtype}, not whole numbers. {EXPECTED}")
    if batch.get("attention_mask") is not None:
        mask = _matrix("attention_mask", batch["attention_mask"])
        if ids is not None and ids.shape != mask.shape:
            raise PromptError(
                f"input_ids has shape {tuple(ids.shape)} and attention_mask {tuple(mask.shape)}: they have to be "
                "equal. Where the mask counts cached columns as well, draw the mask alone."
            )
        if not _is_mask(mask):
            raise PromptError(
                "attention_mask holds values other than 0 and 1: in a call padfix would name it and leave it as it is. "
                "Pass 1 for tokens and 0 for pads."
            )
        return _described(ids, mask, from_mask(mask))
    assert ids is not None
    if pad_token_id is None:
        raise PromptError(
            "The batch has no attention_mask, and without a pad id nothing tells its pads. Pass the mask, or "
            "pad_token_id (--pad-token-id), or a tokenizer that has a pad token."
        )
    return _described(ids, torch.ones_like(ids), from_ids(ids, pad_token_id, eos_token_ids))


def read_file(path: Path) -> Any:
    """What a JSON file holds; `-` is standard input.

    Raises:
        PromptError: It cannot be read, or is no JSON.
    """
    name = "Standard input" if str(path) == "-" else str(path)
    try:
        return json.loads(sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PromptError(f"Cannot read a batch from {name}: {error.strerror}. Pass a JSON file.") from error
    except (ValueError, RecursionError) as error:  # JSON's and Unicode's are ValueErrors
        raise PromptError(f"{name} is no JSON ({error}). {EXPECTED}") from error


def of_prompts(tokenizer: Any, prompts: Prompt | Sequence[Prompt], side: Side | None = None) -> dict[str, Tensor]:
    """The batch of the prompts, padded on `side` or where the tokenizer pads, as the tokenizer would make it."""
    where: Side = side or ("left" if tokenizer.padding_side == "left" else "right")
    pad_id = 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    ids, mask = padded(token_ids(tokenizer, prompts), pad_id, where)
    return {"input_ids": ids, "attention_mask": mask}


def _described(ids: Tensor | None, mask: Tensor, padding: Padding | None) -> Batch:
    return Batch(mask != 0 if padding is None else padding.real, ids, padding)


def _is_mask(matrix: Tensor) -> bool:
    return bool(((matrix == 0) | (matrix == 1)).all())


def _matrix(name: str, value: Any) -> Tensor:
    """A value as a tensor of shape (batch, width) on the CPU; one row alone is a batch of one."""
    matrix = (
        (value if value.is_meta else value.detach().cpu()) if isinstance(value, Tensor) else _from_rows(name, value)
    )
    matrix = matrix[None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.is_complex():
        raise PromptError(f"{name} has shape {tuple(matrix.shape)} and holds {matrix.dtype}. {EXPECTED}")
    if matrix.is_meta or matrix.layout != torch.strided:
        raise PromptError(f"{name} is on the device meta, or sparse: there are no cells to draw. {EXPECTED}")
    if 0 in matrix.shape:
        raise PromptError(f"{name} has shape {tuple(matrix.shape)}: there is nothing to draw. {EXPECTED}")
    return matrix.cpu()


def _from_rows(name: str, value: Any) -> Tensor:
    rows = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(rows, Sequence) or isinstance(rows, (str, bytes)):
        raise PromptError(f"{name} is of type {type(value).__name__}. {EXPECTED}")
    if not rows:
        raise PromptError(f"{name} has no rows: there is nothing to draw. {EXPECTED}")
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
    widths = [len(row) if isinstance(row, Sequence) and not isinstance(row, (str, bytes)) else -1 for row in rows]
    odd = next((at for at, width in enumerate(widths) if width != widths[0]), None)
    if odd is not None:
        seen = [f"has {width} columns" if width >= 0 else "is no row" for width in (widths[odd], widths[0])]
        raise PromptError(f"Row {odd} of {name[0].lower()}{name[1:]} {seen[0]} and row 0 {seen[1]}. {EXPECTED}")
    try:
        return torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PromptError(f"{name} holds something else than numbers of 64 bits. {EXPECTED}") from error
