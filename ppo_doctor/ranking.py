"""Findings × causes → complaints explained by ranked causes, each with an account that a person can add up.

Terms are defined in docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.accounts import candidates, later_than
from ppo_doctor.complaints import Explanation, enough, excusing, one_by_one, open_complaints, spoken_for, told_by
from ppo_doctor.consequences import folded
from ppo_doctor.metrics import METRICS, loggable
from ppo_doctor.model import Measurement, RankedCause, Severity
from ppo_doctor.probabilities import HEALTHY, UNKNOWN, probabilities

if TYPE_CHECKING:
    from ppo_doctor.accounts import Account, Line
    from ppo_doctor.model import Confidence, Finding, Rule, Verdict
    from ppo_doctor.rulepack import Pack

#: Scores this close cannot be told apart.
LEVEL_DB = 3
#: A leader this far ahead of health and of every rival that is not level is likely.
LIKELY_DB = 13
#: `unknown` gains with each opener; a proof, which no healthy run shows, must not be waved off as health.
UNKNOWN_DB, UNKNOWN_PER_OPENER_DB, UNKNOWN_PER_PROOF_DB = -15, 6, 20
#: Rivals further behind than this are not worth a line.
FARTHEST_RIVAL_DB = 40
#: Causes printed per complaint.
LONGEST_LIST = 5


#: Step → what the rules say of the run from that step on; None where too little is left, or nothing is cut off.
Since: TypeAlias = "Callable[[int], Sequence[Finding] | None]"


def explain(pack: Pack, findings: Sequence[Finding], since: Since | None = None) -> tuple[Explanation, ...]:
    """Return the complaints that opened, in the order of severity and onset, each with its ranked causes.

    A complaint of something that stopped is judged by what was logged since then: that the policy moved before says
    nothing about why it moves no more.
    """
    opened = [
        (complaint, openers, *_witnesses(complaint, openers, pack, findings, since))
        for complaint, openers in open_complaints(pack, findings)
    ]
    first = [
        [replace(e, since_step=step, findings=by_rule) for e in _settled(complaint, openers, pack, by_rule)]
        for complaint, openers, step, by_rule in opened
    ]
    explained: list[Explanation] = []
    for settled, (complaint, openers, step, by_rule) in zip(first, opened, strict=True):
        others = [entry for other in first if other is not settled for entry in other]
        again = _beside(settled, others, complaint, openers, pack, by_rule)
        explained += [replace(entry, since_step=step, findings=by_rule) for entry in again]
    return folded([*explained, *_beside_another_complaints_cause(explained, pack)], pack)


def _beside(
    settled: list[Explanation],
    others: Sequence[Explanation],
    complaint: str,
    openers: tuple[Finding, ...],
    pack: Pack,
    findings: Mapping[str, Finding],
) -> list[Explanation]:
    """Return the explanations of a complaint beside the faults that are known by other complaints.

    What is known to be there makes a finding fire, or keeps it from firing, whatever else is wrong: such findings speak
    against no cause of this complaint. Nor do those for any that a better supported fault makes fire, where openers are
    left without them.
    """
    leaders = {entry.leader for entry in settled}
    known = [e for e in others if e.firm and e.leader not in leaders]
    if not known:
        return settled
    best = max((e.causes[0].score_db for e in settled if e.causes), default=0)
    told = told_by([e.leader for e in known if e.causes[0].score_db > best], pack)
    rest = tuple(opener for opener in openers if opener.rule not in told)
    left = {name: finding for name, finding in findings.items() if finding.status != "fired" or name not in told}
    excused = excusing([e.leader for e in known], findings, pack)
    if told and rest and len(rest) < len(openers):
        part = _settled(complaint, rest if enough(rest, pack) else openers, pack, left, excused, behind=rest)
        if part[0].leader == settled[0].leader:  # fewer symptoms make it no surer
            return settled
        if any(entry.firm for entry in part) or (settled[0].names_a_fault and part[0].names_a_fault):
            return [replace(entry, openers=openers) for entry in part] if len(part) == 1 else part
    # What stands firm needs no excuse, and an excuse alone makes no other cause lead unless that one is sure.
    again = settled if settled[0].firm or not excused else _settled(complaint, openers, pack, findings, excused)
    return again if again[0].leader == settled[0].leader or again[0].firm else settled


def _beside_another_complaints_cause(explained: Sequence[Explanation], pack: Pack) -> list[Explanation]:
    """Return what is left of complaints whose leader stands firm by one of several, without what it explains.

    What its part of the openers hides would have opened the complaint by itself, and needs not to be surer than that.
    """
    seen: dict[str, set[str]] = {}
    for entry in explained:
        seen.setdefault(entry.leader, set()).add(entry.complaint)
    sure = {entry.leader for entry in explained if entry.firm}
    shared = [e for e in explained if e.names_a_fault and e.leader in sure and len(seen[e.leader]) > 1]
    left = [(entry, _second(entry, entry.openers, pack, entry.findings)) for entry in shared]
    known = {(entry.complaint, entry.leader) for entry in explained}
    return [
        replace(second, since_step=entry.since_step, findings=entry.findings)
        for entry, second in left
        if second and second.names_a_fault and (second.complaint, second.leader) not in known
    ]


def _settled(
    complaint: str,
    openers: tuple[Finding, ...],
    pack: Pack,
    findings: Mapping[str, Finding],
    excused: frozenset[str] = frozenset(),
    behind: Sequence[Finding] = (),
) -> list[Explanation]:
    """Return the explanation of a complaint, and a second one where openers are left that its leaders do not explain.

    Two faults may open one complaint. Nothing that the first explains speaks for or against the second, which has to be
    sure: what is left over is often only a symptom that nobody has yet weighed for the first.
    """
    accounts = _candidates(complaint, openers, pack, findings, excused)
    if behind:
        speaking = set[str]().union(*spoken_for(behind, pack))
        accounts = [entry for entry in accounts if entry.cause.id in speaking]
    first = _settle(complaint, openers, accounts, pack, findings)
    if first.leader == UNKNOWN and accounts:
        first = _by_its_part(first, accounts[0], pack, findings)
    second = _second(first, openers, pack, findings) if first.firm else None
    return [first, second] if second and second.firm else [first]


def _second(
    first: Explanation, openers: Sequence[Finding], pack: Pack, findings: Mapping[str, Finding]
) -> Explanation | None:
    """Return the explanation of openers that the first one's leaders say nothing of, None where they open nothing.

    What began clearly after the first fault may be its consequence, and a cause that speaks for what the first explains
    as well is a rival, not a second fault.
    """
    leaders = [cause.id for cause in first.causes if cause.leader]
    told = told_by(leaders, pack)
    by_first = [opener for opener in openers if opener.rule in told]
    rest = tuple(o for o in openers if o.rule not in told and not later_than(by_first, o))
    if not rest or not enough(rest, pack):
        return None
    untold = {name: finding for name, finding in findings.items() if finding.status != "fired" or name not in told}
    rivals = set.intersection(*spoken_for(by_first, pack)) if by_first else set[str]()
    speaking = set[str]().union(*spoken_for(rest, pack)) - rivals - {*leaders}
    others = [a for a in candidates(pack, first.complaint, untold, rest) if a.cause.id in speaking]
    return _settle(first.complaint, rest, others, pack, untold)


def _by_its_part(unknown: Explanation, best: Account, pack: Pack, findings: Mapping[str, Finding]) -> Explanation:
    """Return the best account's explanation of the openers that speak for it, where these open the complaint.

    A symptom that opens nothing alone does not turn what is known into something unknown.
    """
    told = told_by([best.cause.id], pack)
    part = tuple(opener for opener in unknown.openers if opener.rule in told)
    if len(part) == len(unknown.openers) or not enough(part, pack):
        return unknown
    settled = _settle(unknown.complaint, part, _candidates(unknown.complaint, part, pack, findings), pack, findings)
    return settled if settled.names_a_fault else unknown


def _candidates(
    complaint: str,
    openers: Sequence[Finding],
    pack: Pack,
    findings: Mapping[str, Finding],
    excused: frozenset[str] = frozenset(),
) -> list[Account]:
    """Return the accounts that compete for a complaint; where it may be several faults, those behind its openers."""
    accounts = candidates(pack, complaint, findings, openers, excused)
    if complaint not in one_by_one(pack):
        return accounts
    speaking = spoken_for(openers, pack)
    return [account for account in accounts if any(account.cause.id in causes for causes in speaking)]


def _witnesses(
    complaint: str, openers: Sequence[Finding], pack: Pack, findings: Sequence[Finding], since: Since | None
) -> tuple[int | None, dict[str, Finding]]:
    """Return the step from which a complaint is judged, and the findings that it is judged by."""
    whole = {finding.rule: finding for finding in findings}
    stops = next((c.judged_since_onset for c in pack.complaints if c.id == complaint), False)
    rules = pack.by_name
    onsets = [opener.onset_step for opener in openers if rules[opener.rule].opens_alone]
    known = [onset for onset in onsets if onset is not None]
    later = since(min(known)) if since and stops and known and len(known) == len(onsets) else None
    if later is None:
        return None, whole
    step = min(known)
    return step, {part.rule: _witness(part, whole[part.rule], rules[part.rule], step) for part in later}


def _witness(part: Finding, whole: Finding, rule: Rule, step: int) -> Finding:
    """Choose between what a rule says of the later part and of the whole run.

    The whole run speaks where the later part is too short for the rule and the whole tells of that time, or of the
    configuration, which has no time.
    """
    timeless = all(need.startswith("config.") for need in rule.needs)
    of_that_time = whole.status == "fired" and whole.onset_step is not None and whole.onset_step >= step
    return whole if part.status == "skipped" and (timeless or of_that_time) else part


def _settle(
    complaint: str,
    openers: tuple[Finding, ...],
    accounts: list[Account],
    pack: Pack,
    findings: Mapping[str, Finding],
) -> Explanation:
    unknown = unknown_score(openers, pack)
    best = accounts[0].score if accounts else -1000
    if unknown > max(best, 0):
        return Explanation(complaint=complaint, openers=openers, leader="unknown", causes=(), verdict="warning")
    if best + LEVEL_DB < 0 or (best < 0 and accounts[0].cause.benign):
        return Explanation(complaint=complaint, openers=openers, leader="healthy", causes=(), verdict="healthy")
    level = _level(accounts)
    sure = _margin(level, accounts, unknown) >= LIKELY_DB and not _shares_its_proof(level, accounts, pack)
    settled = level[0].cause.benign and sure
    near = level[0].score - FARTHEST_RIVAL_DB
    rivals = [a for a in accounts if a not in level and a.score > max(0, near) and not settled]
    shown = [*level, *rivals[: max(0, LONGEST_LIST - len(level))]]
    # Of what is harmless by construction there is no probability: that nothing is wrong besides is not weighed here.
    scores = {HEALTHY: 0, UNKNOWN: unknown} | {a.cause.id: a.score for a in accounts}
    chances = {} if level[0].cause.benign or pack.temperature is None else probabilities(scores, pack.temperature)
    ranked = tuple(
        replace(_ranked(a, complaint, level, sure, accounts, pack, findings), probability=chances.get(a.cause.id))
        for a in shown
    )
    return Explanation(
        complaint=complaint,
        openers=openers,
        leader=accounts[0].cause.id if best >= 0 else "healthy",
        causes=ranked,
        verdict=_verdict(level, ranked, healthy_level=best <= LEVEL_DB),
        scores=scores,
    )


def unknown_score(openers: Sequence[Finding], pack: Pack) -> int:
    """Return the score of a fault that no cause names: more with each link that speaks, much more with a proof."""
    gains: dict[str, int] = {}
    for opener in openers:  # as for causes: findings on one link repeat each other
        rule = pack.by_name[opener.rule]
        proof = rule.proves and rule.severity is not Severity.INFO
        gain = UNKNOWN_PER_PROOF_DB if proof else UNKNOWN_PER_OPENER_DB
        gains[opener.link] = max(gain, gains.get(opener.link, 0))
    return UNKNOWN_DB + sum(gains.values())


def _level(accounts: list[Account]) -> list[Account]:
    """Return the leader and what cannot be told from it: scores within 3 dB, and declared twins.

    Twins weigh alike save for what tensors prove; where that puts one clearly behind, they have been told apart.
    """
    leader = accounts[0]
    near = [a for a in accounts if leader.score - a.score <= LEVEL_DB]
    twins = {twin for a in near for twin in a.cause.twins}
    return [a for a in accounts if a in near or (a.cause.id in twins and leader.score - a.score < LIKELY_DB)]


def _margin(level: list[Account], accounts: list[Account], unknown: int) -> int:
    """Return by how much the leader is ahead of health, of the unknown, and of every rival that is not level."""
    harmless = all(a.cause.benign for a in level)  # which of several harmless explanations holds needs no settling
    rivals = [0, unknown, *(a.score for a in accounts if a not in level and not (harmless and a.cause.benign))]
    return level[0].score - max(rivals)


def _shares_its_proof(level: list[Account], accounts: list[Account], pack: Pack) -> bool:
    """Tell whether all that proves a harmless leader would prove a fault as well that is likelier than health."""
    if not level[0].cause.benign:
        return False
    proofs = {line.finding.rule for line in level[0].lines if line.counted and _proves(line, pack)}
    faults = [a.cause for a in accounts if a not in level and a.score > 0 and not a.cause.benign]
    return bool(proofs) and any(proofs <= {w.finding for w in fault.weights if w.fired > 0} for fault in faults)


def _confidence(entry: Account, sure: bool, pack: Pack) -> Confidence:
    if not sure or entry.cause.never_proven:
        return "suspected"
    return "established" if _proven(entry, pack) else "likely"


def _proven(entry: Account, pack: Pack) -> bool:
    """Tell whether an identity, a counter or a tensor speaks for a cause."""
    return any(_proves(line, pack) for line in entry.lines if line.counted)


def _proves(line: Line, pack: Pack) -> bool:
    return line.db > 0 and line.finding.status == "fired" and bool(pack.by_name[line.finding.rule].proves)


def _verdict(level: list[Account], ranked: Sequence[RankedCause], *, healthy_level: bool) -> Verdict:
    benign = [a for a in level if a.cause.benign]
    leading = [cause for cause in ranked if cause.leader]
    if len(benign) == len(level):
        # A benign explanation that a fault may still overturn settles nothing.
        return "inconclusive" if leading[0].confidence == "suspected" else "healthy"
    if benign or healthy_level:
        return "inconclusive"
    firm = [cause for cause in leading if cause.confidence != "suspected"]
    if not firm:
        return "warning"
    return "unhealthy" if any(cause.severity.at_least(Severity.HIGH) for cause in firm) else "warning"


def _ranked(
    entry: Account,
    complaint: str,
    level: list[Account],
    sure: bool,
    accounts: list[Account],
    pack: Pack,
    findings: Mapping[str, Finding],
) -> RankedCause:
    cause, leads = entry.cause, entry in level
    onsets = [line.finding.onset_step for line in entry.lines if line.counted and line.db > 0]
    return RankedCause(
        id=cause.id,
        rank=0,
        title=cause.title,
        family=cause.family,
        severity=cause.severity,
        benign=cause.benign,
        confidence=_confidence(entry, sure and leads, pack),
        score_db=entry.score,
        prior_db=cause.prior,
        complaint=complaint,
        says=cause.says,
        level_with=tuple(a.cause.id for a in level if a is not entry) if leads else (),
        onset_step=min((step for step in onsets if step is not None), default=None),
        ledger=entry.ledger,
        remedies=cause.remedies,
        would_change_my_mind=_open_questions(level if leads else [entry], accounts, pack, findings),
        leader=leads,
    )


def companion(entry: Account, pack: Pack, findings: Mapping[str, Finding]) -> RankedCause:
    """Return a cause that is probably there besides the leaders, under the first complaint that it could explain."""
    ranked = _ranked(entry, entry.cause.complaints[0], [], False, [entry], pack, findings)
    chance = probabilities({HEALTHY: 0, entry.cause.id: entry.score}, 1.0)[entry.cause.id]
    return replace(ranked, companion=True, prior_db=entry.score - entry.gained, probability=chance)


def _open_questions(
    level: Sequence[Account], accounts: Sequence[Account], pack: Pack, findings: Mapping[str, Finding]
) -> tuple[Measurement, ...]:
    """Return what to log: what the level causes ask for, then skipped findings by the weight that they would carry."""
    asked = [measure for a in level for measure in a.cause.measure] if len(level) > 1 else list(level[0].cause.measure)
    heaviest: dict[str, int] = {}
    for rival in accounts[:LONGEST_LIST]:
        for weight in rival.cause.weights:
            finding = findings.get(weight.finding)
            if (
                finding is not None
                and finding.status == "skipped"
                and finding.missing
                and all(map(loggable, finding.missing))
            ):
                size = max(abs(weight.fired), abs(weight.clear))
                heaviest[weight.finding] = max(heaviest.get(weight.finding, 0), size)
    skipped = sorted(heaviest, key=lambda name: (-heaviest[name], name))
    wanted: list[tuple[str, Measurement | str]] = [(measure.log, measure) for measure in asked]
    wanted += [(_to_log(findings[n].missing), n) for n in skipped]
    unique = dict(reversed(wanted))
    return tuple(_measurement(log, what, pack) for log, what in list(reversed(unique.items()))[:3])


def _measurement(log: str, what: Measurement | str, pack: Pack) -> Measurement:
    """Return a measurement as a cause asks for it, or the one that would decide a finding of that name."""
    if isinstance(what, Measurement):
        return what
    return Measurement(log=log, because=f"it would decide {what}: {pack.by_name[what].title}")


@lru_cache(maxsize=1024)
def _to_log(missing: tuple[str, ...]) -> str:
    """Return what a skipped finding lacks, in words: metrics to log, settings to tell."""
    metrics = [name for name in missing if name in METRICS]
    settings = [f"--set {name}=…" for name in missing if name not in METRICS]
    return ", and tell ".join(part for part in (", ".join(metrics), " ".join(settings)) if part)
