"""The GraphQL questions of the W&B client, recognised by the field they ask for, answered from our record."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from forerun.record.ingest.runs import IngestedRun, IngestedRuns
from forerun.record.names import our_name

USER = {
    "id": "user",
    "entity": "local",
    "username": "local",
    "name": "local",
    "email": "",
    "flags": "{}",
    "admin": False,
    "teams": {"edges": []},
    "apiKeys": {"edges": []},
}
DEFAULT_SAMPLES = 500  # derived: what the client's own `history()` asks for


def answer(runs: IngestedRuns, base: str, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """`data` of the answer; empty for questions the record has no answer to."""
    entity = variables.get("entity") or variables.get("entityName") or "local"
    project = variables.get("project") or variables.get("projectName") or "uncategorized"
    name = variables.get("name") or variables.get("run") or variables.get("runName") or variables.get("runId") or ""
    if "upsertBucket" in query:
        return _upsert(runs, entity, project, variables)
    if "createRunFiles" in query:
        files = [{"name": file, "uploadUrl": f"{base}/upload/{file}"} for file in variables.get("files", [])]
        return {"createRunFiles": {"runID": name, "uploadHeaders": [], "files": files}}
    if "RunStoppedStatus" in query:
        return {"project": {"run": {"stopped": False}}}
    if "RunResumeStatus" in query or "model(" in query:
        run = runs.known(entity, project, name)
        return {
            "model": {"id": "project", "name": project, "entity": {"id": "entity", "name": entity}, "bucket": _resume(run) if run else None}
        }
    if "viewer" in query:
        return {"viewer": USER, "serverInfo": {"features": []}}
    if "serverInfo" in query:
        return {"serverInfo": {"features": [], "cliVersionInfo": {"max_cli_version": "99.0.0"}, "latestLocalVersionInfo": None}}
    run = runs.known(entity, project, name)
    return {"project": {"internalId": "1", "run": _read(run, query, variables) if run else None}}


def _upsert(runs: IngestedRuns, entity: str, project: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    run = runs.open(entity, project, variables.get("name") or variables.get("id") or "")
    if variables.get("config"):
        run.set_config(variables["config"])
    bucket = {
        "id": base64.b64encode(run.name.encode()).decode(),
        "name": run.name,
        "displayName": variables.get("displayName") or run.name,
        "description": "",
        "config": run.config,
        "sweepName": None,
        "historyLineCount": run.num_rows,
        "project": {"id": "project", "name": project, "entity": {"id": "entity", "name": entity}},
    }
    return {"upsertBucket": {"inserted": run.num_rows == 0, "bucket": bucket}}


def _resume(run: IngestedRun) -> dict[str, Any]:
    """What a client needs to go on with a run: how many rows it has sent, and the last of them."""
    tail = [json.dumps({"_step": run.record().last_step, "_runtime": 0})] if run.num_rows else []
    return {
        "id": run.name,
        "name": run.name,
        "historyLineCount": run.num_rows,
        "eventsLineCount": 0,
        "logLineCount": 0,
        "historyTail": json.dumps(tail),
        "eventsTail": "[]",
        "summaryMetrics": json.dumps(run.summary or {"_step": run.record().last_step}),
        "config": run.config,
        "displayName": run.name,
        "notes": "",
        "tags": [],
        "wandbConfig": json.dumps({"t": 1}),  # the client takes a run without it for one that never started
    }


def _read(run: IngestedRun, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    if "parquetHistory" in query:
        keys = variables.get("liveKeys") or _keys(run)
        return {"parquetHistory": {"parquetUrls": [], "liveData": _rows(run, ["_step", *keys], 1 << 60)}}
    if "sampledHistory" in query:
        specs = [json.loads(spec) for spec in (variables.get("specs") or [variables["spec"]])]
        return {"sampledHistory": [_sampled(run, spec) for spec in specs]}
    if "history(" in query:
        low, high = variables.get("minStep") or 0, variables.get("maxStep") or 1 << 60
        rows = [row for row in _rows(run, ["_step", *_keys(run)], 1 << 60, every=True) if low <= row["_step"] < high]
        return {"history": [json.dumps(row) for row in rows]}
    if "events(" in query:
        return {"events": []}
    return _summary(run)


def _summary(run: IngestedRun) -> dict[str, Any]:
    record = run.record()
    created = datetime.fromtimestamp(record.info.created, UTC).isoformat().replace("+00:00", "Z")
    state = "running" if run.exit_code is None else "finished" if run.exit_code == 0 else "failed"
    counts = {key: {"typeCounts": [{"type": "number", "count": len(record.series(key))}]} for key in _keys(run)}
    steps = {"_step": {"typeCounts": [{"type": "number", "count": run.num_rows}]}}
    return {
        "id": run.name, "projectId": "1", "name": run.name, "displayName": run.name, "state": state, "tags": [], "group": None, "jobType": None,
        "sweepName": None, "commit": None, "readOnly": False, "config": run.config, "createdAt": created, "heartbeatAt": created,
        "description": "", "notes": "", "systemMetrics": "{}", "summaryMetrics": json.dumps(run.summary), "historyLineCount": run.num_rows,
        "user": {"name": "local", "username": "local"}, "historyKeys": {"lastStep": record.last_step, "sets": [], "keys": steps | counts},
    }  # fmt: skip


def _keys(run: IngestedRun) -> list[str]:
    return run.record().metrics(0) if 0 in run.record().writers() else []


def _sampled(run: IngestedRun, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = _rows(
        run,
        spec["keys"],
        spec.get("samples") or spec.get("numSamples") or DEFAULT_SAMPLES,
        spec.get("minStep", 0),
        spec.get("maxStep", 1 << 60) + 1,  # the client asks for both ends
    )
    return rows


def _rows(
    run: IngestedRun, keys: list[str], samples: int, low: int = 0, high: int = 1 << 60, *, every: bool = False
) -> list[dict[str, Any]]:
    """Rows with `_step`, `_timestamp` and the asked metrics; only those that have all of them, unless `every`."""
    record = run.record()
    asked = [key for key in keys if not key.startswith("_")]
    columns = {}
    for key in asked:
        name, factor = our_name(key)
        series = record.series(name, 0) if 0 in record.writers() else record.series(name)
        columns[key] = (
            dict(zip(series.step.tolist(), (series.value / factor).tolist())),
            dict(zip(series.step.tolist(), series.time.tolist())),
        )
    if not columns:
        return []
    combine = set.union if every else set.intersection
    steps = np.array(sorted(step for step in combine(*(set(values) for values, _ in columns.values())) if low <= step < high))
    if len(steps) > samples:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, samples).astype(int))]
    rows = []
    for step in steps.tolist():
        row: dict[str, Any] = {"_step": step}
        for key, (values, times) in columns.items():
            if step in values:
                row[key] = _json_number(values[step])
                row["_timestamp"] = times[step]
        rows.append(row)
    return rows


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
