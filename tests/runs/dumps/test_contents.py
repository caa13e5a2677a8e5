"""What arrays are by what they hold, where their names say nothing, too little, or what is not so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.numpy_lab.dumps.schemes import dumps
from ppo_doctor.readers.tensors.tensor import Archive, Tensor
from ppo_doctor.runs.dumps.contents import roles_in, with_roles
from ppo_doctor.trainers.phrases import ARRAYS

#: What the lab's arrays are, in the dumps of both algorithms.
ROLES = {
    "log_probs": "log_prob",
    "old_log_probs": "old_log_prob",
    "advantages": "advantages",
    "response_mask": "mask",
    "responses": "tokens",
    "rewards": "rewards",
    "attention_mask": "attention_mask",
    "epoch": "epoch",
    "minibatch": "minibatch",
}
OF_PPO = ROLES | {"values": "values", "returns": "returns", "token_level_rewards": "token_rewards"}
OF_GRPO = ROLES | {"group_ids": "group"}
CRITIC = ("returns", "token_level_rewards", "rewards")
ROWS = ("epoch", "minibatch", "group_ids", "rewards")
PPO, GRPO = 0, 1


def read(held, container="npz"):
    tensors = {name: Tensor.of(name, np.asarray(values)) for name, values in held.items()}
    return roles_in(Archive(path="dump.npz", container=container, tensors=tensors, scalars={}))


def renamed(which, roles, names):
    held = {name: dumps()[which][name] for name in roles}
    return {names.get(name, name): values for name, values in held.items()}


@pytest.mark.parametrize(
    ("which", "roles", "unnamed"),
    [
        *(
            (PPO, OF_PPO, (name,))
            for name in (*CRITIC, "values", "response_mask", "attention_mask", "responses", "epoch")
        ),
        *((GRPO, OF_GRPO, (name,)) for name in ("minibatch", "group_ids", "rewards", "response_mask")),
        (PPO, OF_PPO, CRITIC),
        (PPO, OF_PPO, ("response_mask", "attention_mask", *CRITIC)),
        (GRPO, OF_GRPO, ROWS),
    ],
)
def test_relations_tell_what_names_do_not(which, roles, unnamed):
    strange = {name: f"q{at}" for at, name in enumerate(unnamed)}
    found = read(renamed(which, roles, strange))
    assert {name: found[strange.get(name, name)] for name in roles} == roles


def test_returns_and_values_change_places_where_their_names_are_wrong():
    found = read(renamed(PPO, OF_PPO, {"values": "target_values", "returns": "v_targ"}))
    assert (found["target_values"], found["v_targ"]) == ("values", "returns")


def test_log_probs_that_stay_through_the_epochs_are_not_the_new_ones():
    held = renamed(PPO, OF_PPO, {"log_probs": "theta_logp", "old_log_probs": "logprobs"})
    found = read(held)
    assert (found["theta_logp"], found["logprobs"]) == ("log_prob", "old_log_prob")


def test_a_name_that_says_whose_log_probs_it_holds_is_believed():
    held = renamed(PPO, OF_PPO, {"log_probs": "old_log_probs", "old_log_probs": "new_log_probs"})
    found = read(held)
    assert (found["new_log_probs"], found["old_log_probs"]) == ("log_prob", "old_log_prob")


def test_advantages_of_the_wrong_sign_do_not_make_returns_of_values():
    held = renamed(PPO, OF_PPO, {})
    held["advantages"] = -held["advantages"]
    assert {name: role for name, role in read(held).items() if name in OF_PPO} == OF_PPO
    strange = renamed(PPO, OF_PPO, {"values": "q", "returns": "qq"}) | {"advantages": held["advantages"]}
    assert read(strange)["q"] is read(strange)["qq"] is None


@pytest.mark.parametrize("broken", ["advantages", "returns", "values"])
def test_a_relation_that_does_not_hold_says_nothing(broken):
    held = renamed(PPO, OF_PPO, {})
    held[broken] = np.random.default_rng(1).permutation(held[broken])
    found = read(held)
    assert {name: found[name] for name in OF_PPO} == OF_PPO


OTHERS = {
    "teacher_score_map": lambda rng, like: rng.normal(size=like.shape),
    "rho": lambda rng, like: np.exp(0.1 * rng.normal(size=like.shape)),
    "position": lambda _, like: np.broadcast_to(np.arange(like.shape[1]), like.shape),
    "tau": lambda _, like: np.full(len(like), 0.7),
    "shard": lambda rng, like: rng.integers(0, 4, len(like)),
    "obs": lambda rng, like: rng.normal(size=(*like.shape, 3)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(("which", "roles"), [(PPO, OF_PPO), (GRPO, OF_GRPO)])
def test_an_array_of_another_kind_stays_unknown_beside_any_that_is_missing(name, which, roles):
    rng = np.random.default_rng(2)
    for missing in (None, "rewards", "responses", *({"values", "group_ids"} & roles.keys())):
        held = renamed(which, {each: role for each, role in roles.items() if each != missing}, {})
        held[name] = OTHERS[name](rng, held["old_log_probs"])
        assert read(held)[name] is None, missing


def test_weights_are_no_samples_whatever_they_hold():
    weights = np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32)
    assert set(read({"a.weight": weights, "b.weight": weights, "mask": np.ones((8, 8), bool)}).values()) <= {
        None,
        "mask",
    }


def test_files_of_one_run_are_read_alike():
    held = renamed(PPO, OF_PPO, {"returns": "q"})
    first = (held["epoch"] == 0) & (held["minibatch"] == 0)
    one = {name: values[first][:3] for name, values in held.items()}
    archives = [
        Archive(path=str(at), container="npz", tensors={n: Tensor.of(n, v) for n, v in part.items()}, scalars={})
        for at, part in enumerate((one, held))
    ]
    assert [archive.roles["q"] for archive in with_roles(archives)] == ["returns", "returns"]


SHAPES = ((), (1,), (64,), (64, 1), (64, 4), (64, 7), (64, 4, 2), (4, 64), (0,), (64, 0))
NAMES = (
    "log_probs",
    "old_logp",
    "advantages",
    "ret",
    "vpred",
    "rew",
    "mask",
    "attn",
    "epoch",
    "group_id",
    "q",
    "z_logp",
)


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.tuples(
            st.sampled_from(SHAPES),
            st.sampled_from(("f4", "f8", "f2", "i8", "u1", "?", "c8")),
            st.sampled_from((0.0, 1.0, 7.0, 1e300, np.nan, np.inf, -np.inf)),
            st.integers(0, 3),
        ),
        min_size=1,
    )
)
def test_arrays_of_any_shape_and_numbers_are_read_or_left(drawn):
    held = {}
    for name, (shape, kind, odd, seed) in drawn.items():
        values = np.random.default_rng(seed).integers(-2, 3, shape) * np.float64(1 if seed else 0.5)
        with np.errstate(all="ignore"):
            held[name] = np.where(values == 1, odd, values).astype(kind)
    found = read(held)
    assert found.keys() == held.keys()
    assert set(found.values()) <= {None, *ARRAYS}
