"""Element types: what each is called, how its bits are held, and how they become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

#: An array of any element type.
AnyArray = npt.NDArray[Any]

#: Name → the NumPy type of its raw bits; those that NumPy does not know are held as unsigned integers of their width.
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
#: Exponent bits, mantissa bits, bias; and how the format spells NaN and infinity: by an exponent of ones ("ieee"), NaN
#: by all bits set ("fn", no infinity), or NaN by minus zero ("fnuz", no infinity).
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
    """Return raw bits as float32 where that holds each value exactly, else as float64, in native byte order.

    Complex numbers become pairs of real and imaginary part; the last axis grows twofold. Integers beyond 2^53 round.
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
