"""`contextstash events`: what happened to a session's context."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import dollars, echo, echo_json, print_table, seconds
from contextstash.cli.scripts.completion import session_ids
from contextstash.context.text.before_and_after import before_and_after

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash_storage.records import Event

PAGE = 500
"""Events that are read in one call. The result is the same with any value."""


@click.command()
@click.argument("session", required=False, shell_complete=session_ids)
@click.option("--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="List the newest N.")
@database_options
def events(opener: StashOpener, as_json: bool, session: str | None, limit: int) -> None:
    """List the events of a session's context: levels crossed, prunes, compactions, recoveries."""

    async def read(stash: Stash) -> tuple[str, list[Event]]:
        session_id = await find_session(stash, session)
        found = await stash.read_events(session_id, limit=PAGE)
        while found and (more := await stash.read_events(session_id, after=found[-1].event_id, limit=PAGE)):
            found += more
        # An imported session's events are logged as its file is read: by their times they are in order.
        found.sort(key=lambda event: event.created_at or datetime.min.replace(tzinfo=UTC))
        return session_id, found[-limit:]

    session_id, found = opener.run(read)
    if as_json:
        echo_json([event.model_dump(mode="json", exclude_none=True) for event in found])
    elif not found:
        echo(f"No events in session {session_id} yet.")
    else:
        rows = [_event_row(event) for event in found]
        columns = ["when", "event", "tokens", "messages", "took", "cost", "what"]
        print_table(columns, rows, less_wanted=["cost", "took", "messages", "tokens"])


def _event_row(event: Event) -> tuple[object, ...]:
    return (
        event.created_at.astimezone().strftime("%Y-%m-%d %H:%M") if event.created_at else "",
        event.kind,
        _change(event.tokens_before, event.tokens_after),
        _change(event.messages_before, event.messages_after),
        seconds(event.duration_ms),
        dollars(event.cost),
        event.reason,
    )


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else before_and_after(before, after)
