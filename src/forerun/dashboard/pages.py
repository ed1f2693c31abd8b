"""The pages that list: front, promises, ladder, forecasts, data, glossary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from forerun.base import units
from forerun.base.terms import TERMS
from forerun.dashboard.figure import Figure, Line
from forerun.dashboard.html import Markup, table, tag
from forerun.dashboard.lab_files import LabFiles, Promise
from forerun.dashboard.page import paragraph, state
from forerun.dashboard.run_page import EVAL, summary_row
from forerun.registry.calibration import wilson


def front(files: LabFiles) -> list[Markup]:
    """The lab at a glance: the story of the newest confirmatory promise, then what is kept, missed, open."""
    confirmatory = [promise for promise in files.promises if promise.text["kind"] == "confirmatory"]
    counts = Counter(promise.answer for promise in files.promises)
    parts = []
    for promise in reversed(confirmatory):
        parts.append(_story(files, promise))
    listed = ", ".join(f"{count} {answer}" for answer, count in sorted(counts.items())) or "none yet"
    never = [promise for promise in files.promises if promise.closing is None]
    return [
        *parts,
        tag("h2", "Promises"),
        paragraph(f"{len(files.promises)} registered: {listed}. {_calibration(files)}"),
        paragraph("Never closed: ", ", ".join(promise.name for promise in never) or "none", "."),
        tag("h2", "Runs"),
        table(
            ["run", "promise", "done", f"{EVAL}, nats per token", "tokens per second"],
            [summary_row(run) for run in files.runs.values()],
            caption="All runs of this lab",
        ),
    ]


def _story(files: LabFiles, promise: Promise) -> Markup:
    prediction, run = promise.text["prediction"], files.run_of(promise)
    words = promise.verdict["words"] if promise.verdict else "No verdict yet."
    seen = f" It was trained as {run.info.run_id}." if run else ""
    return tag(
        "section",
        tag("h2", tag("a", promise.text["title"], href=f"experiments/{promise.name}.html")),
        paragraph(promise.text["hypothesis"], class_="lead"),
        paragraph(
            f"Before launch, on {promise.time}, the lab promised that {promise.text['metric']} would end at {prediction['point']:.4f}, "
            f"and with 90% confidence between {prediction['low90']:.4f} and {prediction['high90']:.4f}.{seen}"
        ),
        paragraph(state(promise.answer), " ", words),
    )


def _calibration(files: LabFiles) -> str:
    scored = [
        promise.verdict
        for promise in files.promises
        if promise.verdict and promise.text["kind"] == "confirmatory" and promise.verdict["inside90"] is not None
    ]
    if not scored:
        return "No confirmatory prediction has been scored yet."
    hits = sum(verdict["inside90"] for verdict in scored)
    low, high = wilson(hits, len(scored))
    return f"Of {len(scored)} confirmatory 90% intervals {hits} held ({low:.0%} to {high:.0%} at 95% confidence)."


def promises(files: LabFiles) -> list[Markup]:
    """Every promise, newest first, failures included."""
    rows = [
        (
            tag("a", promise.name, href=f"experiments/{promise.name}.html"),
            promise.text["kind"],
            promise.time,
            state(promise.answer),
            promise.closing["outcome"] if promise.closing else "never closed",
        )
        for promise in reversed(files.promises)
    ]
    return [
        paragraph(
            "What was promised before each run. The chain behind this table is ledger/registry.jsonl; `forerun verify` checks it to the byte."
        ),
        table(["experiment", "kind", "registered", "verdict", "closed as"], rows, caption="Registered experiments"),
    ]


def experiment(files: LabFiles, promise: Promise, drawn: list[Markup]) -> list[Markup]:
    """One promise in full."""
    text, verdict = promise.text, promise.verdict
    fields = ("hypothesis", "falsified_by", "metric", "metric_definition", "baseline", "success", "valid_if", "already_seen")
    rows = [(field.replace("_", " "), text.get(field, "")) for field in fields]
    rows += [("stop rule", rule) for rule in text.get("stop", [])]
    digests = [
        (name.replace("_", " "), str(promise.body[name]))
        for name in ("config_digest", "manifest", "forecast_digest", "experiment_digest", "commit")
        if promise.body.get(name)
    ]
    run = files.run_of(promise)
    ending = f"Closed as {promise.closing['outcome']}: {promise.closing.get('note', '')}" if promise.closing else "Never closed."
    return [
        paragraph(state(promise.answer), " ", verdict["words"] if verdict else "No verdict yet.", class_="lead"),
        paragraph(ending),
        paragraph("Run: ", tag("a", run.info.run_id, href=f"../runs/{run.info.run_id}.html")) if run else paragraph("No run yet."),
        *drawn,
        table(["field", "as promised"], rows, caption=f"Promise {promise.id}, registered {promise.time}"),
        table(["what", "SHA-256 or commit"], digests, caption="Frozen with it"),
        *(
            [
                table(
                    ["from step", "what", "why", "expected"],
                    [(entry["at_step"], entry["what"], entry["reason"], entry["expected"]) for entry in promise.amendments],
                    caption="Amendments",
                )
            ]
            if promise.amendments
            else []
        ),
    ]


def ladder_figures(files: LabFiles, forecast: Mapping[str, Any]) -> dict[str, Figure]:
    """The rungs side by side by fraction, the fit in compute, and how the answer moves with the floor."""
    used = [use for use in forecast["rungs"] if use["rung"] in files.runs]
    curves = []
    for index, use in enumerate(used):
        run = files.runs[use["rung"]]
        series = run.series(EVAL)
        curves.append(
            Line(x=[100 * step / run.info.num_steps for step in series.step], y=series.value.tolist(), label=use["rung"], style=index)
        )
    target = forecast["target"]["train_steps"] * forecast["target"]["compute_per_step"]
    measured = Line(
        x=[use["compute"] for use in forecast["rungs"]],
        y=[use["end"] for use in forecast["rungs"]],
        label="rungs at their end",
        style=0,
        marker="circle",
    )
    promised = Line(x=[target], y=[forecast["final"]["loss"]], label="forecast", style=1, marker="square")
    profile = forecast["floor_profile"]
    floors = Line(x=[point["floor"] for point in profile], y=[point["final"] for point in profile], label="forecast of the end")
    figures = {
        "fit": Figure(
            title=f"Larger runs end lower: {len(used)} rungs and the forecast at {units.flops(target)}",
            x_label=f"{forecast['compute']}, FLOPs, log",
            y_label="held-out loss, nats per token",
            lines=[measured, promised],
            log_x=True,
        ),
        "floor": Figure(
            title=f"The floor moves the answer from {min(floors.y):.3f} to {max(floors.y):.3f}",
            x_label="irreducible loss assumed, nats per token",
            y_label="forecast of the end",
            lines=[floors],
        ),
    }
    if curves:
        figures["rungs"] = Figure(
            title="Every rung at the same share of its own run",
            x_label="share of the run, %",
            y_label="held-out loss, nats per token",
            lines=curves,
        )
    return figures


def ladder(files: LabFiles, forecast: Mapping[str, Any], drawn: list[Markup]) -> list[Markup]:
    """What the forecast was made from."""
    target = forecast["target"]["train_steps"] * forecast["target"]["compute_per_step"]
    rows = [
        (
            use["rung"],
            units.flops(use["compute"]),
            f"{use['compute'] / target:.1%}",
            f"{use['end']:.4f}",
            "inferred" if use["inferred"] else "measured",
        )
        for use in forecast["rungs"]
    ]
    noise = forecast.get("seed_noise")
    return [
        paragraph(
            f"Small runs of one recipe, {sum(use['compute'] for use in forecast['rungs']) / target:.1%} of the big run's compute together, and what they say about it."
        ),
        *drawn,
        table(["rung", forecast["compute"], "share of the big run", "end, nats per token", ""], rows, caption="Rungs"),
        paragraph(
            f"Noise between seeds: {noise:.3%} of the loss."
            if noise is not None
            else "No rung was repeated, so noise between seeds is not measured."
        ),
        tag("ul", *(tag("li", note) for note in forecast["notes"])),
    ]


def forecasts(files: LabFiles) -> list[Markup]:
    """Every forecast ever made and how it ended."""
    rows = []
    for name, forecast in files.forecasts.items():
        promise = next((promise for promise in files.promises if promise.text["prediction"].get("forecast") == f"{name}.json"), None)
        verdict = promise.verdict if promise else None
        final = forecast["final"]
        outcome = f"{verdict['outcome']:.4f}" if verdict and verdict["outcome"] is not None else ""
        error = f"{verdict['signed_error'] / verdict['outcome']:+.2%}" if verdict and verdict["signed_error"] is not None else ""
        inside = {True: "yes", False: "no"}.get(verdict["inside90"], "") if verdict else ""
        rows.append(
            (
                name,
                forecast["method"],
                forecast["compute"],
                f"{final['loss']:.4f}",
                f"{final['low90']:.4f} to {final['high90']:.4f}",
                outcome,
                error,
                inside,
            )
        )
    return [
        table(
            ["forecast", "method", "compute", "end", "90% interval", "outcome", "error", "inside"],
            rows,
            caption="All forecasts of this lab",
        )
    ]


def data(manifest: Mapping[str, Any]) -> list[Markup]:
    """Domains by quality, sources with their licences, and every step with what it dropped and why."""
    cells = manifest["cells"]
    total = sum(cell["num_tokens"] for cell in cells) or 1
    by_quality = Counter()
    grid: dict[str, Counter] = {}
    for cell in cells:
        grid.setdefault(cell["domain"], Counter())[cell["quality"]] += cell["num_tokens"]
        by_quality[cell["quality"]] += cell["num_tokens"]
    rows = []
    for domain, row in sorted(grid.items(), key=lambda item: -sum(item[1].values())):
        tokens = sum(row.values())
        bar = tag(
            "svg",
            tag("rect", width=f"{100 * tokens / total:.1f}", height=10, class_="point s0"),
            viewBox="0 0 100 10",
            width=80,
            height=10,
            aria_hidden="true",
        )
        enriched = row[4] / tokens / (by_quality[4] / total) if by_quality[4] else 0.0
        rows.append(
            (
                domain,
                tag("span", bar, f" {tokens / total:.1%}"),
                *(f"{row[quality] / tokens:.0%}" for quality in range(5)),
                f"{enriched:.2f}",
                tokens,
            )
        )
    rows.append(
        (
            "all",
            "100.0%",
            *(f"{by_quality[quality] / total:.0%}" for quality in range(5)),
            "1.00",
            sum(cell["num_tokens"] for cell in cells),
        )
    )
    sources = [
        (source["name"], source["licence"], source["revision"], source["num_documents_in"], source["num_documents"], source["num_tokens"])
        for source in manifest["sources"]
    ]
    steps = [
        (
            step["name"],
            step["documents_in"],
            step["documents_out"],
            ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in step["dropped"].items()),
        )
        for step in manifest["steps"]
    ]
    held = [(cell["name"], cell["num_documents"], cell["num_tokens"]) for cell in manifest["held_out"]]
    return [
        paragraph(
            f"{units.count(total)} training tokens, vocabulary {manifest['vocab_size']:,}, in {len(grid)} domains found by clustering and 5 quality buckets."
        ),
        table(
            ["domain", "share", "q0", "q1", "q2", "q3", "q4", "enrichment of q4", "tokens"],
            rows,
            caption="Domains by quality: share of each domain's tokens",
        ),
        table(["source", "licence", "revision", "documents read", "documents kept", "tokens"], sources, caption="Sources"),
        table(["step", "documents in", "documents out", "dropped, with the reason"], steps, caption="From raw documents to the store"),
        table(["domain", "documents", "tokens"], held, caption="Held out for evaluation, never trained on"),
    ]


def glossary() -> list[Markup]:
    """Every name used on these pages."""
    return [
        table(
            ["name", "unit", "definition"], [(term.name, term.unit, term.definition) for term in TERMS], caption="Names, units, definitions"
        )
    ]
