"""States of the links of the signal chain."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ppo_doctor import analyze
from ppo_doctor.checks.rulepack import check_references, load_pack
from ppo_doctor.diagnosis.chain import chain, links_killed_by
from ppo_doctor.model.rules import Link
from ppo_doctor.model.run import SourceRef
from ppo_doctor.model.words import CHAIN, LINKS
from tests.synthetic import EVIDENCE, a_finding, a_rule

LOG = SourceRef(path="run.jsonl", line=7)


LINKS_OF = {
    "rewards": Link(name="rewards", dead=("flat",), alive=("rises",), alive_unless=("flat",), excused_by=("best",)),
    "advantages": Link(name="advantages", fed_by=("config.critic",)),
    "loss": Link(name="loss", dead=("loss-zero",), weak=("loss-small",), alive_unless=("loss-zero",)),
    "gradient": Link(name="gradient", fed_by=("config.ent_coef",)),
    "policy": Link(name="policy", dead=("stands",), alive=("moves",)),
    "numerics": Link(name="numerics", dead=("nan",), kills=("policy", "critic")),
}


def drawn(yes=(), no=(), feeds=(), broken=(), onset=None):
    findings = [a_finding(a_rule(name), "fired", onset=onset) for name in yes]
    findings += [a_finding(a_rule(name), "clear") for name in no]
    found = [replace(f, evidence=(replace(EVIDENCE, source=LOG),)) for f in findings]
    links = chain(LINKS_OF, found, feeds=set(feeds).__contains__, broken=frozenset(broken), steps=(1, 40))
    return {link.link: link for link in links}


def states(*told, **more):
    return {name: link.state for name, link in drawn(*told, **more).items() if link.state != "unknown"}


def test_a_link_is_what_its_gravest_check_says():
    assert states(yes=("flat", "rises"))["rewards"] == "dead"
    assert states(yes=("rises",))["rewards"] == "alive"
    assert states(no=("flat",))["rewards"] == "alive"
    assert states(yes=("loss-small",), no=("loss-zero",))["loss"] == "weak"
    assert states() == {}


def test_a_dead_link_leaves_nothing_for_those_after_it():
    told = drawn(yes=("loss-zero",))
    assert [name for name in CHAIN if told[name].state == "dead"] == [*CHAIN[CHAIN.index("loss") :]]
    assert told["step"].entailed_by == "loss"
    assert told["loss"].entailed_by is None
    assert links_killed_by(told.values(), "loss") == ("gradient", "step", "weights", "policy", "ratio")


@pytest.mark.parametrize(
    ("more", "alive_again"),
    [({"feeds": ("config.ent_coef",)}, "gradient"), ({"yes": ("loss-zero", "moves")}, "policy")],
)
def test_what_something_else_feeds_or_what_is_seen_to_live_is_not_dead(more, alive_again):
    told = states(**({"yes": ("loss-zero",)} | more))
    assert told.get(alive_again) != "dead"
    assert told.get("ratio") != "dead"


def test_what_rightly_stands_still_is_not_dead():
    assert "rewards" not in states(yes=("flat", "best"))


def test_nothing_is_alive_that_ends_in_nan():
    assert states(yes=("moves",))["policy"] == "alive"
    assert states(yes=("moves", "nan"))["policy"] == "dead"
    assert drawn(yes=("nan",))["critic"].entailed_by == "numerics"
    assert "policy" not in states(yes=("moves",), broken=("m",))


def test_a_witness_has_its_place_and_its_steps():
    dead = drawn(yes=("stands",), onset=12)
    assert "run.jsonl:7" in dead["policy"].witness
    assert dead["policy"].steps == (12, 40)
    assert "run.jsonl:7" in dead["ratio"].witness
    assert drawn(no=("flat",))["rewards"].steps == (1, 40)


def test_the_built_in_chain_names_checks_that_exist_and_every_link():
    pack = load_pack()
    check_references(pack)
    assert set(pack.chain) == set(LINKS)


def test_a_log_that_is_nan_from_its_middle_on_is_alive_on_no_link_that_ends_so(tmp_path: Path):
    rows = [{"step": n, "policy_loss": -0.01 - n / 1e4, "approx_kl": 0.01, "entropy": 1 - n / 90} for n in range(30)]
    rows += [{"step": n} | dict.fromkeys(("policy_loss", "approx_kl", "entropy"), math.nan) for n in range(30, 60)]
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(json.dumps({"ppo_doctor": 1, **row}) for row in rows) + "\n", encoding="utf-8")
    found = {link.link: link.state for link in analyze(str(log)).chain}
    assert {found[name] for name in ("loss", "gradient", "step", "weights", "policy", "ratio", "numerics")} == {"dead"}
