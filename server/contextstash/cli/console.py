"""Prints results: as JSON, or as sentences and tables for a terminal or a pipe. Nothing that a terminal obeys."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from contextstash.display.visible_text import visible, visible_json
from contextstash.operations import OPERATIONS

if TYPE_CHECKING:
    from contextstash.result_base import Result

PIPE_WIDTH = 100_000
"""Characters of a table's line in a pipe: more than any has, so that nothing is cut."""


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


def echo(text: str, *, err: bool = False, bold: bool = False, dim: bool = False) -> None:
    """Print a text that may hold recorded text: as `for_reader` returns it."""
    click.secho(for_reader(text, err=err), err=err, bold=bold or None, dim=dim or None)


def say(text: str, *, label: str = "", colour: str | None = None, indent: int = 0, err: bool = False) -> None:
    """Print sentences after a label: on a terminal in lines that end between words, all but the first indented."""
    for line in text.split("\n"):
        if (sys.stderr if err else sys.stdout).isatty():
            wrap = textwrap.TextWrapper(
                shutil.get_terminal_size().columns,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            line = wrap.fill(label + visible(line))[len(label) :]
        click.secho(label, fg=colour, nl=False, err=err)
        click.echo(line, err=err)


def tell(result: Any) -> None:
    """Print what the result of an operation says in words."""
    say(in_commands(result.in_words()))


def echo_json(document: object) -> None:
    """Print a JSON document."""
    click.echo(visible_json(json.dumps(document, ensure_ascii=False, indent=2)))


def print_json(result: Result | Sequence[Result] | object) -> None:
    """Print a result as JSON, with the field names of the tools; or a JSON document as it is."""
    dumped = [each.model_dump(mode="json") if hasattr(each, "model_dump") else each for each in _listed(result)]
    echo_json(dumped if isinstance(result, list) else dumped[0])


def _listed(result: object) -> list[Any]:
    return result if isinstance(result, list) else [result]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Numbers are right-aligned. A terminal cuts the last column; a pipe gets everything."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    widths = [max(cell_len(_cell(cell)) for cell in column) for column in zip(columns, *listed, strict=True)]
    # Only the last column gives way: ids that are cut are of no use.
    widths[-1] = max(1, min(widths[-1], width - sum(each + 2 for each in widths[:-1])))
    for place, wide in enumerate(widths):
        is_number = bool(listed) and isinstance(listed[0][place], int)
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(columns[place], justify=justify, no_wrap=True, overflow="ellipsis", width=wide)
    for row in listed:
        table.add_row(*(Text(_cell(each)) for each in row))
    out = Console(width=width, highlight=False, markup=False)
    with out.capture() as captured:
        out.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else for_reader(" ".join(str(value).split()))


def shortened(text: str, width: int) -> str:
    """A text cut to at most `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def when(moment: str | None, now: datetime | None = None) -> str:
    """An ISO 8601 time in this machine's zone: the time of today, the day of this year, or the date."""
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone()
    today = (now or datetime.now(local.tzinfo)).astimezone(local.tzinfo)
    if local.date() == today.date():
        return local.strftime("%H:%M")
    return local.strftime("%d %b" if local.year == today.year else "%Y-%m-%d")


@contextmanager
def working(what: str | None) -> Iterator[None]:
    """Show on standard error that something is done, if it is a terminal."""
    if what is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
