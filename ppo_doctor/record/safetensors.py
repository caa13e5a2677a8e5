"""Writes arrays as `.safetensors`: a length, a header in JSON, the bytes (github.com/huggingface/safetensors)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ppo_doctor.record.kinds import Array


def save(path: Path, arrays: Mapping[str, Array], told: Mapping[str, object]) -> None:
    """Write arrays in float32, with settings beside them; what was written in part is taken away.

    Raises:
        OSError: the file cannot be written.
    """
    held = {name: np.ascontiguousarray(array, dtype="<f4") for name, array in arrays.items()}
    header: dict[str, object] = {"__metadata__": {name: str(value) for name, value in told.items()}}
    end = 0
    for name, array in held.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in held.values():
                file.write(array.tobytes())
    except OSError:
        path.unlink(missing_ok=True)
        raise
