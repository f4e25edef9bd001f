"""`contextstash events`: what happened to a session's context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import dollars, echo, echo_json, print_table, seconds
from contextstash.context.text.counts import before_and_after, counted

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash_storage.records import Event

TOGETHER_SECONDS = 2.0
"""Prunes with less time between them were made for one request. A request's prunes take milliseconds, and the
next request comes after the model's reply. If it is wrong, the list is longer or shorter by a line."""

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
        rows = [_event_row(event) for event in _together(found)]
        columns = ["when", "event", "tokens", "messages", "took", "cost", "what"]
        print_table(columns, rows, less_wanted=["cost", "took", "messages", "tokens"])


def _together(found: Sequence[Event]) -> Iterator[Event]:
    """The events; prunes that follow each other without a pause are one, as they were made for one request."""
    groups: list[list[Event]] = []
    for event in found:
        if groups and _is_same_request(groups[-1][-1], event):
            groups[-1].append(event)
        else:
            groups.append([event])
    for group in groups:
        first, last = group[0], group[-1]
        together = {
            "tokens_before": first.tokens_before,
            "messages_before": first.messages_before,
            "duration_ms": sum(each.duration_ms for each in group),
            "reason": f"{counted(len(group), 'prune')}; the last: {last.reason}",
        }
        yield last if len(group) == 1 else last.model_copy(update=together)


def _is_same_request(last: Event, event: Event) -> bool:
    if last.kind != "prune" or event.kind != "prune" or last.created_at is None or event.created_at is None:
        return False
    return (event.created_at - last.created_at).total_seconds() <= TOGETHER_SECONDS


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
