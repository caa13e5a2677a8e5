"""Parse a name into words of known meaning, and map sets of meanings to metrics or arrays.

The name is the part after its last separator; a group before it may add a meaning that it lacks ("loss/policy",
"advantages/mean") or say that the number is of something else ("eval/reward"). A name with an unknown word is not
guessed, because a wrong guess is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, product
from itertools import count as count_from

from ppo_doctor.model.frozen import frozen
from ppo_doctor.trainers.phrases import (
    ARRAYS,
    CLOCKS,
    COUNTED,
    NUMBERED,
    OPEN_ARRAYS,
    ORDINALS,
    SETTINGS,
    SHAPE,
    SYMBOLS,
)
from ppo_doctor.trainers.vocabulary import COMPOUNDS, IN_CRITICS, METRICS, NEUTRAL, WORDS, english

#: Words of one spelling, and characters of a key that are looked at: nobody's name is longer.
MOST_WORDS, LONGEST = 4, 200
#: The shortest spelling that is looked for within a word that is written together.
SHORTEST = 2
#: Slots whose words say that a number is none of the policy's training.
ELSEWHERE = frozenset({"time", "system", "other"})

_SLOTS = {concept: slot for slot, concepts in WORDS.items() for concept in concepts}
_SPELLED: Mapping[str, frozenset[str]] = {
    **{word: frozenset() for word in NEUTRAL.split()},
    **{
        spelling: frozenset({concept})
        for words in WORDS.values()
        for concept, s in words.items()
        for spelling in s.split()
    },
    **{spelling: frozenset(concepts.split()) for concepts, s in COMPOUNDS.items() for spelling in s.split()},
}
_JOINED = {spelling.replace("_", ""): spelling for spelling in _SPELLED if len(spelling) >= SHORTEST}
#: Statistics and the like say nothing by themselves: their group is a part of the name.
_WITHOUT_SUBJECT = frozenset(c for c, slot in _SLOTS.items() if slot in ("statistic", "side", "estimator"))


@frozen
class Name:
    """What a key says: the meanings of its name and of its groups, and the words that nobody knows."""

    key: str
    concepts: frozenset[str]
    groups: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()

    def slot(self, slot: str) -> tuple[str, ...]:
        """Return the concepts of a slot that name and groups hold, such as "statistic" → ("std",)."""
        return tuple(sorted(c for c in self.concepts | self.groups if _SLOTS[c] == slot))

    def __str__(self) -> str:
        said = {slot: found for slot in WORDS if (found := self.slot(slot))}
        return ", ".join(f"{slot} {' '.join(found)}" for slot, found in said.items())


_Meaning = tuple[frozenset[str], tuple[str, ...]]
_REMARK = re.compile(r"@\w+$|(?<=[a-z])_v\d+$|\[[^]]*\]|\{[^}]*\}|<[^>]*>")
_SEPARATOR = re.compile(r"[/|:.@>\\]|__")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: A word; digits say nothing but for estimators such as k3, and Adam's betas.
_WORD = re.compile(r"(?:k[123]|beta[12])(?![a-z0-9])|[a-z]+")


@lru_cache(maxsize=1 << 16)
def parse(key: str) -> Name:
    """Return the meanings of a key's words."""
    plain = _REMARK.sub(" ", english(key[:LONGEST]))
    parts = [_part(part) for part in _SEPARATOR.split(plain) if _WORD.search(part.lower())]
    if len(parts) > 1 and parts[-1] in _ALONE and not parts[-2][1] and _is_quantity(parts[-2][0]):
        parts[:0] = _ALONE[parts.pop()]
    concepts, unknown = parts.pop() if parts else (frozenset(), ())
    while parts and not unknown and concepts <= _WITHOUT_SUBJECT:
        more, unknown = parts.pop()
        concepts |= more
    groups: frozenset[str] = frozenset().union(*(group for group, _ in parts))
    idle = frozenset(each for each, of in _IDLE.items() if not (concepts | groups) & of)
    return Name(key=key, concepts=concepts - idle, groups=groups - idle, unknown=unknown)


#: What says nothing of most numbers → of what it does. Both sides of a trainer have versions and log-probs.
_IDLE = {
    **dict.fromkeys(("learner", "worker"), frozenset({"version", "logprob"})),
    "optimizer": frozenset({"step"}),
}


def _is_quantity(concepts: frozenset[str]) -> bool:
    return any(_SLOTS[concept] in ("quantity", "part") for concept in concepts)


@lru_cache(maxsize=1 << 14)
def _part(part: str) -> _Meaning:
    """Return the meanings of what stands between two separators."""
    return _meanings(_WORD.findall(_CAMEL.sub(" ", part).lower()))


def _meanings(words: list[str]) -> _Meaning:
    """Return the concepts of words, the longest spelling first, and the words that are none."""
    found: set[str] = set()
    unknown = []
    at = 0
    while at < len(words):
        size = next((n for n in range(MOST_WORDS, 0, -1) if "_".join(words[at : at + n]) in _SPELLED), 0)
        if size:
            found |= _SPELLED["_".join(words[at : at + size])]
        elif (split := _split(words[at])) is not None:
            found |= split
        else:
            unknown.append(words[at])
        at += size or 1
    return frozenset(found), tuple(unknown)


@lru_cache(maxsize=1 << 14)
def _split(word: str) -> frozenset[str] | None:
    """Return the concepts of words that are written together ("approxkl"), None where a rest is left.

    The longest spelling is tried first at each place.
    """
    if word in _JOINED:
        return _SPELLED[_JOINED[word]]
    for end in range(len(word) - 1, SHORTEST - 1, -1):
        if word[:end] in _JOINED and (rest := _split(word[end:])) is not None:
            return _SPELLED[_JOINED[word[:end]]] | rest
    return None


#: What stands last and says on which axis ("rewards/step") or data ("return/eval") the group before it is → a group
_ALONE: dict[_Meaning, list[_Meaning]] = {(frozenset({of}), ()): [] for of in ("step", "time", "iteration", "frame")}
_ALONE |= {data: [data] for word in ("learner", "evaluation", "val", "valid") if (data := (frozenset({word}), ()))}


def _phrases(table: Mapping[str, str]) -> Mapping[frozenset[str], str]:
    return {words: name for name, all_ in table.items() for phrase in all_.split(",") for words in spelled_out(phrase)}


def spelled_out(phrase: str) -> Iterator[frozenset[str]]:
    """Yield the sets of words that a phrase stands for: of "a|b" one, "a?" or nothing."""
    choices = [word.rstrip("?").split("|") + [""] * word.endswith("?") for word in phrase.split()]
    return (frozenset(filter(None, words)) for words in product(*choices))


_METRICS, _SETTINGS, _ARRAYS = _phrases(METRICS), _phrases(SETTINGS), {**_phrases(ARRAYS), **_phrases(OPEN_ARRAYS)}


#: What adds a place, or a way of averaging, and may be left out where a phrase does not want it.
_OPTIONAL = ("learner", "rollout", "sampled", "sample", "sequence", "token", "epoch", "batch", "minibatch")
#: Beside these it is what the name is about: tokens of a prompt do not number prompts, the epoch of a stop is no stop.
_OPTIONAL_BUT = {"prompt": "token", "stop": "epoch", "step": "minibatch"}
#: Names that only the kind of training decides → (metric of an agent in an environment, of a language model).
_BY_KIND = {
    frozenset({"kl"}): ("approx_kl", "ref_kl"),
    frozenset({"kl", "loss"}): (None, "ref_kl"),
    frozenset({"kl", "max"}): ("approx_kl_max", None),
    frozenset({"return"}): ("episode_return", "returns_mean"),
    frozenset({"return", "min"}): ("episode_return_min", "returns_min"),
    frozenset({"return", "max"}): ("episode_return_max", "returns_max"),
    frozenset({"return", "std"}): (None, "returns_std"),
    frozenset({"step", "total"}): ("env_steps", None),
    frozenset({"length"}): ("episode_length", "response_length"),
}
#: What counts how far a run is, and stands beside its times in many logs.
COUNTERS = frozenset({"env_steps", "iteration", "optimizer_steps", "optimizer_steps_total"})
_BESIDE_TIMES = COUNTERS | {"fps"}
#: Groups that say it themselves.
_DECIDING = frozenset(
    {"reference", "engine", "evaluation", "completion", "objective", "old", "critic", "policy", "episode"}
)
#: Groups that name another model, another text or another data: what a number is says so, or is not known.
_BINDING = frozenset({"reference", "evaluation", "prompt", "running", "next"})
#: What is another number of the rollout engine's policy.
_OF_POLICIES = frozenset({"kl", "ratio", "importance", "clip", "logprob", "entropy"})
#: Groups of a critic, which hold little else than what is its own.
_CRITICS = frozenset({"critic", "value"})
#: What nobody computes on validation data, so that "val" is short for values.
_NEVER_EVALUATED = ("ratio_", "advantages_", "explained_variance", "values_", "value_clip_", "masked_")
#: A group of losses says nothing of these.
_NO_TERM = frozenset({"loss"})
_PRODUCT = re.compile(r"\A[^\W\d_]{1,6} ?[*·×] ?(?=[^\W\d])")  # "beta*KL"


@lru_cache(maxsize=1 << 16)
def metric_of(key: str, *, language: bool = False) -> str | None:
    """Return the canonical metric that a key means, None where that is not clear.

    `language` says that completions are trained on, so that a bare "kl" is the one to the reference model and a
    return that of a token.
    """
    name = parse(key)
    if _PRODUCT.search(key):
        return "kl_term" if "kl" in name.concepts else None
    if name.unknown or not name.concepts:
        return None
    kinds = _by_kind(name)
    found = kinds[language] if kinds else _found(name, _METRICS)
    beside = frozenset({"time"}) if found in _BESIDE_TIMES and key.startswith("time/") else frozenset()
    if any(_SLOTS[c] in ELSEWHERE for c in name.concepts | name.groups - beside):
        return None
    if name.groups & {"val", "valid"} and found != "eval_return" and not (found or "").startswith(_NEVER_EVALUATED):
        return None
    found = "values_mean" if found == "reward_mean" and "value" in name.groups else found  # what a critic says of it
    return found if found is None or not name.groups & _CRITICS or found.startswith(IN_CRITICS) else None


def spelled(words: str) -> frozenset[str] | None:
    """Return the concepts of words joined by underscores, or written together; None where they are no spelling."""
    return _SPELLED[words] if words in _SPELLED else None if "_" in words else _split(words)


def metric_meant(concepts: frozenset[str], *, language: bool = False) -> str | None:
    """Return the metric that a set of concepts is, None where it is none, or is of something else."""
    if any(_SLOTS.get(each, "other") in ELSEWHERE for each in concepts):
        return None
    name = Name(key="", concepts=concepts)
    kinds = _by_kind(name)
    return kinds[language] if kinds else _found(name, _METRICS)


def _by_kind(name: Name) -> tuple[str | None, str | None] | None:
    """Return what a name means in either kind of training, None where the kind does not decide it."""
    concepts = name.concepts - {"mean"}
    if concepts not in _BY_KIND or name.groups & (_BINDING if "loss" in concepts else _DECIDING | _BINDING):
        return None
    return _BY_KIND[concepts]


def _found(name: Name, table: Mapping[frozenset[str], str]) -> str | None:
    """Return the phrase that a name is with meanings of its groups, the more of them the better, or by itself."""
    concepts = name.concepts - {"mean"}
    groups = name.groups - concepts - {"mean", "batch"}
    for wanted in dict.fromkeys((name.concepts, *_without_optional(concepts))):
        lendable = groups - _NO_TERM if wanted in table and wanted - {"value", "policy"} else groups
        for more in (2, 1, 0):
            wider = (_of_values(wanted.union(lent)) for lent in combinations(sorted(lendable), more))
            found = {table[phrase] for phrase in wider if phrase in table and not _foreign(name.groups, phrase)}
            if len(found) == 1:
                return found.pop()
    return None


def _without_optional(concepts: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield concepts with ever fewer of those that may be left out, these in their order."""
    kept = {_OPTIONAL_BUT[each] for each in _OPTIONAL_BUT.keys() & concepts}
    spare = [each for each in _OPTIONAL if each in concepts - kept]
    for size in range(len(spare) + 1):
        yield from (concepts.difference(dropped) for dropped in combinations(spare, size))


def _foreign(groups: frozenset[str], phrase: frozenset[str]) -> bool:
    """Tell whether a group says that the number is of something that the phrase does not speak of."""
    return bool((groups & _BINDING) - phrase) or ("engine" in groups - phrase and bool(phrase & _OF_POLICIES))


def _of_values(concepts: frozenset[str]) -> frozenset[str]:
    """Return concepts with "value" for a critic of which something is said."""
    return concepts - {"critic"} | {"value"} if "critic" in concepts and len(concepts) > 1 else concepts


def role_of(key: str, *, loosely: bool = False) -> str | None:
    """Return what an array of a dump is, or may be (`OPEN_ARRAYS`), by its name, None where that is not clear.

    `loosely` leaves out words that nobody knows.
    """
    spelled = _SYMBOL.sub(lambda found: SYMBOLS[found[0]], SHAPE.sub("", key))
    name, counted = parse(spelled), parse(NUMBERED.sub("id", _CAMEL.sub("_", spelled)))
    uncounted = Name(key=key, concepts=counted.concepts - COUNTED, groups=counted.groups, unknown=counted.unknown)
    told = [None if each.unknown and not loosely else _found(each, _ARRAYS) for each in (name, counted, uncounted)]
    ordinal = told[1] or told[2]
    return told[0] or (ordinal if ordinal in ORDINALS else None)


_SYMBOL = re.compile(rf"(?<![A-Za-z])[{''.join(SYMBOLS)}](?![A-Za-z])")


def setting_of(key: str) -> str | None:
    """Return the canonical setting that a key of a configuration means, None where that is not clear.

    Its group says whose it is: what is not the policy's, or is of an evaluation, is not guessed. A group about the KL
    holds the penalty's coefficient and target, one of a schedule where it begins.
    """
    name = parse(key)
    concepts = name.groups - {"schedule"} if name.concepts == {"reference"} else name.concepts
    elsewhere = {c for c in concepts | name.groups - {"settings", "system"} if _SLOTS[c] in ELSEWHERE}
    if name.unknown or not concepts or name.groups & _BINDING or elsewhere:
        return None
    found = _SETTINGS.get(_of_values(concepts | (name.groups & {*_CRITICS, "kl"})))
    return "ref_kl_target" if found == "target_kl" and "kl" in name.groups else found


#: So many keys that mean settings make a record one of settings, with one among them that no trainer logs.
FEWEST_SETTINGS = 3


def is_settings(keys: Collection[str]) -> bool:
    """Tell whether a record holds settings: several, not all of them logged as well, and no metric that is none."""
    settings = {key for key in keys if setting_of(key)}
    metrics = {key for key in keys if (found := metric_of(key)) and found not in COUNTERS}
    return metrics <= settings and len(settings) >= FEWEST_SETTINGS and not settings <= metrics


#: Meanings that only the log of a language model holds.
_OF_LANGUAGE = frozenset({"completion", "token", "prompt"})
#: What GRPO and its kin log of a group of answers, and what only a run with a critic, or with episodes, has.
_OF_GROUPS = frozenset({"reward_std", "advantages_std", "frac_reward_zero_std", "reward_group_std"})
_OF_CRITICS = frozenset(
    {"value_loss", "explained_variance", "values_mean", "returns_mean", "returns_std", "episode_return", "env_steps"}
    | {"episode_length", "fps", "action_std", "success_rate"}
)


def of_language(keys: Iterable[str]) -> bool:
    """Tell whether the names of a log show that a language model is trained.

    They speak of completions, of a reference model, or of a group of answers without a critic and without episodes, as
    GRPO does: its objective has one KL, to the reference (Shao et al. 2024, equation 3), and a bare "kl" is that then.
    """
    keys = tuple(keys)
    spoken = any(map(_OF_GROUPED.search, keys)) or any(
        (name.concepts | name.groups) & _OF_LANGUAGE or _beside_reference(name) for name in map(parse, keys)
    )
    return spoken or of_groups(keys)


#: Methods that train on the answers of a language model.
_OF_GROUPED = re.compile(r"grpo|rloo", re.IGNORECASE)


def _beside_reference(name: Name) -> bool:
    return bool({"kl", "logprob"} & name.concepts and {"reference", "objective"} & (name.concepts | name.groups))


def of_groups(keys: Iterable[str]) -> bool:
    """Tell whether the names of a log show that the answers to a prompt are compared, without a critic."""
    found = {metric_of(key) for key in keys}
    return bool(found & _OF_GROUPS) and not found & _OF_CRITICS


def is_statistic(key: str) -> bool:
    """Tell whether a key names a mean, a bound, a side and the like, and nothing of which it is one."""
    name = parse(key)
    return bool(name.concepts) and not name.unknown and name.concepts <= _WITHOUT_SUBJECT


def of_machine(key: str) -> bool:
    """Tell whether a key speaks of time or of the machine, by its name or by a group of it."""
    name = parse(key)
    return any(_SLOTS[concept] in ("time", "system") for concept in name.concepts | name.groups)


def aliases(keys: Iterable[str], beside: Iterable[str] = ()) -> Mapping[str, str]:
    """Return raw → canonical for the keys that mean something; of several for one metric the plainest name.

    `beside` are further keys of the log, which tell what kind of training it is of.
    """
    keys = sorted(keys, key=lambda key: (key.count("/"), len(key), key))
    language = of_language({*keys, *beside})
    meant = {key: metric_of(key, language=language) for key in keys}
    if language and any(metric_of(key) == "ref_kl" for key in {*keys, *beside}):  # so that a bare one is the other
        meant |= {
            key: metric_of(key) for key in keys if parse(key).concepts - {"mean"} == {"kl"} and _by_kind(parse(key))
        }
    if any(found == "episode_return" and not _by_kind(parse(key)) for key, found in meant.items()):
        returns = (key for key in keys if _by_kind(parse(key)) and "return" in parse(key).concepts)
        meant |= {key: metric_of(key, language=True) for key in returns}
    elif any(found in _OF_BATCHES and _is_statistic(key) for key, found in meant.items()):
        meant |= {k: metric_of(k, language=True) for k in keys if _is_statistic(k) and _by_kind(parse(k))}
    norms = {key: _of_policy(key) for key in {*keys, *beside} if metric_of(key) == _WHOLE}
    if len(set(norms.values())) > 1:
        meant |= {key: _OF_ACTOR for key in keys if norms.get(key) == max(norms.values())}
    chosen: dict[str, str] = {}
    for key, name in sorted(meant.items(), key=lambda each: -_of_policy(each[0]) if each[1] in _OF_PARTS else 0):
        if name is not None:
            chosen.setdefault(name, key)
    return {raw: name for name, raw in chosen.items()}


#: Statistics of a batch: a return's that is named as they are is one of the critic's targets.
_OF_BATCHES = frozenset({"advantages_mean", "advantages_std", "returns_std", "values_mean", "values_std"})


def _is_statistic(key: str) -> bool:
    return key.lower().endswith(("_mean", "_std", "/mean", "/std"))


#: What is the policy's where a log has it apart from the whole.
_OF_PARTS = frozenset({"update_norm"})
#: What clipping looks at, for which the policy's stands in a log without it, and the policy's beside it.
_WHOLE, _OF_ACTOR = "grad_norm", "actor_grad_norm"


def _of_policy(key: str) -> int:
    """Return 1 where a key, folders included, names the policy, and 2 where its last part does so itself."""
    return sum("policy" in parse(name).slot("part") for name in (key, key.rpartition("/")[2]))


#: A number by which columns of one quantity are told apart: of a worker, a rank, an agent, an environment.
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])((?:worker|rank|agent|env|actor|player|learner|device|gpu)?)(\d{1,4})(?![A-Za-z0-9])"
)
#: What is a bound of others is so over several columns too; of other metrics the mean counts.
_OVER = (("_min", "min"), ("_max", "max"), ("grad_norm", "max"), ("update_norm", "max"))


def siblings(key: str, keys: Container[str]) -> tuple[str, ...]:
    """Return the columns of one quantity, of which a key is the first: alike but for a number, from 0 or 1 on."""
    for found in _NUMBER.finditer(key):
        before, first, after = key[: found.start(2)], int(found[2]), key[found.end(2) :]
        count = next(n for n in count_from(first) if f"{before}{n}{after}" not in keys)
        if first in (0, 1) and count > first + 1:
            return tuple(f"{before}{n}{after}" for n in range(first, count))
    return ()


def over(metric: str) -> str:
    """Return how a metric of several columns is one: by "min" and "max" for bounds, "max" for norms, else by "mean"."""
    return next((rule for end, rule in _OVER if metric.endswith(end)), "mean")


def squashed(text: str) -> str:
    """Return letters and digits only, in lower case; what stands in brackets is a unit or a remark."""
    return "".join(c for c in re.sub(r"[(\[{].*?[)\]}]", "", text[:LONGEST]).lower() if c.isalnum())


def clocks(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that may count the steps of a log, most trusted first; what is a time of the machine does not."""
    held = []
    for key in keys:
        name = squashed(english(re.split(r"[/.]", key)[-1]))
        if metric_of(key) in COUNTERS or (name in CLOCKS and not of_machine(key)):
            held.append((CLOCKS.index(name) if name in CLOCKS else len(CLOCKS), key))
    return tuple(key for _, key in sorted(held))
