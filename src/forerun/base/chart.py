"""Line charts from numbers: bands first, then lines and points, as SVG, CSV and words. One drawing for pages and for files.

On a page the colours come from the page's style sheet; a file brings its own ground, heading and footer.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from forerun.base.axis import Axis
from forerun.base.visible import visible

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 76, 18, 16, 56
HEADING, FOOTING = 34, 24
"""Extra room of a file for its title and its footer."""
NUM_STYLES = 6
FILE_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.heading{font-size:15px;font-weight:600;fill:#111}.footer{font-size:11px;fill:#555}"
    ".grid{stroke:#e4e4e4}.mark{stroke:#777;stroke-dasharray:3 3}polygon.band{fill:#1f4e8c;opacity:.2}polyline{fill:none;stroke-width:2}"
    ".s0{stroke:#1f4e8c}.s1{stroke:#a34a00;stroke-dasharray:7 4}.s2{stroke:#1b6e3a;stroke-dasharray:2 3}"
    ".s3{stroke:#7b2d83;stroke-dasharray:9 3 2 3}.s4{stroke:#8a6d00;stroke-dasharray:4 2}.s5{stroke:#444;stroke-dasharray:1 2}"
    ".point{stroke:none}.point.s0{fill:#1f4e8c}.point.s1{fill:#a34a00}.point.s2{fill:#1b6e3a}.point.s3{fill:#7b2d83}.point.s4{fill:#8a6d00}.point.s5{fill:#444}"
)


@dataclass(frozen=True, kw_only=True)
class Band:
    """A shaded region between two curves."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    label: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve; `marker` draws points instead, told apart by shape as well as colour."""

    x: Sequence[float]
    y: Sequence[float]
    label: str
    style: int = 0
    """Which of the six colours and dashes; more start again."""
    marker: str = ""
    """`circle`, `square` or empty."""

    @property
    def css(self) -> str:
        """Classes of its marks."""
        return f"line s{self.style % NUM_STYLES}" + (f" {self.marker}" if self.marker else "")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A vertical rule where something changed."""

    x: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn, with a finding as its title."""

    title: str
    x_label: str
    """Quantity and unit."""
    y_label: str
    """Quantity and unit."""
    bands: Sequence[Band] = ()
    lines: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    log_x: bool = False

    def csv(self) -> str:
        """All numbers: series, x, y or low and high."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["series", self.x_label, self.y_label, "low", "high"])
        for band in self.bands:
            writer.writerows([band.label, *map(_digits, (x, None, low, high))] for x, low, high in zip(band.x, band.low, band.high))
        for line in self.lines:
            writer.writerows([line.label, *map(_digits, (x, y, None, None))] for x, y in zip(line.x, line.y))
        return out.getvalue()

    def words(self) -> str:
        """The text alternative: where every line begins and ends."""
        ends = [f"{line.label}: {line.y[0]:.4g} to {line.y[-1]:.4g}" for line in self.lines if len(line.y)]
        ends += [f"{band.label}: {band.low[-1]:.4g} to {band.high[-1]:.4g} at the end" for band in self.bands if len(band.x)]
        ends += [f"{mark.label} at {mark.x:.4g}" for mark in self.marks]
        return f"{self.title}. {self.y_label} over {self.x_label}. " + "; ".join(ends)

    def inline(self) -> str:
        """`<svg>` for a page that carries the style sheet, the title and the legend itself."""
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(self.words())}">{self._drawing()}</svg>'

    def file(self, footer: str = "") -> str:
        """A whole SVG file with title, legend and footer; readable on light and dark pages because it brings its own ground."""
        height = HEIGHT + HEADING + FOOTING
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
                f"<title>{escaped(self.words())}</title><style>{FILE_STYLE}</style>",
                f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
                f'<text class="heading" x="{LEFT}" y="18">{escaped(self.title)}</text>',
                *self._legend(),
                f'<g transform="translate(0 {HEADING})">{self._drawing()}</g>',
                f'<text class="footer" x="{LEFT}" y="{height - 8}">{escaped(footer)}</text>',
                "</svg>",
                "",
            ]
        )

    def _drawing(self) -> str:
        xs = [value for item in (*self.bands, *self.lines) for value in item.x]
        ys = [value for band in self.bands for value in (*band.low, *band.high)] + [value for line in self.lines for value in line.y]
        x_axis = Axis(xs, LEFT, WIDTH - RIGHT, log=self.log_x)
        y_axis = Axis(ys, HEIGHT - BOTTOM, TOP)
        parts = self._grid(x_axis, y_axis)
        for band in self.bands:
            upper = [f"{x_axis(x):.1f},{y_axis(high):.1f}" for x, high in zip(band.x, band.high) if y_axis.holds(high) and x_axis.holds(x)]
            lower = [f"{x_axis(x):.1f},{y_axis(low):.1f}" for x, low in zip(band.x, band.low) if y_axis.holds(low) and x_axis.holds(x)]
            parts.append(f'<polygon points="{" ".join([*upper, *reversed(lower)])}" class="band"/>')
        for mark in self.marks:
            if x_axis.low <= mark.x <= x_axis.high:
                x = f"{x_axis(mark.x):.1f}"
                parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="mark"/>')
                parts.append(f'<text x="{x}" y="{TOP + 10}" dx="4" class="tick">{escaped(mark.label)}</text>')
        for line in self.lines:
            points = [(x_axis(x), y_axis(y)) for x, y in zip(line.x, line.y) if y_axis.holds(y) and x_axis.holds(x)]
            if line.marker:
                parts += [_point(line, x, y) for x, y in points]
            else:
                parts.append(f'<polyline points="{" ".join(f"{x:.0f},{y:.1f}" for x, y in points)}" class="{line.css}"/>')
        return "".join(parts)

    def _grid(self, x_axis: Axis, y_axis: Axis) -> list[str]:
        right, bottom, parts = WIDTH - RIGHT, HEIGHT - BOTTOM, list[str]()
        for value, label in y_axis.ticks():
            y = f"{y_axis(value):.1f}"
            parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}" class="grid"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y}" class="tick" text-anchor="end" dominant-baseline="middle">{label}</text>')
        for value, label in x_axis.ticks():
            parts.append(f'<text x="{x_axis(value):.1f}" y="{bottom + 20}" class="tick" text-anchor="middle">{label}</text>')
        middle = (TOP + bottom) // 2
        parts.append(
            f'<text x="{(LEFT + right) // 2}" y="{HEIGHT - 10}" class="axis" text-anchor="middle">{escaped(self.x_label)}</text>'
            f'<text x="14" y="{middle}" class="axis" text-anchor="middle" transform="rotate(-90 14 {middle})">{escaped(self.y_label)}</text>'
        )
        return parts

    def _legend(self) -> list[str]:
        parts, x = [], float(LEFT)
        for band in self.bands:
            parts.append(f'<polygon class="band" points="{x:.0f},26 {x + 18:.0f},26 {x + 18:.0f},36 {x:.0f},36"/>')
            parts.append(f'<text x="{x + 24:.0f}" y="35">{escaped(band.label)}</text>')
            x += 40 + 6.6 * len(band.label)
        for line in self.lines:
            swatch = _point(line, x + 8, 31) if line.marker else f'<polyline points="{x:.0f},31 {x + 18:.0f},31" class="{line.css}"/>'
            parts.append(f'{swatch}<text x="{x + 24:.0f}" y="35">{escaped(line.label)}</text>')
            x += 40 + 6.6 * len(line.label)
        return parts


def _digits(value: float | None) -> str:
    """Nine digits, which tell any two float32 apart."""
    return "" if value is None else f"{value:.9g}"


def _point(line: Line, x: float, y: float) -> str:
    css = f"point s{line.style % NUM_STYLES}"
    if line.marker == "square":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" class="{css}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{css}"/>'


def escaped(text: str) -> str:
    """Text for an SVG."""
    return escape(visible(text))
