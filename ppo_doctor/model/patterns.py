"""Regular expressions that are compiled when they are first used.

A diagnosis imports modules with 150 expressions and uses 30 of them; compiling the others would take a twelfth of its
start. Modules that every diagnosis imports use `lazy_pattern`, others `re.compile`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an object with the methods and attributes of a compiled expression, without compiling it yet."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


class _Pattern:
    """An expression; the methods of the compiled one become attributes when the first of them is used."""

    def __init__(self, text: Any, flags: int) -> None:  # noqa: ANN401 - str or bytes
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the compiled expression
        compiled = re.compile(self.pattern, self._flags)
        vars(self).update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)
