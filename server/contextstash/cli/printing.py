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
    """A plain table. Numbers stand right; a column whose name ends in `…` gives way where room is short."""
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[place], int | float) for row in cells)
        flexible = name.endswith("…")
        table.add_column(
            name.rstrip("…"),
            justify="right" if numeric else "left",
            no_wrap=True,
            overflow="ellipsis" if flexible else "fold",
            ratio=1 if flexible else None,
        )
    for row in cells:
        table.add_row(*(Text(_cell(value)) for value in row))
    console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else " ".join(str(value).split())


def level_style(level: str) -> str:
    """The colour of a level."""
    return LEVEL_STYLES.get(level, "")
