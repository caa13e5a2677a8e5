"""Words that scripts of people's own use in the names of their columns: what each may hint at, and at which metrics.

A hint is weak: many of these words have another meaning as well. What the numbers say decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

#: What a log may hold that none of our metrics stands for, and that words and other columns tell: it takes no other's
#: place then.
OF_NO_METRIC = CLIPPED, MEAN_ABSOLUTE = "grad_norm_clipped", "advantages_abs_mean"
_WORDS: Mapping[str, str] = {
    "return": (
        "accumulated bananas bounty candy catch coins collected cookies crop cumul cumulative discounted earn "
        "earned earnings episodic epret ertrag fame fitness fortune gains gewinn glory gold grade gt happiness "
        "harvest haul income loot marks outcome payoff payoffs payout payouts perf performance pnl points prize "
        "proceeds profit profits pts punkte puntos purse recompense rendement result ret retorno rets return "
        "returns revenue rew reward rewards rtn score scores sum takings tally total treats undiscounted utility "
        "wealth winnings yield "
    ),
    "reward": (
        "applause avgreward belohnung biscuit bonus bounties bounty candy carrot carrots coin coins cookie "
        "cookies credit delight dopamine feedback fun grade graded gratification happiness income joy kibble "
        "lohn mark marks meanreward merit nota note pat pay payoff payout pleasure points praise preference "
        "premio prize quality rating recompensa recompense reinforcement rew reward rewards rlhf rm rmean rw rwd "
        "salary score scores smile snack stars sugar tasty tip tips treat treats utility verdict wage wages "
    ),
    "length": (
        "age airtime alive breath chars chatter chattiness completion dauer distance dur duration duree "
        "endurance episodelen eplen extent frames generated horizon laenge len length lengths lens life lifespan "
        "lifetime lived longevity longitud longueur marathon mileage moves ntok plies rambling response size "
        "span stamina stretch stride survival survived talk ticks token tokens toks trajlen turns uptime verbose "
        "verbosity volubility wind wordiness words yap "
    ),
    "success": (
        "acc accuracy aced achieved achievement acierto arrived beaten bullseye caught cleared completed correct "
        "correctness cured docked erfolg exact exito finished goal goals graduated graduates healed hit hitrate "
        "hits landed match matched matches medal nailed pass pass1 passat1 passed passrate perfect podium "
        "precision reached reussite right scored solve solved solverate solves spelled sr succ success successes "
        "treffer triumph trophy victoire victories victory win winning winrate wins won "
    ),
    "policy": (
        "act action actor agent alumno apprentice athlete author behavior behaviour bot brain candidate captain "
        "chef chooser contestant control controller cook ctrl dancer decider decision doer dog driver eleve "
        "gambler generator hand head helmsman hero horse joueur jugador learner lernender llm lm model motor "
        "mouse mover muscle net network novice performer pi pilot player pol policy protagonist pupil puppy rat "
        "rider robot rookie schueler solver speaker spieler strat strategy student tactic theta trader trainee "
        "worker writer "
    ),
    "critic": (
        "accountant advisor analyst appraisal appraiser assessor auditor base baseline bookie bookmaker "
        "bootstrapped coach crit critic critico critique crystal estimate estimator evaluator examiner "
        "expectation expected forecast forecaster fortuneteller gourmet grader judge judgement juez juge jury "
        "kritiker mentor observer oracle phi prediction predictor prophet psi qf referee reviewer richter scout "
        "seer sommelier taster td teacher tutor umpire val valeur valor value valuefn values vf vfn vloss vnet "
        "watcher weatherman wert "
    ),
    "loss": (
        "ache agony anger badness blame blunder cost coste costs cout criterion damage debt deficit "
        "disappointment discrepancy distortion embarrassment energy err erreur error errors expense fehler fine "
        "frustration grief guilt harm huber hurt injury kosten loss losses lss mae misery misfit mismatch miss "
        "mistake mistakes mse nll obj objective pain pains penalties penalty perdida perte price regret regrets "
        "remorse residual risk rmse sadness schmerz shame sorrow suffering sweat tears toll verlust woe "
        "wrongness "
    ),
    "gain": (
        "advance advantage ascent beneficio benefit betterment bonus boost boosted climb climbed credit delta "
        "dividend earnings evolution fitness fortschritt gain gains ganancia gewinn goal goodness growth "
        "happiness headway hope imp improve improved improvement improvements increase increment interest jclip "
        "joy kaizen lclip levelup lift mejora merit obj objective perf performance plus pride profit profits "
        "progres progress promise return rise score step surr surrogate target uplift upside uptick utility "
        "value win yield ziel "
    ),
    "entropy": (
        "adventurousness blur boldness caprice chaos chaotic confused confusion creativity curiosity curious "
        "dice disorder dither dithering diversity doubt doubts ent entr entropia entropie entropies entropy "
        "explor exploration explore exploring fickleness fog freedom fuzz fuzziness h hasard heat hesitancy "
        "hesitation hpi indecision indecisive looseness mess messiness nats noise openness perplexity "
        "playfulness ppl random randomness restlessness roaming shannon softness spontaneity spread surprise "
        "temperature uncertain uncertainty unordnung vagueness variability variety wander warmth whimsy zufall "
    ),
    "kl": (
        "abweichung akl approxkl change changed creep delta departure deriva derive detour deviated deviation "
        "displaced displacement dist distance distancia div diverge diverged divergence divergencia dkl drift "
        "drifted drifting ecart gap jump k1 k2 k3 kl klapprox kld klds klold kullback lag leap leibler meander "
        "motion move moved movement mutation offpolicy offpolicyness relent roam shift shifted shifts slide slip "
        "slippage stale staleness step stray strayed straying stretch stride swerve swing travel traveled "
        "travelled trust trustregion wander wandered wandering "
    ),
    "reference": (
        "abstand ancestor anchor anchorage anchored anchoring ancla ancre anker away base baseline beta birth "
        "birthplace compass dist distance drift estrangement exile faithful farness fidelity fixed frozen gap "
        "harbor harbour heimat heimweh home homesick homesickness init initial kl klref leash loyalty maison "
        "mama master moor moored mooring mother north nostalgia origen origin original parent penalty pole port "
        "pretrained prior priors prototype ref reference referenz refkl refs remoteness root roots rope sft "
        "start static teacher template tether tethered "
    ),
    "clip": (
        "begrenzt bound bounded bounding bounds brake braked braking bridled bumper cap capped capping ceiling "
        "cf choked cl clp clamp clamped clamping clip clipf clipfrac clipfraction clipped clipping clips clipshare "
        "crop "
        "cropped curb curbed cut cutoff cuts edge fence fenced fences fencing frozen gekappt gestutzt guardrail "
        "hedge hedged leash leashed lim limit limited limits muzzle muzzled outside pinned pruned rail railed "
        "rails recorte reined restrained rogne sat sated saturated saturation shorn snipped stuck tether "
        "throttle throttled trim trimmed trimming trunc truncated truncation wall walled "
    ),
    "ratio": (
        "balance bet bias cociente concentration correction corrections dosage dose ess exchange factor fraction "
        "gewicht importance impweight is isr isw iw lean leverage likelihood likeratio logratio lr mix multiple "
        "multiplier newold odd odds parity poids potency pratio preference probratio proportion quot quote "
        "quotient rapport rat ratio ratios razon rel relative reweight reweighted reweighting rho rhos rt scale "
        "scaling share stake strength tilt tilted tilting times verhaeltnis w weight weights wt "
    ),
    "gradient": (
        "amplitude backprop current drive effort empuje force forces fuerza g gefaelle gn gnorm grad gradient "
        "gradiente gradients gradnorm grads grd gust hit impact impetus impulse incline intensity jerk jolt kick "
        "kicked kicks kraft l2 l2norm mag magnitude momentum muscle nabla norm nudge nudged pente poussee power "
        "pressure pull pullback punch push pushed recoil schub shock shove slope slopes steep steepness steigung "
        "steil stimulus strain strength stress tension throw thrust thrusted torque tug tugging uphill urge wind "
        "yank yanked "
    ),
    "rate": (
        "accelerator adaptation aggressiveness alpha anneal annealed annealing appetite boldness burner cadence "
        "cooling cosine decay decayed dosage dose eagerness eta flame gain gait gas gear haste heat hurry learn "
        "learning learningrate lernrate lr lrn lrs multiplier pace paced pacing pas paso pedal plasticity "
        "portion rapidity rate rates rhythm ritmo salt sched schedule scheduled schrittweite seasoning speed "
        "spoonful step steps stepsize stepsz stride tasa taux temp temperature tempo throttle velocity vitesse "
        "warmup "
    ),
    "explained": (
        "acc accuracy acuity calibrated calibration clairvoyance clairvoyant clarity competence comprehension "
        "corr correl correlation determination erklaert ev evar expl explain explained explainedvar "
        "explainedvariance explicada expliquee explvar expvar eyesight fit fitness fits fitted forecast "
        "forecasting forecastskill foresight goodness grasp guete hindsight insight insights intelligence "
        "intuition iq knowledge oracle predictability predicted prediction predictive prescience prophecy "
        "quality r2 r2score rr rsq rsquared savvy sharpness sight skill trust trustworthiness understanding "
        "understood var variance varianz vision voraussicht weitsicht wisdom "
    ),
    "deviation": (
        "blur breadth breite bruit desviacion dev deviation disperse dispersion ecart error exploration explore "
        "fluctuation fuzz ingroup intra iqr jiggle jitter jitters jittery logsigma logstd looseness nervousness "
        "noise noisiness noisy range rauschen restlessness ruido scale scatter scattered sd sem shake shakiness "
        "shaky shift shifts sig sigma sigmas slack spray spread spreads std stddev stderr stdev stds streuung "
        "sway swing temblor trembling tremor tremors twitch twitchiness uncertainty var variability variance vol "
        "volatility width wiggle within wobble wobbles wobbliness wobbly zittern "
    ),
    "count": (
        "adam adjusted adjustments anzahl attempts backprops backwards batches bites blows chews cnt count "
        "counts drills gradsteps gs hammering iterations iters its kick kicks lessons mb mbs minibatch minibatches "
        "nb nombre nsteps nudge nudges num number numsteps nupdates opt opts optim optimizer optsteps pas pasos push "
        "pushes rep repeats repetitions reps reuse reuses revisions schritte sets sgd step steps stirring stirs "
        "stopped stroke strokes tries tweak tweaks upd update updates upds "
    ),
    "advantage": (
        "adv advantage advantages advs ahat alpha avantage beat benefit better betterness bonus centered credit "
        "delight delta deltas dominance dopamine edge edges excess extra favor favorable favour fortune gae gain "
        "head headstart hope lead leads leverage luck lucky margin margins normalized outperformance "
        "overperformance praise premium privilege profit rel relative relief residual residue superiority "
        "surplus surprise surprised surprises surprising td tderror ueberschuss upper upside ventaja vorsprung "
        "vorteil windfall zscore "
    ),
    "after": (
        "after afterwards applied capped chopped clip clipped cropped cut damped effective final kept lim "
        "limited net post pruned reduced remaining shortened shrunk squashed tamed trimmed truncated used "
    ),
    "absolute": "abs absolute betrag magnitude modulus size unsigned valeurabs",
    "flat": (
        "dead degenerate dull empty equal flat flats identical idle mute same silent stale tie tied ties "
        "unanimous uniform useless wasted zero zeros zerostd "
    ),
    "groups": (
        "batch batches families group groupe groupes groups grp grps grupos gruppe gruppen litter litters team teams "
    ),
    "term": "cost costs cout kosten penalty penal penalties tax term toll fee price strafe",
    "passes": (
        "cycle cycles durchlaeufe durchlauf epoca epocas epoch epoche epochen epochs epoque epoques inner lap "
        "laps nepochs pass passes rep repeats repetitions reps sweep sweeps vuelta vueltas "
    ),
}
#: what a word hints at → the metrics that its column may be.
_METRICS: Mapping[str, str] = {
    "return": "episode_return reward_mean",
    "reward": "episode_return reward_mean reward_std",
    "length": "episode_length response_length",
    "success": "success_rate",
    "policy": "policy_loss grad_norm entropy learning_rate approx_kl clip_fraction",
    "critic": "value_loss explained_variance values_mean",
    "loss": "policy_loss value_loss",
    "gain": "policy_loss",
    "entropy": "entropy",
    "kl": "approx_kl ref_kl",
    "reference": "ref_kl kl_term",
    "clip": "clip_fraction",
    "ratio": "ratio_mean ratio_abs_dev ratio_max",
    "gradient": f"grad_norm {CLIPPED}",
    "rate": "learning_rate",
    "explained": "explained_variance",
    "deviation": "action_std reward_std ratio_abs_dev",
    "count": "optimizer_steps",
    "advantage": f"advantages_std {MEAN_ABSOLUTE}",
    "passes": "epochs_executed",
    "after": CLIPPED,
    "absolute": f"{MEAN_ABSOLUTE} ratio_abs_dev",
    "flat": "frac_reward_zero_std",
    "groups": "frac_reward_zero_std reward_std",
    "term": "kl_term",
}
#: metric → the concept without a word of which, beside another that hints at it, no name means it.
_MARKS = {"kl_term": "term", CLIPPED: "after", MEAN_ABSOLUTE: "absolute"}
MARKED = frozenset(_MARKS)
_MARK_WORDS = {metric: frozenset(_WORDS[concept].split()) for metric, concept in _MARKS.items()}
#: What words say that they say of something to be maximised: its sign is turned.
GAIN = frozenset(_WORDS["gain"].split())


def _by_word() -> dict[str, frozenset[str]]:
    """Return word → the metrics that it hints at: those of each concept that it stands under."""
    found: dict[str, frozenset[str]] = {}
    for concept, words in _WORDS.items():
        metrics = frozenset(_METRICS[concept].split())
        for word in words.split():
            found[word] = found.get(word, frozenset()) | metrics
    return found


HINTS: Mapping[str, frozenset[str]] = _by_word()
#: Letters that two forms of a word have in common: "snip" and "snipped".
STEM = 4
#: Letters of a word that is known behind, or before, a letter or two of something else: "vfit", "nopt".
WHOLE = 3


@cache
def hinted(word: str) -> frozenset[str]:
    """Return the metrics that a word, or another form of it, hints at; nothing for a word that nobody knows."""
    if word in HINTS or len(word) < STEM:
        return HINTS.get(word, frozenset())
    kin = [w for w in HINTS if w.startswith(word) or (len(w) >= STEM and word.startswith(w))]
    kin = kin or [part for cut in (1, 2) for part in (word[cut:], word[:-cut]) if len(part) >= WHOLE and part in HINTS]
    return frozenset[str]().union(*(HINTS[w] for w in kin))


def marked(words: Sequence[str]) -> frozenset[str]:
    """Return the metrics of which words say what tells them from what they are of: the term of a KL, a clipped norm."""
    return frozenset(
        metric
        for metric, marks in _MARK_WORDS.items()
        for mark in marks.intersection(words)
        if any(word != mark and metric in hinted(word) for word in words)
    )
