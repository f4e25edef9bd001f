"""`contextstash demo`: the main job step by step, on a session that ships with contextstash."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, tell
from contextstash.cli.session_commands import read_output

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash_storage.records import Native

MAX_QUOTED_LINES = 20


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
    tell(await stash.record_messages(natives, session_id=SESSION_ID, whole=True, title="Demonstration"))
    view = (await stash.get_context(SESSION_ID)).messages
    _heading("2. Prune: old tool outputs move from the view to the archive")
    pruned = await stash.prune_tool_outputs(SESSION_ID)
    largest = max(pruned.archived, key=lambda output: output.tokens)
    shown = _tool_results((await stash.get_context(SESSION_ID)).messages)
    call_id, placeholder = next(item for item in shown.items() if largest.handle in item[1])
    tell(pruned)
    echo(f"In place of the largest of {len(pruned.archived)} the model now sees:")
    _quote(placeholder)
    _heading("3. Compact: older messages become your words and a summary")
    compacted = await stash.compact_session(SESSION_ID)
    tell(compacted)
    _quote(_text((await stash.get_context(SESSION_ID)).messages[0]["content"]))
    _heading("4. Retrieve: one output, by its handle")
    text = "".join(page.text for page in await read_output(stash, largest.handle))
    same = _sameness(text, _tool_results(natives)[call_id])
    echo(f"{largest.handle}: {len(text):,} characters, and the original: {same}.")
    _heading("5. Restore: everything returns to the view")
    handles = [str(compacted.summary_id), *(output.handle for output in pruned.archived)]
    tell(await stash.restore_outputs(handles, session_id=SESSION_ID))
    echo(f"The view, and that of step 1: {_sameness((await stash.get_context(SESSION_ID)).messages, view)}.")
    history = (await stash.read_messages(SESSION_ID, limit=len(natives) + 1)).messages
    echo(f"The history, and the file: {_sameness([line.message for line in history], natives)}.")


def _tool_results(natives: list[Native]) -> dict[str, str]:
    """The text of each tool result, by the id of its call."""
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    results = [block for content in contents for block in content if block["type"] == "tool_result"]
    return {result["tool_use_id"]: _text(result["content"]) for result in results}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n\n".join(part.get("text", "") for part in content)


def _sameness(one: object, other: object) -> str:
    return "identical" if one == other else "DIFFERENT"


def _heading(text: str) -> None:
    click.secho(f"\n{text}", fg="cyan", bold=True)


def _quote(text: str) -> None:
    """The beginning of a text as the model sees it."""
    lines = text.splitlines()
    for line in lines[:MAX_QUOTED_LINES]:
        echo(f"  │ {line}", dim=True)
    if len(lines) > MAX_QUOTED_LINES:
        echo(f"  … and {len(lines) - MAX_QUOTED_LINES} more lines.")
