"""The known exceptions: models that left padding does not make exact, by class, with the reason and the releases.

Measured on each release in padfix/releases.py, small random models in float32, every row of a left-padded batch against
the prompt alone. traits.py reads these tables, and the configuration of a model beside them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

__all__ = [
    "COLUMNS_COUNTED",
    "EXACT_BEFORE",
    "EXACT_SINCE",
    "MIXES_ROWS",
    "NEEDS_DECODER_POSITIONS",
    "NOT_EXACT",
    "ONE_TOKEN_GOES_ON",
    "PACKABLE",
    "POSITION_TABLES",
    "SLIDING",
    "WINDOW_COUNTS_PADS_BEFORE",
    "stands_in",
]

_MASK_IGNORED = "its recurrence runs over pads, whatever the mask says"
_MASK_DROPPED = "its prepare_inputs_for_generation drops the attention_mask"
COLUMNS_COUNTED = "it counts positions from column 0 or from the length of the cache, pads included"

# Classes that left padding does not make exact, and why.
NOT_EXACT: Mapping[str, str] = {
    "RwkvForCausalLM": _MASK_IGNORED,
    "xLSTMForCausalLM": _MASK_IGNORED,
    "RecurrentGemmaForCausalLM": _MASK_IGNORED,
    "ReformerModelWithLMHead": _MASK_DROPPED,
    "XLMWithLMHeadModel": _MASK_DROPPED,
    "XLNetLMHeadModel": _MASK_DROPPED,
    "ProphetNetForCausalLM": COLUMNS_COUNTED,
    "ProphetNetForConditionalGeneration": COLUMNS_COUNTED,
    "XLMProphetNetForCausalLM": COLUMNS_COUNTED,
    "XLMProphetNetForConditionalGeneration": COLUMNS_COUNTED,
    "GitForCausalLM": COLUMNS_COUNTED,
    "UnlimitedOcrForConditionalGeneration": "its sliding cache of the reply counts pads",
    "BltForCausalLM": "its patching and hash n-grams see the pads",
    "CpmAntForCausalLM": "it masks the id 0, and not what the mask says",
    "DeepseekV4ForCausalLM": "its KV compressor pools windows of columns, pads included",
    "Kosmos2ForConditionalGeneration": COLUMNS_COUNTED,
    "Kosmos2TextForCausalLM": COLUMNS_COUNTED,
    "Kosmos2_5ForConditionalGeneration": COLUMNS_COUNTED,
    "Kosmos2_5TextForCausalLM": COLUMNS_COUNTED,
    "HunYuanVLForConditionalGeneration": "it counts images over the whole batch, so each row has to run by itself",
    "PaliGemmaForConditionalGeneration": "an unpadded prompt attends both ways, a padded one causally",
    "M2M100ForConditionalGeneration": COLUMNS_COUNTED,
    "NllbMoeForConditionalGeneration": COLUMNS_COUNTED,
    "SeamlessM4TForTextToText": COLUMNS_COUNTED,
    "SeamlessM4TForSpeechToText": COLUMNS_COUNTED,
    "SeamlessM4Tv2ForTextToText": COLUMNS_COUNTED,
    "SeamlessM4Tv2ForSpeechToText": COLUMNS_COUNTED,
    "Speech2TextForConditionalGeneration": COLUMNS_COUNTED,
    "SpeechT5ForSpeechToText": COLUMNS_COUNTED,
    "VisionEncoderDecoderModel": COLUMNS_COUNTED,
}

# Classes whose decoder has to be told the positions of padded prompts; where generate carries them on, it is told.
NEEDS_DECODER_POSITIONS = frozenset(
    {"CanaryForConditionalGeneration", "CohereAsrForConditionalGeneration", "T5Gemma2ForConditionalGeneration"}
)

# Classes of which a batch of several rows is not exact even without pads: RWKV broadcasts its shifted state over the
# rows, HunYuan-VL counts the images of the whole batch.
MIXES_ROWS = frozenset({"RwkvForCausalLM", "HunYuanVLForConditionalGeneration"})

# Classes that go on from what the call before has left in the model where a prompt has one token, alone too.
ONE_TOKEN_GOES_ON = frozenset({"RecurrentGemmaForCausalLM"})

# Classes that left padding makes exact only from a release on, measured in the same way. Of the releases between two
# measurements only the later is taken for exact.
EXACT_SINCE: Mapping[str, tuple[int, int]] = {
    "BertGenerationDecoder": (4, 51),
    "Mamba2ForCausalLM": (4, 51),  # 4.46.3 convolves pads with the tokens
    "LlavaForConditionalGeneration": (4, 51),  # 4.46.3 finds pads by keys of zeros: only a pad of zeros is one
    "VipLlavaForConditionalGeneration": (4, 51),
    "LlavaNextForConditionalGeneration": (4, 51),
    "LlavaNextVideoForConditionalGeneration": (4, 51),  # 4.46.3 raises where there are pictures
    "Emu3ForConditionalGeneration": (4, 57),  # with pictures
    # Their HybridCache: from 4.51 a short prompt is not even what the same tokens give without a cache.
    "Cohere2ForCausalLM": (4, 57),
    "Gemma2ForCausalLM": (4, 57),
    "Gemma3ForCausalLM": (4, 57),
    "Gemma3ForConditionalGeneration": (4, 57),
    "MoonshineForConditionalGeneration": (4, 57),  # under beams
    "BlipTextLMHeadModel": (4, 57),  # before, it counts the positions of new tokens by columns
    "RoCBertForCausalLM": (5, 0),
    "XLMRobertaXLForCausalLM": (5, 0),
    "PhimoeForCausalLM": (5, 0),  # its mask does not fit its cache once the window is full
    "CTRLLMHeadModel": (5, 24),
    "MoshiForCausalLM": (5, 24),
    "OpenAIGPTLMHeadModel": (5, 24),
    # With pictures, rows of one batch differ from the prompts alone even without pads.
    "Idefics2ForConditionalGeneration": (5, 24),
    "Idefics3ForConditionalGeneration": (5, 24),
    "DogeForCausalLM": (5, 24),
    # A prompt of one token alone is taken for a step of decoding, so no batch gets what it gets.
    "FalconMambaForCausalLM": (5, 24),
    "Glm4vForConditionalGeneration": (5, 24),
    "Glm4vMoeForConditionalGeneration": (5, 24),
    "Lfm2ForCausalLM": (5, 24),
    "Lfm2MoeForCausalLM": (5, 24),
    "MambaForCausalLM": (5, 24),
    "Qwen2_5OmniThinkerForConditionalGeneration": (5, 24),
    "Qwen3OmniMoeThinkerForConditionalGeneration": (5, 24),
    "Qwen3VLForConditionalGeneration": (5, 24),
    "Qwen3VLMoeForConditionalGeneration": (5, 24),
    # They raise in older releases, with or without pads.
    "Zamba2ForCausalLM": (5, 24),
}

# Those of them that were exact in the first releases: up to this one, not included.
EXACT_BEFORE: Mapping[str, tuple[int, int]] = {
    "Gemma2ForCausalLM": (4, 47),
    "Idefics2ForConditionalGeneration": (4, 52),
    "Idefics3ForConditionalGeneration": (4, 52),
    "MoshiForCausalLM": (4, 52),
    "PhimoeForCausalLM": (4, 52),
}

# Classes whose sliding window counts pads once it is full, up to a release.
WINDOW_COUNTS_PADS_BEFORE: Mapping[str, tuple[int, int]] = {
    "Gemma2ForCausalLM": (4, 47),
    "Qwen2MoeForCausalLM": (5, 0),  # with use_sliding_window, in 4.57
}

# Classes whose prompts can share a row, measured on tokens and logits, and the first of the measured releases in which
# they can. A class that is not here is never packed.
PACKABLE: Mapping[str, tuple[int, int]] = {
    "AriaTextForCausalLM": (4, 51),
    "CodeGenForCausalLM": (4, 51),
    "CohereForCausalLM": (4, 51),
    "DbrxForCausalLM": (4, 51),
    "DeepseekV3ForCausalLM": (4, 51),
    "DiffLlamaForCausalLM": (4, 51),
    "FalconForCausalLM": (4, 51),
    "GPTJForCausalLM": (4, 51),
    "GPTNeoForCausalLM": (4, 51),
    "GPTNeoXForCausalLM": (4, 51),
    "GPTNeoXJapaneseForCausalLM": (4, 51),
    "GemmaForCausalLM": (4, 51),
    "Glm4ForCausalLM": (4, 51),
    "GlmForCausalLM": (4, 51),
    "GraniteForCausalLM": (4, 51),
    "GraniteMoeForCausalLM": (4, 51),
    "GraniteMoeSharedForCausalLM": (4, 51),
    "HeliumForCausalLM": (4, 51),
    "LlamaForCausalLM": (4, 51),
    "MistralForCausalLM": (4, 51),
    "MixtralForCausalLM": (4, 51),
    "NemotronForCausalLM": (4, 51),
    "OPTForCausalLM": (4, 51),
    "Olmo2ForCausalLM": (4, 51),
    "OlmoForCausalLM": (4, 51),
    "OlmoeForCausalLM": (4, 51),
    "PersimmonForCausalLM": (4, 51),
    "Phi3ForCausalLM": (4, 51),
    "PhiForCausalLM": (4, 51),
    "Qwen2ForCausalLM": (4, 51),
    "Qwen2MoeForCausalLM": (4, 51),
    "Qwen3ForCausalLM": (4, 51),
    "Qwen3MoeForCausalLM": (4, 51),
    "StableLmForCausalLM": (4, 51),
    "Starcoder2ForCausalLM": (4, 51),
    "ApertusForCausalLM": (4, 57),
    "ArceeForCausalLM": (4, 57),
    "BioGptForCausalLM": (4, 57),
    "BitNetForCausalLM": (4, 57),
    "Cohere2ForCausalLM": (4, 57),
    "DeepseekV2ForCausalLM": (4, 57),
    "Dots1ForCausalLM": (4, 57),
    "Ernie4_5ForCausalLM": (4, 57),
    "Ernie4_5_MoeForCausalLM": (4, 57),
    "Exaone4ForCausalLM": (4, 57),
    "FlexOlmoForCausalLM": (4, 57),
    "GPT2LMHeadModel": (4, 57),
    "GPTBigCodeForCausalLM": (4, 57),
    "Gemma2ForCausalLM": (4, 57),
    "Glm4MoeForCausalLM": (4, 57),
    "GptOssForCausalLM": (4, 57),
    "HunYuanDenseV1ForCausalLM": (4, 57),
    "HunYuanMoEV1ForCausalLM": (4, 57),
    "MinistralForCausalLM": (4, 57),
    "Olmo3ForCausalLM": (4, 57),
    "SeedOssForCausalLM": (4, 57),
    "SmolLM3ForCausalLM": (4, 57),
    "VaultGemmaForCausalLM": (4, 57),
    "AfmoeForCausalLM": (5, 0),
    "CwmForCausalLM": (5, 0),
    "Gemma3ForCausalLM": (5, 0),
    "Glm4MoeLiteForCausalLM": (5, 0),
    "Jais2ForCausalLM": (5, 0),
    "JetMoeForCausalLM": (5, 0),
    "MiniMaxM2ForCausalLM": (5, 0),
    "NanoChatForCausalLM": (5, 0),
    "PhimoeForCausalLM": (5, 0),
    "Ministral3ForCausalLM": (5, 24),
}

# Those of them whose sliding windows a mask can make, measured with windows narrower than the prompts. Other classes
# leave a window that stands in their configuration alone, or were not measured with one.
SLIDING = frozenset(
    {
        "AfmoeForCausalLM",
        "Cohere2ForCausalLM",
        "CwmForCausalLM",
        "Dots1ForCausalLM",
        "Exaone4ForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GptOssForCausalLM",
        "Ministral3ForCausalLM",
        "MinistralForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Olmo3ForCausalLM",
        "Phi3ForCausalLM",
        "PhimoeForCausalLM",
        "SmolLM3ForCausalLM",
        "Starcoder2ForCausalLM",
        "VaultGemmaForCausalLM",
    }
)

# The last names of tables of learned or computed positions.
POSITION_TABLES = (
    "embed_positions",
    "pos_embed",
    "position_embedding",
    "position_embeddings",
    "positions_embed",
    "wpe",
)


def stands_in(table: Container[str], model: Any) -> bool:
    """Whether the class of a model, or one that it derives from, is in a table of names."""
    return any(one.__name__ in table for one in type(model).__mro__)
