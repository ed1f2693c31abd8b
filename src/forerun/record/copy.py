"""Put a foreign run's record into the lab as one of our own."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from forerun.base.errors import RecordError
from forerun.base.lab import Lab
from forerun.record.journal import Journal
from forerun.record.run import ending, save_run, start_run
from forerun.record.series import RunRecord


def copy_run(record: RunRecord, lab: Lab, run_id: str) -> int:
    """Write every row and event of `record` as run `run_id`. Returns: rows written.

    Raises: RecordError when the lab has a run of that name.
    """
    run_dir = lab.run(run_id)
    if (run_dir / "run.json").exists():
        raise RecordError(f"the lab has a run {run_id!r} already", hint="choose another name with --as")
    info = start_run(run_dir, num_steps=record.info.num_steps, experiment=record.info.experiment, unregistered=True)
    rows: dict[int, dict[str, float]] = defaultdict(dict)
    times: dict[int, float] = {}
    for metric in record.metrics():
        series = record.series(metric)
        for step, value, when in zip(series.step.tolist(), series.value.tolist(), series.time.tolist()):
            rows[step][metric] = value
            times[step] = when if math.isfinite(when) else info.created
    segments = record.info.segments or info.segments
    written = 0
    for number, segment in enumerate(segments):
        save_run(run_dir, replace(info, segments=segments[: number + 1]))
        end = segments[number + 1].first_step if number + 1 < len(segments) else None
        with Journal(run_dir) as journal:
            for step in sorted(step for step in rows if segment.first_step <= step and (end is None or step < end)):
                journal.log(step, rows[step], when=times[step])
                written += 1
            if end is None:
                _copy_events(record, journal)
                if ending(record.events()) is None:
                    journal.event("stopped", max(rows, default=0), reason="copied as it stood")
    return written


def _copy_events(record: RunRecord, journal: Journal) -> None:
    for event in record.events():
        fields = {name: value for name, value in event.items() if name not in ("kind", "step", "time", "segment")}
        journal.event(event["kind"], event["step"], source_time=event["time"], **fields)
