"""Forecasts and scores as people read them on a terminal, without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forerun.base import units
from forerun.ladder.answer import Forecast
from forerun.ladder.family import target_of
from forerun.ladder.score import Score
from forerun.model.count import num_active_params

if TYPE_CHECKING:
    from forerun.ladder.bench_result import Row, Task
    from forerun.ladder.design import Design
    from forerun.ladder.gate_table import EvalGate
    from forerun.ladder.run import RungStatus
    from forerun.train.config import RunConfig

_SHOWN = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def forecast_text(forecast: Forecast) -> str:
    """Final, curve and floor profile as aligned lines, with the compute definition and every note."""
    final = forecast.final
    lines = [
        f"final {forecast.eval} {final.loss:.4f}   90% {final.low90:.4f} to {final.high90:.4f}   50% {final.low50:.4f} to {final.high50:.4f}",
        f"target {units.flops(forecast.target.compute)} over {forecast.target.train_steps:,} steps, compute: {forecast.compute}, method: {forecast.method}",
        "",
        "progress       step     loss   90% low  90% high",
    ]
    for point in forecast.curve:
        if any(abs(point.fraction - shown) < 1e-6 for shown in _SHOWN):
            lines.append(f"{point.fraction:8.0%} {point.step:10,} {point.loss:8.4f}  {point.low90:8.4f}  {point.high90:8.4f}")
    lines += ["", "floor profile: if the irreducible loss were", "   floor    final   belief"]
    lines += [f"{point.floor:8.3f} {point.final:8.4f} {point.weight:8.0%}" for point in forecast.floor_profile]
    lines += ["", "rungs"]
    lines += [
        f"  {use.rung}  {units.flops(use.compute)}  end {use.end:.4f}{f' (inferred, died at {use.last_fraction:.0%})' if use.inferred else ''}"
        for use in forecast.rungs
    ]
    lines += [f"note: {note}" for note in forecast.notes]
    lines.append(f"id {forecast.id}  inputs {forecast.inputs_digest[:16]}")
    return "\n".join(lines)


def score_text(score: Score) -> str:
    """The score in five lines."""
    lines = [
        f"evaluations scored  {score.num_evals} ({score.num_outside} before the forecast starts)",
        f"signed error        {score.signed_error:+.2%}  (positive: the forecast was too high)",
        f"absolute error      {score.absolute_error:.2%}",
        f"inside 90% / 50%    {score.coverage90:.0%} / {score.coverage50:.0%}, mean width of the 90% interval {score.width90:.1%}",
        f"interval score 90%  {score.interval_score90:.4f}",
    ]
    if score.final_error is not None:
        lines.append(f"final               {score.final_error:+.2%}, {'inside' if score.final_inside90 else 'outside'} the 90% interval")
    return "\n".join(lines)


def bench_text(rows: Sequence[Row], tasks: Sequence[Task]) -> str:
    """The benchmark's table, then the held-out tasks one by one."""
    lines = []
    for row in rows:
        lines.append(f"{'met   ' if row.met else 'MISSED'}  {row.name}")
        lines.append(f"        {row.measured}   bar {row.bar}   anchor {row.anchor}")
    lines += ["", "held-out final losses             error   baseline   inside 90%   width   outcomes"]
    lines += [
        f"  {task.name}\n{'':32}{task.error:8.2%} {task.baseline_error:9.2%} {task.inside:11.0%} {task.width:9.1%} {task.num_outcomes:9}"
        for task in tasks
    ]
    return "\n".join(lines)


def plan_rows(runs: Sequence[RunConfig]) -> list[dict[str, float | int | str]]:
    """What a planned ladder is, one row a run; compute is `fit_compute`."""
    rows = []
    for run in runs:
        size = target_of(run)
        rows.append(
            {
                "rung": run.name,
                "d_model": run.model.d_model,
                "num_active_params": num_active_params(run.model),
                "train_steps": size.train_steps,
                "batch_tokens": run.train.batch_tokens,
                "train_tokens": run.train.train_tokens,
                "compute_per_step": size.compute_per_step,
                "fit_compute": size.compute,
                "muonh_learning_rate": run.optim.muonh_learning_rate,
                "seed": run.train.seed,
            }
        )
    return rows


def plan_text(runs: Sequence[RunConfig]) -> str:
    """The planned ladder as a table with its total cost."""
    width = max(len(run.name) for run in runs)
    lines = [f"{'rung':{width}}  active   steps  tokens  fit_compute      rate     seed"]
    for row, run in zip(plan_rows(runs), runs):
        lines.append(
            f"{run.name:{width}}  {units.count(float(row['num_active_params'])):>6} {row['train_steps']:>7} {units.count(run.train.train_tokens):>7}"
            f"  {units.flops(float(row['fit_compute'])):14} {run.optim.muonh_learning_rate:8.5f} {run.train.seed:>5}"
        )
    lines.append(f"all together {units.flops(sum(float(row['fit_compute']) for row in plan_rows(runs)))}")
    return "\n".join(lines)


def status_rows(found: Sequence[RungStatus]) -> list[dict[str, float | int | str | None]]:
    """How far each rung is, one row a run."""
    return [
        {"rung": each.run_id, "state": each.state, "last_step": each.last_step, "num_steps": each.num_steps, "loss": each.loss}
        for each in found
    ]


def status_text(found: Sequence[RungStatus]) -> str:
    """How far each rung is, one line a run."""
    width = max(len(each.run_id) for each in found)
    return "\n".join(
        f"{each.run_id:{width}}  {each.state:9} {each.last_step:>8}/{each.num_steps:<8}" + (f" loss {each.loss:.4f}" if each.loss else "")
        for each in found
    )


def gate_text(found: Sequence[EvalGate]) -> str:
    """Law and speed-ups of every evaluation."""
    lines = []
    for each in found:
        law, answer = each.law, each.answer
        fit = "not tested, no seed noise given" if law.lack_of_fit is None else f"p = {law.lack_of_fit:.3f}"
        lines.append(f"{each.eval}: {law.floor:g} + {law.amplitude:.4g} C^-{law.alpha:.4f} from {law.num_runs} runs, lack of fit {fit}")
        lines += [
            f"  {units.flops(one.compute):16} speed-up {one.ratio:.3f}  90% {one.low90:.3f} to {one.high90:.3f}" for one in answer.speedups
        ]
        lines.append(f"  {'passes' if answer.passed else 'does not pass'}{', and surely' if answer.sure else ''}")
    return "\n".join(lines)


def design_text(found: Sequence[Design]) -> str:
    """The best ladder rung by rung, then the trade: the best of each number of rungs and spacing."""
    best = found[0]
    lines = [
        f"best: {len(best.rungs)} rungs, {best.spacing:g} times apart, expected 90% width of the final loss {best.expected_width90:.1%}"
    ]
    lines.append("  compute           size/target  batch/target    steps")
    lines += [
        f"  {units.flops(rung.compute):16} {rung.size_fraction:12.4f} {rung.batch_fraction:13.3f} {rung.train_steps:8,}"
        for rung in best.rungs
    ]
    lines += ["", "the trade: expected width90 by number of rungs and spacing", "  rungs  spacing  width90  fewest steps"]
    lines += [
        f"  {len(each.rungs):5}  {each.spacing:7g}  {each.expected_width90:7.1%}  {min(rung.train_steps for rung in each.rungs):12,}"
        for each in found
    ]
    return "\n".join(lines)
