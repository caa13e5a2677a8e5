"""PPO in one file, after the structure of CleanRL's ppo.py and ppo_continuous_action.py: same names, same prints.

`forks` are the lines that a forked script has changed; each is named where it acts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal
from torch.utils.tensorboard import SummaryWriter


@dataclass
class Args:
    """What the script's command line takes."""

    exp_name: str = "ppo"
    seed: int = 1
    torch_deterministic: bool = True
    cuda: bool = False
    track: bool = False
    env_id: str = "CartPole-v1"
    total_timesteps: int = 12000
    learning_rate: float = 2.5e-3
    num_envs: int = 8
    num_steps: int = 64
    anneal_lr: bool = False
    gamma: float = 0.97
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    norm_adv: bool = True
    clip_coef: float = 0.2
    clip_vloss: bool = True
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = None
    # what forks add
    optimizer: str = "adam"
    dtype: str = "float32"
    kl_coef: float = 0.0
    hidden: int = 64
    # computed when the script runs
    batch_size: int = 0
    minibatch_size: int = 0
    num_iterations: int = 0


def make_env(args: Args, inner: Callable[[Any], Any], task: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that makes one environment with the wrappers of the script."""

    def thunk() -> Any:
        env = inner(gym.make(args.env_id, disable_env_checker=True, **task))
        env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.FlattenObservation(env))
        if isinstance(env.action_space, gym.spaces.Box):
            env = gym.wrappers.NormalizeObservation(gym.wrappers.ClipAction(env))
            env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
            env = gym.wrappers.NormalizeReward(env, gamma=args.gamma)
            env = gym.wrappers.TransformReward(env, lambda reward: float(np.clip(reward, -10, 10)))
        return env

    return thunk


def layer_init(layer: Any, std: float = 2.0**0.5, bias_const: float = 0.0) -> Any:
    """Make a layer's weights orthogonal."""
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def network(inputs: int, hidden: int, outputs: int, std: float) -> Any:
    """Return two hidden layers and an output."""
    first, second = layer_init(nn.Linear(inputs, hidden)), layer_init(nn.Linear(hidden, hidden))
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), layer_init(nn.Linear(hidden, outputs), std=std))


class Agent(nn.Module):
    """Actor and critic apart from each other, for discrete or continuous actions."""

    def __init__(self, envs: Any, hidden: int) -> None:
        super().__init__()
        inputs = int(np.array(envs.single_observation_space.shape).prod())
        self.discrete = isinstance(envs.single_action_space, gym.spaces.Discrete)
        space = envs.single_action_space
        actions = int(space.n) if self.discrete else int(np.prod(space.shape))
        self.critic = network(inputs, hidden, 1, 1.0)
        self.actor = network(inputs, hidden, actions, 0.01)
        if not self.discrete:
            self.actor_logstd = nn.Parameter(torch.zeros(1, actions))

    def get_value(self, x: Any) -> Any:
        """Return the critic's estimate."""
        return self.critic(x.to(self.critic[0].weight.dtype)).float()

    def get_action_and_value(self, x: Any, action: Any = None, temperature: float = 1.0) -> tuple[Any, Any, Any, Any]:
        """Sample an action or take the given one; return it with log-prob, entropy and value."""
        out = self.actor(x.to(self.actor[0].weight.dtype)).float()
        if self.discrete:
            probs: Any = Categorical(logits=out / temperature)
            action = probs.sample() if action is None else action
            return action, probs.log_prob(action), probs.entropy(), self.get_value(x)
        std = torch.exp(self.actor_logstd.float().expand_as(out)) * temperature
        probs = Normal(out, std)
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.get_value(x)


def report(writer: Any, infos: Any, global_step: int) -> None:
    """Print and write each episode that ended."""
    if "final_info" not in infos or "episode" not in infos["final_info"]:
        return
    episode = infos["final_info"]["episode"]
    for env in np.flatnonzero(infos["final_info"]["_episode"]):
        print(f"global_step={global_step}, episodic_return={episode['r'][env]}")
        writer.add_scalar("charts/episodic_return", episode["r"][env], global_step)
        writer.add_scalar("charts/episodic_length", episode["l"][env], global_step)


def run(  # noqa: PLR0912, PLR0915 - one file, one function: that is the style
    args: Args,
    forks: frozenset[str],
    inner: Callable[[Any], Any],
    task: Mapping[str, Any],
    prepare: Callable[[Args], None],
) -> None:
    """Train from beginning to end; `prepare` sees the settings once they are complete."""
    args.batch_size = int(args.num_envs * args.num_steps)
    args.minibatch_size = int(args.batch_size // args.num_minibatches)
    args.num_iterations = args.total_timesteps // args.batch_size
    prepare(args)
    writer = SummaryWriter(".")
    if "no-table" not in forks:
        table = "\n".join([f"|{key}|{value}|" for key, value in vars(args).items()])
        writer.add_text("hyperparameters", f"|param|value|\n|-|-|\n{table}")

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(False)
    device = torch.device("cpu")
    envs: Any = gym.vector.SyncVectorEnv(
        [make_env(args, inner, task) for _ in range(args.num_envs)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    agent = Agent(envs, args.hidden).to(device).to(getattr(torch, args.dtype))
    actor = Agent(envs, args.hidden)  # fork "stale": the sampler's own copy of the weights
    actor.load_state_dict(agent.state_dict())
    if args.optimizer == "adam":
        optimizer: Any = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    else:
        optimizer = optim.SGD(agent.parameters(), lr=args.learning_rate)

    obs = torch.zeros((args.num_steps, args.num_envs, *envs.single_observation_space.shape)).to(device)
    actions = torch.zeros((args.num_steps, args.num_envs, *envs.single_action_space.shape)).to(device)
    logprobs, rewards = torch.zeros((args.num_steps, args.num_envs)), torch.zeros((args.num_steps, args.num_envs))
    dones, values = torch.zeros((args.num_steps, args.num_envs)), torch.zeros((args.num_steps, args.num_envs))

    global_step, start_time = 0, time.time()
    next_obs_array, _ = envs.reset(seed=args.seed)
    next_obs = torch.Tensor(next_obs_array).to(device)
    next_done = torch.zeros(args.num_envs).to(device)
    kept: Any = None

    for iteration in range(1, args.num_iterations + 1):
        if args.anneal_lr:
            frac = 1.0 - (iteration - 1.0) / args.num_iterations
            if "horizon" in forks:  # the iterations were counted in minibatches, of which there are fewer left
                frac = max(1.0 - (iteration - 1.0) * args.num_minibatches / args.num_iterations, 0.0)
            optimizer.param_groups[0]["lr"] = frac * args.learning_rate
        if "stale" in forks and iteration % 6 == 1:
            actor.load_state_dict(agent.state_dict())
        sampler = actor if "stale" in forks else agent

        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                heat = 0.5 if "temperature" in forks else 1.0
                action, logprob, _, value = sampler.get_action_and_value(next_obs, temperature=heat)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            next_obs_array, reward, terminations, truncations, infos = envs.step(action.cpu().numpy())
            rewards[step] = torch.tensor(reward).to(device).view(-1)
            next_obs = torch.Tensor(next_obs_array).to(device)
            next_done = torch.Tensor(np.logical_or(terminations, truncations)).to(device)
            report(writer, infos, global_step)

        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards).to(device)
            lastgaelam: Any = 0
            for t in reversed(range(args.num_steps)):
                if t == args.num_steps - 1:
                    nextnonterminal, nextvalues = 1.0 - next_done, next_value
                else:
                    nextnonterminal, nextvalues = 1.0 - dones[t + 1], values[t + 1]
                delta = rewards[t] + args.gamma * nextvalues * nextnonterminal - values[t]
                lastgaelam = delta + args.gamma * args.gae_lambda * nextnonterminal * lastgaelam
                advantages[t] = lastgaelam
            returns = advantages + values

        b_obs = obs.reshape((-1, *envs.single_observation_space.shape))
        b_actions = actions.reshape((-1, *envs.single_action_space.shape))
        b_logprobs, b_advantages = logprobs.reshape(-1), advantages.reshape(-1)
        b_returns, b_values = returns.reshape(-1), values.reshape(-1)
        if "shifted" in forks:  # log-probs were written one step late
            b_logprobs = torch.roll(logprobs, 1, dims=0).reshape(-1)
        if "stuck" in forks:  # the batch is flattened once, before the loop
            kept = kept or tuple(
                each.clone() for each in (b_obs, b_actions, b_logprobs, b_advantages, b_returns, b_values)
            )
            b_obs, b_actions, b_logprobs, b_advantages, b_returns, b_values = kept

        b_inds = np.arange(args.batch_size)
        clipfracs = []
        for _epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, args.batch_size, args.minibatch_size):
                mb_inds = b_inds[start : start + args.minibatch_size]
                taken = b_actions.long()[mb_inds] if agent.discrete else b_actions[mb_inds]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], taken)
                old = newlogprob.detach() if "resynced" in forks else b_logprobs[mb_inds]
                logratio = newlogprob - old
                ratio = logratio.exp()
                with torch.no_grad():
                    # see http://joschu.net/blog/kl-approx.html
                    old_approx_kl = (-logratio).mean()
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs += [((ratio - 1.0).abs() > args.clip_coef).float().mean().item()]

                mb_advantages = b_advantages[mb_inds]
                if args.norm_adv:
                    spread = mb_advantages.std(unbiased="population" not in forks)
                    mb_advantages = (mb_advantages - mb_advantages.mean()) / (spread + 1e-8)
                if "flipped" in forks:  # the two minuses of the loss were lost
                    mb_advantages = -mb_advantages

                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()

                newvalue = newvalue.view(-1)
                v_loss = (newvalue - b_returns[mb_inds]) ** 2
                if args.clip_vloss:
                    moved = torch.clamp(newvalue - b_values[mb_inds], -args.clip_coef, args.clip_coef)
                    v_loss = torch.max(v_loss, (b_values[mb_inds] + moved - b_returns[mb_inds]) ** 2)
                v_loss = 0.5 * v_loss.mean()

                entropy_loss = entropy.mean()
                loss = pg_loss - args.ent_coef * entropy_loss + v_loss * args.vf_coef
                if args.kl_coef:  # a fork's penalty against the policy of the rollout
                    loss = loss + args.kl_coef * ((ratio - 1) - logratio).mean()

                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
            if args.target_kl is not None and approx_kl > args.target_kl:
                break

        y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
        var_y = np.var(y_true)
        explained_var = np.nan if var_y == 0 else 1 - np.var(y_true - y_pred) / var_y
        writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], global_step)
        writer.add_scalar("losses/value_loss", v_loss.item(), global_step)
        writer.add_scalar("losses/policy_loss", pg_loss.item(), global_step)
        writer.add_scalar("losses/entropy", entropy_loss.item(), global_step)
        writer.add_scalar("losses/old_approx_kl", old_approx_kl.item(), global_step)
        writer.add_scalar("losses/approx_kl", approx_kl.item(), global_step)
        writer.add_scalar("losses/clipfrac", np.mean(clipfracs), global_step)
        writer.add_scalar("losses/explained_variance", explained_var, global_step)
        print("SPS:", int(global_step / (time.time() - start_time)))
        writer.add_scalar("charts/SPS", int(global_step / (time.time() - start_time)), global_step)

    envs.close()
    writer.close()
