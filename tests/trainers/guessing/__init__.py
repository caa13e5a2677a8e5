"""Tests of the inference of what columns of unknown scripts mean."""
