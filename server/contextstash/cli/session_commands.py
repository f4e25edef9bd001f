"""Commands that show sessions: sessions, status, show."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from contextstash.base.project_names import project_name
from contextstash.cli.console import echo, echo_json, for_reader, in_commands, print_json, print_table, say, tell, when
from contextstash.cli.options import SESSION, StashOpener, database_options, find_session
from contextstash.clients.projects import deleted_by
from contextstash.outputs.counts import amount, before_and_after, counted
from contextstash.session_names import short_id
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.messages.base import Format
    from contextstash.results import (
        ContextStatus,
        MessageLine,
        OutputPage,
        SessionLine,
        SessionList,
    )
    from contextstash.stash import Stash
    from contextstash_storage.records import Event

PAGE = 200
"""Sessions that are read in one call. The list is the same with any value."""

SORTS: dict[str, Callable[[SessionLine], Any]] = {
    "tokens": lambda line: line.tokens,
    "messages": lambda line: line.messages,
    "full": lambda line: line.percent,
}


@click.command()
@click.argument("text", required=False)
@click.option("--project", metavar="PART", help="Only sessions whose project's folder contains PART.")
@click.option("--agent", metavar="NAME", help="Only sessions of this client or agent.")
@click.option("--sort", type=click.Choice(["time", *SORTS]), default="time", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Also list the sessions of sub-agents.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@database_options
def sessions(opener: StashOpener, as_json: bool, sort: str, everything: bool, limit: int, **parts: str | None) -> None:
    """List the sessions, the one with the newest message first; with TEXT, those with TEXT in the title."""
    from contextstash.automatic_retention import news

    def is_wanted(line: SessionLine) -> bool:
        is_sub_agent = line.session_id.startswith(f"{line.parent_session_id}.")
        found = {"text": line.title, "project": line.project}
        return (
            (everything or as_json or not is_sub_agent)
            and parts["agent"] in (None, line.agent)
            and all((parts[name] or "").casefold() in (value or "").casefold() for name, value in found.items())
        )

    found, names = opener.run(lambda stash: _listed(stash, is_wanted, sort, limit))
    if as_json:
        print_json(found)
        return
    if not found.sessions:
        none = "No session matches." if any(parts.values()) else "No sessions yet. Record one: contextstash import PATH"
        click.echo(none)
    else:
        columns = ["session", "last", "messages", "tokens", "full", "client", "project", "title"]
        rows = map(_session_row, found.sessions, names)
        print_table(columns, rows, less_wanted=["project", "client", "messages", "tokens"])
        if deleted := [line.deleted_by for line in found.sessions if line.deleted_by]:
            what = f"{counted(len(deleted), 'session')} deleted by the client by {max(deleted)}"
            click.echo(f"Marked †: {what}, kept here whole.", err=True)
        if found.next_cursor:
            click.echo(f"More: contextstash sessions --limit {limit * 2}", err=True)
    if said := news(opener.file, is_read=sys.stderr.isatty()):
        click.echo(said, err=True)


async def _listed(
    stash: Stash, is_wanted: Callable[[SessionLine], bool], sort: str, limit: int
) -> tuple[SessionList, list[str]]:
    """The sessions to list, and for each the beginning of its id that is enough for a command."""
    from contextstash.results import SessionList

    found: list[tuple[SessionLine, str | None]] = []
    cursor: str | None = None
    most = limit + 1 if sort == "time" else sys.maxsize
    while len(found) < most and (page := await stash.recent_sessions(limit=min(PAGE, most), cursor=cursor)):
        for session, project in zip(page, await stash.projects_of(page), strict=True):
            line = (await stash.line_of(session)).model_copy(update={"project": project})
            found += [(line, session.source)] * is_wanted(line)
        cursor = page[-1].session_id
    if sort != "time":
        found.sort(key=lambda each: SORTS[sort](each[0]), reverse=True)
    lines = []
    for line, source in found[:limit]:
        day = await asyncio.to_thread(deleted_by, source)
        lines.append(line.model_copy(update={"deleted_by": day and day.isoformat()}))
    names = [await short_id(stash, line.session_id) for line in lines]
    return SessionList(sessions=lines, next_cursor=lines[-1].session_id if len(found) > limit else None), names


def _session_row(line: SessionLine, name: str) -> tuple[object, ...]:
    return (
        name,
        when(line.last_message_at or line.updated_at),
        line.messages,
        amount(line.tokens),
        f"{line.percent:.0f} %",
        line.agent or "-",
        project_name(line.project) if line.project else "-",
        f"{'† ' if line.deleted_by else ''}{line.title or '-'}",
    )


WATCH_SECONDS = 2.0
"""Seconds between two updates of `status --watch`."""


@click.command()
@SESSION
@click.option("--watch", is_flag=True, help="Update until Ctrl-C.")
@click.option("--events", is_flag=True, help="What happened to its context: levels, prunes, compactions, recoveries.")
@click.option("--calls", is_flag=True, help="Its model calls: tokens and cost of each.")
@click.option("--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="List the newest N.")
@click.option("--request", type=click.IntRange(1), metavar="CALL", help="Print this call's messages as JSON.")
@database_options
def status(
    opener: StashOpener,
    as_json: bool,
    session: str | None,
    watch: bool,
    events: bool,
    calls: bool,
    limit: int,
    request: int | None,
) -> None:
    """Show how full a session's context is, with what, and the next step. [default: the one with the newest message]

    With --events or --calls, list those instead.
    """
    if request is not None:
        opener.run(lambda stash: _print_request(stash, session, request))
    elif events:
        opener.run(lambda stash: _print_events(stash, session, limit, as_json=as_json))
    elif calls:
        opener.run(lambda stash: _print_calls(stash, session, limit, as_json=as_json))
    else:
        with suppress(KeyboardInterrupt):
            opener.run(lambda stash: _print_status(stash, session, as_json=as_json, watch=watch))


async def _print_status(stash: Stash, session: str | None, *, as_json: bool, watch: bool) -> None:
    """Print the status once, or until Ctrl-C; if no session is named, each time of the one with the newest message."""
    while True:
        found = await stash.context_status(await find_session(stash, session))
        watch = watch and sys.stdout.isatty() and not as_json
        if watch:
            click.clear()
        if as_json:
            print_json(found)
        else:
            _print_title(found)
            tell(found)
        if not watch:
            return
        await asyncio.sleep(WATCH_SECONDS)


def _print_title(found: ContextStatus) -> None:
    if found.title:
        say(" ".join(found.title.split()))
    echo(found.session_id, dim=True)


EVENTS_PAGE = 500
"""Events that are read in one call. The result is the same with any value."""

MAX_CALLS = 100_000
"""Calls of a session that are summed up: more than any session is expected to have."""


async def _print_events(stash: Stash, session: str | None, limit: int, *, as_json: bool) -> None:
    """Print the events of a session's context: levels crossed, prunes, compactions, recoveries."""
    session_id = await find_session(stash, session)
    found = await stash.read_events(session_id, limit=EVENTS_PAGE)
    while found and (more := await stash.read_events(session_id, after=found[-1].event_id, limit=EVENTS_PAGE)):
        found += more
    # An imported session's events are logged as its file is read: by their times they are in order.
    found.sort(key=lambda event: event.created_at or datetime.min.replace(tzinfo=UTC))
    found = found[-limit:]
    if as_json:
        echo_json([event.model_dump(mode="json", exclude_none=True) for event in found])
    elif not found:
        echo(f"No events in session {session_id} yet.")
    else:
        columns = ["when", "event", "tokens", "messages", "took", "cost", "what"]
        rows = map(_event_row, found)
        print_table(columns, rows, less_wanted=["cost", "took", "messages", "tokens"])


def _event_row(event: Event) -> tuple[object, ...]:
    return (
        event.created_at.astimezone().strftime("%Y-%m-%d %H:%M") if event.created_at else "",
        event.kind,
        _change(event.tokens_before, event.tokens_after),
        _change(event.messages_before, event.messages_after),
        _seconds(event.duration_ms),
        _dollars(event.cost),
        event.reason,
    )


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else before_and_after(before, after)


def _seconds(milliseconds: float | None) -> str:
    if not milliseconds:
        return ""
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 100 else f"{milliseconds:.0f} ms"


def _dollars(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.4f}"


async def _print_calls(stash: Stash, session: str | None, limit: int, *, as_json: bool) -> None:
    """Print the model calls of a session: the tokens of each, and how the context grew. Each has its number in
    the session in place of that in the database."""
    session_id = await find_session(stash, session)
    listed = await stash.list_calls(session_id, limit=MAX_CALLS)
    every = [call.model_copy(update={"call_id": number}) for number, call in enumerate(listed.calls, start=1)]
    if as_json:
        print_json(listed.model_copy(update={"calls": every[-limit:]}))
        return
    if not every:
        what = "a call is a recorded reply with the usage that its provider reported."
        echo(f"No model calls in session {session_id} yet: {what}")
        return
    columns = ["call", "who", "model", "prompt", "growth", "cached", "reply", "took", "cost", "error"]
    rows = [
        (
            line.call_id,
            line.purpose,
            line.model or "",
            line.prompt_tokens,
            "" if line.growth_tokens is None else f"{line.growth_tokens:+,}",
            line.cached_tokens,
            line.completion_tokens,
            _seconds(line.duration_ms),
            _dollars(line.cost),
            line.error or "",
        )
        for line in every[-limit:]
    ]
    print_table(columns, rows, less_wanted=["error", "who", "took", "growth", "model"])
    if len(rows) < len(every):
        echo(f"The newest {len(rows)} are shown; --limit shows more. Total of all calls:")
    known = [line.cost for line in every if line.cost is not None]
    cost = f", {_dollars(sum(known))} US dollars" if known else ""
    unknown = f" ({len(every) - len(known)} of unknown price)" if known and len(known) < len(every) else ""
    prompt = sum(line.prompt_tokens for line in every)
    echo(f"{counted(len(every), 'call')}, {prompt:,} prompt tokens{cost}{unknown}.")


async def _print_request(stash: Stash, session: str | None, number: int) -> None:
    """Print the messages of one model call as JSON. Raises NotFoundError if the session has fewer calls."""
    session_id = await find_session(stash, session)
    every = (await stash.list_calls(session_id, limit=MAX_CALLS)).calls
    if number > len(every):
        raise NotFoundError(
            f"There is no call {number}: session {session_id} has {len(every)}. contextstash status --calls lists them."
        )
    echo_json(await stash.read_request(session_id, every[number - 1].call_id))


PREVIEW_CHARACTERS = 160
"""Of one message: about a line of a wide terminal."""

PAGE_TOKENS = 8_000
"""Tokens of an output that are read in one call. The text is the same with any value."""


@click.command()
@click.argument("what", metavar="HANDLE|SESSION")
@click.option("--session", help="The session of a summary. [default: the one that has it]")
@click.option("--pattern", help="Print only the lines of an output that match this regular expression.")
@click.option("--call", is_flag=True, help="Print the arguments of the call that an output answers.")
@click.option("--message", type=click.IntRange(0), metavar="N", help="Print message N of a session in full.")
@click.option("--first", type=click.IntRange(0), default=0, metavar="N", help="List a session from message N on.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, metavar="N", show_default=True, help="List at most N messages."
)
@click.option("--raw", is_flag=True, help="Print control characters to a terminal too, as they were recorded.")
@database_options
def show(opener: StashOpener, as_json: bool, raw: bool, what: str, **given: Any) -> None:
    """Print an archived output (out_…), a summary (sum_…), or the messages of a session.

    Example: contextstash show 3f2a --message 196
    """
    if what.startswith("sum_"):
        opener.run(lambda stash: _show_summary(stash, what, given["session"], as_json, raw))
    elif what.startswith("out_") and given["call"]:
        opener.run(lambda stash: _show_call(stash, what, as_json, raw))
    elif what.startswith("out_"):
        opener.run(lambda stash: _show_output(stash, what, given["pattern"], as_json, raw))
    elif given["message"] is not None:
        opener.run(lambda stash: _show_message(stash, what, given["message"], as_json, raw))
    else:
        opener.run(lambda stash: _show_messages(stash, what, given["first"], given["limit"], as_json))


async def _show_messages(stash: Stash, session: str, first: int, limit: int, as_json: bool) -> None:
    from contextstash.messages import get_format

    session_id = await find_session(stash, session)
    messages = await stash.read_messages(session_id, first=first, limit=limit)
    if as_json:
        print_json(messages)
        return
    found = await stash.context_status(session_id)
    _print_title(found)
    summarized = f" ({found.messages_summarized:,} summarized)" if found.messages_summarized else ""
    archived = counted(found.outputs_archived, "tool output")
    echo(f"{counted(messages.total, 'message')} in history{summarized}, {archived} archived")
    fmt = get_format((await stash.read_session(session_id)).format)
    rows = [
        (line.seq, line.role, line.kind, line.tokens, _outputs(line), _preview(line, fmt)) for line in messages.messages
    ]
    print_table(["seq", "role", "kind", "tokens", "output", "message"], rows, less_wanted=["kind", "output"])
    if messages.next_seq is not None:
        echo(f"More: contextstash show {session} --first {messages.next_seq}")
    echo(f"One in full: contextstash show {session} --message {first}", err=True)


def _outputs(line: MessageLine) -> str:
    """The handle of the output in a message, and how many more there are."""
    handles = line.handles or []
    return f"{handles[0]} +{len(handles) - 1}" if len(handles) > 1 else "".join(handles)


def _preview(line: MessageLine, fmt: Format) -> str:
    reading = fmt.read(line.message)
    said = [text for block, text in zip(reading.blocks, reading.texts, strict=True) if block.type != "tool_call"]
    return " ".join(" ".join([*said, *(line.calls or ())]).split())[:PREVIEW_CHARACTERS] or "(no text)"


async def _show_message(stash: Stash, session: str, seq: int, as_json: bool, raw: bool) -> None:
    session_id = await find_session(stash, session)
    page = await stash.read_messages(session_id, first=seq, limit=1)
    if not page.messages:
        raise NotFoundError(f"There is no message {seq}: the session has {page.total:,}, from 0 to {page.total - 1:,}.")
    if as_json:
        print_json(page.messages[0])
    else:
        echo(_whole(page.messages[0], (await stash.read_session(session_id)).format), raw=raw)


def _whole(line: MessageLine, format_name: str) -> str:
    """The whole message, under a headline: what was said, calls with their arguments, results with their handles."""
    from contextstash.messages import get_format

    reading = get_format(format_name).read(line.message)
    time = "" if line.created_at is None else f", {line.created_at.astimezone():%Y-%m-%d %H:%M}"
    parts = [f"message {line.seq}, {line.role}{time}, {line.tokens:,} tokens"]
    handles = iter(line.handles or ())
    for block, text in zip(reading.blocks, reading.texts, strict=True):
        label = f"[{block.type}]"
        if block.type == "tool_call":
            label, text = f"[calls {block.tool}]", readable_arguments(text)
        elif block.type == "tool_result":
            label = "[" + ", ".join(filter(None, ("result", next(handles, "")))) + "]"
        parts.append("\n".join(filter(None, ("" if block.type == "text" else label, text))))
    return "\n\n".join(parts)


def readable_arguments(arguments: str) -> str:
    """The arguments of a call: one with a name each, texts with their line breaks."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(parsed, dict):
        return arguments
    return "\n".join(f"{name}: {_value(value)}" for name, value in parsed.items())


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return f"\n{text}" if "\n" in text else text


async def _show_summary(stash: Stash, summary_id: str, session: str | None, as_json: bool, raw: bool) -> None:
    session_id = await find_session(stash, session)
    try:
        summary = await stash.get_summary(session_id, level=summary_id)
    except NotFoundError as error:
        raise NotFoundError(
            f"There is no summary {summary_id}. contextstash status --events SESSION lists them."
        ) from error
    if as_json:
        print_json(summary)
        return
    echo(f"{summary.summary}\n", raw=raw)
    tell(summary)
    covered = f"--first {summary.first_seq} --limit {summary.messages_summarized}"
    echo(f"The messages: contextstash show {summary.session_id} {covered}")


async def _show_call(stash: Stash, handle: str, as_json: bool, raw: bool) -> None:
    found = await stash.read_call(handle)
    if found is None:
        raise NotFoundError(f"The call that {handle} answers was not recorded.")
    if as_json:
        print_json(found)
    else:
        echo(readable_arguments(found.arguments), raw=raw)


async def _show_output(stash: Stash, handle: str, pattern: str | None, as_json: bool, raw: bool) -> None:
    """Print an output. A pipe, or a terminal with `raw`, gets it unchanged; a note goes to standard error."""
    pages = await read_output(stash, handle, pattern)
    if as_json:
        print_json(pages)
        return
    text = ("" if pattern is None else "\n").join(page.text for page in pages)
    sys.stdout.write(text if raw else for_reader(text))
    if text and not text.endswith("\n") and (sys.stdout.isatty() or pattern is not None):
        sys.stdout.write("\n")
    if pages[-1].note and len(pages) == 1:
        echo(in_commands(pages[-1].note), err=True)
    # A search also finds what is in the call, which is not part of the output. A pipe gets the output unchanged.
    if (call := await stash.read_call(handle)) is not None:
        line = f"The output of {call.tool}; the arguments of that call: contextstash show {handle} --call"
        echo(line, dim=True, err=not sys.stdout.isatty())


async def read_output(
    stash: Stash, handle: str, pattern: str | None = None, max_tokens: int | None = PAGE_TOKENS
) -> list[OutputPage]:
    """All pages of an archived output."""
    pages: list[OutputPage] = []
    while not pages or pages[-1].next_offset is not None:
        offset = pages[-1].next_offset if pages else None
        pages.append(await stash.get_archived_output(handle, offset=offset, pattern=pattern, max_tokens=max_tokens))
    return pages
