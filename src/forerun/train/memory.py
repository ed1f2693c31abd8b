"""Resident memory of this process."""

from __future__ import annotations

import psutil


def memory_gib() -> float:
    """GiB now, as the operating system counts it."""
    return psutil.Process().memory_info().rss / 2**30
