import time
from math import inf, isnan

import pytest

from ppo_doctor.readers import console


def test_dicts_of_transformers_4_among_progress_bars(reading):
    got = reading(
        "\r  0%|          | 0/2 [00:00<?, ?it/s]\r 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]"
        "\r{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-06, 'epoch': 0.5}            \r\n"
        " 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]{'loss': -inf, 'epoch': 1.0}\n"
    )
    assert got.container == "console"
    assert got.records[0]["learning_rate"] == 1e-06
    assert isnan(got.records[0]["grad_norm"])
    assert got.records[1] == {"loss": -inf, "epoch": 1.0}
    assert got.lines == [1, 2]


def test_records_have_the_steps_of_the_bar_above_them(reading):
    bars = "  1%|#         | {0}/320 [00:39<3:09:12, 36.04s/it]\n{{'loss': 0.1, 'epoch': {1}}}\n"
    other = "100%|##########| 7/7 [00:01<00:00,  9.0it/s]\n"
    got = reading(bars.format(5, 0.01) + other + bars.format(10, 0.02) + "{'eval_loss': 2.0, 'epoch': 0.02}\n")
    assert [record["step"] for record in got.records] == [5, 10, 10]


def test_records_that_a_buffer_held_back_have_no_steps(reading):
    bars = "".join(f" 5%|#    | {at}/200 [00:39<3:09, 36.04s/it]\r" for at in range(1, 40))
    got = reading(bars + "\n" + "{'loss': 0.1, 'epoch': 0.01}\n" * 3)
    assert [record.get("step") for record in got.records] == [None] * 3


def test_dicts_of_transformers_5_quote_their_numbers(reading):
    got = reading("{'loss': '0.0125', 'kl': '1e-05', 'lr': 'nan', 't': '1m 2s', 'b': True, 'n': None}\n")
    record = got.records[0]
    assert (record["loss"], record["kl"], record["b"]) == (0.0125, 1e-05, 1.0)
    assert isnan(record["lr"])
    assert got.texts == {"t": [(0, "1m 2s")]}


def test_blank_lines_are_offered_to_no_dialect(reading, monkeypatch):
    offered = []
    feed = console._feed
    monkeypatch.setattr(console, "_feed", lambda lines, *more: offered.append(lines) or feed(lines, *more))
    got = reading("{'loss': 1.0, 'kl': 2.0}\n" + "\n \t\n" * 1000 + "{'loss': 3.0, 'kl': 4.0}\n")
    assert got.lines == [1, 2002]
    assert len([lines for lines in offered if lines]) == 2
    assert len(offered) < 100


def test_numpy_wrappers_in_a_dict(reading):
    got = reading("{'a': np.float64(0.5), 'b': np.int64(3), 'c': tensor(0.25, device='x'), 'd': np.float32(nan)}\n")
    record = got.records[0]
    assert (record["a"], record["b"], record["c"]) == (0.5, 3, 0.25)
    assert isnan(record["d"])


def test_a_dict_split_over_lines_by_a_terminal_or_by_pprint(reading):
    got = reading("{'loss': 0.12\n34, 'k\nl': 0.5}\n{'a': 1.0,\n 'b': 2.0,\n 'c': 3.0}\n")
    assert got.records == [{"loss": 0.1234, "kl": 0.5}, {"a": 1, "b": 2, "c": 3}]
    assert got.lines == [1, 4]


def test_a_paste_without_its_opening_brace(reading):
    got = reading("'loss': -0.0, 'kl': 0.5, 'global_step/max_steps': '5/3766', 'percentage': '0.13%'}\n")
    steps = {"global_step/max_steps": 5, "global_step/max_steps planned": 3766}
    assert got.records == [{"loss": 0, "kl": 0.5, **steps, "percentage": pytest.approx(0.0013)}]


def test_a_torn_dict_gives_its_complete_values(reading):
    got = reading("{'loss': 1.0, 'kl': 2.0}\n{'loss': 3.0, 'kl': 0.1, 'entropy': 0.")
    assert got.records == [{"loss": 1, "kl": 2}, {"loss": 3, "kl": 0.1}]
    assert got.says("a dict is cut off")


def test_a_dict_torn_by_a_crash_does_not_swallow_what_follows(reading):
    crash = "Traceback (most recent call last):\n  File 'x', line 3, in <dictcomp>\n    {\n    k: f(\nOSError: disk\n"
    got = reading("{'loss': 1.0, 'kl': 2.0}\n{'loss': 3.0, 'k" + "\n" + crash + "{'loss': 4.0, 'kl': 5.0}\n")
    assert [record["loss"] for record in got.records] == [1, 3, 4]
    got = reading("{'loss': 3.0, 'k\n" + "step:1 - kl:0.5\n" * 3)
    assert got.records == [{"loss": 3}] + [{"step": 1, "kl": 0.5}] * 3


def test_braces_in_code_cost_no_record(reading):
    code = "    {\n  File x\nModel config {\n  'a': 3,\n}\n"
    got = reading(("{'loss': 1.0, 'kl': 2.0}\n" + code + "{'loss': 2.0, 'kl': 2.0}\n") * 20)
    assert [record["loss"] for record in got.records] == [1, 2] * 20
    assert got.skipped == 0


def test_dicts_in_prose_are_no_records(reading):
    got = reading("were updated. Updated tokens: {'eos_token_id': 248046, 'pad_token_id': 248044}.\n" * 3)
    assert got.records == []
    assert got.says("not read: 3")


def test_a_printed_configuration_is_one(reading):
    got = reading(
        "(TaskRunner pid=12) {'actor': {'ppo_epochs': 1,\n(TaskRunner pid=12)            'optim': {'lr': 1e-06}},\n"
        "(TaskRunner pid=12)  'seed': None,\n(TaskRunner pid=12)  'name': 'x'}\n"
        "(TaskRunner pid=12) step:1 - actor/kl:0.5\n"
    )
    assert got.records == [{"step": 1, "actor/kl": 0.5}]
    assert [config.values for config in got.configs] == [
        {"actor.ppo_epochs": 1, "actor.optim.lr": 1e-06, "seed": None, "name": "x"}
    ]


def test_steps_before_a_dict_are_read(reading):
    got = reading(
        "(RolloutManager pid=3) rollout 4: {'rollout/raw_reward': 0.5, 'rollout/kl': 0.1}\n"
        "step 5: {'train/loss': 0.5, 'train/kl': 0.1}\n"
        '2026-01-01 INFO metrics_tag: {"step": 6, "metrics": {"actor/loss@sum": 0.5, "ok": true}}\n'
    )
    assert got.records[0]["rollout"] == 4
    assert got.records[1]["step"] == 5
    assert got.records[2] == {"step": 6, "actor/loss@sum": 0.5, "ok": 1}


def test_verl_lines_with_ray_prefix_colours_and_numpy(reading):
    got = reading(
        "\x1b[36m(TaskRunner pid=1234)\x1b[0m step:0 - val-core/acc:0.5\n"
        "(main_task pid=9, ip=10.0.0.1) step:1 - actor/kl:np.float64(0.25) - a/b@max:-1e-05"
        " - critic/lr(1e-4):nan - x:inf\n"
    )
    assert got.records[0] == {"step": 0, "val-core/acc": 0.5}
    record = got.records[1]
    assert (record["actor/kl"], record["a/b@max"], record["x"]) == (0.25, -1e-05, inf)
    assert isnan(record["critic/lr(1e-4)"])


def test_verl_prints_three_decimals(reading):
    pairs = " - ".join(f"k{i}:{i / 3:.3f}" for i in range(6))
    got = reading(f"step:1 - {pairs} - kl:0.000 - lr:0.123\n")
    assert got.decimals["kl"] == got.decimals["lr"] == 3


def test_keys_that_stand_twice_are_noted(reading):
    got = reading("step:1 - a:0.1 - a:0.2 - b:0.3\n")
    assert got.records == [{"step": 1, "a": 0.2, "b": 0.3}]
    assert got.says("a stands twice")


SB3 = """-----------------------------
| rollout/          |        |
|    ep_rew_mean    | 21.5   |
| time/             |        |
|    total_timesteps| 2048   |
| train/            |        |
|    approx_kl      | nan    |
|    clip_fraction  | 1e-05  |
| loss              | 3      |
-----------------------------
"""


def test_boxes_of_sb3_join_section_and_member(reading):
    got = reading("Using cpu device\n" + SB3 + "Eval num_timesteps=10, episode_reward=1.00 +/- 0.00\n" + SB3)
    record = got.records[0]
    assert list(record) == [
        "rollout/ep_rew_mean", "time/total_timesteps", "train/approx_kl", "train/clip_fraction", "loss"
    ]  # fmt: skip
    assert isnan(record["train/approx_kl"])
    assert len(got.records) == 2
    assert got.lines == [3, 14]


def test_boxes_without_borders_and_a_torn_box(reading):
    got = reading("| kl | 0.5 |\n| fps | 3 |\n| kl | 0.25 |\n| fps | 4 |\n")
    assert got.records == [{"kl": 0.5, "fps": 3}, {"kl": 0.25, "fps": 4}]
    got = reading(SB3 + SB3[:150])
    assert got.records[1] == {"rollout/ep_rew_mean": 21.5}
    assert got.says("a table is cut off")


def test_boxes_drawn_by_rich(reading):
    got = reading("╭───────────────╮\n│ loss   │ 0.5  │\n│ kl     │ 0.1  │\n╰───────────────╯\n" * 2)
    assert got.records == [{"loss": 0.5, "kl": 0.1}] * 2


RSL_RL = """################################################################################
                      Learning iteration {n}/1500

                       Computation: 1101 steps/s (collection: 0.935s, learning 4.644s)
             Mean action noise std: 0.99
               Value function loss: inf
                       Mean reward: -4.90
--------------------------------------------------------------------------------
                   Total timesteps: 129024
                    Iteration time: 5.58s
                      Time elapsed: 00:01:56
"""


def test_blocks_of_rsl_rl(reading):
    got = reading("[INFO] Logging to x\n" + RSL_RL.format(n=12) + RSL_RL.format(n=13))
    assert [record["Learning iteration"] for record in got.records] == [12, 13]
    assert got.records[0] == {
        "Learning iteration": 12,
        "Computation": 1101,
        "Mean action noise std": 0.99,
        "Value function loss": inf,
        "Mean reward": -4.9,
        "Total timesteps": 129024,
        "Iteration time": 5.58,
    }
    assert got.texts["Time elapsed"] == [(0, "00:01:56"), (1, "00:01:56")]


def test_losses_under_one_key(reading):
    line = "[Update {n}/9] Step: {n}00/900 | FPS: 35\n └─ WinRate: 0.2{n} | Loss(P/V/E): -0.00{n}/0.070/1e-3\n\n"
    got = reading("".join(line.format(n=n) for n in (1, 2, 3)))
    assert got.records[1] == {
        "Update": 2,
        "Step": 200,
        "FPS": 35,
        "WinRate": 0.22,
        "policy loss": -0.002,
        "value loss": 0.07,
        "entropy": 0.001,
    }


def test_losses_under_one_key_have_to_be_as_many_as_its_names(reading):
    got = reading("step: 1 | reward: 0.5 | Loss(P/V): 1/2/3\nstep: 2 | reward: 0.25 | Loss(kl/V): 1.5/2\n")
    assert got.records == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.25, "kl loss": 1.5, "value loss": 2}]


FPS = "[2026-01-02 10:0{m}:01,5][77] Fps is (10 sec: 9.0, 60 sec: nan). Total num frames: {n}. Throughput: 0: 5.1.\n"
REWARD = "[2026-01-02 10:0{m}:01,6][77] Avg episode reward: [{of}]\n"


def sample_factory(*reports):
    """Reports of frames with the rewards of each policy, None where no episode has ended yet."""
    text = ""
    for m, (frames, rewards) in enumerate(reports):
        text += FPS.format(m=m, n=frames)
        text += REWARD.format(m=m, of=", ".join(f"({i}, '{r}')" for i, r in enumerate(rewards))) if rewards else ""
    return text + "[2026-01-02 10:09:00,0][77] Saving checkpoint_p0/checkpoint_8.pth...\n"


def test_reports_of_sample_factory_without_new_frames_are_one(reading):
    got = reading(sample_factory((0, None), (0, ["-1.5"]), (4096, ["2.25"]), (4096, ["2.5"]), (8192, ["nan"])))
    assert got.container == "console"
    assert [record["Total num frames"] for record in got.records] == [0, 4096, 8192]
    assert [record["Avg episode reward"] for record in got.records[:2]] == [-1.5, 2.5]
    assert isnan(got.records[2]["Avg episode reward"])
    assert got.lines == [2, 6, 8]


def test_rewards_of_each_policy_of_sample_factory(reading):
    got = reading(sample_factory((64, ["1.0", "3.0"]), (128, ["2.0", "4.0"])))
    assert got.records == [
        {"Total num frames": 64, "Avg episode reward": 1, "Avg episode reward 1": 3},
        {"Total num frames": 128, "Avg episode reward": 2, "Avg episode reward 1": 4},
    ]


def test_deepspeed_chat_in_both_wordings(reading):
    got = reading(
        "Epoch: 0 | Step: 1 | PPO Epoch: 1 | Actor Loss: 0.5 | Critic Loss: nan | Unsupervised Loss: 0.0\n"
        "End-to-End => Latency: 3.87s, TFLOPs: 1.2\n"
        "Average reward score: 0.71 | EMA reward score: 0.68\n"
        "-------------------------------------------------\n"
        "epoch: 0|step: 2|ppo_ep: 1|act_loss: -0.25|cri_loss: 0.1|unsuper_loss: 0.0\n"
        "average reward score: -1.5\n"
    )
    assert got.records[0]["Average reward score"] == 0.71
    assert got.records[0]["EMA reward score"] == 0.68
    assert isnan(got.records[0]["Critic Loss"])
    assert got.records[1]["average reward score"] == -1.5
    assert len(got.records) == 2


def test_pipe_tables_with_and_without_outer_pipes(reading):
    for left, right in (("", ""), ("| ", " |")):
        head = ["Step | Training Loss | rewards / x", "-- | :--: | --"]
        rows = [*head, "1 | -0.000000 | 0.5", "2 | 1.500000 | nan", "3 | 1"]
        got = reading("\n".join(left + row + right for row in rows) + "\n\n")
        assert got.records[0] == {"Step": 1, "Training Loss": 0, "rewards / x": 0.5}
        assert len(got.records) == 2
        assert got.skipped == 1


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("step=3, loss=0.5, kl=1e-05", {"step": 3, "loss": 0.5, "kl": 1e-05}),
        ("step: 3 | loss: 0.5 | kl: nan", {"step": 3, "loss": 0.5}),
        ("global_step=7, episodic_return=10.0", {"global_step": 7, "episodic_return": 10}),
        ("[V7] ep=1/200 reward=-2.5 len=414", {"ep": 1, "reward": -2.5, "len": 414}),
        ("2026-01-01 10:00:00,123 - INFO - step=3 loss=0.5", {"step": 3, "loss": 0.5}),
        ("Step 3 | loss:0.5 policy_loss:0.1", {"Step": 3, "loss": 0.5, "policy_loss": 0.1}),
        ("GRPO step 3/10 | loss: 0.5 | KL: 0.1", {"step": 3, "loss": 0.5, "KL": 0.1}),
        ("Iteration 3/10, loss: 0.5, kl: 0.1", {"Iteration": 3, "loss": 0.5, "kl": 0.1}),
        ("Epoch:[1/1](20/3000), Reward: 0.5, KL_ref: 0.1", {"Epoch": 1, "Step": 20, "Reward": 0.5, "KL_ref": 0.1}),
        ("global step=1000, episodic return=12", {"global step": 1000, "episodic return": 12}),
        ("Step 3 | Time: 1.25s | Mismatch KL: 0.5", {"Step": 3, "Time": 1.25, "Mismatch KL": 0.5}),
        ("loss=0.5, clip_frac=4.5%", {"loss": 0.5, "clip_frac": 0.045}),
    ],
)
def test_loose_pairs(reading, text, record):
    got = reading((text + "\n") * 2)
    found = {key: value for key, value in got.records[0].items() if not isnan(value)}
    assert found == pytest.approx(record)
    assert len(got.records) == 2


def test_an_indented_line_goes_on_with_the_one_above(reading):
    got = reading("[TRAIN] go\n[V7] ep=1/9 reward=-5 len=4\n  PPO: loss=1e-3, kl=0.5, clip=0.61%\n" * 4)
    expected = {"ep": 1, "reward": -5, "len": 4, "loss": 1e-3, "kl": 0.5, "clip": 0.0061}
    assert got.records == [pytest.approx(expected)] * 4


def test_single_pairs_in_a_row_are_a_record(reading):
    got = reading("Iteration 1\n  reward: 0.5\n  kl: 0.1\n\nIteration 2\n  reward: 0.6\n  kl: 0.2\n")
    assert got.records == [{"Iteration": 1, "reward": 0.5, "kl": 0.1}, {"Iteration": 2, "reward": 0.6, "kl": 0.2}]


def test_the_postfix_of_a_progress_bar_is_read_once_per_value(reading):
    bar = "Train:  50%|#####     | 1/2 [00:01<00:01,  1.00s/it, act_loss={}, kl=0.1]"
    got = reading("\r".join(bar.format(loss) for loss in (0.5, 0.5, 0.5, 0.25)) + "\n")
    assert [record["act_loss"] for record in got.records] == [0.5, 0.25]


def test_names_of_three_words_before_equals_signs(reading):
    got = reading("[2026-01-02 10:00:00] [INFO] Epoch 1: mean actor loss=nan | mean critic loss=2.5\n" * 3)
    assert list(got.records[0]) == ["Epoch", "mean actor loss", "mean critic loss"]
    assert got.records[0]["mean critic loss"] == 2.5


def test_many_short_messages_do_not_outvote_wide_records(reading):
    wide = " - ".join(f"critic/part_{n}:0.{n}" for n in range(1, 13))
    sample = "Answer: 3\nFormat score: 1\n"
    text = "".join(f"{sample * 200}step:{n} - actor/pg_loss:-0.{n} - {wide}\n" for n in range(1, 4))
    assert [r["actor/pg_loss"] for r in reading(text).records] == [-0.1, -0.2, -0.3]


def test_short_messages_before_the_first_wide_record_are_messages_too(reading):
    wide = " - ".join(f"critic/part_{n}:0.{n}" for n in range(1, 13))
    text = "Answer: 3\nFormat score: 1\n" * 4_000 + f"step:1 - actor/pg_loss:-0.1 - {wide}\n"
    assert len(reading(text).records) == 1


def test_loose_pairs_are_messages_where_there_are_better_records(reading):
    got = reading("{'loss': 1.0, 'kl': 0.1}\nstep=70, skipped=6\n" * 5)
    assert got.records == [{"loss": 1, "kl": 0.1}] * 5
    assert got.says("5 lines such as line")


def test_one_printed_dict_does_not_hide_a_log_of_pairs(reading):
    got = reading("{'lr': 0.1, 'n': 3}\n" + "step=1, loss=0.5\n" * 30)
    assert len(got.records) == 31


def test_prose_and_config_listings_are_counted_not_read(reading):
    got = reading("Starting with lr=0.1 and batch=32 for the large model on the new cluster\nhttp://x:80/\n" * 3)
    assert got.records == []
    assert got.says("not read: 6")
    assert got.skipped == 0


RAY = """Result for PPO_CartPole-v0_{trial}:
  custom_metrics: {{}}
  done: false
  episode_reward_mean: {reward}
  hist_stats:
    episode_lengths:
    - 20
    - 21
  info:
    learner:
      default_policy:
        learner_stats:
          kl: 0.0{n}
          vf_explained_var: -1.5e-08
    num_steps_sampled: {n}000
  node_ip: 10.0.0.1
  timesteps_total: {n}000
{end}"""


def test_results_of_ray_are_nested_as_in_its_file(reading):
    blocks = [RAY.format(trial="a1", reward=20.5, n=1, end="\n"), RAY.format(trial="a1", reward="nan", n=2, end="")]
    got = reading("== Status ==\nMemory usage on this node: 3.1/15.6 GiB\n" + "".join(blocks) + "Trial finished.\n")
    assert got.records[0] == {
        "done": 0,
        "episode_reward_mean": 20.5,
        "timesteps_total": 1000,
        "info/learner/default_policy/learner_stats/kl": 0.01,
        "info/learner/default_policy/learner_stats/vf_explained_var": -1.5e-8,
        "info/num_steps_sampled": 1000,
    }
    assert isnan(got.records[1]["episode_reward_mean"])
    assert got.lines == [3, 21]


def test_a_result_of_ray_that_is_cut_off_keeps_its_complete_lines(reading):
    whole = RAY.format(trial="a1", reward=20.5, n=1, end="\n") + RAY.format(trial="a1", reward=21.5, n=2, end="")
    got = reading(whole[: whole.rindex("  vf_explained_var") + 24])
    assert [record["episode_reward_mean"] for record in got.records] == [20.5, 21.5]
    assert got.records[1]["info/learner/default_policy/learner_stats/kl"] == 0.02
    assert "info/learner/default_policy/learner_stats/vf_explained_var" not in got.records[1]


UNITY = "[INFO] {name}. Step: {step}. Time Elapsed: 43.582 s. {rest} Training.{more}\n"
NO_EPISODE = "No episode was completed since last summary."
EPISODES = "Mean Reward: {0}. Std of Reward: 0.250."


def test_summaries_of_unity(reading):
    got = reading(
        "Version information:\n"
        + UNITY.format(name="Walker", step=5000, rest=NO_EPISODE, more="")
        + UNITY.format(name="Walker", step=10000, rest=EPISODES.format("-0.500"), more="")
        + UNITY.format(name="Walker", step=15000, rest=EPISODES.format("1.5"), more=" ELO: 1201.250.")
    )
    first = {"Step": 10000, "Time Elapsed": 43.582, "Is Training": 1, "Mean Reward": -0.5, "Std of Reward": 0.25}
    assert got.records == [first, first | {"Step": 15000, "Mean Reward": 1.5, "ELO": 1201.25}]


def test_an_older_wording_and_a_second_behaviour_of_unity(reading):
    older = "INFO:mlagents.trainers: run-0: Ball: Step: {}. Time Elapsed: 9.5 s Mean Reward: {}. Std of Reward: 0.1.\n"
    second = UNITY.format(name="Goalie", step=1000, rest=EPISODES.format("7.000"), more="")
    got = reading(older.format(1000, "2.0") + second + older.format(2000, "3.0"))
    assert [record.get("Mean Reward") for record in got.records] == [2, None, 3]
    assert got.records[1]["Goalie/Mean Reward"] == 7


RULES = "-" * 30 + "  " + "-" * 12 + "\n"


@pytest.mark.parametrize("stamp", ["", "2018-02-20 12:00:00.000000 UTC | ", "2018-02-20 12:00:00 | [ppo_1] | "])
def test_tables_of_two_columns(reading, stamp):
    rows = ("Policy/KL                       0.0{n}", "Evaluation/Average Return     -12.5e1", "Iteration  {n}")
    table = [RULES.strip(), *rows, RULES.strip()]
    text = "".join(f"{stamp}{row.format(n=n)}\n" for n in (1, 2) for row in [*table[:1], *table[1:]])
    got = reading(f"{stamp}Obtaining samples...\n" + text)
    assert got.records == [{"Policy/KL": 0.01 * n, "Evaluation/Average Return": -125, "Iteration": n} for n in (1, 2)]


def test_a_header_once_and_rows_of_numbers_between_pipes_as_elegantrl_prints(reading):
    got = reading(
        "| `avgR`: Average value of cumulative rewards\n"
        "ID     Step    Time |    avgR   stdR |    objC   etc.\n"
        "0  2.05e+03       9 |-1207.22  120.1 |    1.51   0.13   0.2\n"
        "0  4.10e+03      18 |-1187.00   99.0 |    1.40   0.11   0.2\n"
        "nothing else was saved\n"
        "0  6.14e+03      27 |-1166.00   90.0 |    1.30   0.11   0.2\n"
        "1 2 3\n"
    )
    assert got.lines == [3, 4, 6]
    assert got.records[0] == {"ID": 0, "Step": 2050, "Time": 9, "avgR": -1207.22, "stdR": 120.1, "objC": 1.51}


def test_rows_of_numbers_without_a_header_are_none(reading):
    assert reading("one two\n1 2 3\nthe run has begun\n\nand goes on\n1 2 3 4\n1 2 3 4\n").records == []


def test_a_box_of_several_columns_has_a_rule_below_its_header_and_its_row(reading):
    rule = "+-------+------+------+\n"
    box = f"{rule}| Name  | loss | kl   |\n{rule}| Value | {{}} | 0.01 |\n{rule}"
    got = reading(box.format("0.50") + box.format("0.25") + "| of | no | table |\n")
    assert got.records == [{"loss": 0.5, "kl": 0.01}, {"loss": 0.25, "kl": 0.01}]
    assert got.lines == [4, 9]


def test_a_box_of_names_and_numbers_between_corners_is_one_record(reading):
    box = "+---------+------+\n| loss    | 0.50 |\n| entropy | 1.2  |\n+---------+------+\n"
    assert reading(box * 2).records == [{"loss": 0.5, "entropy": 1.2}] * 2


def test_the_prefix_of_glog_is_no_part_of_a_name(reading):
    line = "I1101 10:00:00.1234 140213 train_eval.py:250] step = 25, loss = 0.5\n"
    assert reading(line).records == [{"step": 25, "loss": 0.5}]


def test_names_of_several_words_between_pipes(reading):
    got = reading("".join(f"[Learner] Critic Loss = 0.{n} | Entropy = 1.5 | Policy Loss = -0.0{n}\n" for n in (1, 2)))
    assert got.records == [{"Critic Loss": 0.1 * n, "Entropy": 1.5, "Policy Loss": -0.01 * n} for n in (1, 2)]


def test_bullets_of_nemo_rl(reading):
    step = (
        "========================= Step {n}/100 =========================\n▶ Preparing batch...\n\n"
        "📊 Training Results:\n  • Loss: 0.0{n}\n  • Generation KL Error: 0.00{n}\n  • Avg Reward: 0.{n}\n"
        "⏱️  Timing:\n  • Total step time: 50.1s\n  • policy_training: 9.8s (19.6%)\n"
        "📊 Validation Results:\n    • Accuracy: 0.5\n"
    )
    got = reading("".join(step.format(n=n) for n in (11, 12)) + step.format(n=13).partition("📊")[0])
    assert got.records == [
        {"Step": n, "Loss": n / 1000, "Generation KL Error": n / 10_000, "Avg Reward": n / 100} for n in (11, 12)
    ]
    assert got.lines == [1, 13]


def test_blanks_without_end_cost_no_more_than_many(reading):
    """Patterns that look for what stands around blanks take time by their square: a minute for a line like this."""
    row = "{'loss': 0.5, 'kl': 0.1}"
    got = reading(f"{row}\n{row.center(200_000)}\n{' ' * 200_000}x\n{row}\n")
    assert got.records == [{"loss": 0.5, "kl": 0.1}] * 3
    assert got.lines == [1, 2, 4]


def test_carriage_returns_without_end_are_searched_in_one_pass(reading):
    """A pattern for what stands behind blanks went over each run of them from each of its characters: minutes."""
    began = time.process_time()
    reading("{'loss': 0.5, 'kl': 0.1}\n" + "\r" * 100_000 + "\N{DEGREE SIGN}\n")
    assert time.process_time() - began < 5


def test_a_number_of_any_length_is_searched_in_one_pass(reading):
    """A pattern that gives digits back one by one takes the square of their number: eight seconds for such a line."""
    line = f"act_loss: {'9' * 8_000}|cri_loss: {'9' * 8_000}x\n"
    began = time.process_time()
    reading(line * 10)
    assert time.process_time() - began < 5


def test_blocks_between_rules_begin_with_their_counter(reading):
    block = "-------- Iteration #{n} --------\nAverage Return: -{n}.5\nIteration took: 1.0 secs\n------------------\n\n"
    title = "Iteration {n}\n-----------\nMean reward       : {n}.5 +/- 2.0\nEntropy           : 0.5 nats\n\n"
    assert reading("".join(block.format(n=n) for n in (1, 2))).records == [
        {"Iteration": n, "Average Return": -n - 0.5, "Iteration took": 1} for n in (1, 2)
    ]
    assert reading("".join(title.format(n=n) for n in (1, 2))).records == [
        {"Iteration": n, "Mean reward": n + 0.5, "Mean reward std": 2, "Entropy": 0.5} for n in (1, 2)
    ]


def test_full_stops_and_prefixes_of_loggers_are_no_part_of_a_pair(reading):
    got = reading("".join(f" Epoch: {n}. Mean Return: {n}.25. Mean Length: 20.5\n" for n in (1, 2)))
    assert got.records == [{"Epoch": n, "Mean Return": n + 0.25, "Mean Length": 20.5} for n in (1, 2)]
    glog = "I0526 10:0{n}:00.123456 1407373 run.py:4{n}] {text}: {n}.5\n"
    texts = ("Average undiscounted return per training episode", "Average training steps per second")
    got = reading("".join(glog.format(n=n, text=text) for n in (1, 2) for text in texts))
    assert got.records == [dict.fromkeys(texts, n + 0.5) for n in (1, 2)]
    got = reading("".join(f"[2020-07-26 22:45:53] <INFO>:default:Episode {n} total reward=1{n}.5\n" for n in (1, 2)))
    assert got.records == [{"Episode": n, "total reward": 10.5 + n} for n in (1, 2)]


def test_the_text_before_a_progress_bar_is_read(reading):
    bar = "Loss: {}:  33%|###  | {}/3 [00:00<00:00,  9.04it/s]\n"
    got = reading("".join(bar.format(loss, n) for n, loss in enumerate((0.5, 0.5, -0.25))))
    assert [record["Loss"] for record in got.records] == [0.5, -0.25]
    assert reading("Downloading shards:  33%|###  | 1/3 [00:00<00:00,  9.04it/s]\n" * 3).records == []


def test_pairs_alone_are_records_where_nothing_else_comes(reading):
    line = "Mean reward over last 100 episodes: {}.5\nModel saved to model.pt\n"
    got = reading(line.format(0) + "".join(line.format(n) for n in (1, 2, 3)))
    assert [record["Mean reward over last 100 episodes"] for record in got.records] == [1.5, 2.5, 3.5]
    mixed = "Return: {n}.5\nsaved\nstep={n}, loss=0.5\n"
    got = reading("".join(mixed.format(n=n) for n in (1, 2, 3)))
    assert got.records == [{"step": 1, "loss": 0.5}] + [{"Return": n + 0.5, "step": n, "loss": 0.5} for n in (2, 3)]


def test_a_place_in_a_file_is_no_pair(reading):
    text = "saved\nSee trainer.py:228\n(runs/exp1/run.jsonl:12)\n"
    assert reading(text * 4).records == []
    got = reading("".join(f"2024-05-01 10:00:00 INFO train.py:88 step: {n}, losses.kl:3\n" for n in (1, 2)))
    assert got.records == [{"step": n, "losses.kl": 3} for n in (1, 2)]


def test_a_colon_may_end_a_pair(reading):
    assert reading("step = 200: loss = 0.5\n" * 2).records == [{"step": 200, "loss": 0.5}] * 2


FANCY = """╒═════════════════╤═════════════╤════════════════════╤══════════╕
│ actor/pg_loss   │ {loss:.4e} │ actor/entropy/avg  │ 1.2e+00  │
├─────────────────┼─────────────┼────────────────────┼──────────┤
│ actor/grad_norm │  5.0111e-02 │                    │          │
╘═════════════════╧═════════════╧════════════════════╧══════════╛
"""
NARROW = """+-----------+--------+
| pg_loss   | {loss:.4f} |
+-----------+--------+
| entropy   | 1.2000 |
+-----------+--------+
"""


@pytest.mark.parametrize("form", [FANCY, NARROW])
def test_a_box_with_a_rule_below_each_row_is_one_record(cli, tmp_path, form):
    boxes = [f"step {i} done\n{form.format(loss=0.01 * i)}" for i in range(1, 10)]
    (tmp_path / "stdout.log").write_text("".join(boxes), encoding="utf-8")
    told = cli("analyze", tmp_path / "stdout.log", "--format", "json").json["run"]
    assert told["records"] == 9
    shown = cli("inspect", tmp_path / "stdout.log").out
    assert "policy_loss" in shown
    assert "entropy" in shown


def test_words_and_a_number_between_bars(reading):
    line = "22:26:54 SUCCESS Step {0} |    41ms | Loss -0.0{0} | Mismatch KL 0.0{0} | Kept 7/12 (56.2%) | LR 5e-4\n"
    records = reading("".join(map(line.format, (1, 2, 3)))).records
    assert [record["Step"] for record in records] == [1, 2, 3]
    assert [record["Mismatch KL"] for record in records] == [0.01, 0.02, 0.03]
    assert records[0]["LR"] == 5e-4


def test_rows_whose_numbers_run_into_each_other_and_end_in_counts(reading):
    got = reading(
        "ID     Step    Time |    avgR   stdR |    expR   objC   objA   etc.\n"
        "-1 2.00e+03       3 | -827.71  176.2 |   -1.43170275175661.57  -0.22   1.42   0.25 [498 501]\n"
        "-1 4.00e+03       6 | -771.21   45.7 |   -1.46181444240605.18  -0.19   1.43   0.25 [497 502]\n"
    )
    assert [(row["expR"], row["objC"], row["objA"]) for row in got.records] == [
        (-1.43, 170275175661.57, -0.22),
        (-1.46, 181444240605.18, -0.19),
    ]


def test_a_box_with_a_title_whose_groups_hold_pairs_over_several_lines(reading):
    box = (
        "╭───────── Metrics ─────────╮\n"
        "│  loss     kl_avg: {n}.5 |    │\n"
        "│           policy_avg:      │\n"
        "│           -0.1             │\n"
        "│  val      ratio: 1.00      │\n"
        "╰────────────────────────────╯\n"
    )
    got = reading("".join(box.format(n=n) for n in (0, 1)))
    assert got.records == [{"loss/kl_avg": n + 0.5, "loss/policy_avg": -0.1, "val/ratio": 1} for n in (0, 1)]


def test_a_dict_that_rich_draws_with_guides(reading):
    text = "{{\n│   'train/pg_loss': {n}.0,\n│   'train/entropy': 3.7,\n│   'actor/rewards': 0.25\n}}\n"
    got = reading("".join(text.format(n=n) for n in (0, 1)))
    assert got.records == [{"train/pg_loss": n, "train/entropy": 3.7, "actor/rewards": 0.25} for n in (0, 1)]


def test_counters_at_the_start_of_a_line_are_all_read(reading):
    text = "Iteration 1/1, Step {n}/9, GRPO iter 1/3, loss: 0.5\nIteration 1/1, Step {n}/9, GRPO iter 2/3, loss: 0.25\n"
    got = reading("".join(text.format(n=n) for n in (1, 2)))
    assert [(row["Step"], row["iter"], row["loss"]) for row in got.records] == [
        (1, 1, 0.5),
        (1, 2, 0.25),
        (2, 1, 0.5),
        (2, 2, 0.25),
    ]


HEAD = """PPO K epochs :  40
PPO epsilon clip :  0.2
discount factor (gamma) :  0.01
------------------------------
optimizer learning rate actor :  1e-07
==============================
"""


def test_what_is_printed_once_before_all_records_is_the_configuration(reading):
    rows = "".join(f"Episode : {n} \t Timestep : {n * 100} \t Average Reward : {n / 2}\n" for n in range(1, 13))
    got = reading(HEAD + rows)
    assert len(got.records) == 12
    assert got.configs[0].values == {
        "PPO K epochs": 40,
        "PPO epsilon clip": 0.2,
        "discount factor (gamma)": 0.01,
        "optimizer learning rate actor": 1e-07,
    }


def test_what_is_printed_once_among_records_and_is_no_setting_stays_a_message(reading):
    rows = "".join(f"Episode : {n} \t Timestep : {n * 100} \t Average Reward : {n / 2}\n" for n in range(1, 13))
    assert reading("dog : 1\ncat : 2\nmouse : 3\n" + rows).configs == []


def test_a_counter_in_brackets(reading):
    got = reading("".join(f"[Step {n:03}] Loss = 0.{n} -  Avg Reward = 0.5\n" for n in (20, 40, 60)))
    assert [record["Step"] for record in got.records] == [20, 40, 60]


def test_an_abbreviated_counter_in_brackets_is_one(reading):
    rows = "".join(f"[upd {n:5}] ret  {n / 7:.4f} | pg -0.0003 | kl 0.0{n}\n" for n in (20, 40, 60))
    assert [record["upd"] for record in reading(rows).records] == [20, 40, 60]


@pytest.mark.parametrize(
    "text",
    ["Baseline Avg Reward: 0.150\nGRPO Avg Reward: 0.800\n", "Eval accuracy: 0.150 -> 0.800\n"],
    ids=["in two lines", "with an arrow"],
)
def test_an_evaluation_before_and_after_training_is_told(reading, text):
    got = reading("[Step 1] Loss = 0.5 - Reward = 0.1\n[Step 2] Loss = 0.4 - Reward = 0.2\n" + text)
    assert any("0.150" in str(note) and "0.800" in str(note) for note in got.notes)
    assert all(0.8 not in record.values() for record in got.records)


def test_what_was_planned_and_bits_are_in_the_names_of_pairs(reading):
    records = reading(
        "".join(f"profit: {n}.5, spread: 1.{n} bit, steps done: {n} of 32\n" for n in range(1, 5))
    ).records
    assert [record["spread bit"] for record in records] == [1.1, 1.2, 1.3, 1.4]
    assert [(record["steps done"], record["steps done planned"]) for record in records] == [
        (n, 32) for n in range(1, 5)
    ]


def test_a_table_below_names_behind_a_sharp(reading):
    rows = "".join(f"{n:6d} {n / 8:10.4f} {1 - n / 64:10.5f}\n" for n in range(8))
    records = reading(f"# {'k':>4} {'W':>10} {'S':>10}\n" + rows).records
    assert [(record["k"], record["W"]) for record in records] == [(n, n / 8) for n in range(8)]
