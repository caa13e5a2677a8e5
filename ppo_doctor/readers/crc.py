"""CRC-32C over many records at once.

The checksum is linear over GF(2): each byte contributes a word that depends on its value and on how many bytes follow
it, and the contributions are added without carry. One table per distance makes them a lookup, which NumPy does for all
records of one length together (Castagnoli's polynomial, reflected: RFC 3720, appendix B.4).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]
    Bytes = NDArray[np.uint8]

_POLYNOMIAL = 0x82F63B78
#: Longer records are folded in stretches of this many bytes; a table per distance takes 1 KiB.
STRETCH = 512
#: What TensorFlow adds to a checksum that is stored beside its own data.
_MASK_DELTA = 0xA282EAD8


@cache
def _tables() -> Words:
    """Return the contribution of each byte value by the number of bytes behind it; shape [STRETCH, 256]."""
    tables = np.empty((STRETCH, 256), dtype=np.uint32)
    words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        words = np.where(words & 1, (words >> 1) ^ np.uint32(_POLYNOMIAL), words >> 1)
    tables[0] = words
    for distance in range(1, STRETCH):
        tables[distance] = words[tables[distance - 1] & 255] ^ (tables[distance - 1] >> 8)
    return tables


def crc32c(rows: Bytes) -> Words:
    """Return the CRC-32C of each row of bytes; `rows` has shape [records, length]."""
    count, length = rows.shape
    if length < 4:  # the start value reaches beyond the data: pretend that more follows, then take it back
        return np.array([_by_hand(row.tobytes()) for row in rows], dtype=np.uint32)
    stretches = -(-length // STRETCH)
    stretch = STRETCH if stretches > 1 else length
    # Zeros in front leave a remainder of 0 at 0; the start value of all ones flips the first four bytes.
    padded = np.zeros((count, stretches * stretch), dtype=np.uint8)
    begin = padded.shape[1] - length
    padded[:, begin:] = rows
    padded[:, begin : begin + 4] ^= 255
    # All stretches of all records at once, then those of each record one behind the other.
    columns = np.ascontiguousarray(padded.reshape(count * stretches, stretch).T)
    remainders = _remainder(columns).reshape(count, stretches)
    words = remainders[:, 0]
    for place in range(1, stretches):
        words = _advanced(words) ^ remainders[:, place]
    return ~words


def _remainder(columns: Bytes) -> Words:
    """Return the remainder of each column of bytes; shape [length, records] → [records]."""
    tables = _tables()
    length, count = columns.shape
    words = np.zeros(count, dtype=np.uint32)
    alike = (columns == columns[:, :1]).all(axis=1)  # records of one kind share most of their bytes
    fixed = np.uint32(0)
    for place in range(length):
        table = tables[length - 1 - place]
        if alike[place]:
            fixed ^= table[columns[place, 0]]
        else:
            words ^= table[columns[place]]
    return words ^ fixed


def _advanced(words: Words) -> Words:
    """Return remainders as they are after a stretch of zeros."""
    tables = _tables()
    parts = (tables[STRETCH - 1 - i][(words >> np.uint32(8 * i)) & np.uint32(255)] for i in range(4))
    first, second, third, fourth = parts
    return np.asarray(first ^ second ^ third ^ fourth, dtype=np.uint32)


def _by_hand(data: bytes) -> int:
    table = _tables()[0]
    word = 0xFFFFFFFF
    for byte in data:
        word = int(table[(word ^ byte) & 255]) ^ (word >> 8)
    return word ^ 0xFFFFFFFF


def masked(words: Words) -> Words:
    """Return checksums as a record file stores them: turned by 15 bits, plus a constant."""
    return ((words >> np.uint32(15)) | (words << np.uint32(17))) + np.uint32(_MASK_DELTA)
