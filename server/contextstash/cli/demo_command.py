"""`contextstash demo`: the main job step by step, on a session that ships with contextstash."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, in_commands, say, shortened
from contextstash.cli.session_commands import read_output
from contextstash.outputs.counts import before_and_after, counted

if TYPE_CHECKING:
    from contextstash.results import CompactResult, PruneResult, RestoreResult
    from contextstash.stash import Stash
    from contextstash_storage.records import Native

MAX_LISTED = 6
"""Archived outputs that are named."""

MAX_SUMMARY_LINES = 20

MAX_WIDTH = 110
"""Characters of a line: longer ones are hard to read."""


@click.command()
def demo() -> None:
    """Show what contextstash does, on a session that ships with it: each step is a real call of the service.

    Works in a temporary database; nothing is written elsewhere or sent.
    """
    asyncio.run(_demonstrate())


async def _demonstrate() -> None:
    from contextstash.demo import SETTINGS
    from contextstash.stash import Stash
    from contextstash_storage.sqlite.store import open_sqlite

    _heading("contextstash: what leaves the model's window never leaves the session")
    with tempfile.TemporaryDirectory(prefix="contextstash-demo-") as folder:
        async with Stash(await open_sqlite(Path(folder) / "demo.db"), settings=SETTINGS) as stash:
            await _show_steps(stash)
    echo("\nThis was a temporary database. To use your own sessions: contextstash import")


async def _show_steps(stash: Stash) -> None:
    from contextstash.demo import SESSION_ID, sample_session

    natives = sample_session()
    _heading("1. Record: an agent debugs a small web service")
    recorded = await stash.record_messages(natives, session_id=SESSION_ID, whole=True, title="Demonstration")
    again = await stash.record_messages(natives, session_id=SESSION_ID, whole=True)
    echo(f"{recorded.recorded} messages recorded, {recorded.tokens:,} tokens.")
    echo(f"Recorded a second time: {again.recorded} new, {again.duplicates} duplicates.")
    _heading("2. Estimate: how full is the window?")
    say("\n".join((await stash.estimate_context(SESSION_ID)).lines()))
    view = (await stash.get_context(SESSION_ID)).messages
    pruned = await stash.prune_tool_outputs(SESSION_ID)
    largest = max(pruned.archived, key=lambda output: output.tokens)
    shown = _tool_results((await stash.get_context(SESSION_ID)).messages)
    call_id, placeholder = next(item for item in shown.items() if largest.handle in item[1])
    _show_pruned(pruned, placeholder)
    compacted = await stash.compact_session(SESSION_ID)
    seen = (await stash.get_context(SESSION_ID)).messages
    _heading(f"4. Compact: older messages become your words and a summary ({compacted.strategy} writer)")
    _quote(_text(seen[0]["content"]), MAX_SUMMARY_LINES)
    echo(_changed(compacted), bold=True)
    echo(f"The model now gets {len(seen)} messages.")
    _heading("5. Retrieve: one output, by its handle")
    pages = await read_output(stash, largest.handle, max_tokens=None)
    text, original = "".join(page.text for page in pages), _tool_results(natives)[call_id]
    size = f"{len(text.splitlines()):,} lines in {len(pages)} pages"
    echo(f"get_archived_output {largest.handle} ({largest.tool}): {size}.")
    echo(f"Compared with the original, {len(original.encode()):,} bytes: {_sameness(text == original)}.", bold=True)
    handles = [str(compacted.summary_id), *(output.handle for output in pruned.archived)]
    result = await stash.restore_outputs(handles, session_id=SESSION_ID)
    summaries = sum(each.handle.startswith("sum_") for each in result.restored)
    outputs = counted(len(result.restored) - summaries, "output")
    back = f"{outputs} archived in steps 3 and 4 and the messages behind {counted(summaries, 'summary')}"
    _heading("6. Restore: everything returns to the view")
    say(f"{back} are back in the view. {_change(result)}")
    echo(f"The view, compared with step 1: {_sameness((await stash.get_context(SESSION_ID)).messages == view)}.")
    history = (await stash.read_messages(SESSION_ID, limit=len(natives) + 1)).messages
    echo(f"The history, compared with the file: {_sameness([line.message for line in history] == natives)}.")


def _show_pruned(result: PruneResult, placeholder: str) -> None:
    _heading("3. Prune: old tool outputs move from the view to the archive")
    for output in sorted(result.archived, key=lambda output: -output.tokens)[:MAX_LISTED]:
        digest = " ".join(output.digest.split())
        echo(shortened(f"{output.handle}  {output.tokens:>6,} tokens  {output.tool:<5} {digest}", _width()))
    if len(result.archived) > MAX_LISTED:
        echo(f"… and {len(result.archived) - MAX_LISTED} more.")
    echo("The model now sees a placeholder, for example:")
    _quote(placeholder)
    echo(_changed(result), bold=True)


def _changed(result: PruneResult | CompactResult) -> str:
    return f"{in_commands(result.reason)} {_change(result)}"


def _change(result: PruneResult | CompactResult | RestoreResult) -> str:
    share = 100 * (result.tokens_after - result.tokens_before) / result.tokens_before
    return f"{before_and_after(result.tokens_before, result.tokens_after)} tokens, {share:+.0f} %."


def _tool_results(natives: list[Native]) -> dict[str, str]:
    """The text of each tool result, by the id of its call."""
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    results = [block for content in contents for block in content if block["type"] == "tool_result"]
    return {result["tool_use_id"]: _text(result["content"]) for result in results}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n\n".join(part.get("text", "") for part in content)


def _sameness(same: bool) -> str:
    return "identical" if same else "DIFFERENT"


def _width() -> int:
    if not sys.stdout.isatty():
        return MAX_WIDTH  # whatever width the terminal around the pipe has
    return min(shutil.get_terminal_size((MAX_WIDTH, 24)).columns, MAX_WIDTH)


def _heading(text: str) -> None:
    click.secho(f"\n{text}", fg="cyan", bold=True)


def _quote(text: str, max_lines: int | None = None) -> None:
    """A text as the model sees it, indented and wrapped, at most `max_lines` lines of it."""
    lines = [
        part for line in text.splitlines() for part in textwrap.wrap(line, _width() - 4, subsequent_indent="  ") or [""]
    ]
    for line in lines[:max_lines]:
        echo(f"  │ {line}", dim=True)
    if max_lines is not None and len(lines) > max_lines:
        echo(f"  … and {len(lines) - max_lines} more lines.")
