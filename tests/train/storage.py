"""Real file systems that are full, read-only or hang, where the machine lets a test mount them (root on Linux)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def can_mount() -> bool:
    """Whether this process may mount file systems of its own."""
    if not sys.platform.startswith("linux") or os.geteuid():
        return False
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True)
    return done.returncode == 0


@contextmanager
def small_disk(place: Path, mib: int) -> Iterator[Path]:
    """A file system in memory that is full after `mib`."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_read_only(place: Path) -> None:
    """Turn a mounted file system read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)


@contextmanager
def disk_on_a_file(place: Path, mib: int = 24) -> Iterator[Path]:
    """A disk that can be frozen: every write hangs from `fsfreeze -f` to `fsfreeze -u`."""
    image = place.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(mib << 20)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def frozen(place: Path) -> Iterator[None]:
    """The disk hangs inside."""
    subprocess.run(["fsfreeze", "-f", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(place)], check=True)
