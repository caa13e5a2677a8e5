"""Tensors of files (a name, an element type and a view of a storage that is read on demand) and archives of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from ppo_doctor.model.errors import DoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppo_doctor.model.run import Note
    from ppo_doctor.model.words import ConfigValue

#: An array of any element type.
AnyArray = npt.NDArray[Any]

#: Element type → NumPy type of its raw bits; types that NumPy lacks are kept as unsigned integers of their width.
RAW: Mapping[str, str] = MappingProxyType(
    {
        "float64": "f8",
        "float32": "f4",
        "float16": "f2",
        "bfloat16": "u2",
        "float8_e4m3fn": "u1",
        "float8_e4m3fnuz": "u1",
        "float8_e5m2": "u1",
        "float8_e5m2fnuz": "u1",
        "float8_e8m0fnu": "u1",
        "int64": "i8",
        "int32": "i4",
        "int16": "i2",
        "int8": "i1",
        "uint64": "u8",
        "uint32": "u4",
        "uint16": "u2",
        "uint8": "u1",
        "bool": "?",
        "complex128": "c16",
        "complex64": "c8",
    }
)
#: Exponent bits, mantissa bits and bias of 8-bit floats, and their special values: "ieee" has NaN and infinity with an
#: exponent of ones, "fn" has NaN with all bits set, "fnuz" has NaN as minus zero; the last two have no infinity.
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
}
_TO_FLOAT32 = ("float16", "int16", "int8", "uint16", "uint8", "bool")


def raw_type(dtype: str, *, big_endian: bool = False) -> np.dtype[Any]:
    """Return the NumPy type of a tensor's raw bits; `dtype` is a key of RAW."""
    return np.dtype((">" if big_endian else "<") + RAW[dtype])


def widen(raw: AnyArray, dtype: str) -> AnyArray:
    """Return raw bits as float32 if that represents each value exactly, else as float64, in native byte order.

    Complex numbers become pairs of real and imaginary part, which doubles the last axis. Integers beyond 2^53 are
    rounded.
    """
    if dtype == "bfloat16":
        shifted: AnyArray = raw.astype(np.uint32)
        shifted <<= np.uint32(16)
        return shifted.view(np.float32)
    if dtype.startswith("float8"):
        values: npt.NDArray[np.float32] = _float8_table(dtype)[raw]
        return values
    if dtype == "complex64":
        return raw.astype(np.complex64, copy=False).view(np.float32)
    if dtype == "complex128":
        return raw.astype(np.complex128, copy=False).view(np.float64)
    if dtype == "bool":  # a byte that is neither 0 nor 1 counts as true
        true: npt.NDArray[np.bool_] = raw.view(np.uint8) != 0
        return true.astype(np.float32)
    if dtype == "float32" or dtype in _TO_FLOAT32:
        return raw.astype(np.float32, copy=False)
    return raw.astype(np.float64, copy=False)


@cache
def _float8_table(dtype: str) -> npt.NDArray[np.float32]:
    """Return the value of each of the 256 codes of an 8-bit format (OCP 8-bit floating point, revision 1.0)."""
    if dtype == "float8_e8m0fnu":  # powers of two, 255 is NaN
        values = [2.0 ** (code - 127) for code in range(255)] + [float("nan")]
    else:
        values = [_float8(code, *_FLOAT8[dtype]) for code in range(256)]
    return np.array(values, dtype=np.float32)


def _float8(code: int, exponent_bits: int, mantissa_bits: int, bias: int, style: str) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    exponent = (code & 0x7F) >> mantissa_bits
    mantissa = code & ((1 << mantissa_bits) - 1)
    if style == "fnuz" and code == 0x80:
        return float("nan")
    if style == "fn" and code & 0x7F == 0x7F:
        return float("nan")
    if style == "ieee" and exponent == (1 << exponent_bits) - 1:
        return float("nan") if mantissa else sign * float("inf")
    fraction = mantissa / (1 << mantissa_bits)
    scaled = fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias)
    return float(sign * scaled)


#: Advice for files that break their format.
DAMAGED = "the file is cut off, damaged or was made to do harm; write it again"
#: NumPy 1.26 has at most 32 dimensions.
MOST_DIMENSIONS = 32
#: Number of characters of a text that are kept.
LONGEST_TEXT = 4_096
#: Largest number of elements of a view that repeats elements of its storage, unless the storage has more.
MOST_REPEATED = 1 << 28


class Storage(Protocol):
    """A run of bytes in a file or in memory."""

    def view(self) -> AnyArray:
        """Return all bytes as uint8, memory-mapped if the file allows it."""

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield the bytes from `start` to `stop` as uint8 pieces of `size`, the last one shorter, in bounded memory."""


class InMemory:
    """A storage in memory."""

    def __init__(self, data: AnyArray) -> None:
        self._data = data

    def view(self) -> AnyArray:
        """Return all bytes."""
        return self._data

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield slices of the bytes, without copying."""
        yield from (self._data[at : min(at + size, stop)] for at in range(start, stop, size))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A named, strided view of a storage; nothing is read before `array`, `chunks` or `bits` is called.

    `storage` is equal for tensors of one file that share memory, and unique otherwise. `offset` and `stride` count
    elements. `name` is the path in the file, with dots: "policy.layers.0.weight".
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: str
    offset: int
    stride: tuple[int, ...]
    data: Storage = field(repr=False)
    big_endian: bool = False

    @classmethod
    def of(cls, name: str, array: AnyArray, *, dtype: str | None = None) -> Tensor:
        """Return an array in memory as a tensor; `dtype` is the type of its bits if NumPy lacks it, such as bfloat16.

        Raises:
            DoctorError: the array does not hold numbers.
        """
        plain = np.asarray(array, order="C")
        element_type = dtype or plain.dtype.name
        if plain.dtype.kind not in "biufc" or element_type not in RAW:
            raise DoctorError(f"{name} holds {plain.dtype}, which is no number")
        raw = plain.astype(raw_type(element_type), copy=False)
        return cls(
            name=name,
            dtype=element_type,
            shape=plain.shape,
            storage=f"memory:{name}",
            offset=0,
            stride=dense(plain.shape),
            data=InMemory(raw.reshape(-1).view(np.uint8)),
        )

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Return whether the elements follow each other in the storage in C order."""
        return not self.size or all(
            own == plain for own, plain, n in zip(self.stride, dense(self.shape), self.shape, strict=True) if n > 1
        )

    def array(self) -> AnyArray:
        """Return a read-only array of the tensor's shape, without copying if the storage is mapped.

        bfloat16 is returned as uint16 and 8-bit floats as uint8, which are their raw bits.
        """
        kind = raw_type(self.dtype, big_endian=self.big_endian)
        if not self.size:
            return np.empty(self.shape, kind)
        start, stop = self._range()
        flat = self.data.view()[start:stop].view(kind)
        strides = tuple(step * kind.itemsize for step in self.stride)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)

    def chunks(self, elements: int = 1 << 20) -> Iterator[AnyArray]:
        """Yield the values as flat float32 or float64 pieces of `elements`, the last one shorter, in logical order.

        Types that float32 represents exactly become float32, others float64; complex numbers become pairs of real and
        imaginary part. A piece is valid until the next one is requested.
        """
        for piece in self.bits(elements):
            yield widen(piece, self.dtype)

    def values(self) -> npt.NDArray[np.float64]:
        """Return all values as one flat array, in logical order."""
        pieces = [piece.astype(np.float64) for piece in self.chunks()]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def head(self, rows: int) -> npt.NDArray[np.float64]:
        """Return the first rows as float64, of shape [rows, ...]; an empty array if rows have no elements."""
        inner = math.prod(self.shape[1:])
        first = next(self.chunks(rows * inner), np.empty(0)) if inner else np.empty(0)
        return first.astype(np.float64).reshape(-1, *self.shape[1:])

    def bits(self, elements: int = 1 << 20) -> Iterator[AnyArray]:
        """Yield the raw elements as flat pieces of `elements`, the last one shorter, in native byte order.

        Compare these where exactness matters: bits of a NaN equal themselves.
        """
        kind = raw_type(self.dtype, big_endian=self.big_endian)
        native = kind.newbyteorder("=")
        for piece in self._pieces(kind, elements):
            yield piece.astype(native, copy=False)

    def _pieces(self, kind: np.dtype[Any], elements: int) -> Iterator[AnyArray]:
        if not self.size:
            return
        if self.contiguous:
            for piece in self.data.stream(*self._range(), elements * kind.itemsize):
                yield _aligned(piece, kind)
            return
        yield from _even(_blocks(self.array(), elements), elements)

    def _range(self) -> tuple[int, int]:
        """Return the offset of the first byte of the view in its storage, and the offset after its last byte."""
        width = raw_type(self.dtype).itemsize
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        return self.offset * width, (last + 1) * width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archive:
    """The content of one file of tensors; `container` is npz, npy, safetensors, pt, jsonl-dump or parquet.

    `roles` maps the name of each tensor and scalar of a dump to what it is, None if that is unknown.
    """

    path: str
    container: str
    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, ConfigValue]
    notes: tuple[Note, ...] = ()
    roles: Mapping[str, str | None] = field(default_factory=dict)


def stored(
    where: str,
    name: str,
    dtype: str,
    shape: Sequence[object],
    data: Storage,
    size: int,
    *,
    fortran: bool = False,
    big_endian: bool = False,
) -> Tensor:
    """Return a tensor that fills a storage of `size` bytes; `where` names file and tensor in errors.

    Raises:
        DoctorError: the shape is invalid, or the storage has another size.
    """
    counts = tuple(n for n in shape if is_count(n))
    width = raw_type(dtype).itemsize
    if len(counts) < len(shape):
        raise DoctorError(f"{where} has a shape that is no list of counts", hint=DAMAGED)
    if math.prod(counts) * width != size:
        raise DoctorError(f"{where} claims {math.prod(counts):,} elements and holds {size:,} bytes", hint=DAMAGED)
    stride = tuple(reversed(dense(counts[::-1]))) if fortran else dense(counts)
    check_view(where, counts, stride, 0, size // width)
    return Tensor(
        name=name,
        dtype=dtype,
        shape=counts,
        storage=name,
        offset=0,
        stride=stride,
        data=data,
        big_endian=big_endian,
    )


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous tensor in C order."""
    steps: list[int] = []
    step = 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def _aligned(piece: AnyArray, kind: np.dtype[Any]) -> AnyArray:
    """Return bytes as elements; unaligned ones are copied once, because NumPy would buffer them in each expression."""
    elements: AnyArray = piece.view(kind)
    if elements.flags.aligned:
        return elements
    copied: AnyArray = np.empty(len(elements), kind)
    copied.view(np.uint8)[...] = piece
    return copied


def _blocks(array: AnyArray, elements: int) -> Iterator[AnyArray]:
    """Yield a strided array in logical order as flat copies of at most `elements`."""
    inner = math.prod(array.shape[1:])
    if array.ndim > 1 and inner > elements:
        for row in array:
            yield from _blocks(row, elements)
        return
    rows = max(1, elements // inner)
    for at in range(0, len(array), rows):
        yield np.ascontiguousarray(array[at : at + rows]).reshape(-1)


def _even(blocks: Iterator[AnyArray], elements: int) -> Iterator[AnyArray]:
    """Yield blocks of at most `elements` as pieces that all have exactly that many but the last."""
    parts: list[AnyArray] = []
    count = 0
    for block in blocks:
        missing = elements - count
        parts.append(block[:missing])
        count += len(parts[-1])
        if count == elements:
            yield parts[0] if len(parts) == 1 else np.concatenate(parts)
            parts = [block[missing:]]
            count = len(parts[0])
    if count:
        yield np.concatenate(parts)


def as_float(value: float) -> float:
    """Return a number as a float, infinite if it is an integer beyond float64."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def codes(values: Sequence[object]) -> AnyArray | None:
    """Return a code for each word, equal for equal words of any file; None if some value is not a string."""
    words = [value for value in values if isinstance(value, str)]
    return np.array(list(map(code, words)), dtype=np.int64) if len(words) == len(values) else None


def code(word: str) -> int:
    """Return a hash of a word of 52 bits, which float64 represents exactly."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()) >> 12


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one file are the same elements of one storage."""
    view = (one.storage, one.offset, one.stride, one.shape, one.dtype)
    return view == (other.storage, other.offset, other.stride, other.shape, other.dtype)


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a value can be a size, a stride or an offset: an integer of at least 0 and at most 62 bits."""
    return type(value) is int and 0 <= value < 1 << 62


def check_view(where: str, shape: Sequence[object], stride: Sequence[object], offset: object, available: int) -> None:
    """Raise DoctorError unless a view stays within a storage of `available` elements; `where` names file and tensor."""
    if len(shape) > MOST_DIMENSIONS or len(shape) != len(stride):
        raise DoctorError(f"{where} has {len(shape)} dimensions and {len(stride)} strides", hint=_UNBOUNDED)
    sizes = [n for n in (*shape, *stride, offset) if is_count(n)]
    if len(sizes) != 2 * len(shape) + 1:
        raise DoctorError(f"{where} has a shape, strides or an offset that are no counts", hint=_UNBOUNDED)
    counts, steps, first = sizes[: len(shape)], sizes[len(shape) : -1], sizes[-1]
    elements = math.prod(counts)
    if not elements:
        return
    last = first + sum((n - 1) * step for n, step in zip(counts, steps, strict=True))
    if last >= available:
        raise DoctorError(f"{where} claims element {last:,} of a storage of {available:,}", hint=_UNBOUNDED)
    if elements > max(available, MOST_REPEATED):
        raise DoctorError(f"{where} claims {elements:,} elements on a storage of {available:,}", hint=_UNBOUNDED)


_UNBOUNDED = "the file is damaged or was made to do harm; write it again"
