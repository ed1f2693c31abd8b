"""Files that are either whole or absent: write beside, fsync, rename. File-system refusals become one-line errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forerun.base.config import canonical_json
from forerun.base.errors import StorageError

_WAY_OUT = {
    errno.ENOSPC: ("the disk is full", "free space or choose another folder; run the same command again to continue"),
    errno.EDQUOT: ("the quota is used up", "free space or ask for quota; run the same command again to continue"),
    errno.EROFS: ("the file system is read-only", "choose a writable folder"),
    errno.EACCES: ("permission denied", "choose a folder you may write to"),
    errno.EPERM: ("permission denied", "choose a folder you may write to"),
    errno.ENOTDIR: ("a file is in the way of a folder", "choose another folder"),
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the file system's refusals into `StorageError`; other `OSError`s pass through."""
    try:
        yield
    except OSError as error:
        if error.errno not in _WAY_OUT:
            raise
        problem, way_out = _WAY_OUT[error.errno]
        raise StorageError(f"cannot write {path}: {problem}", hint=way_out) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write; it takes the place of `path` when the block ends, and is gone when the block fails.

    A reader sees the old file or the new one, never a part. Surviving a crash of the machine is the block's business (`fsync`).
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            yield beside
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def write_atomic(path: Path, data: bytes) -> None:
    """Make `path` hold exactly `data`, durably; a reader or a crash sees the old file or the new one, never a part."""
    with replacing(path) as beside, beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with storage_errors(path):
        fsync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of canonical JSON with a final newline."""
    write_atomic(path, canonical_json(value) + b"\n")


def fsync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
