"""Parse Python literals in untrusted text."""

from __future__ import annotations

import ast


def python_literal(text: str) -> object:
    """Return the value of one Python literal; nothing in it is run.

    Raises:
        ValueError: it is none, is nested too deeply, or is one that cannot be, such as a set of sets.
    """
    try:
        return ast.literal_eval(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (SyntaxError, TypeError, MemoryError) as error:
        raise ValueError("it is no literal") from error
