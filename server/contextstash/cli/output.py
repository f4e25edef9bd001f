"""Prints results: as JSON, or as tables for a terminal or a pipe."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from contextstash.display.visible_text import visible, visible_json
from contextstash.outputs.counts import before_and_after

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from contextstash.result_base import Result

PIPE_WIDTH = 120
"""Characters of a line in a pipe, for texts that wrap. A pipe has no width."""

MAX_LINE_WIDTH = 100_000
"""Characters of a table's line in a pipe: more than any has, so that nothing is cut."""

MIN_WANTED_WIDTH = 28
"""Characters of the last column for which columns that are less wanted are left out: a title needs about as much."""

MIN_LAST_WIDTH = 20
MIN_CELL_WIDTH = 16
"""Characters that a cell keeps when it is cut: 16 hold a whole handle, and enough of an id to name a session."""

LEVEL_STYLES = {"ok": "green", "prune": "yellow", "compact": "yellow", "critical": "red", "overflow": "red"}


def console() -> Console:
    """Standard output; in a pipe without colour and with a fixed width."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False)


def print_plainly(renderable: RenderableType, out: Console) -> None:
    """Print it; in a pipe without the spaces at the ends of lines."""
    if out.is_terminal:
        out.print(renderable)
        return
    with out.capture() as captured:
        out.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show progress and the time elapsed on standard error, if it is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def for_reader(text: str) -> str:
    """A recorded text as it is printed: on a terminal with its control characters made visible, in a pipe unchanged."""
    return visible(text) if sys.stdout.isatty() else text


def echo(text: str, *, err: bool = False, bold: bool = False, dim: bool = False, raw: bool = False) -> None:
    """Print a text that may hold recorded text: as `for_reader` returns it, unless it is to be `raw`."""
    shown = visible(text) if (sys.stderr if err else sys.stdout).isatty() and not raw else text
    click.secho(shown, err=err, bold=bold or None, dim=dim or None)


def say(text: str, *, label: str = "", colour: str | None = None, indent: int = 0, err: bool = False) -> None:
    """Print a sentence after a label: on a terminal in lines that end between words, all but the first indented."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        lines = textwrap.wrap(
            label + visible(text), width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
        text = "\n".join(lines)[len(label) :]
    click.secho(label, fg=colour, nl=False, err=err)
    click.echo(text, err=err)


def echo_json(document: object) -> None:
    """Print a JSON document."""
    click.echo(visible_json(json.dumps(document, ensure_ascii=False, indent=2)))


def print_json(result: Result | Sequence[Result]) -> None:
    """Print a result as JSON, with the field names of the tools."""
    if isinstance(result, Sequence):
        document: object = [item.model_dump(mode="json") for item in result]
    else:
        document = result.model_dump(mode="json")
    echo_json(document)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, less_wanted: Sequence[str] = ()) -> None:
    """Print a plain table. Numbers are right-aligned. A narrow terminal leaves out columns that are `less_wanted`, the
    empty ones and then the first, and cuts texts, the last column first; a pipe gets everything."""
    from rich.cells import cell_len, set_cell_size

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_LINE_WIDTH
    values = [list(row) for row in rows]
    shown = _shown_columns(columns, values, less_wanted, width)
    columns, values = [columns[place] for place in shown], [[row[place] for place in shown] for row in values]
    lines = [list(columns), *([_cell(value) for value in row] for row in values)]
    numbers = [bool(values) and isinstance(value, int) for value in (values or lines)[0]]
    bodies = [max([1, *(cell_len(line[place]) for line in lines[1:])]) for place in range(len(columns))]
    widths = [max(body, cell_len(name)) for body, name in zip(bodies, columns, strict=True)]
    widths = _fitted(widths, bodies, numbers, width - 2 * len(columns) + 2)
    for number, line in enumerate(lines):
        cells = [
            shortened(cell, room).rjust(room) if is_number else set_cell_size(shortened(cell, room), room)
            for cell, room, is_number in zip(line, widths, numbers, strict=True)
        ]
        click.secho("  ".join(cells).rstrip(), bold=number == 0 or None)


def _shown_columns(
    columns: Sequence[str], values: Sequence[Sequence[object]], less_wanted: Sequence[str], width: int
) -> list[int]:
    """The positions of the columns for which there is room if the last one keeps MIN_WANTED_WIDTH."""
    widths = [max([len(name), *(len(_cell(row[place])) for row in values)]) for place, name in enumerate(columns)]
    empty = [name for place, name in enumerate(columns) if not any(row[place] for row in values)]
    shown = list(range(len(columns)))
    for name in sorted(less_wanted, key=lambda name: name not in empty):
        *others, last = (widths[place] + 2 for place in shown)
        if sum(others) + min(last, MIN_WANTED_WIDTH) > width:
            shown.remove(columns.index(name))
    return shown


def _fitted(widths: Sequence[int], bodies: Sequence[int], numbers: Sequence[bool], width: int) -> list[int]:
    """Widths that fit into `width`: the last column shrinks first, then the widest texts of the others, and at last
    their heads, to `bodies`; numbers never do."""
    fitted = list(widths)
    last = len(fitted) - 1
    others = sorted(range(last), key=lambda place: -widths[place])
    texts = [(place, MIN_CELL_WIDTH) for place in others if not numbers[place]]
    heads = [(place, bodies[place]) for place in others]
    for place, least in [(last, MIN_LAST_WIDTH), *texts, *heads, (last, 1)]:
        over = sum(fitted) - width
        if over > 0:
            fitted[place] = max(min(least, fitted[place]), fitted[place] - over)
    return fitted


def shortened(text: str, width: int) -> str:
    """A text cut to at most `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else for_reader(" ".join(str(value).split()))


def level_style(level: str) -> str:
    """The colour of a level."""
    return LEVEL_STYLES.get(level, "")


VIEW = " in contextstash's view, as counted"
"""Whose tokens `prune` and `compact` name: `status` scales them to what the provider reports."""


def change_line(before: int, after: int, of: str = "") -> str:
    """Tokens before and after, and the difference; `of` says whose they are."""
    if before == after:
        return f"{before:,} tokens{of}, unchanged."
    share = f", {100 * (after - before) / before:+.0f} %" if before else ""
    return f"{before_and_after(before, after)} tokens{of}{share}."


def seconds(milliseconds: float | None) -> str:
    """A duration; nothing if it is unknown."""
    if not milliseconds:
        return ""
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 100 else f"{milliseconds:.0f} ms"


def dollars(cost: float | None) -> str:
    """A cost in US dollars; nothing if it is unknown."""
    return "" if cost is None else f"{cost:.4f}"
