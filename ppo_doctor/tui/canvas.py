"""Dots on a grid of characters: braille, eight dots to a character, or plain signs where a font has no braille."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import IntArray

#: Dots of one character, across and down.
ACROSS, DOWN = 2, 4
_BRAILLE = 0x2800
#: The bit of each dot of a braille character: rows from the top, columns from the left.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


class Canvas:
    """A grid of `width` × `height` characters; dots are counted from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = np.zeros((height * DOWN, width * ACROSS), dtype=np.bool_)

    def line(self, points: Sequence[tuple[int, int]]) -> None:
        """Draw straight lines from dot to dot, (across, down); dots outside the grid are left out."""
        if not len(points):
            return
        ends = np.asarray(points, dtype=np.int64)
        starts = ends[:-1] if len(ends) > 1 else ends
        reach = ends[1:] - starts if len(ends) > 1 else np.zeros_like(ends)
        # Every line takes as many dots as it is long in its longer direction; all lines are laid out in one go.
        dots = np.maximum(np.abs(reach).max(axis=1), 1) + 1
        line = np.repeat(np.arange(len(dots)), dots)
        along = np.arange(len(line)) - np.repeat(np.cumsum(dots) - dots, dots)
        share = along / (dots[line] - 1)
        placed = np.rint(starts[line] + share[:, None] * reach[line]).astype(np.int64)
        self._fill(placed[:, 0], placed[:, 1])

    def rows(self, *, ascii_only: bool = False) -> list[str]:
        """Return the rows of characters; a character without a dot is a blank."""
        cells = self._dots.reshape(self.height, DOWN, self.width, ACROSS)
        if ascii_only:
            levels: list[list[list[bool]]] = np.moveaxis(np.any(cells, axis=3), 1, 2).tolist()
            return ["".join(map(_sign, row)) for row in levels]
        codes = (cells * _BITS[None, :, None, :]).sum(axis=(1, 3))
        return ["".join(chr(_BRAILLE + code) if code else " " for code in row) for row in codes.tolist()]

    def _fill(self, across: IntArray, down: IntArray) -> None:
        inside = (across >= 0) & (across < self._dots.shape[1]) & (down >= 0) & (down < self._dots.shape[0])
        self._dots[down[inside], across[inside]] = True


def _sign(levels: list[bool]) -> str:
    """Return a sign in ASCII whose height tells where the dots of a character are."""
    if not any(levels):
        return " "
    if sum(levels) > 2:
        return "|"
    return ('"' if levels[0] else "-") if levels[0] or levels[1] else ("_" if levels[3] else ".")
