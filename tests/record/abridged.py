"""What the recipes of docs/recorder.md are held against: files of other libraries, cut down to what a recipe touches.

Names, signatures and the lines around a hook are those of the releases; everything else is made up of NumPy.
"""

from __future__ import annotations

#: verl 0.9.1 (Apache-2.0), verl/workers/utils/losses.py.
VERL_LOSSES = """
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.utils.padding import no_padding_2_padding


def ppo_loss(config, model_output, data, dp_group=None):
    log_prob = no_padding_2_padding(model_output["log_probs"], data)
    response_mask = data["response_mask"]
    old_log_prob = data["old_log_probs"]
    advantages = data["advantages"]
    loss_mode = "vanilla"

    policy_loss_fn = get_policy_loss_fn(loss_mode)
    pg_loss, pg_metrics = policy_loss_fn(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=response_mask,
        config=config,
    )
    return pg_loss, pg_metrics
"""

#: verl 0.9.1 (Apache-2.0), verl/workers/engine_workers.py.
VERL_WORKERS = """
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import ppo_loss


class TrainingWorker:
    def __init__(self, engine, profiler):
        self.engine, self.profiler, self.loss_fn = engine, profiler, None

    def train_batch(self, data):
        return self.engine.train_batch(data, loss_function=self.loss_fn)

    def train_mini_batch(self, data):
        mini_batch_size_per_gpu, epochs = 8, 2
        dataloader = tu.make_iterator(data, mini_batch_size=mini_batch_size_per_gpu, epochs=epochs)

        with (
            self.engine.train_mode(),
        ):
            # update
            output_lst = []
            total_num_iterations = data.shape[0] // mini_batch_size_per_gpu * epochs

            for batch_idx, mini_batch_td in enumerate(dataloader):
                actor_output = self.train_batch(mini_batch_td)
                self.profiler.step()
                output_lst.append(actor_output)

            if self.engine.is_mp_src_rank_with_outputs():
                actor_output = [tu.get(output, "metrics") for output in output_lst]
        return actor_output
"""

#: OpenRLHF 0.11.2 (Apache-2.0), openrlhf/trainer/ray/ppo_actor.py.
OPENRLHF_ACTOR = """
from openrlhf.utils.vlm_utils import merge_mm_train_inputs


class ActorPPOTrainer:
    def __init__(self, strategy, actor, replay_buffer, actor_loss_fn):
        self.strategy, self.args = strategy, strategy.args
        self.actor, self.replay_buffer, self.actor_loss_fn = actor, replay_buffer, actor_loss_fn
        self.max_epochs = 2

    def ppo_train(self, kl_ctl):
        status_list = []
        status_mean = {}
        for epoch in range(self.max_epochs):
            pbar = self.replay_buffer
            for step, experience in enumerate(pbar):
                status = self.training_step(experience, kl_ctl, step)
                merged_status, short_status = status, status
                status_list.append(merged_status)
                pbar.set_postfix(short_status)

        if status_list:
            status_mean = {"policy_loss": sum(status_list) / len(status_list)}
        return status_mean

    def training_step(self, experience, kl_ctl, step, loss_batch_info=None):
        action_mask = experience.action_mask
        old_action_log_probs = experience.action_log_probs
        advantages = experience.advantages
        action_log_probs, output = self.actor(experience.sequences, action_mask)

        # loss function
        actor_loss, clip_ratio, ppo_kl, vllm_kl, is_filter_ratio = self.actor_loss_fn(
            action_log_probs,
            old_action_log_probs,
            advantages,
            action_mask=experience.action_mask,
        )
        self.strategy.optimizer_step(None, self.actor, None, name="actor")
        return actor_loss
"""

#: Ray 2.60.0 (Apache-2.0), rllib/algorithms/ppo/torch/ppo_torch_learner.py and what it inherits.
RLLIB_LEARNER = """
class PPOTorchLearner:
    def before_gradient_based_update(self, *, timesteps):
        pass

    def after_gradient_based_update(self, *, timesteps):
        pass

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        kind = self.module[module_id].unwrapped().get_train_action_dist_cls()
        new = kind.from_logits(fwd_out["action_dist_inputs"]).logp(batch["actions"])
        return -float(((new - batch["action_logp"]) * batch["advantages"]).mean())

    def get_optimizer(self, module_id="default_policy", optimizer_name="default_optimizer"):
        return self.optimizer
"""

#: Lightning 2.6.0 (Apache-2.0), pytorch/core/module.py and hooks.py.
LIGHTNING_MODULE = """
class LightningModule:
    global_step = 0

    def optimizers(self, use_pl_optimizer=True):
        return self.optimizer

    def on_train_start(self):
        pass

    def on_train_epoch_start(self):
        pass

    def training_step(self, *args, **kwargs):
        pass

    def on_train_epoch_end(self):
        pass
"""

#: CleanRL at fe8d8a0 (MIT), cleanrl/ppo.py.
CLEANRL_PPO = """
import tyro
from torch import nn, optim
from torch.utils.tensorboard import SummaryWriter


if __name__ == "__main__":
    args = tyro.cli(Args)
    agent = Agent(envs).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    global_step = 0
    for iteration in range(1, args.num_iterations + 1):
        b_logprobs, b_advantages, b_values, b_returns = rollout()
        # Optimizing the policy and value network
        clipfracs = []
        for epoch in range(args.update_epochs):
            for mb_inds in minibatches():
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(mb_inds)
                mb_advantages = b_advantages[mb_inds]
                if args.norm_adv:
                    mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)

                # Policy loss
                optimizer.step()

            if args.target_kl is not None and approx_kl > args.target_kl:
                break

        y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
"""
