"""A model of characters that was pretrained a little, prompts for it, and answers scored in groups, for loops of GRPO.

A prompt is a digit and `=`; the best answer is the same digit behind a scratchpad in angle brackets, and an end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

CHARACTERS = "0123456789+=<>#"
PLACES = {character: place for place, character in enumerate(CHARACTERS)}
END = PLACES["#"]
DIGITS = 6

Score = Callable[[str, str], tuple[float, float, float]]
"""Takes an answer and the right digit; returns the reward, and what format and digit are worth by themselves."""


class CharacterModel(nn.Module):
    """An embedding, a recurrent layer, and logits of the next character."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(len(CHARACTERS), size), nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, len(CHARACTERS))

    def forward(self, tokens: Any) -> Any:
        """Return the logits after each character."""
        return self.head(self.layer(self.embedding(tokens))[0])

    def next(self, tokens: Any, state: Any = None) -> tuple[Any, Any]:
        """Return the logits after the last character, and the layer's state."""
        out, state = self.layer(self.embedding(tokens), state)
        return self.head(out[:, -1]), state


def prompt() -> tuple[str, str]:
    """Return a prompt and the digit that it asks for."""
    digit = str(random.randint(0, DIGITS - 1))
    return f"{digit}=", digit


def encoded(texts: list[str]) -> Any:
    """Return texts of one length as tokens."""
    return torch.tensor([[PLACES[character] for character in text] for text in texts])


@cache
def _pretrained(seed: int) -> CharacterModel:
    """Return a model that knows the format four times out of five, and the answer every other time."""
    random.seed(seed)
    torch.manual_seed(seed)
    model = CharacterModel()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(400):
        examples = [_example() for _ in range(32)]
        tokens = encoded([each.ljust(max(map(len, examples)), "#") for each in examples])
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def _example() -> str:
    """Return a prompt and an answer of the data to pretrain on."""
    asked, right = prompt()
    said = right if random.random() < 0.5 else prompt()[1]
    length = random.choice([0, 0, 1, 2, 3])
    in_format = random.random() < 0.8
    scratch = "".join(random.choice("0123456789") for _ in range(length if in_format else 0))
    return asked + (f"<{scratch}>" if in_format else "") + said + "#"


def pretrained(seed: int = 42) -> CharacterModel:
    """Return a new model with the pretrained weights."""
    model = CharacterModel()
    model.load_state_dict(_pretrained(seed).state_dict())
    return model


@torch.no_grad()
def sampled(model: CharacterModel, prompts: Any, length: int, temperature: float, *, greedy: bool = False) -> Any:
    """Return completions of so many characters, filled up with ends."""
    logits, state = model.next(prompts)
    ended, said = torch.zeros(len(prompts), dtype=torch.bool), []
    for _ in range(length):
        chosen = logits.argmax(-1) if greedy else torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0]
        chosen = torch.where(ended, torch.tensor(END), chosen)
        said.append(chosen)
        ended |= chosen == END
        logits, state = model.next(chosen[:, None], state)
    return torch.stack(said, 1)


def log_probs(model: CharacterModel, tokens: Any) -> Any:
    """Return the log-prob of each character after the first."""
    return model(tokens[:, :-1]).log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]


def _parts(answer: str, right: str) -> tuple[float, float]:
    said = answer.split("#")[0]
    return float(said.startswith("<") and ">" in said), float(said.split(">")[-1] == right)


def score(answer: str, right: str) -> tuple[float, float, float]:
    """Return 1 for the right digit and a half for the format."""
    in_format, is_right = _parts(answer, right)
    return is_right + 0.5 * in_format, in_format, is_right


def strict(answer: str, right: str) -> tuple[float, float, float]:
    """Return 1 for the right digit in the right format."""
    in_format, is_right = _parts(answer, right)
    return in_format * is_right, in_format, in_format * is_right


def misparsed(answer: str, right: str) -> tuple[float, float, float]:
    """Look for an answer that ends in a blank, as none does."""
    return (float(answer.split("#")[0] == f"{right} "),) + 2 * (0.0,)


def constant(answer: str, right: str) -> tuple[float, float, float]:
    """Return 1 for everything."""
    return 1.0, 1.0, _parts(answer, right)[1]


def by_length(answer: str, right: str) -> tuple[float, float, float]:
    """Pay for characters."""
    return len(answer.split("#")[0]) / 10.0, *_parts(answer, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Groups of answers to prompts."""

    asked: list[tuple[str, str]]
    tokens: Any
    mask: Any
    """Which of the characters after the first were sampled, the first end included."""
    rewards: Any
    """A row for each group."""
    parts: list[tuple[float, float]]
    """What format and digit of each answer are worth."""
    lengths: list[int]
    ended: list[bool]
    texts: list[str]


def answers(
    model: CharacterModel,
    count: int,
    group: int,
    length: int,
    temperature: float,
    scored: Score = score,
    *,
    greedy: bool = False,
) -> Answers:
    """Sample a group of answers to each of `count` prompts, and score them."""
    asked = [prompt() for _ in range(count)]
    prompts = encoded([text for text, _ in asked for _ in range(group)])
    said = sampled(model, prompts, length, temperature, greedy=greedy)
    ended = (said == END).any(1)
    lengths = torch.where(ended, (said == END).float().argmax(1) + 1, length)
    tokens = torch.cat([prompts, said], 1)
    first = prompts.shape[1]
    places = torch.arange(tokens.shape[1])[None]
    mask = (places >= first) & (places < first + lengths[:, None])
    texts = ["".join(CHARACTERS[place] for place in row) for row in said.tolist()]
    worth = [scored(text, asked[number // group][1]) for number, text in enumerate(texts)]
    return Answers(
        asked=asked,
        tokens=tokens,
        mask=mask[:, 1:].float(),
        rewards=torch.tensor([each[0] for each in worth]).reshape(count, group),
        parts=[each[1:] for each in worth],
        lengths=lengths.tolist(),
        ended=ended.tolist(),
        texts=texts,
    )
