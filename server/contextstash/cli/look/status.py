"""`contextstash status`: how full the context of a session is, and with what."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.completion import session_ids
from contextstash.cli.look.session_log import print_calls, print_events, print_request
from contextstash.cli.options import StashOpener, database_options, find_session
from contextstash.cli.output import VIEW, console, for_reader, level_style, print_json, print_plainly
from contextstash.cli.readable import when
from contextstash.outputs.counts import before_and_after, counted

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType

    from contextstash.results import Change, ContextStatus, Estimate, Trigger
    from contextstash.stash import Stash

MAX_BAR_WIDTH = 60
MIN_BAR_WIDTH = 10
"""Characters."""

BESIDE_BAR = 50
"""Characters of a line for the texts next to a bar: 30 for "compaction at 999,999 messages", 16 for "100 %, now 9,999",
and two gaps of 2."""

NARROW = 72
"""A line of fewer characters has no room for words that only explain."""

PART_STYLES = {
    "tool_results": "blue",
    "tool_calls": "magenta",
    "assistant": "cyan",
    "user": "yellow",
    "system": "white",
    "summaries": "green",
    "thinking": "bright_black",
}

PART_NAMES = {"unrecorded": "unlogged text", "archived": "placeholders"}

LEVELS_OF_CLIENTS = {"prune": "filling up", "compact": "nearly full"}
"""Levels of sessions whose clients send their own history: a prune here would change nothing of it."""

UNLOGGED = (
    "Unlogged text: what the provider counted beyond the recorded messages, such as the system prompt, tool definitions"
    " and what the client adds unseen."
)

WRITERS = {
    "host": "the host's model",
    "extractive": "the extractive summarizer, without a model",
    "anthropic": "a model",
}


@click.command()
@click.argument("session", required=False, shell_complete=session_ids)
@click.option("--watch", is_flag=True, help="Update until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between two updates."
)
@click.option("--events", is_flag=True, help="What happened to its context: levels, prunes, compactions, recoveries.")
@click.option("--calls", is_flag=True, help="Its model calls: tokens, bytes and cost of each.")
@click.option("--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="List the newest N.")
@click.option("--request", type=click.IntRange(1), metavar="CALL", help="Print this call's messages as JSON.")
@database_options
def status(opener: StashOpener, as_json: bool, session: str | None, **options: Any) -> None:
    """Show how full a session's context is, with what, and the next step. [default: the one with the newest message]

    With --events or --calls, list those instead.
    """
    if options["request"] is not None:
        print_request(opener, session, options["request"])
    elif options["events"] or options["calls"]:
        listed = print_events if options["events"] else print_calls
        listed(opener, session, options["limit"], as_json=as_json)
    else:
        _show(opener, session, as_json=as_json, watch=options["watch"], every=options["every"])


def _show(opener: StashOpener, session: str | None, *, as_json: bool, watch: bool, every: float) -> None:
    """Print the status once, or until Ctrl-C."""
    if watch and sys.stdout.isatty() and not as_json:
        with suppress(KeyboardInterrupt):
            opener.run(lambda stash: _watch(stash, session, every))
        return
    result = opener.run(lambda stash: _status(stash, session))
    if as_json:
        print_json(result)
    else:
        out = console()
        print_plainly(status_view(result, out), out)


async def _status(stash: Stash, session: str | None) -> ContextStatus:
    return await stash.context_status(await find_session(stash, session))


async def _watch(stash: Stash, session: str | None, every: float) -> None:
    """Print the status repeatedly. If no session is named, each time of the one with the newest message."""
    from rich.live import Live

    out = console()
    with Live(console=out, auto_refresh=False, screen=False) as live:
        while True:
            live.update(status_view(await _status(stash, session), out), refresh=True)
            await asyncio.sleep(every)


def status_view(status: ContextStatus, out: Console) -> Group:
    """The status of a session, for a terminal of that width."""
    from rich.console import Group

    return Group(*_lines(status, out))


def _lines(status: ContextStatus, out: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    estimate = status.estimate
    yield Text(for_reader(status.title or status.session_id), style="bold", no_wrap=True, overflow="ellipsis")
    if status.title:
        yield Text(for_reader(status.session_id), style="dim")
    yield from _estimate_lines(estimate, out)
    if status.due:
        yield Text(f"Auto-compaction is due: {', '.join(status.due)}", style="yellow")
    yield Text()
    yield from (Text(for_reader(line)) for line in _facts(status))
    yield Text(f"Estimate: {estimate.method}; window {estimate.window:,}.", style="dim")
    for note in [*([status.unlogged] if status.unlogged else []), *(estimate.notes or [])]:
        yield Text(for_reader(in_commands(note)), style="dim")
    yield Text(for_reader(in_commands(estimate.next_step)))


def print_estimate(estimate: Estimate) -> None:
    """Print an estimate: tokens, level, compaction thresholds and parts."""
    from rich.console import Group

    out = console()
    print_plainly(Group(*_estimate_lines(estimate, out)), out)


def _estimate_lines(estimate: Estimate, out: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    sent = "" if estimate.view_tokens is None else "The client sends "
    level = estimate.level if estimate.view_tokens is None else LEVELS_OF_CLIENTS.get(estimate.level, estimate.level)
    usable = "tokens" if out.width < NARROW else "usable tokens"
    yield Text.assemble(
        f"{sent}{estimate.tokens:,} of {estimate.usable:,} {usable}, {estimate.percent:.1f} %  ",
        (level, level_style(estimate.level)),
    )
    yield _triggers(estimate, out)
    yield _parts(estimate, out)
    if estimate.breakdown.get("unrecorded"):
        yield Text(UNLOGGED, style="dim")


def _triggers(estimate: Estimate, out: Console) -> RenderableType:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    found = [("messages", estimate.messages_trigger), ("tokens", estimate.tokens_trigger)]
    for name, trigger in found:
        if trigger is not None:
            now = f", now {trigger.value:,}" if name == "messages" else ""
            label = f"compaction at {trigger.threshold:,} {name}"
            table.add_row(label, _bar(trigger, _bar_width(out)), f"{trigger.percent:.0f} %{now}")
    return table


def _bar(trigger: Trigger, width: int) -> RenderableType:
    from rich.progress_bar import ProgressBar

    style = "green" if trigger.percent < 70 else "yellow" if trigger.percent < 100 else "red"
    completed = min(trigger.value, trigger.threshold)
    return ProgressBar(
        total=trigger.threshold, completed=completed, width=width, complete_style=style, finished_style=style
    )


def _bar_width(out: Console) -> int:
    return max(MIN_BAR_WIDTH, min(MAX_BAR_WIDTH, out.width - BESIDE_BAR))


def _parts(estimate: Estimate, out: Console) -> RenderableType:
    from rich.bar import Bar
    from rich.table import Table

    parts = sorted(estimate.breakdown.items(), key=lambda part: -part[1])
    whole = sum(estimate.breakdown.values()) or 1
    largest = parts[0][1] if parts else 1
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    for name, tokens in parts:
        if tokens:
            bar = Bar(largest, 0, tokens, width=_bar_width(out), color=PART_STYLES.get(name, "white"))
            table.add_row(
                PART_NAMES.get(name, name.replace("_", " ")), f"{tokens:,}", f"{100 * tokens / whole:.1f} %", bar
            )
    return table


def _facts(status: ContextStatus) -> Iterator[str]:
    yield (
        f"{counted(status.messages, 'message')} in history ({status.messages_summarized:,} summarized),"
        f" {counted(status.outputs_archived, 'tool output')} archived."
    )
    if status.outputs_shortened:
        yield f"{counted(status.outputs_shortened, 'new output')} shortened by a hook or gateway, kept whole by handle."
    yield from _own_view(status)
    if status.last_summary:
        last = status.last_summary
        writer = WRITERS.get(last.strategy, last.strategy)
        what = f"{counted(last.messages, 'message')} in {last.tokens:,} tokens"
        yield f"Last summary: {what}, {when(last.created_at)}, by {writer} ({last.summary_id})."
    if status.proxy:
        from contextstash.queries.proxy_report import report_lines

        yield from report_lines(status.proxy)
    elif status.savings:
        saved = status.savings
        money = f", at least {saved.cost:.2f} US dollars" if saved.cost is not None and saved.cost >= 0.005 else ""
        so_far = f"; so far {saved.tokens:,} tokens in {saved.requests:,} requests{money}" if saved.tokens else ""
        yield f"Saved: {saved.tokens_now:,} tokens in each request{so_far}."


def _own_view(status: ContextStatus) -> Iterator[str]:
    """The effect of contextstash's last reduction, by its own count; the client and the provider count differently."""
    last = next((each for each in status.changes or () if each.strategy not in ("client", "client_window")), None)
    if status.estimate.view_tokens is None:
        if last is not None:
            yield f"Last {last.kind}, {when(last.created_at)}: {_change_of(last)} tokens{VIEW}."
        return
    change = f" (last {last.kind}, {when(last.created_at)}: {_change_of(last)})" if last is not None else ""
    yield (
        f"contextstash's own view has {status.estimate.view_tokens:,} tokens by its own count{change}."
        " prune and compact change this view, not what the client sends."
    )


def _change_of(change: Change) -> str:
    return before_and_after(change.tokens_before, change.tokens_after)
