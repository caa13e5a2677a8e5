"""The recipes of docs/recorder.md record in abridged copies of their libraries, and fit the real ones where at hand."""

from __future__ import annotations

import contextlib
import json
import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.record import abridged
from tests.record.recipes import code, diff_of, parameters, real, unbound

DIFFS = {
    "verl/workers/utils/losses.py": abridged.VERL_LOSSES,
    "verl/workers/engine_workers.py": abridged.VERL_WORKERS,
    "openrlhf/trainer/ray/ppo_actor.py": abridged.OPENRLHF_ACTOR,
    "cleanrl/ppo.py": abridged.CLEANRL_PPO,
}
#: What recipes use besides, and where the library has it.
RELIED_ON = [
    ("verl/workers/config/actor.py", "clip_ratio_low: float"),
    ("verl/workers/config/actor.py", "clip_ratio_high: float"),
    ("verl/workers/engine_workers.py", "self.loss_fn = partial(ppo_loss,"),
    ("verl/workers/engine/fsdp/transformer_impl.py", "self.module = module"),
    ("verl/workers/engine/fsdp/transformer_impl.py", "self.optimizer = optimizer"),
    ("openrlhf/trainer/ray/ppo_actor.py", "self.args.actor.eps_clip_low_high[1]"),
    ("openrlhf/utils/deepspeed/deepspeed.py", "model.model = engine"),
    ("deepspeed/runtime/engine.py", "self.global_steps += 1"),
    ("ray/rllib/core/columns.py", 'ACTION_DIST_INPUTS = "action_dist_inputs"'),
    ("ray/rllib/core/columns.py", 'ACTIONS = "actions"'),
    ("ray/rllib/core/columns.py", 'ACTION_LOGP = "action_logp"'),
    ("ray/rllib/core/columns.py", 'LOSS_MASK = "loss_mask"'),
    ("ray/rllib/evaluation/postprocessing.py", 'ADVANTAGES = "advantages"'),
    ("ray/rllib/core/__init__.py", 'DEFAULT_POLICY_ID = "default_policy"'),
    ("ray/rllib/algorithms/ppo/torch/ppo_torch_learner.py", ".unwrapped()"),
    ("ray/rllib/algorithms/ppo/torch/ppo_torch_learner.py", "module.get_train_action_dist_cls()"),
    ("ray/rllib/algorithms/ppo/ppo.py", "self.clip_param = "),
    ("lightning/pytorch/core/module.py", "def global_step(self)"),
]
#: Methods of the abridged copies whose parameters are those of the library.
SIGNATURES = [
    (abridged.VERL_LOSSES, "ppo_loss", "verl/workers/utils/losses.py"),
    (abridged.VERL_WORKERS, "train_mini_batch", "verl/workers/engine_workers.py"),
    (abridged.OPENRLHF_ACTOR, "ppo_train", "openrlhf/trainer/ray/ppo_actor.py"),
    (abridged.OPENRLHF_ACTOR, "training_step", "openrlhf/trainer/ray/ppo_actor.py"),
    (abridged.RLLIB_LEARNER, "compute_loss_for_module", "ray/rllib/algorithms/ppo/torch/ppo_torch_learner.py"),
    (abridged.RLLIB_LEARNER, "before_gradient_based_update", "ray/rllib/core/learner/learner.py"),
    (abridged.RLLIB_LEARNER, "after_gradient_based_update", "ray/rllib/core/learner/learner.py"),
    (abridged.RLLIB_LEARNER, "get_optimizer", "ray/rllib/core/learner/learner.py"),
    (abridged.LIGHTNING_MODULE, "optimizers", "lightning/pytorch/core/module.py"),
    (abridged.LIGHTNING_MODULE, "training_step", "lightning/pytorch/core/module.py"),
    (abridged.LIGHTNING_MODULE, "on_train_start", "lightning/pytorch/core/hooks.py"),
    (abridged.LIGHTNING_MODULE, "on_train_epoch_start", "lightning/pytorch/core/hooks.py"),
    (abridged.LIGHTNING_MODULE, "on_train_epoch_end", "lightning/pytorch/core/hooks.py"),
]
UPDATES, BATCH = 3, 16


def the_real(file: str) -> str:
    text = real(file)
    if text is None:
        pytest.skip(f"{file} is not at hand")
    return text


@pytest.mark.parametrize("file", DIFFS)
@pytest.mark.parametrize("of", ["abridged", "real"])
def test_a_diff_fits_its_file_and_uses_what_is_there(file, of):
    source = DIFFS[file] if of == "abridged" else the_real(file)
    changed, added = diff_of(file).apply(source)
    compile(changed, file, "exec")
    assert unbound(changed, added) == set()


def test_a_renamed_hook_is_noticed():
    file = "verl/workers/utils/losses.py"
    with pytest.raises(LookupError, match="policy_loss_fn"):
        diff_of(file).apply(abridged.VERL_LOSSES.replace("get_policy_loss_fn(", "policy_loss_for("))
    renamed = abridged.VERL_LOSSES.replace("    old_log_prob = data", "    stored = data")
    assert unbound(*diff_of(file).apply(renamed)) == {"old_log_prob"}


@pytest.mark.parametrize(("file", "words"), RELIED_ON)
def test_what_a_recipe_relies_on_is_there(file, words):
    assert words in the_real(file)


@pytest.mark.parametrize(("copy", "method", "file"), SIGNATURES, ids=lambda value: str(value)[:40].strip())
def test_the_copies_have_the_librarys_parameters(copy, method, file):
    (ours,) = parameters(copy, method)
    assert ours in parameters(the_real(file), method)


class Policy:
    """Log-probs in NumPy that move by a step of a weight."""

    def __init__(self) -> None:
        made = np.random.default_rng(0)
        self.weight = np.zeros(4, np.float32)
        self.direction = made.normal(0, 1, (BATCH, 5))
        self.advantages = made.normal(0, 1, (BATCH, 5))
        self.mask = np.ones((BATCH, 5))
        self.mask[:, 3:] = 0

    def log_prob(self) -> Any:
        return -1 + float(self.weight[0]) * self.direction

    def step(self, *_: object, **__: object) -> None:
        self.weight = self.weight + np.float32(0.01)

    def arrays(self) -> list[Any]:
        return [self.weight]


def module(monkeypatch: Any, name: str, source: str = "", **more: Any) -> ModuleType:
    """Make a module of a source, with packages around it, for as long as the test runs."""
    parts = name.split(".")
    for place in range(1, len(parts)):
        package = ".".join(parts[:place])
        if package not in sys.modules:
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    vars(made).update(more)
    exec(compile(source, name, "exec"), vars(made))  # noqa: S102 - the page's own code
    return made


def records(folder: Any) -> list[dict[str, Any]]:
    (log,) = folder.rglob("run.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()[1:]]


@pytest.fixture
def policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Policy()


def test_verl_is_recorded(tmp_path, monkeypatch, policy):
    module(monkeypatch, "verl.trainer.ppo.core_algos", get_policy_loss_fn=lambda _: lambda **_: (0.0, {}))
    module(monkeypatch, "verl.workers.utils.padding", no_padding_2_padding=lambda values, _: values)
    told = SimpleNamespace(make_iterator=lambda data, **_: [data] * 2, get=lambda output, _: output)
    module(monkeypatch, "verl.utils", tensordict_utils=told)
    copies = [diff_of(file).apply(DIFFS[file])[0] for file in list(DIFFS)[:2]]
    losses = module(monkeypatch, "verl.workers.utils.losses", copies[0])
    workers = module(monkeypatch, "verl.workers.engine_workers", copies[1])

    def train_batch(data: Any, loss_function: Any) -> Any:
        found = loss_function(model_output={"log_probs": policy.log_prob()}, data=data)
        policy.step()
        return found

    engine = SimpleNamespace(
        train_batch=train_batch,
        train_mode=contextlib.nullcontext,
        is_mp_src_rank_with_outputs=lambda: True,
        module=policy.arrays,
        optimizer=policy.arrays,
    )
    config = SimpleNamespace(clip_ratio_low=0.2, clip_ratio_high=0.28)
    for loss in (partial(losses.ppo_loss, config), lambda **_: (0.0, {})):
        worker = workers.TrainingWorker(engine, SimpleNamespace(step=lambda: None))
        worker.loss_fn = loss
        for _ in range(UPDATES):
            worker.train_mini_batch(Batch(policy))
    written = records(tmp_path)
    assert len(written) == UPDATES, "the critic's updates are none of the policy's"
    assert all(r["tokens_in_loss"] == 2 * BATCH * 3 and r["ratio_std"] > 0 < r["update_norm"] for r in written)
    assert {"clip_fraction", "logratio_advantage_corr"} <= set(written[0])


class Batch(dict[str, Any]):
    """A batch as verl's TensorDict: fields by name, and a shape."""

    def __init__(self, policy: Policy) -> None:
        fields = {"response_mask": policy.mask, "old_log_probs": policy.log_prob(), "advantages": policy.advantages}
        super().__init__(fields)
        self.shape = (BATCH,)


def test_openrlhf_is_recorded(tmp_path, monkeypatch, policy):
    module(monkeypatch, "openrlhf.utils.vlm_utils", merge_mm_train_inputs=None)
    file = "openrlhf/trainer/ray/ppo_actor.py"
    trainer = module(monkeypatch, "openrlhf.trainer.ray.ppo_actor", diff_of(file).apply(DIFFS[file])[0])
    engine = SimpleNamespace(global_steps=0)

    def actor(*_: object) -> Any:
        return policy.log_prob(), None

    def step(*_: object, **__: object) -> None:
        policy.step()
        engine.global_steps += 1

    class Buffer(list[Any]):
        def set_postfix(self, _: object) -> None:
            pass

    actor.model = engine  # type: ignore[attr-defined]
    args = SimpleNamespace(actor=SimpleNamespace(eps_clip_low_high=[0.2, 0.3]))
    strategy = SimpleNamespace(args=args, optimizer_step=step)
    for _ in range(UPDATES):
        told = {"action_mask": policy.mask, "action_log_probs": policy.log_prob(), "advantages": policy.advantages}
        buffer = Buffer([SimpleNamespace(sequences=None, **told)])
        trainer.ActorPPOTrainer(strategy, actor, buffer, lambda *_, **__: (0.0, 0, 0, 0, 0)).ppo_train(0.0)
    written = records(tmp_path)
    assert [(r["optimizer_steps"], r["tokens_in_loss"]) for r in written] == [(2, 2 * BATCH * 3)] * UPDATES
    assert all(r["ratio_std"] > 0 and "clip_fraction" in r for r in written)


def test_rllib_is_recorded(tmp_path, monkeypatch, policy):
    name = "ray.rllib.algorithms.ppo.torch.ppo_torch_learner"
    module(monkeypatch, name, abridged.RLLIB_LEARNER)
    text = code("RLlib").replace("/tmp/run.jsonl", str(tmp_path / "run.jsonl"))  # noqa: S108
    learner = module(monkeypatch, "recipe", text).RecordedLearner()
    kind = SimpleNamespace(from_logits=lambda logits: SimpleNamespace(logp=lambda _: logits))
    held = policy.arrays
    held_module = SimpleNamespace(unwrapped=lambda: SimpleNamespace(get_train_action_dist_cls=lambda: kind))
    learner.module, learner.optimizer = {"default_policy": ModuleOf(held, held_module)}, held
    learner.config = SimpleNamespace(clip_param=0.2)
    for _ in range(UPDATES):
        batch = {"actions": None, "action_logp": policy.log_prob(), "advantages": policy.advantages}
        learner.before_gradient_based_update(timesteps={})
        for _ in range(2):
            told = {"action_dist_inputs": policy.log_prob()}
            given = {"module_id": "default_policy", "config": None, "batch": batch, "fwd_out": told}
            assert np.isfinite(learner.compute_loss_for_module(**given))
            policy.step()
        learner.after_gradient_based_update(timesteps={})
    written = records(tmp_path)
    assert [r["tokens_in_loss"] for r in written] == [2 * BATCH * 5] * UPDATES
    assert all(r["ratio_std"] > 0 < r["update_norm"] for r in written)


class ModuleOf:
    """An RLModule whose weights are NumPy's."""

    def __init__(self, arrays: Any, rest: Any) -> None:
        self.unwrapped, self._arrays = rest.unwrapped, arrays

    def __call__(self) -> Any:
        return self._arrays()


def test_lightning_is_recorded(tmp_path, monkeypatch, policy):
    module(monkeypatch, "lightning.pytorch", abridged.LIGHTNING_MODULE)

    class Mine(module(monkeypatch, "recipe", code("Lightning")).Recorded):  # type: ignore[misc]
        optimizer = staticmethod(policy.arrays)

        def __call__(self) -> Any:
            return policy.arrays()

        def policy_loss(self, _: Any) -> Any:
            return policy.log_prob(), 0.5

    mine = Mine()
    mine.on_train_start()
    for _ in range(UPDATES):
        batch = {"log_prob": policy.log_prob(), "advantages": policy.advantages}
        mine.on_train_epoch_start()
        for place in range(2):
            assert mine.training_step(batch, place) == 0.5
            policy.step()
            mine.global_step += 1
        mine.on_train_epoch_end()
    written = records(tmp_path)
    assert [r["step"] for r in written] == [2, 4, 6]
    assert all(r["ratio_std"] > 0 < r["update_norm"] for r in written)
