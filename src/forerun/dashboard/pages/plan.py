"""The plan: where parameters, FLOPs, memory and bytes go, as `forerun plan` says; and, with a script, what if."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from forerun.base import units
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import hover, number
from forerun.dashboard.page import paragraph

INDEX = "plan.json"
SHOWN = (
    *("num_params", "num_active_params", "train_tokens", "tokens_per_active_param", "train_flops", "step_time_s", "days", "energy_mwh"),
    *("checkpoint_bytes", "compute_fraction", "forward_flops_per_token", "memory_bytes", "network_bytes_per_step", "step_bound_s"),
)
"""Glossary entries the script needs for its hover texts."""


def pages(files: LabFiles) -> Iterator[Page]:
    """One page and the inputs its script computes with."""
    yield Page(
        path="plan.html",
        title="Plan",
        content=lambda desk: content(files, desk),
        scripts=("plan",),
        files={INDEX: lambda: _index(files)},
    )


def content(files: LabFiles, desk: Desk) -> list[Piece]:
    """The largest run of the lab in full, or the published one when there is no run; any of them with a script."""
    plans = {run.name: plan for run in files.runs.values() if (plan := files.plan_of(run))}
    name, shown = max(plans.items(), key=lambda item: item[1]["train_flops"], default=("marin-hero", files.planner.inputs["shown"]))
    return [
        paragraph(
            "Parameters and compute are exact; memory, network and days are planned from them. The same numbers as ",
            tag("code", "forerun plan"),
            ".",
        ),
        tag("div", id="what-if", data_index=desk.address(INDEX), data_start=name),
        tag("div", *tables(name, shown), id="plan-tables"),
    ]


def tables(name: str, plan: Mapping[str, Any]) -> list[Piece]:
    """What a plan says, part by part."""
    params, flops = plan["params_by_part"], plan["forward_flops_by_term"]
    memory, network, bounds = plan["memory_bytes"], plan["network_bytes_per_step"], plan["step_bounds_s"]
    kept = memory["activations"][memory["remat"]]
    parts = [
        (label, memory[key])
        for label, key in (("weights", "weights"), ("compute copy", "compute_copy"), ("optimizer", "optimizer"), ("gradients", "gradients"))
    ]
    parts += [
        (f"activations, remat {memory['remat']}", kept),
        ("expert buffers", memory["expert_buffers"]),
        ("all", memory["total"]),
        (f"a {plan['device']} has", memory["device"]),
    ]
    traffic = [("weights and gradients", network["weights"]), *((f"experts, {kind}", sent) for kind, sent in network["experts"].items())]
    totals = [
        ("parameters", number(plan["num_params"], "num_params")),
        ("active parameters", number(plan["num_active_params"], "num_active_params")),
        ("tokens", number(plan["train_tokens"], "train_tokens")),
        ("tokens per active parameter", number(plan["tokens_per_active_param"], "tokens_per_active_param")),
        ("training compute", number(plan["train_flops"], "train_flops", units.flops(plan["train_flops"]))),
        ("step time at that MFU", number(plan["step_time_s"], "step_time_s", units.duration(plan["step_time_s"]))),
        ("days", number(plan["days"], "days")),
        ("energy, MWh", number(plan["energy_mwh"], "energy_mwh")),
        ("checkpoint", number(plan["checkpoint_bytes"], "checkpoint_bytes", units.size(plan["checkpoint_bytes"]))),
    ]
    return [
        tag("h2", f"{name} on {plan['num_devices']} x {plan['device']}, MFU {plan['mfu']:g}"),
        table(["what", "value"], totals, caption="Totals"),
        table(
            ["part", "parameters"],
            [(part.replace("_", " "), number(size, "num_params")) for part, size in params.items()],
            caption="Parameters by part",
        ),
        table(
            ["part", "FLOPs per token"],
            [(part.replace("_", " "), number(size, "forward_flops_per_token")) for part, size in flops.items()],
            caption="Forward FLOPs by part",
        ),
        table(["part", "per device"], [(part, number(size, "memory_bytes", units.size(size))) for part, size in parts], caption="Memory"),
        table(
            ["exchange", "inside the domain", "beyond it"],
            [
                (label, *(number(sent[level], "network_bytes_per_step", units.size(sent[level])) for level in ("inner", "outer")))
                for label, sent in traffic
            ],
            caption=f"Bytes one device sends per step; this run uses {network['transport']}",
        ),
        table(
            ["bound by", "shortest step"],
            [(label, number(bounds[label], "step_bound_s", units.duration(bounds[label]))) for label in ("compute", "memory", "network")],
            caption=f"A step takes at least the largest: {bounds['binding']}",
        ),
    ]


def _index(files: LabFiles) -> bytes:
    runs = {
        run.name: {"run": files.planner.planned(run.config), "plan": plan} for run in files.runs.values() if (plan := files.plan_of(run))
    }
    words = {term: hover(term) for term in SHOWN}
    return json.dumps({"schema": 1, **files.planner.inputs, "runs": runs, "words": words}).encode()
