"""The log of a session: what happened to its context, and its model calls (`status --events` and `--calls`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from contextstash.cli.options import StashOpener, find_session
from contextstash.cli.output import dollars, echo, echo_json, print_json, print_table, seconds
from contextstash.outputs.counts import before_and_after, counted
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.results import CallList, CallUse
    from contextstash.stash import Stash
    from contextstash_storage.records import Event, Native

TOGETHER_SECONDS = 2.0
"""Prunes with less time between them were made for one request. A request's prunes take milliseconds, and the
next request comes after the model's reply. If it is wrong, the list is longer or shorter by a line."""

PAGE = 500
"""Events that are read in one call. The result is the same with any value."""


def print_events(opener: StashOpener, session: str | None, limit: int, *, as_json: bool) -> None:
    """Print the events of a session's context: levels crossed, prunes, compactions, recoveries."""

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


MAX_CALLS = 100_000
"""Calls of a session that are summed up: more than any session is expected to have."""


def print_calls(opener: StashOpener, session: str | None, limit: int, *, as_json: bool) -> None:
    """Print the model calls of a session: the tokens of each, and how the context grew."""

    async def read(stash: Stash) -> tuple[str, CallList]:
        session_id = await find_session(stash, session)
        return session_id, await stash.list_calls(session_id, limit=MAX_CALLS)

    session_id, listed = opener.run(read)
    every = _numbered(listed)
    result = every.model_copy(update={"calls": every.calls[-limit:]})
    if as_json:
        print_json(result)
    elif not result.calls:
        echo(
            f"No model calls in session {session_id} yet: a call is a recorded reply with the usage that its provider"
            " reported."
        )
    else:
        heads = ["call", "who", "model", "prompt", "growth", "cached", "reply", "took", "cost", "error"]
        rows = [_call_row(line) for line in result.calls]
        print_table(heads, rows, less_wanted=["error", "who", "took", "growth", "model"])
        if len(result.calls) < len(every.calls):
            echo(f"The newest {len(result.calls)} are shown; --limit shows more. Total of all calls:")
        echo(_total(every.calls))


def print_request(opener: StashOpener, session: str | None, number: int) -> None:
    """Print the messages of one model call as JSON. Raises NotFoundError if the session has fewer calls."""

    async def request(stash: Stash) -> list[Native]:
        session_id = await find_session(stash, session)
        every = (await stash.list_calls(session_id, limit=MAX_CALLS)).calls
        if number > len(every):
            raise NotFoundError(
                f"There is no call {number}: session {session_id} has {len(every)}."
                " contextstash status --calls lists them."
            )
        return await stash.read_request(session_id, every[number - 1].call_id)

    echo_json(opener.run(request))


def _numbered(listed: CallList) -> CallList:
    """The calls with their numbers in the session instead of those in the database."""
    calls = [call.model_copy(update={"call_id": number}) for number, call in enumerate(listed.calls, start=1)]
    return listed.model_copy(update={"calls": calls})


def _call_row(line: CallUse) -> tuple[object, ...]:
    return (
        line.call_id,
        line.purpose,
        line.model or "",
        line.prompt_tokens,
        "" if line.growth_tokens is None else f"{line.growth_tokens:+,}",
        line.cached_tokens,
        line.completion_tokens,
        seconds(line.duration_ms),
        dollars(line.cost),
        line.error or "",
    )


def _total(lines: list[CallUse]) -> str:
    prompt = sum(line.prompt_tokens for line in lines)
    known = [line.cost for line in lines if line.cost is not None]
    cost = f", {dollars(sum(known))} US dollars" if known else ""
    unknown = f" ({len(lines) - len(known)} of unknown price)" if known and len(known) < len(lines) else ""
    return f"{counted(len(lines), 'call')}, {prompt:,} prompt tokens{cost}{unknown}."
