"""Charts as SVG, for the pages that show the figures: bars in panels, and lines over a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

COLORS = ("#3f51b5", "#ff9800", "#009688", "#9c27b0")
INK, FAINT = "#333333", "#dddddd"
FONT = "font-family='system-ui, sans-serif'"

Point = tuple[float, float]


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "start", color: str = INK) -> str:
    """Return a text element."""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' fill='{color}'>{escape(words)}</text>"
    )


def line(start: Point, end: Point, color: str = FAINT, dash: str = "") -> str:
    """Return a line element."""
    (x1, y1), (x2, y2) = start, end
    dashes = f" stroke-dasharray='{dash}'" if dash else ""
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{color}'{dashes}/>"


def box(x: float, y: float, width: float, height: float, color: str) -> str:
    """Return a filled rectangle."""
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{color}'/>"


def picture(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Return a whole SVG file, on white, so that it can be read on a dark page, too."""
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' role='img' {FONT}>"
    body = [f"<title>{escape(title)}</title>", box(0, 0, width, height, "#ffffff"), text(16, 24, title, 15), *parts]
    return "\n".join([head, *body, "</svg>"]) + "\n"


def legend(names: Sequence[str], x: float, y: float) -> list[str]:
    """Return a row of colors with their names."""
    parts = []
    for color, name in zip(COLORS, names, strict=False):
        parts += [box(x, y - 9, 10, 10, color), text(x + 15, y, name)]
        x += 30 + 6.4 * len(name)
    return parts


def bars(title: str, series: Sequence[str], panels: Mapping[str, Mapping[str, Sequence[float | None]]]) -> str:
    """Return horizontal bars: a panel for each model, a row for each engine, a bar for each series. A line marks 1."""
    rows = list(next(iter(panels.values())))
    left, top, row, bar, panel, gap = 110.0, 84.0, 40.0, 14.0, 250.0, 24.0
    parts = legend(series, 16, 48)
    parts += [text(left - 10, top + i * row + 18, name, anchor="end") for i, name in enumerate(rows)]
    for number, (name, values) in enumerate(panels.items()):
        x = left + number * (panel + gap)
        parts.append(text(x, top - 12, name, 13))
        known = [value for several in values.values() for value in several if value is not None]
        scale = (panel - 42) / max([*known, 1.0])
        parts.append(line((x + scale, top - 4), (x + scale, top + len(rows) * row - 6), INK, "3 3"))
        for i, several in enumerate(values.values()):
            for j, value in enumerate(several):
                y = top + i * row + j * (bar + 1)
                if value is not None:
                    parts.append(box(x, y, value * scale, bar, COLORS[j]))
                parts.append(
                    text(x + (value or 0) * scale + 4, y + 11, "failed" if value is None else f"{value:.2f}", 11)
                )
    width = left + len(panels) * (panel + gap)
    return picture(width, top + len(rows) * row + 8, title, parts)


def ticks(least: float, most: float) -> list[float]:
    """Return the powers of ten around `least` and `most`, at least two."""
    first = math.floor(math.log10(least))
    return [10.0**power for power in range(first, max(math.ceil(math.log10(most)), first + 1) + 1)]


def short(number: float) -> str:
    """Return a number for an axis: 1k, 10M, 0.1."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def panel(title: str, curves: Mapping[str, Sequence[Point]], units: tuple[str, str], x: float, y: float) -> list[str]:
    """Return one panel of lines over two logarithmic axes. A zero on the horizontal axis has a place of its own."""
    width, height = 330.0, 170.0
    sizes = [size for several in curves.values() for size, _ in several]
    values = [value for several in curves.values() for _, value in several]
    across, up = ticks(min(filter(None, sizes)), max(sizes)), ticks(min(values), max(values))
    zero = math.log10(across[0]) - 0.5  # where a zero is drawn, in decades
    left, right = zero if 0 in sizes else math.log10(across[0]), math.log10(across[-1])
    low, high = math.log10(up[0]), math.log10(up[-1])

    def place(point: Point) -> Point:
        a, b = math.log10(point[0]) if point[0] else zero, math.log10(point[1])
        return x + (a - left) / (right - left) * width, y + height - (b - low) / (high - low) * height

    parts = [text(x, y - 26, title, 13), *legend(list(curves) if len(curves) > 1 else [], x, y - 8)]
    for tick in up:
        _, at = place((across[0], tick))
        parts += [line((x, at), (x + width, at)), text(x - 6, at + 4, short(tick), 10, "end")]
    for tick in [*([0.0] if 0 in sizes else []), *across]:
        at, _ = place((tick, up[0]))
        parts += [line((at, y), (at, y + height)), text(at, y + height + 14, short(tick), 10, "middle")]
    for color, several in zip(COLORS, curves.values(), strict=False):
        where = [place(point) for point in several]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in where)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>")
        parts += [f"<circle cx='{a:.1f}' cy='{b:.1f}' r='3' fill='{color}'/>" for a, b in where]
    parts.append(text(x + width, y + height + 28, f"{units[0]} (vertical: {units[1]})", 11, "end"))
    return parts


def lines(title: str, panels: Sequence[tuple[str, Mapping[str, Sequence[Point]], tuple[str, str]]]) -> str:
    """Return panels of lines, two in a row."""
    parts = []
    for number, (name, curves, units) in enumerate(panels):
        parts += panel(name, curves, units, 60 + number % 2 * 410, 84 + number // 2 * 258)
    return picture(830, 70 + (len(panels) + 1) // 2 * 258, title, parts)
