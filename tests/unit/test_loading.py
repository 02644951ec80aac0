"""Loading: the embedded model, a folder's model with and without weights, and whatever cannot be loaded."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import build
from transformers import BartConfig, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
from transformers.utils import logging as library_logging

from padfix import loading
from padfix.errors import LoadingError
from padfix.loading import DTYPES, EMBEDDED, embedded, load, quiet, skeleton

LOADERS: list[Callable[..., tuple[Any, Any]]] = [load, skeleton]
either = pytest.mark.parametrize("loader", LOADERS, ids=["load", "skeleton"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded model's folder."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "model"))


def test_embedded_model_is_small_ready_and_float32() -> None:
    model, tokenizer = embedded()
    assert model.dtype == torch.float32
    assert not model.training
    assert (EMBEDDED / "model.safetensors").stat().st_size < 1_000_000
    assert tokenizer.padding_side == "right"
    assert tokenizer("ab")["input_ids"] == [tokenizer.bos_token_id, *tokenizer.convert_tokens_to_ids(["a", "b"])]


@pytest.mark.parametrize("dtype", DTYPES)
def test_folder_is_loaded_in_the_dtype(dtype: str) -> None:
    model, tokenizer = load(str(EMBEDDED), dtype=dtype)
    assert model.dtype == (torch.float32 if dtype == "auto" else getattr(torch, dtype))
    assert not model.training
    assert tokenizer.eos_token == "<eos>"


def test_dtype_of_the_checkpoint_is_that_of_auto_alone(folder: Path) -> None:
    load(str(folder))[0].bfloat16().save_pretrained(folder)
    assert load(str(folder), dtype="auto")[0].dtype == torch.bfloat16
    assert load(str(folder))[0].dtype == torch.float32


def test_embedded_model_is_loaded_as_any_folder() -> None:
    model, _ = embedded("bfloat16", "meta")
    assert (model.dtype, model.device.type) == (torch.bfloat16, "meta")


def test_weights_are_those_of_the_folder() -> None:
    expected = embedded()[0].state_dict()
    got = load(str(EMBEDDED))[0].state_dict()
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], weight) for name, weight in expected.items())


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_device_that_is_not_there_is_named(device: str) -> None:
    message = f"The embedded model cannot be moved to the device {device!r} ("
    with pytest.raises(LoadingError, match=re.escape(message)) as caught:
        load(str(EMBEDDED), device=device)
    assert "\n" not in str(caught.value)


def test_skeleton_has_configuration_and_modules_but_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7], "pad_token_id": 5}))
    model, tokenizer = skeleton(str(folder))
    whole = embedded()[0]
    assert [name for name, _ in model.named_modules()] == [name for name, _ in whole.named_modules()]
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    assert not model.training
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == ([2, 7], 5)
    assert tokenizer.eos_token == "<eos>"


def test_skeleton_without_a_generation_config_has_that_of_its_configuration(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    model, _ = skeleton(str(folder))
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 0)


@either
def test_model_that_sees_images_too_has_its_own_class(folder: Path, loader: Callable[..., Any]) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**sizes, image_size=8, patch_size=4, projection_dim=16),
        text_config=LlamaConfig(**sizes, vocab_size=33),
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    assert type(loader(str(folder))[0]) is LlavaForConditionalGeneration


@either
def test_causal_model_has_the_class_of_its_configuration(folder: Path, loader: Callable[..., Any]) -> None:
    made = build("gpt2")
    made.save_pretrained(folder)
    assert type(loader(str(folder))[0]) is type(made)


# What cannot be loaded


@either
def test_encoder_decoder_model_is_refused(folder: Path, loader: Callable[..., Any]) -> None:
    BartConfig().save_pretrained(folder)
    with pytest.raises(LoadingError, match=re.escape(f"{folder} (bart) is an encoder-decoder model")):
        loader(str(folder))


@either
@pytest.mark.parametrize("source", ["{absent}", "weights.gguf", "not a model", "a/b/c", "../model", "a\0b"])
def test_what_is_neither_a_folder_nor_a_hub_id_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: Callable[..., Any], source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weights.gguf").touch()
    source = source.format(absent=tmp_path / "absent")
    with pytest.raises(LoadingError, match=re.escape(f"{source} is neither a folder nor a hub id.")):
        loader(source)


@either
@pytest.mark.parametrize("source", ["nobody/nothing", "nothing"])
def test_hub_id_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: Callable[..., Any], source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        LoadingError, match=re.escape(f"transformers cannot load {source} (there is no such folder here")
    ) as caught:
        loader(source)
    assert "\n" not in str(caught.value)


@either
@pytest.mark.parametrize(("name", "content"), [("config.json", "{ no json"), ("config.json", "{}")])
def test_broken_folder_is_named_in_one_line(folder: Path, loader: Callable[..., Any], name: str, content: str) -> None:
    (folder / name).write_text(content)
    with pytest.raises(LoadingError, match=re.escape(f"transformers cannot load {folder} (")) as caught:
        loader(str(folder))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("Pass a folder or hub id that AutoModelForCausalLM and AutoTokenizer load.")


@either
def test_folder_without_a_configuration_is_named(folder: Path, loader: Callable[..., Any]) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(LoadingError, match=re.escape(f"The folder {folder} holds no config.json.")):
        loader(str(folder))


def test_broken_weights_are_named_in_one_line(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no weights" * 9)
    with pytest.raises(LoadingError, match=re.escape(f"transformers cannot load {folder} (SafetensorError")) as caught:
        load(str(folder))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


# What transformers says meanwhile


def test_quiet_gives_back_the_verbosity_and_the_bars() -> None:
    library: Any = library_logging
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    try:
        library.set_verbosity(logging.INFO)
        library.enable_progress_bar()
        with quiet():
            assert library.get_verbosity() == logging.ERROR
            assert not library.is_progress_bar_enabled()
        assert library.get_verbosity() == logging.INFO
        assert library.is_progress_bar_enabled()
        library.disable_progress_bar()
        with quiet():
            pass
        assert not library.is_progress_bar_enabled()
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
        else:
            library.disable_progress_bar()


def test_quiet_gives_back_the_verbosity_after_an_error() -> None:
    before = library_logging.get_verbosity()
    with pytest.raises(ZeroDivisionError), quiet():
        _ = 1 // 0
    assert library_logging.get_verbosity() == before


def test_loading_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    load(str(EMBEDDED))
    skeleton(str(EMBEDDED))
    assert capfd.readouterr() == ("", "")


CODE_OF_THE_FOLDER = """
import pathlib
pathlib.Path({marker!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Own(LlamaConfig): ...
class OwnModel(LlamaForCausalLM): config_class = Own
class OwnTokenizer(PreTrainedTokenizerFast): ...
"""


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("what", ["load", "skeleton", "tokenizer"])
def test_code_in_a_folder_runs_only_where_it_is_trusted(
    what: str, trusted: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", list(sys.path))
    marker = tmp_path / "ran"
    (folder / f"own_{what}.py").write_text(CODE_OF_THE_FOLDER.format(marker=str(marker)))
    classes = {"AutoConfig": "Own", "AutoModelForCausalLM": "OwnModel"}
    _change(folder / "config.json", {"auto_map": {auto: f"own_{what}.{own}" for auto, own in classes.items()}})
    _change(folder / "tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, f"own_{what}.OwnTokenizer"]}})
    with suppress(LoadingError):
        getattr(loading, what)(str(folder), trust_remote_code=True) if trusted else getattr(loading, what)(str(folder))
    assert marker.exists() is trusted


def _change(file: Path, changes: dict[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
