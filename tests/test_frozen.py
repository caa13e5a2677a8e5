"""`@frozen` makes what the standard decorator makes, but for the time that it takes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace

import pytest

from ppo_doctor.model.frozen import frozen


@frozen
class Ours:
    """A class with every kind of field that we use."""

    name: str
    size: float = 1.0
    parts: tuple[str, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    raw: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """The same, by the standard decorator."""

    name: str
    size: float = 1.0
    parts: tuple[str, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    raw: object = field(default=None, repr=False, compare=False)


@frozen(eq=False)
class Same:
    """One that is equal to itself alone."""

    name: str


GIVEN = [{"name": "a"}, {"name": "a", "size": 2.0, "parts": ("x",)}, {"name": "b", "held": {"k": 1}, "raw": [1]}]


@pytest.mark.parametrize("given", GIVEN, ids=len)
def test_an_instance_shows_and_holds_what_a_standard_one_does(given):
    assert repr(Ours(**given)) == repr(Theirs(**given)).replace("Theirs", "Ours")
    assert asdict(Ours(**given)) == asdict(Theirs(**given))
    assert [f.name for f in fields(Ours)] == [f.name for f in fields(Theirs)]


def test_equality_and_hash_go_by_the_fields_that_are_compared():
    assert Ours(name="a", raw=1) == Ours(name="a", raw=2)
    assert Ours(name="a") != Ours(name="b")
    assert Ours(name="a") != Theirs(name="a")
    assert hash(Fact(name="a")) == hash(Fact(name="a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours(name="a"))


@frozen
class Fact:
    """One whose fields can all be hashed."""

    name: str
    size: float = 1.0


def test_without_equality_only_itself_is_equal():
    one = Same(name="a")
    assert one == one  # noqa: PLR0124 - that is what is asked
    assert one != Same(name="a")
    assert len({one, Same(name="a")}) == 2


def test_nothing_can_be_changed_added_or_deleted():
    one = Ours(name="a")
    for change in (lambda: setattr(one, "name", "b"), lambda: setattr(one, "new", 1), lambda: delattr(one, "name")):
        with pytest.raises((FrozenInstanceError, TypeError)):
            change()
    assert not hasattr(one, "__dict__")
    with pytest.raises(TypeError):
        Ours("a")
    assert replace(one, name="b") == Ours(name="b")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301
def test_it_can_be_handed_to_another_process(again):
    one = Ours(name="a", held={"k": 1}, raw=[2])
    assert again(one) == one
    assert again(one).raw == [2]


@frozen(kw_only=False)
class Placed:
    """One whose fields are given by place, and that says itself what its hash is."""

    name: str
    parts: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)


def test_a_class_may_take_its_fields_by_place_and_keep_its_own_hash():
    held = Placed("a", ("x",))
    assert (held.name, held.parts) == ("a", ("x",))
    assert hash(held) == hash("a") == hash(Placed("a"))
    assert held == Placed("a", ("x",)) != Placed("a")
    with pytest.raises(FrozenInstanceError):
        held.name = "b"
