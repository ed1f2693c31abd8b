"""A plan as aligned text for people; units one way, from `base/units.py`."""

from __future__ import annotations

from typing import Any

from forerun.base import units
from forerun.model import count
from forerun.plan.cost import Plan
from forerun.plan.network import Traffic, transport_table
from forerun.plan.presets import ladder_share


def plan_text(plan: Plan) -> str:
    """The whole plan, a paragraph a subject."""
    return "\n\n".join([_counts(plan), _flops(plan), _memory(plan), _network(plan), _time(plan)])


def table(rows: list[list[str]]) -> str:
    """Columns aligned, the first to the left, the others to the right; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    )


def sweep_text(rows: list[dict[str, Any]]) -> str:
    """Designs side by side; an impossible one shows why."""
    shown = {
        "num_params": units.count,
        "num_active_params": units.count,
        "forward_flops_per_token": units.flops,
        "routed_flops_fraction": units.percent,
        "train_flops": units.flops,
        "memory_bytes": units.size,
        "expert_bytes_per_step": units.size,
        "days": lambda days: units.duration(days * 86_400),
    }
    axes = [name for name in rows[0] if name not in shown and name != "problem"]
    lines = [[*axes, *shown]]
    for row in rows:
        values = [str(row[axis]) for axis in axes]
        lines.append(values + [form(row[name]) if name in row else "-" for name, form in shown.items()])
    problems = [", ".join(f"{axis}={row[axis]}" for axis in axes) + f": {row['problem']}" for row in rows if "problem" in row]
    return "\n".join([table(lines), *problems])


def _counts(plan: Plan) -> str:
    model, run = plan.run.model, plan.run
    rows = [["parameters", "count", "share"]]
    total = count.num_params(model)
    rows += [[part, f"{size:,}", units.percent(size / total)] for part, size in count.params_by_part(model).items()]
    rows += [
        ["num_params", f"{total:,}", units.count(total)],
        ["num_params_headline", f"{count.num_params_headline(model):,}", units.count(count.num_params_headline(model))],
        ["num_active_params", f"{count.num_active_params(model):,}", units.count(count.num_active_params(model))],
    ]
    ratio = run.train_tokens / count.num_active_params(model)
    tail = f"{run.name}: {run.num_steps:,} steps of {units.count(run.batch_tokens)} tokens, {units.count(run.train_tokens)} tokens in all, "
    return f"{tail}{ratio:.4g} per active parameter\n\n{table(rows)}"


def _flops(plan: Plan) -> str:
    run = plan.run
    terms = {name: value for name, value in count.forward_flops(run.model, run.seq_len).items() if value}
    total = sum(terms.values())
    rows = [["forward FLOPs per token", "FLOPs", "share"]]
    rows += [[name, f"{value:.4e}", units.percent(value / total, 2)] for name, value in terms.items()]
    rows += [["total", f"{total:.4e}", ""], ["train_flops", units.flops(run.train_flops), ""]]
    return table(rows)


def _memory(plan: Plan) -> str:
    memory, device = plan.memory, plan.device
    rows = [[f"memory of one {device.name}", "bytes", ""]]
    rows += [[name, units.size(getattr(memory, name)), ""] for name in ("weights", "compute_copy", "optimizer", "gradients")]
    rows += [
        [f"activations, remat={remat}", units.size(size), "used" if remat == memory.remat else ""]
        for remat, size in memory.activations.items()
    ]
    rows += [["expert_buffers", units.size(memory.expert_buffers), ""]]
    verdict = "fits" if plan.fits else "DOES NOT FIT: more devices, more microbatches or another remat"
    rows += [["total", units.size(memory.total), f"of {units.size(device.memory_bytes)}: {verdict}"]]
    lines = table([[name, size] for name, size, _ in rows]).splitlines()
    return "\n".join(f"{line}  {note}".rstrip() for line, (_, _, note) in zip(lines, rows))


def _network(plan: Plan) -> str:
    rows = [["sent by one device per step", "inside a domain", "beyond it"], ["weights and gradients", *_sizes(plan.weight_traffic)]]
    for kind, traffic in transport_table(plan.run, plan.device).items():
        mark = " (used)" if kind == plan.run.transport.kind else ""
        rows.append([f"experts by {kind}{mark}", *_sizes(traffic)])
    return table(rows)


def _sizes(traffic: Traffic) -> list[str]:
    return [units.size(traffic.inner), units.size(traffic.outer)]


def _time(plan: Plan) -> str:
    bounds = plan.bounds
    rows = [
        ["bounds of one step", ""],
        ["compute", units.duration(bounds.compute)],
        ["memory", units.duration(bounds.memory)],
        ["network", units.duration(bounds.network)],
        ["binding", bounds.binding],
        [f"on {plan.num_devices} {plan.device.name} at mfu {plan.mfu:g}", ""],
        ["step_time_s", units.duration(plan.step_time_s)],
        ["whole run", units.duration(plan.days * 86_400)],
        ["energy", f"{plan.energy_mwh:.3g} MWh"],
        ["checkpoint", units.size(plan.checkpoint_bytes)],
    ]
    share = ladder_share(plan.run)
    if share is not None:
        rows.append(["ladder's share of train_flops", units.percent(share, 2)])
    longest = max(bounds.compute, bounds.memory, bounds.network)
    if plan.step_time_s >= longest:
        return table(rows)
    return f"{table(rows)}\n\nmfu {plan.mfu:g} is out of reach: {bounds.binding} alone takes {units.duration(longest)} a step"


def rungs_text(rungs: list[dict[str, Any]]) -> str:
    """A family, one rung a line, peak rates to four digits."""
    rows = [["rung", "layers", "active", "all", "batch", "steps", "tokens", "train_flops", "muonh lr", "adam lr", "beta2", "eps"]]
    for rung in rungs:
        rows.append(
            [
                rung["name"],
                str(rung["num_layers"]),
                f"{rung['num_active_params']:,}",
                f"{rung['num_params']:,}",
                f"{rung['batch_size']:,}",
                f"{rung['num_steps']:,}",
                units.count(rung["train_tokens"]),
                units.flops(rung["train_flops"]),
                f"{rung['muonh_learning_rate']:#.4g}",
                f"{rung['adam_learning_rate']:#.4g}",
                f"{rung['beta2']:.4f}",
                f"{rung['eps']:.2e}",
            ]
        )
    return table(rows)
