"""Updates that end early, or never ran."""

from __future__ import annotations

import numpy as np
import pytest

from tests.synthetic import a_series, observe

EARLY = [2, 3, 2, 4, 2, 3, 16, 2, 3, 2, 5, 2, 3, 2, 4, 2.0]


def stops(done, *, kl=1e-4, **more):
    series = [a_series("optimizer_steps", done), a_series("approx_kl", [kl] * len(done))]
    series += [a_series(name, values) for name, values in more.items()]
    found = observe(*series).fact("stops_at_kl")
    return None if found is None else found.value


def test_uneven_counts_below_the_whole_tell_the_kl_of_a_stop():
    assert stops(EARLY) == pytest.approx(1e-4)


def test_a_stop_makes_its_kl_the_target_and_says_that_it_is_reached():
    seen = observe(a_series("optimizer_steps", EARLY), a_series("approx_kl", [1e-4] * 16))
    assert seen.fact("binding_target_kl").value == pytest.approx(1e-4)
    assert seen.fact("kl_over_target").value == 1


@pytest.mark.parametrize(
    "done",
    [[4.0] * 16, [16.0] * 12 + [2, 3, 4, 5.0], [2.0, 4.0] * 8, EARLY[:9]],
    ids=["the same in each", "mostly all", "two kinds of update", "few updates"],
)
def test_other_counts_tell_of_no_stop(done):
    assert stops(done) is None


def test_batches_of_different_sizes_explain_different_counts():
    frames = [100.0]
    for count in EARLY[1:]:
        frames.append(frames[-1] + 64 * count)
    assert stops(EARLY, env_steps=frames) is None
    assert stops(EARLY, env_steps=[1024.0 * i for i in range(1, 17)]) is not None


def test_a_configured_target_is_the_target():
    seen = observe(a_series("optimizer_steps", EARLY), a_series("approx_kl", [1e-4] * 16), config={"target_kl": 0.02})
    assert seen.fact("binding_target_kl").value == 0.02


@pytest.mark.parametrize(
    ("passes", "kl", "entropy", "known"),
    [
        (1, 1e-9, 0.01, (1.0, "observed")),
        (2, 1e-9, 0.01, None),
        (1, 1e-4, 0.01, None),  # minibatches of one pass move the policy
        (1, 1e-9, 0.0, None),  # nothing moves at all
    ],
)
def test_one_pass_in_which_nothing_moves_is_one_step(passes, kl, entropy, known):
    seen = observe(
        a_series("epochs_executed_total", [passes * float(i) for i in range(1, 17)]),
        a_series("approx_kl", [kl] * 16),
        a_series("entropy", [0.7 - entropy * i for i in range(16)]),
    )
    fact = seen.fact("updates_known")
    assert (None if fact is None else (fact.value, fact.how)) == known


RNG = np.random.default_rng(8)


ROWS = 40


NAMES = "iteration,ep_return_mean,policy_loss,value_loss,approx_kl,entropy,explained_variance,n_updates,learning_rate"


SETTINGS = "n_envs: 4\nn_steps: 256\nn_epochs: {}\nbatch_size: 64\nlearning_rate: 0.0003\ngamma: 0.99\n"


def a_folder(tmp_path, *, value_loss=0.0, grows=0, epochs=None):
    noise, error = RNG.normal(size=(ROWS, 3)), value_loss / 9
    rows = [
        f"{i},{-20 + a:.4f},0.0,{error * (9 + b):.5f},0.0,{1.0986 + 1e-4 * c:.6f},{a / 99:.5f},{grows * i},3e-4"
        for i, (a, b, c) in enumerate(noise, 1)
    ]
    (tmp_path / "log.csv").write_text("\n".join([NAMES, *rows]) + "\n", encoding="utf-8")
    if epochs is not None:
        (tmp_path / "params.yaml").write_text(SETTINGS.format(epochs), encoding="utf-8")
    return tmp_path


def causes(cli, folder):
    return [cause["id"] for cause in cli("analyze", folder, "--format", "json").json["causes"]]


@pytest.mark.parametrize("epochs", [None, 0, 4])
def test_losses_of_0_and_a_counter_of_0_say_that_no_epoch_ran(tmp_path, cli, epochs):
    found = causes(cli, a_folder(tmp_path, epochs=epochs))
    assert found[0] == "epochs-not-executed"
    assert "adv-exactly-zero" not in found


def test_a_policy_loss_of_0_beside_a_critic_that_has_an_error_is_one_of_the_advantages(tmp_path, cli):
    assert causes(cli, a_folder(tmp_path, value_loss=2.0, grows=64, epochs=4))[0] == "adv-exactly-zero"


def test_a_configuration_of_0_epochs_is_named(tmp_path, cli):
    assert "n_epochs" in cli("analyze", a_folder(tmp_path, epochs=0)).out
