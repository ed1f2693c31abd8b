"""A W&B project in memory behind an httpx transport: answers like the public API, with its bad habits on demand."""

import json

import httpx


class Project:
    """Runs by name: rows of history, creation time, state."""

    def __init__(self, runs, *, refuse=(), buckets=True):
        self.runs, self.refuse, self.buckets = runs, list(refuse), buckets
        self.asked = []

    def transport(self):
        return httpx.MockTransport(self.answer)

    def answer(self, request):
        if self.refuse:
            status, headers = self.refuse.pop(0)
            return httpx.Response(status, headers=headers)
        question = json.loads(request.content)
        query, variables = question["query"], question["variables"]
        self.asked.append((query.split("(")[0].split()[-1], variables))
        if "BucketedRunsDelta" in query:
            return self._deltas(variables)
        if "runs(first" in query:
            group = json.loads(variables["filters"]).get("group")
            nodes = [{"name": name, **self._head(name)} for name in self.runs if group is None or self.runs[name].get("group") == group]
            return self._project({"runs": {"edges": [{"node": node} for node in nodes]}})
        name = variables["name"]
        if name not in self.runs:
            return self._project({"run": None})
        if "sampledHistory" in query:
            return self._project({"run": {"sampledHistory": [self._rows(name, json.loads(spec)) for spec in variables["specs"]]}})
        keys = {key: {} for row in self.runs[name]["rows"] for key in row}
        summary = json.dumps(self.runs[name]["rows"][-1] if self.runs[name]["rows"] else {})
        return self._project({"run": {"name": name, **self._head(name), "summaryMetrics": summary, "historyKeys": {"keys": keys}}})

    def _head(self, name):
        run = self.runs[name]
        return {
            "state": run.get("state", "running"),
            "createdAt": run["created"],
            "heartbeatAt": run.get("heartbeat", run["created"]),
            "group": run.get("group"),
        }

    def _rows(self, name, spec):
        """Keys not logged at a step come back null, and maxStep is inclusive."""
        low, high = spec.get("minStep", 0), spec.get("maxStep", 10**9)
        return [{key: row.get(key) for key in spec["keys"]} for row in self.runs[name]["rows"] if low <= row["_step"] <= high]

    def _deltas(self, variables):
        if not self.buckets:
            return httpx.Response(200, json={"errors": [{"message": "unknown field deltas"}]})
        name = variables["currentRuns"][0]
        if variables["lastUpdated"] == self._head(name)["heartbeatAt"]:
            return self._project({"runs": {"deltas": {"order": [name], "delta": []}}})
        history = []
        for spec in map(json.loads, variables["bucketedHistorySpecs"]):
            key = spec["keys"][0]
            rows = [row for row in self.runs[name]["rows"] if row.get(key) is not None and row["_step"] >= spec["minStep"]]
            history.append(
                [
                    {
                        "bucketSize": 1,
                        "_stepLast": row["_step"],
                        f"{key}Avg": row[key],
                        f"{key}HasNaN": False,
                        "_timestampLast": row["_timestamp"],
                    }
                    for row in rows
                ]
            )
        run = {"name": name, **self._head(name), "summaryMetrics": "{}", "bucketedHistory": history}
        return self._project({"runs": {"deltas": {"order": [name], "delta": [{"op": "UPDATE", "run": run}]}}})

    @staticmethod
    def _project(content):
        return httpx.Response(200, json={"data": {"project": content}})
