"""A plain PPO loop in torch on a task of one step, with the faults of the ratio ≡ 1 table made as people make them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ppo_doctor.record import Recorder

UPDATES, BATCH, FEATURES, ACTIONS = 40, 256, 8, 4
SETTINGS = {"update_epochs": 4, "num_minibatches": 4, "clip_coef": 0.2, "gamma": 1.0, "algorithm": "ppo"}


@dataclass
class Loop:
    """One run: the fields are the places where a fault goes."""

    rate: float = 1e-3
    old: str = "stored"
    """Or aliased (detached), again (a second forward pass per minibatch), epoch (anew in every epoch)."""
    in_loss: str = "old"
    """Or new: the loss alone takes current log-probs, while everything that is logged looks sound."""
    advantage: float = 1.0
    mask: float = 1.0
    graph: bool = True
    owner: str = "policy"
    """Or copy: whose parameters the optimizer holds."""
    scaler_skips: bool = False
    epochs: int = 4
    minibatches: int = 4
    told: Mapping[str, Any] = field(default_factory=dict)
    norm: float = 0.5
    sgd: bool = False
    half: bool = False
    clip: float = 0.2
    entropy: float = 0.01
    updates: int = UPDATES

    def train(self, target: Path | None, seed: int = 0, **options: Any) -> dict[str, torch.Tensor]:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        policy: Any = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Linear(64, ACTIONS)
        )
        policy = policy.bfloat16() if self.half else policy
        held = policy if self.owner == "policy" else copy.deepcopy(policy)
        kind = torch.optim.SGD if self.sgd else torch.optim.Adam
        optimizer = kind(held.parameters(), lr=self.rate)
        config = {**SETTINGS, "max_grad_norm": self.norm, "clip_coef": self.clip, **self.told}
        recorder = None
        if target is not None:
            recorder = Recorder(
                target, config=config, clip_range=self.clip, model=policy, optimizer=optimizer, **options
            )
        for _ in range(self.updates):
            self._update(policy, optimizer, recorder)
        if recorder is not None:
            recorder.close()
        return policy.state_dict()

    def _log_prob(self, policy: Any, obs: Any, actions: Any) -> tuple[Any, Any]:
        chosen = torch.distributions.Categorical(logits=policy(obs.to(next(policy.parameters()).dtype)).float())
        return chosen.log_prob(actions), chosen.entropy().mean()

    def _update(self, policy: Any, optimizer: Any, recorder: Recorder | None) -> None:
        obs = torch.randn(BATCH, FEATURES)
        with torch.no_grad():
            logits = policy(obs.to(next(policy.parameters()).dtype)).float()
            actions = torch.distributions.Categorical(logits=logits).sample()
            stored = self._log_prob(policy, obs, actions)[0]
        rewards = (actions == obs[:, :ACTIONS].argmax(1)).float()
        raw = (rewards - rewards.mean()) * self.advantage
        if recorder is not None:
            recorder.start_update(advantages=raw)
        for epoch in range(self.epochs):
            order = torch.randperm(BATCH).split(BATCH // self.minibatches)
            if self.old == "epoch":
                with torch.no_grad():
                    stored = self._log_prob(policy, obs, actions)[0]
            for index in order:
                batch = obs[index], actions[index], stored[index], raw[index]
                self._step(policy, optimizer, recorder, batch, epoch)
        if recorder is not None:
            self._end(policy, recorder, (obs, actions, stored), rewards)

    def _end(self, policy: Any, recorder: Recorder, batch: Any, rewards: Any) -> None:
        obs, actions, stored = (each[:64] for each in batch)
        recorder.end_update(
            probe=lambda: (self._log_prob(policy, obs, actions)[0], stored),
            reward_mean=rewards.mean(),
            reward_std=rewards.std(),
            clip_range=self.clip,
        )

    def _step(self, policy: Any, optimizer: Any, recorder: Recorder | None, batch: Any, epoch: int) -> None:
        obs, actions, old, advantages = batch
        new, entropy = self._log_prob(policy, obs, actions)
        new = new if self.graph else new.detach()
        if self.old == "aliased":
            old = new.detach()
        elif self.old == "again":
            with torch.no_grad():
                old = self._log_prob(policy, obs, actions)[0]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        mask = torch.full_like(new, self.mask)
        ratio = (new - (new.detach() if self.in_loss == "new" else old)).exp()
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        surrogate = -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum().clamp(min=1)
        bonus = self.entropy * entropy if self.graph and self.mask and self.advantage else 0.0 * entropy.detach()
        loss = surrogate - bonus
        if recorder is not None:
            recorder.minibatch(
                new_log_prob=new,
                old_log_prob=old,
                advantages=advantages,
                mask=mask,
                epoch=epoch,
                policy_loss=surrogate,
                entropy=entropy,
            )
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), self.norm)
        if not self.scaler_skips:
            optimizer.step()
        if recorder is not None:
            recorder.optimizer_step(policy, optimizer)


#: Cause → how it is made. Rows of the table of what makes the ratio 1, and their neighbours.
FAULTS: dict[str, list[Loop]] = {
    "healthy": [Loop(), Loop(rate=5e-4, entropy=0.0)],
    "benign-single-update": [Loop(epochs=1, minibatches=1, rate=1e-2, told={"update_epochs": 1, "num_minibatches": 1})],
    "adv-exactly-zero": [Loop(advantage=0.0)],
    "lr-zero": [Loop(rate=0.0)],
    "lr-too-small": [Loop(rate=1e-9)],
    "grad-clip-starves": [Loop(sgd=True, norm=1e-6)],
    "loss-mask-empty": [Loop(mask=0.0)],
    "no-grad-path": [Loop(graph=False)],
    "amp-step-skipped": [Loop(scaler_skips=True)],
    "optimizer-orphaned-params": [Loop(owner="copy")],
    "bf16-swallowed-update": [Loop(half=True, rate=2e-6)],
    "clip-range-too-small": [Loop(clip=1e-3)],
    "old-policy-aliased": [Loop(old="aliased"), Loop(in_loss="new")],
    "old-logp-resynced-per-minibatch": [Loop(old="again")],
    "old-logp-resynced-per-epoch": [Loop(old="epoch")],
    "epochs-not-executed": [Loop(epochs=1)],
}
