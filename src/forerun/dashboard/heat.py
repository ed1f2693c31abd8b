"""A heat map as a table of coloured cells in SVG: rows by columns, with its numbers as CSV, table and words."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.base.chart import BOTTOM, RIGHT, TOP, WIDTH
from forerun.dashboard.html import Markup, tag, text
from forerun.dashboard.numbers import digits, hover

ROW_HEIGHT, MAX_LABELS, NUM_SHADES = 26, 8, 9
LETTER_WIDTH, LONGEST_LABEL, LABEL_ROOM = (
    7.2,
    32,
    236,
)  # measured: a letter of the ticks is 7 units wide on average, in the widest usual font


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Values over two sets of labels. The shade says the value, the table says it in digits."""

    key: str
    title: str
    """A finding."""
    x_label: str
    y_label: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float]]
    """Per row, per column; NaN leaves the cell empty."""
    term: str
    """Glossary entry of the values."""
    low: float | None = None
    """Value of the lightest shade; the smallest one by default."""
    high: float | None = None
    """Value of the darkest shade; the largest one by default."""

    def csv(self) -> str:
        """One line a row."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([f"{self.y_label} \\ {self.x_label}", *self.columns])
        writer.writerows([name, *("" if math.isnan(value) else value for value in row)] for name, row in zip(self.rows, self.values))
        return out.getvalue()

    def render(self, csv_link: str, rows_root: str = "") -> Markup:
        """`<figure>` with the finding, the map, its scale and its table."""
        low, high = self._limits()
        said = f"{self.y_label[:1].upper()}{self.y_label[1:]} by {self.x_label}: light is {low:.4g}, dark {high:.4g}."
        scale = tag("p", said, class_="soft")
        link = tag("p", tag("a", "numbers (CSV)", href=csv_link, aria_label=f"numbers of {self.key} (CSV)"), class_="links")
        head = tag("tr", tag("th", self.y_label, scope="col"), *(tag("th", name, scope="col") for name in self.columns))
        body = [
            tag(
                "tr",
                tag("th", name, scope="row"),
                *(tag("td", "" if math.isnan(value) else digits(value)) for value in row),
            )
            for name, row in zip(self.rows, self.values)
        ]
        table = tag("table", tag("caption", self.title), tag("thead", head), tag("tbody", *body), data_meaning=hover(self.term))
        scroll = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"Numbers of {self.key}")
        details = tag("details", tag("summary", "Numbers as a table"), scroll)
        return tag(
            "figure",
            tag("figcaption", tag("strong", self.title, title=hover(self.term)), scale),
            Markup(self._svg(low, high)),
            link,
            details,
            id=self.key,
        )

    def _limits(self) -> tuple[float, float]:
        finite = [value for row in self.values for value in row if math.isfinite(value)] or [0.0, 1.0]
        low = min(finite) if self.low is None else self.low
        high = max(finite) if self.high is None else self.high
        return low, high if high > low else low + 1.0

    def _svg(self, low: float, high: float) -> str:
        left = min(LABEL_ROOM, 16 + round(LETTER_WIDTH * max((len(name[:LONGEST_LABEL]) for name in self.rows), default=0)))
        width, bottom = (WIDTH - left - RIGHT) / max(len(self.columns), 1), TOP + ROW_HEIGHT * len(self.rows)
        parts = []
        for r, (name, row) in enumerate(zip(self.rows, self.values)):
            y = TOP + ROW_HEIGHT * r
            parts.append(f'<text x="{left - 8}" y="{y + 17}" class="tick" text-anchor="end">{text(_short(name, LONGEST_LABEL))}</text>')
            for c, value in enumerate(row):
                if math.isfinite(value):
                    shade = round(min(max((value - low) / (high - low), 0.0), 1.0) * (NUM_SHADES - 1))
                    where = f"{self.rows[r]}, {self.columns[c]}: {value:.4g}"
                    parts.append(
                        f'<rect x="{left + c * width:.1f}" y="{y}" width="{max(width - 1, 0.8):.1f}" height="{ROW_HEIGHT - 2}" class="heat h{shade}"><title>{text(where)}</title></rect>'
                    )
        stride = max(1, math.ceil(len(self.columns) / MAX_LABELS))
        for c in range(0, len(self.columns), stride):
            x = left + (c + 0.5) * width
            parts.append(
                f'<text x="{x:.1f}" y="{bottom + 16}" class="tick" text-anchor="middle">{text(_short(self.columns[c], 14))}</text>'
            )
        middle = (left + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle:.0f}" y="{bottom + 36}" class="axis" text-anchor="middle">{text(self.x_label)}</text>')
        height = bottom + BOTTOM
        return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(self.title)}. Numbers in the table below.">{"".join(parts)}</svg>'


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
