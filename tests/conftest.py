"""Shared helper modules of the tests are importable from any test."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parent / "train"):
    sys.path.insert(0, str(folder))
