"""W&B over GraphQL: `sampledHistory` per metric, anonymous for public projects, a chain of run ids as one run.

What this source knows about W&B: keys not logged at a step come back null; a forked run repeats its parent's history; every
restart gets a new run id; after a rollback no row below the high-water mark is taken, so the history stands still while the
run is alive; the summary's last values are not to be trusted; `_step` counts calls where a trainer logs its own step beside each value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from forerun.base.errors import SourceError
from forerun.record.names import TABLE, our_name
from forerun.record.run import Segment
from forerun.record.series import RunRecord
from forerun.watch.sources.http import Http
from forerun.watch.sources.source import Collected, from_word

PUBLIC = "https://api.wandb.ai"
SAMPLES = 2000  # assumed: rows a metric; a plot shows no more and the detectors need no more
KEYS_A_QUESTION = 20  # assumed: metrics asked for in one question
OWN_STEPS = ("trainer/global_step", "train/global_step")
"""The trainer's step, which Lightning and transformers log with every row; `_step` then counts rows."""
MAX_KEYS = 400  # assumed: metrics of a run that are read; those of the glossary come first

RUN = """query Run($entity: String!, $project: String!, $name: String!) { project(name: $project, entityName: $entity) {
 run(name: $name) { name displayName state createdAt heartbeatAt group config summaryMetrics historyKeys } } }"""
HISTORY = """query RunSampledHistory($entity: String!, $project: String!, $name: String!, $specs: [JSONString!]!) {
 project(name: $project, entityName: $entity) { run(name: $name) { sampledHistory(specs: $specs) } } }"""
SIBLINGS = """query Runs($entity: String!, $project: String!, $filters: JSONString!) { project(name: $project, entityName: $entity) {
 runs(first: 50, filters: $filters) { edges { node { name createdAt group state } } } } }"""


@dataclass(frozen=True)
class Link:
    """One run id of the chain."""

    name: str
    first_step: int | None
    """Where it takes over; None lets the history say."""


def connect(where: str) -> WandbRuns:
    """`where` is `ENTITY/PROJECT/RUN`, or `ENTITY/PROJECT/RUN,RUN@STEP,...` for a chain; `@STEP` says where a run takes over."""
    return WandbRuns(*parsed(where))


def parsed(where: str) -> tuple[str, str, list[Link]]:
    """Entity, project and chain. Raises: SourceError when a part is missing."""
    parts = where.split("/")
    if len(parts) != 3 or not all(parts):
        raise SourceError(
            f"wandb:{where} needs ENTITY/PROJECT/RUN", hint="for example wandb:marin-community/marin_moe/hero-12d8b6f0-dee637"
        )
    chain = []
    for link in parts[2].split(","):
        name, at, step = link.partition("@")
        if not name or (at and not step.isdigit()):
            raise SourceError(f"wandb run {link!r} must read RUN or RUN@STEP", hint="give the step where the run takes over as a number")
        chain.append(Link(name, int(step) if at else None))
    return parts[0], parts[1], chain


class WandbRuns:
    """A chain of runs; later reads ask only for steps behind the last one seen."""

    def __init__(
        self, entity: str, project: str, chain: list[Link], *, base: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.entity, self.project, self.chain = entity, project, chain
        key = os.environ.get("WANDB_API_KEY", "")
        self.http = Http(base or os.environ.get("WANDB_BASE_URL", PUBLIC), transport, auth=("api", key) if key else None)
        self.collected = Collected(chain[0].name)
        self.last_step = 0
        self._last: dict[tuple[str, str], int] = {}
        """By run and metric, the last `_step` read."""
        self._announced: set[str] = set()

    def read(self) -> RunRecord:
        """Everything known so far. Raises: SourceError when the project is not readable or a run is absent."""
        runs = [self._run(link) for link in self.chain]
        self.collected.segments = list(self._segments(runs))
        for index, (link, run) in enumerate(zip(self.chain, runs)):
            end = self.collected.segments[index + 1].first_step if index + 1 < len(runs) else None
            self._history(link.name, run, self.collected.segments[index].first_step, end)
        self.take_state(runs[-1])
        return self.collected.record()

    def newest_run(self) -> dict[str, Any]:
        """The last run of the chain as the tracker describes it."""
        return self._run(self.chain[-1])

    def ask(self, query: str, **variables: Any) -> Any:
        """One GraphQL question about the project. Raises: SourceError with the server's own words."""
        body = self.http.post("/graphql", {"query": query, "variables": {"entity": self.entity, "project": self.project, **variables}})
        project = (body.get("data") or {}).get("project")
        if body.get("errors") or project is None:
            words = "; ".join(str(error.get("message")) for error in body.get("errors") or []) or "no such project, or not public"
            raise SourceError(f"{self.entity}/{self.project}: {words}", hint="check the names; private projects need WANDB_API_KEY")
        return project

    def _run(self, link: Link) -> dict[str, Any]:
        run = self.ask(RUN, name=link.name).get("run")
        if run is None:
            raise SourceError(
                f"{self.entity}/{self.project} has no run {link.name!r}",
                hint=f"runs get a new id at every restart; newest there: {self._newest()}",
            )
        return run

    def _segments(self, runs: list[dict[str, Any]]) -> Iterator[Segment]:
        for index, (link, run) in enumerate(zip(self.chain, runs)):
            first = link.first_step if link.first_step is not None else 0 if index == 0 else self._takes_over(link.name, run)
            yield Segment(run_id=link.name, first_step=first, time=_seconds(run.get("createdAt")))

    def _takes_over(self, name: str, run: dict[str, Any]) -> int:
        """First step logged after the run was created: a fork begins with rows copied from its parent."""
        created = _seconds(run.get("createdAt"))
        key = next((foreign for foreign in self.metric_keys(run) if our_name(foreign)[0] == "loss_nats"), "_timestamp")
        axis = step_key(run)
        rows = self._sampled(name, [{"keys": list(dict.fromkeys(["_step", "_timestamp", axis, key])), "samples": SAMPLES}])[0]
        own = [
            int(row[axis]) for row in rows if row.get(axis) is not None and row.get("_timestamp") and float(row["_timestamp"]) >= created
        ]
        return min(own, default=0)

    def _history(self, name: str, run: dict[str, Any], begin: int, end: int | None) -> None:
        keys = self.metric_keys(run)
        axis = step_key(run)
        for start in range(0, len(keys), KEYS_A_QUESTION):
            asked = keys[start : start + KEYS_A_QUESTION]
            specs = [self._spec(name, axis, key, begin, end) for key in asked]
            for key, rows in zip(asked, self._sampled(name, specs)):
                for row in rows:
                    step = row.get(axis)
                    if step is None or row.get(key) is None or step < begin or (end is not None and step >= end):
                        continue
                    self.collected.add(key, int(step), from_word(row[key]), float(row.get("_timestamp") or "nan"))
                    self._last[name, key] = max(self._last.get((name, key), -1), int(row["_step"]))
                    self.last_step = max(self.last_step, int(step))

    def _spec(self, name: str, axis: str, key: str, begin: int, end: int | None) -> dict[str, Any]:
        """What is asked of one metric; W&B's own bounds are in `_step`, so they serve only where that is the axis."""
        unread = self._last.get((name, key), -1) + 1
        if axis != "_step":
            return {"keys": ["_step", "_timestamp", axis, key], "samples": SAMPLES, "minStep": unread}
        bounds = {"minStep": max(begin, unread)} | ({"maxStep": end} if end is not None else {})
        return {"keys": ["_step", "_timestamp", key], "samples": SAMPLES} | bounds

    def _sampled(self, name: str, specs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        run = self.ask(HISTORY, name=name, specs=[json.dumps(spec) for spec in specs]).get("run") or {}
        answers = run.get("sampledHistory") or []
        return [rows or [] for rows in answers] + [[] for _ in range(len(specs) - len(answers))]

    def metric_keys(self, run: dict[str, Any]) -> list[str]:
        """Metrics worth reading: those the name table knows first, then the others."""
        keys = [
            key
            for key in ((run.get("historyKeys") or {}).get("keys") or {})
            if not key.startswith(("_", "system")) and key not in OWN_STEPS
        ]
        known = [key for key in keys if our_name(key)[0] != key or key in {ours for _, ours, _ in TABLE}]
        return (known + [key for key in keys if key not in set(known)])[:MAX_KEYS]

    def take_state(self, run: dict[str, Any]) -> None:
        """What the tracker says beyond the history: how long the run is, whether it lives, whether another one goes on."""
        summary = _plain(run.get("summaryMetrics"))
        progress = summary.get("run_progress")
        step = next((summary[key] for key in (*OWN_STEPS, "global_step", "_step") if key in summary), None)
        if isinstance(progress, int | float) and isinstance(step, int | float) and 0 < progress <= 1:
            self.collected.num_steps = max(self.collected.num_steps, round(step / progress))
        heartbeat = _seconds(run.get("heartbeatAt"))
        last = self.last_step
        self.collected.events = [event for event in self.collected.events if event["kind"] != "tracker_heartbeat"]
        if run.get("state") == "running":
            self.collected.events.append({"kind": "tracker_heartbeat", "step": last, "time": heartbeat})
        elif run.get("state") and run["name"] not in self._announced:
            self._announced.add(run["name"])
            kind = {"finished": "finished", "crashed": "crashed", "failed": "crashed", "killed": "stopped"}.get(run["state"], "stopped")
            self.collected.events.append({"kind": kind, "step": last, "time": heartbeat})
            self._follow(run)

    def _follow(self, run: dict[str, Any]) -> None:
        """A younger run of the same group goes on with this one: the next read includes it."""
        if not run.get("group"):
            return
        edges = self.ask(SIBLINGS, filters=json.dumps({"group": run["group"]})).get("runs", {}).get("edges", [])
        known = {link.name for link in self.chain}
        younger = [
            edge["node"]
            for edge in edges
            if edge["node"]["name"] not in known and _seconds(edge["node"]["createdAt"]) > _seconds(run["createdAt"])
        ]
        for node in sorted(younger, key=lambda node: node["createdAt"])[:1]:
            self.chain.append(Link(node["name"], None))
            self.collected.events.append(
                {
                    "kind": "successor",
                    "step": self.last_step,
                    "time": _seconds(node["createdAt"]),
                    "message": f"run {node['name']} goes on",
                }
            )

    def _newest(self) -> list[str]:
        edges = self.ask(SIBLINGS, filters="{}").get("runs", {}).get("edges", [])
        return [edge["node"]["name"] for edge in sorted(edges, key=lambda edge: edge["node"]["createdAt"])[-3:]]


def step_key(run: dict[str, Any]) -> str:
    """The key whose values are the steps of training."""
    logged = (run.get("historyKeys") or {}).get("keys") or {}
    return next((key for key in OWN_STEPS if key in logged), "_step")


def _seconds(when: str | None) -> float:
    return datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp() if when else 0.0


def _plain(text: Any) -> dict[str, Any]:
    try:
        plain = json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError:
        return {}
    return plain if isinstance(plain, dict) else {}
