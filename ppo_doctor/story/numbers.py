"""Numbers as a story tells them: three significant digits."""

from __future__ import annotations

import math
import re

#: From here on a whole number has three digits at least, and is told whole; beyond, powers of ten read better.
WHOLE_FROM, WHOLE_TO = 100, 1e6
_EXPONENT = re.compile(r"e([+-])0*(\d+)$")


def short(value: float) -> str:
    """Return a number with three significant digits, as people write it: 0.00312, 17.8, 2341, 1e-6."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if WHOLE_FROM <= abs(value) < WHOLE_TO:
        return str(round(value))
    return _EXPONENT.sub(lambda found: "e" + found[1].replace("+", "") + found[2], f"{value + 0.0:.3g}")
