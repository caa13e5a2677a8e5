"""Frozen types of runs, findings and diagnoses, with the vocabulary of metrics and errors."""
