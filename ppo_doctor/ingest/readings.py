"""All that a name may mean, each with its cost: what the grammar of names leaves open is for others to settle."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product

from ppo_doctor.ingest.abbreviations import MEANINGS, OF_OTHER_TASKS, OF_OTHERS, PHRASES, SAYS_NOTHING
from ppo_doctor.ingest.chinese import english
from ppo_doctor.ingest.naming import metric_meant, spelled, spelled_out
from ppo_doctor.model.frozen import frozen

#: Words of a name that are looked at, the longest word that is taken apart, and readings that are followed.
MOST_WORDS, LONGEST_SPLIT, MOST_READINGS = 6, 8, 64
#: What it costs to take a word apart, once for each cut, and to pass over a word in a group before the name.
CUT, PASSED = 0.4, 0.3
#: Letters of a word above which no letter by itself is looked for in it.
FEW_LETTERS = 4


@frozen
class Reading:
    """A metric that a name may mean, and what its numbers take to be that: -1 times a gain, 1 + a ratio's deviation.

    `form` are the concepts of the name but for whose they are, the policy's or the critic's: a script names both alike.
    """

    metric: str
    cost: float
    scale: float = 1.0
    offset: float = 0.0
    #: the base of the logarithms that the numbers are
    antilog: float = 0.0
    form: frozenset[str] = frozenset()


_Meaning = tuple[frozenset[str], float]
_LOOSE: Mapping[frozenset[str], tuple[tuple[str, float], ...]] = {
    words: tuple(
        (name, cost)
        for name, phrases in PHRASES.items()
        for phrase, cost in phrases.items()
        if words in set(spelled_out(phrase))
    )
    for phrases in PHRASES.values()
    for phrase in phrases
    for words in spelled_out(phrase)
}
#: Whose a number is, and what it costs that a name says only this and means the part's output, not its loss.
_PARTS, BARE = frozenset({"policy", "value", "critic"}), 0.5
#: The same for a letter that says no more.
LONE = 1.0
#: What says of a ratio that 1 was taken from it.
_DEVIATIONS = frozenset({"delta", "deviation", "difference"})
_SIGNS = {
    "%": " pct ",
    "∇": " gradient_norm ",
    "‖": " norm ",
    "Δ": " delta ",
    "π": " policy ",
    "θ": "_theta_",
    "φ": "_phi_",
    "∞": "_max_",
}
_SYMBOL = re.compile("[" + "".join(_SIGNS) + "]")
#: One taken from a ratio: what is left is how far it is from 1.
_FROM_ONE = re.compile(r"(?<=[A-Za-z_) ])[-\N{MINUS SIGN}]\s?1\b|\b1\s?[-\N{MINUS SIGN}](?=[A-Za-z_(])")
#: A size, as mathematicians write it: "|g|", "||g||".
_SIZE = re.compile(r"\|{1,2}([^|]{1,20})\|{1,2}")
#: A factor that a name tells: "kl*1e3", "lr (x1000)".
_FACTOR = re.compile(r"[x×*·]\s?(10{2,8}|1e-?\d)\b", re.IGNORECASE)
#: The unit in which a name says that its number is: "lr_1e-4".
_UNIT = re.compile(r"[_ ](1e-\d)\Z", re.IGNORECASE)
#: One of two action values, which no trainer of PPO has.
_TWO_CRITICS = re.compile(r"(?<![a-z])l?_?q(f|_)?[12](?!\d)")
_PART = re.compile(r"[/|:.@>\\()\[\]{} ]+|__")
#: Capitals that are one word, before a small letter: "EVc", "KLo".
_SHORT = re.compile(r"(?<![A-Za-z])(EV(?!al)|KL|LR|GN)(?=[a-z])")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"k[123](?![a-z0-9])|(?<![a-z])r(?:2(?![0-9])|_sq(?![a-z]))|[a-z]+")


@lru_cache(maxsize=1 << 12)
def words_of(key: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each part of a key, in lower case; Greek letters by their names."""
    key = _SHORT.sub(r"\1_", key)
    text = _FACTOR.sub(" ", _FROM_ONE.sub(" deviation ", _SIZE.sub(r" absolute_\1 ", _UNIT.sub("", english(key)))))
    text = _SYMBOL.sub(lambda sign: _SIGNS[sign[0]], text)
    text = "".join(_latin(c) for c in unicodedata.normalize("NFKD", text))
    parts = [
        tuple(word.replace("_", "") for word in _WORD.findall(_CAMEL.sub(" ", part).lower()))
        for part in _PART.split(text)
    ]
    return tuple(words for words in parts if words)


def _latin(char: str) -> str:
    """Return a letter without its marks, a Greek one by its name ("ρ" is "rho"), all else as it is."""
    if char.isascii():
        return char
    if unicodedata.category(char) == "Mn":
        return ""
    name = unicodedata.name(char, "")
    return f" {name.rpartition(' ')[2].lower()} " if name.startswith("GREEK") else char


def of_others(key: str) -> bool:
    """Tell whether a key speaks of another method than PPO's."""
    return not _pairs(key).isdisjoint(OF_OTHERS) or _TWO_CRITICS.search(key.lower()) is not None


def of_other_tasks(key: str) -> bool:
    """Tell whether a key speaks of another task than a policy's."""
    return not _pairs(key).isdisjoint(OF_OTHER_TASKS)


def _pairs(key: str) -> set[str]:
    """Return the words of a key, and each two that stand together."""
    return {"_".join(words[i : i + n]) for words in words_of(key) for n in (1, 2) for i in range(len(words))}


@lru_cache(maxsize=1 << 12)
def readings(key: str, *, language: bool = False) -> tuple[Reading, ...]:
    """Return what a name may mean, the cheapest reading of each metric; nothing where it holds a word nobody knows."""
    parts = words_of(key)
    if not parts or sum(map(len, parts)) > MOST_WORDS:
        return ()
    factor = float(found[1]) if (found := _FACTOR.search(key)) else 1.0
    if found is None and (unit := _UNIT.search(key)):
        factor = 1.0 / float(unit[1])
    best: dict[str, Reading] = {}
    lone = LONE if sum(len(word) for words in parts for word in words) == 1 else 0.0
    for concepts, cost in _combined(parts):
        sign, from_one = -1.0 if "gain" in concepts else 1.0, bool(concepts & _DEVIATIONS)
        cost += lone if concepts <= _PARTS else 0.0  # noqa: PLW2901 - of this reading
        for metric, more in _metrics(concepts, language):
            if metric not in best or cost + more < best[metric].cost:
                offset = 1.0 if from_one and metric == "ratio_mean" else 0.0
                form = concepts - _PARTS
                scale = sign / factor
                best[metric] = Reading(metric=metric, cost=cost + more, scale=scale, offset=offset, form=form)
    return tuple(sorted(best.values(), key=lambda reading: reading.cost))


def _metrics(concepts: frozenset[str], language: bool) -> Iterator[tuple[str, float]]:
    plain = metric_meant(concepts, language=language)
    if plain is not None:
        yield plain, BARE if concepts <= _PARTS else 0.0
    for form in (concepts, concepts - {"mean"}, concepts - {"mean", "token", "sample", "batch", "learner"}):
        if form in _LOOSE:
            yield from _LOOSE[form]
            return


def _combined(parts: tuple[tuple[str, ...], ...]) -> list[_Meaning]:
    """Return the sets of concepts that the words of a key may be together; words of a group may be passed over."""
    found = _meanings(parts[-1])
    for group in parts[:-1]:
        found = _together(found, [*_meanings(group), (frozenset(), PASSED)])
    return found


def _together(some: Iterable[_Meaning], others: Iterable[_Meaning]) -> list[_Meaning]:
    """Return every meaning of one with every meaning of another, the cheapest of them."""
    found = [(c | d, cost + more) for (c, cost), (d, more) in product(some, others)]
    return sorted(found, key=lambda each: each[1])[:MOST_READINGS]


def _meanings(words: tuple[str, ...]) -> list[_Meaning]:
    """Return what some words may be, longer spellings among them; nothing where one is unknown."""
    if not words:
        return [(frozenset(), 0.0)]
    longest = next((n for n in range(min(len(words), 4), 1, -1) if spelled("_".join(words[:n])) is not None), 1)
    heads = _of_word(words[0]) if longest == 1 else _plainly("_".join(words[:longest]))
    return _together(heads, _meanings(words[longest:]))


def _plainly(word: str) -> list[_Meaning]:
    concepts = spelled(word)
    return [] if concepts is None else [(concepts, 0.0)]


@lru_cache(maxsize=1 << 12)
def _of_word(word: str) -> tuple[_Meaning, ...]:
    """Return what a word may be by itself: as spelled, abbreviated, or two and three written together."""
    if word in SAYS_NOTHING:
        return ((frozenset(), 0.0),)
    found = _alone(word)
    if not found and len(word) <= LONGEST_SPLIT:
        found = list(_taken_apart(word))
    return tuple(sorted(found, key=lambda each: each[1])[:MOST_READINGS])


def _alone(word: str) -> list[_Meaning]:
    """Return what a word is in the grammar, and what it may be as an abbreviation.

    A letter that the grammar reads in one way is open here: "v" is a critic there, for it stands beside a word.
    """
    found = [(frozenset(c.split()), cost) for c, cost in MEANINGS.get(word, {}).items()]
    return found if len(word) == 1 else [*_plainly(word), *found]


def _taken_apart(word: str) -> Iterator[_Meaning]:
    for at in range(1, len(word)):
        head, rest = word[:at], word[at:]
        if min(len(head), len(rest)) == 1 and len(word) > FEW_LETTERS + (len(rest) > 1):
            continue
        tails = _alone(rest) or (list(_taken_apart(rest)) if len(word) <= FEW_LETTERS else [])
        for (h, ch), (t, ct) in product(_alone(head), tails):
            yield h | t, ch + ct + CUT
