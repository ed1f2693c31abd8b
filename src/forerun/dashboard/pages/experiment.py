"""Promises: the list of all, and each in full with its amendments, verdict, report and what its config changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from forerun.base import units
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.lab_files import LabFiles, Promise
from forerun.dashboard.markdown import markdown
from forerun.dashboard.numbers import number, sentence
from forerun.dashboard.page import minute, paragraph, region, state
from forerun.dashboard.panels import band_figure

FIELDS = ("hypothesis", "falsified_by", "metric", "metric_definition", "baseline", "success", "valid_if", "already_seen", "owner")
LEVELS = (("point", ""), ("low50", "interval50"), ("high50", "interval50"), ("low90", "interval90"), ("high90", "interval90"))


def pages(files: LabFiles) -> Iterator[Page]:
    """The list, and one page a promise."""
    yield Page(path="experiments.html", title="Promises", content=lambda desk: listed(files, desk))
    for promise in files.promises:
        yield Page(path=f"experiments/{promise.name}.html", title=promise.text["title"], content=_content(files, promise))


def _content(files: LabFiles, promise: Promise) -> Any:
    return lambda desk: content(files, promise, desk)


def listed(files: LabFiles, desk: Desk) -> list[Piece]:
    """Every promise, newest first, failures included."""
    rows = [
        (
            desk.link(promise.name, f"experiments/{promise.name}.html"),
            promise.text["kind"],
            minute(promise.time),
            state(promise.answer),
            promise.closing["outcome"] if promise.closing else "never closed",
        )
        for promise in reversed(files.promises)
    ]
    return [
        paragraph(
            "What was promised before each run. The chain behind this table is ledger/registry.jsonl; `forerun verify` checks it to the byte."
        ),
        region("promises", table(["experiment", "kind", "registered", "verdict", "closed as"], rows, caption="Registered experiments")),
    ]


def content(files: LabFiles, promise: Promise, desk: Desk) -> list[Piece]:
    """One promise in full."""
    run, forecast = files.run_of(promise), files.forecast_of(promise)
    ending = f"Closed as {promise.closing['outcome']}: {promise.closing.get('note', '')}" if promise.closing else "Never closed."
    return [
        region(
            "verdict",
            paragraph(state(promise.answer), " ", sentence(promise.words, promise.text["metric"]), class_="lead"),
            paragraph(sentence(ending, promise.text["metric"])),
            paragraph("Run: ", desk.link(run.name, f"runs/{run.name}.html")) if run else paragraph("No run yet."),
            *_verdict(promise),
        ),
        desk.draw(band_figure(run, forecast)) if forecast else "",
        *_promise(promise),
        *_amendments(promise),
        *_report(files, promise),
        *_difference(files, promise, desk),
    ]


def _verdict(promise: Promise) -> list[Piece]:
    verdict, metric = promise.verdict, promise.text["metric"]
    if not verdict:
        return []
    held = {True: "yes", False: "no", None: "not scored"}
    rows = [
        ("outcome", number(verdict.get("outcome"), metric)),
        ("share of the run done", number(verdict.get("fraction_done"), "fraction_done", f"{verdict.get('fraction_done', 0):.0%}")),
        ("success rule holds", held[verdict.get("success")]),
        ("inside the 50% interval", held[verdict.get("inside50")]),
        ("inside the 90% interval", held[verdict.get("inside90")]),
        ("outcome minus point forecast", number(verdict.get("signed_error"), "signed_error")),
        ("interval score", number(verdict.get("interval_score90"), "interval_score")),
        *(("stopped by", rule) for rule in verdict.get("stopped_by", ())),
        *(("deviation", deviation) for deviation in verdict.get("deviations", ())),
    ]
    return [table(["what", "verdict"], rows, caption=f"Verdict on run {verdict.get('run_id', '')}")]


def _promise(promise: Promise) -> list[Piece]:
    text = promise.text
    rows: list[tuple[Piece, ...]] = [(field.replace("_", " "), text[field]) for field in FIELDS if text.get(field)]
    rows += [("stop rule", rule) for rule in text.get("stop", [])]
    rows += [("alarm", rule) for rule in text.get("alarm", [])]
    rows += [(f"planned change at {segment.get('at_fraction', 0):.0%}", segment.get("change", "")) for segment in text.get("segments", [])]
    rows += [(f"prediction, {name}", number(text["prediction"][name], term or text["metric"])) for name, term in LEVELS]
    rows.append(
        ("compute budget", number(text.get("compute_budget_flops"), "train_flops", units.flops(text.get("compute_budget_flops", 0))))
    )
    digests = [
        (name.replace("_", " "), str(promise.body[name]))
        for name in ("config_digest", "manifest", "forecast_digest", "experiment_digest", "commit", "lock_digest")
        if promise.body.get(name)
    ]
    return [
        table(["field", "as promised"], rows, caption=f"Promise {promise.id}, registered {minute(promise.time)}"),
        table(["what", "SHA-256 or commit"], digests, caption="Frozen with it"),
    ]


def _amendments(promise: Promise) -> list[Piece]:
    rows = [
        (number(entry["at_step"], "step"), entry["what"], entry["reason"], entry["expected"], entry.get("control", ""))
        for entry in promise.amendments
    ]
    heads = ["from step", "what", "why", "expected", "control"]
    return [tag("h2", "Amendments"), table(heads, rows, caption="Declared before they were made")] if rows else []


def _report(files: LabFiles, promise: Promise) -> list[Piece]:
    path = files.lab.experiments / promise.name / "report.md"
    if not path.is_file():
        return []
    return [tag("h2", "Report"), *markdown(path.read_text(encoding="utf-8", errors="replace"))]


def _difference(files: LabFiles, promise: Promise, desk: Desk) -> list[Piece]:
    """What the config changes against the nearest earlier experiment: the one it shares most fields with."""
    own = _flat(_config(files, promise))
    earlier = files.promises[: files.promises.index(promise)]
    candidates = [(len(_changed(own, other)), parent, other) for parent in earlier if (other := _flat(_config(files, parent)))]
    if not own or not candidates:
        return []
    _, parent, other = min(candidates, key=lambda candidate: candidate[0])
    rows = [(field, other.get(field, "–"), own.get(field, "–")) for field in _changed(own, other)]
    return [
        tag("h2", "Config"),
        paragraph(
            "Against ",
            desk.link(parent.name, f"experiments/{parent.name}.html"),
            ", the nearest earlier experiment: ",
            f"{len(rows)} of {len(own)} fields differ.",
        ),
        table(
            ["field", desk.term(parent.name, "config_field"), desk.term(promise.name, "config_field")], rows, caption="Fields that differ"
        ),
    ]


def _config(files: LabFiles, promise: Promise) -> dict[str, Any]:
    path = files.lab.experiments / promise.name / "config.json"
    try:
        return json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:
        return {}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted field names to values as JSON."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value, ensure_ascii=False)
    return flat


def _changed(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [field for field in {**one, **other} if one.get(field) != other.get(field)]
