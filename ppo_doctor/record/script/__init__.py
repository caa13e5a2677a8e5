"""Observe PPO in an unchanged training script: `ppo-doctor run`."""
