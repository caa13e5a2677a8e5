"""Whether the sampler moves on is told by its log-probs of the same tokens in two updates, and only of the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppo_doctor import load_run
from ppo_doctor.readers.tensors import read_archive
from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps import dump_run
from ppo_doctor.runs.dumps.batches import Batch, Cells, batch_of
from ppo_doctor.runs.dumps.contents import with_roles
from ppo_doctor.runs.dumps.same_tokens import joined_updates, rms_change, sampler_log_probs

ROWS, TIME = 40, 3


def tensor(values):
    return Tensor.of("t", np.asarray(values))


def update(shift=0.0, seed=0, **changed):
    """Return a batch of 5 prompts and 2 tokens, whose log-probs depend on prompt, prefix and `shift` alone."""
    chance = np.random.default_rng(seed)
    prompt, tokens = chance.integers(0, 5, ROWS), chance.integers(0, 2, (ROWS, TIME))
    prefix = np.cumsum(tokens * 2 ** np.arange(TIME), axis=1)
    old = -1.0 - 0.01 * prompt[:, None] - 0.1 * prefix - np.arange(TIME) + shift
    held = {"old_log_prob": old, "tokens": tokens, "prompt": prompt} | changed
    prompts = held.pop("prompt")
    return Batch(
        tensors={name: tensor(values) for name, values in held.items() if values is not None},
        names={},
        prompt=None if prompts is None else tensor(prompts),
    )


def test_equal_tokens_after_equal_prefixes_are_compared():
    first = sampler_log_probs(update(seed=0), None, None)
    assert rms_change(first, sampler_log_probs(update(seed=1), None, None)) == pytest.approx(0, abs=1e-12)
    assert rms_change(first, sampler_log_probs(update(shift=0.25, seed=1), None, None)) == pytest.approx(0.25)


def test_prompts_may_be_told_by_their_tokens():
    def spelt(seed):
        prompt = np.random.default_rng(seed).integers(0, 5, ROWS)
        return update(seed=seed, prompt=np.stack([prompt % 2, prompt // 2, np.full(ROWS, 7)], axis=1))

    first, second = (sampler_log_probs(spelt(seed), None, None) for seed in (0, 1))
    assert rms_change(first, second) == pytest.approx(0, abs=1e-12)


def test_the_samplers_own_log_probs_come_before_the_trainers():
    own = update(rollout_log_prob=np.zeros((ROWS, TIME)))
    assert set(sampler_log_probs(own, None, None).values) == {0.0}


def test_later_epochs_and_tokens_outside_the_loss_are_not_looked_at():
    epochs = np.repeat([0, 1], ROWS // 2)
    old = np.where(epochs[:, None] == 0, -1.0, -9.0) * np.ones((ROWS, TIME))
    mask = np.ones((ROWS, TIME), bool)
    mask[:, 0] = False
    old[:, 0] = -5.0
    cells = Cells(epochs=epochs, minibatches=np.zeros(ROWS, np.int64))
    assert set(sampler_log_probs(update(old_log_prob=old), cells, tensor(mask)).values) == {-1.0}


@pytest.mark.parametrize(
    "lacking",
    [{"prompt": None}, {"tokens": None}, {"old_log_prob": None}, {"prompt": np.arange(7)}, {"tokens": np.zeros(ROWS)}],
)
def test_without_prompts_or_tokens_nothing_is_told(lacking):
    assert sampler_log_probs(update(**lacking), None, None) is None


def test_few_common_tokens_tell_nothing():
    other = update(prompt=np.full(ROWS, 99))
    assert math.isnan(rms_change(sampler_log_probs(update(), None, None), sampler_log_probs(other, None, None)))


def test_files_of_one_update_are_one():
    first, second = (sampler_log_probs(update(seed=seed), None, None) for seed in (0, 1))
    both = joined_updates([first, second])
    assert set(both.keys) == set(first.keys) | set(second.keys)
    assert rms_change(both, second) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("shift", "wanted"), [(0.0, 0.0), (0.3, 1.0)])
def test_it_is_measured_against_the_distance_to_the_trainer(tmp_path, shift, wanted):
    for number in (1, 2, 3):
        one = update(shift=shift * (number - 1), seed=number)
        chance = np.random.default_rng(number)
        old = one.tensors["old_log_prob"].array()
        np.savez(
            tmp_path / f"update_{number}.npz",
            old_log_probs=old,
            log_probs=old + 0.3 * chance.choice([-1.0, 1.0], old.shape),
            responses=one.tensors["tokens"].array(),
            prompt_ids=one.prompt.array(),
            group_ids=np.arange(ROWS) // 8,
            epoch=np.zeros(ROWS, np.int64),
            minibatch=np.zeros(ROWS, np.int64),
        )
    found = load_run(tmp_path).series["sampler_moved"]
    assert list(found.axis.steps) == [2, 3]
    assert found.values[0] == pytest.approx(wanted, abs=0.03)
    assert found.values[1] == pytest.approx(2 * wanted, abs=0.06)


def test_a_sampler_that_agrees_with_its_trainer_has_no_distance():
    held = sampler_log_probs(update(), None, None)
    records = [
        dump_run.Measured(path="a", container="npz", step=n, values={"passes_logratio_std": 0.0}, raw={}, sampler=held)
        for n in (1, 2)
    ]
    assert all("sampler_moved" not in record.values for record in dump_run.with_update_metrics(records))


def test_words_are_numbered_alike_in_every_file(tmp_path):
    for number, words in ((1, ["cat", "dog", "elephant"]), (2, ["dog", "cat"])):
        np.savez(tmp_path / f"u_{number}.npz", old_log_probs=np.zeros((len(words), 2)), prompt=np.array(words))
    archives = with_roles(read_archive(tmp_path / f"u_{number}.npz") for number in (1, 2))
    first, second = (batch_of(archive).prompt.array() for archive in archives)
    assert list(second) == [first[1], first[0]]
