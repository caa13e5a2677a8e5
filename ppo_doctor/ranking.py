"""Findings × causes → complaints explained by ranked causes, each with an account that a person can add up.

Terms are defined in docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.accounts import candidates, clearly_before
from ppo_doctor.metrics import METRICS, loggable
from ppo_doctor.model import CONFIDENCES, Measurement, RankedCause, Severity
from ppo_doctor.model.frozen import frozen
from ppo_doctor.probabilities import HEALTHY, UNKNOWN, probabilities

if TYPE_CHECKING:
    from ppo_doctor.accounts import Account
    from ppo_doctor.model import Confidence, Finding, Rule, Verdict
    from ppo_doctor.rulepack import Pack

#: Scores this close cannot be told apart.
LEVEL_DB = 3
#: A leader this far ahead of health and of every rival that is not level is likely.
LIKELY_DB = 13
#: An earlier leader explains a later complaint when each of its openers weighs at least this for it.
FOLD_DB = 5
#: `unknown` gains with each opener; a proof, which no healthy run shows, must not be waved off as health.
UNKNOWN_DB, UNKNOWN_PER_OPENER_DB, UNKNOWN_PER_PROOF_DB = -15, 6, 20
#: Rivals further behind than this are not worth a line.
FARTHEST_RIVAL_DB = 40
#: Causes printed per complaint.
LONGEST_LIST = 5


@frozen
class Explanation:
    """How one complaint was settled: its leader (a cause id, "healthy" or "unknown") and what to print."""

    complaint: str
    openers: tuple[Finding, ...]
    leader: str
    causes: tuple[RankedCause, ...]
    verdict: Verdict
    folded_into: str | None = None
    #: first step of the records that it was judged by; None for the whole run
    since_step: int | None = None
    findings: Mapping[str, Finding] = field(default_factory=dict)


#: Step → what the rules say of the run from that step on; None where too little is left, or nothing is cut off.
Since: TypeAlias = "Callable[[int], Sequence[Finding] | None]"


def explain(pack: Pack, findings: Sequence[Finding], since: Since | None = None) -> tuple[Explanation, ...]:
    """Return the complaints that opened, in the order of severity and onset, each with its ranked causes.

    A complaint of something that stopped is judged by what was logged since then: that the policy moved before says
    nothing about why it moves no more.
    """
    explained: list[Explanation] = []
    for complaint, openers in open_complaints(pack, findings):
        step, by_rule = _witnesses(complaint, openers, pack, findings, since)
        accounts = _candidates(complaint, openers, pack, by_rule)
        settled = _settle(complaint, openers, accounts, pack, by_rule)
        explained.append(replace(settled, since_step=step, findings=by_rule))
    return _folded(explained, pack)


def _candidates(
    complaint: str, openers: Sequence[Finding], pack: Pack, findings: Mapping[str, Finding]
) -> list[Account]:
    """Return the accounts that compete for a complaint; where it may be several faults, those behind its openers."""
    accounts = candidates(pack, complaint, findings)
    if complaint not in _one_by_one(pack):
        return accounts
    speaking = _spoken_for(openers, pack)
    return [account for account in accounts if any(account.cause.id in causes for causes in speaking)]


def _one_by_one(pack: Pack) -> set[str]:
    return {complaint.id for complaint in pack.complaints if complaint.one_by_one}


def _spoken_for(openers: Iterable[Finding], pack: Pack) -> list[set[str]]:
    """Return, for each opener, the causes that it speaks for."""
    return [
        {cause.id for cause in pack.causes if any(w.finding == opener.rule and w.fired > 0 for w in cause.weights)}
        for opener in openers
    ]


def _witnesses(
    complaint: str, openers: Sequence[Finding], pack: Pack, findings: Sequence[Finding], since: Since | None
) -> tuple[int | None, dict[str, Finding]]:
    """Return the step from which a complaint is judged, and the findings that it is judged by."""
    whole = {finding.rule: finding for finding in findings}
    stops = next((c.judged_since_onset for c in pack.complaints if c.id == complaint), False)
    rules = {rule.name: rule for rule in pack.rules}
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


def open_complaints(pack: Pack, findings: Iterable[Finding]) -> list[tuple[str, tuple[Finding, ...]]]:
    """Return the open complaints with their fired openers, worst first, then by onset.

    A proof opens alone; a soft symptom needs another on a different link.
    """
    rules = {rule.name: rule for rule in pack.rules}
    fired: dict[str, list[Finding]] = {}
    for finding in findings:
        opens = rules[finding.rule].opens
        if finding.status == "fired" and opens:
            fired.setdefault(opens, []).append(finding)
    apart = _one_by_one(pack)
    opened = [
        (complaint, group)
        for complaint, openers in fired.items()
        for group in (_groups(openers, pack) if complaint in apart else [tuple(openers)])
        if any(rules[f.rule].opens_alone for f in group) or len({f.link for f in group}) > 1
    ]
    return sorted(opened, key=lambda entry: (_worst(entry[1]), _onset(entry[1]), entry[0]))


def _groups(openers: Sequence[Finding], pack: Pack) -> list[tuple[Finding, ...]]:
    """Return openers in groups that share a cause which they speak for."""
    groups: list[tuple[set[str], list[Finding]]] = []
    for opener, causes in zip(openers, _spoken_for(openers, pack), strict=True):
        joined = [group for group in groups if group[0] & causes]
        merged = (causes.union(*(g[0] for g in joined)), [*(f for g in joined for f in g[1]), opener])
        groups = [group for group in groups if group not in joined] + [merged]
    return [tuple(found) for _, found in groups]


def _worst(findings: Iterable[Finding]) -> int:
    return min(finding.severity.rank for finding in findings)


def _onset(findings: Iterable[Finding]) -> int:
    return min((f.onset_step for f in findings if f.onset_step is not None), default=0)


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
    sure = _margin(level, accounts, unknown) >= LIKELY_DB
    settled = level[0].cause.benign and sure
    near = level[0].score - FARTHEST_RIVAL_DB
    rivals = [a for a in accounts if a not in level and a.score > max(0, near) and not settled]
    shown = [*level, *rivals[: max(0, LONGEST_LIST - len(level))]]
    # Of what is harmless by construction there is no probability: that nothing is wrong besides is not weighed here.
    chances = {} if level[0].cause.benign else _chances(accounts, unknown, pack)
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
    )


def _chances(accounts: Sequence[Account], unknown: int, pack: Pack) -> dict[str, float]:
    """Return each candidate's probability; nothing where no fitted temperature holds, as beside other packs."""
    if pack.temperature is None:
        return {}
    scores = {HEALTHY: 0, UNKNOWN: unknown} | {a.cause.id: a.score for a in accounts}
    return probabilities(scores, pack.temperature)


def unknown_score(openers: Sequence[Finding], pack: Pack) -> int:
    """Return the score of a fault that no cause names: more with each link that speaks, much more with a proof."""
    proofs = {rule.name for rule in pack.rules if rule.proves and rule.severity is not Severity.INFO}
    gains: dict[str, int] = {}
    for opener in openers:  # as for causes: findings on one link repeat each other
        gain = UNKNOWN_PER_PROOF_DB if opener.rule in proofs else UNKNOWN_PER_OPENER_DB
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


def _confidence(entry: Account, sure: bool, pack: Pack, findings: Mapping[str, Finding]) -> Confidence:
    if not sure or entry.cause.never_proven:
        return "suspected"
    return "established" if _proven(entry, pack, findings) else "likely"


def _proven(entry: Account, pack: Pack, findings: Mapping[str, Finding]) -> bool:
    """Tell whether an identity, a counter or a tensor speaks for a cause."""
    proofs = {rule.name for rule in pack.rules if rule.proves}
    return any(
        line.counted and line.db > 0 and line.finding in proofs and findings[line.finding].status == "fired"
        for line in entry.ledger
    )


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
    onsets = [findings[e.finding].onset_step for e in entry.ledger if e.counted and e.db > 0]
    return RankedCause(
        id=cause.id,
        rank=0,
        title=cause.title,
        family=cause.family,
        severity=cause.severity,
        benign=cause.benign,
        confidence=_confidence(entry, sure and leads, pack, findings),
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
    titles = {rule.name: rule.title for rule in pack.rules}
    skipped = sorted(heaviest, key=lambda name: (-heaviest[name], name))
    wanted = [Measurement(log=_to_log(findings[n]), because=f"it would decide {n}: {titles[n]}") for n in skipped]
    unique = {measure.log: measure for measure in reversed([*asked, *wanted])}
    return tuple(reversed(unique.values()))[:3]


def _to_log(finding: Finding) -> str:
    """Return what a skipped finding lacks, in words: metrics to log, settings to tell."""
    metrics = [name for name in finding.missing if name in METRICS]
    settings = [f"--set {name}=…" for name in finding.missing if name not in METRICS]
    return ", and tell ".join(part for part in (", ".join(metrics), " ".join(settings)) if part)


def _folded(explained: Sequence[Explanation], pack: Pack) -> tuple[Explanation, ...]:
    """Return the explanations with those folded that another one's leader already accounts for.

    Between two that account for each other the one with the higher score stands, the earlier one where they are equal.
    """
    kept: list[Explanation] = []
    for index, entry in enumerate(explained):
        into = next((e for e in kept if _accounts_for(e, entry, pack)), None) or next(
            (e for e in explained[index + 1 :] if _weighs(e, entry, pack) and not _stands(entry, e, pack)), None
        )
        kept.append(replace(entry, causes=(), verdict="healthy", folded_into=into.leader) if into else entry)
    return tuple(_since_its_first(entry, explained) for entry in kept)


def _since_its_first(entry: Explanation, explained: Sequence[Explanation]) -> Explanation:
    """Let a leading cause begin where the first complaint that it leads began, be that one folded or not."""
    leaders = [e.causes[0] for e in explained if e.causes and e.leader == entry.leader]
    first = min((cause.onset_step for cause in leaders if cause.onset_step is not None), default=None)
    if not entry.causes or entry.causes[0].onset_step is None or first is None:
        return entry
    return replace(entry, causes=(replace(entry.causes[0], onset_step=first), *entry.causes[1:]))


def _stands(entry: Explanation, later: Explanation, pack: Pack) -> bool:
    """Tell whether an explanation stands against a later one that accounts for it: the surer, then the stronger.

    Of two with one cause and equally sure the earlier stands: it knows the onset.
    """
    if not _weighs(entry, later, pack) or _doubt(entry) != _doubt(later):
        return _weighs(entry, later, pack) and _doubt(entry) < _doubt(later)
    return entry.leader == later.leader or _score(entry) >= _score(later)


def _doubt(explanation: Explanation) -> int:
    """Return how unsure an explanation's leader is: 0 when established."""
    return min((CONFIDENCES.index(cause.confidence) for cause in explanation.causes), default=len(CONFIDENCES))


def _score(explanation: Explanation) -> int:
    return explanation.causes[0].score_db if explanation.causes else 0


def _accounts_for(first: Explanation, other: Explanation, pack: Pack) -> bool:
    """Tell whether an earlier leader accounts for another complaint.

    It does when each opener weighs for it, or when numbers broke before: what is read after that is no measurement.
    """
    cause = pack.cause(first.leader)
    known = cause is not None and not cause.benign and not first.folded_into
    return known and (_weighs(first, other, pack) or _after_the_break(first, other.openers))


def _weighs(first: Explanation, other: Explanation, pack: Pack) -> bool:
    """Tell whether each opener of one complaint weighs for the leader of another, or is what that cause leads to.

    What began clearly before a cause's own complaint is nothing that it led to.
    """
    cause = pack.cause(first.leader)
    if cause is None or cause.benign:
        return False
    if first.leader == other.leader:
        return True
    weighed = {weight.finding for weight in cause.weights if weight.fired >= FOLD_DB}
    return all(o.rule in weighed or (o.rule in cause.leads_to and _follows(o, first)) for o in other.openers)


def _follows(finding: Finding, first: Explanation) -> bool:
    """Tell whether a finding may be what an explanation's cause led to: unless it was there clearly before."""
    return not all(clearly_before(finding, opener) for opener in first.openers)


def _after_the_break(explanation: Explanation, openers: Sequence[Finding]) -> bool:
    if explanation.complaint != "numbers-break" or explanation.verdict != "unhealthy":
        return False
    onsets = [opener.onset_step for opener in openers if opener.onset_step is not None]
    return bool(onsets) and min(onsets) >= _onset(explanation.openers)
