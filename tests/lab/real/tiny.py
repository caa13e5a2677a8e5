"""Language models of a few thousand weights, a tokenizer of a dozen letters, and a task that they can learn."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

LETTERS = "abcdefghij"
PAD, EOS, UNKNOWN = 0, 1, 2
FIRST = 3
LENGTH = 10
"""Most tokens of a completion."""
PROMPTS = 4096


def tokenizer() -> Any:
    """Return a tokenizer of single letters."""
    words = ["<pad>", "<eos>", "<unk>", *LETTERS]
    raw = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, padding_side="left", **special)


def settings(**more: Any) -> dict[str, Any]:
    """Return the configuration of a tiny decoder."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": None}
    words = {"vocab_size": FIRST + len(LETTERS), "num_key_value_heads": 2, "max_position_embeddings": 64}
    return {**sizes, **ids, **words, "tie_word_embeddings": False, **more}


def policy(seed: int, kind: str = "llama", **more: Any) -> Any:
    """Return a causal model with weights of its own seed."""
    torch.manual_seed(seed)
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**settings(**more)))
    return LlamaForCausalLM(LlamaConfig(**settings(**more)))


def words(seed: int) -> list[str]:
    """Return prompts of three letters."""
    picked = torch.randint(len(LETTERS), (PROMPTS, 3), generator=torch.Generator().manual_seed(seed))
    return [" ".join(LETTERS[place] for place in row) for row in picked.tolist()]


def prompts(seed: int) -> Any:
    """Return the prompts as text."""
    return Dataset.from_dict({"prompt": words(seed)})


def score(prompt: list[int], completion: list[int]) -> float:
    """Return the reward in [0, 1]: vowels and the prompt's first letter are good, a few of them, and then an end."""
    ended = EOS in completion
    body = [token for token in (completion[: completion.index(EOS)] if ended else completion) if token != PAD]
    vowels = {FIRST + place for place, letter in enumerate(LETTERS) if letter in "aei"}
    good = sum(0.7 * (token in vowels) + 0.3 * (token == prompt[0]) for token in body)
    return 0.8 * good / max(len(body), 4) + 0.2 * ended


def ids(text: str) -> list[int]:
    """Return the tokens of prompt or completion."""
    return [FIRST + LETTERS.index(letter) for letter in text.split() if letter in LETTERS]
