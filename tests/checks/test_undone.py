"""An update that never ran is told from one whose advantages are 0."""

from __future__ import annotations

import numpy as np
import pytest

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
