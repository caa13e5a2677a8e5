"""What to do: the remedies of a cause with the trainer's keys and values, and the first step of a diagnosis."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.engine import FROM_SETTINGS
from ppo_doctor.diagnosis.problems import GONE, OF_A_FALL
from ppo_doctor.model.arrays import finite_of, median
from ppo_doctor.model.evidence import number
from ppo_doctor.model.metrics import OBSERVED
from ppo_doctor.model.rules import Remedy
from ppo_doctor.model.words import QUESTIONS
from ppo_doctor.trainers.config_formats import parse_value
from ppo_doctor.trainers.detection import known_profile, profile_of_settings
from ppo_doctor.trainers.settings import IN_FORCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.diagnosis import ChainLink, Coverage, Outcome, Problem, RankedCause
    from ppo_doctor.model.rules import Finding, Rule
    from ppo_doctor.model.run import Note, Run
    from ppo_doctor.model.words import ConfigValue

#: Remedies reported for a cause.
MOST_REMEDIES = 3
#: In a remedy: the trainer's default is the value to set.
DEFAULT = "default"
#: Operators of a remedy that scales the current value.
SCALES = ("*", "/")
#: Updates above the first are large and below the second usual; below the third they are small (nats).
LARGE_KL, USUAL_KL, SMALL_KL = 0.1, 0.03, 0.001
#: Fewest records whose reward shows a course, and metrics that are named of those to log.
ENOUGH, MOST_NAMED = 20, 3
#: This many losses of exactly 0 are not a coincidence.
FEW = 5
#: Algorithms of groups, whose samples are nearly always completions.
OF_GROUPS = ("grpo", "rloo")
#: Checks of a fall that say what fell, whether or not it rose before.
STANDING_AT_0 = frozenset(("reward-gone",))
#: Metrics that show whether steps became too large; the first two that are not logged are asked for.
OF_STEPS = ("approx_kl", "entropy", "grad_norm")
#: What to do about a reward that was never paid, by whether the samples are completions.
OF_NOTHING: Mapping[bool, str] = {
    False: "Play one episode by script that must earn a reward: if it is paid, make the start easier, or pay steps "
    "towards the goal; if not, mend the reward.",
    True: "Call the reward function on an answer that must earn a reward, then print ten completions beside theirs.",
}
#: What to count if the log does not show how many groups have equal rewards.
OF_GROUPS_ALIKE = "and count the groups whose rewards are all equal: these teach nothing"


def remedies_for(remedies: Iterable[Remedy], run: Run, samples: str | None = None) -> tuple[Remedy, ...]:
    """Return the first three remedies for a run's trainer and samples that are not in effect already, with values.

    If all are in effect, they are returned nevertheless: something is wrong that no setting shows.
    """
    trainer = known_profile(run.framework)
    trainers = (None, run.framework, *([trainer.settings_of] if trainer else []))
    fit = (remedy for remedy in remedies if None in (samples, remedy.samples) or remedy.samples == samples)
    named = [remedy for remedy in fit if remedy.framework in trainers]
    settable = [remedy for remedy in named if _settable(remedy, run)] or named
    open_ = [remedy for remedy in settable if not _in_effect(remedy, run)] or settable
    return tuple(_with_values(remedy, run) for remedy in open_[:MOST_REMEDIES])


def _settable(remedy: Remedy, run: Run) -> bool:
    """Return whether a run's trainer has the setting to change.

    The weight of the value loss has no effect on a critic with its own optimizer.
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


def _in_effect(remedy: Remedy, run: Run) -> bool:
    """Return whether the run has the value to set, or its trainer's default is that value and no other is known.

    Scaling a value that is 0 or negative is no remedy, and counts as in effect.
    """
    if remedy.setting is None or not remedy.to:
        return False
    now, default = value_in_force(remedy.setting, run), _default(remedy.setting, run)
    if remedy.to[:1] in SCALES:
        return isinstance(now, int | float) and now <= 0
    value = default if now is None else now
    known = default is not None or not remedy.to.endswith(DEFAULT)
    return value is not None and known and target(remedy.to, value, default) is None


def _with_values(remedy: Remedy, run: Run) -> Remedy:
    """Return a remedy with the run's key and values; a mere default is never scaled."""
    if remedy.setting is None:
        return replace(remedy, now=run.config_raw.get(remedy.key or ""))
    key, now = _key(remedy.setting, run), value_in_force(remedy.setting, run)
    to = target(remedy.to, now, _default(remedy.setting, run))
    return replace(remedy, key=key, now=now, then=to if key else None)


def _key(setting: str, run: Run) -> str | None:
    """Return the key of a setting in the run, else in its trainer; None if the trainer has no such setting."""
    given = run.config.get(setting)
    if given is not None and given.how != "default":
        return given.key
    profile = profile_of_settings(run.framework)
    return next(iter(profile.config.get(setting, ())), None) if profile is not None else None


def value_in_force(setting: str, run: Run) -> ConfigValue:
    """Return the value of a setting: the one that every record logs, else the configured, else the largest logged."""
    given, series = run.config.get(setting), run.series.get(IN_FORCE.get(setting, setting))
    logged = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    constant = len(logged) > 0 and bool((logged == logged[0]).all())
    if given is None or given.how == "default" or constant:  # a constant rate of 0 was not what the run asked for
        return float(logged.max()) if len(logged) else None  # the value that a schedule decays from or rises to
    return given.value


def _default(setting: str, run: Run) -> ConfigValue:
    """Return the trainer's default of a setting; the configured number instead if the log shows 0 in every record."""
    given = run.config.get(setting)
    configured = given.value if given is not None and given.how == "configured" else None
    if isinstance(configured, int | float) and configured > 0 and value_in_force(setting, run) == 0:
        return configured
    profile = profile_of_settings(run.framework)
    return profile.defaults.get(setting) if profile is not None else None


def target(to: str, now: ConfigValue, default: ConfigValue) -> ConfigValue:
    """Return the value that a remedy sets; None if it is unknown or is the current one.

    `to` is `= V`, `>= V` or `<= V`, where V may be `default`, or `* F` or `/ F`; "" means no value.
    """
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
    """Return whether the trainer's default is beyond `scaled` in the same direction, and so the better value."""
    if not isinstance(default, int | float) or not isinstance(scaled, int | float):
        return False
    return default > scaled if up else 0 < default < scaled


def _scaled(now: ConfigValue, factor: float) -> ConfigValue:
    """Return a positive number times `factor`, a whole number if it was one; None for anything else."""
    if not isinstance(now, int | float) or isinstance(now, bool) or not math.isfinite(now) or now <= 0:
        return None
    return max(1, round(now * factor)) if isinstance(now, int) else float(f"{now * factor:.2g}")


def step_of_problem(
    problem: Problem, outcome: Outcome, rules: Mapping[str, Rule], run: Run, samples: str | None
) -> str:
    """Return what to do first about a problem without a sure cause.

    A reward that rose before it fell was learned from, so that no sign is wrong: the first step is its peak.
    """
    of_finding = rules[problem.findings[0]].next_step if problem.findings else ""
    of_a_fall = OF_A_FALL - STANDING_AT_0
    if outcome.what in GONE and problem.state == "course" and of_a_fall.issuperset(problem.findings[:1]):
        peaked = outcome.what == "lost" or outcome.first is not None
        return _smaller_steps(run) or (_back_to_the_peak(outcome, run) if peaked or not of_finding else of_finding)
    return of_finding or _step_of_outcome(outcome, {}, run, samples)


def first_step(
    problems: Sequence[Problem],
    causes: Sequence[RankedCause],
    links: Sequence[ChainLink],
    findings: Sequence[Finding],
    rules: Mapping[str, Rule],
    coverage: Coverage,
    outcome: Outcome,
    view: RunView,
) -> str:
    """Return what to do first about a run that is not healthy.

    That is the remedy of the first problem's sure cause, else the step of that problem, of a dead link, of checks that
    failed to run, or of the outcome.
    """
    for problem in problems:
        lead = next((c for c in causes if c.problem == problem.id and c.leader and not c.benign), None)
        sure = lead.remedies[:1] if lead is not None and lead.confidence != "suspected" else ()
        if step := next((remedy.do for remedy in sure), problem.next_step):
            return step
    dead = next((link.link for link in links if link.state == "dead" and link.entailed_by is None), None)
    steps = (rules[f.rule].next_step for f in findings if f.status == "fired" and f.link == dead)
    if dead is not None and (step := next(filter(None, steps), "")):
        return step
    if coverage.failed:
        return "Run it with --why, and report what failed: without it the run is not judged."
    if FROM_SETTINGS in view.run.facts:
        return "Train with it, and let ppo-doctor read the log."
    return _step_of_outcome(outcome, coverage.would_answer, view.run, view.kind.samples.value)


def _step_of_outcome(outcome: Outcome, would_answer: Mapping[str, Sequence[str]], run: Run, samples: str | None) -> str:
    """Return what to do first if only the outcome is known; `would_answer` has metrics by open question."""
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
    """Return how to separate records if most of them repeat a step, else ""."""
    merged = sum(note.count for note in run.notes if note.kind == "merged" and note.source is not None)
    if not outcome.records or merged < max(2, outcome.records):
        return ""
    return (
        f"Write a log for each training, if they are several: {merged} records repeat a step, and the last is judged."
    )


def _untrained(run: Run) -> str:
    """Return what to find out if all losses are 0, as an evaluation logs them, else ""."""
    losses = next((run.series[name] for name in ("policy_loss", "loss") if name in run.series), None)
    known = finite_of(losses.values) if losses is not None else np.empty(0)
    if losses is None or len(known) < FEW or known.any():
        return ""
    return (
        f"See whether this is a training at all: {losses.raw} is 0 in all {len(known)} records, as in an evaluation. "
        "Judge the log of the training then."
    )


def _whole(lost: Sequence[Note]) -> str:
    """Return what to do about parts of a log that could not be read: cells of a metric, or the rest of the file."""
    cells = next((note.source for note in lost if note.source is not None and note.source.key), None)
    if cells is None or any(note.source is None or not note.source.key for note in lost):
        return "Let ppo-doctor read the whole log: the fault may stand in what it has not read."
    where = f", the first of them in line {cells.line}" if cells.line is not None else ""
    return f"Log {cells.key} as a number in every record: cells of it hold none{where}, and the fault may show there."


def _read_or_log(outcome: Outcome, run: Run, *, completions: bool) -> str:
    name = "reward_mean" if completions else "episode_return"
    if outcome.key:
        alias = shlex.quote(f"{outcome.key}={name}")
        return f"Say which column is the reward: --alias {alias}.{_of_the_columns(outcome, run)}"
    of = "the mean reward of the completions" if completions else "the mean return of the episodes"
    if not OBSERVED.isdisjoint(run.series):
        return f"Give the script's own log too (ppo-doctor run --log progress.csv …), with {of} as {name}."
    return f"Log {of} with every update as {name}: without it no log shows whether the policy learns."


def _of_the_columns(outcome: Outcome, run: Run) -> str:
    """Return where the candidate reward column holds no number, and which other columns of rewards there are."""
    parts = [series for name, series in run.series.items() if name.startswith("reward_component") and len(series)]
    gaps, others = "", []
    for series in parts:
        lost = np.flatnonzero(~np.isfinite(series.values))
        if series.raw != outcome.key:
            others.append(series.raw if series.values.any() else f"{series.raw} (0 in every record)")
        elif len(lost):
            first = series.axis.steps[lost[0]]
            gaps = f" It is no number in {len(lost)} of {len(series)} records, first at step {first}."
    return gaps + (f" Not taken: {', '.join(others[:MOST_NAMED])}." if others else "")


def _smaller_steps(run: Run) -> str:
    """Return how to make updates smaller if they were large in the last third of the run, else ""."""
    for kl in (run.series[name] for name in ("approx_kl", "approx_kl_k2") if name in run.series):
        late = finite_of(np.abs(kl.values[-(len(kl) // 3) :]))
        if len(kl) >= ENOUGH and len(late) and (size := median(late)) > LARGE_KL:
            return (
                f"Lower the learning rate or the epochs until {kl.raw} stays below {USUAL_KL}: it is {_short(size)} "
                "in the last third of the run."
            )
    return ""


def _back_to_the_peak(outcome: Outcome, run: Run) -> str:
    """Return how to find out whether the policy got worse or the task got harder, and what to log for it."""
    peak = f"step {outcome.best_step}" if outcome.best_step is not None else "the peak"
    at = f"the checkpoint nearest to {peak}, where the reward was about {_short(outcome.best)}"
    logged = {*run.series}
    silent = [name for name in OF_STEPS if name not in logged][:2]
    log = f" Log {' and '.join(silent)} from there on." if silent else ""
    kl = run.series.get("approx_kl")
    sizes = finite_of(np.abs(kl.values)) if kl is not None else np.empty(0)
    small = len(sizes) >= ENOUGH and median(sizes) < SMALL_KL
    slower = "" if small else " with a lower learning rate"
    return (
        f"Keep {at}, and evaluate it beside the last one on the same tasks: "
        f"if it earns more, train on from it{slower}; if not, the task changed, not the policy.{log}"
    )


def _before_centring(outcome: Outcome, run: Run) -> str:
    """Return what to log if the mean reward is constant although rewards differ, as after centring, else ""."""
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
    """Return how to find out whether the task is solved, or cannot be, or the policy does not learn."""
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
    """Return what to log so that the open questions can be answered, or ""."""
    names = dict.fromkeys(name for question in QUESTIONS for name in would_answer.get(question, ()))
    listed = list(names)[:MOST_NAMED]
    if not listed:
        return ""
    return f"Log {', '.join(listed[:-1]) + ' and ' * (len(listed) > 1) + listed[-1]} too."


def _short(value: float | None) -> str:
    return number(None if value is None else float(f"{value:.3g}"))
