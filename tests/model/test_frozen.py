"""`@frozen` makes immutable classes like those of the standard decorator."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, field, replace

import pytest

from ppo_doctor.model.frozen import frozen


@frozen
class Part:
    """A class with every kind of field that we use."""

    name: str
    size: float = 1.0
    parts: tuple[str, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    raw: object = field(default=None, repr=False, compare=False)


@frozen(eq=False)
class Same:
    """One that is equal to itself alone."""

    name: str


@frozen(kw_only=False)
class Placed:
    """One whose fields are given by place, with a hash of its own."""

    name: str
    parts: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)


def test_fields_have_their_values_and_defaults():
    assert repr(Part(name="a", size=2.0)) == "Part(name='a', size=2.0, parts=(), held={})"
    assert asdict(Part(name="a")) == {"name": "a", "size": 1.0, "parts": (), "held": {}, "raw": None}
    assert Placed("a", ("x",)).parts == ("x",)
    with pytest.raises(TypeError):
        Part("a")


def test_equality_and_hash_go_by_the_fields_that_are_compared():
    assert Part(name="a", raw=1) == Part(name="a", raw=2) != Part(name="b")
    assert Placed("a", ("x",)) == Placed("a", ("x",)) != Placed("a")
    assert hash(Placed("a", ("x",))) == hash("a")
    assert len({Same(name="a"), Same(name="a")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Part(name="a"))


def test_nothing_can_be_changed_added_or_deleted():
    one = Part(name="a")
    for change in (lambda: setattr(one, "name", "b"), lambda: setattr(one, "new", 1), lambda: delattr(one, "name")):
        with pytest.raises((FrozenInstanceError, TypeError)):
            change()
    assert not hasattr(one, "__dict__")
    assert replace(one, name="b") == Part(name="b")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301
def test_it_can_be_handed_to_another_process(again):
    one = Part(name="a", held={"k": 1}, raw=[2])
    assert again(one) == one
    assert again(one).raw == [2]


@frozen
class Counted:
    """One with a field that is no argument, and that is set after the others."""

    name: str
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


def test_each_instance_is_made_anew():
    first, second = Part(name="a"), Part(name="b")
    assert first.held is not second.held
    assert Part(name="c", held={"k": 1}).held == {"k": 1}
    assert [Counted(name=name).size for name in ("a", "bc")] == [1, 2]
    for wrong in ({}, {"name": "a", "colour": "red"}):
        with pytest.raises(TypeError):
            Part(**wrong)
