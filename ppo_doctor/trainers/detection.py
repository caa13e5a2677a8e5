"""Load the profiles of trainers, and find the trainer of a log by its keys or of a configuration by its names."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.toml_files import Compiled, Parsed, load
from ppo_doctor.trainers.guessing.abbreviations import readings
from ppo_doctor.trainers.names import (
    COUNTERS,
    aliases,
    clocks,
    metric_of,
    of_groups,
    of_language,
    over,
    role_of,
    siblings,
    squashed,
)
from ppo_doctor.trainers.profiles import (
    Fingerprint,
    Keys,
    MetricProfile,
    Profile,
    Scalar,
    fingerprint_of,
    is_pattern,
    profile_of,
)

FOLDER = Path(__file__).parent
#: A profile needs half of the metrics that a log's names mean, or this many.
HANDFUL = 5
#: This many keys that only one trainer uses show it without a fingerprint, if one of them is a metric of PPO_ONLY.
PECULIAR = 2
PPO_ONLY = frozenset(
    {
        *(
            "approx_kl",
            "approx_kl_k1",
            "approx_kl_max",
            "clip_fraction",
            "clip_fraction_low",
            "clip_fraction_high",
            "clip_fraction_dual",
        ),
        *("clip_range", "ratio_mean", "ratio_std", "ratio_min", "ratio_max", "ratio_abs_dev", "ratio_batch_var"),
        *("ref_kl", "frac_reward_zero_std", "kl_penalty_reward", "value_clip_fraction"),
    }
)
#: The profile of our own names, and the fallback for logs of unknown trainers.
CANONICAL = "canonical"


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return {raw["name"]: raw for raw in load("frameworks", FOLDER, build)["profiles"]}


def build(parsed: Parsed) -> Compiled:
    """Check every profile and return the compiled pack; see `packing.build`."""
    from ppo_doctor.trainers import packing  # needed only without a compiled pack

    return packing.build(parsed)


@cache
def _fingerprints() -> Mapping[str, Fingerprint]:
    return {name: fingerprint_of(raw["fingerprint"]) for name, raw in _tables().items()}


@cache
def _profile(name: str) -> Profile:
    return profile_of(_tables()[name])


def known_profile(trainer: str) -> Profile | None:
    """Return the profile of a trainer, None if there is none."""
    return _profile(trainer) if trainer in _tables() else None


def profile_of_settings(trainer: str) -> Profile | None:
    """Return the profile whose settings advice for a trainer names, None if the trainer has no profile."""
    profile = known_profile(trainer)
    return profile if profile is None or not profile.settings_of else _profile(profile.settings_of)


def traits_of(trainer: str) -> Mapping[str, Scalar]:
    """Return what is true of a trainer whatever its log shows, empty if there is no profile."""
    profile = known_profile(trainer)
    return {} if profile is None else profile.traits


def samples_of(trainer: str) -> str:
    """Return what a trainer samples: "completions" or "episodes"; "" for our own names, which either may use."""
    samples = str(traits_of(trainer).get("samples", "episodes"))
    return "" if samples == "either" else samples


@cache
def profiles() -> Mapping[str, Profile]:
    """Return every profile by name."""
    return {name: _profile(name) for name in _tables()}


def profile(name: str) -> Profile:
    """Return one profile by name.

    Raises:
        DoctorError: there is no such profile (exit code 2).
    """
    if name not in _tables():
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), _tables(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(_tables()))}"
        raise DoctorError(f"no framework '{name}'", hint=hint, code=ExitCode.USAGE)
    return _profile(name)


def _tables_of_versions() -> list[Mapping[str, Any]]:
    return [changed for raw in _tables().values() for changed in (raw, *raw.get("versions", ()))]


@cache
def names_of_settings() -> frozenset[str]:
    """Return the last part of every name of a setting, in all versions of all trainers."""
    lists = [keys for table in _tables_of_versions() for keys in table.get("config", {}).values()]
    return frozenset(key.rpartition(".")[2] for keys in lists for key in keys)


def detect(keys: Iterable[str]) -> Profile | None:
    """Return the profile that these native keys show, resolved for their log; None if no metric is known."""
    return _detect(frozenset(keys))


@lru_cache(maxsize=64)  # the runs of a sweep hold the same keys
def _detect(keys: frozenset[str]) -> Profile | None:
    native = Keys(keys)
    fitting = [name for name in _tables() if _fingerprints()[name].fits(native) and _knows(name, native)]
    highest = max((_fingerprints()[name].priority for name in fitting), default=0)
    best = [_profile(name) for name in fitting if _fingerprints()[name].priority == highest]
    if len(best) > 1:
        best.sort(key=lambda p: (len(p.unknown(native.names)), p.name))
    if not best and 2 * len(native.names & METRICS.keys()) < len(native.names):
        best = [peculiar] if (peculiar := _by_peculiar_keys(native)) else []
    return _as_written(best[0], native) if best else _by_likeness(native)


@lru_cache(maxsize=64)  # the tables of a log hold the same keys
def meaningful(keys: frozenset[str]) -> frozenset[str]:
    """Return the native keys that a trainer maps, or whose name may be that of a metric or clock.

    The other keys have no meaning, whichever trainer wrote the log.
    """
    native, (names, patterns) = Keys(keys), _names_of_all()
    known = (keys & names).union(*map(native.matching, patterns))
    like = {key for key in keys - known if metric_of(key) or metric_of(key, language=True) or readings(key)}
    return frozenset({*known, *like, *clocks(keys)})


@cache
def _names_of_all() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return every name and every pattern of a metric or clock, in all versions of all trainers."""
    tables = _tables_of_versions()
    lists = [keys for table in tables for part in ("axis", "components") for keys in table.get(part, {}).values()]
    lists += [metric["keys"] for table in tables for metric in table.get("metrics", {}).values() if "keys" in metric]
    names = {name for names in lists for name in names}
    patterns = {name for name in names if is_pattern(name)}
    return frozenset(names - patterns), tuple(sorted(patterns))


def _knows(name: str, keys: Keys) -> bool:
    """Return whether a profile has at least half of the metrics that a log's names mean, or HANDFUL of them.

    Profiles of methods other than PPO have no metrics and always pass.
    """
    if not _profile(name).ppo_family:
        return True
    mean = {key for key in keys.names if metric_of(key) or metric_of(key, language=True)}
    known = len(mean - _profile(name).unknown(mean))
    return known >= HANDFUL or 2 * known >= len(mean)


def trainers_in(layouts: Iterable[frozenset[str]]) -> dict[frozenset[str], str]:
    """Return layout → trainer for the layouts of a log's records that show a trainer of the PPO family.

    There may be as many layouts as records, so that one layout is examined for each set of fingerprints.
    """
    layouts = list(layouts)
    native = Keys(frozenset().union(*layouts))
    signs = [sign for raw in _tables().values() for sign in raw["fingerprint"]["any"] if native.has_all(sign)]
    telling: dict[tuple[bool, ...], list[frozenset[str]]] = {}
    for layout in layouts:
        telling.setdefault(tuple(map(Keys(layout).has_all, signs)), []).append(layout)
    names = {shown: trainer_of(alike[0]) for shown, alike in telling.items() if any(shown)}
    return {layout: name for shown, name in names.items() if name for layout in telling[shown]}


def trainer_of(keys: frozenset[str]) -> str | None:
    """Return the trainer of the PPO family that keys show; for an extension the trainer that it extends."""
    detected = detect(keys)
    if detected is None or not detected.is_trainer or not detected.ppo_family:
        return None
    return str(_tables()[detected.name].get("extends", detected.name))


def _by_peculiar_keys(keys: Keys) -> Profile | None:
    """Return the profile of a log without a fingerprint whose keys only one trainer uses."""
    owners = [owner for key in keys.names if (owner := _peculiar().get(key)) and not _is_common(key)]
    counted = Counter(name for name, _ in owners).most_common(1)
    if not counted or counted[0][1] < PECULIAR:
        return None
    name = counted[0][0]
    speaks_of_ppo = any(owner == name and metric in PPO_ONLY for owner, metric in owners)
    return _profile(name) if speaks_of_ppo and not any(map(keys.has, _fingerprints()[name].none_of)) else None


@cache
def _peculiar() -> Mapping[str, tuple[str, str]]:
    """Return key → (profile, metric) for keys that only one trainer uses."""
    owners: dict[str, set[tuple[str, str]]] = {}
    for raw in _tables().values():
        for metric, table in raw.get("metrics", {}).items():
            for key in table["keys"]:
                owners.setdefault(key, set()).add((raw.get("extends", raw["name"]), metric))
    alone = {key: held for key, held in owners.items() if len({name for name, _ in held}) == 1}
    return {key: min(held) for key, held in alone.items()}


def speaks_of_ppo(profile: Profile, keys: Iterable[str]) -> bool:
    """Return whether a log has a metric that only methods of the PPO family log."""
    held = frozenset(keys)
    return any(held.intersection(profile.metrics[name].keys) for name in PPO_ONLY & profile.metrics.keys())


def _is_common(key: str) -> bool:
    """Return whether a name is one that anybody may choose."""
    return key in METRICS or ("/" not in key and metric_of(key) is not None)


#: Metrics whose estimator is known under our own name, and unknown in logs of other trainers.
_ESTIMATED = frozenset({"approx_kl", "clip_fraction"})


def _by_likeness(keys: Keys) -> Profile | None:
    """Return the canonical profile with guesses for the other keys, None if no key has a meaning."""
    plain = _without_whole_rewards(_profile(CANONICAL).resolved(keys.names))
    mapped = {key for metric in plain.metrics.values() for key in metric.keys}
    found = _with_guesses(plain, keys.names - mapped, keys)
    if COUNTERS.issuperset(name for name, metric in found.metrics.items() if any(map(keys.has, metric.keys))):
        return None
    steps = tuple(dict.fromkeys((*plain.axis["step"], *clocks(keys.names))))
    if found.fuzzy:  # another trainer, whose estimators may differ from ours
        plain_names = {n: dataclasses.replace(m, estimator=None) for n, m in found.metrics.items() if n in _ESTIMATED}
        found = dataclasses.replace(found, metrics=dict(found.metrics) | plain_names)
    kind = "grpo" if of_language(keys.names) and of_groups(keys.names) else plain.algorithm
    return dataclasses.replace(found, axis=dict(found.axis) | {"step": steps}, algorithm=kind)


def _without_whole_rewards(profile: Profile) -> Profile:
    """Return a profile without parts of the reward whose name is the whole reward's ("reward/avg_reward")."""
    parts = {name: metric for name, metric in profile.metrics.items() if name.startswith("reward_component")}
    whole = {
        name for name, metric in parts.items() if any(metric_of(key) for key in metric.keys if not is_pattern(key))
    }
    kept = {name: metric for name, metric in profile.metrics.items() if name not in whole}
    return dataclasses.replace(profile, metrics=kept) if whole else profile


def as_written(name: str, keys: Iterable[str]) -> Profile:
    """Return a trainer's profile for a log with these native keys, whether they show the trainer or not.

    Raises:
        DoctorError: there is no such profile (exit code 2).
    """
    held = Keys(keys)
    return (_by_likeness(held) if name == CANONICAL else None) or _as_written(profile(name), held)


def _as_written(found: Profile, keys: Keys) -> Profile:
    """Return a trainer's profile for a log, with guesses for the keys that it does not know."""
    profile = found.resolved(keys.names)
    return _with_guesses(profile, profile.unknown(keys.names), keys)


def _with_guesses(profile: Profile, left: Iterable[str], keys: Keys) -> Profile:
    """Return a profile with metrics guessed from the names of some keys, unless another key has the metric.

    The estimator of a guessed metric is unknown, and so is what it was averaged over.
    """
    named = {name for name, metric in profile.metrics.items() if any(map(keys.has, metric.keys))}
    left = frozenset(left)
    guessed = {raw: name for raw, name in aliases(left, keys.names).items() if name not in named}
    several = {raw: siblings(raw, left) for raw in guessed}
    metrics = {
        name: MetricProfile(name=name, keys=(raw,), columns=several[raw], over=over(name))
        for raw, name in guessed.items()
    }
    guessed |= {key: guessed[raw] for raw, columns in several.items() for key in columns}
    if axis := _rows_of_minibatches(profile, keys):
        profile = dataclasses.replace(profile, axis=dict(profile.axis) | axis)
    return dataclasses.replace(profile, metrics=dict(profile.metrics) | metrics, fuzzy=guessed) if guessed else profile


#: Clocks of a log with one record per minibatch.
_OF_ROWS = ("update", "epoch", "minibatch")


def _rows_of_minibatches(profile: Profile, keys: Keys) -> dict[str, tuple[str, ...]]:
    """Return the columns that number updates, epochs and minibatches, if names show updates and minibatches."""
    held = {part for part in _OF_ROWS if any(map(keys.has, profile.axis.get(part, ())))}
    meant = {role_of(key): key for key in sorted(keys.names, reverse=True)}
    if "minibatch" in held or "minibatch" not in meant or not {"update"} & {*held, *meant}:
        return {}
    return {part: (meant[part],) for part in _OF_ROWS if part in meant and part not in held}


def near_misses(key: str, n: int = 3) -> tuple[str, ...]:
    """Return names close to an unknown key: canonical metrics first, then native keys of any trainer."""
    import difflib

    native = {k for p in profiles().values() for metric in p.metrics.values() for k in metric.keys if "*" not in k}
    likely = [found] if (found := metric_of(key)) else []
    for names in (METRICS, native):
        by_form = {squashed(name): name for name in sorted(names, reverse=True)}
        close = difflib.get_close_matches(squashed(key), by_form, n=n, cutoff=0.7)
        likely += [by_form[form] for form in close]
    return tuple(dict.fromkeys(name for name in likely if name != key))[:n]


#: Score of a name at the end of a nested key that the trainer writes at the top level.
NESTED = 0.5
#: Score that shows a trainer (one name of its own and a common one), and its ratio to the next trainer's score.
ENOUGH, LEAD = 1.2, 1.3
#: Settings that only configurations of the PPO family have.
OF_PPO = frozenset(
    {
        *("ppo_epochs", "num_minibatches", "clip_range", "clip_range_high", "clip_range_dual", "gae_lambda"),
        *("num_generations", "steps_per_generation", "updates_per_batch", "advantage_estimator"),
    }
)
#: Settings of methods that learn from a replay buffer; two of them show one.
_REPLAY = frozenset(
    {
        *("exploration_fraction", "exploration_final_eps", "target_update_interval", "target_network_frequency"),
        *("learning_starts", "replay_buffer_class", "replay_buffer_config", "replay_buffer_kwargs", "train_freq"),
        *("policy_frequency", "target_policy_noise", "policy_delay", "dueling", "double_q", "n_step_returns"),
    }
)


@frozen
class Likeness:
    """The trainer that the names in a configuration show, or the nearest few if they show none."""

    name: str | None
    nearest: tuple[str, ...] = ()


def likeliest(keys: Collection[str], profiles: Mapping[str, Profile]) -> Likeness:
    """Return the trainer whose own names are most frequent in a configuration."""
    names = frozenset(keys)
    tails = frozenset(part for key in names for part in _tails(key))
    known = {name: p for name, p in profiles.items() if p.ppo_family and name != "canonical"}
    owners = _owners(known.values())
    scores = {
        name: sum(_worth(keys, names, tails, owners) for keys in profile.config.values())
        for name, profile in known.items()
    }
    ordered = sorted(scores, key=lambda name: (-scores[name], "extends" in profiles[name].raw, name))
    first = ordered[0]
    rivals = [name for name in ordered[1:] if profiles[name].family != profiles[first].family]
    ahead = not rivals or scores[first] >= LEAD * scores[rivals[0]]
    if scores[first] >= ENOUGH and ahead:
        return Likeness(name=first)
    return Likeness(name=None, nearest=tuple(name for name in ordered[:3] if scores[name] > 0))


def imported(imports: Iterable[str]) -> str | None:
    """Return the only trainer that a program imports, None if it imports none or several."""
    names = {p.name for what in imports for p in profiles().values() if what.startswith(p.import_names)}
    return next(iter(names)) if len(names) == 1 else None


def learns_from_replay(keys: Collection[str]) -> bool:
    """Return whether this is a configuration of DQN, SAC or a similar method."""
    return len(_REPLAY & {key.rpartition(".")[2] for key in keys}) > 1


def _tails(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[start:]) for start in range(1, len(parts))]


def _worth(keys: tuple[str, ...], names: frozenset[str], tails: frozenset[str], owners: Mapping[str, int]) -> float:
    """Return the score of a setting, which is low if many trainers share its name."""
    found = [(1.0 if key in names else NESTED) / owners[key] for key in keys if key in names or key in tails]
    return max(found, default=0.0)


def _owners(profiles: Iterable[Profile]) -> Mapping[str, int]:
    """Return how many families of trainers use each key."""
    used = {(profile.family, key) for profile in profiles for keys in profile.config.values() for key in keys}
    return Counter(key for _, key in used)
