"""Commands on what sessions cost, and would have cost: receipt, advise."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, print_table
from contextstash.cli.options import SESSION, find_session, moment, stash_command
from contextstash.safety.sanitize import amount, counted

if TYPE_CHECKING:
    from contextstash.results import Receipt, WindowAdvice
    from contextstash.stash import Stash


def first_day(value: str) -> date:
    """The day of a time as `moment` takes it."""
    return datetime.fromisoformat(moment(value)).date()


@stash_command("receipt")
@SESSION
@click.option("--since", type=first_day, metavar="TIME", help="From this day on (UTC), such as 7d or 2026-05-31.")
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
        echo(UNCHANGED)


UNCHANGED = (
    "These sessions were recorded after their requests, which contextstash did not change: nothing could be saved in"
    " them. The plugin of a client, or contextstash run CLIENT, keeps its window small."
)


REPLAYED = 100
"""The newest sessions, if none is named: some weeks of work."""

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
    chosen = [await stash.read_session(await find_session(stash, name)) for name in session]
    result = await stash.advise(chosen or await stash.recent_sessions(limit=REPLAYED))
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
            "-" if window.cost_percent is None else f"{window.cost_percent:.0f} %",
            window.more_compactions,
            f"{100 - window.lacking_percent:.0f} %",
        )
        for window in result.windows
    ]
    print_table(["compacts at", "input cost", "of recorded", "more compactions", "held"], rows)
    echo(f"{METHOD}\n{result.in_words()}")
