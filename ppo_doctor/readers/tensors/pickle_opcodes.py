"""Read a pickle of torch.save opcode by opcode, without unpickling it.

`pickletools.genops` splits a pickle into opcodes. Their results are built from the stand-ins of
`ppo_doctor.readers.tensors.safe_pickle`; an opcode or a name that is not listed is refused.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO

from ppo_doctor.readers.tensors import safe_pickle
from ppo_doctor.readers.tensors.safe_pickle import Refused, StorageRef, Value

#: Most opcodes and containers of a pickle.
MOST_OPCODES, MOST_CONTAINERS = 3_000_000, 500_000
#: Most bytes that calls may copy from their arguments: one long tuple can be passed to a million calls.
MOST_COPIED = 256 << 20
_MARK = object()
_BROKEN = (ValueError, struct.error, OverflowError, EOFError, IndexError, KeyError, TypeError, AttributeError)


def follow(pickle: bytes | BinaryIO, storages: dict[str, StorageRef] | None = None) -> Value:
    """Return the value that a pickle describes, built from stand-ins, and add its storages by key to `storages`.

    Raises Refused for an opcode or a name that is not listed, and ValueError for damage.
    """
    machine = _Machine({} if storages is None else storages)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if count >= MOST_OPCODES:
                raise Refused(f"more than {MOST_OPCODES:,} steps")
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except _BROKEN as error:
        raise ValueError(f"the pickle is cut off or damaged: {error}") from error
    raise ValueError("the pickle has no end")


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, storages: dict[str, StorageRef]) -> None:
        self.stack: list[Value] = []
        self._storages = storages
        self._memo: dict[int, Value] = {}
        self._containers = 0
        self._copied = 0

    def step(self, name: str, argument: Any) -> None:  # noqa: ANN401 - genops gives anything
        """Execute one opcode."""
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise Refused(f"the opcode {name}")

    def pop(self) -> Value:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value is due")
        return value

    def top(self) -> Value:
        if self.stack[-1] is _MARK:
            raise ValueError("a mark where a value is due")
        return self.stack[-1]

    def marked(self) -> list[Value]:
        """Remove and return the values above the last mark."""
        items: list[Value] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    def push_container(self, value: Value) -> None:
        self._containers += 1
        if self._containers > MOST_CONTAINERS:
            raise Refused(f"more than {MOST_CONTAINERS:,} containers")
        self.stack.append(value)

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push_container(tuple(items[::-1]))

    def put(self, at: int | None) -> None:
        self._memo[len(self._memo) if at is None else at] = self.top()

    def get(self, at: int) -> None:
        self.stack.append(self._memo[at])

    def append(self, items: list[Value]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise Refused("an object that is filled like a list")
        target.extend(items)

    def set_items(self, items: list[Value]) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(items) % 2:
            raise Refused("an object that is filled like a mapping")
        target.update((safe_pickle.key_of(key), value) for key, value in zip(items[::2], items[1::2], strict=True))

    def add_items(self, items: list[Value]) -> None:
        target = self.top()
        if not isinstance(target, set):
            raise Refused("an object that is filled like a set")
        target.update(safe_pickle.key_of(item) for item in items)

    def two(self) -> list[Value]:
        second, first = self.pop(), self.pop()
        return [first, second]

    def name(self, argument: str) -> None:
        """Push the name in a GLOBAL; genops joins module and name by a space."""
        module, _, name = argument.partition(" ")
        self.stack.append(safe_pickle.symbol(module, name))

    def stack_name(self) -> None:
        module, name = self.two()
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("a name that is computed")
        self.stack.append(safe_pickle.symbol(module, name))

    def storage(self) -> None:
        found = safe_pickle.persistent(self.pop())
        self._storages[found.key] = found
        self.stack.append(found)

    def copying(self, arguments: Value) -> None:
        """Count the bytes that a call may copy."""
        for value in arguments if isinstance(arguments, tuple) else (arguments,):
            if isinstance(value, str | bytes | tuple | list | dict | set):
                self._copied += len(value) * (1 if isinstance(value, str | bytes) else 64)
        if self._copied > MOST_COPIED:
            raise Refused(f"calls that copy more than {MOST_COPIED >> 20} MiB")

    def call(self) -> None:
        function, arguments = self.two()
        self.copying(arguments)
        self.push_container(safe_pickle.call(function, arguments))

    def new(self) -> None:
        kind, arguments = self.two()
        self.copying(arguments)
        self.push_container(safe_pickle.new(kind, arguments))

    def build(self) -> None:
        target, state = self.two()
        self.copying(state)
        self.copying((state,))
        self.stack.append(safe_pickle.build(target, state))


def _paired(items: list[Value]) -> dict[Value, Value]:
    return {safe_pickle.key_of(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


_Step = Callable[[_Machine, Any], None]
#: Opcodes whose argument is the value.
_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
_CONSTANTS: Mapping[str, Value] = MappingProxyType({"NONE": None, "NEWTRUE": True, "NEWFALSE": False})
#: Every other opcode that torch.save writes; INST, OBJ, NEWOBJ_EX, PERSID, EXT1 and their like are not among them.
_STEPS: Mapping[str, _Step] = MappingProxyType(
    {
        "MARK": lambda machine, _: machine.stack.append(_MARK),
        "POP": lambda machine, _: machine.stack.__delitem__(-1),
        "POP_MARK": lambda machine, _: machine.marked().clear(),
        "DUP": lambda machine, _: machine.stack.append(machine.top()),
        "EMPTY_LIST": lambda machine, _: machine.push_container([]),
        "EMPTY_DICT": lambda machine, _: machine.push_container({}),
        "EMPTY_SET": lambda machine, _: machine.push_container(set()),
        "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
        "LIST": lambda machine, _: machine.push_container(machine.marked()),
        "TUPLE": lambda machine, _: machine.push_container(tuple(machine.marked())),
        "TUPLE1": lambda machine, _: machine.tuple_of(1),
        "TUPLE2": lambda machine, _: machine.tuple_of(2),
        "TUPLE3": lambda machine, _: machine.tuple_of(3),
        "DICT": lambda machine, _: machine.push_container(_paired(machine.marked())),
        "FROZENSET": lambda machine, _: machine.push_container({safe_pickle.key_of(item) for item in machine.marked()}),
        "BYTEARRAY8": lambda machine, data: machine.stack.append(bytes(data)),
        "APPEND": lambda machine, _: machine.append([machine.pop()]),
        "APPENDS": lambda machine, _: machine.append(machine.marked()),
        "SETITEM": lambda machine, _: machine.set_items(machine.two()),
        "SETITEMS": lambda machine, _: machine.set_items(machine.marked()),
        "ADDITEMS": lambda machine, _: machine.add_items(machine.marked()),
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.put),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
        "GLOBAL": _Machine.name,
        "STACK_GLOBAL": lambda machine, _: machine.stack_name(),
        "BINPERSID": lambda machine, _: machine.storage(),
        "REDUCE": lambda machine, _: machine.call(),
        "NEWOBJ": lambda machine, _: machine.new(),
        "BUILD": lambda machine, _: machine.build(),
    }
)
