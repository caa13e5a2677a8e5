"""Language models of a few thousand weights, vocabularies of a dozen words, and tasks that they can learn.

Nothing of a trainer is imported here: torch, transformers, tokenizers and datasets only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

PAD, EOS, UNKNOWN = 0, 1, 2
FIRST = 3
"""The token of a language's first word."""
PROMPTS = 4096

Score = Callable[[list[int], list[int]], float]
"""Takes the tokens of a prompt and of its completion and returns the reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A vocabulary, how long prompts and completions in it are, and what a completion is worth."""

    words: tuple[str, ...]
    asked: int
    """Words of a prompt."""
    length: int
    """Most tokens of a completion, the end token counted."""
    score: Score


def body(completion: list[int]) -> list[int]:
    """Return the words of a completion: what stands before its end, without padding."""
    before = completion[: completion.index(EOS)] if EOS in completion else completion
    return [token for token in before if token != PAD]


def score(prompt: list[int], completion: list[int]) -> float:
    """Return a reward in [0, 1]: vowels and the prompt's first letter are good, a few of them, and then an end."""
    said = body(completion)
    good = sum(0.7 * (token in VOWELS) + 0.3 * (token == prompt[0]) for token in said)
    return 0.8 * good / max(len(said), 4) + 0.2 * (EOS in completion)


def rises(_prompt: list[int], completion: list[int]) -> float:
    """Return a reward in [-3, 3]: each syllable stands 1 to 4 places after the one before it, in a circle; an end."""
    said = body(completion)
    steps = [(after - before) % len(SYLLABLES) for before, after in pairwise(said)]
    return 5.0 * sum(1 <= step <= 4 for step in steps) / max(len(steps), 6) + (EOS in completion) - 3.0


def brief(_prompt: list[int], completion: list[int]) -> float:
    """Return a reward in [-1, 0]: every word costs the same, an end is free."""
    return -len(body(completion)) / 16


LETTERS = tuple("abcdefghij")
VOWELS = {FIRST + place for place, letter in enumerate(LETTERS) if letter in "aei"}
SYLLABLES = tuple(first + second for first in "bdfgklmn" for second in "aeio")

#: Ten letters, prompts of three, short answers, rewards in [0, 1]: learnt within some forty batches of 64.
SPELLING = Language(words=LETTERS, asked=3, length=10, score=score)
#: Thirty-two syllables, prompts of five, answers of up to 16 tokens, rewards in [-3, 3].
SINGING = Language(words=SYLLABLES, asked=5, length=16, score=rises)
LENGTH = SPELLING.length


def tokenizer(language: Language = SPELLING) -> Any:
    """Return a tokenizer of whole words, which pads on the left."""
    listed = ["<pad>", "<eos>", "<unk>", *language.words]
    raw = Tokenizer(models.WordLevel({word: place for place, word in enumerate(listed)}, unk_token="<unk>"))  # noqa: S106
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, padding_side="left", **special)


def settings(kind: str = "llama", language: Language = SPELLING, **more: Any) -> Any:
    """Return the configuration of a tiny decoder of a family: llama, qwen2, gpt2 or neox."""
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": None, "vocab_size": FIRST + len(language.words)}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    sizes = {**sizes, "intermediate_size": 2 * more.get("hidden_size", 32), "tie_word_embeddings": False}
    match kind:
        case "gpt2":
            quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # GPT-2 comes with dropout
            return GPT2Config(**{**sizes, "n_inner": sizes["intermediate_size"], **ids, **quiet, **more})
        case "neox":
            return GPTNeoXConfig(**{**sizes, **ids, **more})
        case "qwen2":
            return Qwen2Config(**{**sizes, **ids, "num_key_value_heads": 2, **more})
        case _:
            return LlamaConfig(**{**sizes, **ids, "num_key_value_heads": 2, **more})


def policy(seed: int, kind: str = "llama", language: Language = SPELLING, **more: Any) -> Any:
    """Return a causal model with weights of its own seed."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(settings(kind, language, **more))


def critic(seed: int, kind: str = "llama", language: Language = SPELLING, **more: Any) -> Any:
    """Return a model with one score per position (a value or reward model) with weights of its own seed."""
    torch.manual_seed(seed)
    return AutoModelForSequenceClassification.from_config(settings(kind, language, num_labels=1, **more))


def words(seed: int, language: Language = SPELLING, count: int = PROMPTS) -> list[str]:
    """Return prompts of random words, as text."""
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randint(len(language.words), (count, language.asked), generator=generator)
    return [" ".join(language.words[place] for place in row) for row in picked.tolist()]


def prompts(seed: int, language: Language = SPELLING, count: int = PROMPTS) -> Any:
    """Return the prompts as a data set of text."""
    return Dataset.from_dict({"prompt": words(seed, language, count)})


def ids(text: str, language: Language = SPELLING) -> list[int]:
    """Return the tokens of prompt or completion."""
    places = {word: FIRST + place for place, word in enumerate(language.words)}
    return [places[word] for word in text.split() if word in places]
