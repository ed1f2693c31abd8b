"""`run.json`: what a run is, and the chain of segments it was trained in.

A run starts with one segment. Every restart from a checkpoint and every declared change opens another one; rows of earlier
segments from its first step on are no longer part of the trajectory, so replayed steps are counted once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from forerun.base.errors import RecordError
from forerun.base.files import write_json

ENDINGS = ("end", "finished", "stopped", "crash", "crashed", "stalled")
"""Events after which a run writes no more, until the next `start`; our trainer's words and those of foreign trackers."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One uninterrupted stretch of training."""

    run_id: str
    """Under which the stretch was logged; foreign trackers give every restart a new one."""
    first_step: int
    """Smallest step this stretch logs."""
    time: float
    """Unix seconds when it began."""
    commit: str = ""
    """Of the training code."""
    changed: str = ""
    """What was declared to differ from the stretch before; empty for a plain restart."""
    kind: str = ""
    """Of the change: data, optimizer, systems, context, ...; empty for a plain restart."""


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of `run.json`. Readers ignore fields they do not know."""

    schema: Literal[1] = 1
    """Of this file."""
    run_id: str
    """Name of the run's folder."""
    experiment: str = ""
    """`NNN-slug` of the experiment, empty when there is none."""
    registration_id: str | None = None
    """The promise this run was started under."""
    unregistered: bool = False
    """The run was deliberately started without a promise."""
    config_digest: str = ""
    """SHA-256 of the canonical run config."""
    created: float
    """Unix seconds."""
    num_steps: int
    """Optimizer steps the run is planned to take; 0 when the source does not say."""
    versions: dict[str, str] = field(default_factory=dict)
    """Package name to version, as installed."""
    segments: tuple[Segment, ...] = ()
    """In the order they were started."""


def ending(events: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The event a run ended with; None when it never ended or was started again since."""
    told = [event for event in events if event["kind"] in ("start", *ENDINGS)]
    return told[-1] if told and told[-1]["kind"] != "start" else None


def start_run(
    run_dir: Path,
    *,
    num_steps: int,
    experiment: str = "",
    registration_id: str | None = None,
    unregistered: bool = False,
    config_digest: str = "",
    versions: dict[str, str] | None = None,
    first_step: int = 0,
    commit: str = "",
    changed: str = "",
    kind: str = "",
) -> RunInfo:
    """Create `run.json`, or open a further segment when the run exists. Call before `Journal`.

    Args:
        first_step: smallest step this stretch will log. After a restore of the state after step N that is N + 1.
        changed, kind: the declared change; a plain restart leaves both empty.
    Raises: RecordError when the folder holds a run of another config and no change is declared.
    """
    now = time.time()
    segment = Segment(run_id=run_dir.name, first_step=first_step, time=now, commit=commit, changed=changed, kind=kind)
    if not (run_dir / "run.json").exists():
        info = RunInfo(
            run_id=run_dir.name,
            experiment=experiment,
            registration_id=registration_id,
            unregistered=unregistered,
            config_digest=config_digest,
            created=now,
            num_steps=num_steps,
            versions=versions or {},
            segments=(segment,),
        )
    else:
        info = load_run(run_dir)
        if config_digest and info.config_digest and config_digest != info.config_digest and not changed:
            raise RecordError(
                f"{run_dir}: run.json has config {info.config_digest[:12]}, this run has {config_digest[:12]}",
                hint="declare the change with `forerun amend`, or start a run under another id",
            )
        info = replace(info, num_steps=num_steps, config_digest=config_digest or info.config_digest, segments=(*info.segments, segment))
    save_run(run_dir, info)
    return info


def start_foreign(run_dir: Path, *, num_steps: int = 0, experiment: str = "") -> None:
    """Begin a run whose rows come from outside the lab, as unregistered; nothing when it was begun that way before.

    Raises: RecordError when a run of that name goes on under a promise: only its own trainer writes it.
    """
    if not (run_dir / "run.json").exists():
        start_run(run_dir, num_steps=num_steps, experiment=experiment, unregistered=True)
    elif load_run(run_dir).registration_id:
        raise RecordError(
            f"run {run_dir.name!r} was started under a promise and takes no rows from outside", hint="send them under another name"
        )


def load_run(run_dir: Path) -> RunInfo:
    """Read `run.json`. Raises: RecordError when the folder holds no run or the file is broken."""
    path = run_dir / "run.json"
    try:
        data: Any = json.loads(path.read_bytes())
        return msgspec.convert(data, RunInfo)
    except FileNotFoundError:
        raise RecordError(f"{run_dir} holds no run (run.json is absent)", hint="`forerun record list` shows the runs of a lab") from None
    except NotADirectoryError:
        raise RecordError(f"{run_dir} is not a folder", hint="name the run's folder") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise RecordError(f"{path} cannot be read: {error}", hint="restore it from a copy; the journals beside it are intact") from None


def save_run(run_dir: Path, info: RunInfo) -> None:
    """Write `run.json` whole."""
    write_json(run_dir / "run.json", info)
