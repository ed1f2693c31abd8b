"""The ledger: one canonical-JSON object a line, each carrying the digest of the line before. Appending is the only change.

A chain proves that nothing was edited, dropped or reordered since a later line (or an anchor) was made public. It does not prove
that no other, secret run came before. `head.json` beside it counts the lines, so that lines cut off the end are missed too.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forerun.base.config import canonical_json, digest_of
from forerun.base.errors import CheckFailed
from forerun.base.files import fsync_folder, storage_errors, write_json
from forerun.base.lab import Lab

FIRST = "0" * 64
"""`prev` of the first line."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line."""

    schema: int
    seq: int
    kind: str
    """promise, amendment, closing or verdict."""
    time: str
    """UTC, ISO 8601, seconds."""
    prev: str
    body: dict[str, Any]
    digest: str


def plain(body: Any) -> dict[str, Any]:
    """A body as it will read back from its line."""
    return json.loads(canonical_json(body))


def append(lab: Lab, kind: str, body: dict[str, Any]) -> Entry:
    """Chain one more line, durably; two processes appending at once take turns.

    Raises: CheckFailed when the ledger so far does not verify: nothing is added to a broken chain.
    """
    with storage_errors(lab.ledger):
        lab.ledger.parent.mkdir(parents=True, exist_ok=True)
        with lab.ledger.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            entries = _checked(lab, file.read())
            line: dict[str, Any] = {
                "schema": 1,
                "seq": len(entries),
                "kind": kind,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "prev": entries[-1].digest if entries else FIRST,
                "body": plain(body),
            }
            line["digest"] = digest_of(line)
            file.write(canonical_json(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            write_json(head_path(lab), {"lines": len(entries) + 1, "digest": line["digest"]})
        fsync_folder(lab.ledger.parent)
    return Entry(**line)


def read(lab: Lab) -> list[Entry]:
    """All lines, checked. Raises: CheckFailed naming the first line and byte that is not what it was."""
    return _checked(lab, lab.ledger.read_bytes() if lab.ledger.exists() else b"")


def head_path(lab: Lab) -> Path:
    """How many lines there are and the last one's digest; written behind every line, so after a crash it may count one less."""
    return lab.ledger.with_name("head.json")


def _checked(lab: Lab, content: bytes) -> list[Entry]:
    entries, path = list(_verified(content)), head_path(lab)
    if not path.exists():
        return entries
    try:
        head = json.loads(path.read_bytes())
        known, digest = int(head["lines"]), str(head["digest"])
    except (ValueError, KeyError, TypeError):
        raise CheckFailed(f"{path} cannot be read", hint="restore it from a copy of the ledger, for example in git") from None
    if known > len(entries):
        raise CheckFailed(
            f"the ledger has {len(entries)} lines, {path} says {known}", hint="restore the missing lines from a copy, for example in git"
        )
    if known < 1 or entries[known - 1].digest != digest:
        raise CheckFailed(f"{path} names another line {known - 1} than the ledger holds", hint="compare both with an older copy")
    return entries


def _verified(content: bytes) -> Iterator[Entry]:
    prev, place = FIRST, 0
    for seq, line in enumerate(content.split(b"\n")[:-1] if content.endswith(b"\n") else content.split(b"\n")):
        if not content:
            return
        yield (entry := _entry(line, seq, prev, place))
        prev, place = entry.digest, place + len(line) + 1
    if content and not content.endswith(b"\n"):
        raise _broken(content.count(b"\n"), place, "the last line has no end")


def _entry(line: bytes, seq: int, prev: str, place: int) -> Entry:
    try:
        data = json.loads(line)
        entry = Entry(**data)
        canonical = canonical_json(data)
    except (ValueError, TypeError, RecursionError):
        raise _broken(seq, place, "it is not a ledger line") from None
    if line != canonical or not isinstance(entry.body, dict):
        raise _broken(seq, place, "it is not in canonical form")
    if entry.seq != seq:
        raise _broken(seq, place, f"it says it is line {entry.seq}")
    if entry.prev != prev:
        raise _broken(seq, place, "it does not continue the line before")
    if digest_of({key: value for key, value in data.items() if key != "digest"}) != entry.digest:
        raise _broken(seq, place, "its digest does not fit its content")
    return entry


def _broken(seq: int, place: int, why: str) -> CheckFailed:
    return CheckFailed(
        f"ledger line {seq} (byte {place}) was changed: {why}", hint="compare with an older copy of the ledger, for example in git"
    )
