"""Dumps of real trainers: what Stable-Baselines3 and TRL hold in a minibatch is saved, read and judged.

Needs torch, stable-baselines3, trl, pyarrow and safetensors, and is skipped without them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.request import Request
from ppo_doctor.readers.tensors import read_archive
from ppo_doctor.runs.dumps import dump_run
from ppo_doctor.runs.dumps.contents import with_roles


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


pytestmark = pytest.mark.filterwarnings("default")


def judged(folder, **known):
    return diagnose(read_run(str(folder), Request(settings=known)), load_pack())


def alarms(diagnosis):
    return [cause.id for cause in diagnosis.causes if cause.leader and not cause.benign]


def leaders(diagnosis):
    first = diagnosis.causes[0]
    return {first.id, *first.level_with}


# Stable-Baselines3

SB3 = {"n_steps": 64, "batch_size": 128, "n_epochs": 4}
OF_SB3 = {"ppo_epochs": 4, "num_minibatches": 4, "clip_range": 0.2, "gamma": 0.99, "gae_lambda": 0.95}


def sb3_dumps(folder: Path, change=None, updates=6):
    """Train PPO on CartPole, and save every minibatch of each update; `change` is a fault in the buffer."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    environments = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
    model = PPO("MlpPolicy", environments, seed=3, device="cpu", **SB3)
    evaluate, get, train = model.policy.evaluate_actions, model.rollout_buffer.get, model.train
    cells: list[dict] = []

    def minibatches(batch_size):
        epoch = 1 + max((cell["epoch"] for cell in cells), default=-1)
        for number, data in enumerate(get(batch_size)):
            cells.append({"epoch": epoch, "minibatch": number, "data": data})
            yield data

    def evaluated(observations, actions):
        found = evaluate(observations, actions)
        cells[-1]["log_prob"] = found[1].detach().clone()
        return found

    def trained():
        cells.clear()
        if change is not None:
            change(model.rollout_buffer)
        train()
        joined = {
            "log_prob": torch.cat([cell["log_prob"] for cell in cells]),
            "old_log_prob": torch.cat([cell["data"].old_log_prob for cell in cells]),
            "advantages": torch.cat([cell["data"].advantages for cell in cells]),
            "returns": torch.cat([cell["data"].returns for cell in cells]),
            "values": torch.cat([cell["data"].old_values for cell in cells]),
        }
        for name in ("epoch", "minibatch"):
            joined[name] = torch.cat([torch.full_like(cell["log_prob"], cell[name]) for cell in cells]).long()
        torch.save(joined, folder / f"update_{model.num_timesteps}.pt")

    model.rollout_buffer.get, model.policy.evaluate_actions, model.train = minibatches, evaluated, trained
    model.learn(updates * 8 * SB3["n_steps"])
    return folder


def other_order(buffer):
    """Lay out the log-probs environment by environment, while all else goes step by step."""
    buffer.log_probs = buffer.log_probs.T.reshape(buffer.log_probs.shape).copy()


def trailing(buffer):
    """Keep log-probs one step behind their actions."""
    buffer.log_probs = np.roll(buffer.log_probs, 1, axis=0)


@needs("torch", "stable_baselines3", "gymnasium")
def test_minibatches_of_stable_baselines_are_sound(tmp_path):
    diagnosis = judged(sb3_dumps(tmp_path), **OF_SB3)
    assert alarms(diagnosis) == []
    run = read_run(str(tmp_path), Request(settings=OF_SB3))
    assert len(run.series["approx_kl"].values) == 6
    assert (run.series["kl_first_epoch_share"].values < 0.3).all()
    assert (run.series["start_logratio_std"].values < 1e-5).all()


@needs("torch", "stable_baselines3", "gymnasium")
@pytest.mark.parametrize("change", [other_order, trailing])
def test_log_probs_of_other_samples_are_named_in_stable_baselines(change, tmp_path):
    diagnosis = judged(sb3_dumps(tmp_path, change), **OF_SB3)
    assert leaders(diagnosis) & {"token-misalignment", "trajectory-interleaving"}


# TRL

OF_TRL = {"ppo_epochs": 4, "num_minibatches": 1, "clip_range": 0.2}


def trl_dumps(folder: Path, form="pt", *, aliased=False, completions=False):
    """Train GRPO on a tiny decoder, four steps on each generation, and save what the loss reads in each step."""
    import torch
    from safetensors.torch import save_file
    from trl import GRPOConfig, GRPOTrainer

    from lab import language as tiny
    from tests.record.trainers import grpo

    torch.set_num_threads(1)

    class Kept(GRPOTrainer):
        held: torch.Tensor

        def _get_per_token_logps_and_entropies(self, *given, **named):
            found = super()._get_per_token_logps_and_entropies(*given, **named)
            self.held = found[0]
            return found

        def _compute_loss(self, model, inputs):
            if aliased:
                inputs = {name: value for name, value in inputs.items() if name != "old_per_token_logps"}
            loss = super()._compute_loss(model, inputs)
            new = self.held.detach()
            save(self.state.global_step, new, inputs)
            return loss

    def save(step, new, inputs):
        held = {
            "log_probs": new,
            "old_per_token_logps": inputs.get("old_per_token_logps", new),
            "advantages": inputs["advantages"],
            "completion_mask": inputs["completion_mask"],
            "completion_ids": inputs["completion_ids"],
        }
        place = {"global_step": step // 4, "epoch": step % 4, "minibatch": 0}
        stem = folder / f"step_{step // 4:03}_{step % 4}"
        if form == "pt":
            torch.save({**held, **place}, stem.with_suffix(".pt"))
        else:
            plain = {name: value.contiguous().clone() for name, value in held.items()}
            save_file(plain, stem.with_suffix(".safetensors"), metadata={k: str(v) for k, v in place.items()})

    settings = {**grpo.SOUND, "max_steps": 24, "log_completions": completions, "seed": 1, "bf16": False}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    trainer = Kept(
        model=tiny.policy(1),
        args=GRPOConfig(output_dir=str(folder / "out"), **settings, **quiet),
        reward_funcs=[grpo.match_reward, shorter],
        train_dataset=tiny.prompts(1),
        processing_class=tiny.tokenizer(),
    )
    trainer.train()
    return folder


def shorter(completion_ids, **_):
    """Pay for short answers."""
    return [-0.01 * len(one) for one in completion_ids]


@needs("torch", "trl", "safetensors", "datasets")
@pytest.mark.parametrize("form", ["pt", "safetensors"])
def test_steps_of_trl_are_sound(form, tmp_path):
    diagnosis = judged(trl_dumps(tmp_path, form), **OF_TRL)
    assert alarms(diagnosis) == []


@needs("torch", "trl", "safetensors", "datasets")
@pytest.mark.parametrize("form", ["pt", "safetensors"])
def test_lost_old_log_probs_are_named_in_trl(form, tmp_path):
    diagnosis = judged(trl_dumps(tmp_path, form, aliased=True), **OF_TRL)
    assert "old-policy-aliased" in leaders(diagnosis)
    if form == "pt":  # torch.save keeps what shares memory
        run = read_run(str(tmp_path), Request(settings=OF_TRL))
        assert (run.series["old_policy_shared"].values == 1).all()


def rewritten(path: Path, target: Path, change):
    """Write a table of completions anew, with changed columns."""
    import pyarrow
    from pyarrow import parquet

    held = parquet.read_table(path).to_pydict()
    parquet.write_table(pyarrow.table(change(held)), target)
    return target


def flipped(held):
    return held | {"advantage": [-value for value in held["advantage"]]}


def conversational(held):
    return held | {"prompt": [[{"role": "user", "content": text}] for text in held["prompt"]]}


@needs("torch", "trl", "pyarrow", "pandas", "datasets")
def test_completions_that_trl_writes_are_read_and_judged(tmp_path):
    trl_dumps(tmp_path, completions=True)
    tables = sorted((tmp_path / "out" / "completions").glob("completions_*.parquet"))
    assert len(tables) > 3
    archive = read_archive(tables[-1])
    assert {"step", "prompt", "advantage", "match_reward", "shorter", "rewards"} <= set(archive.tensors)
    assert any("match_reward, shorter" in note.text for note in archive.notes)
    sound = dump_run.measure(*with_roles([archive])).values
    assert sound["advantages_recomputed_corr"] == pytest.approx(1, abs=1e-4)
    assert sound["advantages_odd_group"] < 1e-4
    assert sound["advantages_group_bound"] < 1.001
    assert alarms(judged(tables[-1])) == []
    wrong = rewritten(tables[-1], tmp_path / "completions_00099.parquet", flipped)
    assert "advantage-sign-flipped" in leaders(judged(wrong))
    written = read_archive(rewritten(tables[-1], tmp_path / "completions_00098.parquet", conversational))
    chat = dump_run.measure(*with_roles([written]))
    assert chat.values["advantages_odd_group"] == pytest.approx(sound["advantages_odd_group"], abs=1e-9)
