"""TensorBoard event files, read by hand: TFRecord frames and the few protobuf fields that scalars need.

A writer may still be appending: a torn last frame is left for the next read, which goes on at the byte where this one stopped.
Folders below the one named are parts of one run: its splits (`train/`, `eval/`, `loss_train/` of `add_scalars`), or its restarts, one after
another. Two that log the same tag at the same time are two runs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.record.tfrecord import Torn, fields, frames
from forerun.watch.sources.source import Collected

FLOAT, DOUBLE = 1, 2
"""Type numbers of TensorFlow's DataType."""


SPLITS = ("train", "training", "eval", "evaluation", "val", "valid", "validation", "test")
"""Folder names that say which split a tag is of."""


def connect(where: str) -> EventFiles:
    """`where` is a folder with `events.out.tfevents.*` files, searched downwards, or one such file."""
    return EventFiles(Path(where))


@dataclass
class _Written:
    """When a folder's events were written, and under which tags."""

    first: float = math.inf
    last: float = -math.inf
    tags: set[str] = field(default_factory=set)

    def clashes(self, other: _Written) -> bool:
        """Whether both logged one tag during the same time."""
        return bool(self.tags & other.tags) and self.first < other.last and other.first < self.last


class EventFiles:
    """All event files under a folder as one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self._written: dict[Path, _Written] = {}
        self._collected = Collected(folder.name)

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when there is no event file, or there are several runs."""
        files = [self.folder] if self.folder.is_file() else sorted(self.folder.rglob("*tfevents*"))
        if not files:
            raise SourceError(f"{self.folder} holds no tfevents file", hint="name the folder TensorBoard was told to log to")
        for path in files:
            self._read_file(path)
        for (one, written), (another, other) in combinations(self._written.items(), 2):
            if written.clashes(other):
                names = [str(folder.relative_to(self.folder)) for folder in (one, another)]
                raise SourceError(f"{self.folder} holds several runs: {names}", hint=f"name one: tensorboard:{one}")
        return self._collected.record()

    def _read_file(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            start = file.tell()
            data = file.read()
        written = self._written.setdefault(path.parent, _Written())
        try:
            for end, payload in frames(data):
                self._offsets[path] = start + end
                for scalar in scalars(payload):
                    tag = _tag_of_split(scalar.tag, path.parent.name if path.parent != self.folder else "")
                    self._collected.add(tag, scalar.step, scalar.value, scalar.time)
                    written.tags.add(tag)
                    written.first, written.last = min(written.first, scalar.time), max(written.last, scalar.time)
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


def _tag_of_split(tag: str, folder: str) -> str:
    """`loss` in the folder `eval`, or in `loss_eval`, as `eval/loss`."""
    split = folder.removeprefix(tag.replace("/", "_") + "_")
    return f"{split}/{tag}" if split.lower() in SPLITS and not tag.startswith(f"{split}/") else tag


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
