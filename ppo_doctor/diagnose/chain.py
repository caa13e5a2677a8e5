"""The signal chain: which links are alive, weak, wrong or dead, each with the witness that says so.

What checks say of a link stands in `rules/chain.toml`. A dead link leaves nothing for those after it, until one is
shown alive or may be fed by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.evidence import says
from ppo_doctor.model import CHAIN, NOT_SO, SIDE_LINKS, ChainLink, Link

if TYPE_CHECKING:
    from ppo_doctor.model import Finding, LinkState

#: What feeds a link of which no setting tells.
ALWAYS = "always"
BROKEN: tuple[LinkState, ...] = ("dead", "wrong", "weak")


def chain(
    links: Mapping[str, Link],
    findings: Sequence[Finding],
    *,
    feeds: Callable[[str], bool],
    broken: frozenset[str],
    steps: tuple[int, int] | None,
) -> tuple[ChainLink, ...]:
    """Return the chain and the side links of which something is known.

    `feeds` tells whether a quantity may feed a link; what rests on a metric of `broken`, whose last number is NaN, is
    not alive.
    """
    by_rule = {finding.rule: finding for finding in findings}
    names = (*CHAIN, *SIDE_LINKS)
    told = {name: _own(links.get(name, Link(name=name)), by_rule, broken, steps) for name in names}
    for killer in [link for link in told.values() if link.state == "dead"]:
        for name in links[killer.link].kills:
            told[name] = told[name] if told[name].state == "dead" else _entailed(told[name], killer)
    _follow(told, links, feeds)
    return tuple(link for name, link in told.items() if name in CHAIN or link.state != "unknown")


def _follow(told: dict[str, ChainLink], links: Mapping[str, Link], feeds: Callable[[str], bool]) -> None:
    """Carry death along the chain, up to a link that is shown to live or may be fed by something else."""
    dead: ChainLink | None = None
    for name in CHAIN:
        link = told[name]
        if link.state == "dead":
            told[name] = replace(link, entailed_by=link.entailed_by or (dead.link if dead else None))
            dead = dead or link
        elif link.state != "unknown" or any(map(feeds, links[name].fed_by if name in links else ())):
            dead = None
        elif dead is not None:
            told[name] = _entailed(link, dead)


def _entailed(link: ChainLink, dead: ChainLink) -> ChainLink:
    witness = f"nothing is left for it where {dead.link} is dead: {dead.witness}"
    return replace(link, state="dead", witness=witness, steps=dead.steps, entailed_by=dead.link)


def _own(
    link: Link, findings: Mapping[str, Finding], broken: frozenset[str], steps: tuple[int, int] | None
) -> ChainLink:
    """Return what the checks of a link say of it, the gravest first."""
    yes = {name for name, finding in findings.items() if finding.status == "fired"}
    excused = not yes.isdisjoint(link.excused_by)
    for state in BROKEN:
        shown = [findings[name] for name in getattr(link, state) if name in yes]
        if shown and not (state == "dead" and excused):
            return _witnessed(link.name, state, shown, steps)
    no = [name for name in link.alive_unless if name in findings and findings[name].status == "clear"]
    living = [findings[name] for name in (*(name for name in link.alive if name in yes), *no)]
    sound = [finding for finding in living if not any(evidence.raw in broken for evidence in finding.evidence)]
    return _witnessed(link.name, "alive", sound, steps) if sound else ChainLink(link=link.name, state="unknown")


def _witnessed(name: str, state: LinkState, shown: Sequence[Finding], steps: tuple[int, int] | None) -> ChainLink:
    """Return a link with the first witness that has a place in a file."""
    first = next((finding for finding in shown if any(evidence.source for evidence in finding.evidence)), shown[0])
    witness = says(first).replace(NOT_SO, "")  # of a condition that does not hold the numbers tell
    return ChainLink(link=name, state=state, witness=witness, steps=_span(first, steps))


def _span(finding: Finding, steps: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the steps that a finding speaks of: those of its evidence, else the run from its onset on."""
    spans = [evidence.steps for evidence in finding.evidence if evidence.steps]
    if spans:
        return min(first for first, _ in spans), max(last for _, last in spans)
    if steps is None or finding.onset_step is None:
        return steps
    return finding.onset_step, steps[1]


def follows(links: Iterable[ChainLink], broken: str) -> tuple[str, ...]:
    """Return the links that are dead because one is."""
    return tuple(link.link for link in links if link.entailed_by == broken)
