"""Commands that show sessions: sessions, status, show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from contextstash.cli.console import echo, for_reader, in_commands, print_table, shortened, tell, when
from contextstash.cli.options import SESSION, find_session, stash_command
from contextstash.display.template_filters import project_name
from contextstash.display.visible_text import readable_arguments
from contextstash.outputs.counts import before_and_after, counted
from contextstash.session_names import short_id
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.messages.base import Format
    from contextstash.results import CallUse, ContextStatus, MessageLine, OutputPage, SessionLine
    from contextstash.stash import Stash
    from contextstash_storage.records import Event

NO_SESSIONS = "No sessions yet. Record those of your clients: contextstash import"

PAGE = 200
"""Sessions that are read in one call. The list is the same with any value."""


@stash_command("sessions")
@click.argument("text", required=False)
@click.option("--all", "everything", is_flag=True, help="Also list the sessions of sub-agents; --json always does.")
@click.option("--limit", type=click.IntRange(1, 1_000), metavar="N", default=20, show_default=True)
async def sessions(stash: Stash, text: str | None, everything: bool, limit: int) -> Any:
    """List the sessions, the one with the newest message first; with TEXT, those with it in
    the title or the project's folder."""
    from contextstash.results import SessionList

    everything = everything or bool(click.get_current_context().params["as_json"])

    def is_wanted(line: SessionLine) -> bool:
        is_sub_agent = line.session_id.startswith(f"{line.parent_session_id}.")
        found = f"{line.title or ''}\n{line.project or ''}".casefold()
        return (everything or not is_sub_agent) and (text or "").casefold() in found

    lines: list[SessionLine] = []
    cursor: str | None = None
    while len(lines) <= limit and (page := await stash.recent_sessions(limit=min(PAGE, limit + 1), cursor=cursor)):
        for session, project in zip(page, await stash.projects_of(page), strict=True):
            line = (await stash.line_of(session)).model_copy(update={"project": project})
            lines += [line] * is_wanted(line)
        cursor = page[-1].session_id
    more, lines = len(lines) > limit, lines[:limit]
    names = [await short_id(stash, line.session_id) for line in lines]
    none = "No session matches." if text else NO_SESSIONS
    found = SessionList(sessions=lines, next_cursor=lines[-1].session_id if more else None)
    return found, lambda: _print_sessions(lines, names, none, limit if more else 0)


def _print_sessions(lines: Sequence[SessionLine], names: Sequence[str], none: str, limit: int) -> None:
    if not lines:
        click.echo(none)
    else:
        print_table(["session", "last", "full", "client", "project", "title"], map(_session_row, lines, names))
    if limit:
        click.echo(f"More: contextstash sessions --limit {limit * 2}", err=True)


MAX_PROJECT = 16
"""Characters of a project's name: the title has some 25 then, in a terminal of 80."""


def _session_row(line: SessionLine, name: str) -> tuple[object, ...]:
    return (
        name,
        when(line.last_message_at or line.updated_at),
        f"{line.percent:.0f} %",
        line.agent or "-",
        shortened(project_name(line.project), MAX_PROJECT) if line.project else "-",
        line.title,
    )


EVENTS_PAGE = 500
"""Events that are read in one call. The result is the same with any value."""

MAX_CALLS = 100_000
"""Calls of a session that are summed up: more than any session is expected to have."""


@stash_command("status")
@SESSION
@click.option("--events", is_flag=True, help="What happened to its context: prunes, compactions, recoveries.")
@click.option("--calls", is_flag=True, help="Its model calls: tokens and cost of each.")
@click.option("--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="List the newest N.")
async def status(stash: Stash, session: str | None, events: bool, calls: bool, limit: int) -> Any:
    """Show how full a session's context is, with what, and the next step. [default: the one with the newest message]

    With --events or --calls, list those instead.
    """
    if events and calls:
        raise click.UsageError("Pass --events or --calls, not both.")
    session_id = await find_session(stash, session)
    if events:
        return await _events(stash, session_id, limit)
    if calls:
        return await _calls(stash, session_id, limit)
    found = await stash.context_status(session_id)
    return found, lambda: _print_status(found)


def _print_status(found: ContextStatus) -> None:
    _print_title(found)
    tell(found)


def _print_title(found: ContextStatus) -> None:
    if found.title:
        echo(" ".join(found.title.split()))
    echo(found.session_id, dim=True)


async def _events(stash: Stash, session_id: str, limit: int) -> Any:
    """The newest events of a session's context: prunes, compactions, recoveries."""
    found = await stash.read_events(session_id, limit=EVENTS_PAGE)
    while found and (more := await stash.read_events(session_id, after=found[-1].event_id, limit=EVENTS_PAGE)):
        found += more
    # An imported session's events are logged as its file is read: by their times they are in order.
    found = sorted(found, key=lambda event: event.created_at or datetime.min.replace(tzinfo=UTC))[-limit:]

    def show() -> None:
        if not found:
            echo(f"No events in session {session_id} yet.")
            return
        print_table(["when", "event", "tokens", "what"], map(_event_row, found))

    return [event.model_dump(mode="json", exclude_none=True) for event in found], show


def _event_row(event: Event) -> tuple[object, ...]:
    at = event.created_at.astimezone().strftime("%Y-%m-%d %H:%M") if event.created_at else ""
    before, after = event.tokens_before, event.tokens_after
    change = f"{before:,}" if before == after else before_and_after(before, after)
    return at, event.kind, change, event.reason


async def _calls(stash: Stash, session_id: str, limit: int) -> Any:
    """The model calls of a session, each with its number in the session in place of that in the database."""
    listed = await stash.list_calls(session_id, limit=MAX_CALLS)
    every = [call.model_copy(update={"call_id": number}) for number, call in enumerate(listed.calls, start=1)]
    return listed.model_copy(update={"calls": every[-limit:]}), lambda: _print_calls(session_id, every, limit)


def _print_calls(session_id: str, every: Sequence[CallUse], limit: int) -> None:
    if not every:
        what = "a call is a recorded reply with the usage that its provider reported."
        echo(f"No model calls in session {session_id} yet: {what}")
        return
    print_table(["call", "who", "prompt", "cached", "reply", "cost", "model"], map(_call_row, every[-limit:]))
    if limit < len(every):
        echo(f"The newest {limit} are shown; --limit shows more. Total of all calls:")
    known = [line.cost for line in every if line.cost is not None]
    cost = f", {sum(known):.4f} US dollars" if known else ""
    unknown = f" ({len(every) - len(known)} of unknown price)" if known and len(known) < len(every) else ""
    prompt = sum(line.prompt_tokens for line in every)
    echo(f"{counted(len(every), 'call')}, {prompt:,} prompt tokens{cost}{unknown}.")


def _call_row(line: CallUse) -> tuple[object, ...]:
    cost = "" if line.cost is None else f"{line.cost:.4f}"
    counts = (line.prompt_tokens, line.cached_tokens, line.completion_tokens)
    return line.call_id, line.purpose, *counts, cost, line.error or line.model or ""


PREVIEW_CHARACTERS = 160
"""Of one message: about a line of a wide terminal."""

PAGE_TOKENS = 8_000
"""Tokens of an output that are read in one call. The text is the same with any value."""


HANDLES: dict[str, set[str]] = {"out_": {"pattern", "call"}, "sum_": set(), "": {"message", "first", "limit"}}
"""The options of `show` that apply to an output, a summary and a session."""


@stash_command("show", epilog="Example: contextstash show 3f2a --message 196")
@click.argument("what", metavar="HANDLE|SESSION", required=False)
@click.option("--pattern", help="Print only the lines of an output that match this regular expression.")
@click.option("--call", is_flag=True, help="Print the arguments of the call that an output answers.")
@click.option("--message", type=click.IntRange(0), metavar="N", help="Print message N of a session in full.")
@click.option("--first", type=click.IntRange(0), default=0, metavar="N", help="List a session from message N on.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, metavar="N", show_default=True, help="List at most N messages."
)
async def show(stash: Stash, what: str | None, **given: Any) -> Any:
    """Print an archived output (out_…), a summary (sum_…), or the messages of a session. [default: the newest] In a
    pipe they are as they were recorded; a terminal gets nothing that it would obey."""
    kind = what[:4] if what and what[:4] in HANDLES else ""
    context = click.get_current_context()
    if given["pattern"] and given["call"]:
        raise click.UsageError("Pass --pattern or --call, not both.")
    for name in sorted(set().union(*HANDLES.values()) - HANDLES[kind]):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} does not apply to {what or 'a session'}.")
    if what is not None and kind == "sum_":
        return await _summary(stash, what)
    if what is not None and kind == "out_":
        return await (_call(stash, what) if given["call"] else _output(stash, what, given["pattern"]))
    session_id = await find_session(stash, what)
    if given["message"] is not None:
        return await _message(stash, session_id, given["message"])
    return await _messages(stash, session_id, given["first"], given["limit"])


async def _messages(stash: Stash, session_id: str, first: int, limit: int) -> Any:
    from contextstash.messages import get_format

    messages = await stash.read_messages(session_id, first=first, limit=limit)
    found = await stash.context_status(session_id)
    fmt, name = get_format((await stash.read_session(session_id)).format), await short_id(stash, session_id)

    def show() -> None:
        _print_title(found)
        summarized = f" ({found.messages_summarized:,} summarized)" if found.messages_summarized else ""
        archived = counted(found.outputs_archived, "tool output")
        echo(f"{counted(messages.total, 'message')} in history{summarized}, {archived} archived")
        rows = [(each.seq, each.role, each.tokens, *_pieces(each, fmt)) for each in messages.messages]
        print_table(["seq", "role", "tokens", "output", "message"], rows)
        if messages.next_seq is not None:
            echo(f"More: contextstash show {name} --first {messages.next_seq}")
        echo(f"One in full: contextstash show {name} --message {first}", err=True)

    return messages, show


def _pieces(line: MessageLine, fmt: Format) -> tuple[str, str]:
    """The handle of the output in a message, and how many more there are; the beginning of its text and calls."""
    handles = line.handles or []
    output = f"{handles[0]} +{len(handles) - 1}" if len(handles) > 1 else "".join(handles)
    reading = fmt.read(line.message)
    said = ["[archived]"] * (line.kind == "tool_result_archived")
    said += [text for block, text in zip(reading.blocks, reading.texts, strict=True) if block.type != "tool_call"]
    return output, " ".join(" ".join([*said, *(line.calls or ())]).split())[:PREVIEW_CHARACTERS] or "(no text)"


async def _message(stash: Stash, session_id: str, seq: int) -> Any:
    page = await stash.read_messages(session_id, first=seq, limit=1)
    if not page.messages:
        raise NotFoundError(f"There is no message {seq}: the session has {page.total:,}, from 0 to {page.total - 1:,}.")
    text = _whole(page.messages[0], (await stash.read_session(session_id)).format)
    return page.messages[0], lambda: echo(text)


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


async def _summary(stash: Stash, summary_id: str) -> Any:
    try:
        summary = await stash.get_summary(await find_session(stash, None), level=summary_id)
    except NotFoundError as error:
        raise NotFoundError(
            f"There is no summary {summary_id}. contextstash status --events SESSION lists them."
        ) from error

    def show() -> None:
        echo(f"{summary.summary}\n")
        tell(summary)
        covered = f"--first {summary.first_seq} --limit {summary.messages_summarized}"
        echo(f"The messages: contextstash show {summary.session_id} {covered}")

    return summary, show


async def _call(stash: Stash, handle: str) -> Any:
    found = await stash.read_call(handle)
    if found is None:
        raise NotFoundError(f"The call that {handle} answers was not recorded.")
    return found, lambda: echo(readable_arguments(found.arguments))


async def _output(stash: Stash, handle: str, pattern: str | None) -> Any:
    """An output. A pipe gets it unchanged, also what a terminal would obey; notes go to standard error."""
    pages = await read_output(stash, handle, pattern)
    call = await stash.read_call(handle)

    def show() -> None:
        text = ("" if pattern is None else "\n").join(page.text for page in pages)
        sys.stdout.write(for_reader(text))
        if text and not text.endswith("\n") and (sys.stdout.isatty() or pattern is not None):
            sys.stdout.write("\n")
        if pages[-1].note and len(pages) == 1:
            echo(in_commands(pages[-1].note), err=True)
        if call is not None:  # a search also finds what is in the call, which is not part of the output
            line = f"The output of {call.tool}; the arguments of that call: contextstash show {handle} --call"
            echo(line, dim=True, err=not sys.stdout.isatty())

    return pages, show


async def read_output(
    stash: Stash, handle: str, pattern: str | None = None, max_tokens: int | None = PAGE_TOKENS
) -> list[OutputPage]:
    """All pages of an archived output."""
    pages: list[OutputPage] = []
    while not pages or pages[-1].next_offset is not None:
        offset = pages[-1].next_offset if pages else None
        pages.append(await stash.get_archived_output(handle, offset=offset, pattern=pattern, max_tokens=max_tokens))
    return pages
