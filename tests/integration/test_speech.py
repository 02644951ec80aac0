"""Models of speech and music: prompts beside sounds, loops of a class's own, and what never comes to padfix."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from encoders import encoded_input, model_of
from oracle import BOS, EOS, GREEDY, LLAMA, PAD, PADDERS, ROWS, check, right_padded
from stock import CACHE_IS_NONE

import padfix
from padfix import notices
from padfix.generation import compat
from padfix.generation.reach import reach_of

pytestmark = [
    pytest.mark.usefixtures("installed"),
    CACHE_IS_NONE,
    pytest.mark.filterwarnings("ignore:.*::transformers"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning"),
]

IDS: dict[str, Any] = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
TEXT: dict[str, Any] = LLAMA | IDS | {"head_dim": 8, "tie_word_embeddings": False}
LAYERS: dict[str, Any] = {key: TEXT[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads")}
HEARD = 90  # the placeholder of a sound


def _qwen2_audio() -> Any:
    sound = {"num_mel_bins": 16, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
    config = transformers.Qwen2AudioConfig(
        audio_config=sound | {"d_model": 32, "max_source_positions": 8},
        text_config=TEXT | {"model_type": "qwen2"},
        audio_token_index=HEARD,
    )
    return transformers.Qwen2AudioForConditionalGeneration(config)


def _voxtral() -> Any:
    sound = LAYERS | {"num_mel_bins": 16, "num_hidden_layers": 1, "intermediate_size": 128, "max_source_positions": 8}
    config = transformers.VoxtralConfig(
        audio_config=sound, text_config=TEXT | {"model_type": "llama"}, audio_token_id=HEARD
    )
    return transformers.VoxtralForConditionalGeneration(config)


def _csm() -> Any:
    depth = LAYERS | {"num_codebooks": 3, "vocab_size": 40, "backbone_hidden_size": 32, "num_hidden_layers": 1}
    codec = {"model_type": "mimi", "num_filters": 4, "hidden_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    codec |= {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16, "codebook_size": 64}
    codec |= {"codebook_dim": 8, "vector_quantization_hidden_dimension": 8, "upsample_groups": 16}
    config = transformers.CsmConfig(
        **LAYERS,
        num_hidden_layers=2,
        num_key_value_heads=2,
        num_codebooks=3,
        vocab_size=40,
        text_vocab_size=99,
        max_position_embeddings=128,
        pad_token_id=PAD,
        codebook_pad_token_id=38,
        codebook_eos_token_id=37,
        audio_token_id=HEARD,
        audio_eos_token_id=91,
        depth_decoder_config=depth | {"num_key_value_heads": 2, "max_position_embeddings": 8},
        codec_config=codec,
    )
    return transformers.CsmForConditionalGeneration(config)


def _musicgen() -> Any:
    text = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    codec = transformers.EncodecConfig(
        num_filters=4,
        hidden_size=8,
        codebook_dim=8,
        codebook_size=32,
        upsampling_ratios=[2, 2],
        num_lstm_layers=1,
        target_bandwidths=[3.2],
        sampling_rate=640,
    )
    decoder = transformers.MusicgenDecoderConfig(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        ffn_dim=48,
        num_codebooks=2,
        pad_token_id=32,
        bos_token_id=32,
        max_position_embeddings=64,
    )
    config = transformers.MusicgenConfig(
        text_encoder=text.to_dict(), audio_encoder=codec.to_dict(), decoder=decoder.to_dict()
    )
    return transformers.MusicgenForConditionalGeneration(config)


def _dia() -> Any:
    layers = LAYERS | {"num_hidden_layers": 1, "head_dim": 8, "max_position_embeddings": 64}
    cross = {"cross_num_attention_heads": 4, "cross_num_key_value_heads": 4, "cross_head_dim": 8}
    config = transformers.DiaConfig(
        encoder_config=layers | {"vocab_size": 99, "num_key_value_heads": 4},
        decoder_config=layers
        | cross
        | {"cross_hidden_size": 32, "vocab_size": 40, "num_key_value_heads": 2, "num_channels": 2},
        delay_pattern=[0, 1],
        pad_token_id=38,
        eos_token_id=37,
        bos_token_id=39,
    )
    return transformers.DiaForConditionalGeneration(config)


MAKERS: Mapping[str, Callable[[], Any]] = {
    "Qwen2AudioForConditionalGeneration": _qwen2_audio,
    "VoxtralForConditionalGeneration": _voxtral,
    "CsmForConditionalGeneration": _csm,
    "MusicgenForConditionalGeneration": _musicgen,
    "DiaForConditionalGeneration": _dia,
}


@functools.cache
def _weights(name: str) -> Any:
    torch.manual_seed(1)
    model = MAKERS[name]().eval()
    if name in SOUNDS:
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim >= 2:
                    weight.mul_(4.0)
        for special, value in IDS.items():
            setattr(model.generation_config, special, value)
    return model


def _model(name: str) -> Any:
    if not hasattr(transformers, name):
        pytest.skip("not in this release")
    return copy.deepcopy(_weights(name))


# Class -> how many placeholders a sound of 16 frames takes; 4.46 takes one, and makes room itself.
SOUNDS = {
    "Qwen2AudioForConditionalGeneration": 4 if compat.installed() >= (4, 47) else 1,
    "VoxtralForConditionalGeneration": 2,
}


@pytest.mark.parametrize("beams", [{}, {"num_beams": 2}], ids=str)
@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", SOUNDS)
def test_text_beside_a_sound_is_exact(name: str, side: str, strategy: str, beams: dict[str, Any]) -> None:
    if beams and compat.installed() < (4, 47) and name.startswith("Qwen2Audio"):
        pytest.skip("this release cannot reorder its cache")
    model = _model(name)
    sound = [HEARD] * SOUNDS[name]
    rows = [[5, *sound, 33, 8, 61, 24], [*sound, 7], [71, 13, *sound, 29]]
    given = {"input_features": torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(2))}
    if name.startswith("Qwen2Audio"):
        given["feature_attention_mask"] = torch.ones(3, 16, dtype=torch.long)

    def own(row: int) -> dict[str, Any]:
        return {key: value[row : row + 1] for key, value in given.items()}

    with padfix.override(strategy=strategy):
        check(model, {**PADDERS[side](rows), **given}, rows, each=own, distinct=not beams, **beams)


def _reply(tokens: list[int], prompt: list[int]) -> list[int]:
    """What comes after the prompt, which some releases give back before it."""
    return tokens[len(prompt) :] if tokens[: len(prompt)] == prompt else tokens


@pytest.mark.parametrize("flags", [{}, {"return_timestamps": True}, {"num_beams": 2}], ids=str)
@pytest.mark.parametrize("side", PADDERS)
def test_whispers_own_generate_gives_each_ragged_prompt_what_it_gets_alone(side: str, flags: dict[str, Any]) -> None:
    name = "WhisperForConditionalGeneration"
    model, encoder = model_of(name), encoded_input(name)
    model.generation_config.no_timestamps_token_id = 79
    model.generation_config.begin_suppress_tokens = [18]
    rows = [[BOS, *row] for row in ROWS]
    ids, mask = PADDERS[side](rows).values()
    arguments = GREEDY | flags
    output = model.generate(**encoder, decoder_input_ids=ids, decoder_attention_mask=mask, **arguments).tolist()
    for row, prompt in enumerate(rows):
        with padfix.suppressed():
            [single] = model.generate(
                input_features=encoder["input_features"][row : row + 1],
                decoder_input_ids=torch.tensor([prompt]),
                **arguments,
            ).tolist()
        new, got = _reply(single, prompt), _reply(output[row], ids[row].tolist())
        assert got[: len(new)] == new
        assert set(got[len(new) :]) <= {PAD, EOS}


@pytest.mark.parametrize("strategy", ["auto", "equal_length"])
@pytest.mark.parametrize("side", PADDERS)
def test_codes_of_sound_come_back_without_a_prompt(side: str, strategy: str) -> None:
    model = _model("CsmForConditionalGeneration")
    assert reach_of(model).kind == "through super"
    with padfix.override(strategy=strategy):
        output = model.generate(**PADDERS[side](ROWS), **GREEDY)
    assert output.shape == (3, 6, 3)
    for row, prompt in enumerate(ROWS):
        with padfix.suppressed():
            assert torch.equal(output[row], model.generate(torch.tensor([prompt]), **GREEDY)[0])
    with padfix.suppressed():
        stock = model.generate(**right_padded(ROWS), **GREEDY)
    assert not torch.equal(stock, output)


@pytest.mark.parametrize("side", PADDERS)
@pytest.mark.parametrize("name", ["MusicgenForConditionalGeneration", "DiaForConditionalGeneration"])
def test_a_loop_of_its_own_is_left_as_it_is(name: str, side: str) -> None:
    model = _model(name)
    assert reach_of(model).kind == "never"
    assert "a loop of its own" in reach_of(model).sentence
    batch = PADDERS[side](ROWS)
    arguments = {"do_sample": False, "max_new_tokens": 8}
    before = notices.counts()
    output = model.generate(**batch, **arguments)
    assert notices.counts() == before
    with padfix.suppressed():
        assert torch.equal(output, model.generate(**batch, **arguments))
