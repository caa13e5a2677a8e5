"""Settings whose values are words of a closed list, held against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ppo_doctor.frameworks.domains import words_of
from ppo_doctor.frameworks.spelling import one_slip

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Setting

#: Shorter words are all near one another.
SHORTEST = 4


def words_unknown(observations: Observations) -> Iterator[tuple[Setting, tuple[str, ...], str | None]]:
    """Yield settings that hold a word not on the list, the list, and the word on it that is one slip away."""
    run = observations.run
    for name, setting in run.config.items():
        known = words_of(name, run.framework)
        if not known or setting.how == "default" or not isinstance(setting.value, str):
            continue
        word = setting.value.lower()
        if word in known or not word.replace("-", "_").isidentifier():
            continue  # a reference, an empty word or a path, which something else decides
        near = (other for other in known if len(other) >= SHORTEST and one_slip(word, other))
        yield setting, known, next(near, None)
