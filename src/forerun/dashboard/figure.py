"""One kind of figure: bands, then lines and points, as SVG with its numbers as CSV beside it and a text alternative inside."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.dashboard.html import Markup, join, tag

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 16, 56
NUM_TICKS = 6


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
    """Which of the six colours and dashes."""
    marker: str = ""
    """`circle`, `square` or empty."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure with a finding as its title."""

    title: str
    x_label: str
    y_label: str
    bands: Sequence[Band] = ()
    lines: Sequence[Line] = ()
    log_x: bool = False

    def csv(self) -> str:
        """All numbers: series, x, y or low and high."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["series", self.x_label, self.y_label, "low", "high"])
        for band in self.bands:
            writer.writerows([band.label, x, "", low, high] for x, low, high in zip(band.x, band.low, band.high))
        for line in self.lines:
            writer.writerows([line.label, x, y, "", ""] for x, y in zip(line.x, line.y))
        return out.getvalue()

    def render(self, csv_link: str) -> Markup:
        """`<figure>` with caption, drawing, legend and a link to the numbers."""
        marks = tag("ul", *(tag("li", item.label, class_=_class(item)) for item in (*self.bands, *self.lines)), class_="legend")
        caption = tag("figcaption", tag("strong", self.title), marks, tag("a", "numbers (CSV)", href=csv_link))
        return tag("figure", caption, self._svg())

    def _svg(self) -> Markup:
        xs = [value for item in (*self.bands, *self.lines) for value in item.x]
        ys = [value for band in self.bands for value in (*band.low, *band.high)] + [value for line in self.lines for value in line.y]
        x_axis = _Axis(xs, LEFT, WIDTH - RIGHT, log=self.log_x)
        y_axis = _Axis(ys, HEIGHT - BOTTOM, TOP, log=False)
        parts = [tag("title", f"{self.title}. {self._in_words()}"), *self._grid(x_axis, y_axis)]
        for band in self.bands:
            upper = [f"{x_axis(x):.1f},{y_axis(high):.1f}" for x, high in zip(band.x, band.high)]
            lower = [f"{x_axis(x):.1f},{y_axis(low):.1f}" for x, low in zip(band.x, band.low)]
            parts.append(tag("polygon", points=" ".join([*upper, *reversed(lower)]), class_="band"))
        for line in self.lines:
            points = [(x_axis(x), y_axis(y)) for x, y in zip(line.x, line.y) if math.isfinite(y)]
            if line.marker:
                parts += [_mark(line, x, y) for x, y in points]
            else:
                parts.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=_class(line)))
        return tag("svg", join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img")

    def _grid(self, x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
        parts = []
        for value, label in y_axis.ticks():
            y = f"{y_axis(value):.1f}"
            parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", label, x=LEFT - 8, y=y, class_="tick", text_anchor="end", dominant_baseline="middle"))
        for value, label in x_axis.ticks():
            parts.append(tag("text", label, x=f"{x_axis(value):.1f}", y=HEIGHT - BOTTOM + 20, class_="tick", text_anchor="middle"))
        parts.append(tag("text", self.x_label, x=(LEFT + WIDTH - RIGHT) // 2, y=HEIGHT - 10, class_="axis", text_anchor="middle"))
        middle = (TOP + HEIGHT - BOTTOM) // 2
        parts.append(tag("text", self.y_label, x=14, y=middle, class_="axis", text_anchor="middle", transform=f"rotate(-90 14 {middle})"))
        return parts

    def _in_words(self) -> str:
        ends = [f"{line.label}: {line.y[0]:.4g} to {line.y[-1]:.4g}" for line in self.lines if len(line.y)]
        ends += [f"{band.label}: {band.low[-1]:.4g} to {band.high[-1]:.4g} at the end" for band in self.bands if len(band.x)]
        return "; ".join(ends)


class _Axis:
    """Places values between two pixels."""

    def __init__(self, values: Sequence[float], start: float, stop: float, *, log: bool) -> None:
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        if low == high:
            low, high = low - 0.5, high + 0.5
        margin = 0.0 if log else 0.04 * (high - low)
        self._low, self._high = (math.log10(low), math.log10(high)) if log else (low - margin, high + margin)
        self._start, self._stop, self._log = start, stop, log

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self._log else value
        return self._start + (place - self._low) / (self._high - self._low) * (self._stop - self._start)

    def ticks(self) -> list[tuple[float, str]]:
        if self._log:
            powers = range(math.ceil(self._low), math.floor(self._high) + 1)
            return [(10.0**power, f"1e{power}") for power in powers]
        raw = (self._high - self._low) / NUM_TICKS
        scale = 10 ** math.floor(math.log10(raw))
        step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= raw)
        first = math.ceil(self._low / step)
        return [(index * step, f"{index * step:.10g}") for index in range(first, math.floor(self._high / step) + 1)]


def _class(item: Band | Line) -> str:
    return "band" if isinstance(item, Band) else f"line s{item.style % 6}" + (f" {item.marker}" if item.marker else "")


def _mark(line: Line, x: float, y: float) -> Markup:
    if line.marker == "square":
        return tag("rect", x=f"{x - 4:.1f}", y=f"{y - 4:.1f}", width=8, height=8, class_=f"point s{line.style % 6}")
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=f"point s{line.style % 6}")
