"""Curves as SVG. Colours, fonts and widths are CSS classes of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from disc.report.markup import Html, data, join, tag
from disc.study.statistics import Values

WIDTH, HEIGHT = 420, 280  # of the drawing, in user units
LEFT, RIGHT, TOP, BOTTOM = 50, 18, 26, 42
POINTS = 200  # maximum per curve
CROWD = 5  # with more curves, bands are fainter
COLORS = 8  # classes c0 to c7 in the style sheet
MARKS = 4  # per curve, in addition to that at its end

_round = [(math.cos(a), math.sin(a)) for a in np.linspace(0, 2 * math.pi, 16, endpoint=False)]
SHAPES: tuple[Sequence[tuple[float, float]], ...] = (
    _round,
    [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    [(0, -1.2), (1.15, 0.85), (-1.15, 0.85)],
    [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
    [(0, 1.2), (1.15, -0.85), (-1.15, -0.85)],
    [(-1.2, -0.35), (-0.35, -0.35), (-0.35, -1.2), (0.35, -1.2), (0.35, -0.35), (1.2, -0.35),
     (1.2, 0.35), (0.35, 0.35), (0.35, 1.2), (-0.35, 1.2), (-0.35, 0.35), (-1.2, 0.35)],
    [(-1.3, -1.0), (0, 0), (-1.3, 1.0), (1.3, 1.0), (0, 0), (1.3, -1.0)],
)  # fmt: skip


class Style(NamedTuple):
    """The colour of a curve and the shape of its marks."""

    color: int
    shape: int

    @property
    def key(self) -> str:
        """A unique name."""
        return f"{self.color % COLORS}-{self.shape % len(SHAPES)}"


class Line(NamedTuple):
    """A curve with a band."""

    label: str
    style: Style
    steps: Values  # (K,)
    mean: Values  # (K,)
    low: Values  # (K,)
    high: Values  # (K,)
    seeds: int


class Axes(NamedTuple):
    """The axes of a panel."""

    vertical: str
    horizontal: str = "environment steps"
    line: float | None = None  # a horizontal line for comparison
    interval: bool = False  # the band is an interval; else ± one standard deviation
    zero: bool = True  # the horizontal axis starts at 0


def thin(length: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Indices of at most `POINTS` points of a curve, including the first and the last."""
    return np.unique(np.linspace(0, length - 1, min(length, POINTS)).round().astype(np.intp))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within a range: at most `most`, and at least two if possible."""
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * x for x in (1, 2, 5, 10) if span / (power * x) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def short(value: float) -> str:
    """Format a tick label: 200k, 1.5M, −0.05."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{name}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def swatch(style: Style) -> Html:
    """A legend entry."""
    parts = [
        tag("path", d="M1,7H29", class_="curve"),
        tag("path", d=_shape(style, 15, 7, 4.2), class_="mark"),
    ]
    return tag(
        "svg", *parts, viewBox="0 0 30 14", aria_hidden="true", data_style=style.key,
        class_=f"swatch c{style.color % COLORS}",
    )  # fmt: skip


def panel(lines: Sequence[Line], axes: Axes, name: str) -> Html:
    """One panel with its curves, and their data for the page's script."""
    left, right = _range([line.steps for line in lines], 0.0)
    left = min(0.0, left) if axes.zero else left
    more = [np.array([axes.line])] if axes.line is not None else []
    bottom, top = _range([x for line in lines for x in (line.low, line.high)] + more, 0.05)

    def x(value: float) -> float:
        return LEFT + (value - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    parts = [_frame(axes, x, y, (left, right), (bottom, top))]
    parts += [_band(line, x, y) for line in lines]
    parts += [_curve(line, i, len(lines), x, y) for i, line in enumerate(lines)]
    parts.append(tag("path", d=f"M0,{TOP}V{HEIGHT - BOTTOM}", class_="cursor"))
    described = f"{name}: {', '.join(line.label for line in lines)}"
    drawing = tag(
        "svg", join(parts, "\n"), viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=described,
        class_="crowded" if len(lines) > CROWD else None,
    )  # fmt: skip
    return join([drawing, _numbers(lines, axes, (left, right))])


def _range(arrays: Sequence[Values], margin: float) -> tuple[float, float]:
    """The range of the values, with a margin; never empty."""
    low = min(float(array.min()) for array in arrays)
    high = max(float(array.max()) for array in arrays)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        apart = 0.5 * abs(high) or 1.0
        return low - apart, high + apart
    return low - margin * (high - low), high + margin * (high - low)


Scale = Callable[[float], float]


def _frame(
    axes: Axes, x: Scale, y: Scale, across: tuple[float, float], up: tuple[float, float]
) -> Html:
    """Grid, ticks and the names of the axes."""
    end, base = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in ticks(*up):
        parts.append(tag("path", d=f"M{LEFT},{y(tick):.1f}H{end}", class_="grid"))
        position = {"x": LEFT - 6, "y": f"{y(tick) + 4:.1f}"}
        parts.append(tag("text", short(tick), class_="tick end", **position))
    for tick in ticks(*across):
        parts.append(tag("path", d=f"M{x(tick):.1f},{base}v4", class_="axis"))
        position = {"x": f"{x(tick):.1f}", "y": base + 17}
        parts.append(tag("text", short(tick), class_="tick middle", **position))
    if axes.line is not None:
        parts.append(tag("path", d=f"M{LEFT},{y(axes.line):.1f}H{end}", class_="line"))
    parts.append(tag("path", d=f"M{LEFT},{base}H{end}", class_="axis"))
    parts.append(tag("text", axes.vertical, x=0, y=14, class_="name"))
    middle = (LEFT + end) // 2
    parts.append(tag("text", axes.horizontal, x=middle, y=HEIGHT - 6, class_="name middle"))
    return join(parts)


def _points(steps: Values, values: Values, x: Scale, y: Scale) -> list[str]:
    return [f"{x(a):.1f},{y(b):.1f}" for a, b in zip(steps, values, strict=True)]


def _band(line: Line, x: Scale, y: Scale) -> Html:
    upper = _points(line.steps, line.high, x, y)
    lower = _points(line.steps[::-1], line.low[::-1], x, y)
    return tag(
        "path", d=f"M{'L'.join(upper + lower)}Z", class_=f"band c{line.style.color % COLORS}"
    )


def _curve(line: Line, index: int, count: int, x: Scale, y: Scale) -> Html:
    """The curve, with marks that do not overlap those of other curves."""
    points = _points(line.steps, line.mean, x, y)
    offset = (index + 0.5) / count
    last = len(points) - 1
    marked = {last, *(round((i + offset) / MARKS * last) for i in range(MARKS))}
    shapes = [_shape(line.style, x(line.steps[i]), y(line.mean[i]), 3.4) for i in sorted(marked)]
    return tag(
        "g",
        tag("path", d=f"M{'L'.join(points)}", class_="curve"),
        tag("path", d="".join(shapes), class_="mark"),
        class_=f"c{line.style.color % COLORS}",
    )


def _shape(style: Style, x: float, y: float, size: float) -> str:
    corners = SHAPES[style.shape % len(SHAPES)]
    return f"M{'L'.join(f'{x + size * dx:.1f},{y + size * dy:.1f}' for dx, dy in corners)}Z"


def _numbers(lines: Sequence[Line], axes: Axes, across: tuple[float, float]) -> Html:
    """The data of a panel, for the page's script."""
    return data(
        {
            "from": across[0],
            "to": across[1],
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "width": WIDTH,
            "name": axes.horizontal,
            "interval": axes.interval,
            "lines": [
                {
                    "label": line.label,
                    "style": line.style.key,
                    "seeds": line.seeds,
                    **{n: _digits(getattr(line, n)) for n in ("steps", "mean", "low", "high")},
                }
                for line in lines
            ],
        }
    )


def _digits(values: Values) -> list[float]:
    """Round values to a readable precision; whole numbers become integers."""
    rounded = [float(f"{value:.7g}" if value >= 1e5 else f"{value:.5g}") for value in values]
    return [int(value) if value.is_integer() else value for value in rounded]
