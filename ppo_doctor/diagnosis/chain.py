"""States of the links of the signal chain, from the answers of checks.

`rules/chain.toml` lists which checks make a link alive, weak, wrong or dead. Links after a dead one are dead too, until
one is shown alive or may be fed by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.model.diagnosis import ChainLink
from ppo_doctor.model.evidence import says
from ppo_doctor.model.rules import Link
from ppo_doctor.model.words import CHAIN, SIDE_LINKS

if TYPE_CHECKING:
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.words import LinkState

#: In `fed_by` of a link: something that no setting shows may always feed it.
ALWAYS = "always"
#: States in which a link is broken, in the order in which their checks take precedence.
BROKEN: tuple[LinkState, ...] = ("dead", "wrong", "weak")


def chain(
    links: Mapping[str, Link],
    findings: Sequence[Finding],
    *,
    feeds: Callable[[str], bool],
    broken: frozenset[str],
    steps: tuple[int, int] | None,
) -> tuple[ChainLink, ...]:
    """Return the links of the chain, and the side links whose state is known.

    `feeds` returns whether a quantity may feed a link. Evidence from a metric in `broken`, whose last number is not
    finite, does not show a link alive. `steps` are the first and the last of the run.
    """
    by_rule = {finding.rule: finding for finding in findings}
    yes = {finding.rule for finding in findings if finding.status == "fired"}
    names = (*CHAIN, *SIDE_LINKS)
    states = {name: _state(links.get(name) or Link(name=name), by_rule, yes, broken, steps) for name in names}
    for killer in [link for link in states.values() if link.state == "dead"]:
        for name in links[killer.link].kills:
            states[name] = states[name] if states[name].state == "dead" else _entailed(states[name], killer)
    dead: ChainLink | None = None
    for name in CHAIN:
        link = states[name]
        if link.state == "dead":
            states[name] = replace(link, entailed_by=link.entailed_by or (dead.link if dead else None))
            dead = dead or link
        elif link.state != "unknown" or any(map(feeds, links[name].fed_by if name in links else ())):
            dead = None
        elif dead is not None:
            states[name] = _entailed(link, dead)
    return tuple(link for name, link in states.items() if name in CHAIN or link.state != "unknown")


def _entailed(link: ChainLink, dead: ChainLink) -> ChainLink:
    witness = f"nothing is left for it where {dead.link} is dead: {dead.witness}"
    return replace(link, state="dead", witness=witness, steps=dead.steps, entailed_by=dead.link)


def _state(
    link: Link,
    findings: Mapping[str, Finding],
    yes: Set[str],
    broken: frozenset[str],
    steps: tuple[int, int] | None,
) -> ChainLink:
    """Return the state of a link by its own checks; `yes` are those that fired."""
    excused = not yes.isdisjoint(link.excused_by)
    for state in BROKEN:
        shown = [findings[name] for name in getattr(link, state) if name in yes]
        if shown and not (state == "dead" and excused):
            return _link(link.name, state, shown, steps)
    no = [name for name in link.alive_unless if name in findings and findings[name].status == "clear"]
    alive = [findings[name] for name in (*(name for name in link.alive if name in yes), *no)]
    finite = [finding for finding in alive if not any(evidence.raw in broken for evidence in finding.evidence)]
    return _link(link.name, "alive", finite, steps) if finite else ChainLink(link=link.name, state="unknown")


def _link(name: str, state: LinkState, shown: Sequence[Finding], steps: tuple[int, int] | None) -> ChainLink:
    """Return a link whose evidence is the first of `shown` with a place in a file."""
    first = next((finding for finding in shown if any(evidence.source for evidence in finding.evidence)), shown[0])
    # A condition that does not hold is cited for its numbers, without "not so".
    evidence = tuple(replace(entry, denied=False) for entry in first.evidence)
    witness = says(replace(first, evidence=evidence))
    return ChainLink(link=name, state=state, witness=witness, steps=_span(first, steps))


def _span(finding: Finding, steps: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the first and last step of a finding's evidence, else those of the run from its onset on."""
    spans = [evidence.steps for evidence in finding.evidence if evidence.steps]
    if spans:
        return min(first for first, _ in spans), max(last for _, last in spans)
    if steps is None or finding.onset_step is None:
        return steps
    return finding.onset_step, steps[1]


def links_killed_by(links: Iterable[ChainLink], broken: str) -> tuple[str, ...]:
    """Return the names of the links that are dead because `broken` is."""
    return tuple(link.link for link in links if link.entailed_by == broken)
