"""Debian packages without installing anything and without root: fetched by `apt-get` into the lab, read as the archives they are."""

from __future__ import annotations

import fnmatch
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from forerun.base.errors import DataError, SourceError
from forerun.base.files import storage_errors

TIMEOUT_S = 900
HEADER_BYTES = 60
"""Of an `ar` member: name 16, times and owners 32, size 10, end 2 (ar(5))."""


@dataclass(frozen=True)
class Apt:
    """The system's package lists, copied fresh into a folder of our own; the system's own state is only read."""

    folder: Path

    def update(self) -> None:
        """Fetch the lists. Raises: SourceError without apt or without a connection."""
        if shutil.which("apt-get") is None:
            raise SourceError(
                "--corpus debian needs apt-get, which this system has not", hint="use --corpus packages, or --corpus DIR with your own text"
            )
        with storage_errors(self.folder):
            for part in ("lists/partial", "cache/archives/partial"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "update", "-qq")

    def names(self, patterns: Iterable[str]) -> dict[str, str]:
        """The package each pattern stands for, the highest version where several fit; patterns without one are left out."""
        known = self._run("apt-cache", "pkgnames").split()
        found = {}
        for pattern in patterns:
            matches = [name for name in known if fnmatch.fnmatchcase(name, pattern) and re.fullmatch(r"[\d.]*", _starred(name, pattern))]
            if matches:
                found[pattern] = max(matches, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
        return found

    def fetch(self, name: str) -> Path:
        """The package file, checked by apt against the signed lists. Raises: SourceError."""
        known = sorted(self.folder.glob(f"{name}_*.deb"))
        if not known:
            self._run("apt-get", "download", "-qq", name)
            known = sorted(self.folder.glob(f"{name}_*.deb"))
        if not known:
            raise SourceError(f"apt-get did not leave a file of {name}", hint="run again")
        return known[-1]

    def _run(self, program: str, *arguments: str) -> str:
        places = [
            f"Dir::State={self.folder}",
            "Dir::State::status=/var/lib/dpkg/status",
            f"Dir::Cache={self.folder / 'cache'}",
            "APT::Sandbox::User=",
        ]
        command = [program, *(part for place in places for part in ("-o", place)), *arguments]
        try:
            outcome = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise SourceError(
                f"{program} {arguments[0]} gave no answer within {TIMEOUT_S} s", hint="run again; what was fetched is kept"
            ) from None
        if outcome.returncode:
            said = [line for line in outcome.stderr.splitlines() if line.startswith("E:")]
            raise SourceError(
                f"{' '.join((program, *arguments))} failed: {(said or ['no reason given'])[0][:200]}",
                hint="check the connection to the Debian mirror and run again, or use --corpus packages",
            )
        return outcome.stdout


def version_of(package: Path) -> str:
    """`name=version`, from the file name."""
    name, version, _ = package.name.split("_", 2)
    return f"{name}={version.replace('%3a', ':')}"


def members(package: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of the regular files whose whole path matches. Raises: DataError when the file is not a Debian package."""
    wanted = re.compile(pattern)
    try:
        name, data = next((part for part in _ar(package.read_bytes()) if part[0].startswith("data.tar")), ("", b""))
        if not name:
            raise ValueError("it holds no data archive")
        stream = zstandard.ZstdDecompressor().stream_reader(data) if name.endswith(".zst") else io.BytesIO(data)
        with tarfile.open(fileobj=stream, mode="r|" if name.endswith(".zst") else "r|*") as archive:
            for entry in archive:
                path = entry.name.removeprefix("./")
                held = archive.extractfile(entry) if entry.isfile() and wanted.fullmatch(path) else None
                if held is not None:
                    yield path, held.read()
    except (tarfile.TarError, zstandard.ZstdError, ValueError, EOFError, OSError) as error:
        raise DataError(f"{package.name} cannot be read: {error}", hint="delete it from the lab's download folder and run again") from None


def _ar(data: bytes) -> Iterator[tuple[str, bytes]]:
    if not data.startswith(b"!<arch>\n"):
        raise ValueError("not an ar archive")
    start = 8
    while start + HEADER_BYTES <= len(data):
        header = data[start : start + HEADER_BYTES]
        size = int(header[48:58])
        yield header[:16].decode("ascii").strip().rstrip("/"), data[start + HEADER_BYTES : start + HEADER_BYTES + size]
        start += HEADER_BYTES + size + size % 2


def _starred(name: str, pattern: str) -> str:
    """What the star of a pattern stands for in a name; empty without a star."""
    if "*" not in pattern:
        return ""
    before, after = pattern.split("*")
    return name[len(before) : len(name) - len(after)]
