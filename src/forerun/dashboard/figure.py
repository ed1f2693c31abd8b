"""A chart on a page: the drawing that needs no script, its numbers as table and CSV, and what a script needs to make it live.

The script reads the same CSV a person can download; where a line comes from a run it can also read every recorded row, and new
rows as they are written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.base.chart import Chart, Line
from forerun.dashboard.html import Markup, tag
from forerun.dashboard.numbers import hover_of_metric

TABLE_ROWS = 24  # assumed: rows of a figure's own table; the CSV holds them all


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a line's full rows are."""

    run: str
    metric: str
    x_factor: float = 1.0
    """Steps to the figure's x: 100 / num_steps where x is a share of the run."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a page."""

    key: str
    """Unique on its page: names the file of its numbers, and the figure in links."""
    chart: Chart
    x_term: str
    """What x is: a metric or glossary entry."""
    y_term: str
    """What y is."""
    sources: Sequence[Source | None] = ()
    """Per line of the chart; empty when no line comes from a run's rows."""
    interactive: bool = True
    """Small figures of few points stay drawings."""

    def csv(self) -> str:
        """All numbers drawn."""
        return self.chart.csv()

    def render(self, csv_link: str, rows_root: str = "") -> Markup:
        """`<figure>` with its finding, legend, drawing, links and table.

        Args:
            csv_link: where `csv()` will lie, relative to the page.
            rows_root: folder of the runs' rows relative to the page, for figures with sources.
        """
        chart = self.chart
        items = (*chart.bands, *chart.lines)
        legend = tag(
            "ul", *(tag("li", item.label, class_=item.css if isinstance(item, Line) else "band") for item in items), class_="legend"
        )
        caption = tag("figcaption", tag("strong", chart.title, title=hover_of_metric(self.y_term)), legend)
        drawing = tag("div", Markup(chart.inline()), class_="plot")
        below = tag("p", tag("a", "numbers (CSV)", href=csv_link, aria_label=f"numbers of {self.key} (CSV)"), class_="links")
        spec = json.dumps(self._spec(csv_link, rows_root)) if self.interactive else None
        return tag("figure", caption, drawing, below, self._table(), id=self.key, data_figure=spec)

    def _spec(self, csv_link: str, rows_root: str) -> dict[str, object]:
        sources = self.sources or [None] * len(self.chart.lines)
        lines = []
        for line, source in zip(self.chart.lines, sources):
            entry: dict[str, object] = {"label": line.label, "style": line.style % 6, "marker": line.marker}
            if source is not None:
                entry |= {"run": source.run, "metric": source.metric, "factor": source.x_factor}
            lines.append(entry)
        return {
            "x": self.chart.x_label,
            "y": self.chart.y_label,
            "logX": self.chart.log_x,
            "csv": csv_link,
            "rows": rows_root,
            "lines": lines,
            "bands": [band.label for band in self.chart.bands],
            "marks": [{"x": mark.x, "label": mark.label} for mark in self.chart.marks],
        }

    def _table(self) -> Markup:
        chart = self.chart
        rows: list[Markup] = []
        total = sum(len(line.x) for line in chart.lines) + sum(len(band.x) for band in chart.bands)
        stride = max(1, math.ceil(total / TABLE_ROWS))
        for line in chart.lines:
            rows += [_row(line.label, x, f"{y:.6g}") for x, y in _thinned(list(zip(line.x, line.y)), stride)]
        for band in chart.bands:
            points = _thinned(list(zip(band.x, band.low, band.high)), stride)
            rows += [_row(band.label, x, f"{low:.6g} to {high:.6g}") for x, low, high in points]
        caption = "All numbers drawn" if stride == 1 else f"Every {stride}th number drawn; the CSV holds all {total}"
        columns = ((chart.x_label, self.x_term), (chart.y_label, self.y_term))
        x, y = (tag("th", label, scope="col", title=hover_of_metric(term)) for label, term in columns)
        head = tag("tr", tag("th", "series", scope="col"), x, y)
        inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
        scroll = tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=f"Numbers of {self.key}")
        return tag("details", tag("summary", "Numbers as a table"), scroll)


def _row(label: str, x: float, y: str) -> Markup:
    return tag("tr", tag("th", label, scope="row"), tag("td", f"{x:.6g}", class_="number"), tag("td", y, class_="number"))


def _thinned(points: list[tuple[float, ...]], stride: int) -> list[tuple[float, ...]]:
    """Every `stride`-th point, the last one included."""
    kept = points[::stride]
    return kept if not points or kept[-1] is points[-1] else [*kept, points[-1]]
