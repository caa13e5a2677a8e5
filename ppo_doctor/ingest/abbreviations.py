"""What short names of people's own scripts may stand for: letters and abbreviations that mean several things.

Here a spelling has several meanings and each has a cost in nats; which one holds is for the other columns and the
numbers to say (`assignment`). What the grammar of names reads by itself is not looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping

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
#: Units and the like, which say nothing about what a number is.
_SAYS_NOTHING_WORDS = (
    "bit bits nat nats avg ma mavg ema hist cur curr now stat tb info this our my sq last latest recent team"
    " inner outer true eff span range minmax bounds extremes interval"
)
SAYS_NOTHING = frozenset(_SAYS_NOTHING_WORDS.split())
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
#: Words of other methods: a log that holds one is not read by the company of its columns.
_OF_OTHERS_WORDS = (
    "gan_loss gen_loss discriminator disc replay_buffer replay_size dqn ddqn sac td3 ddpg qf target_q double_q"
    " alpha_loss ent_coef_loss temperature_loss"
)
OF_OTHERS = frozenset(_OF_OTHERS_WORDS.split())
#: Words of other tasks: nor is one that holds these, but where names say that a policy is trained beside.
_OF_OTHER_TASKS_WORDS = (
    "auc auroc bleu elbo f1 iou map ppl perplexity precision psnr recall recon reconstruction rouge ssim"
    " wer tderror val_loss test_loss valid_loss mae rmse ndcg mrr dice logloss sharpe"
)
OF_OTHER_TASKS = frozenset(_OF_OTHER_TASKS_WORDS.split())
