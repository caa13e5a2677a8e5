"""The line of a script that computed something, told from lines of libraries."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ppo_doctor.model import run
from ppo_doctor.record.script.places import LEVELS, ROLES, Places

SCRIPT = """
def inner(back):
    return library.call(back)  # innermost

def outer(back):
    return inner(back)  # caller
"""
LIBRARY = """
def call(back, depth=1):
    return back() if depth == DEPTH else call(back, depth + 1)  # library
"""


def line_of(text, marker):
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {marker}"))


@pytest.fixture
def places(tmp_path):
    return Places(str(tmp_path / "own"), (str(tmp_path / "torch"),))


@pytest.fixture
def stack_through(tmp_path, places):
    """Return a function that gives the stack of a call from a script through functions of a library."""

    def load(file, text, **names):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        exec(compile(text, str(path), "exec"), names)  # noqa: S102 - the texts above
        return SimpleNamespace(**names)

    def run(depth):
        library = load("own/site-packages/library.py", LIBRARY.replace("DEPTH", str(depth)))
        return load("own/train.py", SCRIPT, library=library).outer(lambda: places.stack(sys._getframe(1)))

    return run


@pytest.mark.parametrize("depth", [1, LEVELS])
def test_the_users_line_is_named_near_a_library(places, stack_through, depth):
    place = places.resolve(stack_through(depth))
    assert (place.function, place.line) == ("inner", line_of(SCRIPT, "innermost"))
    assert "library.call" in place.text()


def test_the_librarys_line_is_named_far_from_the_users(places, stack_through):
    place = places.resolve(stack_through(LEVELS + 1))
    assert (place.function, place.line) == ("call", line_of(LIBRARY, "library"))


def test_a_call_from_the_top_of_a_script_is_named_only_near_the_library(places, stack_through, tmp_path):
    top = ((compile("learn()", str(tmp_path / "own" / "train.py"), "exec"), 1),)
    library = stack_through(3)[:3]
    assert places.resolve(library[:1] + top).function == "<module>"
    assert places.resolve(library + top).function == "call"


def test_frames_of_torch_are_passed_over(tmp_path, stack_through):
    stack = stack_through(1)
    places = Places(str(tmp_path / "own"), (stack[0][0].co_filename,))
    assert places.resolve(stack).function == "inner"
    assert [places.is_own(code.co_filename) for code, _ in stack[:2]] == [False, True]
    assert places.own_frames(sys._getframe())[0] is sys._getframe()


def test_a_call_is_named_where_it_leaves_the_path_of_another(places, stack_through):
    stack = stack_through(1)
    caller = tuple(each for each in stack if each[0].co_name == "outer")
    assert places.apart(stack, ()).function == "outer"
    assert places.apart(stack, caller).function == "inner"
    assert places.apart(stack, stack) == places.resolve(stack)
    assert places.resolve(()) is None
    assert places.own(stack).function == "inner"
    assert places.own(stack_through(LEVELS + 1)) is None


def test_reports_have_words_for_every_role():
    assert {*ROLES} == {*run.ROLES}
