"""Stand-ins for the names in pickles of torch.save; nothing is imported or called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ppo_doctor.readers.tensors.tensor import RAW

#: A value in a pickle, which may be anything.
Value = Any


class Refused(Exception):  # noqa: N818 - it reads as what it is
    """A pickle holds a name that is not listed, or a value in another form than torch writes."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a class or function."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class StorageRef:
    """A storage: its element type (None for plain bytes), the key of its member, and its number of elements."""

    dtype: str | None
    key: str
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A tensor as a strided view of a storage, whose shape and strides are not checked yet."""

    storage: StorageRef
    dtype: str
    offset: Value
    shape: Value
    stride: Value


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """A value that is no plain tensor; `why` completes the sentence "… is left out: it is"."""

    why: str


@dataclass(slots=True, eq=False)
class Record:
    """An object of which only its attributes are known, such as an `argparse.Namespace`."""

    attributes: dict[Value, Value] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ElementType:
    """A NumPy element type, with the byte order that its state adds."""

    code: str
    order: str = "<"

    def numpy(self) -> np.dtype[Any]:
        """Return the type; raises Refused for what is no number."""
        if not re.fullmatch(r"[<>|=]?(b1|[iuf][1248]|c8|c16)", self.code):
            raise Refused(f"an array of the type {self.code[:20]!r}")
        return np.dtype((self.order if self.order in "<>" else "") + self.code.lstrip("<>|="))


@dataclass(slots=True, eq=False)
class ArrayShell:
    """A NumPy array, which gets its shape and data from the state that follows in the pickle."""

    array: np.ndarray[Any, np.dtype[Any]] | None = None


#: Storage classes → element types.
_STORAGES: Mapping[str, str] = MappingProxyType(
    {
        "Double": "float64",
        "Float": "float32",
        "Half": "float16",
        "BFloat16": "bfloat16",
        "Long": "int64",
        "Int": "int32",
        "Short": "int16",
        "Char": "int8",
        "Byte": "uint8",
        "Bool": "bool",
        "ComplexDouble": "complex128",
        "ComplexFloat": "complex64",
    }
)
_UNTYPED = ("torch.UntypedStorage", "torch.storage.UntypedStorage")
_QUANTIZED = ("QUInt8", "QInt8", "QInt32", "QUInt4x2", "QUInt2x4")
_TENSOR_CLASSES = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
_PATHS = tuple(
    f"{room}.{kind}" for room in ("pathlib", "pathlib._local") for kind in ("PosixPath", "PurePosixPath", "WindowsPath")
)
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")


def storage_type(symbol: Value) -> str | None:
    """Return the element type of a storage class, None for plain bytes; raises Refused for any other class."""
    if isinstance(symbol, Symbol):
        if symbol.name in _UNTYPED:
            return None
        found = re.fullmatch(r"torch\.(?:cuda\.)?(\w+)Storage", symbol.name)
        if found and found[1] in _STORAGES:
            return _STORAGES[found[1]]
        if found and found[1] in _QUANTIZED:
            return "uint8"  # only ever part of a tensor that is left out
    raise Refused("a storage of unknown class")


def persistent(reference: Value) -> StorageRef:
    """Return the storage that a persistent id names: ("storage", class, key, device, elements[, None])."""
    match reference:
        case ("storage", kind, str(key), str(_), int(count), *rest) if count >= 0 and rest in ([], [None]):
            return StorageRef(storage_type(kind), key, count)
    raise Refused("a reference that names no storage")


def _tensor(storage: Value, offset: Value, shape: Value, stride: Value, *rest: Value) -> Value:
    metadata = rest[2] if len(rest) > 2 else None
    if isinstance(storage, View):  # a storage that was wrapped by another call
        storage = storage.storage
    if not isinstance(storage, StorageRef) or storage.dtype is None:
        raise Refused("a tensor without a typed storage")
    return _checked(storage, storage.dtype, offset, shape, stride, metadata)


def _tensor_v3(
    storage: Value, offset: Value, shape: Value, stride: Value, _grad: Value, _hooks: Value, dtype: Value, *rest: Value
) -> Value:
    kind = dtype.name.removeprefix("torch.") if isinstance(dtype, Symbol) else ""
    if not isinstance(storage, StorageRef):
        raise Refused("a tensor without a storage")
    if kind not in RAW:
        return LeftOut(f"of the type {kind}")
    return _checked(storage, kind, offset, shape, stride, rest[0] if rest else None)


def _checked(
    storage: StorageRef, dtype: str, offset: Value, shape: Value, stride: Value, metadata: Value
) -> View | LeftOut:
    if isinstance(metadata, dict) and any(metadata.get(key) is True for key in ("conj", "neg")):
        return LeftOut("conjugated or negated only when it is used; save tensor.resolve_conj().resolve_neg()")
    if not isinstance(shape, tuple) or not isinstance(stride, tuple):
        raise Refused("a tensor whose shape is no tuple")
    return View(storage, dtype, offset, shape, stride)


def _first(*arguments: Value) -> Value:
    if not arguments or not isinstance(arguments[0], View | LeftOut):
        raise Refused("a parameter without a tensor")
    return arguments[0]


def _subclass(function: Value, kind: Value, arguments: Value, *_: Value) -> Value:
    """Return a tensor without its Python attributes; raises Refused for a class that is not PyTorch's own."""
    builds = function.name if isinstance(function, Symbol) else ""
    named = kind.name if isinstance(kind, Symbol) else ""
    if not builds.startswith("torch._utils._rebuild_") or named not in _TENSOR_CLASSES:
        raise Refused(f"a tensor of the class {named}")
    return call(function, arguments)


def _default(factory: Value = None, pairs: Value = ()) -> dict[Value, Value]:
    if factory is not None and not isinstance(factory, Symbol):
        raise Refused("a default without a class")
    return _mapping(pairs)


def _mapping(pairs: Value = ()) -> dict[Value, Value]:
    if isinstance(pairs, dict):
        return dict(pairs)
    if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise Refused("a mapping that is none")
    return {key_of(key): value for key, value in pairs}


def key_of(key: Value) -> Value:
    """Return a key of a mapping; raises Refused for a nested value, because hashing deep tuples overflows the stack."""
    plain = (str, int, float, bool, bytes, type(None), Symbol)
    if isinstance(key, plain) or (isinstance(key, tuple) and all(isinstance(part, plain) for part in key)):
        return key
    raise Refused("a key that is neither a word nor a number")


def _elements(values: Value = ()) -> set[Value]:
    if not isinstance(values, list | tuple | set | frozenset):
        raise Refused("a set of nothing")
    return {key_of(value) for value in values}


def _size(counts: Value) -> tuple[Value, ...]:
    if not isinstance(counts, tuple | list):
        raise Refused("a shape that is no tuple")
    return tuple(counts)


def _encode(text: Value, coding: Value = "latin1") -> bytes:
    if not isinstance(text, str) or coding not in ("latin1", "latin-1"):
        raise Refused("an encoding that torch does not use")
    return text.encode("latin-1")


def _bytes(data: Value = b"", coding: Value = "latin-1") -> bytes:
    if isinstance(data, str):
        return _encode(data, coding)
    if not isinstance(data, bytes):
        raise Refused("bytes made from something else")
    return data


def _complex(real: Value, imaginary: Value) -> complex:
    if not isinstance(real, float) or not isinstance(imaginary, float):
        raise Refused("a complex number that is none")
    return complex(real, imaginary)


def _words(*parts: Value) -> str:
    if not all(isinstance(part, str | int) for part in parts):
        raise Refused("a name that is none")
    return "/".join(str(part) for part in parts if not isinstance(part, int) or abs(part) < 1 << 63)


def _element_type(code: Value, *_: Value) -> ElementType:
    if not isinstance(code, str):
        raise Refused("an element type without a code")
    return ElementType(code)


def _shell(kind: Value, *_: Value) -> ArrayShell:
    if kind != Symbol("numpy.ndarray"):
        raise Refused("an array of a class of its own")
    return ArrayShell()


def _scalar(kind: Value, data: Value = None) -> Value:
    if not isinstance(kind, ElementType) or not isinstance(data, bytes):
        raise Refused("a NumPy number that is none")
    dtype = kind.numpy()
    if len(data) != dtype.itemsize:
        raise Refused("a NumPy number of another size than its type")
    return np.frombuffer(data, dtype=dtype)[0].item()


def array_of(shape: Value, kind: Value, data: Value, *, fortran: bool) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a NumPy array from its pickled state; raises Refused unless data and shape agree."""
    if not isinstance(kind, ElementType) or not isinstance(data, bytes) or not isinstance(shape, tuple):
        raise Refused("an array of objects")
    if len(shape) > 32 or not all(type(n) is int and 0 <= n <= len(data) for n in shape):
        raise Refused("an array whose shape is none")
    flat = np.frombuffer(data, dtype=kind.numpy())
    try:
        return flat.reshape(shape, order="F" if fortran else "C")
    except ValueError as error:
        raise Refused("an array whose data do not fill its shape") from error


def _from_buffer(data: Value, kind: Value, shape: Value, order: Value) -> ArrayShell:
    return ArrayShell(array_of(shape, kind, data, fortran=order == "F"))


def _left_out(why: str) -> Callable[..., LeftOut]:
    def leave(*_: Value) -> LeftOut:
        return LeftOut(why)

    return leave


#: Every function and class that a pickle may call → its stand-in; any other is refused.
CALLS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "torch._utils._rebuild_tensor": _tensor,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch._utils._rebuild_tensor_v3": _tensor_v3,
        "torch._utils._rebuild_parameter": _first,
        "torch._utils._rebuild_parameter_with_state": _first,
        "torch._tensor._rebuild_from_type_v2": _subclass,
        "torch._utils._rebuild_sparse_tensor": _left_out("sparse"),
        "torch._utils._rebuild_qtensor": _left_out("quantized"),
        "torch._utils._rebuild_meta_tensor_no_storage": _left_out("a meta tensor, without data"),
        "torch.Size": _size,
        "torch.device": _words,
        "torch.serialization._get_layout": _words,
        "torch.torch_version.TorchVersion": _words,
        "collections.OrderedDict": _mapping,
        "collections.Counter": _mapping,
        "collections.defaultdict": _default,
        "_codecs.encode": _encode,
        "builtins.set": _elements,
        "builtins.frozenset": _elements,
        "builtins.bytearray": _bytes,
        "builtins.complex": _complex,
        "numpy.dtype": _element_type,
        **{f"{room}.scalar": _scalar for room in _NUMPY},
        **{f"{room}._reconstruct": _shell for room in _NUMPY},
        "numpy._core.numeric._frombuffer": _from_buffer,
        "numpy.core.numeric._frombuffer": _from_buffer,
        **dict.fromkeys(_PATHS, _words),
    }
)
#: Names that may stand as values, besides the storage classes and the element types; none of them is ever called.
_VALUES = frozenset(
    (
        *("numpy.ndarray", "argparse.Namespace", "torch.strided", *_TENSOR_CLASSES),
        *(f"builtins.{name}" for name in ("dict", "list", "tuple", "int", "float", "str", "bool")),
        *(f"torch.{name}" for name in ("per_tensor_affine", "per_channel_affine", "qint8", "quint8", "qint32")),
        *(f"torch.{name}" for name in ("contiguous_format", "preserve_format", "complex32")),
    )
)


def symbol(module: str, name: str) -> Symbol:
    """Return the name of a class or function that a pickle may use; raises Refused for every other."""
    full = f"{module.replace('__builtin__', 'builtins')}.{name}"
    known = full in CALLS or full in _VALUES or full.removeprefix("torch.") in RAW
    if known:
        return Symbol(full)
    found = Symbol(full)
    try:
        storage_type(found)
    except Refused:
        raise Refused(f"the name {full}, which no tensor needs") from None
    return found


def call(function: Value, arguments: Value) -> Value:
    """Return the stand-in for the result of a call; raises Refused for other functions or arguments."""
    stand_in = CALLS.get(function.name) if isinstance(function, Symbol) else None
    if stand_in is None or not isinstance(arguments, tuple):
        raise Refused(f"a call of {function.name if isinstance(function, Symbol) else 'something that is no function'}")
    try:
        return stand_in(*arguments)
    except TypeError as error:
        raise Refused(f"{function.name} with other arguments than torch gives it") from error


def new(kind: Value, arguments: Value) -> Value:
    """Return the stand-in for a new object."""
    if kind == Symbol("argparse.Namespace") and arguments == ():
        return Record()
    return call(kind, arguments)


def build(target: Value, state: Value) -> Value:
    """Return an object with its state; raises Refused for objects whose state could do anything."""
    if isinstance(target, dict):  # attributes of a mapping, such as the versions in a state_dict
        return target
    if isinstance(target, Record) and isinstance(state, dict):
        target.attributes.update(state)
    elif isinstance(target, ElementType) and isinstance(state, tuple) and len(state) > 1 and isinstance(state[1], str):
        target.order = state[1]
    elif isinstance(target, ArrayShell) and isinstance(state, tuple) and len(state) == 5:
        target.array = array_of(state[1], state[2], state[4], fortran=bool(state[3]))
    else:
        raise Refused("an object whose state is set from the file")
    return target
