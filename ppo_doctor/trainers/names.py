"""Parse a key into words of known meaning, and map sets of meanings to metrics, arrays or settings.

The name is the part of a key after its last separator. Groups before it may add a meaning that the name lacks
("loss/policy", "advantages/mean") or say that the number belongs to something else ("eval/reward"). A name with an
unknown word has no meaning, because a wrong guess is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, product
from itertools import count as count_from

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
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

#: Largest number of words in one spelling, and number of characters of a key that are parsed.
MOST_WORDS, LONGEST = 4, 200
#: Shortest spelling that is recognised within a compound word.
SHORTEST = 2
#: Slots whose words say that a number does not describe the training of the policy.
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
#: Concepts that have no meaning alone, such as statistics; their group then belongs to the name.
_WITHOUT_SUBJECT = frozenset(c for c, slot in _SLOTS.items() if slot in ("statistic", "side", "estimator"))


@frozen
class Name:
    """A parsed key: the concepts of its name and of its groups, and its unknown words."""

    key: str
    concepts: frozenset[str]
    groups: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()

    def slot(self, slot: str) -> tuple[str, ...]:
        """Return the concepts of name and groups that belong to a slot, such as "statistic" → ("std",)."""
        return tuple(sorted(c for c in self.concepts | self.groups if _SLOTS[c] == slot))

    def __str__(self) -> str:
        by_slot = {slot: concepts for slot in WORDS if (concepts := self.slot(slot))}
        return ", ".join(f"{slot} {' '.join(concepts)}" for slot, concepts in by_slot.items())


_Meaning = tuple[frozenset[str], tuple[str, ...]]
_REMARK = lazy_pattern(r"@\w+$|(?<=[a-z])_v\d+$|\[[^]]*\]|\{[^}]*\}|<[^>]*>")
_SEPARATOR = lazy_pattern(r"[/|:.@>\\]|__")
CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: A word; digits are ignored except in estimators such as k3 and in Adam's betas.
_WORD = lazy_pattern(r"(?:k[123]|beta[12])(?![a-z0-9])|[a-z]+")


@lru_cache(maxsize=1 << 16)
def parse(key: str) -> Name:
    """Return the concepts of the words of a key."""
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


#: Concepts that are ignored unless one of these others is there: both sides of a trainer have versions and log-probs.
_IDLE = {
    **dict.fromkeys(("learner", "worker"), frozenset({"version", "logprob"})),
    "optimizer": frozenset({"step"}),
}


def _is_quantity(concepts: frozenset[str]) -> bool:
    return any(_SLOTS[concept] in ("quantity", "part") for concept in concepts)


@lru_cache(maxsize=1 << 14)
def _part(part: str) -> _Meaning:
    """Return the concepts and unknown words of a part of a key between two separators."""
    return _meanings(_WORD.findall(CAMEL.sub(" ", part).lower()))


def _meanings(words: list[str]) -> _Meaning:
    """Return the concepts of words, trying the longest spelling first, and the unknown words."""
    concepts: set[str] = set()
    unknown = []
    at = 0
    while at < len(words):
        size = next((n for n in range(MOST_WORDS, 0, -1) if "_".join(words[at : at + n]) in _SPELLED), 0)
        if size:
            concepts |= _SPELLED["_".join(words[at : at + size])]
        elif (split := _split(words[at])) is not None:
            concepts |= split
        else:
            unknown.append(words[at])
        at += size or 1
    return frozenset(concepts), tuple(unknown)


@lru_cache(maxsize=1 << 14)
def _split(word: str) -> frozenset[str] | None:
    """Return the concepts of a compound word ("approxkl"), None if a part of it is unknown.

    The longest spelling is tried first at each position.
    """
    if word in _JOINED:
        return _SPELLED[_JOINED[word]]
    for end in range(len(word) - 1, SHORTEST - 1, -1):
        if word[:end] in _JOINED and (rest := _split(word[end:])) is not None:
            return _SPELLED[_JOINED[word[:end]]] | rest
    return None


#: Last parts that give the axis ("rewards/step") or the data ("return/eval") of the group before → the group to add.
_ALONE: dict[_Meaning, list[_Meaning]] = {(frozenset({of}), ()): [] for of in ("step", "time", "iteration", "frame")}
_ALONE |= {data: [data] for word in ("learner", "evaluation", "val", "valid") if (data := (frozenset({word}), ()))}


def _phrases(table: Mapping[str, str]) -> Mapping[frozenset[str], str]:
    return {words: name for name, all_ in table.items() for phrase in all_.split(",") for words in spelled_out(phrase)}


def spelled_out(phrase: str) -> Iterator[frozenset[str]]:
    """Yield the sets of words that match a phrase; "a|b" is one of the two words, "a?" is optional."""
    choices = [word.rstrip("?").split("|") + [""] * word.endswith("?") for word in phrase.split()]
    return (frozenset(filter(None, words)) for words in product(*choices))


_METRICS, _SETTINGS, _ARRAYS = _phrases(METRICS), _phrases(SETTINGS), {**_phrases(ARRAYS), **_phrases(OPEN_ARRAYS)}


#: Concepts of a place or of averaging, which are ignored if a phrase does not have them.
_OPTIONAL = ("learner", "rollout", "sampled", "sample", "sequence", "token", "epoch", "batch", "minibatch")
#: Concept → the optional one that is not ignored with it: tokens of a prompt differ from a prompt.
_OPTIONAL_BUT = {"prompt": "token", "stop": "epoch", "step": "minibatch"}
#: Names whose metric depends on the kind of training → (metric of an agent in an environment, of a language model).
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
#: Metrics that count the progress of a run, which many logs put into a group of times.
COUNTERS = frozenset({"env_steps", "iteration", "optimizer_steps", "optimizer_steps_total"})
_AMONG_TIMES = COUNTERS | {"fps"}
#: Groups that decide the metric themselves, whatever the kind of training.
_DECIDING = frozenset(
    {"reference", "engine", "evaluation", "completion", "objective", "old", "critic", "policy", "episode"}
)
#: Groups of another model, text or data; a phrase that does not contain them does not match.
_BINDING = frozenset({"reference", "evaluation", "prompt", "running", "next"})
#: Concepts whose numbers differ for the policy of the rollout engine.
_OF_POLICIES = frozenset({"kl", "ratio", "importance", "clip", "logprob", "entropy"})
#: Groups of a critic, which contain mostly numbers of the critic.
_CRITICS = frozenset({"critic", "value"})
#: Metrics that are never computed on validation data, so that "val" means values.
_NEVER_EVALUATED = ("ratio_", "advantages_", "explained_variance", "values_", "value_clip_", "masked_")
#: Group that does not add a concept to names other than the losses.
_NO_TERM = frozenset({"loss"})
_PRODUCT = lazy_pattern(r"\A[^\W\d_]{1,6} ?[*·×] ?(?=[^\W\d])")  # "beta*KL"


@lru_cache(maxsize=1 << 16)
def metric_of(key: str, *, language: bool = False) -> str | None:
    """Return the canonical metric of a key, None if it is not clear.

    `language` says that a language model is trained: then a bare "kl" is the KL to the reference model, and a return
    belongs to a token.
    """
    name = parse(key)
    if _PRODUCT.search(key):
        return "kl_term" if "kl" in name.concepts else None
    if name.unknown or not name.concepts:
        return None
    kinds = _by_kind(name)
    metric = kinds[language] if kinds else _phrase_of(name, _METRICS)
    ignored = frozenset({"time"}) if metric in _AMONG_TIMES and key.startswith("time/") else frozenset()
    if any(_SLOTS[c] in ELSEWHERE for c in name.concepts | name.groups - ignored):
        return None
    if name.groups & {"val", "valid"} and metric != "eval_return" and not (metric or "").startswith(_NEVER_EVALUATED):
        return None
    metric = "values_mean" if metric == "reward_mean" and "value" in name.groups else metric  # the critic's estimate
    return metric if metric is None or not name.groups & _CRITICS or metric.startswith(IN_CRITICS) else None


def spelled(words: str) -> frozenset[str] | None:
    """Return the concepts of words joined by underscores or written together, None if they are unknown."""
    return _SPELLED[words] if words in _SPELLED else None if "_" in words else _split(words)


def metric_meant(concepts: frozenset[str], *, language: bool = False) -> str | None:
    """Return the metric of a set of concepts, None if there is none or it does not describe the training."""
    if any(_SLOTS.get(each, "other") in ELSEWHERE for each in concepts):
        return None
    name = Name(key="", concepts=concepts)
    kinds = _by_kind(name)
    return kinds[language] if kinds else _phrase_of(name, _METRICS)


def _by_kind(name: Name) -> tuple[str | None, str | None] | None:
    """Return the metrics of a name for both kinds of training, None if its metric does not depend on the kind."""
    concepts = name.concepts - {"mean"}
    if concepts not in _BY_KIND or name.groups & (_BINDING if "loss" in concepts else _DECIDING | _BINDING):
        return None
    return _BY_KIND[concepts]


def _phrase_of(name: Name, table: Mapping[frozenset[str], str]) -> str | None:
    """Return the entry of a table whose phrase matches a name with as many concepts of its groups as possible."""
    concepts = name.concepts - {"mean"}
    groups = name.groups - concepts - {"mean", "batch"}
    for wanted in dict.fromkeys((name.concepts, *_without_optional(concepts))):
        lendable = groups - _NO_TERM if wanted in table and wanted - {"value", "policy"} else groups
        for more in (2, 1, 0):
            wider = (_of_values(wanted.union(lent)) for lent in combinations(sorted(lendable), more))
            entries = {table[phrase] for phrase in wider if phrase in table and not _foreign(name.groups, phrase)}
            if len(entries) == 1:
                return entries.pop()
    return None


def _without_optional(concepts: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield concepts without 0, 1, 2 … of the optional ones, in their order."""
    kept = {_OPTIONAL_BUT[each] for each in _OPTIONAL_BUT.keys() & concepts}
    spare = [each for each in _OPTIONAL if each in concepts - kept]
    for size in range(len(spare) + 1):
        yield from (concepts.difference(dropped) for dropped in combinations(spare, size))


def _foreign(groups: frozenset[str], phrase: frozenset[str]) -> bool:
    """Return whether a group says that the number belongs to something that the phrase does not contain."""
    return bool((groups & _BINDING) - phrase) or ("engine" in groups - phrase and bool(phrase & _OF_POLICIES))


def _of_values(concepts: frozenset[str]) -> frozenset[str]:
    """Return concepts with "critic" replaced by "value", unless it is the only one."""
    return concepts - {"critic"} | {"value"} if "critic" in concepts and len(concepts) > 1 else concepts


def role_of(key: str, *, loosely: bool = False) -> str | None:
    """Return the role of an array of a dump by its name, None if it is not clear.

    Roles in `OPEN_ARRAYS` leave several possibilities. `loosely` ignores unknown words.
    """
    spelled = _SYMBOL.sub(lambda match: SYMBOLS[match[0]], SHAPE.sub("", key))
    name, counted = parse(spelled), parse(NUMBERED.sub("id", CAMEL.sub("_", spelled)))
    uncounted = Name(key=key, concepts=counted.concepts - COUNTED, groups=counted.groups, unknown=counted.unknown)
    parsed = (name, counted, uncounted)
    roles = [None if each.unknown and not loosely else _phrase_of(each, _ARRAYS) for each in parsed]
    ordinal = roles[1] or roles[2]
    return roles[0] or (ordinal if ordinal in ORDINALS else None)


_SYMBOL = lazy_pattern(rf"(?<![A-Za-z])[{''.join(SYMBOLS)}](?![A-Za-z])")


def setting_of(key: str) -> str | None:
    """Return the canonical setting of a key in a configuration, None if it is not clear.

    Settings in groups of another model or of an evaluation are not guessed. A group named for the KL contains the
    coefficient and the target of the penalty, and "reference" in a group of a schedule is its start.
    """
    name = parse(key)
    concepts = name.groups - {"schedule"} if name.concepts == {"reference"} else name.concepts
    elsewhere = {c for c in concepts | name.groups - {"settings", "system"} if _SLOTS[c] in ELSEWHERE}
    if name.unknown or not concepts or name.groups & _BINDING or elsewhere:
        return None
    setting = _SETTINGS.get(_of_values(concepts | (name.groups & {*_CRITICS, "kl"})))
    return "ref_kl_target" if setting == "target_kl" and "kl" in name.groups else setting


#: Fewest keys of settings in a record of settings.
FEWEST_SETTINGS = 3


def is_settings(keys: Collection[str]) -> bool:
    """Return whether a record contains settings: several, not all of them metrics too, and no other metric."""
    settings = {key for key in keys if setting_of(key)}
    metrics = {key for key in keys if (metric := metric_of(key)) and metric not in COUNTERS}
    return metrics <= settings and len(settings) >= FEWEST_SETTINGS and not settings <= metrics


#: Concepts that occur only in logs of language models.
_OF_LANGUAGE = frozenset({"completion", "token", "prompt"})
#: Metrics that GRPO and similar methods log of groups of answers, and metrics of runs with a critic or episodes.
_OF_GROUPS = frozenset({"reward_std", "advantages_std", "frac_reward_zero_std", "reward_group_std"})
_OF_CRITICS = frozenset(
    {"value_loss", "explained_variance", "values_mean", "returns_mean", "returns_std", "episode_return", "env_steps"}
    | {"episode_length", "fps", "action_std", "success_rate"}
)


def of_language(keys: Iterable[str]) -> bool:
    """Return whether the keys of a log show that a language model is trained.

    They name a method, completions, a reference model, or groups of answers without a critic or episodes, as in GRPO.
    The objective of GRPO has one KL, to the reference (Shao et al. 2024, equation 3), which a bare "kl" then means.
    """
    keys = tuple(keys)
    named = any(map(_GROUP_METHOD.search, keys)) or any(
        (name.concepts | name.groups) & _OF_LANGUAGE or _names_reference(name) for name in map(parse, keys)
    )
    return named or of_groups(keys)


#: Methods that train language models on groups of answers.
_GROUP_METHOD = lazy_pattern(r"grpo|rloo", re.IGNORECASE)


def _names_reference(name: Name) -> bool:
    return bool({"kl", "logprob"} & name.concepts and {"reference", "objective"} & (name.concepts | name.groups))


def of_groups(keys: Iterable[str]) -> bool:
    """Return whether the keys of a log show that the answers to a prompt are compared, without a critic."""
    metrics = {metric_of(key) for key in keys}
    return bool(metrics & _OF_GROUPS) and not metrics & _OF_CRITICS


def is_statistic(key: str) -> bool:
    """Return whether a key names only a statistic, a side or an estimator, without its subject."""
    name = parse(key)
    return bool(name.concepts) and not name.unknown and name.concepts <= _WITHOUT_SUBJECT


def of_machine(key: str) -> bool:
    """Return whether the name or a group of a key means time or the machine."""
    name = parse(key)
    return any(_SLOTS[concept] in ("time", "system") for concept in name.concepts | name.groups)


def aliases(keys: Iterable[str], beside: Iterable[str] = ()) -> Mapping[str, str]:
    """Return key → metric for the keys that have one; of several keys of one metric, the plainest is kept.

    `beside` are further keys of the log, which help to recognise the kind of training.
    """
    keys = sorted(keys, key=lambda key: (key.count("/"), len(key), key))
    language = of_language({*keys, *beside})
    meant = {key: metric_of(key, language=language) for key in keys}
    if language and any(metric_of(key) == "ref_kl" for key in {*keys, *beside}):  # then a bare KL is the other one
        meant |= {
            key: metric_of(key) for key in keys if parse(key).concepts - {"mean"} == {"kl"} and _by_kind(parse(key))
        }
    if any(metric == "episode_return" and not _by_kind(parse(key)) for key, metric in meant.items()):
        returns = (key for key in keys if _by_kind(parse(key)) and "return" in parse(key).concepts)
        meant |= {key: metric_of(key, language=True) for key in returns}
    elif any(metric in _OF_BATCHES and _is_statistic(key) for key, metric in meant.items()):
        plain = {metric_of(key) for key in {*keys, *beside} if not _by_kind(parse(key))}
        if plain & _REWARDS:  # in a log without another one, the return is the reward
            returns = (key for key in keys if _by_kind(parse(key)) and "return" in parse(key).concepts)
            meant |= {key: metric_of(key, language=True) for key in returns if _is_statistic(key)}
    norms = {key: _of_policy(key) for key in {*keys, *beside} if metric_of(key) == _WHOLE}
    if len(set(norms.values())) > 1:
        meant |= {key: _OF_ACTOR for key in keys if norms.get(key) == max(norms.values())}
    chosen: dict[str, str] = {}
    for key, name in sorted(meant.items(), key=lambda each: -_of_policy(each[0]) if each[1] in _OF_PARTS else 0):
        if name is not None:
            chosen.setdefault(name, key)
    return {raw: name for name, raw in chosen.items()}


#: Statistics of a batch: in a log with these, a return with a statistic in its name is a target of the critic.
_OF_BATCHES = frozenset({"advantages_mean", "advantages_std", "returns_std", "values_mean", "values_std"})


#: What a run is rewarded with, under another name than a return.
_REWARDS = frozenset({"reward_mean", "reward_total", "success_rate", "episode_return", "eval_return"})


def _is_statistic(key: str) -> bool:
    return key.lower().endswith(("_mean", "_std", "/mean", "/std"))


#: Metrics for which the policy's key is preferred to that of the whole model.
_OF_PARTS = frozenset({"update_norm"})
#: The norm that is clipped, and the policy's own norm in logs that have both.
_WHOLE, _OF_ACTOR = "grad_norm", "actor_grad_norm"


def _of_policy(key: str) -> int:
    """Return 2 if the last part of a key names the policy, 1 if only a group does, else 0."""
    return sum("policy" in parse(name).slot("part") for name in (key, key.rpartition("/")[2]))


#: A number that distinguishes columns of one quantity: of a worker, a rank, an agent, an environment.
_NUMBER = lazy_pattern(
    r"(?<![A-Za-z0-9])((?:worker|rank|agent|env|actor|player|learner|device|gpu)?)(\d{1,4})(?![A-Za-z0-9])"
)
#: End of a metric → how several columns of it are combined; other metrics are averaged.
_OVER = (("_min", "min"), ("_max", "max"), ("grad_norm", "max"), ("update_norm", "max"))


def siblings(key: str, keys: Container[str]) -> tuple[str, ...]:
    """Return the columns of one quantity whose keys differ only in a number, if `key` is the first of several."""
    for match in _NUMBER.finditer(key):
        before, first, after = key[: match.start(2)], int(match[2]), key[match.end(2) :]
        count = next(n for n in count_from(first) if f"{before}{n}{after}" not in keys)
        if first in (0, 1) and count > first + 1:
            return tuple(f"{before}{n}{after}" for n in range(first, count))
    return ()


def over(metric: str) -> str:
    """Return how several columns of a metric are combined: "min" or "max" for bounds, "max" for norms, else "mean"."""
    return next((rule for end, rule in _OVER if metric.endswith(end)), "mean")


def squashed(text: str) -> str:
    """Return the letters and digits of a text in lower case, without units and remarks in brackets."""
    return "".join(c for c in re.sub(r"[(\[{].*?[)\]}]", "", text[:LONGEST]).lower() if c.isalnum())


def clocks(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that may count the steps of a log, most trusted first."""
    ranked = []
    for key in keys:
        name = squashed(english(re.split(r"[/.]", key)[-1]))
        if metric_of(key) in COUNTERS or (name in CLOCKS and not of_machine(key)):
            ranked.append((CLOCKS.index(name) if name in CLOCKS else len(CLOCKS), key))
    return tuple(key for _, key in sorted(ranked))
