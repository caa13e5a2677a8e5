"""Tests of the framework profiles."""
