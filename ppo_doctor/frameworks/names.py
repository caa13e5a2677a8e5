"""Names that nobody agreed on: what an unknown framework probably means by a key, or nothing if that is not clear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

#: canonical metric → names squashed to lower-case letters and digits, without "mean" or "avg" at either end
_ALIASES = {
    "policy_loss": "policyloss actorloss pgloss policygradientloss lossactor losspolicy losspi piloss surrogateloss"
    " losssurrogate surrogate clippedsurrogateloss aloss lossobjective actloss lossclip clippolicyloss policylosses"
    " actorlosses",
    "value_loss": "valueloss criticloss vfloss vloss lossvalue losscritic lossv lossvf valuefunctionloss closs criloss"
    " valuelosses criticlosses",
    "loss": "loss totalloss losstotal trainingloss losses totallosses",
    "entropy": "entropy policyentropy actorentropy distentropy actionentropy ent entropies",
    "entropy_loss": "entropyloss lossentropy entloss",
    "approx_kl": "approxkl approxkls approximatekl klapprox ppokl policykl approxpolicykl oldnewkl kloldnew klold",
    "approx_kl_k1": "oldapproxkl approxklk1",
    "ref_kl": "refkl klref kltoref klreference initpolicykl klinit refpolicykl",
    "clip_fraction": "clipfraction clipfractions clipfrac clipfracs ppoclipratio pgclipfrac fractionclipped"
    " policyclipfrac"
    " ratioclipfrac ppoclipfrac clippedfraction fracclipped policyclipfraction",
    "ratio_mean": "ratio ratios importanceratio importanceweight probratio probsratio pporatio",
    "ratio_min": "ratiomin minratio importanceratiomin",
    "ratio_max": "ratiomax maxratio importanceratiomax",
    "ratio_std": "ratiostd stdratio",
    "reward_mean": "reward rewards score scores rewardscore rewardraw rawreward rewardmeanraw rewardsraw",
    "reward_std": "rewardstd rewardsstd stdreward rewardsscorestd scorestd",
    "reward_min": "rewardmin rewardsmin minreward",
    "reward_max": "rewardmax rewardsmax maxreward",
    "frac_reward_zero_std": "fracrewardzerostd fraczerostd fraczerorewardstd",
    "advantages_mean": "advantage advantages adv advs",
    "advantages_std": "advantagestd advantagesstd advstd advsstd stdadvantage",
    "advantages_min": "advantagemin advantagesmin advmin",
    "advantages_max": "advantagemax advantagesmax advmax",
    "returns_mean": "returns targetreturns",
    "returns_std": "returnsstd",
    "values_mean": "value values vpred valueestimate vvals",
    "explained_variance": "explainedvariance explainedvar vfexplainedvar varexplained evbefore",
    "learning_rate": "learningrate lr actorlr policylr currentlr curlr lastlr actorlearningrate policylearningrate",
    "grad_norm": "gradnorm gradientnorm actorgradnorm policygradnorm totalgradnorm globalgradnorm",
    "action_std": "actionstd noisestd policystd actionnoisestd",
    "kl_coef": "klcoef klcoeff klcoefficient",
    "response_length": "responselength responselengths completionlength genlength responselen completionlengths",
    "truncated_fraction": "truncatedfraction truncatedrate truncationrate truncatedratio",
    "episode_return": "return avgreturn cumulativereward episodicreward runningreward movingreward totalreward",
    "episode_length": "episodelength eplen episodelen eplenmean episodiclength episodelengths",
    "success_rate": "successrate",
    "fps": "fps sps stepspersecond",
    "env_steps": "envsteps totalenvsteps totaltimesteps numtimesteps timesteps timestepstotal",
}
_CANONICAL = MappingProxyType({alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()})
#: The old policy where nothing in the log speaks of completions, else the reference model.
_EITHER_KL = frozenset({"kl", "kls", "klloss", "kldivergence", "kldivergences", "kldiv", "kldivs"})
#: Names that anybody may choose, squashed.
COMMON_NAMES = frozenset(_CANONICAL) | _EITHER_KL
_EPISODE = r"(episode|episodic|ep)(total)?(reward|return|rew|ret)s?(mean)?$"
_EVALUATED = r"^(eval|evaluation|test|val|validation)(mean)?(episode|ep)?(reward|return|score)s?(mean)?$"
_SPREAD = r"(?i)(^|[^a-z])(std|stdev|min|max|var|median)([^a-z]|$)"

#: Groups of keys whose members never speak of the policy being trained.
_TIMES = frozenset(
    {"time", "times", "timing", "timings", "timer", "timers", "timeperf", "perf", "performance", "speed", "throughput"}
)
_CRITICS = frozenset({"critic", "value", "vf"})
_MODELS = frozenset(
    {"ref", "reference", "target", "rm", "disc", "discriminator", "aux", "rnd", "curiosity", "gail", "icm"}
)
_OTHERS = _MODELS | {"config", "args", "hparams", "system", "sys", "debug", "sampling", "memory"}
_EVALUATION = frozenset({"eval", "evaluation", "evaluate", "test", "val", "valid", "validation"})
#: What a critic's group may hold and still be meant: verl files scores and advantages there.
_IN_CRITIC = ("value", "explained_variance", "advantages_", "returns_", "reward_")
#: Terms of a loss that are named by their group only, such as "loss/policy".
_TERMS = frozenset({"policy", "actor", "pi", "pg", "surrogate", "value", "critic", "vf", "v", "total"})
_STATISTICS = frozenset({"mean", "avg", "average", "std", "min", "max"})
_LANGUAGE = r"(?i)token|response|completion|prompt|generat|ref_kl|kl_ref"
#: What GRPO and its kin log of a group of answers, and what only a run with a critic, or with episodes, has.
_OF_GROUPS = frozenset({"reward_std", "advantages_std", "frac_reward_zero_std"})
_OF_CRITICS = frozenset(
    {"value_loss", "explained_variance", "values_mean", "returns_mean", "returns_std", "episode_return", "env_steps"}
    | {"episode_length", "fps", "action_std", "success_rate"}
)

#: Names of a clock, most trusted first.
_CLOCKS = (
    *("step", "globalstep", "trainstep", "trainingstep", "envsteps", "totalenvsteps", "totaltimesteps", "numtimesteps"),
    *("timesteps", "timestep", "totalsteps", "steps", "iteration", "iterations", "iter", "it", "update", "updates"),
    *("episode", "episodes", "ep", "epoch", "frame", "frames"),
)


def squashed(text: str) -> str:
    """Return letters and digits only, in lower case; what stands in brackets is a unit or a remark."""
    return "".join(c for c in re.sub(r"[(\[{].*?[)\]}]", "", text).lower() if c.isalnum())


def speaks_of_language(keys: Iterable[str]) -> bool:
    """Tell whether the names of a log show that a language model is trained."""
    return any(re.search(_LANGUAGE, key) for key in keys)


def without_critic(keys: Iterable[str]) -> bool:
    """Tell a method that compares the answers of a group, as GRPO does: no critic, no episodes, a spread of rewards.

    Its objective has one KL, to the reference (Shao et al. 2024, equation 3), and that is what a bare "kl" is then.
    """
    found = {fuzzy(key) for key in keys}
    return bool(found & _OF_GROUPS) and not found & _OF_CRITICS


def fuzzy(key: str, language: bool = False) -> str | None:
    """Return the canonical metric that a key of an unknown framework means, None where that is not clear.

    `language` says that completions are trained on, so that a bare "kl" is the one to the reference model.
    """
    *groups, last = [part for part in re.split(r"[/:|.]", key) if part.strip()] or [""]
    if groups and last.strip().lower() in _STATISTICS:
        *groups, last = [*groups[:-1], f"{groups[-1]}_{last}"]
    words = {word for group in groups for word in (group.strip().lower(), *re.split(r"[^a-z]+", group.lower()))}
    if words & _TIMES:
        return None
    if words & _EVALUATION or re.search(_EVALUATED, squashed(last)):
        return _evaluated(words, last)
    name = squashed(last)
    if groups and squashed(groups[-1]) in ("loss", "losses") and name in _TERMS:
        name += "loss"
    found = _plain(name, last, language)
    if words & _CRITICS:
        return _of_critic(name, found)
    return None if words & _OTHERS else found


def _evaluated(words: set[str], last: str) -> str | None:
    name = squashed(last)
    plain = name if not words & _EVALUATION else f"eval{re.sub('^(mean|average|avg)', '', name)}"
    return "eval_return" if re.search(_EVALUATED, plain) and not re.search(_SPREAD, last) else None


def _plain(name: str, written: str, language: bool) -> str | None:
    for candidate in dict.fromkeys((name, _bare(name))):
        if candidate in _CANONICAL:
            found = _CANONICAL[candidate]
            return "returns_mean" if language and found == "episode_return" else found
        if candidate in _EITHER_KL:
            return "ref_kl" if language else "approx_kl"
    episode = re.search(_EPISODE, name) and not re.search(_SPREAD, written.replace("_", " "))
    return "episode_return" if episode else None


def _bare(name: str) -> str:
    """Return a name without the words that say: of training, a mean, over the last so many episodes."""
    name = re.sub(r"\Atrain(?:ing)?(?=.)|(?<=reward)s?(?:last)?(?:10|20|50|100)\Z", "", name)
    for word in ("average", "mean", "avg"):
        name = name.removeprefix(word) if name != word else name
        name = name.removesuffix(word) if name != word else name
    return name


def _of_critic(name: str, found: str | None) -> str | None:
    if name == "loss":
        return "value_loss"
    return found if found and found.startswith(_IN_CRITIC) else None


def aliases(keys: Iterable[str], beside: Iterable[str] = ()) -> Mapping[str, str]:
    """Return raw → canonical for the keys that mean something; of several for one metric the plainest name.

    `beside` are further keys of the log, which tell what kind of training it is of.
    """
    keys = sorted(keys, key=lambda key: (key.count("/"), len(key), key))
    held = {*keys, *beside}
    language = speaks_of_language(held) or without_critic(held)
    chosen: dict[str, str] = {}
    for key in keys:
        name = fuzzy(key, language)
        if name is not None:
            chosen.setdefault(name, key)
    return {raw: name for name, raw in chosen.items()}


def clocks(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that may count the steps of a log, most trusted first."""
    held = [(_CLOCKS.index(name), key) for key in keys if (name := squashed(re.split(r"[/.]", key)[-1])) in _CLOCKS]
    return tuple(key for _, key in sorted(held))
