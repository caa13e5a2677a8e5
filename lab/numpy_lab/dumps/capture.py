"""A lab run of the language task that keeps what a dump of an update holds: every minibatch, token by token."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..agent import Agent, Batch
from ..distributions import gather
from ..faults import FAULTS
from ..language import LanguageTask
from ..nets import F32, MLP, Int, log_softmax
from ..ppo import improve
from ..presets import GRPO, LANGUAGE_PPO
from ..settings import Progress, Setup, Stages

#: Prompts differ in length by this many tokens, which a padded batch fills up.
LONGEST_PADDING = 7
#: Tokens of a completion, of which the network's inputs hold the place.
LONGEST_ROW = 12

#: The log-probs that the trainer's pass gives for some rows, of shape [rows, tokens].
Forward = Callable[[Agent, Batch, Int, "Update"], F32]


@dataclass(slots=True, kw_only=True)
class Update:
    """One update: per row of every minibatch its sample, and of shape [rows, tokens] what the loss read.

    `policies` are the weights before and after; `optimizer` is the optimizer's state after it.
    """

    number: int
    prompts: Int
    scores: F32
    batch: Batch
    samples: list[Int] = field(default_factory=list)
    epochs: list[Int] = field(default_factory=list)
    minibatches: list[Int] = field(default_factory=list)
    new: list[F32] = field(default_factory=list)
    old: list[F32] = field(default_factory=list)
    masks: list[F32] = field(default_factory=list)
    before: list[F32] = field(default_factory=list)
    after: list[F32] = field(default_factory=list)
    moments: list[tuple[F32, F32]] = field(default_factory=list)

    @property
    def padding(self) -> Int:
        """Return how many tokens of padding stand before each sample's prompt."""
        return (self.prompts * 5) % (LONGEST_PADDING + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to train: the fault of the lab, changes of the configuration, and how the trainer's pass is computed."""

    fault: str = "healthy"
    severity: int = 2
    algorithm: str = "grpo"
    updates: int = 20
    dumped: tuple[int, ...] = (11, 15, 19)
    config: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, Any] = field(default_factory=dict)
    forward: Forward | None = None
    #: the trainer recomputes old log-probs before the first step, and the sampler's own are kept beside them
    recomputed: bool = False


def own_forward(agent: Agent, batch: Batch, rows: Int, _update: Update) -> F32:
    """Return what the policy gives, as the loss reads it."""
    return agent.log_prob(batch.inputs[rows], batch.actions[rows])


class _Captured:
    """The stages of a setup, with every minibatch written down."""

    def __init__(self, stages: Stages, forward: Forward) -> None:
        self.inner, self.forward = stages, forward
        self.prompts: Int = np.empty(0, np.int64)
        self.scores: F32 = np.empty(0, np.float32)
        self.update: Update | None = None
        self.epoch = self.minibatch = -1

    def stages(self) -> Stages:
        return replace(
            self.inner,
            answer_score=self._answer_score,
            reward=self._reward,
            before_epoch=self._before_epoch,
            before_minibatch=self._before_minibatch,
            old_log_prob=self._old_log_prob,
        )

    def _answer_score(self, scores: F32, mask: F32, prompts: Any, progress: Progress) -> F32:
        self.prompts = np.asarray(prompts, np.int64)
        return self.inner.answer_score(scores, mask, prompts, progress)

    def _reward(self, scores: F32, progress: Progress) -> F32:
        self.scores = self.inner.reward(scores, progress)
        return self.scores

    def _before_epoch(self, batch: Batch, agent: Agent) -> None:
        self.epoch, self.minibatch = self.epoch + 1, -1
        self.inner.before_epoch(batch, agent)

    def _before_minibatch(self, batch: Batch, agent: Agent) -> None:
        self.minibatch += 1
        self.inner.before_minibatch(batch, agent)

    def _old_log_prob(self, batch: Batch, rows: Any, agent: Agent) -> F32:
        old = self.inner.old_log_prob(batch, rows, agent)
        if self.update is not None:
            update, count = self.update, len(rows)
            update.samples.append(np.asarray(rows))
            update.epochs.append(np.full(count, self.epoch))
            update.minibatches.append(np.full(count, self.minibatch))
            update.new.append(self.forward(agent, batch, rows, update))
            update.old.append(np.array(old, copy=True))
            update.masks.append(self.inner.loss_mask(batch.mask[rows]))
        return old


def train(plan: Plan, seed: int) -> list[Update]:
    """Train, and return the updates that are to be dumped."""
    base = replace(LANGUAGE_PPO if plan.algorithm == "ppo" else GRPO, updates=plan.updates, **_SIZES[plan.algorithm])
    setup = FAULTS[plan.fault].inject(Setup(base, Stages()), plan.severity)
    setup = setup.with_config(**plan.config).with_stages(**plan.stages)
    captured = _Captured(setup.stages, plan.forward or own_forward)
    setup = Setup(setup.config, captured.stages())
    init_rng, rollout_rng, order_rng = np.random.default_rng(seed).spawn(3)
    task = LanguageTask(setup, rollout_rng)
    agent = Agent(setup.config, task.features, task.actions, init_rng)
    with np.errstate(all="ignore"):
        found = [_one(setup, task, agent, captured, plan, number, order_rng) for number in range(plan.updates)]
    return [update for update in found if update.number in plan.dumped]


_SIZES: dict[str, dict[str, Any]] = {
    "grpo": {"max_tokens": LONGEST_ROW, "num_prompts": 12, "num_generations": 8, "num_minibatches": 3, "hidden": (32,)},
    "ppo": {"max_tokens": LONGEST_ROW, "num_prompts": 96, "num_minibatches": 3, "hidden": (32,)},
}


def _one(
    setup: Setup,
    task: LanguageTask,
    agent: Agent,
    captured: _Captured,
    plan: Plan,
    number: int,
    rng: np.random.Generator,
) -> Update:
    progress = Progress(number, setup.config.updates)
    captured.update, captured.epoch = None, -1
    setup.stages.before_rollout(agent, progress)
    batch, _ = task.rollout(agent, progress)
    if plan.recomputed:
        batch.old_log_prob[...] = agent.log_prob(batch.inputs, batch.actions)
    update = Update(number=number, prompts=captured.prompts, scores=captured.scores, batch=batch)
    update.before = agent.actor.snapshot()
    if number in plan.dumped:
        captured.update = update
    improve(agent, batch, setup, setup.stages.learning_rate(setup.config, progress), rng)
    update.after = agent.actor.snapshot()
    optimizer = agent.actor_optimizer
    pairs = zip(optimizer.first, optimizer.second, strict=True)
    update.moments = [(first.copy(), second.copy()) for first, second in pairs]
    return update


def log_probs_of(actor: MLP, batch: Batch, rows: Int, inputs: F32 | None = None, temperature: float = 1.0) -> F32:
    """Return log-probs of some rows under a network, of shape [rows, tokens]; `inputs` may stand for the batch's."""
    given = batch.inputs[rows] if inputs is None else inputs
    logits = actor.forward(given.reshape(-1, given.shape[-1]))[0] / np.float32(temperature)
    return gather(log_softmax(logits), batch.actions[rows].ravel()).reshape(batch.actions[rows].shape)


def frozen_copy(actor: MLP) -> MLP:
    """Return a network of its own with the same weights."""
    return copy.deepcopy(actor)
