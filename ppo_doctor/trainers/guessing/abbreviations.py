"""Parse letters and abbreviations in the names of unknown scripts.

Each spelling has several meanings with a cost in nats; other columns and the values decide between them (`matching`).
Names that the grammar of names (`trainers.names`) reads are not looked up here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import product

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.trainers.guessing.weights import (
    BARE_PART,
    CUT,
    FEW_LETTERS,
    IGNORED_GROUP,
    LONGEST_CUT,
    MOST_READINGS,
    MOST_WORDS,
    SINGLE_LETTER,
)
from ppo_doctor.trainers.names import CAMEL, metric_meant, spelled, spelled_out
from ppo_doctor.trainers.vocabulary import english

#: spelling → concepts that it may stand for → cost. Concepts are those of `vocabulary`, and "gain" (an objective, whose
#: sign is turned), "error", "squared", "per" and "delta".
MEANINGS: Mapping[str, Mapping[str, float]] = {
    "a": {"policy": 0.7, "advantage": 0.8, "action": 2.0},
    "b": {"": 0.7},
    "c": {"critic": 0.7, "clip": 1.0},
    "d": {"delta": 0.2},
    "e": {"entropy": 0.9, "episode": 1.0, "error": 1.3},
    "f": {"fraction": 0.3},
    "g": {"return": 0.6, "gradient": 0.9},
    "h": {"entropy": 0.2},
    "j": {"gain": 0.3, "return": 0.5},
    "k": {"kl": 1.2},
    "l": {"loss": 0.1, "length": 2.0},
    "m": {"mean": 0.7, "minibatch count": 0.5},
    "n": {"norm": 0.7, "count": 0.7},
    "p": {"policy": 0.4},
    "q": {"critic": 0.7},
    "r": {"reward": 0.6, "return": 0.6, "ratio": 1.4},
    "s": {"surrogate": 1.4, "entropy": 1.0, "std": 1.6},
    "t": {"step": 0.9},
    "u": {"update": 1.2},
    "v": {"value": 0.1},
    "w": {"importance": 1.2},
    "acting": {"policy": 0.3},
    "chi": {"clip fraction": 1.0},
    "phi": {"critic": 0.5},
    "theta": {"policy": 0.3},
    "alpha": {"learning_rate": 1.2},
    "cf": {"clip fraction": 0.2},
    "cfrac": {"clip fraction": 0.0},
    "cfr": {"clip fraction": 0.2},
    "crt": {"critic": 0.3},
    "delta": {"delta": 0.0},
    "dev": {"deviation": 0.0},
    "div": {"kl": 0.6},
    "dist": {"deviation": 0.8},
    "dw": {"update_norm": 0.5},
    "dtheta": {"update_norm": 0.2},
    "en": {"entropy": 0.8},
    "expl": {"explained": 0.3},
    "entr": {"entropy": 0.0},
    "entrop": {"entropy": 0.0},
    "eps": {"episode": 1.0, "clip": 1.0},
    "err": {"error": 0.0},
    "error": {"error": 0.0},
    "eta": {"learning_rate": 0.8},
    "fr": {"fraction": 0.4},
    "gain": {"gain": 0.0},
    "gn": {"gradient norm": 0.2},
    "gr": {"gradient": 0.7},
    "ir": {"ratio": 0.8},
    "isr": {"importance ratio": 0.3},
    "iw": {"importance": 0.3},
    "lrate": {"learning_rate": 0.0},
    "ls": {"loss": 0.3},
    "lss": {"loss": 0.1},
    "mn": {"mean": 0.3},
    "mse": {"error squared": 0.2},
    "nent": {"entropy": 0.5},
    "nup": {"update count": 0.3},
    "nupd": {"update count": 0.2},
    "obj": {"gain": 0.4},
    "objective": {"gain": 0.3},
    "occ": {"critic": 1.5},
    "outside": {"clip": 1.3},
    "outfrac": {"clip fraction": 0.7},
    "oob": {"clip fraction": 0.4},
    "out": {"clip": 1.3},
    "pct": {"fraction": 0.1},
    "perc": {"fraction": 0.2},
    "rat": {"ratio": 0.2},
    "r2": {"explained": 0.4},
    "rsq": {"explained": 0.5},
    "rtn": {"return": 0.1},
    "saturated": {"clip fraction": 1.0},
    "spread": {"std": 0.5},
    "sr": {"success fraction": 0.6},
    "sig": {"action std": 0.6},
    "sup": {"max": 0.2},
    "inf": {"min": 0.4},
    "sur": {"surrogate": 0.3},
    "td": {"critic": 0.3},
    "tot": {"": 0.1},
    "val": {"value": 0.3},
    "ve": {"value error": 0.6},
    "win": {"success": 0.2},
    "wr": {"success fraction": 0.7},
}
#: Units and other words that do not change what a number is.
_NEUTRAL = (
    "bit bits nat nats avg ma mavg ema hist cur curr now stat tb info this our my sq last latest recent team"
    " inner outer true eff span range minmax bounds extremes interval"
)
NEUTRAL_WORDS = frozenset(_NEUTRAL.split())
#: metric → phrases of concepts beyond those of the grammar, each with its cost.
PHRASES: Mapping[str, Mapping[str, float]] = {
    "policy_loss": {
        "gain": 0.4,
        "gain policy": 0.0,
        "gain clip policy?": 0.3,
        "gain surrogate policy?": 0.0,
        "surrogate|policy objective": 0.2,
        "policy error": 1.2,
        "policy": 0.7,
        "policy gradient": 0.1,
    },
    "value_loss": {
        "critic|value|return|baseline error squared?": 0.1,
        "baseline loss": 0.1,
        "error squared": 0.6,
        "error": 1.0,
        "critic|value fit": 0.5,
        "return loss": 0.8,
        "critic": 0.3,
        "value": 0.3,
    },
    "entropy": {"entropy new": 0.1, "entropy sampled": 0.1},
    "approx_kl": {"kl delta|step|difference": 0.1, "kl new|old|batch|sample": 0.2, "policy delta": 1.2},
    "probe_kl": {"kl after policy?": 0.1},
    "clip_fraction": {
        "clip": 0.4,
        "clip count": 1.5,
        "ratio clip": 0.3,
        "clip sample|token": 0.4,
        "clip fraction policy": 0.1,
    },
    "clip_range": {"clip": 1.0},
    "ratio_mean": {"ratio|importance delta|deviation|difference": 0.3},
    "ratio_abs_dev": {"ratio|importance delta|deviation|difference|absolute absolute?": 0.3},
    "grad_norm": {"gradient": 0.2, "norm": 1.3, "gradient size|absolute|norm|length policy?": 0.1},
    "learning_rate": {"step size": 0.4},
    "explained_variance": {"explained fraction": 0.0, "value explained fraction": 0.0},
    "optimizer_steps": {
        "update|step|optimizer_step batch|iteration|rollout per?": 0.1,
        "update|step|optimizer_step count": 0.5,
        "gradient count": 0.2,
        "update|optimizer_step": 1.6,
        "minibatch count": 0.5,
    },
    "epochs_executed": {"epoch": 0.9, "epoch count": 0.2, "epoch batch|iteration|update per?": 0.2},
    "episode_return": {"episode": 2.5, "return|reward total|sum|last": 0.2, "return sum running|mean": 0.3},
    "episode_length": {"length step?": 0.3, "step episode per?": 0.2},
    "action_std": {"std": 1.0, "std new": 0.8},
    "values_mean": {"critic mean": 0.3},
    "update_norm": {"policy delta norm": 0.3, "norm delta": 0.5},
    "success_rate": {"success": 0.0},
    "loss": {"total": 1.6},
    "frac_reward_zero_std": {"zero variance|std group fraction?": 0.2},
}
#: Words of other methods: nothing is inferred in a log with one of them.
_OF_OTHERS_WORDS = (
    "gan_loss gen_loss discriminator disc replay_buffer replay_size dqn ddqn sac td3 ddpg qf target_q double_q"
    " alpha_loss ent_coef_loss temperature_loss"
)
OF_OTHERS = frozenset(_OF_OTHERS_WORDS.split())
#: Words of other tasks: nothing is inferred in such a log unless other names are plainly those of a policy.
_OF_OTHER_TASKS_WORDS = (
    "auc auroc bleu elbo f1 iou map ppl perplexity precision psnr recall recon reconstruction rouge ssim"
    " wer tderror val_loss test_loss valid_loss mae rmse ndcg mrr dice logloss sharpe"
)
OF_OTHER_TASKS = frozenset(_OF_OTHER_TASKS_WORDS.split())


@frozen
class Reading:
    """A metric that a name may mean, the cost in nats, and how numbers are converted: value * scale + offset."""

    metric: str
    cost: float
    scale: float = 1.0
    offset: float = 0.0
    #: the base of the logarithms that the numbers are, 0 if they are none
    antilog: float = 0.0
    #: the concepts of the name without the policy or critic that it belongs to
    form: frozenset[str] = frozenset()


_Meaning = tuple[frozenset[str], float]


@cache
def _by_concepts() -> Mapping[frozenset[str], Mapping[str, float]]:
    """Return the sets of concepts that match phrases, each with its metrics and their costs."""
    metrics: dict[frozenset[str], dict[str, float]] = {}
    for metric, phrases in PHRASES.items():
        for phrase, cost in phrases.items():
            for concepts in spelled_out(phrase):
                metrics.setdefault(concepts, {})[metric] = cost
    return metrics


#: Concepts that name only a part of the model.
_PARTS = frozenset({"policy", "value", "critic"})
#: Concepts of a ratio minus 1.
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
_SYMBOL = lazy_pattern("[" + "".join(_SIGNS) + "]")
#: A ratio minus 1: "rho-1", "1-rho".
_FROM_ONE = lazy_pattern(r"(?<=[A-Za-z_) ])[-\N{MINUS SIGN}]\s?1\b|\b1\s?[-\N{MINUS SIGN}](?=[A-Za-z_(])")
#: A size, as mathematicians write it: "|g|", "||g||".
_SIZE = lazy_pattern(r"\|{1,2}([^|]{1,20})\|{1,2}")
#: A factor: "kl*1e3", "lr (x1000)".
_FACTOR = lazy_pattern(r"[x×*·]\s?(10{2,8}|1e-?\d)\b", re.IGNORECASE)
#: A unit: "lr_1e-4".
_UNIT = lazy_pattern(r"[_ ](1e-\d)\Z", re.IGNORECASE)
#: One of two action values, which PPO does not have.
_TWO_CRITICS = lazy_pattern(r"(?<![a-z])l?_?q(f|_)?[12](?!\d)")
_PART = lazy_pattern(r"[/|:.@>\\()\[\]{} ]+|__")
#: Capitals that are a word before a small letter: "EVc", "KLo".
_SHORT = lazy_pattern(r"(?<![A-Za-z])(EV(?!al)|KL|LR|GN)(?=[a-z])")
_WORD = lazy_pattern(r"k[123](?![a-z0-9])|(?<![a-z])r(?:2(?![0-9])|_sq(?![a-z]))|[a-z]+")


@lru_cache(maxsize=1 << 12)
def words_of(key: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each part of a key, in lower case; Greek letters by their names."""
    key = _SHORT.sub(r"\1_", key)
    text = _FACTOR.sub(" ", _FROM_ONE.sub(" deviation ", _SIZE.sub(r" absolute_\1 ", _UNIT.sub("", english(key)))))
    text = _SYMBOL.sub(lambda sign: _SIGNS[sign[0]], text)
    text = "".join(_latin(c) for c in unicodedata.normalize("NFKD", text))
    parts = [
        tuple(word.replace("_", "") for word in _WORD.findall(CAMEL.sub(" ", part).lower()))
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
    """Tell whether a key has a word of another method than PPO."""
    return not _pairs(key).isdisjoint(OF_OTHERS) or _TWO_CRITICS.search(key.lower()) is not None


def of_other_tasks(key: str) -> bool:
    """Tell whether a key has a word of another task than training a policy."""
    return not _pairs(key).isdisjoint(OF_OTHER_TASKS)


def _pairs(key: str) -> set[str]:
    """Return the words of a key, and each two neighbours joined by an underscore."""
    return {"_".join(words[i : i + n]) for words in words_of(key) for n in (1, 2) for i in range(len(words))}


@lru_cache(maxsize=1 << 12)
def readings(key: str, *, language: bool = False) -> tuple[Reading, ...]:
    """Return the cheapest reading of each metric that a name may mean; nothing if a word is unknown."""
    parts = words_of(key)
    if not parts or sum(map(len, parts)) > MOST_WORDS:
        return ()
    factor = float(found[1]) if (found := _FACTOR.search(key)) else 1.0
    if found is None and (unit := _UNIT.search(key)):
        factor = 1.0 / float(unit[1])
    best: dict[str, Reading] = {}
    single = SINGLE_LETTER if sum(len(word) for words in parts for word in words) == 1 else 0.0
    for concepts, cost in _combined(parts):
        sign, from_one = -1.0 if "gain" in concepts else 1.0, bool(concepts & _DEVIATIONS)
        cost += single if concepts <= _PARTS else 0.0  # noqa: PLW2901 - of this reading
        for metric, more in _metrics(concepts, language):
            if metric not in best or cost + more < best[metric].cost:
                offset = 1.0 if from_one and metric == "ratio_mean" else 0.0
                scale, form = sign / factor, concepts - _PARTS
                best[metric] = Reading(metric=metric, cost=cost + more, scale=scale, offset=offset, form=form)
    return tuple(sorted(best.values(), key=lambda reading: reading.cost))


def _metrics(concepts: frozenset[str], language: bool) -> Iterator[tuple[str, float]]:
    plain = metric_meant(concepts, language=language)
    if plain is not None:
        yield plain, BARE_PART if concepts <= _PARTS else 0.0
    for form in (concepts, concepts - {"mean"}, concepts - {"mean", "token", "sample", "batch", "learner"}):
        if costs := _by_concepts().get(form):
            yield from costs.items()
            return


def _combined(parts: tuple[tuple[str, ...], ...]) -> list[_Meaning]:
    """Return the sets of concepts that a key may mean; the words of a group may be ignored."""
    found = _meanings(parts[-1])
    for group in parts[:-1]:
        found = _together(found, [*_meanings(group), (frozenset(), IGNORED_GROUP)])
    return found


def _together(some: Iterable[_Meaning], others: Iterable[_Meaning]) -> list[_Meaning]:
    """Return the cheapest combinations of the meanings of two parts."""
    found = [(c | d, cost + more) for (c, cost), (d, more) in product(some, others)]
    return sorted(found, key=lambda each: each[1])[:MOST_READINGS]


def _meanings(words: tuple[str, ...]) -> list[_Meaning]:
    """Return what words may mean, the longest spelling first; nothing if a word is unknown."""
    if not words:
        return [(frozenset(), 0.0)]
    longest = next((n for n in range(min(len(words), 4), 1, -1) if spelled("_".join(words[:n])) is not None), 1)
    heads = _word_meanings(words[0]) if longest == 1 else _plainly("_".join(words[:longest]))
    return _together(heads, _meanings(words[longest:]))


def _plainly(word: str) -> list[_Meaning]:
    concepts = spelled(word)
    return [] if concepts is None else [(concepts, 0.0)]


@lru_cache(maxsize=1 << 12)
def _word_meanings(word: str) -> tuple[_Meaning, ...]:
    """Return what a word may mean: as spelled, as an abbreviation, or cut into two or three abbreviations."""
    if word in NEUTRAL_WORDS:
        return ((frozenset(), 0.0),)
    found = _uncut(word)
    if not found and len(word) <= LONGEST_CUT:
        found = list(_cut(word))
    return tuple(sorted(found, key=lambda each: each[1])[:MOST_READINGS])


def _uncut(word: str) -> list[_Meaning]:
    """Return what a word means in the grammar of names and as an abbreviation; of a letter only the latter."""
    found = [(frozenset(c.split()), cost) for c, cost in MEANINGS.get(word, {}).items()]
    return found if len(word) == 1 else [*_plainly(word), *found]


def _cut(word: str) -> Iterator[_Meaning]:
    for at in range(1, len(word)):
        head, rest = word[:at], word[at:]
        if min(len(head), len(rest)) == 1 and len(word) > FEW_LETTERS + (len(rest) > 1):
            continue
        tails = _uncut(rest) or (list(_cut(rest)) if len(word) <= FEW_LETTERS else [])
        for (h, ch), (t, ct) in product(_uncut(head), tails):
            yield h | t, ch + ct + CUT
