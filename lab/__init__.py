"""Runs of real trainers, sound and with one fault each: made, labelled, packed and scored here."""
