"""Mutation fuzzing of everything that reads a file: `python -m tests.fuzz --minutes 60`."""
