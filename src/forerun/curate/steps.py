"""What a step is: its identity, its folder, and the proof that it is done.

A step's identity hashes its name, version, every parameter, the digests of its inputs and the source code that does the work. The
folder is named by the identity, so a changed parameter can never meet an artifact of the old one. Counts are read from the files.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xxhash

from forerun.base.config import digest_of, load_json
from forerun.base.errors import StorageError
from forerun.base.files import storage_errors, write_json

IDENTITY_DIGITS = 16  # derived: 64 bits; a lab holds some thousand step folders


@dataclass(frozen=True, kw_only=True)
class StepKey:
    """Everything that decides what a step's files contain."""

    name: str
    """Stage."""
    version: int
    """Raised when the step shall count as another although its code reads the same."""
    parameters: Any
    """The stage's whole config; functions of the stage get this object and nothing else."""
    inputs: tuple[str, ...]
    """Digests of what it reads."""
    modules: tuple[str, ...]
    """Modules whose source text is the step's code."""

    @property
    def identity(self) -> str:
        """64 hex digits."""
        return digest_of(
            {
                "name": self.name,
                "version": self.version,
                "parameters": self.parameters,
                "inputs": list(self.inputs),
                "code": code_digest(self.modules),
            }
        )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else works in a folder meanwhile: two runs would take each other's unfinished parts for their own.

    Raises: StorageError at once when another process holds it. The lock ends with its process, however that ends.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"another run works in {folder}", hint="wait for it to end, or choose another lab") from None
        yield


@cache
def code_digest(modules: Sequence[str]) -> str:
    """Hash of the source text of some modules, which are not imported for it."""
    state = xxhash.xxh3_128()
    for name in sorted(modules):
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None, f"step code {name} is not a module"
        state.update(name.encode() + b"\0" + Path(spec.origin).read_bytes())
    return state.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What `done.json` of a step says."""

    digest: str
    """Over the bytes of every file of the step."""
    files: dict[str, int]
    """Path inside the folder to size."""
    documents_in: int
    documents_out: int
    dropped: dict[str, int] = field(default_factory=dict)
    """By reason, counted from the files."""
    report: dict[str, Any] = field(default_factory=dict)


class StepFolder:
    """`<root>/<name>/<identity>/`: parts as they are finished, `done.json` last."""

    def __init__(self, root: Path, key: StepKey) -> None:
        self.key = key
        self.path = root / key.name / key.identity[:IDENTITY_DIGITS]

    def outcome(self) -> Outcome | None:
        """The outcome if the step is done and its files are all there with their sizes; else None, and what is there is kept."""
        done = self.path / "done.json"
        if not done.exists():
            return None
        outcome = load_json(done, Outcome)
        for name, size in outcome.files.items():
            path = self.path / name
            if not path.exists() or path.stat().st_size != size:
                path.unlink(missing_ok=True)
                done.unlink()
                return None
        return outcome

    def finish(
        self, names: Sequence[str], *, documents_in: int, documents_out: int, dropped: dict[str, int], report: dict[str, Any]
    ) -> Outcome:
        """Declare the step done with these files."""
        names = sorted(names)
        outcome = Outcome(
            digest=files_digest(self.path, names),
            files={name: (self.path / name).stat().st_size for name in names},
            documents_in=documents_in,
            documents_out=documents_out,
            dropped={reason: count for reason, count in sorted(dropped.items()) if count},
            report=report,
        )
        write_json(self.path / "done.json", outcome)
        return outcome

    def prepare(self) -> Path:
        """Make the folder; parts of an interrupted attempt stay."""
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def clear(self, name: str) -> None:
        """Drop a sub-folder of scratch files."""
        shutil.rmtree(self.path / name, ignore_errors=True)


def files_digest(folder: Path, names: Sequence[str]) -> str:
    """Hash over names and bytes of files."""
    state = xxhash.xxh3_128()
    for name in names:
        state.update(name.encode() + b"\0")
        with (folder / name).open("rb") as file:
            while piece := file.read(1 << 20):
                state.update(piece)
    return state.hexdigest()
