"""W&B's own web client asks for buckets and for changes since a cursor: one answer for all metrics, nothing when nothing is new.

The call is undocumented and may change; whatever it answers that is not understood sends this source back to `sampledHistory`.
A bucket's mean stands for its rows, and a bucket that held a NaN is NaN.
"""

from __future__ import annotations

import json
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.watch.sources.wandb import SAMPLES, WandbRuns, parsed, step_key

BINS = 500  # derived: what the web client was seen to ask for

QUERY = """query BucketedRunsDeltaQuery($entity: String!, $project: String!, $filters: JSONString!, $order: String, $limit: Int!,
 $groupKeys: [String!], $groupLevel: Int, $currentRuns: [String!]!, $lastUpdated: DateTime, $bucketedHistorySpecs: [JSONString!]!) {
 project(name: $project, entityName: $entity) { runs(first: $limit, order: $order, filters: $filters, groupKeys: $groupKeys,
 groupLevel: $groupLevel) { deltas(currentRuns: $currentRuns, lastUpdated: $lastUpdated) { order delta { op run { name state heartbeatAt
 createdAt summaryMetrics bucketedHistory(specs: $bucketedHistorySpecs, packVersion: 0) } } } } } }"""


def connect(where: str) -> BucketedRuns:
    """`where` as for `wandb:`; only the last run of a chain is read by buckets, earlier ones do not change any more."""
    return BucketedRuns(WandbRuns(*parsed(where)))


class BucketedRuns:
    """Reads the plain way once, then only what changed."""

    def __init__(self, plain: WandbRuns) -> None:
        self.plain = plain
        self.fast = True
        self._cursor: str | None = None
        self._keys: list[str] = []

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when neither way works."""
        if self.fast and self._cursor is not None:
            try:
                self._delta()
            except (SourceError, KeyError, TypeError, IndexError, AttributeError):
                self.fast = False
            else:
                return self.plain.collected.record()
        record = self.plain.read()
        newest = self.plain.newest_run()
        self._cursor, self._keys = newest.get("heartbeatAt"), self.plain.metric_keys(newest)
        self.fast = self.fast and step_key(newest) == "_step"  # buckets say nothing of another step
        return record

    def _delta(self) -> None:
        name = self.plain.chain[-1].name
        begin = self.plain.collected.segments[-1].first_step
        specs = [json.dumps({"keys": [key], "bins": BINS, "samples": SAMPLES, "xAxis": "_step", "minStep": begin}) for key in self._keys]
        answer = self.plain.ask(
            QUERY,
            filters=json.dumps({"name": {"$in": [name]}}),
            order="-created_at",
            limit=1,
            groupKeys=[],
            groupLevel=0,
            currentRuns=[name],
            lastUpdated=self._cursor,
            bucketedHistorySpecs=specs,
        )
        for delta in answer["runs"]["deltas"]["delta"]:
            run = delta["run"]
            if delta["op"] == "DELETE" or run["name"] != name:
                continue
            for key, buckets in zip(self._keys, run["bucketedHistory"]):
                for bucket in buckets:
                    if bucket.get(f"{key}Avg") is not None and bucket["_stepLast"] >= begin:
                        value = float("nan") if bucket.get(f"{key}HasNaN") else bucket[f"{key}Avg"]
                        self.plain.collected.add(key, int(bucket["_stepLast"]), value, _time(bucket))
            self._cursor = run.get("heartbeatAt") or self._cursor
            self.plain.take_state(run)


def _time(bucket: dict[str, Any]) -> float:
    return float(bucket.get("_timestampLast") or "nan")
