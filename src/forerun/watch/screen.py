"""One screen for people: where, how fast, how healthy, on course or not."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from forerun.base import units
from forerun.record.series import RunRecord
from forerun.watch.case import finite
from forerun.watch.report import Report, State

MARKS: dict[State, tuple[str, str]] = {"on_course": ("+", "green"), "off_course": ("x", "bold red"), "cannot_tell": ("?", "yellow")}


def screen(record: RunRecord, report: Report) -> RenderableType:
    """The report as a panel; readable without colour."""
    mark, style = MARKS[report.state]
    head = Text(f"{mark} {report.state.replace('_', ' ')}", style=style)
    parts: list[RenderableType] = [head, Text(_where(record, report)), _items(report)]
    alarms = [Text(f"x {finding.rule}: {finding.evidence}{_rate(finding.false_alarm_rate)}", style="red") for finding in report.alarms]
    unsure = [
        Text(f"? {finding.evidence}", style="yellow")
        for finding in report.findings
        if finding.rule == "telemetry" and finding.state == "cannot_tell"
    ]
    causes = [Text(f"{cause.confidence:.0%} {cause.cause}; next: {cause.next_measurement}") for cause in report.diagnosis]
    return Panel(Group(*parts, *alarms, *unsure, *causes), title=report.run_id, title_align="left")


def _where(record: RunRecord, report: Report) -> str:
    done = f" ({units.percent(report.step / report.num_steps)})" if report.num_steps and report.step >= 0 else ""
    words = [report.where + done]
    for metric, label in (("loss_nats", "loss"), ("eval/macro_loss_nats", "held-out"), ("grad_norm", "grad norm")):
        series = finite(record.series(metric))
        if len(series):
            words.append(f"{label} {series.last:.4f}")
    speed, step_time = finite(record.series("tokens_per_second")), finite(record.series("step_time_s"))
    if len(speed):
        words.append(f"{units.count(float(speed.value[-25:].mean()))} tokens/s")
    if len(step_time) and report.num_steps > report.step >= 0:
        words.append(f"{units.duration(float(step_time.value[-25:].mean()) * (report.num_steps - report.step))} left")
    return "   ".join(words)


def _items(report: Report) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    for item in report.checklist:
        mark, style = MARKS[item.state]
        table.add_row(Text(mark, style=style), item.item, Text(item.evidence))
    return table


def _rate(rate: float) -> str:
    return f" (false alarm in {units.percent(rate)} of healthy runs)" if math.isfinite(rate) else ""
