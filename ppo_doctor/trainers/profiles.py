"""Profiles of trainers: their fields, their fingerprints, and how they are matched to the keys of one log."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from os.path import commonprefix
from typing import Any

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.words import KeyUse
from ppo_doctor.trainers.names import is_statistic, of_machine

#: Characters that a tensorboardX writer replaces in tags: "Loss / Policy loss" becomes "Loss_/_Policy_loss".
_NOT_IN_TAGS = lazy_pattern(r"[^-/\w.*]")


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("^" + ".*".join(map(re.escape, pattern.split("*"))) + "$", re.MULTILINE)


def is_pattern(key: str) -> bool:
    """Return whether a key of a profile is a pattern."""
    return "*" in key


def captured(pattern: str, key: str) -> str:
    """Return what the one `*` of a pattern matches in a key."""
    before, _, after = pattern.partition("*")
    return key[len(before) : len(key) - len(after)]


def as_tag(key: str) -> str:
    """Return the key as a tensorboardX writer writes it."""
    return _NOT_IN_TAGS.sub("_", key)


class Keys:
    """The native keys of one log."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.names = keys if isinstance(keys, frozenset) else frozenset(keys)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _lines(self) -> str:
        return "\n".join(sorted(key for key in self.names if "\n" not in key))

    def has(self, pattern: str) -> bool:
        """Return whether the keys contain a name, or a match of a pattern."""
        if not is_pattern(pattern):
            return pattern in self.names
        return self._may_match(pattern) and _compiled(pattern).search(self._lines) is not None

    def _may_match(self, pattern: str) -> bool:
        """Return whether all parts of a pattern occur in the keys; few patterns then have to be compiled."""
        return all(part in self._lines for part in pattern.split("*"))

    def has_all(self, patterns: Sequence[str]) -> bool:
        """Return whether the keys contain every one of these names or patterns."""
        return all(map(self.has, patterns))

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the keys that match a name or a pattern, those of the whole model after those of one module."""
        if not is_pattern(pattern):
            return (pattern,) if pattern in self.names else ()
        if not self._may_match(pattern):
            return ()
        return tuple(sorted(_compiled(pattern).findall(self._lines), key=lambda key: ("/__" in key, key)))

    def without(self, patterns: Iterable[str]) -> frozenset[str]:
        """Return the keys that match none of these names and patterns."""
        left, several = set(self.names), []
        for pattern in patterns:
            if is_pattern(pattern):
                several.append(pattern)
            else:
                left.discard(pattern)
        for pattern in several if left else ():
            left.difference_update(self.matching(pattern))
        return frozenset(left)


TABLES = frozenset({"axis", "metrics", "config", "defaults", "facts", "components", "traits", "words", "template"})
LISTS = frozenset({"traps", "ignore", "unset"})


def overlaid(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile changed by a version or an extension: tables are merged, lists joined, other fields replaced."""
    out: dict[str, Any] = dict(base) | {key: value for key, value in change.items() if key not in TABLES | LISTS}
    for table in sorted(TABLES & set(change)):
        out[table] = dict(base.get(table, {})) | dict(change[table])
    for metric, fields in change.get("metrics", {}).items():
        out["metrics"][metric] = dict(base.get("metrics", {}).get(metric, {})) | dict(fields)
    for growing in sorted(LISTS & set(change)):
        out[growing] = [*base.get(growing, ()), *change[growing]]
    return out


#: The setting that gives K directly.
UPDATES_PER_BATCH = "updates_per_batch"
#: Keys with which trackers number and time their rows.
BOOKKEEPING = ("_runtime", "_timestamp", "_step", "_wandb*", "Wall time", "wall_time", "walltime")

#: Limits on the parts of a reward that are read, and on the length of their names.
MOST_PARTS, LONGEST_PART = 32, 60
_UNPRINTED = lazy_pattern(r"[^\w.-]", re.ASCII)

Scalar = str | int | float | bool
Groups = tuple[tuple[str, ...], ...]


@frozen
class MetricProfile:
    """What a trainer logs for one canonical metric.

    The canonical value is `scale` times the logged one, plus `offset`; a `root` is squared first, and a logarithm with
    base `antilog` is undone first. `resolution` is half the last printed digit if the trainer always rounds; `decimals`
    is the number of digits if only some versions round. `diluted` means that padding counts in the mean, which is then
    too close to "no change". `constant_when` lists settings under which the metric is a constant. `columns` are the
    columns of several workers or parts; the metric is their mean, or what `over` names.
    """

    name: str
    keys: tuple[str, ...]
    scale: float = 1.0
    offset: float = 0.0
    root: bool = False
    antilog: float = 0.0
    resolution: float = 0.0
    decimals: int | None = None
    estimator: str | None = None
    #: the estimator of logs with negative values, if versions differ in it but not in their keys
    estimator_if_negative: str | None = None
    aggregation: str | None = None
    reference: str | None = None
    diluted: bool = False
    columns: tuple[str, ...] = ()
    over: str = "mean"
    constant_when: Mapping[str, Scalar] = field(default_factory=dict)
    note: str = ""

    def called(self, key: str) -> str:
        """Return the name of a metric: its key, or "mean of Agent_*/Reward" for several columns."""
        if len(self.columns) < 2:
            return key
        before = commonprefix(self.columns)
        after = commonprefix([name[len(before) :][::-1] for name in self.columns])[::-1]
        return f"{self.over} of {before}*{after}"


@frozen
class UpdateFormula:
    """How K follows from the configuration: a function in `updates.py` and the setting for each argument."""

    function: str
    arguments: Mapping[str, str]


@frozen
class PartialMean:
    """Metrics that are a factor times the mean, because some cells always stay 0 or because epochs are summed.

    `function` in `updates.py` computes the factor from settings, and `why` explains it. `metrics` are divided by the
    factor, `dropped` cannot be restored. The factor is unknown if a setting of `unless` is on.
    """

    function: str
    arguments: Mapping[str, str]
    why: str
    metrics: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


@frozen
class Fingerprint:
    """Native keys that show a trainer or a version: all of one group, and none of the others."""

    any_of: Groups
    none_of: tuple[str, ...] = ()
    #: decides between several trainers that fit
    priority: int = 0

    def fits(self, keys: Keys) -> bool:
        """Return whether the keys contain all of one group and none of `none_of`."""
        return any(map(keys.has_all, self.any_of)) and not any(map(keys.has, self.none_of))


@frozen
class Version:
    """Versions of a trainer that keys show, and what is different in them."""

    name: str
    fingerprint: Fingerprint
    changes: Mapping[str, Any]


@frozen
class Profile:
    """What is known of a trainer, from its TOML file (`docs/trainers.md`).

    `resolved` returns the profile for one log, with patterns replaced by keys and with the changes of its version.
    """

    name: str
    title: str
    algorithm: str
    fingerprint: Fingerprint
    ppo_family: bool = True
    axis: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metrics: Mapping[str, MetricProfile] = field(default_factory=dict)
    config: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Scalar] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    updates: tuple[UpdateFormula, ...] = ()
    partial_mean: PartialMean | None = None
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    #: what is true of the trainer whatever a log shows; `docs/trainers.md` lists the names
    traits: Mapping[str, Scalar] = field(default_factory=dict)
    #: setting → the words that it accepts
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: settings in the trainer's own example configuration, which nobody chose
    template: Mapping[str, Scalar] = field(default_factory=dict)
    #: beginnings of what a program imports to use this trainer
    import_names: tuple[str, ...] = ()
    #: another profile of the same trainer, whose settings have mostly the same names
    family: str = ""
    #: another trainer whose settings, defaults and remedies are used for advice
    settings_of: str = ""
    #: whether it describes a trainer, and not names that any trainer's log may contain
    is_trainer: bool = True
    ignore: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    versions: tuple[Version, ...] = ()
    algorithms: tuple[tuple[str, Fingerprint], ...] = ()
    #: metric → patterns of its keys, which match one key per part of the reward
    components: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: number of parts of the reward that are not read
    components_left: int = 0
    #: the version that the log's keys show; "" if they show none
    version: str = ""
    #: raw key → canonical metric, for guesses from the name alone
    fuzzy: Mapping[str, str] = field(default_factory=dict)
    #: raw key → canonical metric, for guesses from numbers and other columns
    inferred: Mapping[str, str] = field(default_factory=dict)
    #: metrics whose columns the user named
    named: frozenset[str] = frozenset()
    #: canonical metric → further keys that match it, such as those of other agents
    further: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: the compiled table of this profile
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def settings(self) -> frozenset[str]:
        """Return the canonical names of the trainer's settings, with K itself, which can be set for every trainer."""
        return frozenset({*self.config, *self.defaults, *self.unset, UPDATES_PER_BATCH})

    def unknown(self, keys: Iterable[str]) -> frozenset[str]:
        """Return the native keys that this profile neither maps nor ignores."""
        mapped = (key for metric in self.metrics.values() for key in metric.keys)
        clocks = (key for names in self.axis.values() for key in names)
        left = Keys(keys).without([*mapped, *clocks, *self.ignore, *self.fuzzy, *BOOKKEEPING])
        return frozenset(key for key in left if not of_machine(key))

    def uses(self, keys: Iterable[str]) -> dict[str, KeyUse]:
        """Return how each native key of a log is used, in alphabetical order."""
        held, unknown = Keys(keys), self.unknown(keys)
        metrics = {key: metric.keys for metric in self.metrics.values() for key in metric.keys}
        clocks = {key for names in self.axis.values() for key in names}
        return {key: self._use(key, metrics, clocks, unknown, held) for key in sorted(held.names)}

    def _use(
        self,
        key: str,
        metrics: Mapping[str, Sequence[str]],
        clocks: Container[str],
        unknown: Container[str],
        held: Keys,
    ) -> KeyUse:
        if key in unknown:
            return "unknown"
        if key in self.fuzzy:
            return "guessed"
        if key in metrics:
            return "mapped" if key == next(name for name in metrics[key] if name in held.names) else "again"
        if key in clocks:
            return "clock"
        return "machine" if of_machine(key) else "not used"

    def resolved(self, keys: Iterable[str]) -> Profile:
        """Return this profile for a log with these native keys."""
        held = Keys(keys)
        version = next((v for v in self.versions if v.fingerprint.fits(held)), None)
        profile = self if version is None else profile_of(overlaid(self.raw, version.changes))
        algorithm = next((name for name, fingerprint in self.algorithms if fingerprint.fits(held)), profile.algorithm)
        parts, left = _components(profile.components, held)
        expanded = {name: _expanded(metric, held) for name, metric in profile.metrics.items()}
        return dataclasses.replace(
            profile,
            algorithm=algorithm,
            version=version.name if version else "",
            metrics={name: metric for name, (metric, _) in expanded.items() if metric.keys} | parts,
            components_left=left,
            further={name: more for name, (_, more) in expanded.items() if more},
        )


def _expanded(metric: MetricProfile, keys: Keys) -> tuple[MetricProfile, tuple[str, ...]]:
    """Return the metric with patterns replaced by keys of the log, and the other keys that the patterns match."""
    if not any(map(is_pattern, metric.keys)):
        return metric, ()
    found = tuple(dict.fromkeys(key for name in metric.keys for key in keys.matching(name)))
    return dataclasses.replace(metric, keys=found), found[1:]


def _components(patterns: Mapping[str, tuple[str, ...]], keys: Keys) -> tuple[dict[str, MetricProfile], int]:
    """Return a metric per part of the reward, and the number of parts beyond the limit.

    "reward/mean" is the whole reward and no part. Names of parts come from the log and are printed, so that they keep
    only letters, digits, dots, dashes and underscores.
    """
    found: dict[str, list[str]] = {}
    for metric, names in patterns.items():
        for pattern in names:
            for key in keys.matching(pattern):
                part = captured(pattern, key).strip()
                if part and "/" not in part and not is_statistic(part):
                    found.setdefault(f"{metric}.{_UNPRINTED.sub('_', part)[:LONGEST_PART]}", []).append(key)
    kept = sorted(found)[: MOST_PARTS * len(patterns)]
    parts = {name: MetricProfile(name=name, keys=tuple(found[name]), aggregation="rollout") for name in kept}
    return parts, len(found) - len(kept)


def fingerprint_of(raw: Mapping[str, Any]) -> Fingerprint:
    """Return a fingerprint from its compiled table."""
    groups = tuple(tuple(group) for group in raw.get("any", ()))
    return Fingerprint(any_of=groups or ((),), none_of=tuple(raw.get("none", ())), priority=raw.get("priority", 0))


def _metric(name: str, raw: Mapping[str, Any]) -> MetricProfile:
    return MetricProfile(name=name, **{**raw, "keys": tuple(raw["keys"])})


def _partial_mean(raw: Mapping[str, Any] | None) -> PartialMean | None:
    if not raw:
        return None
    names = {key: tuple(raw.get(key, ())) for key in ("metrics", "dropped", "unless")}
    return PartialMean(function=raw["function"], arguments=raw["arguments"], why=raw["why"], **names)


def _version(raw: Mapping[str, Any]) -> Version:
    changes = {key: value for key, value in raw.items() if key not in ("name", "any", "none")}
    return Version(name=raw["name"], fingerprint=fingerprint_of(raw), changes=changes)


def _tuples(raw: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(keys) for name, keys in raw.items()}


def profile_of(raw: Mapping[str, Any]) -> Profile:
    """Return a profile from its compiled table."""
    return Profile(
        name=raw["name"],
        title=raw["title"],
        algorithm=raw["algorithm"],
        fingerprint=fingerprint_of(raw["fingerprint"]),
        ppo_family=raw.get("ppo_family", True),
        axis=_tuples(raw.get("axis", {})),
        metrics={name: _metric(name, metric) for name, metric in raw.get("metrics", {}).items()},
        components=_tuples(raw.get("components", {})),
        config=_tuples(raw.get("config", {})),
        defaults=raw.get("defaults", {}),
        unset=tuple(raw.get("unset", ())),
        updates=tuple(UpdateFormula(**formula) for formula in raw.get("updates", ())),
        partial_mean=_partial_mean(raw.get("partial_mean")),
        facts=raw.get("facts", {}),
        traits=raw.get("traits", {}),
        words=_tuples(raw.get("words", {})),
        template=raw.get("template", {}),
        import_names=tuple(raw.get("import_names", ())),
        family=raw.get("family", raw.get("extends", raw["name"])),
        settings_of=raw.get("settings_of", ""),
        is_trainer=raw.get("is_trainer", True),
        ignore=tuple(raw.get("ignore", ())),
        traps=tuple(raw.get("traps", ())),
        sources=tuple(raw.get("sources", ())),
        versions=tuple(_version(version) for version in raw.get("versions", ())),
        algorithms=tuple((a["name"], fingerprint_of(a)) for a in raw.get("algorithms", ())),
        raw=raw,
    )
