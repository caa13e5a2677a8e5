"""Native keys as a set that answers exact names at once and patterns with `*` in one pass over all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

#: What a tensorboardX writer replaces in tags, so that "Loss / Policy loss" reads "Loss_/_Policy_loss".
_NOT_IN_TAGS = re.compile(r"[^-/\w.*]")


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("^" + ".*".join(map(re.escape, pattern.split("*"))) + "$", re.MULTILINE)


def is_pattern(key: str) -> bool:
    """Tell whether a key of a profile stands for several native ones."""
    return "*" in key


def captured(pattern: str, key: str) -> str:
    """Return what the one `*` of a pattern stands for in a key that it fits."""
    before, _, after = pattern.partition("*")
    return key[len(before) : len(key) - len(after)]


def as_tag(key: str) -> str:
    """Return the key as a tensorboardX writer would have written it."""
    return _NOT_IN_TAGS.sub("_", key)


class Keys:
    """The native keys of one log."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.names = keys if isinstance(keys, frozenset) else frozenset(keys)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _lines(self) -> str:
        return "\n".join(sorted(key for key in self.names if "\n" not in key))

    def has(self, pattern: str) -> bool:
        """Tell whether a name, or a name that a pattern fits, is among the keys."""
        return pattern in self.names or (is_pattern(pattern) and _compiled(pattern).search(self._lines) is not None)

    def has_all(self, patterns: Sequence[str]) -> bool:
        """Tell whether every one of these names or patterns is among the keys."""
        return all(map(self.has, patterns))

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the keys that a name or a pattern stands for; those of the whole rather than of one module last."""
        if not is_pattern(pattern):
            return (pattern,) if pattern in self.names else ()
        return tuple(sorted(_compiled(pattern).findall(self._lines), key=lambda key: ("/__" in key, key)))

    def without(self, patterns: Iterable[str]) -> frozenset[str]:
        """Return the keys that none of these names and patterns stands for."""
        left, several = set(self.names), []
        for pattern in patterns:
            if is_pattern(pattern):
                several.append(pattern)
            else:
                left.discard(pattern)
        for pattern in several if left else ():
            left.difference_update(self.matching(pattern))
        return frozenset(left)
