"""A line chart as SVG, from numbers: bands first, then lines and points, axes with units, a title that says the finding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 56, 78


@dataclass(frozen=True, kw_only=True)
class Band:
    """A shaded region between two curves."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    label: str
    opacity: float = 0.18


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve, or points when `marker` is set."""

    x: Sequence[float]
    y: Sequence[float]
    label: str
    colour: str = "#1f4e8c"
    dash: str = ""
    marker: str = ""
    """`circle` or `square`; empty draws a line."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Everything a figure needs."""

    title: str
    x_label: str
    y_label: str
    footer: str
    bands: Sequence[Band] = field(default_factory=tuple)
    lines: Sequence[Line] = field(default_factory=tuple)
    log_x: bool = False

    def render(self) -> str:
        """The SVG text; readable on light and dark pages because it brings its own ground."""
        xs = [value for item in (*self.bands, *self.lines) for value in item.x]
        ys = [value for band in self.bands for value in (*band.low, *band.high)] + [value for line in self.lines for value in line.y]
        x_place = _placer(xs, LEFT, WIDTH - RIGHT, log=self.log_x)
        y_place = _placer(ys, HEIGHT - BOTTOM, TOP, log=False)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="24" font-size="15" font-weight="600" fill="#111111">{escape(self.title)}</text>',
        ]
        parts += _axes(self, x_place, y_place)
        for band in self.bands:
            forth = [f"{x_place(x):.1f},{y_place(y):.1f}" for x, y in zip(band.x, band.high)]
            back = [f"{x_place(x):.1f},{y_place(y):.1f}" for x, y in zip(reversed(band.x), reversed(band.low))]
            parts.append(f'<polygon points="{" ".join(forth + back)}" fill="#1f4e8c" fill-opacity="{band.opacity}"/>')
        for line in self.lines:
            parts += _drawn(line, x_place, y_place)
        parts += _legend(self)
        parts.append(f'<text x="{LEFT}" y="{HEIGHT - 10}" font-size="11" fill="#555555">{escape(self.footer)}</text>')
        return "\n".join([*parts, "</svg>", ""])


class _placer:
    """Maps values to pixels and proposes round ticks."""

    def __init__(self, values: Sequence[float], start: float, stop: float, *, log: bool) -> None:
        self.log, self.start, self.stop = log, start, stop
        low, high = min(values), max(values)
        margin = 0.0 if log else 0.04 * (high - low or abs(high) or 1.0)
        self.low, self.high = low - margin, high + margin
        if log:
            self.low, self.high = math.log10(low), math.log10(high if high > low else low * 10)

    def __call__(self, value: float) -> float:
        position = math.log10(value) if self.log else value
        return self.start + (self.stop - self.start) * (position - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            decades = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
            return [(10.0**power, f"1e{power}") for power in decades]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 5))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= 7)
        first = math.ceil(self.low / step) * step
        count = int((self.high - first) / step + 1e-9) + 1
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(first + index * step, f"{first + index * step:.{digits}f}") for index in range(count)]


def _axes(chart: Chart, x_place: _placer, y_place: _placer) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#333333"/>']
    for value, text in x_place.ticks():
        parts.append(f'<text x="{x_place(value):.1f}" y="{bottom + 18}" text-anchor="middle" fill="#333333">{text}</text>')
    for value, text in y_place.ticks():
        y = y_place(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#333333">{text}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{bottom + 38}" text-anchor="middle" fill="#111111">{escape(chart.x_label)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle" fill="#111111">{escape(chart.y_label)}</text>')
    return parts


def _drawn(line: Line, x_place: _placer, y_place: _placer) -> list[str]:
    places = [(x_place(x), y_place(y)) for x, y in zip(line.x, line.y)]
    if line.marker:
        return [_marker(line.marker, x, y, line.colour) for x, y in places]
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>']


def _marker(kind: str, x: float, y: float, colour: str) -> str:
    if kind == "square":
        return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{colour}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _legend(chart: Chart) -> list[str]:
    parts, x = [], float(LEFT)
    for band in chart.bands:
        parts.append(f'<rect x="{x:.0f}" y="34" width="18" height="10" fill="#1f4e8c" fill-opacity="{band.opacity}"/>')
        parts.append(f'<text x="{x + 24:.0f}" y="44" font-size="12" fill="#333333">{escape(band.label)}</text>')
        x += 40 + 6.6 * len(band.label)
    for line in chart.lines:
        if line.marker:
            parts.append(_marker(line.marker, x + 8, 39, line.colour))
        else:
            dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
            parts.append(f'<path d="M{x:.0f} 39h18" stroke="{line.colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 24:.0f}" y="44" font-size="12" fill="#333333">{escape(line.label)}</text>')
        x += 40 + 6.6 * len(line.label)
    return parts
