"""Infer what the columns of unknown scripts mean, from their names, their values and each other."""
