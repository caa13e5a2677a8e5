"""Weak hints: words of people's own scripts that suggest metrics, in any of their forms and several languages.

`hints.json` has concept → language → words; each concept suggests some metrics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ppo_doctor.model.patterns import lazy_pattern

#: Columns that are no metric of ours but are recognised, so that no metric is given to them.
OF_NO_METRIC = CLIPPED, MEAN_ABSOLUTE = "grad_norm_clipped", "advantages_abs_mean"
#: The task's own quantities.
OF_THE_TASK = "task"
#: concept → the metrics that its words suggest
_METRICS: Mapping[str, str] = {
    "return": "episode_return reward_mean",
    "reward": "episode_return reward_mean reward_std",
    "length": "episode_length response_length",
    "success": "success_rate",
    "policy": "policy_loss grad_norm entropy learning_rate approx_kl clip_fraction",
    "critic": "value_loss explained_variance values_mean",
    "loss": "policy_loss value_loss loss",
    "gain": "policy_loss",
    "entropy": "entropy",
    "kl": "approx_kl ref_kl probe_kl",
    "reference": "ref_kl kl_term",
    "clip": "clip_fraction",
    "ratio": "ratio_mean ratio_abs_dev ratio_max ratio_min",
    "gradient": f"grad_norm {CLIPPED}",
    "rate": "learning_rate",
    "explained": "explained_variance",
    "deviation": "action_std reward_std ratio_abs_dev advantages_std",
    "count": "optimizer_steps",
    "advantage": f"advantages_std {MEAN_ABSOLUTE}",
    "passes": "epochs_executed",
    "after": CLIPPED,
    "absolute": f"{MEAN_ABSOLUTE} ratio_abs_dev",
    "truncated": "truncated_fraction",
    "flat": "frac_reward_zero_std",
    "groups": "frac_reward_zero_std reward_std",
    "term": "kl_term",
    "total": "loss episode_return reward_mean",
    "share": "clip_fraction success_rate frac_reward_zero_std explained_variance learning_rate",
    "later": "probe_kl",
    "previous": "approx_kl",
    "largest": "ratio_max",
    "smallest": "ratio_min",
    "task": OF_THE_TASK,
}
#: metric → the concept whose word a name needs, beside another word that suggests the metric
_MARKS: Mapping[str, str] = {
    "kl_term": "term",
    CLIPPED: "after",
    MEAN_ABSOLUTE: "absolute",
    "probe_kl": "later",
    "loss": "total",
    "ratio_max": "largest",
    "ratio_min": "smallest",
    "advantages_std": "advantage",
    "reward_std": "deviation",
}
MARKED = frozenset(_MARKS)


@cache
def words_for(concept: str) -> frozenset[str]:
    """Return the words of a concept, in all languages."""
    return frozenset(word for words in _table()[concept].values() for word in words.split())


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    table: Mapping[str, Mapping[str, str]] = json.loads(
        Path(__file__).with_name("hints.json").read_text(encoding="utf-8")
    )
    return table


@cache
def by_word() -> Mapping[str, frozenset[str]]:
    """Return word → the metrics that it suggests: those of each of its concepts."""
    found: dict[str, frozenset[str]] = {}
    for concept, metrics in _METRICS.items():
        for word in words_for(concept):
            found[word] = found.get(word, frozenset()) | frozenset(metrics.split())
    return found


#: Letters for an importance ratio in papers and scripts.
RATIOS = frozenset("rwq")
#: Letters that two forms of a word share, at least ("snip", "snipped"), and letters of a shortened word ("rec").
STEM, CUT_SHORT = 4, 3
#: Short words that are no shortened form of another word.
_WHOLE_WORDS = (
    "run med exp max min avg num per pre all new old raw sub set log abs out now day val err tot std"
    " dev obs act env buf tst trn eta tau phi psi chi rho adv mov cum end top low big one two his win"
    " mem idx fps sps sec len pct bit nat ent kld div pen dif rat net enc dec lag gap lim hit map key sum"
)
_WHOLE = frozenset(_WHOLE_WORDS.split())
#: Letters of a known word after or before one other letter ("vfit", "nopt"), and of both together at most.
WHOLE, SHORT = 3, 5
_VOWELS = lazy_pattern(r"[aeiou]")
_DOUBLED = lazy_pattern(r"(.)\1")


@cache
def hinted(word: str) -> frozenset[str]:
    """Return the metrics that a word, or another form of it, suggests; nothing for an unknown word."""
    hints = by_word()
    if word in hints or len(word) < CUT_SHORT or word in _WHOLE:
        return hints.get(word, frozenset())
    kin = [w for w in hints if w.startswith(word) or (len(w) >= STEM and word.startswith(w))]
    if not kin and len(word) <= SHORT:
        kin = [part for part in (word[1:], word[:-1]) if len(part) >= WHOLE and part in hints]
    if not kin and not _VOWELS.search(word):
        kin = [w for w in hints if len(w) > len(word) and _consonants(w) == _consonants(word)]
    return frozenset[str]().union(*(hints[w] for w in kin))


@cache
def _consonants(word: str) -> str:
    return _DOUBLED.sub(r"\1", _VOWELS.sub("", word))


@cache
def hints_of(word: str) -> tuple[frozenset[str], ...]:
    """Return the metrics that a word suggests, or those of each of two known words that are written as one."""
    hints = by_word()
    cuts = [] if word in hints else [(word[:at], word[at:]) for at in range(WHOLE, len(word) - WHOLE + 1)]
    both = [(a, b) for a, b in cuts if a in hints and b in hints]
    if not both and word[:1] == "l" and word[1:] in hints:  # "Lactor"
        return hints["loss"], hints[word[1:]]
    if not both and (whole := hinted(word)):
        return (whole,)
    if not both:  # one of them cut short: "polhav"
        both = [(a, w) for a, b in cuts if a in hints for w in hints if w.startswith(b) and len(w) >= STEM]
    if not both:
        return (frozenset(),)
    longest = max(both, key=lambda pair: min(map(len, pair)))
    return hints[longest[0]], hints[longest[1]]


@cache
def apart(word: str) -> tuple[str, ...]:
    """Return a word, or "ratio" and the bound if a letter for a ratio precedes the word for a bound ("rtop")."""
    bounds = words_for("largest") | words_for("smallest")
    return ("ratio", word[1:]) if word[0] in RATIOS and word[1:] in bounds and word not in by_word() else (word,)


def marked(words: Sequence[str]) -> frozenset[str]:
    """Return the metrics for which words include the one that they need: the term of a KL, a clipped norm.

    A single word for a loss means the whole loss.
    """
    alone = frozenset({"loss"}) & hinted(words[0]) if len(words) == 1 else frozenset[str]()
    return alone | frozenset(
        metric
        for metric, concept in _MARKS.items()
        for mark in words_for(concept).intersection(words)
        if any(word != mark and metric in hinted(word) for word in words)
    )
