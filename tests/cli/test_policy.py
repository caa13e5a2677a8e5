"""The policy: what it may say, and that a typing error in it never passes for a wish."""

from __future__ import annotations

from datetime import date

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.policy import Policy, applied, find_policy, project_aliases, read_policy
from ppo_doctor.model.errors import DoctorError, ExitCode

FULL = """
fail-on = "medium"
require = ["movement", "signal"]
select = ["learning-rate-zero"]
ignore = ["ADV001"]
budgets = ["approx_kl.p95 < 0.05", "explained_variance.last > 0.3"]
baseline = "main.json"

[[allow]]
cause = "lr-zero"
reason = "frozen on purpose"
expires = 2030-01-31

[thresholds.target-kl-below-any-step]
target = 0.001
"""


def written(folder, text, name="ppo-doctor.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder, text):
    with pytest.raises(DoctorError) as caught:
        applied(read_policy(written(folder, text)), load_pack())
    assert caught.value.code == ExitCode.USAGE
    assert "ppo-doctor.toml" in caught.value.message
    return caught.value


def test_everything_is_read(tmp_path):
    policy = read_policy(written(tmp_path, FULL))
    assert (policy.fail_on, policy.require) == ("medium", ("movement", "signal"))
    assert (policy.select, policy.ignore) == (("learning-rate-zero",), ("ADV001",))
    assert [budget.text for budget in policy.budgets] == ["approx_kl.p95 < 0.05", "explained_variance.last > 0.3"]
    assert policy.baseline == tmp_path / "main.json"
    assert policy.allow[0].expires == date(2030, 1, 31)
    assert policy.thresholds == {"target-kl-below-any-step": {"target": 0.001}}


def test_pyproject_says_the_same(tmp_path):
    section = "[tool.ppo-doctor]\n" + FULL.replace("[[allow]]", "[[tool.ppo-doctor.allow]]").replace(
        "[thresholds.", "[tool.ppo-doctor.thresholds."
    )
    ours = read_policy(written(tmp_path, section, "pyproject.toml"))
    plain = read_policy(written(tmp_path, FULL))
    assert (ours.allow, ours.budgets, ours.thresholds) == (plain.allow, plain.budgets, plain.thresholds)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ('fail_on = "high"', "fail-on"),
        ('budget = ["loss.last < 1"]', "budgets"),
        ('fail-on = "hihg"', "high"),
        ('require = ["movment"]', "movement"),
        ('select = ["learning-rate-zer"]', "learning-rate-zero"),
        ('ignore = ["advantages-al-zero"]', "advantages-all-zero"),
        ('budgets = ["aprox_kl.p95 < 1"]', "approx_kl"),
        ('budgets = ["approx_kl.men < 1"]', "mean"),
        ('[[allow]]\ncause = "lr-zer"\nreason = "x"\nexpires = 2030-01-01', "lr-zero"),
        ('[[allow]]\ncause = "lr-zero"\nreson = "x"\nexpires = 2030-01-01', "reason"),
        ("[thresholds.target-kl-below-any-stp]\ntarget = 1", "target-kl-below-any-step"),
        ("[thresholds.target-kl-below-any-step]\ntaget = 1", "target"),
    ],
)
def test_a_near_miss_is_named(tmp_path, text, near):
    assert near in complaint(tmp_path, text).hint


@pytest.mark.parametrize(
    "text",
    [
        "fail-on = 3",
        'require = "movement"',
        "require = [1]",
        'allow = ["lr-zero"]',
        '[[allow]]\ncause = "lr-zero"\nreason = "x"',
        '[[allow]]\ncause = "lr-zero"\nreason = " "\nexpires = 2030-01-01',
        '[[allow]]\ncause = "lr-zero"\nreason = "x"\nexpires = "soon"',
        'budgets = ["approx_kl.p95 == 1"]',
        'budgets = ["approx_kl.p95 < 1.2.3"]',
        'budgets = ["approx_kl < 1"]',
        "thresholds = 3",
        '[thresholds.target-kl-below-any-step]\ntarget = "low"',
        "[thresholds.target-kl-below-any-step]\ntarget = true",
        "not toml",
    ],
)
def test_what_means_nothing_is_refused(tmp_path, text):
    complaint(tmp_path, text)


def test_the_nearest_policy_counts(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_policy(inner) == Policy()
    written(tmp_path, '[tool.ppo-doctor]\nfail-on = "low"', "pyproject.toml")
    assert find_policy(inner).fail_on == "low"
    written(tmp_path, 'fail-on = "critical"')
    assert find_policy(inner).fail_on == "critical"
    written(tmp_path / "a", "[project]\nname = 'x'", "pyproject.toml")
    assert find_policy(inner).fail_on == "critical"


def test_another_repository_does_not_count(tmp_path):
    written(tmp_path, 'fail-on = "low"')
    inner = tmp_path / "repo"
    (inner / ".git").mkdir(parents=True)
    assert find_policy(inner) == Policy()


def test_a_policy_that_is_named_has_to_be_there(tmp_path):
    with pytest.raises(DoctorError, match="no such policy"):
        read_policy(tmp_path / "none.toml")
    with pytest.raises(DoctorError, match=r"no \[tool.ppo-doctor\]"):
        read_policy(written(tmp_path, "[project]\nname = 'x'", "pyproject.toml"))


def test_a_threshold_replaces_the_number_and_its_source(tmp_path):
    policy = read_policy(written(tmp_path, "[thresholds.target-kl-below-any-step]\ntarget = 0.001"))
    rule = applied(policy, load_pack()).rule("target-kl-below-any-step")
    assert [clause.bound for clause in rule.when] == [0.001]
    assert rule.when[0].bound_source.endswith("ppo-doctor.toml")
    assert [param.value for param in rule.params] == [0.001]


def test_a_share_is_a_threshold_too(tmp_path):
    policy = read_policy(written(tmp_path, "[thresholds.LOS001]\nshare = 0.5"))
    (clause,) = applied(policy, load_pack()).rule("LOS001").when
    assert (clause.share, clause.bound) == (0.5, 0.0)


def test_other_rules_stay_as_they_are(tmp_path):
    policy = read_policy(written(tmp_path, "[thresholds.LOS001]\nshare = 0.5"))
    changed = [a.name for a, b in zip(load_pack().rules, applied(policy, load_pack()).rules, strict=True) if a != b]
    assert changed == ["policy-loss-exactly-zero"]


@pytest.mark.parametrize(
    "text",
    [
        '[tool.ppo-doctor.alias]\nG = "entropy"\n',
        '[tool."ppo-doctor".alias]\nG = "entropy"\n',
        '[tool]\nppo-doctor.alias.G = "entropy"\n',
        'tool = { ppo-doctor = { alias = { G = "entropy" } } }\n',
        'tool . ppo-doctor . alias = { G = "entropy" }\n',
    ],
)
def test_a_table_of_ours_is_found_however_it_is_written(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert project_aliases(tmp_path) == {"G": "entropy"}


def test_a_project_without_a_table_of_ours_names_nothing(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nppo-doctor = "x:y"\n[tool.ruff]\n', encoding="utf-8")
    assert project_aliases(tmp_path) == {}
