"""How answers are printed: JSON, or short tables that know when they are in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from contextstash.service.results import Result

PIPE_WIDTH = 120

LEVEL_STYLES = {"ok": "green", "prune": "yellow", "compact": "yellow", "critical": "red", "overflow": "red"}


def console() -> Console:
    """Standard output; without colour, and of one width, where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False)


def print_json(result: Result | Sequence[Result]) -> None:
    """The answer with the tools' own field names."""
    if isinstance(result, Sequence):
        document: object = [item.model_dump(mode="json") for item in result]
    else:
        document = result.model_dump(mode="json")
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A plain table. Numbers stand right; on a terminal the last column is cut where room is short, no other is."""
    from rich.text import Text

    out = console()
    values = [list(row) for row in rows]
    lines = [list(columns), *([_cell(value) for value in row] for row in values)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns) - 1)]
    room = max(20, out.width - sum(widths) - 2 * len(widths)) if out.is_terminal else sys.maxsize
    for number, line in enumerate(lines):
        cells = [
            cell.rjust(width) if values and isinstance(values[0][place], int) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=False))
        ]
        text = "  ".join([*cells, shortened(line[-1], room)])
        out.print(Text(text.rstrip()), style="" if number else "bold", soft_wrap=True)


def shortened(text: str, width: int) -> str:
    """At most `width` characters of a text."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else " ".join(str(value).split())


def level_style(level: str) -> str:
    """The colour of a level."""
    return LEVEL_STYLES.get(level, "")
