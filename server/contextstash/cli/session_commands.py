"""Commands that look at sessions: sessions, status, show, search, receipt, advise."""

from __future__ import annotations

import sys
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, for_reader, in_commands, print_table, tell, when
from contextstash.cli.options import SESSION, Number, day, find_session, stash_command
from contextstash.display import project_name, readable_arguments
from contextstash.safety.sanitize import amount, clip, counted
from contextstash_storage.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from contextstash.results import MessageLine, OutputPage, Receipt, ShownBlock, WindowAdvice
    from contextstash.stash import Stash

NO_SESSIONS = "No sessions yet. Record those of your clients: contextstash import"


@stash_command("sessions")
@click.argument("text", required=False)
@click.option("--all", "everything", is_flag=True, help="Also list the sessions of sub-agents; --json always does.")
@click.option("--limit", type=Number(1), metavar="N", default=20, show_default=True)
async def sessions(stash: Stash, text: str | None, everything: bool, limit: int) -> Any:
    """List the sessions, the one with the newest message first; with TEXT, those with it in
    the id, the title or the project's folder."""
    everything = everything or bool(click.get_current_context().params["as_json"])
    found = await stash.list_sessions(limit=limit, text=text or "", sub_agents=everything)
    rows = [
        (
            await stash.short_id(line.session_id),
            when(line.last_message_at or line.updated_at),
            f"{line.percent:.0f} %",
            line.agent or "-",
            clip(project_name(line.project), MAX_PROJECT) or "-",
            line.title,
        )
        for line in found.sessions
    ]

    def show() -> None:
        if not rows:
            click.echo("No session matches." if text else NO_SESSIONS)
            return
        print_table(["session", "last", "full", "client", "project", "title"], rows)
        if found.next_cursor:
            click.echo(f"More: the same command with --limit {limit * 2}", err=True)

    return found, show


MAX_PROJECT = 16
"""Characters of a project's name: the title has some 25 then, in a terminal of 80."""


@stash_command("status")
@SESSION
async def status(stash: Stash, session: str | None) -> Any:
    """Show how full a session's context is, with what, the next step, and its last changes. [default: the one with the
    newest message]"""
    found = await stash.context_status(await find_session(stash, session))
    changes = [
        (when(each.created_at), each.kind, f"{each.tokens_before:,} → {each.tokens_after:,}", each.reason)
        for each in found.changes
    ]

    def show() -> None:
        tell(found)
        if changes:
            print_table(["when", "change", "tokens", "what"], changes)

    return found, show


PREVIEW_CHARACTERS = 160
"""Of one message: about a line of a wide terminal."""

PAGE_MESSAGES = 50
"""Messages that are listed at a time."""

PAGE_TOKENS = 8_000
"""Tokens of an output that are read in one call. The text is the same with any value."""


@stash_command("show", epilog="Example: contextstash show 3f2a --message 196")
@click.argument("what", metavar="[HANDLE|SESSION]", required=False)
@click.option("--pattern", help="Print only the lines of an output that match this regular expression.")
@click.option("--message", type=Number(0), metavar="N", help="Print message N of a session in full.")
@click.option("--first", type=Number(0), default=0, metavar="N", help="List a session from message N on.")
async def show(stash: Stash, what: str | None, pattern: str | None, message: int | None, first: int) -> Any:
    """Print an archived output (out_…), a summary (sum_…), or the messages of a session. [default: the newest] In a
    pipe they are as they were recorded; a terminal gets nothing that it would obey."""
    if what is not None and what.startswith("out_"):
        return await _output(stash, what, pattern)
    if pattern is not None:
        raise BadInputError(
            "--pattern is for an output (out_…). In a session: contextstash search --session SESSION WORDS"
        )
    if what is not None and what.startswith("sum_"):
        return await _summary(stash, what)
    session_id = await find_session(stash, what)
    return await (_messages(stash, session_id, first) if message is None else _message(stash, session_id, message))


async def _messages(stash: Stash, session_id: str, first: int) -> Any:
    """A list of messages; as JSON in their provider's own form."""
    page = await stash.read_messages(session_id, first=first, limit=PAGE_MESSAGES, shown=True)
    name, title = await stash.short_id(session_id), (await stash.line_of(await stash.read_session(session_id))).title

    def show() -> None:
        echo("\n".join([*filter(None, (title, session_id)), f"{counted(page.total, 'message')}."]))
        rows = [(each.seq, each.role, each.tokens, *_pieces(each)) for each in page.messages]
        print_table(["seq", "role", "tokens", "output", "message"], rows)
        if page.next_seq is not None:
            echo(f"More: contextstash show {name} --first {page.next_seq}")
        if page.messages:
            echo(f"One in full: contextstash show {name} --message {first}", err=True)

    return await stash.read_messages(session_id, first=first, limit=PAGE_MESSAGES), show


def _pieces(message: MessageLine) -> tuple[str, str]:
    """The handle of the output in a message, and how many more there are; the beginning of its text and calls."""
    handles, blocks = message.handles or [], message.blocks or []
    output = f"{handles[0]} +{len(handles) - 1}" if len(handles) > 1 else "".join(handles)
    said = ["[archived]"] * any(block.state == "archive" for block in blocks)
    said += [f"{each.tool} {each.argument or ''}" if each.type == "tool_call" else each.text for each in blocks]
    return output, clip(" ".join(" ".join(said).split()), PREVIEW_CHARACTERS) or "(no text)"


async def _message(stash: Stash, session_id: str, seq: int) -> Any:
    page = await stash.read_messages(session_id, first=seq, limit=1, shown=True)
    if not page.messages:
        raise NotFoundError(f"There is no message {seq}: the session has {page.total:,}, the first is 0.")
    [message] = page.messages
    time = datetime.fromisoformat(message.created_at).astimezone()
    head = f"message {seq}, {message.role}, {time:%Y-%m-%d %H:%M}, {message.tokens:,} tokens"
    [native] = (await stash.read_messages(session_id, first=seq, limit=1)).messages
    return native, lambda: echo("\n\n".join([head, *map(_whole, message.blocks or ())]))


def _whole(block: ShownBlock) -> str:
    """A block under its label: a call with its arguments, a result with its handle."""
    if block.type == "text":
        return block.text
    if block.type == "tool_call":
        return f"[calls {block.tool}]\n{readable_arguments(block.text)}"
    result = ", ".join(filter(None, ("result", block.handle)))
    return f"[{result if block.type == 'tool_result' else block.type}]\n{block.text}".rstrip("\n")


async def _summary(stash: Stash, summary_id: str) -> Any:
    try:
        summary = await stash.get_summary(await find_session(stash, None), level=summary_id)
    except NotFoundError as error:
        raise NotFoundError(
            f"There is no summary {summary_id}. contextstash status SESSION names the last one."
        ) from error

    def show() -> None:
        echo(f"{summary.summary}\n")
        tell(summary)
        echo(f"The messages: contextstash show {summary.session_id} --first {summary.first_seq}")

    return summary, show


async def _output(stash: Stash, handle: str, pattern: str | None) -> Any:
    """An output. A pipe gets it unchanged, also what a terminal would obey; notes go to standard error."""
    from contextstash.record.output_archive import OUTPUTS_SUFFIX

    pages = await read_output(stash, handle, pattern)
    session_id, output = await stash.find_output(handle)

    def show() -> None:
        text = ("" if pattern is None else "\n").join(page.text for page in pages)
        sys.stdout.write(for_reader(text))
        if text and not text.endswith("\n") and (sys.stdout.isatty() or pattern is not None):
            sys.stdout.write("\n")
        if pages[-1].note and len(pages) == 1:
            echo(in_commands(pages[-1].note), err=True)
        if not session_id.endswith(OUTPUTS_SUFFIX):  # a search also finds what is in the call, not part of the output
            line = f"Below its call: contextstash show {session_id} --first {max(0, output.seq - 9)}"
            echo(line, dim=True, err=not sys.stdout.isatty())

    return pages, show


async def read_output(stash: Stash, handle: str, pattern: str | None = None) -> list[OutputPage]:
    """All pages of an archived output."""

    pages: list[OutputPage] = []
    while not pages or pages[-1].next_offset is not None:
        offset = pages[-1].next_offset if pages else None
        pages.append(await stash.get_archived_output(handle, offset=offset, pattern=pattern, max_tokens=PAGE_TOKENS))
    return pages


MAX_TITLE_CHARACTERS = 60
"""Characters of a session's title above its hit: leaves room for the rest of the line in 80 columns."""


@stash_command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--session", help="Search only this session. [default: all sessions]")
@click.option("--limit", type=Number(1, 50), metavar="N", default=10, show_default=True)
async def search(stash: Stash, words: tuple[str, ...], session: str | None, **filters: Any) -> Any:
    """Search everything that was recorded, for whole words; texts with all of them come first."""
    from contextstash.record.output_archive import OUTPUTS_SUFFIX

    found = await stash.search_history(
        " ".join(words),
        session_id=None if session is None else await find_session(stash, session),
        unseen_first=False,
        **filters,
    )
    origins = [await _origin(stash, hit.session_id.removesuffix(OUTPUTS_SUFFIX)) for hit in found.hits]
    is_filled = bool((await stash.list_sessions(limit=1)).sessions)

    def show() -> None:
        """Each hit: where it is, the piece that matches, and the command that shows it whole."""
        for hit, (title, short) in zip(found.hits, origins, strict=True):
            heading = f"{hit.tool or hit.role}  {when(hit.created_at.isoformat())}  {title}{short}".rstrip()
            click.echo(f"{click.style(hit.handle or f'message {hit.seq}', bold=True)}  {for_reader(heading)}")
            echo(f"  {hit.snippet}")
            if not hit.matched:
                click.secho("  (none of the words is here: the call, or the messages next to it, have them)", dim=True)
            echo(f"  in full: contextstash show {hit.handle or f'{short} --message {hit.seq}'}", dim=True)
        if found.note:
            echo(in_commands(found.note) if is_filled else NO_SESSIONS, err=True)

    return found, show


async def _origin(stash: Stash, session_id: str) -> tuple[str, str]:
    """The session of a hit, as a person knows it: its title, and the id for the next command."""
    from contextstash.queries.sessions import title_of

    try:
        title = await title_of(stash, await stash.read_session(session_id))
    except NotFoundError:  # only its outputs are stored
        return "", session_id
    return f"“{clip(title, MAX_TITLE_CHARACTERS)}”  " if title else "", await stash.short_id(session_id)


@stash_command("receipt")
@SESSION
@click.option("--since", type=day, metavar="TIME", help="From this day on (UTC), such as 7d or 2026-05-31.")
async def receipt(stash: Stash, session: str | None, since: date | None) -> Any:
    """Say what the provider billed for SESSION with its sub-agents, or for all sessions, and what it would have billed
    without contextstash. What contextstash cost is in it: the cache written again, its own tools, what they
    fetched."""
    result = await stash.receipt(None if session is None else await find_session(stash, session), since)
    return result, lambda: _print_receipt(result)


def _print_receipt(result: Receipt) -> None:
    from contextstash.results import bill_line

    if not result.requests:
        when = f" since {result.since}" if result.since else ""
        echo(f"No request whose usage was reported{when}. contextstash run CLIENT records them as they are made.")
        return
    if result.dollars_billed is not None and result.dollars_saved is not None:
        click.echo(bill_line(result.dollars_billed, result.dollars_saved))
    since = f" since {result.since} (UTC)" if result.since else ""
    unchanged = f" ({result.unchanged_sessions:,} without the proxy, unchanged)" if result.unchanged_sessions else ""
    click.echo(f"{counted(result.sessions, 'session')}{unchanged}, {counted(result.requests, 'request')}{since}:")
    billed, without = amount(result.tokens_billed), amount(result.tokens_without)
    click.echo(f"{billed} prompt tokens billed, about {without} without contextstash.")
    echo(result.method)
    if result.unpriced_requests:
        click.echo(f"The price of {counted(result.unpriced_requests, 'request')} is not known: not in the dollars.")
    if result.unchanged_sessions == result.sessions:
        echo(
            "Nothing could be saved in them: they were recorded later. contextstash run CLIENT keeps its window small."
        )


NOTHING = (
    "No session can be replayed: that takes 30 calls with the usage that the provider reported, and a model whose price"
    " is known. contextstash import records the sessions that clients have written to disk."
)

METHOD = (
    "Input at list prices, as reported by the provider. Each compaction is charged with the client's summary, a new"
    " window that the cache has not seen, a hand-off, and what agents read again. Held: of the replies, those for which"
    " the new window with its hand-off, or one search, had all that they used; measured on 13 other sessions, not on"
    " yours."
)


@stash_command("advise")
@click.argument("session", nargs=-1)
async def advise(stash: Stash, session: tuple[str, ...]) -> Any:
    """Compare what your newest sessions, or these, would have cost if their clients had compacted earlier: a smaller
    window is cheaper and compacts more often. Set it with contextstash run --window."""
    result = await stash.advise([await find_session(stash, name) for name in session])
    return result, lambda: _print_advice(result)


def _print_advice(result: WindowAdvice) -> None:
    if not result.conversations:
        echo(NOTHING)
        return
    left_out = f" ({result.left_out:,} left out: short, or of unknown price)" if result.left_out else ""
    which = f"{counted(result.conversations, 'session')}{left_out}, {counted(result.requests, 'request')}"
    echo(f"{which}: {result.dollars:,.2f} US dollars for input as recorded.")
    rows = [
        (
            amount(window.compaction_point),
            f"{window.dollars:,.2f}",
            f"{window.cost_percent:.0f} %",
            f"{100 - window.lacking_percent:.0f} %",
        )
        for window in result.windows
    ]
    print_table(["compacts at", "input cost", "of recorded", "held"], rows)
    echo(f"{METHOD}\n{result.in_words()}")
