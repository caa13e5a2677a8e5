"""What a caller asks for: what is refused before anything is read."""

from __future__ import annotations

import math

import pytest

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_return_to_reach_is_a_finite_number(reward):
    with pytest.raises(DoctorError) as refused:
        Request(target_return=reward)
    assert refused.value.code == ExitCode.USAGE
    assert Request(target_return=475.0).target_return == 475.0
