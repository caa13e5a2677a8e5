"""The words in names of trainers, and the phrases that name a metric.

A concept is one meaning with all its spellings. A phrase is a set of concepts in any order. Words of NEUTRAL add
nothing to a phrase.
"""

from __future__ import annotations

from collections.abc import Mapping

from ppo_doctor.model.patterns import lazy_pattern

#: Slot → concept → spellings; words of one spelling are joined by underscores. A key with a word of the slots time,
#: system or other does not describe the training of the policy.
WORDS: Mapping[str, Mapping[str, str]] = {
    "quantity": {
        "kl": "kl relative_entropy rel_entropy rel_ent relent"
        " kls kld kldiv kldivs kl_div kl_divs kl_divergence kl_divergences kullback_leibler_divergence"
        " kullback_leibler",
        "ratio": "ratio ratios",
        "importance": "importance importance_weight importance_weights importance_ratio importance_ratios imp_weight"
        " imp_weights imp_ratio imp_ratios prob_ratio probs_ratio probability_ratio importance_sampling_ratio"
        " is_ratio ppo_ratio likelihood_ratio rho rhos",
        "dropped": "drop dropped drops discard discarded reject rejected rejection masked filtered_out",
        "clip": "clip clipped clips clipping",
        "fraction": "share frac fracs fraction fractions rate percent percentage pct perc proportion factor",
        "entropy": "entropy entropies ent",
        "loss": "loss losses",
        "surrogate": "surrogate surr",
        "reward": "reward rewards rew rews rwd rwds score scores",
        "return": "return returns ret rets rtg rtgs reward_to_go rewards_to_go return_to_go returns_to_go",
        "advantage": "advantage advantages adv advs gae advant",
        "gradient": "gradient gradients grad grads nabla",
        "norm": "norm norms",
        "learning_rate": "learning_rate learning_rates lr lrs learn_rate",
        "length": "length lengths len lens eplen",
        "truncated": "non_stop unfinished overlong overlength truncated truncation truncations trunc no_eos",
        "explained": "explained_variance explained_v explained_var explained_variances var_explained exp_var expl_var"
        " vf_explained_var variance_explained ev",
        "logprob": "logprob logprobs log_prob log_probs log_pis log_likelihood log_likelihoods loglik logp logps log_p"
        " log_pi logpi logpa lp lps log_probability log_probabilities logpac logpacs per_token_logps"
        " per_token_logp actlogprob actlogprobs ll",
        "action": "action actions acts act",
        "noise": "noise",
        "beta": "beta",
        "beta1": "beta1",
        "beta2": "beta2",
        "adam": "adam adamw",
        "epsilon": "eps epsilon",
        "coefficient": "weight weights coef coefs coeff coeffs coefficient coefficients ctl ctl_value scaling",
        "success": "success successes solved win_rate goal_reached",
        "accuracy": "accuracy accuracies acc exact_match solve_rate pass_rate pass",
        "update_norm": "update_norm param_change param_delta parameter_change weight_change weight_delta params_delta"
        " parameter_delta update_magnitude",
        "score": "token_score token_scores token_level_score token_level_scores",
        "kept": "kept_mass kept_probability_mass kept_prob_mass top_p_mass",
        "gamma": "gamma discount discount_factor discounting",
        "lambda": "lambda lmbda lam lambd",
        "size": "size sizes",
        "discounted": "discounted",
        "horizon": "horizon unroll",
        "temperature": "temperature temp",
        "normalize": "normalize normalise normalization normalisation standardize whiten",
        "version": "version versions ver weight_version weights_version weight_versions weights_versions model_version"
        " model_versions weights_seq_no weight_seq_no params_version param_version parameter_version"
        " parameters_version checkpoint_version ckpt_version weight_ver weights_ver",
        "mask": "mask masks msk msks",
        "done": "termination done dones terminated terminal terminals terminations episode_start episode_starts",
        "staleness": "staleness lag policy_lag",
        "ess": "ess effective_sample_size eff_sample_size",
        "penalty": "penalty penalties",
        "regularizer": "regularization regularisation regularizer regulariser",
        "ptx": "ptx",
        "shaped": "shaped dense",
        "baseline": "baseline baselines",
        "difference": "diff difference differences abs_diff absdiff",
        "prob": "prob probs probability probabilities",
        "index": "uid uids uuid uuids",
        "group": "group groups grp grps",
        "equal": "equal same identical uniform alike degenerate tied",
        "pace": "fps sps",
    },
    "part": {
        "policy": "policy policies pol pi pg actor theta",
        "value": "value values v_s vpred vpreds v_pred vf_pred vf_preds vals vvals state_value state_values"
        " vpredictions value_preds value_pred",
        "critic": "critic critics cri crit vf v value_function value_functions valuefunction value_fn",
    },
    "role": {
        "old": "old prev previous past earlier proximal prox then before_update pre_update recomputed",
        "new": "now new cur curr current actual updated latest after_update post_update",
        "reference": "sft ref reference base init initial init_policy reference_policy ref_policy base_model ref_model",
        "rollout": "rollout rollouts",
        "behaviour": "behaviour behavior mu",
        "sampled": "sampled buffer buf",
        "next": "next",
        "learner": "trainer learner train trained",
        "worker": "worker workers env_runner env_runners collector collectors collect",
        "optimizer": "optimizer optim optimizers optimization optimisation opt sgd",
        "engine": "rollout_corr rollout_correction vllm sglang sampler sampling behav behave infer inference mismatch"
        " engine generator generators server",
        "target": "target targets targ",
    },
    "statistic": {
        "mean": "mean avg avgs average averages means averaged",
        "std": "sd std stdev stddev std_dev standard_deviation sigma stds",
        "variance": "var variance",
        "min": "min minimum smallest lowest mins",
        "max": "worst max maximum largest highest maxs",
        "median": "median",
        "absolute": "abs absolute",
        "sum": "sum",
        "deviation": "dev deviation",
        "instantaneous": "instantaneous",
        "distribution": "dist distribution",
        "running": "running ema moving smoothed rolling smooth",
    },
    "estimator": {
        "approx": "approx approximate approximated estimate estimated estimates estimation est hat",
        "k1": "k1",
        "k2": "k2",
        "k3": "k3",
    },
    "side": {
        "low": "low lower lo below",
        "high": "high upper hi above",
        "dual": "dual",
    },
    "moment": {
        "first": "first start begin",
        "last": "last final",
        "before": "unnorm denormalized denormalised unwhitened before pre raw unnormalized unnormalised",
        "unclipped": "unclipped",
        "after": "scaled normed after post whitened whitening normalized normalised",
        "executed": "executed performed",
        "total": "total totals cumulative lifetime so_far",
        "threshold": "threshold cutoff",
        "with": "with including incl",
        "objective": "objective",
        "schedule": "schedule schedules scheduler",
        "decay": "decay anneal annealing",
        "scale": "scale",
    },
    "subject": {
        "episode": "episode episodes episodic ep eps_ep traj trajectory trajectories",
        "completion": "response responses resp completion completions gen generate generation generated generations"
        " answer answers",
        "token": "token tokens tok toks token_level token_wise",
        "sample": "sample samples",
        "sequence": "sequence sequences seq seqs",
        "reward_model": "rm reward_model",
        "prompt": "example examples problem problems prompt prompts query queries question questions",
        "step": "step steps timestep timesteps interact interacts interaction interactions",
        "environment": "env environment environments envs",
        "update": "update updates upd upds",
        "epoch": "epoch epochs",
        "batch": "batch batches",
        "minibatch": "minibatch minibatches mini_batch mini_batches mb nminibatches",
        "iteration": "iter iters itr itrs iteration iterations it",
        "frame": "frame frames",
        "count": "num number n count",
        "zero": "zero zeros",
        "optimizer_step": "optim_step optim_steps optimizer_step optimizer_steps opt_step opt_steps gradient_step"
        " gradient_steps grad_step grad_steps sgd_step sgd_steps minibatch_step minibatch_steps mb_steps"
        " gradient_update gradient_updates grad_update grad_updates",
        "executed": "executed run ran",
        "stop": "early_stop early_stops early_stopped early_stopping stopped_early",
        "attention": "attention attn att",
        "label": "label labels",
        "id": "id ids ix idx idxs index indices identifier identifiers key",
    },
    "time": {
        "time": "time times timing timings timer timers timeperf sec secs second seconds ms elapsed duration walltime"
        " runtime uptime clock eta latency",
    },
    "system": {
        "system": "gpu cpu mem memory mfu util utilization utilisation bytes gb gib flops tflops throughput"
        " speed perf performance bandwidth sys system nccl disk temp_celsius power",
    },
    "evaluation": {
        "evaluation": "eval evaluation evaluate evals test validation testing evaluator",
    },
    # an evaluation for some authors; values, or what is valid, for others
    "ambiguous": {
        "val": "val",
        "valid": "valid valids",
    },
    "other": {
        "other": "exploration_loss log_std log_sigma logstd num_train_epochs train_epochs num_timesteps n_timesteps"
        " disc discriminator aux auxiliary rnd curiosity gail icm intrinsic symmetry bounds bound cost costs"
        " reward_model distill distillation sft world_model central clamp clamped delta debug error errors seed",
        "settings": "config configs cfg cfgs conf args hp hps init_hp hparams hyperparameters",
    },
}

#: Concepts → spellings that mean all of them together.
COMPOUNDS: Mapping[str, str] = {
    "version": "ckpt_step checkpoint_step model_step model_steps params_step weight_step weights_step params_iteration"
    " weights_iteration",
    "prompt id": "qid qids",
    "epoch minibatch": "mini_epoch mini_epochs",
    "epoch update": "inner_epoch inner_epochs ppo_epoch ppo_epochs k_epoch k_epochs optim_epoch optim_epochs"
    " optimization_epoch optimization_epochs learning_epoch learning_epochs sgd_epoch sgd_epochs sgd_iter sgd_iters"
    " noptepochs",
    "epoch executed": "stop_iter stop_iters stop_iteration stop_epoch",
    "completion id": "output_id output_ids",
    "completion token": "output_token output_tokens out_token out_tokens",
    "completion length": "output_length output_lengths output_len",
    "policy learning_rate": "act_lr a_lr lr_a",
    "value learning_rate": "c_lr lr_c",
    "reward scale": "reward_scaling rew_scaling reward_factor reward_scale_factor reward_multiplier",
    "reference": "start_val start_value initial_value init_value",
    "adam epsilon": "opti_eps optim_eps opt_eps optimizer_eps",
    "entropy coefficient": "entropy_cost",
    "value coefficient": "value_cost baseline_cost",
    "advantage lambda": "gae_tau",
    "policy loss": "pl loss_p p_loss act_loss policy_gradient_loss a_loss loss_pi aloss pgloss piloss losspi",
    "policy surrogate": "policy_gradient",
    "value loss": "vl c_loss v_loss loss_v closs vloss lossv obj_c obj_critic",
    "value old": "v_old",
    "value": "reward_value reward_values predict_value predicted_value predicted_values",
    "reward": "r_training",
    "evaluation reward": "r_evaluation fitness fitnesses",
    "kl engine": "kl_sample_train kl_train_sample sample_train_kl",
    "entropy": "dist_entropy action_entropy",
    "mean reward": "r_avg avg_r",
    "episode mean return": "avg_g g_avg mean_g",
    "min reward": "r_min",
    "max reward": "r_max",
    "std reward": "std_r r_std",
    "kl old": "kl_old_new kl_new_old",
    "gradient norm": "grad_gnorm gnorm",
    "noise std": "noise_std",
    "episode reward": "cumulative_reward total_reward running_reward moving_reward sum_reward eprew avg_r",
    "logprob old": "b_logprob b_logprobs b_logp",
    "mask": "valid_mask eos_mask",
    "attention mask": "full_attention_mask",
    "token id": "input_id input_ids",
    "length": "input_length input_lengths",
    "importance engine": "rollout_is sampler_is tis",
    "reward total": "rlhf_reward",
    "kl reward": "non_score_reward",
    "entropy loss": "scaled_entropy entropy_bonus ent_bonus",
    "staleness": "version_diff steps_off_policy",
    "return": "vtarg vtargs value_target value_targets return_target target_return target_returns",
    "action std": "sigma",
    "importance": "is_weight is_weights",
    "clip coefficient": "epsilon_clip e_clip eps_clip clip_epsilon clip_range clip_eps clip_coef clip_param"
    " clipping_param clip_parameter clipping_parameter ppo_epsilon ppo_eps eps_ppo",
    "ratio clip coefficient": "lr_clip_range",
    "episode length": "eplen avg_s",
    "kl policy": "ppo_kl",
    "kl k1": "old_approx_kl",
}

#: Words that do not contribute to the meaning of a name.
NEUTRAL = (
    "exploration active scalar training learners learn learning info tensor tensors stats stat statistics metric"
    " metrics log logs data charts chart global task is returned default module modules agent agents ppo grpo rloo"
    " algo algorithm all per extrinsic model models main tune ray misc diagnostics adaptive computed input full"
    " used the l of to under from at at_sum region vs"
    " dbg overview output outputs value_of local b prediction predictions pred preds calc process rnn"
    " bits nats spec use packed padded flat flattened stacked undiscounted over past"
)

#: Metric → phrases.
METRICS: Mapping[str, str] = {
    "policy_loss": "policy loss, surrogate, surrogate loss, policy surrogate, policy surrogate loss, clip loss, policy"
    " clip loss, surrogate clip loss, surrogate clip, objective loss, policy loss after",
    "value_loss": "value loss, value reward loss, value approx loss, value loss before, value loss after",
    "value_loss_unclipped": "value loss unclipped, value loss before clip",
    "loss": "loss, loss total",
    "objective_entropy": "entropy objective",
    "entropy": "entropy, policy entropy, approx entropy, policy approx entropy, entropy action, entropy token",
    "entropy_loss": "entropy loss, policy entropy loss, entropy regularizer, entropy regularizer loss",
    "entropy_coef": "entropy coefficient schedule?, entropy coefficient new, entropy beta, entropy regularizer"
    " beta|coefficient",
    "approx_kl": "kl approx, kl policy, kl behaviour, kl approx policy, kl old, kl old new, kl approx old, kl approx"
    " old new, kl policy old, kl update, kl approx k3, kl policy k3, kl policy old new",
    "approx_kl_k1": "kl k1, kl approx k1, kl policy k1, kl old k1",
    "approx_kl_k2": "kl approx k2, kl policy k2, kl old k2",
    "approx_kl_max": "kl approx max, kl policy max, kl old max",
    "ref_kl": "kl objective, kl penalty, kl reference policy|k1|k2|k3|completion?, kl approx reference old?",
    "rollout_kl": "kl engine, kl engine policy, kl rollout, kl approx engine, kl engine k3",
    "kl_penalty_reward": "kl reward",
    "kl_coef": "kl beta, kl coefficient, kl penalty coefficient, kl penalty reward coefficient, kl coefficient new, kl"
    " reward coefficient",
    "ratio_mean": "ratio old, ratio, importance, importance ratio, policy ratio, ratio old new, ratio new old,"
    " importance policy",
    "ratio_min": "ratio min, importance min, policy ratio min",
    "ratio_max": "ratio max, importance max, policy ratio max",
    "ratio_std": "ratio std, importance std, policy ratio std",
    "rollout_ratio_mean": "ratio rollout|engine, importance engine coefficient?",
    "rollout_ratio_min": "ratio rollout|engine min, importance engine coefficient? min",
    "rollout_ratio_max": "ratio rollout|engine max, importance engine coefficient? max",
    "clip_fraction": "clip fraction total, clip ratio, policy clip ratio, clip fraction, policy clip fraction, ratio"
    " clip fraction, importance clip fraction, surrogate clip fraction, importance clip",
    "clip_fraction_low": "clip low, importance clip fraction low, clip ratio low, clip fraction low, policy clip"
    " fraction low, ratio clip fraction low",
    "clip_fraction_high": "clip high, importance clip fraction high, clip ratio high, clip fraction high, policy clip"
    " fraction high, ratio clip fraction high",
    "clip_fraction_dual": "clip dual, policy clip dual, clip ratio dual, clip fraction dual, policy clip fraction dual",
    "optimizer_steps": "step optimizer, step gradient, step optimizer count, step gradient count, step optimizer"
    " executed, update gradient, update gradient count, step executed, optimizer_step, optimizer_step count,"
    " optimizer_step executed, minibatch executed, minibatch executed count",
    "optimizer_steps_total": "step optimizer total, step gradient total, step optimizer count total, optimizer_step"
    " total",
    "epochs_executed": "epoch executed, epoch executed count, epoch update executed, epoch policy executed",
    "env_steps": "step environment, step environment count, step environment total, step environment count total,"
    " frame count? total?",
    "iteration": "iteration, iteration count, iteration total",
    "policy_lag": "staleness, version difference, policy version difference, version difference engine policy, version"
    " difference rollout, policy staleness, rollout staleness, optimizer_step difference count engine policy,"
    " optimizer_step difference engine policy",
    "policy_version": "policy version, version new, policy version new, learner version, learner policy version,"
    " policy version count",
    "rollout_version": "rollout version, engine version, engine policy version, behaviour version, policy behaviour"
    " version, worker version, policy rollout version, completion version",
    "ptx_loss": "ptx loss",
    "fps": "pace",
    "masked_fraction": "importance dropped fraction engine?, importance mask fraction engine?, dropped fraction engine,"
    " importance dropped engine?, importance engine dropped fraction",
    "effective_sample_size": "ess importance? engine?",
    "clip_range": "clip coefficient schedule?, policy clip coefficient, clip coefficient new, clip schedule",
    "clip_range_vf": "value clip coefficient",
    "value_clip_fraction": "val clip fraction, value clip fraction, value clip ratio",
    "reward_mean": "reward, reward next, reward reward_model, frame reward, reward before|unclipped, reward completion,"
    " reward environment,"
    " reward token, reward instantaneous, reward last, reward step",
    "reward_group_std": "reward group std",
    "reward_total": "reward total, reward with kl penalty, reward with kl, reward with penalty, reward shaped",
    "reward_std": "reward std, reward reward_model std",
    "reward_min": "reward min, reward low, reward reward_model low, reward reward_model min, reward instantaneous min",
    "reward_max": "reward max, reward high, reward reward_model high, reward reward_model max, reward instantaneous"
    " max",
    "frac_reward_zero_std": "fraction reward? zero std, group equal reward? fraction?, group zero std reward?"
    " fraction?",
    "advantages_mean": "advantage, reward advantage, advantage norm, advantage after",
    "advantages_std": "advantage std, advantage norm std, advantage after std",
    "advantages_min": "advantage min, advantage norm min, advantage after min",
    "advantages_max": "advantage max, advantage norm max, advantage after max",
    "advantages_abs_max": "advantage absolute max, advantage norm absolute max, advantage after absolute max",
    "advantages_raw_mean": "advantage before, advantage before norm",
    "advantages_raw_abs_max": "advantage before absolute max, advantage before norm absolute max",
    "advantages_raw_std": "advantage before std, advantage before norm std",
    "returns_mean": "return, value return, reward return, value target",
    "returns_std": "return std, value return std, value target std",
    "returns_min": "return min",
    "returns_max": "return max",
    "returns_var": "return variance",
    "values_var": "value variance, val variance",
    "rollout_logp_diff": "logprob engine difference, logprob rollout difference",
    "rollout_logp_diff_max": "logprob engine difference max, logprob rollout difference max",
    "rollout_prob_diff": "prob engine difference, prob rollout difference",
    "rollout_prob_diff_max": "prob engine difference max, prob rollout difference max",
    "values_mean": "value, value approx|old|before",
    "values_std": "value std",
    "values_min": "value min",
    "values_max": "value max",
    "explained_variance": "explained, value explained",
    "learning_rate": "learning_rate schedule?, policy learning_rate schedule?,"
    " learning_rate new, learning_rate last, learning_rate group",
    "critic_learning_rate": "value learning_rate, value reward learning_rate",
    "grad_norm": "gradient norm total|policy?",
    "critic_grad_norm": "value gradient norm",
    "update_norm": "update_norm, policy update_norm, update_norm norm, policy update_norm norm, update norm",
    "critic_update_norm": "value update_norm, value update_norm norm",
    "action_std": "action std, action noise std, noise std, policy std, policy noise std, action policy std, policy"
    " distribution std, action deviation",
    "response_length": "completion token sample? mean, completion token count mean, completion length, completion token"
    " length",
    "response_length_min": "completion length min, completion token count min",
    "response_length_max": "completion length max, completion token count max",
    "truncated_fraction": "truncated fraction, completion truncated, completion truncated fraction, truncated,"
    " length clip ratio|fraction completion?, completion clip ratio|fraction, truncated ratio",
    "episode_return": "episode reward, episode return, episode reward total, episode return total, episode reward"
    " running, episode return running, episode reward last, episode return last",
    "episode_return_min": "episode reward min, episode return min",
    "episode_return_max": "episode reward max, episode return max",
    "episode_length": "episode length, episode step length|environment",
    "success_rate": "episode? success fraction?",
    "early_stopped": "stop, stop kl, stop policy, stop fraction, stop update",
    "eval_return": "evaluation|val|valid episode? reward|return, evaluation|val|valid accuracy,"
    " evaluation success fraction?",
}

#: Prefixes of metrics that keep their meaning in a group of the critic.
IN_CRITICS = ("value", "explained_variance", "advantages_", "returns_", "reward_", "kl_coef", "critic_")


#: English → Chinese, simplified and traditional; the empty word has no meaning for a name.
_WORDS: Mapping[str, str] = {
    "episode reward": "累计奖励 累积奖励 累計獎勵 累積獎勵 总奖励 總獎勵 回合奖励 回合獎勵 滑动平均奖励 移动平均奖励",
    "episode return": "累计回报 累积回报 累計回報 累積回報 总回报 總回報 回合回报 回合回報",
    "reward": "奖励 獎勵 得分 分数 分數",
    "return": "回报 回報 收益",
    "mean": "平均 均值 平均值",
    "max": "最大 最高 最大值",
    "min": "最小 最低 最小值",
    "std": "标准差 標準差",
    "variance": "方差",
    "total": "总 總",
    "running": "滑动 移动 滑動 移動",
    "evaluation": "评估 評估 测试 測試 验证 驗證",
    "training": "训练 訓練",
    "policy": "策略 演员 演員",
    "value": "价值 價值 状态价值 狀態價值 值函数 值函數 价值函数 價值函數",
    "critic": "评论家 評論家 评价网络",
    "loss": "损失 損失 损失函数 損失函數 损失值",
    "surrogate": "替代 代理 代理目标",
    "entropy": "熵",
    "approx": "近似",
    "reference": "参考 參考",
    "clip": "裁剪 剪裁 剪切 截断 截斷",
    "fraction": "比例 占比",
    "ratio": "比率 比值 概率比 機率比",
    "importance": "重要性 重要性采样",
    "advantage": "优势 優勢",
    "learning_rate": "学习率 學習率",
    "gradient": "梯度",
    "norm": "范数 範數",
    "steps": "步数 步數 时间步 時間步",
    "step": "步",
    "iteration": "迭代 迭代次数",
    "epoch": "轮次 轮数 輪次",
    "update": "更新",
    "count": "次数 次數 数量 數量",
    "episode": "回合 幕 轨迹",
    "length": "长度 長度",
    "completion": "回复 回答 响应 生成 回覆",
    "token": "词元 令牌",
    "success rate": "成功率",
    "win_rate": "胜率 勝率",
    "explained_variance": "解释方差 可解释方差 解釋變異",
    "coefficient": "系数 係數 权重 權重",
    "discount_factor": "折扣因子 折扣",
    "batch": "批次 批量",
    "minibatch": "小批量 小批次",
    "size": "大小",
    "temperature": "温度",
    "environment": "环境 環境",
    "action": "动作 動作",
    "old": "旧 舊",
    "new": "新",
    "time": "时间 時間 耗时 用时 剩余 秒",
    "memory": "显存 内存",
    "throughput": "吞吐",
    "discriminator": "判别器",
    "error": "误差 誤差",
    "": "散度 网络 網絡 每 的 当前 目前",
}
_ENGLISH = {chinese: english for english, words in _WORDS.items() for chinese in words.split()}
_CHINESE = lazy_pattern("|".join(sorted(_ENGLISH, key=len, reverse=True)))
#: Ideographs that are not in the table; they become an unknown word.
_IDEOGRAPHS = lazy_pattern("[\u4e00-\u9fff]+")


#: A sign for a maximum: "rho^". Likewise "±R" is a deviation.
_TOP = lazy_pattern(r"(?<=[^\W\d])\^(?!\w)")
#: Abbreviation of millinats: "KL[mn]", "drift_mn".
_MILLINATS = lazy_pattern(r"(?:[\[(_ ]|(?<=KL))mn(?:[\])]|\Z)")
#: KL followed by a word in lower case: "KLref", "dKLalt", "KLr".
_TO_REFERENCE = lazy_pattern(r"KL_r(?![a-z])")
_KL = lazy_pattern(r"(?<![A-Z])KL(?=[a-z])")


def english(key: str) -> str:
    """Return a key with Chinese words and signs in English; other ideographs become an unknown word."""
    if "^" in key:
        key = _TOP.sub("_max", key)
    if "KL" in key:
        key = _TO_REFERENCE.sub("KL_ref", _KL.sub("KL_", key))
    if "mn" in key:
        key = _MILLINATS.sub("_mnat ", key)
    if key.isascii():
        return key
    key = key.replace("±", " std_")
    return _IDEOGRAPHS.sub(" ideograph ", _CHINESE.sub(lambda match: f" {_ENGLISH[match[0]]} ", key))
