"""What a user of the wheel writes: run on an installed padfix alone, and held to the types that padfix declares.

    PADFIX=fix python user.py && mypy --strict user.py

A random Llama and the model that padfix brings; no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, assert_type

import torch
import transformers

import padfix
from padfix.testing import assert_batch_matches_single

PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23), (31, 32))
NEW_TOKENS = 6


def a_llama() -> Any:
    """A random Llama that tells every pad it sees."""
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(
        vocab_size=99, pad_token_id=0, bos_token_id=None, eos_token_id=None, num_attention_heads=4, **sizes
    )
    model: Any = transformers.LlamaForCausalLM(config)
    return model.eval()


def a_batch() -> dict[str, torch.Tensor]:
    """The prompts, padded on the right."""
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in PROMPTS])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def replies(model: Any, batch: Mapping[str, torch.Tensor]) -> list[list[int]]:
    """What each row is given."""
    generated = model.generate(**batch, max_new_tokens=NEW_TOKENS, do_sample=False)
    rows: list[list[int]] = generated[:, batch["input_ids"].shape[1] :].tolist()
    return rows


def equal(found: object, wanted: object) -> None:
    """Raises where they differ, under `python -O` as well."""
    if found != wanted:
        raise SystemExit(f"found {found!r}, wanted {wanted!r}")


def main() -> None:
    """Every public name, as its documentation has it."""
    assert_type(padfix.__version__, str)
    assert_type(padfix.is_installed(), bool)
    equal(padfix.is_installed(), True)  # by PADFIX=fix

    model = a_llama()
    alone = [replies(model, {"input_ids": torch.tensor([prompt])})[0] for prompt in PROMPTS]
    equal(replies(model, a_batch()), alone)
    assert_type(padfix.suppressed(), AbstractContextManager[None])
    with padfix.suppressed():
        equal(replies(model, a_batch()) == alone, False)
    try:
        with padfix.override("strict"):
            replies(model, a_batch())
    except padfix.RightPaddingError as error:
        equal(isinstance(error, padfix.PadfixError), True)
    else:
        raise SystemExit("strict mode let right padding through")

    now = assert_type(padfix.stats(), padfix.Stats)
    assert_type(now.repaired, int)
    assert_type(now.strategies, Mapping[str, int])
    assert_type(now.as_dict(), dict[str, Any])
    equal((now.padded, now.repaired), (2, 1))

    padfix.uninstall()
    whole = padfix.generate(model, **a_batch(), max_new_tokens=NEW_TOKENS, do_sample=False)
    equal(whole[:, -NEW_TOKENS:].tolist(), alone)
    padfix.install("fix", strategy="left_pad")
    padfix.register_architecture("MyForCausalLM", left_padding_exact=True)
    padfix.register_prompt_tensor("segment_ids", fill=-1)

    from padfix.loading import embedded

    model, tokenizer = embedded()
    policy = padfix.LlamaBatchPolicy(padding_side="left", pad_is_eos=True)
    assert_type(policy, padfix.BatchPolicy)
    batch, arguments = policy.prepare(model, tokenizer, ["reverse: a b", "reverse: a b c d"], max_new_tokens=8)
    assert_type(arguments, dict[str, Any])
    texts = assert_type(policy.decode_replies(tokenizer, model.generate(**batch, **arguments), batch), list[str])
    equal(len(texts), 2)

    report = assert_type(padfix.verify(model, tokenizer, PROMPT_TEXTS), padfix.EquivalenceReport)
    assert_type(report.ok, bool)
    equal(report.ok, True)
    assert_batch_matches_single(model, tokenizer, PROMPT_TEXTS)
    equal(padfix.doctor(model, tokenizer).problems, ())
    equal("■" in str(padfix.show(a_batch()["attention_mask"])), True)
    print(f"padfix {padfix.__version__} on transformers {transformers.__version__}: as its documentation says")


PROMPT_TEXTS = ["reverse: a b", "reverse: a b c d"]

if __name__ == "__main__":
    main()
