"""The story of a run: what happened to it, what is wrong, what to do first; data that every report can print."""

from __future__ import annotations

from ppo_doctor.story.model import Story
from ppo_doctor.story.telling import story

__all__ = ["Story", "story"]
