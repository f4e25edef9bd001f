"""Curves of retention against cost as an SVG image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor

WIDTH, HEIGHT, MARGIN = 640, 400, 56
"""Pixels of the plot, legend excluded."""

ROW = 18
"""Pixels from one name of the legend to the next."""

TICK = 0.25
"""Of the relative cost."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""Colours that the colour-blind can tell apart (Okabe and Ito)."""

Point = tuple[float, float]


MAX_COST = 2.0
"""Dearer policies are drawn at this cost: a policy that moves the beginning of each request costs four times as much,
and would leave no room for the others."""


def curves(title: str, series: Mapping[str, Sequence[Point]]) -> str:
    """An image with a line for each series of points: the cost relative to keep-last cut to half, and the percentage
    of needed facts in the view."""
    series = {name: [(min(MAX_COST, cost), share) for cost, share in points] for name, points in series.items()}
    costs = [cost for points in series.values() for cost, _ in points]
    low, high = min([0.9, *costs]), max([1.1, *costs])

    def place(point: Point) -> tuple[float, float]:
        across = MARGIN + (point[0] - low) / (high - low) * (WIDTH - 2 * MARGIN)
        return round(across, 1), round(HEIGHT - MARGIN - point[1] / 100 * (HEIGHT - 2 * MARGIN), 1)

    parts = [_text(MARGIN, 24, title, 15)]
    for percent in range(0, 101, 20):
        _, y = place((low, percent))
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(8, y + 4, f"{percent} %"))
    for number in range(ceil(low / TICK), floor(high / TICK) + 1):
        x, y = place((number * TICK, 0))
        parts.append(f'<line x1="{x}" x2="{x}" y1="{y}" y2="{y + 5}" stroke="#888"/>')
        parts.append(_text(x - 10, y + 18, f"{number * TICK:.2f}"))
    parts.append(
        _text(MARGIN, HEIGHT - 14, f"in view, by the cost relative to keep-last cut to half ({MAX_COST:g}: or more)")
    )
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(point) for point in sorted(points)]
        line = " ".join(f"{x},{y}" for x, y in placed)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>' for x, y in placed]
        row = HEIGHT + 10 + ROW * number
        parts.append(f'<circle cx="{MARGIN + 5}" cy="{row - 4}" r="4" fill="{colour}"/>')
        parts.append(_text(MARGIN + 16, row, name))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 10 + ROW * len(series)}"'
        f' font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, text: str, size: int = 11) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="#222">{escape(text)}</text>'
