"""`contextstash receipt`: what the provider billed, and what it would have billed without contextstash."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import print_json, print_table, say
from contextstash.display.template_filters import LEVERS
from contextstash.outputs.counts import amount, counted

if TYPE_CHECKING:
    from contextstash.results import Receipt, ReceiptLever
    from contextstash.stash import Stash

DEFAULT_DAYS = 7
"""Days that a receipt of all sessions covers: a week, which is long enough to hold more than one kind of work."""


def first_day(value: str) -> date:
    """A number of days before today, such as 7d, or a date."""
    if (found := re.fullmatch(r"(\d{1,4})d", value.strip())) is not None:
        return datetime.now(UTC).date() - timedelta(days=int(found[1]))
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        text = f"'{value}' is neither a number of days nor a date. Examples: 7d, 2026-05-31"
        raise click.BadParameter(text) from None


@click.command()
@click.argument("session", required=False, shell_complete=session_ids)
@click.option("--since", type=first_day, metavar="TIME", help="From this day on (UTC), such as 7d or 2026-05-31.")
@database_options
def receipt(opener: StashOpener, as_json: bool, session: str | None, since: date | None) -> None:
    """Say what the provider billed for SESSION with its sub-agents, or for all sessions of the last 7 days (of all time
    if there was none in them), and what it would have billed without contextstash. What contextstash cost is in it: the
    cache written again, what was fetched again, its own tools."""
    usual = session is None and since is None
    if usual:
        since = datetime.now(UTC).date() - timedelta(days=DEFAULT_DAYS)

    async def read(stash: Stash) -> tuple[Receipt, Receipt | None]:
        session_id = None if session is None else await find_session(stash, session)
        found = await stash.receipt(session_id, since)
        with_older = since is not None and not found.requests and not as_json
        return found, await stash.receipt(session_id) if with_older else None

    result, older = opener.run(read)
    if as_json:
        print_json(result)
    elif result.requests:
        _print(result)
    elif older is not None and older.requests and usual:
        click.echo(f"None in the last {DEFAULT_DAYS} days. All before:")
        _print(older)
    else:
        say(_nothing(result, older))


def _nothing(result: Receipt, older: Receipt | None) -> str:
    """Why a receipt cannot be written, and how to get one."""
    when = f" since {result.since}" if result.since else ""
    if older is None or not older.requests:
        return f"No request whose usage was reported{when}. contextstash run CLIENT records them as they are made."
    return (
        f"No request whose usage was reported{when}, but {counted(older.requests, 'older request')} in"
        f" {counted(older.sessions, 'session')}. Without --since the receipt shows them."
    )


def _print(result: Receipt) -> None:
    from contextstash.queries.proxy_report import bill_line

    since = f" since {result.since} (UTC)" if result.since else ""
    unchanged = f" ({result.unchanged_sessions:,} without the proxy, unchanged)" if result.unchanged_sessions else ""
    click.echo(f"{counted(result.sessions, 'session')}{unchanged}, {counted(result.requests, 'request')}{since}:")
    billed, without = amount(result.tokens_billed), amount(result.tokens_without)
    click.echo(f"{billed} prompt tokens billed, about {without} without contextstash.")
    if result.shortened_outputs:
        which = f"{counted(result.shortened_outputs, 'new output')} of {amount(result.shortened_tokens or 0)} tokens"
        click.echo(f"Hooks or gateways shortened {which}: not in these figures.")
    if result.levers:
        print_table(["what contextstash changed", "tokens", "US dollars"], [_row(each) for each in result.levers])
    say(result.method)
    if result.unpriced_requests:
        click.echo(f"The price of {counted(result.unpriced_requests, 'request')} is not known: not in the dollars.")
    if result.dollars_billed is not None and result.dollars_saved is not None:
        click.echo(bill_line(result.dollars_billed, result.dollars_saved))


def _row(lever: ReceiptLever) -> tuple[object, ...]:
    sign = "+" if lever.tokens > 0 else "-" if lever.tokens < 0 else ""
    dollars = "-" if lever.dollars is None else f"{lever.dollars:+,.2f}"
    return LEVERS.get(lever.name, lever.name), f"{sign}{amount(abs(lever.tokens))}", dollars
