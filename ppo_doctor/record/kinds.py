"""Names for what the recorder cannot import: it works with whatever library the script uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: An array of torch, NumPy or JAX.
Tensor = Any
#: A model, an optimizer, a trainer or a logger of somebody else's.
Foreign = Any
#: What has reached the host.
Array = npt.NDArray[np.float64]
