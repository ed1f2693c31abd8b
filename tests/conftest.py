"""Shared helper modules of the tests are importable from any test; eight virtual devices stand for a mesh."""

from __future__ import annotations

import os
import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parent / "train", Path(__file__).parent / "parallel"):
    sys.path.insert(0, str(folder))

# Read when the first test touches a device; tests of one device use the first one.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
