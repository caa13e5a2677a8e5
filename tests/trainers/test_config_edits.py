"""One value or key of a configuration is changed, and nothing else; what cannot be changed safely is refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.trainers import config_formats
from ppo_doctor.trainers.config_edits import NotEditableError, add_setting, rename_key, replace_value

SHELL = """LR=1e-6
python train.py \\
  --learning_rate $LR \\
  --beta ${BETA:-0.04} \\
  --epsilon=0.2 \\
  --bf16 \\
  --seed=0
"""
PROGRAM = """LR = 1e-3
cfg = PPOConfig(lr=LR, clip=0.1 * 2, n=4)
critic = torch.optim.Adam(x, lr=LR)
"""
OPTIONS = """parser.add_argument(
    "--lr",
    type=float,
    default=0,
    help="0 is off",
)
parser.add_argument("--n", type=int, default=0)
args = parser.parse_args()
optimizer = optim.Adam(agent.parameters(), lr=args.lr)
"""


@pytest.mark.parametrize(
    ("suffix", "text", "key", "value", "old", "new"),
    [
        (".yaml", "a:\n  lr: 0.001 # 0.001 was better\n  b: 0.001\n", "a.lr", 1e-5, "lr: 0.001", "lr: 1.0e-5"),
        (".yaml", "lr: '1e-3'\n", "lr", 0.5, "'1e-3'", "'0.5'"),
        (".yaml", "lr: !!float 1e-3\r\nn: 2", "lr", 1e-4, "1e-3", "0.0001"),
        (".yaml", "{lr: 0, b: {lr: 0}}\n", "b.lr", 0.1, "b: {lr: 0}", "b: {lr: 0.1}"),
        (".yaml", "flag: yes\n", "flag", False, "yes", "no"),
        (".yaml", "target_kl: ~\nn: 1\n", "target_kl", 0.03, "~", "0.03"),
        (".yaml", "- a.lr=0.5\n- ++a.n=2\n", "a.n", 4, "n=2", "n=4"),
        (".yaml", "base: &b\n  lr: 1\nrun:\n  <<: *b\n  lr: 2\n", "run.lr", 3, "lr: 2", "lr: 3"),
        (".yaml", "lr:\n  desc: null\n  value: 0\n", "lr", 0.1, "value: 0", "value: 0.1"),
        (".json", '{"a": 0, "b": {"lr": 0}, "c": [0]}', "b.lr", 0.1, '"lr": 0', '"lr": 0.1'),
        (".json", '{"a": "x", "b": 1}', "a", "y", '"x"', '"y"'),
        (".toml", "[a]\nlr = 0 # lr = 0\n[b]\nlr = 0\n", "b.lr", 0.1, "[b]\nlr = 0", "[b]\nlr = 0.1"),
        (".sh", SHELL, "epsilon", 0.3, "=0.2", "=0.3"),
        (".py", PROGRAM, "n", 8, "n=4", "n=8"),
        (".py", OPTIONS, "lr", 1e-4, "default=0,\n", "default=0.0001,\n"),
        (".ini", "[ppo]\nlr = 0\nn = 0\n", "lr", 0.1, "lr = 0", "lr = 0.1"),
    ],
)
def test_a_value_is_replaced_in_place(suffix, text, key, value, old, new):
    assert text.count(old) == 1
    assert replace_value(suffix, text, key, value).text == text.replace(old, new)


@pytest.mark.parametrize(
    ("suffix", "text", "key", "says"),
    [
        (".yaml", "a: &l 1\nb: *l\n", "a", "also that of b"),
        (".yaml", "a: &l 1\nb: [*l]\n", "a", "also that of b"),
        (".yaml", "base: &b\n  lr: 1\nrun:\n  <<: *b\n", "run.lr", "also that of base.lr"),
        (".yaml", "lr: 1\nn: 2\nlr: 1\n", "lr", "lines 1, 3"),
        (".json", '{"lr": 1,\n "lr": 1}', "lr", "lines 1, 2"),
        (".yaml", "opt:\n  lr: 1\nactor:\n  lr: ${opt.lr}\n", "actor.lr", r"\$\{opt.lr\}; opt.lr is set in line 2"),
        (".yaml", "lr:\nn: 1\n", "lr", "no value"),
        (".sh", SHELL, "learning_rate", "LR is set in line 1"),
        (".sh", SHELL, "beta", "BETA:-0.04"),
        (".sh", SHELL, "bf16", "no value"),
        (".sh", "a --lr 1 \\\n --n 2\nb --lr 2 \\\n --k 2\n", "lr", "lines 1, 3"),
        (".py", PROGRAM, "lr", "LR is set in line 1"),
        (".py", PROGRAM, "clip", r"0.1 \* 2"),
    ],
)
def test_what_is_no_value_of_its_own_is_refused_with_the_reason(suffix, text, key, says):
    with pytest.raises(NotEditableError, match=says) as refused:
        replace_value(suffix, text, key, 7)
    assert refused.value.line is not None


@pytest.mark.parametrize(
    ("suffix", "text", "key", "value", "beside", "line"),
    [
        (".yaml", "a:\n  lr: 0.1 # x\n  n: 2\nb: 1\n", "a.gamma", 0.9, ["a.lr", "a.n"], "  gamma: 0.9\n"),
        (".yaml", "a:\r\n  lr: 0.1\r\n  n: 2", "a.gamma", 0.9, ["a.lr", "a.n"], "  gamma: 0.9\r\n"),
        (".json", '{\n  "lr": 0.1,\n  "n": 2\n}', "gamma", 0.9, ["lr", "n"], '  "gamma": 0.9,\n'),
        (".toml", "[a]\nlr = 0.1\n[b]\nn = 1\n", "a.norm", True, ["a.lr"], "norm = true\n"),
        (".sh", SHELL, "num_steps", 4, ["epsilon", "seed"], "  --num_steps=4 \\\n"),
        (".py", "c = PPOConfig(\n    lr=1,\n    n=4,  # four\n)\n", "gamma", 0.9, ["lr", "n"], "    gamma=0.9,\n"),
    ],
)
def test_a_setting_is_added_in_the_form_of_its_neighbour(suffix, text, key, value, beside, line):
    added = add_setting(suffix, text, key, value, beside)
    lines = added.text.splitlines(keepends=True)
    assert lines.pop(added.line - 1) == line
    assert "".join(lines) == text


@pytest.mark.parametrize(
    ("suffix", "text"),
    [(".py", "c = PPOConfig(lr=1, n=4)\n"), (".json", '{"lr": 1}'), (".sh", "python t.py --lr 1 --n 2\n")],
)
def test_a_setting_is_not_added_where_no_line_shows_how(suffix, text):
    with pytest.raises(NotEditableError):
        add_setting(suffix, text, "gamma", 0.9, ["lr", "n"])


def test_a_switch_is_not_added_to_a_command():
    with pytest.raises(NotEditableError):
        add_setting(".sh", SHELL, "use_kl", True, ["epsilon"])


def test_a_key_is_renamed_where_it_stands():
    text = "a:\n  learnig_rate: 2  # learnig_rate\nb:\n  learnig_rate: 2\n"
    renamed = rename_key(".yaml", text, "a.learnig_rate", "learning_rate")
    assert renamed.text == text.replace("learnig_rate: 2  #", "learning_rate: 2  #")
    option = "python t.py --learnig-rate 2 \\\n --n 2\n"
    assert rename_key(".sh", option, "learnig_rate", "learning_rate").text == option.replace("learnig", "learning")


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", "x: ${learnig_rate}\nlearnig_rate: 2\n"),
        (".py", "class Config:\n    learnig_rate: float = 2\n"),
        (".py", "c = PPOConfig(learnig_rate=2)\nprint(c.learnig_rate)\n"),
    ],
)
def test_a_key_that_is_used_elsewhere_is_not_renamed(suffix, text):
    with pytest.raises(NotEditableError):
        rename_key(suffix, text, "learnig_rate", "learning_rate")


@given(
    before=st.lists(st.sampled_from(["a: 0", "b: [0, 0]", "# lr: 0", "c: {lr: 0}", "d: '0'"]), unique=True),
    after=st.lists(st.sampled_from(["e: 0 # 0", "f: |\n  lr: 0", "g:\n  lr: 0"]), unique=True),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_only_the_value_changes_whatever_surrounds_it(before, after, end):
    lines = [*before, "lr: 0", *after]
    text = end.join(lines).replace("\r\n", "\n").replace("\n", end)
    at = len(before)
    expected = end.join([*before, "lr: 0.5", *after]).replace("\r\n", "\n").replace("\n", end)
    edited = replace_value(".yaml", text, "lr", 0.5)
    assert (edited.text, edited.line) == (expected, at + 1)


def test_a_name_that_is_there_thousands_of_times_takes_no_longer():
    words = ", ".join(['"learnig_rate"'] * 3_000)
    began = time.process_time()
    with pytest.raises(NotEditableError, match="cannot be changed in place"):
        rename_key(".json", f'{{"x": [{words}], "learnig_rate": 0.1}}', "learnig_rate", "learning_rate")
    assert time.process_time() - began < 5


def test_several_changes_of_a_long_text_read_each_text_once(monkeypatch):
    text = "".join(f"k{i}: {i}\n" for i in range(50))
    read = config_formats.read_yaml
    seen = []
    monkeypatch.setattr(config_formats, "read_yaml", lambda given: (seen.append(given), read(given))[1])
    for i in range(5):
        text = rename_key(".yaml", text, f"k{i}", f"m{i}").text
    assert len(seen) == 6
