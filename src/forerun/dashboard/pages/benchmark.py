"""The public benchmark of forecasts: bars, what was measured, and every held-out task, from the result the package keeps."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Piece, table
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph
from forerun.ladder.bench_result import stored


def pages(files: LabFiles) -> Iterator[Page]:
    """One page."""
    yield Page(path="benchmark.html", title="Forecast benchmark", content=content)


def content(desk: Desk) -> list[Piece]:
    """Met and missed bars in one table, tasks in another."""
    result = stored()
    rows = [("met" if row.met else "missed", row.name, row.measured, row.bar, row.anchor) for row in result.rows]
    tasks = [
        (
            task.name,
            number(task.error, "absolute_error", f"{task.error:.2%}"),
            number(task.baseline_error, "absolute_error", f"{task.baseline_error:.2%}"),
            number(task.inside, "coverage90", f"{task.inside:.0%}"),
            number(task.width, "width90", f"{task.width:.1%}"),
            number(task.num_outcomes, "num_outcomes"),
        )
        for task in result.tasks
    ]
    return [
        paragraph(
            f"How this forecaster does on public runs it was not fitted on. `forerun bench forecast` made these numbers "
            f"on {result.date}{f' at commit {result.commit}' if result.commit else ''}; it runs on anyone's machine."
        ),
        table(
            [
                "",
                "what",
                desk.term("measured", "benchmark_measure"),
                desk.term("bar", "benchmark_bar"),
                desk.term("usual methods", "benchmark_measure"),
            ],
            rows,
            caption="Bars, met or missed",
        ),
        table(
            ["final loss of larger runs", "error", "usual fit's error", "inside 90%", "width", "outcomes"],
            tasks,
            caption="Every held-out task",
        ),
    ]
