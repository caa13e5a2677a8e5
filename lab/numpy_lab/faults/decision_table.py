"""Why a ratio is 1, or a policy still: the rest of the decision table."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

from ..agent import Agent, Batch
from ..nets import F32, MLP
from ..settings import Progress, Setup, TrainConfig, own_logits, scheduled_learning_rate
from .registry import fault, onset

_FROZEN = "begins at 60 %, at 30 %, at the start of the run"
_SMALL_STEPS = ("lr-too-small", "grad-clip-starves", "adam-eps-dominates", "bf16-swallowed-update")
_NO_STEPS = ("lr-zero", "no-grad-path", "optimizer-orphaned-params", "amp-step-skipped", "loss-mask-empty")
_SELF_RATIO = ("old-policy-aliased", "old-logp-resynced-per-minibatch", "old-logp-resynced-per-epoch")


def _others(cause: str, *rest: str) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(rest) if name != cause)


class _Clock:
    """Remembers how far the run is, for stages that are not told."""

    def __init__(self, begin: float) -> None:
        self.begin, self.on = begin, begin == 0

    def learning_rate(self, config: TrainConfig, progress: Progress) -> float:
        self.on = progress.reached(self.begin)
        return scheduled_learning_rate(config, progress)


@fault(
    "lr-too-small",
    description="the learning rate is orders of magnitude below a useful one",
    severities="learning rate × 3e-3, 1e-4, 1e-6",
    level_with={
        "canonical": ("bf16-swallowed-update",),
        "canonical-lean": _others("lr-too-small", *_SMALL_STEPS),
        "*": _others("lr-too-small", *_SMALL_STEPS),
    },
)
def lr_too_small(setup: Setup, severity: int) -> Setup:
    share = {1: 3e-3, 2: 1e-4, 3: 1e-6}[severity]
    return setup.with_config(learning_rate=setup.config.learning_rate * share)


@fault(
    "grad-clip-starves",
    description="plain gradient descent with gradients clipped to almost nothing, or to nothing at all",
    severities="SGD with max_grad_norm 3e-4, 1e-5; Adam with 0 (language: SGD with 1e-6)",
    level_with={"*": _others("grad-clip-starves", *_SMALL_STEPS, "optimizer-orphaned-params", "amp-step-skipped")},
)
def grad_clip_starves(setup: Setup, severity: int) -> Setup:
    if severity == 3 and setup.config.task == "control":
        return setup.with_config(max_grad_norm=0.0)  # transformers switches clipping off at 0
    return setup.with_config(optimizer="sgd", max_grad_norm={1: 3e-4, 2: 1e-5, 3: 1e-6}[severity])


@fault(
    "adam-eps-dominates",
    description="Adam's epsilon is far above every coordinate's gradient, so steps shrink by their ratio",
    severities="epsilon 10, 100, 1000",
    level_with={"*": _others("adam-eps-dominates", *_SMALL_STEPS)},
)
def adam_eps_dominates(setup: Setup, severity: int) -> Setup:
    return setup.with_config(adam_eps={1: 1e1, 2: 1e2, 3: 1e3}[severity])


@fault(
    "loss-mask-empty",
    description="the loss mask is zero everywhere: no token is trained on, by the policy or by the critic",
    severities=_FROZEN,
    default_severity=3,
    level_with={"canonical": (), "canonical-full": (), "*": ("no-grad-path", "adv-exactly-zero")},
)
def loss_mask_empty(setup: Setup, severity: int) -> Setup:
    clock = _Clock(onset(severity))

    def mask(values: F32) -> F32:
        return values * np.float32(0) if clock.on else values

    return setup.with_stages(loss_mask=mask, learning_rate=clock.learning_rate)


@fault(
    "no-grad-path",
    description="the policy's forward pass runs without gradients (no_grad, frozen parameters): it has none, so that "
    "the optimizer passes it over, momentum and all",
    severities=_FROZEN,
    default_severity=3,
    level_with={
        "trl-grpo": ("loss-mask-empty",),
        "canonical": (),
        "canonical-full": (),
        "*": _others("no-grad-path", *_NO_STEPS),
    },
)
def no_grad_path(setup: Setup, severity: int) -> Setup:
    clock = _Clock(onset(severity))

    def gradients(grads: list[F32]) -> list[F32]:
        return [np.zeros_like(grad) for grad in grads] if clock.on else grads

    def trained(agent: Agent) -> list[F32]:
        return agent.actor.snapshot() if clock.on else agent.actor.params

    return setup.with_stages(gradients=gradients, trained=trained, learning_rate=clock.learning_rate)


@fault(
    "optimizer-orphaned-params",
    description="the optimizer holds copies of the parameters: it steps them, and the policy stays",
    severities=_FROZEN,
    default_severity=3,
    level_with={"canonical-full": (), "*": _others("optimizer-orphaned-params", *_NO_STEPS)},
)
def optimizer_orphaned_params(setup: Setup, severity: int) -> Setup:
    clock = _Clock(onset(severity))
    orphans: list[F32] = []

    def trained(agent: Agent) -> list[F32]:
        if not clock.on:
            return agent.actor.params
        if not orphans:
            orphans.extend(agent.actor.snapshot())
        return orphans

    return setup.with_stages(trained=trained, held=trained, learning_rate=clock.learning_rate)


@fault(
    "amp-step-skipped",
    description="gradients overflow in half precision, and the loss scaler throws the steps away",
    severities="80 %, 95 %, all of the steps are skipped",
    default_severity=3,
    level_with={"canonical-full": (), "*": ("nan-inf", "optimizer-orphaned-params", "lr-zero")},
)
def amp_step_skipped(setup: Setup, severity: int) -> Setup:
    share = {1: 0.8, 2: 0.95, 3: 1.0}[severity]
    rng = np.random.default_rng(severity)
    scale = [65536.0]

    def scaler() -> tuple[bool, float | None]:
        overflow = bool(rng.random() < share)
        scale[0] = max(scale[0] / 2, 2.0**-14) if overflow else scale[0]
        return overflow, scale[0]

    return setup.with_stages(scaler=scaler)


def _bf16(values: F32) -> F32:
    """Round to bfloat16 and back, to nearest even."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


@fault(
    "bf16-swallowed-update",
    description="weights are stored in bfloat16 without a float32 master copy, and most of each step rounds away",
    severities="learning rate × 2e-2, 1.5e-2, 1e-2",
    level_with={"*": _others("bf16-swallowed-update", *_SMALL_STEPS)},
)
def bf16_swallowed_update(setup: Setup, severity: int) -> Setup:
    share = {1: 2e-2, 2: 1.5e-2, 3: 1e-2}[severity]

    def round_weights(agent: Agent) -> None:
        for param in agent.actor.params:
            param[...] = _bf16(param)

    changed = setup.with_config(learning_rate=setup.config.learning_rate * share, precision="bfloat16")
    return changed.with_stages(after_step=round_weights)


def _needs_reference(setup: Setup) -> None:
    if setup.config.task == "control":
        raise ValueError("a KL penalty needs a reference model")


@fault(
    "kl-penalty-too-strong",
    description="the KL penalty to the reference model drowns the reward",
    severities="coefficient 3, 10, 30",
    level_with={"*": ()},
)
def kl_penalty_too_strong(setup: Setup, severity: int) -> Setup:
    _needs_reference(setup)
    return setup.with_config(kl_coef={1: 3.0, 2: 10.0, 3: 30.0}[severity])


@fault(
    "kl-coef-runaway",
    description="the adaptive KL coefficient chases a target that the policy can never meet",
    severities="coefficient × 1.2, 1.5, 2 per update",
)
def kl_coef_runaway(setup: Setup, severity: int) -> Setup:
    _needs_reference(setup)
    if setup.config.stop_rule != "trl-legacy":
        raise ValueError("only the old trainer adapts its coefficient")
    pace = {1: 1.2, 2: 1.5, 3: 2.0}[severity]
    held = [setup.config.kl_coef or 0.05]

    def adapted(_config: TrainConfig, last_kl: float) -> float:
        if last_kl > 1e-6:
            held[0] = min(held[0] * pace, 1e30)
        return held[0]

    return setup.with_config(kl_coef=held[0], adaptive_kl_coef=True).with_stages(kl_coef=adapted)


class _Controller:
    """Schulman's adaptive learning rate as in rsl_rl: × or ÷ 1.5 outside half to twice the desired KL."""

    def __init__(self, desired: float, start: float, low: float = 1e-5, high: float = 1e-2) -> None:
        self.desired, self.rate, self.low, self.high = desired, start, low, high

    def learning_rate(self, _config: TrainConfig, _progress: Progress) -> float:
        return self.rate

    def watch(self, batch: Batch, agent: Agent) -> None:
        delta = agent.log_prob(batch.inputs, batch.actions) - batch.sampled_log_prob
        kl = float((np.exp(delta) - 1 - delta).mean())
        if kl > 2 * self.desired:
            self.rate = max(self.low, self.rate / 1.5)
        elif 0 < kl < self.desired / 2:
            self.rate = min(self.high, self.rate * 1.5)


@fault(
    "lr-controller-saturated",
    description="the adaptive learning rate cannot reach its desired KL and sits at its bound",
    severities="desired KL 1e-7, 1e-8, 1e-9",
    verdict="warning",
    level_with={"*": ("lr-too-small",)},
)
def lr_controller_saturated(setup: Setup, severity: int) -> Setup:
    if setup.config.task == "language":
        raise ValueError("no trainer of language models adapts its learning rate to the KL")
    desired = {1: 1e-7, 2: 1e-8, 3: 1e-9}[severity]
    controller = _Controller(desired, setup.config.learning_rate)
    changed = setup.with_config(desired_kl=desired)
    return changed.with_stages(learning_rate=controller.learning_rate, before_epoch=controller.watch)


@fault(
    "old-logp-resynced-per-epoch",
    description="the stored old log-probs are overwritten with the current policy's at the start of every epoch",
    severities="learning rate × 1, 2, 4 (the trust region spans one epoch only)",
    default_severity=1,
    level_with={
        "canonical-full": (),
        # With one minibatch per epoch, as GRPO has here, the two syncs are one program.
        "recorder-grpo": _others("old-logp-resynced-per-epoch", *_SELF_RATIO),
        "trl-grpo": _others("old-logp-resynced-per-epoch", *_SELF_RATIO),
        "trl-ppo": _others("old-logp-resynced-per-epoch", *_SELF_RATIO),
        "*": ("healthy",),
    },
)
def old_logp_resynced_per_epoch(setup: Setup, severity: int) -> Setup:
    def resync(batch: Batch, agent: Agent) -> None:
        batch.old_log_prob[...] = agent.log_prob(batch.inputs, batch.actions)

    pace = {1: 1.0, 2: 2.0, 3: 4.0}[severity]
    return setup.with_config(learning_rate=setup.config.learning_rate * pace).with_stages(before_epoch=resync)


@fault(
    "idle-clip",
    description="the sampler is updates behind, and the ratio is taken against a fresh pass of the trainer",
    severities="4, 8, 16 updates behind, one optimizer step per batch",
    level_with={"*": ("benign-single-update",), "canonical-full": ("staleness-async", "rollout-trainer-mismatch")},
)
def idle_clip(setup: Setup, severity: int) -> Setup:
    lag = {1: 4, 2: 8, 3: 16}[severity]
    past: deque[MLP] = deque(maxlen=lag + 1)

    def remember(agent: Agent, _progress: Progress) -> None:
        past.append(copy.deepcopy(agent.actor))

    def stale(_agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return past[0].forward(inputs)[0]

    single = setup.with_config(epochs=1, num_minibatches=1, learning_rate=setup.config.learning_rate * 4)
    return single.with_stages(before_rollout=remember, rollout_logits=stale, stored_logits=own_logits)


@fault(
    "placebo-ratio-noise",
    description="the policy never learns, and noise on its weights makes the ratio differ from 1",
    severities="noise of 1e-3, 2e-3, 4e-3 on each weight before each minibatch",
    # KL that ignores a schedule is noise on the weights, or a mismatch: only the size of the ratio's tail could tell.
    level_with={"*": ("kl-penalty-too-strong",), "cleanrl": ("kl-penalty-too-strong", "obs-transform-mismatch")},
)
def placebo_ratio_noise(setup: Setup, severity: int) -> Setup:
    size = {1: 1e-3, 2: 2e-3, 3: 4e-3}[severity]
    rng = np.random.default_rng(severity)
    orphans: list[F32] = []

    def perturb(_batch: Batch, agent: Agent) -> None:
        for param in agent.actor.params:
            param[...] += rng.normal(0, size, param.shape).astype(np.float32)

    def trained(agent: Agent) -> list[F32]:
        if not orphans:
            orphans.extend(agent.actor.snapshot())
        return orphans

    return setup.with_stages(before_minibatch=perturb, trained=trained, held=trained)


@fault(
    "loss-has-no-ratio",
    description="a plain policy gradient, which weighs each sample with p / p.detach(): 1 by definition",
    severities="learning rate × 0.5, 1, 1.5 (all sound)",
    verdict="healthy",
    level_with={"canonical": (), "canonical-lean": (), "canonical-full": (), "*": _SELF_RATIO},
    # These name the loss. The others log a clip range and passes over a batch: where a ratio is promised, one that is
    # taken against the policy itself is the fault.
    sound_in=("canonical", "canonical-lean", "canonical-full"),
    elsewhere="old-policy-aliased",
)
def loss_has_no_ratio(setup: Setup, severity: int) -> Setup:
    def current(batch: Batch, rows: Any, agent: Agent) -> F32:
        return agent.log_prob(batch.inputs[rows], batch.actions[rows])

    pace = {1: 0.5, 2: 1.0, 3: 1.5}[severity]
    changed = setup.with_config(loss_type="reinforce", learning_rate=setup.config.learning_rate * pace)
    return changed.with_stages(old_log_prob=current)


@fault(
    "critic-warmup-actor-frozen",
    description="only the critic trains for a configured number of updates, which the log does not outlast",
    severities="warm-up of 60, 100, 200 updates",
    verdict="healthy",
    level_with={
        "canonical": (),
        "canonical-lean": (),
        "canonical-full": (),
        "*": ("no-grad-path", "loss-mask-empty", "optimizer-orphaned-params"),
    },
)
def critic_warmup_actor_frozen(setup: Setup, severity: int) -> Setup:
    if setup.config.algorithm == "grpo":
        raise ValueError("needs a critic")

    def frozen(grads: list[F32]) -> list[F32]:
        return [np.zeros_like(grad) for grad in grads]

    longer = max(setup.config.updates, {1: 60, 2: 100, 3: 200}[severity])
    return setup.with_config(critic_warmup=longer).with_stages(gradients=frozen)


@fault(
    "benign-schedule",
    description="learning rate and steps decay to almost nothing by their schedule, late in the run",
    severities="cosine to 0 with power 1, 2, 3",
    verdict="healthy",
)
def benign_schedule(setup: Setup, severity: int) -> Setup:
    def cosine(config: TrainConfig, progress: Progress) -> float:
        share = 0.5 * (1 + np.cos(np.pi * progress.update / progress.updates))
        return float(config.learning_rate * share**severity)

    return setup.with_stages(learning_rate=cosine)
