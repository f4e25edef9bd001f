"""Commands on what sessions cost: receipt, advise."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, print_table
from contextstash.cli.options import SESSION, find_session, moment, stash_command
from contextstash.outputs.counts import amount, counted

if TYPE_CHECKING:
    from contextstash.results import AdvisedWindow, Receipt, WindowAdvice
    from contextstash.stash import Stash


def first_day(value: str) -> date:
    """A number of days before today, such as 7d, or a date."""
    try:
        return date.fromisoformat(moment(value).strip())
    except ValueError:
        text = f"'{value}' is neither a number of days nor a date. Examples: 7d, 2026-05-31"
        raise click.BadParameter(text) from None


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
    if result.shortened_outputs:
        which = f"{counted(result.shortened_outputs, 'new output')} of {amount(result.shortened_tokens or 0)} tokens"
        click.echo(f"Hooks or gateways shortened {which}: not in these figures.")
    echo(result.method)
    if result.unpriced_requests:
        click.echo(f"The price of {counted(result.unpriced_requests, 'request')} is not known: not in the dollars.")
    if result.unchanged_sessions == result.sessions:
        echo(UNCHANGED)


UNCHANGED = (
    "These sessions were recorded after their requests, which contextstash did not change: nothing could be saved in"
    " them. The plugin of a client, or contextstash run CLIENT, keeps its window small."
)


NOTHING = (
    "No session can be replayed: that takes 30 calls with the usage that the provider reported, and a model whose price"
    " is known. contextstash import records the sessions that clients have written to disk."
)

METHOD = (
    "Input at list prices, as reported by the provider; replies cost the same in every window. Each compaction is"
    " charged with the client's summary, a new window that the cache has not seen, a hand-off of 5,000 tokens, and"
    " 8,700 tokens that agents read again (measured after 28 compactions). Held: of the replies, those for which the"
    " new window with its hand-off, or one search, had all that they used; measured on 13 other sessions of Claude Code"
    " (docs/measured.md), not on yours."
)

REPLAYED = 100
"""The newest sessions, if none is named: some weeks of work."""

WORTH_PERCENT = 90.0
"""Of the recorded cost. A window that saves less than a tenth is not recommended: the estimate is hardly better."""


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
    echo(
        f"{counted(result.conversations, 'session')}{left_out}, {counted(result.requests, 'request')}:"
        f" {amount(result.tokens_sent)} prompt tokens, {result.dollars:,.2f} US dollars"
        " for input (without the replies) as recorded."
    )
    columns = ["compacts at", "input cost", "of recorded", "tokens sent", "more compactions", "held"]
    print_table(columns, map(_window_row, result.windows))
    echo(f"{METHOD}\n{recommendation(result)}")


def recommendation(result: WindowAdvice) -> str:
    """The window to set, and the command that sets it: the largest of those that cost at most 5 % more of the recorded
    cost than the cheapest, as each compaction loses something."""
    priced = [(each.cost_percent, each.compaction_point) for each in result.windows if each.cost_percent is not None]
    least = min((cost for cost, _ in priced), default=100.0)
    if least > WORTH_PERCENT:
        return "Recommended: leave the window as it is; none of these saves a tenth."
    cost, point = max((each for each in priced if each[0] <= least + 5), key=lambda each: each[1])
    why = "" if cost == least else ", the largest within 5 points of the cheapest: each compaction loses something"
    return (
        f"Recommended: {amount(point)}, for about {cost:.0f} % of the recorded cost{why}. For one run: contextstash run"
        f" --window {point // 1_000}k claude; for all runs: contextstash install CLIENT --window {point // 1_000}k."
    )


def _window_row(window: AdvisedWindow) -> tuple[object, ...]:
    return (
        amount(window.compaction_point),
        f"{window.dollars:,.2f}",
        _percent(window.cost_percent),
        _percent(window.tokens_percent),
        window.more_compactions,
        _percent(None if window.lacking_percent is None else 100 - window.lacking_percent),
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0f} %"
