"""Prints results: as JSON, or as sentences and tables for a terminal or a pipe. Nothing that a terminal obeys."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from contextstash.display import visible, visible_json
from contextstash.operations import OPERATIONS
from contextstash.safety.sanitize import clip


def in_commands(text: str) -> str:
    """A message that names tools and their arguments, with the commands and options that do the same."""
    words = {name: f"contextstash {each.command}" for name, each in OPERATIONS.items() if each.command is not None}
    arguments = OPERATIONS["prune_tool_outputs"].arguments
    words |= {name: f"--{name.replace('_', '-')}" for name in arguments if name != "session_id"}
    # Whole words: a setting's name may hold that of an argument.
    return re.sub(rf"\b(?:{'|'.join(words)})\b", lambda match: words[match[0]], text)


def for_reader(text: str, *, err: bool = False) -> str:
    """A recorded text as it is printed: on a terminal with its control characters made visible, in a pipe unchanged."""
    return visible(text) if (sys.stderr if err else sys.stdout).isatty() else text


def echo(text: str, *, err: bool = False, dim: bool = False) -> None:
    """Print a text that may hold recorded text: as `for_reader` returns it."""
    click.secho(for_reader(text, err=err), err=err, dim=dim or None)


def tell(result: Any) -> None:
    """Print what the result of an operation says in words."""
    echo(in_commands(result.in_words()))


def echo_json(document: object) -> None:
    """Print a JSON document; results in it have the field names of the tools."""
    text = json.dumps(document, ensure_ascii=False, indent=2, default=lambda result: result.as_json())
    click.echo(visible_json(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Numbers are right-aligned. A terminal cuts the ends of lines; a pipe gets everything."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    listed = [list(row) for row in rows]
    table = [list(columns), *([_cell(cell) for cell in row] for row in listed)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    is_number = [isinstance(cell, int) for cell in listed[0]] if listed else [False] * len(widths)
    for place, row in enumerate(table):
        cells = [
            cell.rjust(wide) if right else cell.ljust(wide)
            for cell, wide, right in zip(row, widths, is_number, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        click.secho(line if width is None else clip(line, width), bold=place == 0 or None)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else for_reader(" ".join(str(value).split()))


def when(moment: str | None) -> str:
    """An ISO 8601 time in this machine's zone: the time of today, the day of this year, or the date."""
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone()
    today = datetime.now(local.tzinfo)
    if local.date() == today.date():
        return local.strftime("%H:%M")
    return local.strftime("%d %b" if local.year == today.year else "%Y-%m-%d")
