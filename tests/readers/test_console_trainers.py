"""Results that Ray prints in YAML without a head are records; other lines of keys and values are left to the others."""

RESULT = """custom_metrics: {{}}
done: false
episode_reward_mean: {reward}
hist_stats:
  episode_reward: [1.0, 2.0]
info:
  learner:
    default_policy:
      learner_stats:
        entropy: 0.6
        kl: 0.01
      model: {{}}
timesteps_total: {steps}
training_iteration: {number}
"""


def results(count, between=""):
    return between.join(RESULT.format(reward=i + 0.5, steps=i * 400, number=i) for i in range(1, count + 1))


def test_each_block_is_a_record(reading):
    got = reading(results(3))
    assert [record["episode_reward_mean"] for record in got.records] == [1.5, 2.5, 3.5]
    assert got.records[2]["info/learner/default_policy/learner_stats/kl"] == 0.01
    assert got.records[2]["timesteps_total"] == 1200


def test_blank_lines_and_messages_stand_between_blocks(reading):
    got = reading("started\n" + results(3, between="\n\ncheckpoint saved in /tmp/x\n"))
    assert [record["training_iteration"] for record in got.records] == [1, 2, 3]


def test_pairs_that_do_not_nest_stay_with_others(reading):
    plain = "".join(f"reward: {i}.5\nkl: 0.0{i}\nentropy: 0.{i}\n---\n" for i in range(1, 9))
    got = reading(plain)
    assert [record["kl"] for record in got.records] == [i / 100 for i in range(1, 9)]


def test_nested_settings_are_no_result(reading):
    got = reading("env:\n  name: CartPole\n  wrappers:\n    scale: 0.5\nlr: 0.001\ngamma: 0.99\n")
    assert not any("/" in key for record in got.records for key in record)
