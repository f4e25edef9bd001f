"""`contextstash clip`: a pipe's text within limits, with the whole of it in the archive."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.options import DATABASE, PRESET, SET, settings_from
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.service.results import LimitedOutput

MAX_READ = 32 * 1024 * 1024
"""Bytes of a text that is clipped at most: to archive one takes ten to twenty-five times its size in memory. A longer
one goes through as it is."""

BUSY_SECONDS = 3.0
"""How long to wait for another process that writes to the archive."""

CUTS = ("head", "head_tail", "middle", "smart")

_LIMIT = click.IntRange(min=0)


@dataclass(frozen=True)
class Clipping:
    """What a pipe's text is to become. `limits` are those of the command line."""

    limits: dict[str, Any]
    tool: str
    argument: str
    session: str | None
    archive: bool
    database: Path | None
    preset: str | None
    given: tuple[str, ...]


class _Cut(click.Choice[str]):
    """A way to cut, by its name or by what it was called before."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from contextstash.context.window.settings import current_value

        return super().convert(current_value("output_cut", value), param, ctx)


@click.command(epilog="Example: make test 2>&1 | contextstash clip --tokens 2000")
@click.option("--lines", type=_LIMIT, help="Most lines.")
@click.option("--chars", type=_LIMIT, help="Most characters.")
@click.option("--bytes", "size", type=_LIMIT, help="Most UTF-8 bytes.")
@click.option("--tokens", type=_LIMIT, help="Most tokens.")
@click.option("--cut", type=_Cut(CUTS), help="What is shown of a longer text; smart: ends and errors.")
@click.option("--spill", type=_LIMIT, help="Above so many characters only a preview is shown.")
@click.option("--tool", default="clip", metavar="NAME", help="Under what name the whole is archived.")
@click.option("--argument", default="", metavar="TEXT", help="What was run, for the archive.")
@click.option("--session", metavar="ID", help="The session that it belongs to, whose limits count.")
@click.option("--archive/--no-archive", default=True, help="Whether the whole is kept.  [default: archive]")
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
    db: Path | None,
    **others: Any,
) -> None:
    """Show a pipe's text within limits; the whole goes to the archive, under the handle in the notice.

    Without options the limits are those of the settings; 0 lifts one. A text that cannot be archived goes through
    uncut, with a line on standard error.
    """
    if sys.stdin.isatty():
        raise click.UsageError("clip reads a pipe, as in: make test 2>&1 | contextstash clip")
    numbers = {"lines": lines, "chars": chars, "bytes": size, "tokens": tokens, "spill_chars": spill}
    limits: dict[str, Any] = {name: number or None for name, number in numbers.items() if number is not None}
    if cut is not None:
        limits["cut"] = cut
    _clip_pipe(Clipping(limits=limits, database=db, **others))


def _clip_pipe(clipping: Clipping) -> None:
    data = sys.stdin.buffer.read(MAX_READ + 1)
    if len(data) > MAX_READ:
        _warn(f"more than {MAX_READ // 1024**2} MiB; write such output to a file and look into that")
        sys.stdout.buffer.write(data)
        shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
        return
    sys.stdout.buffer.write(_clipped(data, clipping))


def _clipped(data: bytes, clipping: Clipping) -> bytes:
    """What to print; the data as they are if they are within the limits, or if anything at all goes wrong."""
    from contextstash.context.text.sanitize import encodable

    try:
        limited = _limited(data.decode("utf-8", "surrogateescape"), clipping)
    except ContextstashError as error:
        _warn(str(error))
        return data
    except Exception as error:  # whatever it is, the output of somebody's work must not be lost for it
        _warn(f"{type(error).__name__}: {error}")
        return data
    return encodable(limited.text).encode() if limited.cut else data


def _limited(text: str, clipping: Clipping) -> LimitedOutput:
    """The text within limits, without opening the archive if it is not needed."""
    from contextstash.context.tool_outputs.limits import OutputLimits, limit
    from contextstash.context.window.settings import resolve_settings
    from contextstash.context.window.token_counters import counter_for
    from contextstash.service.results import LimitedOutput
    from contextstash.tokenizer import count_with

    layer = settings_from(clipping.preset, clipping.given).settings_layer()
    if clipping.session is None:
        settings = resolve_settings(layer)
        limits = OutputLimits.of(settings).merged(clipping.limits)
        count = counter_for(None, settings, count_with).count
        if limits.holds(text, count):
            return LimitedOutput(text=text, cut=False)
        if not clipping.archive:
            return LimitedOutput(text=limit(text, limits, count).text, cut=True)
    return asyncio.run(_archived(text, clipping, layer))


async def _archived(text: str, clipping: Clipping, layer: dict[str, Any]) -> LimitedOutput:
    from contextstash.hosts.windows import HOST_WINDOWS
    from contextstash.locations import default_database
    from contextstash.service.recording.output_limits import limit_text
    from contextstash.service.session_access import Access
    from contextstash_storage.sqlite import open_sqlite

    store = await open_sqlite(clipping.database or default_database(), busy_seconds=BUSY_SECONDS)
    try:
        return await limit_text(
            Access(store, settings=layer, host_windows=HOST_WINDOWS),
            text,
            tool=clipping.tool,
            argument=clipping.argument,
            session_id=clipping.session,
            limits=clipping.limits,
            keep_whole=clipping.archive,
        )
    finally:
        await store.close()


def _warn(reason: str) -> None:
    click.echo(f"contextstash clip: passed through uncut: {' '.join(reason.split())}", err=True)
