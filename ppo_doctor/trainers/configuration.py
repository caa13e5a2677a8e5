"""Settings of a run: flatten and redact what files contain, and name it canonically, each value with its origin."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Setting, SourceRef
from ppo_doctor.model.words import ConfigValue
from ppo_doctor.trainers.config_formats import parse_value, value_of
from ppo_doctor.trainers.detection import CANONICAL, names_of_settings, profiles
from ppo_doctor.trainers.detection import profile as framework_profile
from ppo_doctor.trainers.names import setting_of
from ppo_doctor.trainers.settings import SETTINGS, nearest

if TYPE_CHECKING:
    from ppo_doctor.model.words import How
    from ppo_doctor.trainers.profiles import Profile

REDACTED = "[redacted]"
#: An integer of more bits is larger than the largest float.
_MOST_BITS = 1023
#: Largest number of settings of one file; more are data, or a document whose references expand without end.
MOST_SETTINGS = 50_000
#: Settings, recognised by meaning, that are on or off; the others are numbers.
SWITCHES = frozenset({"normalize_advantages"})
#: Setting → keys that have a meaning only in configurations with this setting: symbols of GRPO's objective with groups
#: of answers (Shao et al. 2024, algorithm 1), and epochs with minibatches.
WITH_SETTING = {
    "num_generations": {"beta": "kl_coef", "epsilon": "clip_range", "mu": "ppo_epochs"},
    "num_minibatches": {"epochs": "ppo_epochs"},
}
#: Largest number of keys of one file that are compared with known names.
MOST_COMPARED = 2_000

_CAMEL = r"(?<=[a-z0-9])(?=[A-Z])"
_HIDDEN_KEY = (
    r"(?i)(^|[._-])(api[._-]?key|access[._-]?key|private[._-]?key|secret|token|password|passwd|passphrase|credential"
    r"|auth|authorization|bearer)s?($|[._-])"
)
#: Keys under which even a number is a secret; not "token", because of max_tokens = 512.
_HIDDEN_NUMBER_KEY = r"(?i)(^|[._-])(api[._-]?key|secret|password|passwd|passphrase|pin)($|[._-])"
_HIDDEN_VALUE = (
    r"(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|AKIA[A-Z0-9]{12,}"
    r"|xox[abp]-[A-Za-z0-9-]{10,}|(?<![A-Za-z0-9])[0-9a-f]{40}(?![A-Za-z0-9])|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
    r"|(?i:bearer)\s+[\w.~+/-]{8,}=*|://[^/\s:@]*:[^/\s@]+@)"
)


@frozen
class Found:
    """Flat settings of one origin, as written; `lines` has the line of each key in the file if it is known.

    `imports` are the names that a program imports, if the origin is one.
    """

    values: Mapping[str, ConfigValue]
    source: SourceRef
    how: How = "configured"
    lines: Mapping[str, int] = field(default_factory=dict)
    imports: tuple[str, ...] = ()

    def place(self, key: str) -> SourceRef:
        """Return the origin of a key, with its line if known."""
        line = self.lines.get(key)
        return self.source if line is None else SourceRef(path=self.source.path, line=line, key=key)


def redact(key: str, value: ConfigValue) -> ConfigValue:
    """Return the value, or a placeholder if key or value look like a secret or it is an integer beyond float64."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return (
            f"a number of {value.bit_length():,} bits"  # no setting, and as a number it would fail wherever it is used
        )
    words = re.sub(_CAMEL, "_", key)
    if isinstance(value, str):
        return REDACTED if re.search(_HIDDEN_KEY, words) or re.search(_HIDDEN_VALUE, value) else value
    if isinstance(value, int | float) and not isinstance(value, bool) and re.search(_HIDDEN_NUMBER_KEY, words):
        return REDACTED
    return value


def redact_text(text: str) -> str:
    """Return a line of text with everything that looks like a secret replaced."""
    return re.sub(_HIDDEN_VALUE, REDACTED, text)


_PAIR = lazy_pattern(r"([\w.-]+)[\"']?(?:\s*[:=]\s*|[ \t]+)[\"']?([^\s\"',;}]+)")


def holds_secret(line: str) -> bool:
    """Return whether a line of a configuration contains a value that looks like a secret."""
    pairs = _PAIR.findall(line)
    return redact_text(line) != line or any(redact(key, value_of(value)) == REDACTED for key, value in pairs)


def flatten(raw: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, ConfigValue]:
    """Return nested settings with keys joined by dots; W&B's `{"value": …}` wrappers are removed.

    Lists are left out except Adam's betas, which become "betas[0]" and "betas[1]".

    Raises:
        DoctorError: there are more than MOST_SETTINGS (exit code 2).
    """
    flat: dict[str, ConfigValue] = {}
    for key, value in raw.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}:
            value = value["value"]  # noqa: PLW2901 - unwrapping is the point
        if isinstance(value, Mapping) and depth < 8:
            flat.update(flatten(value, f"{name}.", depth + 1))
        elif value is None or isinstance(value, str | int | float | bool):
            flat[name] = redact(name, value)
        if name.endswith("betas"):
            flat |= {f"{name}[{place}]": beta for place, beta in enumerate(_betas(value))}
        if len(flat) > MOST_SETTINGS:
            raise DoctorError(f"more than {MOST_SETTINGS} settings: this is no configuration", code=ExitCode.USAGE)
    return flat


_TWO_NUMBERS = lazy_pattern(r"[(\[]\s*([\d.eE+-]{1,24})\s*,\s*([\d.eE+-]{1,24})\s*,?\s*[)\]]")


def _betas(value: object) -> tuple[int | float, ...]:
    """Return the two numbers of a list or of the text of one; otherwise nothing."""
    if isinstance(value, str) and (match := _TWO_NUMBERS.fullmatch(value.strip())):
        value = [parse_value(number) for number in match.groups()]
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    numbers = tuple(each for each in pair if isinstance(each, int | float) and not isinstance(each, bool))
    return numbers if len(numbers) == len(pair) == 2 else ()


def parse_setting(text: str) -> tuple[str, ConfigValue]:
    """Return key and value of one `KEY=VALUE` of `--set`.

    Raises:
        DoctorError: there is no `=` (exit code 2).
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise DoctorError(
            f"--set {text}: expected KEY=VALUE", hint="for example --set ppo_epochs=4", code=ExitCode.USAGE
        )
    return key.strip(), parse_value(value.strip())


def canonical_settings(profile: Profile, origins: Iterable[Found]) -> dict[str, Setting]:
    """Return settings by canonical name; the first of several origins wins, and framework defaults come last.

    Settings are recognised by their canonical name, by a native name, by a native name after the last dot of a key, or
    by the meaning of a key.
    """
    settings: dict[str, Setting] = {}
    names = _names(profile)
    for origin in origins:
        tails = _own_by_tail(origin.values)
        for name, keys in names.items():
            key = _key_in(origin.values, tails, keys) if name not in settings else None
            if key is not None:
                value = _within_float(_unquoted(origin.values[key]))
                settings[name] = Setting(key=key, value=value, how=origin.how, source=origin.place(key))
    for origin in origins:
        settings |= _guessed(origin, settings)
    return settings | _defaults(profile, settings)


def own_name(profile: Profile, name: str, setting: Setting) -> str | None:
    """Return the framework's name of a setting that a file gives by our name, None if the framework knows that name."""
    keys = profile.config.get(name, ())
    native = {key.rpartition(".")[2] for key in keys}
    if profile.name == CANONICAL or setting.how != "configured" or setting.key.rpartition(".")[2] != name or not keys:
        return None
    return None if name in native else keys[0]


def is_guess(profile: Profile, name: str, setting: Setting) -> bool:
    """Return whether a setting was recognised by the meaning of its key, not by a native or canonical name."""
    named = {name, *(key.rpartition(".")[2] for key in profile.config.get(name, ()))}
    return setting.how == "configured" and setting.key.rpartition(".")[2] not in named


def _guessed(origin: Found, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return further settings of an origin, recognised by the meaning of their keys.

    If several keys mean the same setting, the shortest is used if all values are equal, and otherwise none.
    """
    used = {setting.key for setting in settings.values()}
    present = {*settings, *map(setting_of, islice(origin.values, MOST_COMPARED))}
    symbols = {key: name for setting, keys in WITH_SETTING.items() if setting in present for key, name in keys.items()}
    fitting: dict[str, list[str]] = {}
    for key, value in islice(origin.values.items(), MOST_COMPARED):
        if key in used or isinstance(value, str | None):
            continue
        name = setting_of(key) or symbols.get(key.rpartition(".")[2])
        switch = name in SWITCHES
        yes_or_no = isinstance(value, bool) or (name == "clip_range_vf" and value in (0, 1))  # tianshou's value_clip=1
        if name is not None and name not in settings and yes_or_no is switch:
            fitting.setdefault(name, []).append(key)
    alike = {name: keys for name, keys in fitting.items() if len({origin.values[key] for key in keys}) == 1}
    single = {name: min(keys, key=len) for name, keys in alike.items()}
    return {
        name: Setting(key=key, value=_within_float(origin.values[key]), how=origin.how, source=origin.place(key))
        for name, key in single.items()
    }


def _within_float(value: ConfigValue) -> ConfigValue:
    """Return an integer beyond float64 as infinity, as readers of logs do, because arithmetic would raise."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return math.inf if value > 0 else -math.inf
    return value


def misspelt_settings(profile: Profile, origins: Sequence[Found], printed: Sequence[Found] = ()) -> dict[str, Setting]:
    """Return probably misspelt settings by the native name that was most likely meant.

    A key is not misspelt if any framework has it, or if the setting that it resembles is given too; settings that a log
    prints (`printed`) do not count as given for a file. Keys in the section of another model are compared only with the
    framework's keys in that section. For an unknown trainer, a file is compared with the framework whose names it uses.
    """
    files = [origin for origin in origins if not any(origin is one for one in printed)]
    known = profile if profile.name != CANONICAL else None
    misspelt = _misspelt_in(printed, known, _given(known, origins)) if known is not None else {}
    for origin in files:
        spelled = known or spelled_as(origin)
        if spelled is not None:
            misspelt |= _misspelt_in([origin], spelled, _given(spelled, files))
    return misspelt


def _given(profile: Profile, origins: Sequence[Found]) -> frozenset[str]:
    """Return the canonical names of the settings that origins give."""
    return frozenset(name for name, setting in canonical_settings(profile, origins).items() if setting.how != "default")


def spelled_as(origin: Found) -> Profile | None:
    """Return the framework whose names a file uses for its settings, None if it is unknown."""
    from ppo_doctor.trainers.detection import likeliest

    if origin.how != "configured" or not origin.values:
        return None
    like = likeliest(origin.values, profiles())
    return framework_profile(like.name) if like.name else None


def _misspelt_in(origins: Sequence[Found], profile: Profile, given: frozenset[str]) -> dict[str, Setting]:
    """Return the keys of origins that are misspellings of a setting that is not given."""
    names = [key.rpartition(".") for name, keys in profile.config.items() if name not in given for key in keys]
    tails = {tail for _, _, tail in names}
    misspelt: dict[str, Setting] = {}
    for origin in origins:
        for key, value in islice(origin.values.items(), MOST_COMPARED):
            before, dot, tail = key.rpartition(".")
            if value is None or tail in SETTINGS or tail in names_of_settings():
                continue
            others = _OTHERS & set(before.lower().split("."))
            near = nearest(tail, {name for above, _, name in names if above == before} if others else tails)
            if near is not None:
                misspelt[f"{before}{dot}{near}"] = Setting(
                    key=key, value=value, how=origin.how, source=origin.place(key)
                )
    return misspelt


def _unquoted(value: ConfigValue) -> ConfigValue:
    """Return a decimal number in quotes as a number, as trainers do, and other values unchanged."""
    number = parse_value(value.strip()) if isinstance(value, str) else None
    return number if isinstance(number, float) and math.isfinite(number) else value


def _names(profile: Profile) -> dict[str, tuple[str, ...]]:
    return {name: (*profile.config.get(name, ()), name) for name in sorted(profile.settings)}


#: Parts of a dotted key that say that a setting belongs to another model.
_OTHERS = frozenset({"critic", "ref", "reference", "ref_model", "reward", "reward_model", "rm", "value", "eval", "val"})


def _own_by_tail(values: Mapping[str, ConfigValue]) -> dict[str, list[str]]:
    """Return last part of a key → the keys that end with it and do not belong to another model.

    The constants of a program (N_STEPS) are the settings that trainers write in small letters.
    """
    own: dict[str, list[str]] = {}
    for name in values:
        before, _, tail = name.rpartition(".")
        if not before or not (_OTHERS & set(before.lower().split(".")) or _means_another(name)):
            for each in {tail, tail.lower()} if tail.isupper() else {tail}:
                own.setdefault(each, []).append(name)
    return own


def _means_another(key: str) -> bool:
    """Return whether a key means another setting than its last part alone, such as "target" in a section of the KL."""
    alone = setting_of(key.rpartition(".")[2])
    return alone is not None and setting_of(key) not in (None, alone)


def _key_in(values: Mapping[str, ConfigValue], tails: Mapping[str, list[str]], keys: tuple[str, ...]) -> str | None:
    """Return the key of a setting: a whole key, else the last part of one, the policy's before that of other models.

    Of several keys for the same setting, the first that is not null is used.
    """
    named = [key for key in keys if key in values]
    if named:
        return next((key for key in named if values[key] is not None), named[0])
    for key in keys:
        if key in tails:
            return min(
                tails[key], key=lambda name: ("actor" not in name and "policy" not in name, name.count("."), name)
            )
    return None


def _defaults(profile: Profile, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    source = SourceRef(path=f"{profile.title} default")
    known: dict[str, ConfigValue] = dict(profile.defaults) | dict.fromkeys(profile.unset)
    return {
        name: Setting(key=name, value=value, how="default", source=source)
        for name, value in known.items()
        if name not in settings
    }


def check_given(given: Mapping[str, ConfigValue] | None, profile: Profile) -> None:
    """Raise for settings of `--set` that the framework does not have, because a misspelt one would be ignored.

    Raises:
        DoctorError: the framework has no such setting (exit code 2); the hint holds near misses.
    """
    if not given:
        return
    known = {key for keys in profile.config.values() for key in keys} | profile.settings
    from difflib import get_close_matches

    for key in given:
        if key not in known and key.rpartition(".")[2] not in known:
            near = get_close_matches(key, sorted(known), n=3)
            hint = f"near: {', '.join(near)}" if near else f"known: {', '.join(sorted(profile.config))}"
            raise DoctorError(f"{profile.title} has no setting {key}", hint=hint, code=ExitCode.USAGE)


def as_written(origins: Sequence[Found]) -> dict[str, ConfigValue]:
    """Return all settings by their keys as written; the first origin wins."""
    merged: dict[str, ConfigValue] = {}
    for origin in reversed(origins):
        merged.update(origin.values)
    return merged


def files_of(origins: Iterable[Found]) -> tuple[str, ...]:
    """Return the files that settings come from, each once; those of `--set` come from none."""
    return tuple(dict.fromkeys(origin.source.path for origin in origins if origin.source.path != "--set"))


def algorithm_of(profile: Profile, settings: Mapping[str, Setting]) -> str:
    """Return the algorithm that settings name, else that of the framework."""
    named = settings.get("algorithm")
    return str(named.value).lower() if named and named.value else profile.algorithm
