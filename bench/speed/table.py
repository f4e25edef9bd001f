"""The figures as a table in Markdown, with growth exponents."""

from __future__ import annotations

import math
from collections.abc import Mapping

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
