"""`contextstash calls`: the model calls of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import dollars, echo, echo_json, print_json, print_table, seconds
from contextstash.context.text.counts import counted
from contextstash_storage.errors import NotFoundError

if TYPE_CHECKING:
    from contextstash.service.results import CallLine, CallList
    from contextstash.service.stash import Stash
    from contextstash_storage.records import Native

MAX_CALLS = 100_000
"""Calls of a session that are summed up: more than any session is expected to have."""


@click.command()
@click.argument("session", required=False, shell_complete=session_ids)
@click.option("--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="List the newest N.")
@click.option(
    "--request", "call_id", type=click.IntRange(1), metavar="CALL", help="Print this call's messages as JSON."
)
@database_options
def calls(opener: StashOpener, as_json: bool, session: str | None, limit: int, call_id: int | None) -> None:
    """List the model calls of a session: tokens and bytes of each, and how the context grew."""
    if call_id is not None:
        wanted = call_id

        async def request(stash: Stash) -> list[Native]:
            session_id = await find_session(stash, session)
            every = (await stash.list_calls(session_id, limit=MAX_CALLS)).calls
            if wanted > len(every):
                raise NotFoundError(
                    f"There is no call {wanted}: session {session_id} has {len(every)}. contextstash calls lists them."
                )
            return await stash.read_request(session_id, every[wanted - 1].call_id)

        echo_json(opener.run(request))
        return

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
        heads = ["call", "who", "model", "prompt", "growth", "cached", "reply", "bytes", "took", "cost", "error"]
        rows = [_call_row(line) for line in result.calls]
        print_table(heads, rows, less_wanted=["error", "bytes", "who", "took", "growth", "model"])
        if len(result.calls) < len(every.calls):
            echo(f"The newest {len(result.calls)} are shown; --limit shows more. Total of all calls:")
        echo(_total(every.calls))


def _numbered(listed: CallList) -> CallList:
    """The calls with their numbers in the session instead of those in the database."""
    calls = [call.model_copy(update={"call_id": number}) for number, call in enumerate(listed.calls, start=1)]
    return listed.model_copy(update={"calls": calls})


def _call_row(line: CallLine) -> tuple[object, ...]:
    return (
        line.call_id,
        line.purpose,
        line.model or "",
        line.prompt_tokens,
        "" if line.growth_tokens is None else f"{line.growth_tokens:+,}",
        line.cached_tokens,
        line.completion_tokens,
        line.request_bytes,
        seconds(line.duration_ms),
        dollars(line.cost),
        line.error or "",
    )


def _total(lines: list[CallLine]) -> str:
    prompt = sum(line.prompt_tokens for line in lines)
    known = [line.cost for line in lines if line.cost is not None]
    cost = f", {dollars(sum(known))} US dollars" if known else ""
    unknown = f" ({len(lines) - len(known)} of unknown price)" if known and len(known) < len(lines) else ""
    return f"{counted(len(lines), 'call')}, {prompt:,} prompt tokens{cost}{unknown}."
