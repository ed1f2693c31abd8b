"""Fitted models as files of named arrays."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from forerun.base.files import write_atomic


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write one `.npz` whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  its stub takes the names for its own flag
    write_atomic(path, buffer.getvalue())
