"""`contextstash advise`: what the user's own sessions would have cost in smaller windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import print_json, print_table, say
from contextstash.outputs.counts import amount, counted

if TYPE_CHECKING:
    from contextstash.results import AdvisedWindow, WindowAdvice
    from contextstash.stash import Stash
    from contextstash_storage.records import Session

NOTHING = (
    "No session can be replayed: that takes 30 calls with the usage that the provider reported, and a model whose price"
    " is known. contextstash import PATH records the sessions that clients have written to disk."
)

METHOD = (
    "Input at list prices, as reported by the provider; replies cost the same in every window. Each compaction is"
    " charged with the client's summary, a new window that the cache has not seen, a hand-off of 5,000 tokens, and"
    " 8,700 tokens that agents read again (measured after 28 compactions). Held: of the replies, those for which the"
    " new window with its hand-off, or one search, had all that they used; measured on 13 other sessions of Claude Code"
    " (docs/measured.md), not on yours."
)


@click.command()
@click.argument("session", nargs=-1, shell_complete=session_ids)
@click.option(
    "--last", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="The newest N sessions."
)
@database_options
def advise(opener: StashOpener, as_json: bool, session: tuple[str, ...], last: int) -> None:
    """Compare what your sessions would have cost if their clients had compacted earlier: a smaller window is cheaper
    and compacts more often. Set it with contextstash run CLIENT --window."""

    async def read(stash: Stash) -> WindowAdvice:
        chosen: list[Session] = [await stash.read_session(await find_session(stash, name)) for name in session]
        return await stash.advise(chosen or await stash.recent_sessions(limit=last))

    result = opener.run(read)
    if as_json:
        print_json(result)
    elif not result.conversations:
        say(NOTHING)
    else:
        _print(result)


def _print(result: WindowAdvice) -> None:
    left_out = f" ({result.left_out:,} left out: short, or of unknown price)" if result.left_out else ""
    say(
        f"{counted(result.conversations, 'session')}{left_out}, {counted(result.requests, 'request')}:"
        f" {amount(result.tokens_sent)} prompt tokens, {result.dollars:,.2f} US dollars"
        " for input (without the replies) as recorded."
    )
    print_table(
        ["compacts at", "input cost", "of recorded", "tokens sent", "more compactions", "held"],
        [_row(each) for each in result.windows],
    )
    say(METHOD)
    say(recommendation(result))


WORTH_PERCENT = 90.0
"""Of the recorded cost. A window that saves less than a tenth is not recommended: the estimate is hardly better."""


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
        f" claude --window {point // 1_000}k; for all runs: contextstash install CLIENT --window {point // 1_000}k."
    )


def _row(window: AdvisedWindow) -> tuple[object, ...]:
    return (
        amount(window.compaction_point),
        f"{window.dollars:,.2f}",
        "-" if window.cost_percent is None else f"{window.cost_percent:.0f} %",
        "-" if window.tokens_percent is None else f"{window.tokens_percent:.0f} %",
        window.more_compactions,
        "-" if window.lacking_percent is None else f"{100 - window.lacking_percent:.0f} %",
    )
