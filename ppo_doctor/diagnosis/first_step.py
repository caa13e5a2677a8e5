"""Remedies with the framework's key and values for one run, and the first step of a diagnosis."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.diagnosis.findings import GONE, OF_A_FALL
from ppo_doctor.model.arrays import finite_of, median
from ppo_doctor.model.evidence import number
from ppo_doctor.model.rules import Remedy
from ppo_doctor.model.words import QUESTIONS
from ppo_doctor.trainers.config_formats import parse_value
from ppo_doctor.trainers.detection import known_profile, profile_of_settings
from ppo_doctor.trainers.settings import IN_FORCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model.diagnosis import ChainLink, Coverage, Outcome, Problem, RankedCause
    from ppo_doctor.model.rules import Finding, Rule
    from ppo_doctor.model.run import Note, Run
    from ppo_doctor.model.words import ConfigValue

#: More of them hide the first.
MOST_REMEDIES = 3
#: The value to set that is the framework's own.
DEFAULT = "default"
#: How a value follows from the one that is: a multiple or a part of it.
SCALES = ("*", "/")


def fitting(remedies: Iterable[Remedy], run: Run, samples: str | None = None) -> tuple[Remedy, ...]:
    """Return the first remedies for a run's framework and samples or for any, without those that it follows already.

    Where it follows all of them, something that no setting shows is wrong, and they are told in words.
    """
    trainer = known_profile(run.framework)
    own = (None, run.framework, *([trainer.settings_of] if trainer else []))
    fit = (remedy for remedy in remedies if None in (samples, remedy.samples) or remedy.samples == samples)
    named = [remedy for remedy in fit if remedy.framework in own]
    ours = [remedy for remedy in named if _settable(remedy, run)] or named
    open_ = [remedy for remedy in ours if not _followed(remedy, run)] or ours
    return tuple(_told(remedy, run) for remedy in open_[:MOST_REMEDIES])


def _settable(remedy: Remedy, run: Run) -> bool:
    """Tell whether a run's trainer has the setting to change: no upper clip bound where there is one for both sides.

    The weight of a value loss means nothing to a critic with an optimizer of its own.
    """
    if remedy.setting is None:
        return True
    given = run.config.get(remedy.setting)
    if given is not None and given.how != "default":
        return True
    apart = run.config.get("critic_learning_rate") is not None or "critic_learning_rate" in run.series
    if remedy.setting == "vf_coef" and apart:
        return False
    return profile_of_settings(run.framework) is None or _key(remedy.setting, run) is not None


def _followed(remedy: Remedy, run: Run) -> bool:
    """Tell whether the run has the value to set, or its framework has and nothing says that the run has another.

    A multiple or a part of nothing, or of what is negative, is no remedy either.
    """
    if remedy.setting is None or not remedy.to:
        return False
    now, default = value_held(remedy.setting, run), _default(remedy.setting, run)
    if remedy.to[:1] in SCALES:
        return isinstance(now, int | float) and now <= 0
    held = default if now is None else now
    known = default is not None or not remedy.to.endswith(DEFAULT)
    return held is not None and known and target(remedy.to, held, default) is None


def _told(remedy: Remedy, run: Run) -> Remedy:
    """Return a remedy with the run's key and values; a part or a multiple is never one of a mere default."""
    if remedy.setting is None:
        return replace(remedy, now=run.config_raw.get(remedy.key or ""))
    key, now = _key(remedy.setting, run), value_held(remedy.setting, run)
    to = target(remedy.to, now, _default(remedy.setting, run))
    return replace(remedy, key=key, now=now, then=to if key else None)


def _key(setting: str, run: Run) -> str | None:
    """Return what the run calls a setting, else its framework; None where that has no such setting."""
    held = run.config.get(setting)
    if held is not None and held.how != "default":
        return held.key
    ours = profile_of_settings(run.framework)
    return next(iter(ours.config.get(setting, ())), None) if ours is not None else None


def value_held(setting: str, run: Run) -> ConfigValue:
    """Return the value of a setting: the one that every record logs, else as configured, else the largest logged."""
    held, series = run.config.get(setting), run.series.get(IN_FORCE.get(setting, setting))
    logged = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    constant = len(logged) > 0 and bool((logged == logged[0]).all())
    if held is None or held.how == "default" or constant:  # a rate of 0 is, whatever was asked for
        return float(logged.max()) if len(logged) else None  # what a schedule decays from, or what was raised late
    return held.value


def _default(setting: str, run: Run) -> ConfigValue:
    ours = profile_of_settings(run.framework)
    return ours.defaults.get(setting) if ours is not None else None


def target(to: str, now: ConfigValue, default: ConfigValue) -> ConfigValue:
    """Return the value to set; None where it cannot be told, or is what the run has."""
    how, _, value = to.partition(" ")
    if not how:
        return None
    if how in SCALES:
        scaled = _scaled(now, float(value) if how == "*" else 1 / float(value))
        return default if _further(default, scaled, up=how == "*") else scaled
    wanted = default if value == DEFAULT else parse_value(value)
    if not isinstance(now, int | float) or not isinstance(wanted, int | float):
        return None if wanted == now else wanted
    meets = {">=": now >= wanted, "<=": now <= wanted, "=": now == wanted}
    return None if meets[how] else wanted


def _further(default: ConfigValue, scaled: ConfigValue, *, up: bool) -> bool:
    """Tell whether the framework's own value lies further in the same direction: then that is where to go."""
    if not isinstance(default, int | float) or not isinstance(scaled, int | float):
        return False
    return default > scaled if up else 0 < default < scaled


def _scaled(now: ConfigValue, factor: float) -> ConfigValue:
    """Return a multiple or a part of the value that is; whole numbers stay whole."""
    if not isinstance(now, int | float) or isinstance(now, bool) or not math.isfinite(now) or now <= 0:
        return None
    return max(1, round(now * factor)) if isinstance(now, int) else float(f"{now * factor:.2g}")


#: Nats from which on updates are large, and below which they usually stay.
LARGE_KL, USUAL_KL, SMALL_KL = 0.1, 0.03, 0.001
#: Records of a reward that show a course, and metrics that are named of those to log.
ENOUGH, MOST_NAMED = 20, 3
#: Losses of exactly 0 that are no chance.
FEW = 5
#: Algorithms of groups, nearly all of which are of completions.
OF_GROUPS = ("grpo", "rloo")
#: Checks of a fall that say what fell, whatever it did before.
STANDING_AT_0 = frozenset(("reward-gone",))
#: What tells that steps became too large, of which the first two that are not logged are asked for.
OF_STEPS = ("approx_kl", "entropy", "grad_norm")


def of_problem(problem: Problem, outcome: Outcome, rules: Mapping[str, Rule], run: Run, samples: str | None) -> str:
    """Return what to do first about a problem while no cause of it is sure.

    A reward that rose before it fell was learned from, so that no sign is wrong: what comes first is its peak.
    """
    page = rules[problem.findings[0]].next_step if problem.findings else ""
    of_a_fall = OF_A_FALL - STANDING_AT_0
    if outcome.what in GONE and problem.state == "course" and of_a_fall.issuperset(problem.findings[:1]):
        peaked = outcome.what == "lost" or outcome.first is not None
        return _smaller_steps(run) or (_back_to_the_peak(outcome, run) if peaked or not page else page)
    return page or of_outcome(outcome, {}, run, samples)


def told(problems: Sequence[Problem], causes: Sequence[RankedCause]) -> str:
    """Return the first step of the problems: the remedy of a cause that is sure, else that of the problem."""
    for problem in problems:
        lead = next((c for c in causes if c.problem == problem.id and c.leader and not c.benign), None)
        sure = lead.remedies[:1] if lead is not None and lead.confidence != "suspected" else ()
        if step := next((remedy.do for remedy in sure), problem.next_step):
            return step
    return ""


def of_what_stands(
    links: Sequence[ChainLink], findings: Sequence[Finding], rules: Mapping[str, Rule], coverage: Coverage
) -> str:
    """Return the step of the check that shows a dead link, or what to do about checks that failed; else nothing."""
    dead = next((link.link for link in links if link.state == "dead" and link.entailed_by is None), None)
    ours = (rules[f.rule].next_step for f in findings if f.status == "fired" and f.link == dead)
    if dead is not None and (step := next(filter(None, ours), "")):
        return step
    return "Run it with --why, and report what failed: without it the run is not judged." if coverage.failed else ""


def of_outcome(
    outcome: Outcome, would_answer: Mapping[str, Sequence[str]], run: Run, samples: str | None, *, alone: bool = False
) -> str:
    """Return what to do first where the outcome is all that is known; `alone` is a configuration without a log."""
    if alone:
        return "Train with it, and let ppo-doctor read the log."
    died = next((note.text for note in run.notes if note.died), None)
    if died is not None:
        return "Mend what ended the run, and train on from its last checkpoint."
    if lost := [note for note in run.notes if note.kind == "lost"]:
        return _whole(lost)
    completions = samples == "completions" or run.algorithm in OF_GROUPS
    if outcome.what == "not_logged":
        return _read_or_log(outcome, run, completions=completions)
    if outcome.what == "never_earned":
        return OF_NOTHING[completions]
    if outcome.what in GONE:
        return _back_to_the_peak(outcome, run)
    if outcome.records < ENOUGH:
        if of_no_training := _repeated(outcome, run) or _untrained(run):
            return of_no_training
        few = "one reward is" if outcome.records == 1 else f"{outcome.records} rewards are"
        return f"Train on, to {ENOUGH} records at least: {few} too few to tell a rise from chance."
    if outcome.leans and not outcome.sound:
        return "Train on, twice as long: the second half lies above the first, but by too little to call it a rise."
    step = _before_centring(outcome, run) or _measured(outcome, run, completions=completions)
    return " ".join(filter(None, (step, _to_log(would_answer))))


def _repeated(outcome: Outcome, run: Run) -> str:
    """Return how records could be told apart most of which repeat a step; nothing where few do."""
    merged = sum(note.count for note in run.notes if note.kind == "merged" and note.source is not None)
    if not outcome.records or merged < max(2, outcome.records):
        return ""
    return (
        f"Write a log for each training, if they are several: {merged} records repeat a step, and the last is judged."
    )


def _untrained(run: Run) -> str:
    """Return what to find out about a log whose losses are all 0, as an evaluation writes them; nothing otherwise."""
    losses = next((run.series[name] for name in ("policy_loss", "loss") if name in run.series), None)
    known = finite_of(losses.values) if losses is not None else np.empty(0)
    if losses is None or len(known) < FEW or known.any():
        return ""
    return (
        f"See whether this is a training at all: {losses.raw} is 0 in all {len(known)} records, as in an evaluation. "
        "Judge the log of the training then."
    )


def _whole(lost: Sequence[Note]) -> str:
    """Return how the rest of a log could be read: of a metric its cells, else the file."""
    cells = next((note.source for note in lost if note.source is not None and note.source.key), None)
    if cells is None or any(note.source is None or not note.source.key for note in lost):
        return "Let ppo-doctor read the whole log: the fault may stand in what it has not read."
    where = f", the first of them in line {cells.line}" if cells.line is not None else ""
    return f"Log {cells.key} as a number in every record: cells of it hold none{where}, and the fault may show there."


#: What is asked of a reward that was never paid, by whether completions earn it.
OF_NOTHING: Mapping[bool, str] = {
    False: "Play one episode by script that must earn a reward: if it is paid, make the start easier, or pay steps "
    "towards the goal; if not, mend the reward.",
    True: "Call the reward function on an answer that must earn a reward, then print ten completions beside theirs.",
}


#: What is asked for of groups of which no log tells how many are alike.
OF_GROUPS_ALIKE = "and count the groups whose rewards are all equal: these teach nothing"


def _read_or_log(outcome: Outcome, run: Run, *, completions: bool) -> str:
    name = "reward_mean" if completions else "episode_return"
    if outcome.key:
        alias = shlex.quote(f"{outcome.key}={name}")
        return f"Say which column is the reward: --alias {alias}.{_of_the_columns(outcome, run)}"
    of = "the mean reward of the completions" if completions else "the mean return of the episodes"
    return f"Log {of} with every update as {name}: without it no log shows whether the policy learns."


def _of_the_columns(outcome: Outcome, run: Run) -> str:
    """Return where the column that may be the reward is no number, and which others there are, of parts of a reward."""
    parts = [series for name, series in run.series.items() if name.startswith("reward_component") and len(series)]
    said, others = "", []
    for series in parts:
        lost = np.flatnonzero(~np.isfinite(series.values))
        if series.raw != outcome.key:
            others.append(series.raw if series.values.any() else f"{series.raw} (0 in every record)")
        elif len(lost):
            first = series.axis.steps[lost[0]]
            said = f" It is no number in {len(lost)} of {len(series)} records, first at step {first}."
    return said + (f" Not taken: {', '.join(others[:MOST_NAMED])}." if others else "")


def _smaller_steps(run: Run) -> str:
    """Return what to do about updates that had become large by the end of a fall; nothing where none had."""
    for kl in (run.series[name] for name in ("approx_kl", "approx_kl_k2") if name in run.series):
        late = finite_of(np.abs(kl.values[-(len(kl) // 3) :]))
        if len(kl) >= ENOUGH and len(late) and (size := median(late)) > LARGE_KL:
            return (
                f"Lower the learning rate or the epochs until {kl.raw} stays below {USUAL_KL}: it is {_short(size)} "
                "in the last third of the run."
            )
    return ""


def _back_to_the_peak(outcome: Outcome, run: Run) -> str:
    """Return a test that tells a policy that got worse from a task that got harder, and what to log for it."""
    peak = f"step {outcome.best_step}" if outcome.best_step is not None else "the peak"
    at = f"the checkpoint nearest to {peak}, where the reward was about {_short(outcome.best)}"
    logged = {*run.series}
    silent = [name for name in OF_STEPS if name not in logged][:2]
    log = f" Log {' and '.join(silent)} from there on." if silent else ""
    slower = "" if _is_small(run) else " with a lower learning rate"
    return (
        f"Keep {at}, and evaluate it beside the last one on the same tasks: "
        f"if it earns more, train on from it{slower}; if not, the task changed, not the policy.{log}"
    )


def _is_small(run: Run) -> bool:
    """Tell whether updates are smaller than usual, so that a lower rate is no remedy."""
    kl = run.series.get("approx_kl")
    known = finite_of(np.abs(kl.values)) if kl is not None else np.empty(0)
    return len(known) >= ENOUGH and median(known) < SMALL_KL


def _before_centring(outcome: Outcome, run: Run) -> str:
    """Return what to log of rewards that differ while their mean is one number; nothing where they do not."""
    inside = run.series.get("reward_std")
    if outcome.metric != "reward_mean" or inside is None or not outcome.start == outcome.best == outcome.end:
        return ""
    if not median(finite_of(inside.values)) > 0:
        return ""
    return (
        "Log the reward as it is before it is normalised, or evaluate the first and the last checkpoint on the same "
        f"prompts: its mean is {_short(outcome.end)} whatever is learned, while rewards differ ({inside.raw})."
    )


def _measured(outcome: Outcome, run: Run, *, completions: bool) -> str:
    """Return the comparison that tells a task that is done, or cannot be done, from a policy that does not learn."""
    if completions:
        count = "" if "frac_reward_zero_std" in run.series else ", " + OF_GROUPS_ALIKE
        return f"Evaluate the first and the last checkpoint on the same few hundred prompts{count}."
    if outcome.first is not None:
        return (
            f"Compare {_short(outcome.end)} with the best that the task allows: if that is more, "
            "the policy settled early, and more exploration is the first thing to try."
        )
    return (
        f"Run a random policy on the same task: if it earns {_short(outcome.end)} as well, nothing was learnt: "
        "print the observations, rewards and advantages of one batch. If it earns less, train longer."
    )


def _to_log(would_answer: Mapping[str, Sequence[str]]) -> str:
    """Return what to log, by which the questions that stay open would be answered."""
    names = dict.fromkeys(name for question in QUESTIONS for name in would_answer.get(question, ()))
    listed = list(names)[:MOST_NAMED]
    if not listed:
        return ""
    return f"Log {', '.join(listed[:-1]) + ' and ' * (len(listed) > 1) + listed[-1]} too."


def _short(value: float | None) -> str:
    return number(None if value is None else float(f"{value:.3g}"))
