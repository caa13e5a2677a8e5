"""One test for a property that many things share: it looks at all of them and lists those that lack it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def for_each(subjects: Iterable[Any], name: Callable[[Any], object] = str) -> Callable[[Test], Test]:
    """Run a test on every subject, given as its first argument, and fail once, with a line for each that failed.

    `name` says what a subject is called there; further arguments of the test are fixtures.

    Raises:
        ValueError: there is no subject, and the test could not fail.
    """
    held = list(subjects)

    def decorate(check: Test) -> Test:
        if not held:
            raise ValueError(f"{check.__name__} has nothing to look at")

        @wraps(check)
        def test(**fixtures: Any) -> None:
            wrong = [line for subject in held if (line := _complaint(check, subject, str(name(subject)), fixtures))]
            assert not wrong, f"{len(wrong)} of {len(held)}:\n" + "\n".join(wrong)

        _first, *fixtures = inspect.signature(check).parameters.values()
        test.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return test

    return decorate


def _complaint(check: Test, subject: object, name: str, fixtures: dict[str, Any]) -> str | None:
    try:
        check(subject, **fixtures)
    except AssertionError as failure:
        return f"{name}: {failure}"
    except Exception as failure:
        failure.add_note(f"on {name}")
        raise
    return None
