"""`contextstash show`: an archived output, a summary, or the messages of a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import handles_and_sessions
from contextstash.cli.look.whole_message import message_text, readable_arguments
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import echo, for_reader, print_json, print_table, say
from contextstash.outputs.counts import counted
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.messages.base import Format
    from contextstash.results import ContextStatus, MessageLine, MessagePage, OutputCall, OutputPage, SummaryResult
    from contextstash.stash import Stash

PREVIEW_CHARACTERS = 160
"""Of one message: about a line of a wide terminal."""

PAGE_TOKENS = 8_000
"""Tokens of an output that are read in one call. The text is the same with any value."""


@click.command()
@click.argument("what", metavar="HANDLE|SESSION", shell_complete=handles_and_sessions)
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
def show(
    opener: StashOpener,
    as_json: bool,
    raw: bool,
    what: str,
    session: str | None,
    pattern: str | None,
    call: bool,
    message: int | None,
    first: int,
    limit: int,
) -> None:
    """Print an archived output (out_…), a summary (sum_…), or the messages of a session.

    Example: contextstash show 3f2a --message 196
    """
    if what.startswith("sum_"):
        _show_summary(opener, as_json, raw, what, session)
        return
    if what.startswith("out_"):
        _show_output(opener, as_json, raw, what, pattern, call)
        return

    if message is not None:
        _show_message(opener, as_json, raw, what, message)
    else:
        _show_session(opener, as_json, what, first, limit)


def _show_session(opener: StashOpener, as_json: bool, session: str, first: int, limit: int) -> None:
    from contextstash.messages import get_format

    async def page(stash: Stash) -> tuple[MessagePage, ContextStatus, str]:
        session_id = await find_session(stash, session)
        messages = await stash.read_messages(session_id, first=first, limit=limit)
        return messages, await stash.context_status(session_id), (await stash.read_session(session_id)).format

    messages, status, format_name = opener.run(page)
    if as_json:
        print_json(messages)
        return
    if status.title:
        say(" ".join(status.title.split()))
    echo(status.session_id)
    summarized = f" ({status.messages_summarized:,} summarized)" if status.messages_summarized else ""
    archived = counted(status.outputs_archived, "tool output")
    echo(f"{counted(messages.total, 'message')} in history{summarized}, {archived} archived")
    fmt = get_format(format_name)
    rows = [
        (line.seq, line.role, line.kind, line.tokens, _outputs(line), _preview(line, fmt)) for line in messages.messages
    ]
    print_table(["seq", "role", "kind", "tokens", "output", "message"], rows, less_wanted=["kind", "output"])
    if messages.next_seq is not None:
        echo(f"More: contextstash show {session} --first {messages.next_seq}")
    echo(f"One in full: contextstash show {session} --message {first}", err=True)


def _show_message(opener: StashOpener, as_json: bool, raw: bool, session: str, seq: int) -> None:
    async def read(stash: Stash) -> tuple[MessagePage, str]:
        session_id = await find_session(stash, session)
        page = await stash.read_messages(session_id, first=seq, limit=1)
        return page, (await stash.read_session(session_id)).format

    page, format_name = opener.run(read)
    if not page.messages:
        raise NotFoundError(f"There is no message {seq}: the session has {page.total:,}, from 0 to {page.total - 1:,}.")
    if as_json:
        print_json(page.messages[0])
    else:
        echo(message_text(page.messages[0], format_name), raw=raw)


def _show_summary(opener: StashOpener, as_json: bool, raw: bool, summary_id: str, session: str | None) -> None:
    async def read(stash: Stash) -> SummaryResult:
        session_id = await find_session(stash, session)
        try:
            return await stash.get_summary(session_id, level=summary_id)
        except NotFoundError as error:
            raise NotFoundError(
                f"There is no summary {summary_id}. contextstash status --events SESSION lists them."
            ) from error

    summary = opener.run(read)
    if as_json:
        print_json(summary)
        return
    echo(f"{summary.summary}\n", raw=raw)
    merged = f", merged from {', '.join(summary.merges)}" if summary.merges else ""
    echo(
        f"{counted(summary.messages_summarized, 'message')}, {summary.first_seq} to {summary.last_seq}, in"
        f" {summary.tokens:,} tokens, by {summary.strategy}, level {summary.level}{merged}."
    )
    echo(
        f"The messages: contextstash show {summary.session_id} --first {summary.first_seq}"
        f" --limit {summary.messages_summarized}"
    )


def _show_output(opener: StashOpener, as_json: bool, raw: bool, handle: str, pattern: str | None, call: bool) -> None:
    if call:
        _show_call(opener, as_json, raw, handle)
        return

    async def read(stash: Stash) -> tuple[list[OutputPage], OutputCall | None]:
        return await read_output(stash, handle, pattern), await stash.read_call(handle)

    pages, found = opener.run(read)
    if as_json:
        print_json(pages)
        return
    print_text(pages, pattern, raw=raw)
    # A search also finds what is in the call, which is not part of the output. A pipe gets the output unchanged.
    if found is not None:
        line = f"The output of {found.tool}; the arguments of that call: contextstash show {handle} --call"
        echo(line, dim=True, err=not sys.stdout.isatty())


def _show_call(opener: StashOpener, as_json: bool, raw: bool, handle: str) -> None:
    found = opener.run(lambda stash: stash.read_call(handle))
    if found is None:
        raise NotFoundError(f"The call that {handle} answers was not recorded.")
    if as_json:
        print_json(found)
    else:
        echo(readable_arguments(found.arguments), raw=raw)


async def read_output(
    stash: Stash, handle: str, pattern: str | None = None, max_tokens: int | None = PAGE_TOKENS
) -> list[OutputPage]:
    """All pages of an archived output."""
    pages: list[OutputPage] = []
    while not pages or pages[-1].next_offset is not None:
        offset = pages[-1].next_offset if pages else None
        pages.append(await stash.get_archived_output(handle, offset=offset, pattern=pattern, max_tokens=max_tokens))
    return pages


def print_text(pages: list[OutputPage], pattern: str | None, *, raw: bool = False) -> None:
    """Print the text. A pipe, or a terminal with `raw`, gets it unchanged; a note goes to standard error."""
    text = ("" if pattern is None else "\n").join(page.text for page in pages)
    sys.stdout.write(text if raw else for_reader(text))
    if text and not text.endswith("\n") and (sys.stdout.isatty() or pattern is not None):
        sys.stdout.write("\n")
    if pages[-1].note and len(pages) == 1:
        echo(in_commands(pages[-1].note), err=True)


def _outputs(line: MessageLine) -> str:
    """The handle of the output in a message, and how many more there are."""
    handles = line.handles or []
    return f"{handles[0]} +{len(handles) - 1}" if len(handles) > 1 else "".join(handles)


def _preview(line: MessageLine, fmt: Format) -> str:
    reading = fmt.read(line.message)
    said = [text for block, text in zip(reading.blocks, reading.texts, strict=True) if block.type != "tool_call"]
    return " ".join(" ".join([*said, *(line.calls or ())]).split())[:PREVIEW_CHARACTERS] or "(no text)"
