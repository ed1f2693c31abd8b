"""TensorBoard event files, read by hand: TFRecord frames and the few protobuf fields that scalars need.

A writer may still be appending: a torn last frame is left for the next read, which goes on at the byte where this one stopped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.record.tfrecord import Torn, fields, frames
from forerun.watch.sources.source import Collected

FLOAT, DOUBLE = 1, 2
"""Type numbers of TensorFlow's DataType."""


def connect(where: str) -> EventFiles:
    """`where` is a folder with `events.out.tfevents.*` files, searched downwards."""
    return EventFiles(Path(where))


class EventFiles:
    """All event files under a folder as one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self._collected = Collected(folder.name)
        self.num_corrupt_files = 0

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when there is no event file."""
        files = sorted(self.folder.rglob("*tfevents*")) if self.folder.is_dir() else []
        if not files:
            raise SourceError(f"{self.folder} holds no tfevents file", hint="name the folder TensorBoard was told to log to")
        for path in files:
            self._read_file(path)
        return self._collected.record()

    def _read_file(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            start = file.tell()
            data = file.read()
        try:
            for end, payload in frames(data):
                self._offsets[path] = start + end
                for scalar in scalars(payload):
                    self._collected.add(scalar.tag, scalar.step, scalar.value, scalar.time)
        except Torn as torn:
            if torn.corrupt:
                self._collected.events.append(
                    {
                        "kind": "source_corrupt",
                        "step": 0,
                        "time": 0.0,
                        "message": f"{path.name}: {torn} at byte {self._offsets.get(path, 0)}",
                    }
                )


@dataclass(frozen=True)
class Scalar:
    """One value of one tag."""

    tag: str
    step: int
    value: float
    time: float


def scalars(event: bytes) -> Iterator[Scalar]:
    """The scalars of one Event message: wall_time 1, step 2, summary 5; in it value 1: tag 1, simple_value 2, tensor 8."""
    when, step, summaries = 0.0, 0, []
    for number, value in fields(event):
        if number == 1:
            when = struct.unpack("<d", value)[0]
        elif number == 2:
            step = value
        elif number == 5:
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number == 1:
                parts = dict(fields(value))
                scalar = _scalar(parts)
                if scalar is not None and 1 in parts:
                    yield Scalar(parts[1].decode("utf-8", "replace"), step, scalar, when)


def _scalar(parts: dict[int, Any]) -> float | None:
    if 2 in parts:
        return struct.unpack("<f", parts[2])[0]
    if 8 not in parts:
        return None
    tensor = dict(fields(parts[8]))
    kind = tensor.get(1)
    if kind == FLOAT:
        raw = tensor.get(4) or tensor.get(5, b"")
        return struct.unpack("<f", raw)[0] if len(raw) == 4 else None
    if kind == DOUBLE:
        raw = tensor.get(4) or tensor.get(6, b"")
        return struct.unpack("<d", raw)[0] if len(raw) == 8 else None
    return None
