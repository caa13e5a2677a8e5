"""What a run cannot have is not listed as something that its log leaves open."""

from __future__ import annotations

import pytest

from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Fact
from ppo_doctor.not_ruled_out import foreign
from ppo_doctor.packfiles import build
from ppo_doctor.rulepack import load_pack

PACK = load_pack()
COPIED, COPIES, CRITIC = "duplicate-generations", "duplicated-workers", "critic-not-learning"


def of(value):
    return Fact(name="completions", value=value, how="observed")


@pytest.mark.parametrize(
    ("algorithm", "completions", "beside"),
    [
        ("ppo", of(0.0), {COPIED}),
        ("ppo", of(1.0), {COPIES}),
        ("grpo", of(1.0), {COPIES, CRITIC}),
        ("ppo", None, set()),
        ("", None, set()),
    ],
)
def test_causes_of_other_runs(algorithm, completions, beside):
    found = set(foreign(PACK.causes, algorithm, completions))
    assert found & {COPIED, COPIES, CRITIC} == beside


def test_most_causes_are_of_every_run():
    assert len(set(foreign(PACK.causes, "ppo", of(0.0)))) < len(PACK.causes) / 3


def test_a_kind_of_samples_that_there_is_not_is_refused():
    cause = dict.fromkeys(("id", "title", "family", "says"), "")
    cause |= {"severity": "high", "prior": "rare", "benign": False, "link": "ratio", "complaints": [], "remedy": []}
    with pytest.raises(DoctorError, match="samples"):
        build({"causes/c.toml": cause | {"samples": "pixels"}})
