"""What is known of the policy's optimizers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.policy import rate_of  # noqa: E402


@pytest.mark.parametrize(("rates", "rate"), [((0.1, 0.2), 0.1), ((0.0, 0.2), 0.2), ((1e-17, 0.0), 0.0)])
def test_a_rate_is_0_only_if_that_of_each_group_is(rates, rate):
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": each} for each in rates]
    assert rate_of(torch.optim.SGD(groups)) == rate
