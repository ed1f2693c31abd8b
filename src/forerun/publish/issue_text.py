"""A promise, its milestones and its verdict as Markdown, made from the ledger alone."""

from __future__ import annotations

from forerun.base import units
from forerun.base.lab import Lab
from forerun.registry import ledger
from forerun.registry.changes import amendments_of
from forerun.registry.register import Registration


def marker(registration: Registration, part: str = "promise") -> str:
    """An invisible line by which a later call finds its own text."""
    return f"<!-- forerun:{part}:{registration.id} -->"


def title_of(registration: Registration) -> str:
    """Of the issue."""
    return f"{registration.experiment}: {registration.promise.title}"


def issue_text(lab: Lab, registration: Registration) -> str:
    """The issue's body: what is promised, what changed since, how it ended."""
    promise = registration.promise
    seen = [f"Runs of this config before the promise: {', '.join(runs)}."] if (runs := registration.body.get("earlier_runs")) else []
    prediction = promise.prediction
    lines = [
        marker(registration),
        f"**{promise.kind.capitalize()}**, by {promise.owner}. Registered {registration.time}, promise `{registration.id}`.",
        "",
        f"**Hypothesis.** {promise.hypothesis}",
        f"**Falsified by.** {promise.falsified_by}",
        " ".join([f"**Already seen.** {promise.already_seen}", *seen]),
        "",
        f"| `{promise.metric}` | value |",
        "|---|---|",
        f"| point | {prediction.point:g} |",
        f"| 50% interval | {prediction.low50:g} to {prediction.high50:g} |",
        f"| 90% interval | {prediction.low90:g} to {prediction.high90:g} |",
        f"| baseline | {promise.baseline} |",
        f"| success | `{promise.success}` |",
        *(f"| stop | `{rule}` |" for rule in promise.stop),
        f"| compute budget | {units.flops(promise.compute_budget_flops)} |",
        f"| config | `{registration.config_digest}` |",
        "",
        f"Measured as: {promise.metric_definition}",
    ]
    changes = amendments_of(lab, registration.experiment)
    if changes:
        lines += ["", "### Amendments", ""]
        lines += [
            f"- from step {one.body['at_step']}: {one.body['what']}; {one.body['reason']}; expected {one.body['expected']}"
            for one in changes
        ]
    for entry in ledger.read(lab):
        if entry.kind == "closing" and entry.body["experiment"] == registration.experiment:
            lines += ["", f"**Closed as {entry.body['outcome']}**, {entry.body['fraction_done']:.0%} done. {entry.body['note']}".rstrip()]
    return "\n".join([*lines, ""])


def verdict_text(lab: Lab, registration: Registration) -> str:
    """The newest verdict as a comment; says so when there is none yet."""
    words = [
        entry.body["verdict"]["words"]
        for entry in ledger.read(lab)
        if entry.kind == "verdict" and entry.body["experiment"] == registration.experiment
    ]
    return f"{marker(registration, 'verdict')}\n{words[-1] if words else 'No verdict yet.'}\n"
