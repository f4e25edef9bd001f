"""`contextstash clip`: print the text of a pipe within limits, and archive the whole text."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.options import DATABASE, PRESET, SET, settings_from
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.service.limited_output import LimitedOutput
    from contextstash_storage.databases import Location

MAX_READ = 32 * 1024 * 1024
"""Bytes of the longest text that is clipped: archiving a text takes ten to twenty-five times its size in memory. A
longer text is printed unchanged."""

BUSY_SECONDS = 3.0
"""How long to wait for another process that writes to the database. The pipe must not stall for long: then the output
passes uncut."""

CUTS = ("head", "head_tail", "middle", "smart")

_LIMIT = click.IntRange(min=0)


@dataclass(frozen=True)
class ClipOptions:
    """How to clip the text of a pipe. `limits` are those of the command line."""

    limits: dict[str, Any]
    tool: str
    argument: str
    session: str | None
    archive: bool
    database: Location | None
    preset: str | None
    given: tuple[str, ...]


@click.command(epilog="Example: make test 2>&1 | contextstash clip --tokens 2000")
@click.option("--lines", type=_LIMIT, help="Maximum number of lines.")
@click.option("--chars", type=_LIMIT, help="Maximum number of characters.")
@click.option("--bytes", "size", type=_LIMIT, help="Maximum number of UTF-8 bytes.")
@click.option("--tokens", type=_LIMIT, help="Maximum number of tokens.")
@click.option(
    "--cut", type=click.Choice(CUTS), help="Which part of a longer text to show; smart: both ends and the errors."
)
@click.option("--spill", type=_LIMIT, help="Show only a preview of a text with more characters.")
@click.option("--tool", default="clip", metavar="NAME", help="The tool's name in the archive.")
@click.option("--argument", default="", metavar="TEXT", help="The tool's argument in the archive, such as a command.")
@click.option("--session", metavar="ID", help="The session of the text; its limits apply.")
@click.option("--archive/--no-archive", default=True, help="Whether to archive the whole text.  [default: archive]")
@DATABASE
@PRESET
@SET
def clip(
    lines: int | None,
    chars: int | None,
    size: int | None,
    tokens: int | None,
    cut: str | None,
    spill: int | None,
    db: Location | None,
    **others: Any,
) -> None:
    """Print the text of a pipe within limits, and archive the whole text; a notice names its handle.

    Without options the limits of the settings apply; 0 removes a limit. If a text cannot be archived, it is printed
    uncut, with a line on standard error.
    """
    if sys.stdin.isatty():
        raise click.UsageError("clip reads a pipe, as in: make test 2>&1 | contextstash clip")
    numbers = {"lines": lines, "chars": chars, "bytes": size, "tokens": tokens, "spill_chars": spill}
    limits: dict[str, Any] = {name: number or None for name, number in numbers.items() if number is not None}
    if cut is not None:
        limits["cut"] = cut
    _clip_pipe(ClipOptions(limits=limits, database=db, **others))


def _clip_pipe(options: ClipOptions) -> None:
    data = sys.stdin.buffer.read(MAX_READ + 1)
    if len(data) > MAX_READ:
        _warn(f"more than {MAX_READ // 1024**2} MiB; write such output to a file and read parts of it")
        sys.stdout.buffer.write(data)
        shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
        return
    sys.stdout.buffer.write(_clipped(data, options))


def _clipped(data: bytes, options: ClipOptions) -> bytes:
    """The data to print: unchanged if they are within the limits, or if anything fails."""
    from contextstash.context.text.sanitize import encodable

    try:
        limited = _limited(data.decode("utf-8", "surrogateescape"), options)
    except ContextstashError as error:
        _warn(str(error))
        return data
    except Exception as error:  # no failure of contextstash may lose the output of the user's command
        _warn(f"{type(error).__name__}: {error}")
        return data
    return encodable(limited.text).encode() if limited.cut else data


def _limited(text: str, options: ClipOptions) -> LimitedOutput:
    """The text within limits. The database is opened only if it is needed."""
    from contextstash.context.tool_outputs.limits import OutputLimits, limit
    from contextstash.context.window.settings import resolve_settings
    from contextstash.context.window.token_counters import counter_for
    from contextstash.service.limited_output import LimitedOutput
    from contextstash.tokenizer import count_with

    layer = settings_from(options.preset, options.given).settings_layer()
    if options.session is None:
        settings = resolve_settings(layer)
        limits = OutputLimits.of(settings, settings.window_tokens).merged(options.limits)
        count = counter_for(None, settings, count_with).count
        if limits.holds(text, count):
            return LimitedOutput(text=text, cut=False)
        if not options.archive:
            return LimitedOutput(text=limit(text, limits, count).text, cut=True)
    return asyncio.run(_archived(text, options, layer))


async def _archived(text: str, options: ClipOptions, layer: dict[str, Any]) -> LimitedOutput:
    from contextstash.configuration.database import open_database
    from contextstash.hosts.window_sizes import HOST_WINDOWS
    from contextstash.service.recording.output_limits import limit_text
    from contextstash.service.session_access import Access

    async with await open_database(options.database, busy_seconds=BUSY_SECONDS) as store:
        return await limit_text(
            Access(store, settings=layer, host_windows=HOST_WINDOWS),
            text,
            tool=options.tool,
            argument=options.argument,
            session_id=options.session,
            limits=options.limits,
            keep_whole=options.archive,
        )


def _warn(reason: str) -> None:
    click.echo(f"contextstash clip: passed through uncut: {' '.join(reason.split())}", err=True)
