"""A whole lab in a second, without training: made series of a small ladder, through the project's own registry, forecaster and record.

`words` are put into every text field that a person, a program or a document can fill.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import numpy as np

from forerun.base.config import digest_of
from forerun.base.files import write_atomic, write_json
from forerun.base.lab import Lab
from forerun.demo.settings import QUICK
from forerun.ladder.family import target_of
from forerun.ladder.forecast import forecast
from forerun.ladder.run import rungs_of
from forerun.ladder.store import keep
from forerun.record.journal import Journal
from forerun.record.run import start_run
from forerun.registry.changes import amend, close
from forerun.registry.register import Registration, register
from forerun.registry.verdict import judge, record_verdict
from forerun.train.config import RunConfig

DOMAINS = ("astronomy", "cooking")
BIG, LIVE = "big", "still-going"


def small_lab(root, words: str = "") -> Lab:
    """Write the lab. Without `words` it is an ordinary one."""
    lab = Lab(root)
    manifest = _manifest(words)
    digest = digest_of(manifest)
    write_json(lab.manifests / f"{digest}.json", manifest)
    rungs = QUICK.rungs(digest)
    for run in rungs:
        _trained(lab, run, run.name, None, words)
    big = QUICK.big(digest)
    promised = forecast(
        rungs_of(rungs, lab), target_of(big), compute="fit_compute", eval_name=f"eval/macro_loss_nats, held-out domains {words}".strip()
    )
    keep(promised, lab.root)
    domain = forecast(
        rungs_of(rungs, lab, f"eval/{DOMAINS[0]}/loss_nats"),
        target_of(big),
        compute="fit_compute",
        eval_name=f"eval/{DOMAINS[0]}/loss_nats",
    )
    keep(domain, lab.root)
    first = _promise(lab, "001-one-size-up", "exploratory", rungs[0], promised, words)
    close(lab, first.experiment, "succeeded", note=f"went well {words}")
    second = _promise(lab, "002-big", "confirmatory", big, promised, words)
    amend(
        lab,
        second.experiment,
        reason=f"a faster kernel {words}",
        what=f"transport {words}",
        at_step=40,
        expected=f"nothing {words}",
        control=f"none {words}",
    )
    _trained(lab, big, BIG, second, words)
    record_verdict(lab, judge(lab, second, lab.run(BIG)))
    close(lab, second.experiment, "succeeded", note=f"as forecast {words}")
    _going_on(lab, big, words)
    return lab


def _manifest(words: str) -> dict[str, Any]:
    cells = [
        {"name": f"{domain}/q{quality}", "domain": f"{domain} {words}".strip(), "quality": quality, "split": "train", "num_documents": 3}
        | {"num_tokens": 1000 * (quality + 1), "num_bytes": 4000, "shards": []}
        for domain in DOMAINS
        for quality in range(5)
    ]
    source = {"name": f"encyclopedia {words}", "licence": f"CC-BY {words}", "revision": f"r1 {words}"}
    return {
        "schema": 1,
        "name": f"small {words}".strip(),
        "tokenizer_digest": "0" * 64,
        "vocab_size": 2048,
        "dtype": "uint16",
        "end_of_document": 0,
        "sources": [source | {"num_documents_in": 40, "num_documents": 30, "num_tokens": 30_000}],
        "cells": cells,
        "held_out": [
            {"name": domain, "split": "held_out", "num_documents": 2, "num_tokens": 900, "num_bytes": 3600, "shards": []}
            for domain in DOMAINS
        ],
        "steps": [
            {
                "name": f"exact_dedup {words}",
                "identity": "x",
                "documents_in": 40,
                "documents_out": 30,
                "dropped": {f"duplicate {words}": 10},
            }
        ],
    }


def _loss(run: RunConfig, step: int) -> float:
    """A power law in compute and progress, exact but for the noise put on top."""
    compute = target_of(run).compute
    end = 2.0 + 3.0 * (compute / 1e10) ** -0.1
    return end + 2.5 * (step / run.train.num_steps) ** -0.35 - 2.5


def rows_of(run: RunConfig, rng: np.random.Generator, first: int, last: int) -> list[tuple[int, dict[str, float]]]:
    """Rows as the trainer logs them, evaluations every twentieth of the run."""
    every, rows = max(1, run.train.num_steps // 20), []
    for step in range(first, last + 1):
        loss = _loss(run, step) + rng.normal(0, 0.01)
        row = {
            "loss_nats": loss,
            "grad_norm": 1 + 0.1 * rng.normal(),
            "grad_norm/routed": 0.5 + 0.02 * rng.normal(),
            "drop_fraction": 0.01,
            "drop_fraction/layer_0": 0.01 + 0.001 * rng.random(),
            "load_imbalance": 1.4,
            "load_imbalance/layer_0": 1.3 + 0.1 * rng.random(),
            "router_entropy_nats": math.log(16) - 0.1 * rng.random(),
            "learning_rate": 0.02 * (1 - step / run.train.num_steps),
            "tokens_per_second": 1e4 * (1 + 0.05 * rng.normal()),
            "mfu": 0.3 + 0.01 * rng.normal(),
        }
        if step % every == 0 or step == run.train.num_steps:
            held_out = _loss(run, step) + rng.normal(0, 0.003)
            row |= {
                "eval/macro_loss_nats": held_out,
                f"eval/{DOMAINS[0]}/loss_nats": held_out - 0.2,
                f"eval/{DOMAINS[1]}/loss_nats": held_out + 0.2,
            }
        rows.append((step, row))
    return rows


def _trained(lab: Lab, run: RunConfig, name: str, registration: Registration | None, words: str) -> None:
    config = msgspec.to_builtins(run)
    start_run(
        lab.run(name),
        num_steps=run.train.num_steps,
        experiment=registration.experiment if registration else "",
        registration_id=registration.id if registration else None,
        unregistered=registration is None,
        config_digest=digest_of(config),
        versions={f"numpy {words}".strip(): f"2 {words}".strip()},
        first_step=1,
        commit=f"abc {words}".strip(),
    )
    write_json(lab.run(name) / "config.json", config)
    rng = np.random.default_rng(run.train.num_steps)
    with Journal(lab.run(name)) as journal:
        journal.event("start", 0, note=words)
        for step, row in rows_of(run, rng, 1, run.train.num_steps):
            journal.log(step, row | ({words: 1.0} if words else {}))
        for share in (0.5, 1.0):
            counts = {"valid_by_expert": [900, 1100, *[1000] * 14], "dropped_by_expert": [0, 30, *[1] * 14]}
            counts |= {
                "valid_by_layer_and_expert": [[450, 550, *[500] * 14]] * 2,
                "dropped_by_layer_and_expert": [[0, 0, *[1] * 14], [0, 30, *[0] * 14]],
            }
            journal.event("drops", round(share * run.train.num_steps), num_steps=10, **counts)
        journal.event("sample", run.train.num_steps, prompt=f"The moon {words}", text=f"is far away {words}")
        journal.event("finished", run.train.num_steps)


def _going_on(lab: Lab, run: RunConfig, words: str) -> None:
    """Half a run, with an incident and an undeclared restart, without an end."""
    start_run(lab.run(LIVE), num_steps=run.train.num_steps, unregistered=True)
    write_json(lab.run(LIVE) / "config.json", msgspec.to_builtins(run))
    rng, half = np.random.default_rng(5), run.train.num_steps // 2
    with Journal(lab.run(LIVE)) as journal:
        journal.event("start", 0)
        for step, row in rows_of(run, rng, 1, half):
            journal.log(step, row)
        journal.event("skipped_step", 20, reason=f"gradient {words}", **({"key " + words: words} if words else {}))
    start_run(
        lab.run(LIVE), num_steps=run.train.num_steps, first_step=half - 10, changed=f"kernel {words}", kind=f"systems {words}".strip()
    )
    with Journal(lab.run(LIVE)) as journal:
        journal.event("start", half - 11)
        for step, row in rows_of(run, rng, half - 10, half + 10):
            journal.log(step, row)


def _promise(lab: Lab, name: str, kind: str, run: RunConfig, promised: Any, words: str) -> Registration:
    final, folder = promised.final, lab.experiments / name
    texts = {
        "title": f"Experiment {name} {words}".strip(),
        "owner": f"tester {words}".strip(),
        "kind": kind,
        "hypothesis": f"small runs say where a larger one ends {words}",
        "falsified_by": f"it ends elsewhere {words}",
        "metric": "eval/macro_loss_nats",
        "metric_definition": f"mean over domains {words}",
        "baseline": f"chance {words}",
        "success": f"inside(final(eval/macro_loss_nats), {final.low90:.6f}, {final.high90:.6f})",
        "valid_if": f"same store {words}",
        "already_seen": f"nothing {words}",
    }
    lines = [f"{key} = {json.dumps(text)}" for key, text in texts.items()]
    lines += [
        'stop = ["final(loss_nats) > 12"]',
        f"compute_budget_flops = {target_of(run).compute:.6e}",
        "",
        "[prediction]",
        f"point = {final.loss:.6f}",
    ]
    lines += [f"{level} = {getattr(final, level):.6f}" for level in ("low50", "high50", "low90", "high90")]
    if kind == "confirmatory":
        lines.append(f'forecast = "{promised.id}.json"')
    write_atomic(folder / "experiment.toml", "\n".join([*lines, ""]).encode())
    report = f"# Report {words}\n\nIt *went* as **forecast** {words}.\n\n- one {words}\n- two\n\n| a | b |\n|---|---|\n| 1 | {words} |\n\n`{words}`\n"
    write_atomic(folder / "report.md", report.encode())
    return register(lab, folder, msgspec.to_builtins(run))
