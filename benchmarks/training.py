"""Small trainings by PPO and GRPO for `benchmarks.run`: `python benchmarks/training.py KIND UPDATES OUT`.

Writes processor and wall seconds of the training (without imports) and the largest resident memory to OUT, as JSON.
"""

from __future__ import annotations

import json
import math
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical

#: Environments, steps of each per update, epochs and samples of a minibatch of CartPole.
ENVIRONMENTS, LENGTH, EPOCHS, MINIBATCH = 8, 128, 4, 256


class CartPole:
    """The pole of Barto, Sutton and Anderson on a cart."""

    def reset(self) -> list[float]:
        """Begin an episode."""
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.time = 0
        return self.state

    def step(self, action: int) -> tuple[list[float], bool]:
        """Push the cart; return the state and whether the episode has ended."""
        x, speed, angle, turn = self.state
        force, sine, cosine = (10.0 if action else -10.0), math.sin(angle), math.cos(angle)
        push = (force + 0.05 * turn * turn * sine) / 1.1
        bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        drive = push - 0.05 * bend * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * drive, angle + 0.02 * turn, turn + 0.02 * bend]
        self.time += 1
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21 or self.time >= 500


def cartpole(updates: int) -> None:
    """Train two layers of 64 on CartPole, with a value function."""
    body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    actor, critic = nn.Linear(64, 2), nn.Linear(64, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *actor.parameters(), *critic.parameters()], lr=3e-4)
    environments = [CartPole() for _ in range(ENVIRONMENTS)]
    states = [each.reset() for each in environments]
    shape = (LENGTH, ENVIRONMENTS)
    obs, actions = torch.zeros(*shape, 4), torch.zeros(shape, dtype=torch.long)
    old, dones, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(LENGTH + 1, ENVIRONMENTS)
    for _ in range(updates):
        with torch.no_grad():
            for t in range(LENGTH):
                obs[t] = torch.tensor(states)
                features = body(obs[t])
                policy = Categorical(logits=actor(features))
                action = policy.sample()
                actions[t], old[t], values[t] = action, policy.log_prob(action), critic(features)[:, 0]
                for n, each in enumerate(environments):
                    states[n], ended = each.step(int(action[n]))
                    dones[t, n] = ended
                    states[n] = each.reset() if ended else states[n]
            values[LENGTH] = critic(body(torch.tensor(states)))[:, 0]
            advantages, trace = torch.zeros(shape), torch.zeros(ENVIRONMENTS)
            for t in reversed(range(LENGTH)):
                alive = 1 - dones[t]
                trace = 1 + 0.99 * values[t + 1] * alive - values[t] + 0.99 * 0.95 * alive * trace
                advantages[t] = trace
            returns = advantages + values[:-1]
        flat = [each.reshape(-1, *each.shape[2:]) for each in (obs, actions, old, advantages, returns)]
        for _ in range(EPOCHS):
            for index in torch.randperm(len(flat[0])).split(MINIBATCH):
                o, a, before, adv, target = (each[index] for each in flat)
                features = body(o)
                policy = Categorical(logits=actor(features))
                ratio = (policy.log_prob(a) - before).exp()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() - 0.01 * policy.entropy().mean()
                loss = loss + 0.5 * ((critic(features)[:, 0] - target) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*body.parameters(), *actor.parameters(), *critic.parameters()], 0.5)
                optimizer.step()


def images(updates: int) -> None:
    """Train the convolutional network of Nature DQN on random images of 84 × 84."""
    net = nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for _ in range(updates):
        obs, actions, old = torch.zeros(16, 8, 4, 84, 84), torch.zeros(16, 8, dtype=torch.long), torch.zeros(16, 8)
        with torch.no_grad():
            for t in range(16):
                obs[t] = torch.rand(8, 4, 84, 84)
                policy = Categorical(logits=net(obs[t]))
                actions[t] = policy.sample()
                old[t] = policy.log_prob(actions[t])
        _epochs(net, optimizer, obs.flatten(0, 1), actions.flatten(), old.flatten(), epochs=3, minibatch=32)


def _epochs(net: Any, optimizer: Any, obs: Any, actions: Any, old: Any, *, epochs: int, minibatch: int) -> None:
    advantages = (actions % 2).float() - 0.5 + 0.1 * torch.randn(actions.shape)
    for _ in range(epochs):
        for index in torch.randperm(len(obs)).split(minibatch):
            policy = Categorical(logits=net(obs[index]))
            ratio, adv = (policy.log_prob(actions[index]) - old[index]).exp(), advantages[index]
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()


class Language(nn.Module):
    """A transformer of 52 million parameters: 8 layers of 640, vocabulary 4096."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(4096, 640), nn.Embedding(64, 640)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(640, 8, 2560, dropout=0.0, batch_first=True, norm_first=True) for _ in range(8)
        )
        self.norm, self.head = nn.LayerNorm(640), nn.Linear(640, 4096)

    def forward(self, tokens: Any) -> Any:
        """Return logits, batch × length × vocabulary."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.tokens(tokens) + self.places(torch.arange(length))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def language(updates: int) -> None:
    """Train a transformer by GRPO: 8 completions of 16 tokens, two passes over them."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(updates):
        tokens = torch.randint(4096, (2, 4)).repeat_interleave(4, 0)
        with torch.no_grad():
            for _ in range(16):
                chosen = Categorical(logits=model(tokens)[:, -1]).sample()
                tokens = torch.cat([tokens, chosen[:, None]], 1)
            old = _log_probs(model, tokens)
        rewards = (tokens[:, 4:] % 2).float().mean(1).reshape(2, 4)
        advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).reshape(-1, 1)
        for _ in range(2):
            for part in range(2):
                rows = slice(4 * part, 4 * part + 4)
                ratio, adv = (_log_probs(model, tokens[rows]) - old[rows]).exp(), advantages[rows]
                loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()


def _log_probs(model: Any, tokens: Any) -> Any:
    logits = model(tokens[:, :-1])[:, 3:]
    return logits.log_softmax(-1).gather(-1, tokens[:, 4:, None])[..., 0]


def trl(updates: int) -> None:
    """Train GPT-2 with 2 layers of 128 by TRL's GRPOTrainer, 2 steps for each batch of completions."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({each: n for n, each in enumerate("_.?abcdefgh")}, unk_token="?"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="_",  # noqa: S106
        eos_token=".",  # noqa: S106
        unk_token="?",  # noqa: S106
        padding_side="left",
    )
    config = GPT2Config(
        vocab_size=11,
        n_positions=32,
        n_embd=128,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=1,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    options = GRPOConfig(
        output_dir=tempfile.gettempdir(),
        per_device_train_batch_size=16,
        num_generations=4,
        num_iterations=2,
        max_completion_length=12,
        max_steps=2 * updates,
        logging_steps=10**6,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    GRPOTrainer(
        model=GPT2LMHeadModel(config),
        reward_funcs=lambda completions, **_: [each.count("a") / 12 for each in completions],
        args=options,
        train_dataset=Dataset.from_list([{"prompt": each} for each in "abcdefgh" * 200]),
        processing_class=tokenizer,
    ).train()


def main() -> None:
    """Run one training on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    kind, updates, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    train = {"cartpole": cartpole, "images": images, "language": language, "trl": trl}[kind]
    wall, cpu = time.perf_counter(), time.process_time()
    train(updates)
    cost = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out.write_text(json.dumps(cost | {"peak_mb": peak}))


if __name__ == "__main__":
    main()
