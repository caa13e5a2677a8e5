"""Tensor dumps and checkpoints of lab runs with a known fault, or with none."""
