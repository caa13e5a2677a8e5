"""A plain loop in torch: the causes of a ratio at 1 are told apart, nothing is changed, nothing waits for a device."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import ppo_doctor  # noqa: E402
from ppo_doctor.record import Recorder, measures  # noqa: E402
from tests.record.loop import FAULTS, Loop  # noqa: E402

#: What a log cannot tell: a copy synced inside the loop, or a second forward pass of the same policy.
TWINS = {"old-policy-aliased", "old-logp-resynced-per-minibatch"}
CASES = [(cause, place) for cause, loops in FAULTS.items() for place in range(len(loops))]


def causes(path):
    """Return the diagnosis and its causes, without that the loop reaches the highest reward there is."""
    diagnosis = ppo_doctor.analyze(path)
    shown = [cause for cause in diagnosis.causes if not cause.benign or diagnosis.verdict == "healthy"]
    return diagnosis, [cause.id for cause in shown if cause.id != "benign-converged"]


@pytest.mark.parametrize(("cause", "place"), CASES, ids=lambda value: str(value))
def test_each_row_of_the_table_is_named(tmp_path, cause, place):
    FAULTS[cause][place].train(tmp_path / "run.jsonl", seed=3)
    diagnosis, found = causes(tmp_path / "run.jsonl")
    if cause == "healthy":
        assert (diagnosis.verdict, found) == ("healthy", [])
    elif cause == "old-logp-resynced-per-minibatch":
        assert set(found[:2]) == TWINS
    else:
        assert found[0] == cause


def test_shared_memory_tells_aliasing_from_a_sync(tmp_path):
    Loop(old="aliased").train(tmp_path / "run.jsonl")
    diagnosis, _ = causes(tmp_path / "run.jsonl")
    first = diagnosis.causes[0]
    assert (first.id, first.confidence, first.level_with) == ("old-policy-aliased", "established", ())
    synced = [c for c in diagnosis.causes if c.id == "old-logp-resynced-per-minibatch"]
    assert all(first.score_db - c.score_db >= 13 for c in synced), "it may be too far behind to be listed"


@pytest.mark.parametrize("loop", [Loop(updates=6), Loop(old="aliased", updates=6), Loop(half=True, updates=6)])
def test_training_is_bitwise_the_same_with_and_without(tmp_path, loop):
    without, recorded = loop.train(None, seed=5), loop.train(tmp_path / "run.jsonl", seed=5)
    assert all(torch.equal(without[name], recorded[name]) for name in without)
    assert (tmp_path / "run.jsonl").read_text().count("\n") == 7


def test_hooks_are_gone_once_it_is_closed(tmp_path):
    policy = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(policy.parameters())
    recorder = Recorder(tmp_path / "run.jsonl", model=policy, optimizer=optimizer)
    held = [*optimizer._optimizer_step_pre_hooks, *optimizer._optimizer_step_post_hooks]
    assert len(held) == 2
    recorder.close()
    assert not [*optimizer._optimizer_step_pre_hooks, *optimizer._optimizer_step_post_hooks]
    assert not any(p._post_accumulate_grad_hooks for p in policy.parameters())


#: What makes the host wait: reading one number, testing one, looking for places, copying to another device.
WAITING = ("_local_scalar_dense", "is_nonzero", "item", "equal", "nonzero", "masked_select", "unique")


class Waits(TorchDispatchMode):
    """Counts operations that would wait for a device."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in WAITING or (name == "_to_copy" and (kwargs or {}).get("device") is not None):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def test_an_update_is_brought_over_in_one_transfer(tmp_path, monkeypatch):
    policy = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    recorder = Recorder(tmp_path / "run.jsonl", model=policy, optimizer=optimizer, clip_range=0.2)
    copies = []
    cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copies.append(self.shape) or cpu(self))
    obs, actions = torch.randn(16, 3), torch.arange(16) % 2
    stored = torch.distributions.Categorical(logits=policy(obs)).log_prob(actions).detach()
    for _ in range(3):
        with Waits() as waits:
            recorder.start_update(advantages=torch.randn(16))
            for epoch in range(4):
                new = policy(obs).log_softmax(-1).gather(1, actions[:, None])[:, 0]
                loss = -((new - stored).exp() * torch.linspace(-1, 1, 16)).mean()
                advantages = torch.linspace(-1, 1, 16)
                recorder.minibatch(
                    new_log_prob=new, old_log_prob=stored, advantages=advantages, epoch=epoch, policy_loss=loss
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.optimizer_step(policy, optimizer)
        assert waits.seen == []
        assert copies == []
        with Waits() as waits:
            found = recorder.end_update(reward_mean=torch.tensor(0.5))
        assert len(copies) == 1
        assert waits.seen == []
        copies.clear()
    assert found["optimizer_steps"] == 4
    assert found["reward_mean"] == 0.5


def test_the_transfer_counter_sees_what_it_counts():
    with Waits() as waits:
        torch.ones(3).sum().item()
    assert waits.seen == ["_local_scalar_dense"]


def test_statistics_stay_on_the_device_of_the_tensors():
    """Tensors on a device that holds no values: reading or copying a number of one raises."""
    new, old = torch.empty(4, 7, device="meta", dtype=torch.bfloat16), torch.empty(4, 7, device="meta")
    advantages, mask = torch.empty(4, device="meta"), torch.ones(4, 7, device="meta", dtype=torch.long)
    row = measures.row(new, old, advantages, mask, (-0.2, 0.2))
    told = measures.loss_ratio_row(new, advantages, mask)
    assert (row.device.type, row.shape) == ("meta", (len(measures.COLUMNS),))
    assert (told.device.type, told.shape) == ("meta", (2,))
    with pytest.raises(NotImplementedError):
        row.cpu()


def test_an_update_reads_no_number_until_its_end(tmp_path, capfd):
    """The whole update on a device that holds no values: whatever waits for one raises, wherever it hides."""
    policy = torch.nn.Linear(3, 200, device="meta")
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    recorder = Recorder(tmp_path / "run.jsonl", clip_range=0.2, dump_when="unhealthy")
    recorder.watch(policy, optimizer)
    recorder.start_update(advantages=torch.empty(16, device="meta"))
    for epoch in range(4):
        new = policy(torch.empty(16, 3, device="meta")).log_softmax(-1)[:, 0]
        stored, advantages, mask = torch.empty(3, 16, device="meta")
        recorder.minibatch(
            new_log_prob=new, old_log_prob=stored, advantages=advantages, mask=mask, epoch=epoch, policy_loss=new.sum()
        )
        optimizer.zero_grad()
        ((new - stored).exp() * advantages).sum().backward()
        optimizer.step()
        recorder.optimizer_step(policy, optimizer, loss_scale=torch.empty((), device="meta"))
    assert capfd.readouterr().err == ""
    assert recorder.end_update() is None
    assert "no data" in capfd.readouterr().err, "here the numbers are read"


def test_torch_and_numpy_agree():
    made = torch.Generator().manual_seed(0)
    new, old = torch.randn(8, 5, generator=made), torch.randn(8, 5, generator=made)
    advantages, mask = torch.randn(8, generator=made), torch.rand(8, 5, generator=made) > 0.3
    arrays = [each.numpy() for each in (new, old, advantages, mask)]
    one = measures.row(new, old, advantages, mask, (-0.2, 0.2)).numpy()
    assert one == pytest.approx(measures.row(*arrays, (-0.2, 0.2)), rel=1e-5)
    assert measures.loss_ratio_row(new, advantages, mask).numpy() == pytest.approx(
        measures.loss_ratio_row(arrays[0], arrays[2], arrays[3]), rel=1e-4
    )


def test_skipped_steps_are_those_asked_for_and_not_executed(tmp_path):
    policy = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    recorder = Recorder(tmp_path / "run.jsonl", model=policy, optimizer=optimizer)
    recorder.start_update()
    for executed in (True, False, True, False, False):
        optimizer.zero_grad()
        new = policy(torch.ones(3, 2))[:, 0]
        recorder.minibatch(new_log_prob=new, old_log_prob=new.detach().clone(), advantages=torch.ones(3))
        new.sum().backward()
        if executed:
            optimizer.step()
        recorder.optimizer_step(policy, optimizer)
    found = recorder.end_update()
    assert (found["optimizer_steps"], found["skipped_steps"]) == (2, 3)
    assert found["grad_norm"] == pytest.approx((9 + 9 + 9) ** 0.5)
    assert found["update_norm"] == pytest.approx(2 * 27**0.5)
    assert found["changed_fraction"] == 1


def test_gradients_are_measured_at_steps_that_double(tmp_path):
    policy = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    recorder = Recorder(tmp_path / "run.jsonl", model=policy, optimizer=optimizer)
    recorder.start_update()
    for size in range(1, 11):
        optimizer.zero_grad()
        new = policy(torch.tensor([[float(size)]]))[:, 0]
        recorder.minibatch(new_log_prob=new, old_log_prob=new.detach() - 0.1)
        new.sum().backward()
        optimizer.step()
    found = recorder.end_update()
    assert (found["optimizer_steps"], found["grad_norm"]) == (10, pytest.approx((1 + 2 + 4 + 8) / 4))


def test_gradients_are_measured_before_they_are_clipped(tmp_path):
    policy = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    recorder = Recorder(tmp_path / "run.jsonl", model=policy, optimizer=optimizer)
    recorder.start_update()
    new = policy(torch.tensor([[30.0, 40.0]]))[:, 0]
    recorder.minibatch(new_log_prob=new, old_log_prob=new.detach() - 0.1)
    new.sum().backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    recorder.optimizer_step(policy, optimizer)
    found = recorder.end_update()
    assert found["grad_norm"] == pytest.approx(50)
    assert found["update_norm"] == pytest.approx(0.5, rel=1e-3)


def test_only_the_weights_behind_the_log_probs_are_the_policys(tmp_path):
    """A critic in one model and optimizer with a frozen actor must not look like a policy that moves."""
    actor, critic = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    actor.requires_grad_(False)
    both = torch.nn.ModuleList([actor, critic])
    optimizer = torch.optim.SGD(both.parameters(), lr=1.0)
    recorder = Recorder(tmp_path / "run.jsonl", model=both, optimizer=optimizer)
    recorder.start_update()
    new = actor(torch.ones(3, 2))[:, 0]
    recorder.minibatch(new_log_prob=new, old_log_prob=new.clone(), advantages=torch.ones(3))
    critic(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    recorder.optimizer_step(both, optimizer)
    found = recorder.end_update()
    assert (found["grad_norm"], found["update_norm"], found["optimizer_steps"]) == (0, 0, 1)


@pytest.mark.parametrize(("shared", "told"), [(True, 1.0), (False, 0.0)])
def test_models_in_one_memory_are_found(tmp_path, shared, told):
    import copy

    policy = torch.nn.Linear(2, 1)
    other = policy if shared else copy.deepcopy(policy)
    recorder = Recorder(tmp_path / "run.jsonl", model=policy, old_policy=other, reference=other)
    recorder.start_update()
    new = policy(torch.ones(3, 2))[:, 0]
    recorder.minibatch(new_log_prob=new, old_log_prob=new.detach().clone(), advantages=torch.ones(3))
    found = recorder.end_update()
    assert (found["old_policy_shared"], found["reference_shared"]) == (told, told)


def test_a_probe_leaves_random_state_and_modes_alone(tmp_path):
    policy = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.5)).train()
    recorder = Recorder(tmp_path / "run.jsonl", model=policy)
    recorder.start_update()
    before, seen = torch.get_rng_state(), []

    def probe():
        seen.append((policy[1].training, torch.is_grad_enabled()))
        torch.randn(100)
        return torch.zeros(4), torch.full((4,), -0.1)

    found = recorder.end_update(probe=probe)
    assert seen == [(False, False)]
    assert policy[1].training
    assert torch.equal(torch.get_rng_state(), before)
    assert found["probe_kl"] == pytest.approx(0.1**2 / 2, rel=0.1)


def test_a_fault_in_backward_never_reaches_it(tmp_path, capfd, monkeypatch):
    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.start_update()
    new = torch.zeros(3, requires_grad=True)
    recorder.minibatch(new_log_prob=new, old_log_prob=torch.zeros(3), advantages=torch.ones(3))
    monkeypatch.setattr(measures, "loss_ratio_row", lambda *_: 1 / 0)
    new.sum().backward()
    assert new.grad.tolist() == [1, 1, 1]
    assert recorder.end_update()["tokens_in_loss"] == 3
    assert capfd.readouterr().err.count("training and recording go on") == 1
