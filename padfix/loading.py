"""Models for the commands: the embedded one, or a folder or hub id; errors in one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
)
from transformers.utils import logging as transformers_logging

from .errors import LoadingError
from .generation.compat import DTYPE_KEYWORD

__all__ = ["DTYPES", "EMBEDDED", "embedded", "load", "one_line", "quiet", "skeleton", "tokenizer"]

EMBEDDED = Path(__file__).parent / "demo" / "model"
DTYPES = ("float32", "bfloat16", "float16", "auto")
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def embedded(dtype: str = "float32", device: str = "cpu") -> tuple[Any, Any]:
    """The model that comes with padfix and its tokenizer, as `load` gives them; no network is used."""
    return load(str(EMBEDDED), dtype, device)


def load(
    source: str, dtype: str = "float32", device: str = "cpu", *, trust_remote_code: bool = False
) -> tuple[Any, Any]:
    """The decoder-only model of a folder or a hub id, ready to generate, and its tokenizer.

    Args:
        source: The folder that holds config.json, or the id of a repository of the hub.
        dtype: One of `DTYPES`; `auto` is what the checkpoint says.
        device: Where the model goes, as torch names it.
        trust_remote_code: Whether code that comes with the model is run.

    Raises:
        LoadingError: There is no such model, transformers cannot load it, it has an encoder, or there is no such
            device.
    """
    wanted = "auto" if dtype == "auto" else getattr(torch, dtype)
    with _explained(source), quiet():
        config = _config(source, trust_remote_code)
        model: Any = _auto_class(config).from_pretrained(
            source, trust_remote_code=trust_remote_code, **{DTYPE_KEYWORD: wanted}
        )
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    try:
        return model.to(device).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:  # torch has no common one
        named = "The embedded model" if source == str(EMBEDDED) else source
        raise LoadingError(f"{named} cannot be moved to the device {device!r} ({one_line(error)}).") from error


def skeleton(source: str, *, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """The decoder-only model of a folder or a hub id without its weights (on the device `meta`), and its tokenizer.

    Everything that configuration, modules and generation config say is there; nothing can be computed.

    Raises:
        LoadingError: As `load`.
    """
    with _explained(source), quiet():
        config = _config(source, trust_remote_code)
        with torch.device("meta"):
            model: Any = _auto_class(config).from_config(config, trust_remote_code=trust_remote_code)
        with suppress(OSError):  # else the one that the model has made from its configuration
            model.generation_config = GenerationConfig.from_pretrained(source)
        return model.eval(), AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)


def tokenizer(source: str, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a folder or a hub id.

    Raises:
        LoadingError: There is none that transformers can load.
    """
    with _explained(source, "AutoTokenizer loads"), quiet():
        return AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the warnings and progress bars of transformers and the hub's client out of a command's output."""
    library: Any = transformers_logging  # untyped
    hub = logging.getLogger("huggingface_hub")
    verbosity, bars, level = library.get_verbosity(), library.is_progress_bar_enabled(), hub.level
    library.set_verbosity_error()
    library.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()


def _config(source: str, trust_remote_code: bool) -> Any:
    if not Path(source).is_dir() and (Path(source).exists() or not _HUB_ID.fullmatch(source)):
        raise LoadingError(f"{source} is neither a folder nor a hub id. Pass the folder that holds config.json.")
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise LoadingError(f"The folder {source} holds no config.json. Pass the folder of a model that was saved.")
    config = AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
    if getattr(config, "is_encoder_decoder", False):
        raise LoadingError(
            f"{source} ({config.model_type}) is an encoder-decoder model, which has no padded prompt to decode after. "
            "Pass a decoder-only model."
        )
    return config


def _auto_class(config: Any) -> Any:
    """The class that loads a model of this configuration: causal language models, then those that see images too."""
    is_causal = type(config) in AutoModelForCausalLM._model_mapping or "AutoModelForCausalLM" in (
        getattr(config, "auto_map", None) or {}
    )
    sees_images = type(config) in AutoModelForImageTextToText._model_mapping
    return AutoModelForImageTextToText if sees_images and not is_causal else AutoModelForCausalLM


@contextmanager
def _explained(source: str, wanted: str = "AutoModelForCausalLM and AutoTokenizer load") -> Iterator[None]:
    """Turns whatever transformers raises while loading into one line."""
    try:
        yield
    except LoadingError:
        raise
    except Exception as error:  # hub, JSON, safetensors and torch have no common one
        absent = "" if Path(source).is_dir() else "there is no such folder here, and as a hub id: "
        raise LoadingError(
            f"transformers cannot load {source} ({absent}{one_line(error)}). Pass a folder or hub id that {wanted}."
        ) from error


def one_line(error: BaseException) -> str:
    """What was raised, as one line of at most 240 characters."""
    return shorten(f"{type(error).__name__}: {error}", 240, placeholder=" ...")
