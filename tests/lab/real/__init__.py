"""Runs of the real trainers, with faults injected the way users make them; their own loggers write the logs.

No rule and no bound was made with these runs in view: they are held-out truth for what was learnt in NumPy.
"""
