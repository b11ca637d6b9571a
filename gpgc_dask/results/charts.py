"""Small charts as inline SVG. The page defines the colours; texts are escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gpgc_dask.core.arrays import Array

__all__ = ["bars", "histogram", "line"]

WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 36, 8, 8, 24
BINS = 20


class _Chart:
    """A plot area with axes; x and y are ranges in data units."""

    def __init__(self, description: str, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.x, self.y = x, y
        self.svg = ET.Element(
            "svg",
            {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": description},
        )
        ET.SubElement(self.svg, "title").text = description

    def px(self, value: float) -> float:
        low, high = self.x
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def py(self, value: float) -> float:
        low, high = self.y
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def add(self, tag: str, css: str, text: str | None = None, **attributes: Any) -> ET.Element:
        named = {
            name.replace("_", "-"): f"{value:.2f}" if isinstance(value, float) else str(value)
            for name, value in attributes.items()
        }
        element = ET.SubElement(self.svg, tag, {"class": css, **named})
        element.text = text
        return element

    def x_axis(self, ticks: Sequence[tuple[float, str]]) -> None:
        base = float(HEIGHT - BOTTOM)
        self.add("line", "axis", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base)
        for value, text in ticks:
            x = self.px(value)
            self.add("line", "axis", x1=x, x2=x, y1=base, y2=base + 3)
            self.add("text", "tick", text, x=x, y=base + 15, text_anchor="middle")

    def y_axis(self, ticks: Sequence[tuple[float, str]]) -> None:
        for value, text in ticks:
            y = self.py(value)
            self.add("line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
            self.add("text", "tick", text, x=LEFT - 5, y=y + 4, text_anchor="end")

    def __str__(self) -> str:
        return ET.tostring(self.svg, encoding="unicode")


def histogram(values: Array, description: str, *, logarithmic: bool = False) -> str:
    """Draw a histogram of values per image.

    Parameters
    ----------
    values : (n,) array
        Values in [0, 1], or positive values if ``logarithmic``.
    description : str
        Text for screen readers.
    logarithmic : bool, default False
        Whether bars cover the decades of the values in place of [0, 1].

    Returns
    -------
    str
        SVG. Each bar has its bounds as data-low and data-high.
    """
    positions = np.log10(values) if logarithmic else values
    low, high = _decades(positions) if logarithmic and positions.size else (0.0, 1.0)
    counts, edges = np.histogram(positions, bins=BINS, range=(low, high))
    highest = max(int(counts.max()), 1)
    chart = _Chart(description, (low, high), (0.0, float(highest)))
    chart.y_axis([(0.0, "0"), (float(highest), f"{highest:,}")])
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        top = chart.py(count)
        bar = chart.add(
            "rect",
            "bar",
            x=chart.px(left) + 0.5,
            width=max(chart.px(right) - chart.px(left) - 1.0, 0.5),
            y=top,
            height=float(HEIGHT - BOTTOM) - top,
            data_low=float(left),
            data_high=float(right),
        )
        ends = [f"{10**v:.2g}" if logarithmic else f"{v:.2f}" for v in (left, right)]
        ET.SubElement(bar, "title").text = f"{ends[0]} to {ends[1]}: {count:,} images"
    if logarithmic:
        chart.x_axis([(float(d), _power(d)) for d in range(math.ceil(low), math.floor(high) + 1)])
    else:
        chart.x_axis([(v, f"{v:g}") for v in (0.0, 0.25, 0.5, 0.75, 1.0)])
    return str(chart)


def _decades(exponents: Array) -> tuple[float, float]:
    """Whole decades that cover some exponents."""
    low, high = math.floor(exponents.min()), math.ceil(exponents.max())
    return float(low), float(max(high, low + 1))


def _power(exponent: int) -> str:
    """10 to the power of an exponent as text."""
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:,g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def line(x: Sequence[float], y: Sequence[float], description: str) -> str:
    """Draw points joined by a line, with a mark at y = 0.

    Parameters
    ----------
    x, y : sequence of float
        The points; y in powers of ten.
    description : str
        Text for screen readers.

    Returns
    -------
    str
        SVG.
    """
    low, high = min(0.0, *y), max(0.5, *y)
    left, right = min(x), max(x)
    chart = _Chart(description, (left, max(right, left + 1)), (low, high))
    step = max(math.ceil((high - low) / 4), 1)
    levels = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
    chart.y_axis([(float(level), _power(level)) for level in levels])
    points = " ".join(f"{chart.px(a):.1f},{chart.py(b):.1f}" for a, b in zip(x, y, strict=True))
    chart.add("polyline", "curve", points=points)
    for a, b in zip(x, y, strict=True):
        chart.add("circle", "point", cx=chart.px(a), cy=chart.py(b), r=2.5)
    if low <= 0 <= high:
        chart.add("line", "goal", x1=LEFT, x2=WIDTH - RIGHT, y1=chart.py(0.0), y2=chart.py(0.0))
    wide = max(math.ceil((right - left) / 6), 1)
    ticks = range(math.ceil(left), math.floor(right) + 1, wide)
    chart.x_axis([(float(tick), str(tick)) for tick in ticks])
    return str(chart)


def bars(values: dict[str, float], description: str) -> str:
    """Draw horizontal bars on a logarithmic scale, with their names and values.

    Parameters
    ----------
    values : dict
        {name: value}.
    description : str
        Text for screen readers.

    Returns
    -------
    str
        SVG.
    """
    largest = max(values.values())
    smallest = min(value for value in values.values() if value > 0) if largest > 0 else 1.0
    low = math.log10(smallest) - 0.5
    high = math.log10(largest) if largest > 0 else 1.0
    chart = _Chart(description, (low, max(high, low + 1)), (0.0, 1.0))
    step = (HEIGHT - TOP) / len(values)
    for row, (name, value) in enumerate(values.items()):
        middle = TOP + step * (row + 0.5)
        length = max((math.log10(value) - low) / (max(high, low + 1) - low), 0) if value > 0 else 0
        chart.add("text", "name", name, x=0, y=middle - 4)
        chart.add("text", "tick", f"{value:.3g}", x=WIDTH - RIGHT, y=middle - 4, text_anchor="end")
        full = float(WIDTH - RIGHT)
        chart.add("rect", "track", x=0, y=middle, width=full, height=8, rx=4)
        chart.add("rect", "bar", x=0, y=middle, width=full * length, height=8, rx=4)
    return str(chart)
