"""The figures as a table in Markdown, with growth exponents, and as a chart with logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 440, 64, 210, 40, 48
"""Pixels."""

LABEL = 64.0
"""Pixels that the label of a length takes; one that would overlap the label before it is left out."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b4513")
"""Colours that the colour-blind can tell apart (Okabe and Ito, and brown)."""

DRAWN = (
    "record 1",
    "estimate",
    "first view",
    "view, nothing compacted",
    "view after compaction",
    "prune",
    "compact",
    "search p95",
)

Columns = Mapping[int, Mapping[str, float]]


def exponent(columns: Columns, name: str) -> float | None:
    """By what power of the length a figure grows, from the shortest to the longest session; 0 is flat."""
    found = [(length, figures[name]) for length, figures in columns.items() if figures.get(name, 0) > 0]
    if len(found) < 2:
        return None
    (first, low), (last, high) = found[0], found[-1]
    return math.log(high / low) / math.log(last / first)


def table(columns: Columns, postgresql: Columns) -> str:
    """The figures as a Markdown table, those in PostgreSQL after those in SQLite and their exponents."""
    names = dict.fromkeys(name for figures in columns.values() for name in figures)
    heads = ["milliseconds, unless said", *(f"{length:,}" for length in columns), "exponent"]
    heads += [f"PostgreSQL {length:,}" for length in postgresql]
    rows = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for name in names:
        power = exponent(columns, name)
        cells = [*_cells(columns, name), "" if power is None else f"{power:.2f}", *_cells(postgresql, name)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(columns: Columns, name: str) -> list[str]:
    return [_number(figures[name]) if name in figures else "" for figures in columns.values()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def chart(columns: Columns) -> str:
    """An image with a line for each operation: milliseconds against messages, both logarithmic."""
    lengths = list(columns)
    values = [figures[name] for figures in columns.values() for name in DRAWN if figures.get(name, 0) > 0]
    decades = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)

    def place(length: int, value: float) -> tuple[float, float]:
        across = math.log(length / lengths[0]) / math.log(lengths[-1] / lengths[0]) * (WIDTH - LEFT - RIGHT)
        up = (math.log10(value) - decades[0]) / (decades[-1] - decades[0]) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [_text(LEFT, 22, "Milliseconds by the messages of a session", 15)]
    for decade in decades:
        _, y = place(lengths[0], 10.0**decade)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(10, y + 4, f"{10.0**decade:g} ms"))
    labelled = -LABEL
    for length in lengths:
        x, _ = place(length, 1)
        if x - labelled >= LABEL:
            parts.append(_text(x - 16, HEIGHT - 18, f"{length:,}"))
            labelled = x
    for number, name in enumerate(DRAWN):
        points = [place(length, columns[length][name]) for length in lengths if name in columns[length]]
        parts += _line(points, name, number)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _line(points: Sequence[tuple[float, float]], name: str, number: int) -> list[str]:
    colour = COLOURS[number]
    line = " ".join(f"{x},{y}" for x, y in points)
    dots = [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in points]
    label = _text(WIDTH - RIGHT + 16, TOP + 14 + 20 * number, name, 12, colour)
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, label]


def _text(x: float, y: float, text: str, size: int = 11, colour: str = "#222") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
