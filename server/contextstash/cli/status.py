"""`contextstash status`: how full a session's context is and with what, once or as it changes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from contextstash.cli.completion import session_ids
from contextstash.cli.options import Opening, database_options, find_session
from contextstash.cli.output import console, level_style, print_json, print_plainly

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType

    from contextstash.service.results import ContextStatus, Estimate, Trigger
    from contextstash.service.stash import Stash

WIDEST_BAR = 60
NARROWEST_BAR = 10

PART_STYLES = {
    "tool_results": "blue",
    "tool_calls": "magenta",
    "assistant": "cyan",
    "user": "yellow",
    "system": "white",
    "summaries": "green",
    "thinking": "bright_black",
}

WRITERS = {
    "host": "the host's model",
    "extractive": "an extract, no model",
    "sampling": "the client's model",
    "anthropic": "a model",
}


@click.command()
@click.argument("session", required=False, shell_complete=session_ids)
@click.option("--watch", is_flag=True, help="Show it as it changes, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between two looks.")
@database_options
def status(opening: Opening, as_json: bool, session: str | None, watch: bool, every: float) -> None:
    """How full a session's context is, with what, and what comes next. Without SESSION: the one changed last."""
    if watch and sys.stdout.isatty() and not as_json:
        with suppress(KeyboardInterrupt):
            opening.run(lambda stash: _watch(stash, session, every))
        return
    answer = opening.run(lambda stash: _status(stash, session))
    if as_json:
        print_json(answer)
    else:
        out = console()
        print_plainly(picture(answer, out), out)


async def _status(stash: Stash, session: str | None) -> ContextStatus:
    return await stash.context_status(await find_session(stash, session))


async def _watch(stash: Stash, session: str | None, every: float) -> None:
    """Look again and again. Without a session named, at whichever is the one changed last."""
    from rich.live import Live

    out = console()
    with Live(console=out, auto_refresh=False, screen=False) as live:
        while True:
            live.update(picture(await _status(stash, session), out), refresh=True)
            await asyncio.sleep(every)


def picture(answer: ContextStatus, out: Console) -> Group:
    """The state of a session for a terminal of that width."""
    from rich.console import Group

    return Group(*_lines(answer, out))


def _lines(answer: ContextStatus, out: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    estimate = answer.estimate
    yield Text(answer.title or answer.session_id, style="bold", no_wrap=True, overflow="ellipsis")
    if answer.title:
        yield Text(answer.session_id, style="dim")
    yield from _estimate_lines(estimate, out)
    if answer.due:
        yield Text(f"Will trigger on the next message: {', '.join(answer.due)}", style="yellow")
    yield Text()
    yield from (Text(line) for line in _facts(answer))
    yield Text(f"By {estimate.method}; window {estimate.window:,}.", style="dim")
    for note in estimate.notes or []:
        yield Text(note, style="dim")
    yield Text(estimate.next_step)


def print_estimate(estimate: Estimate) -> None:
    """An estimate alone: tokens, level, triggers and parts."""
    from rich.console import Group

    out = console()
    print_plainly(Group(*_estimate_lines(estimate, out)), out)


def _estimate_lines(estimate: Estimate, out: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text.assemble(
        f"{estimate.tokens:,} of {estimate.usable:,} usable tokens, {estimate.percent:.1f} %  ",
        (estimate.level, level_style(estimate.level)),
    )
    yield _triggers(estimate, out)
    yield _parts(estimate, out)


def _triggers(estimate: Estimate, out: Console) -> RenderableType:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    found = [("messages", estimate.messages_trigger), ("tokens", estimate.tokens_trigger)]
    for name, trigger in found:
        if trigger is not None:
            text = f"{trigger.value:,} / {trigger.threshold:,}  {trigger.percent:.0f} %"
            table.add_row(f"to compact, {name}", _bar(trigger, _bar_width(out)), text)
    return table


def _bar(trigger: Trigger, width: int) -> RenderableType:
    from rich.progress_bar import ProgressBar

    style = "green" if trigger.percent < 70 else "yellow" if trigger.percent < 100 else "red"
    completed = min(trigger.value, trigger.threshold)
    return ProgressBar(
        total=trigger.threshold, completed=completed, width=width, complete_style=style, finished_style=style
    )


def _bar_width(out: Console) -> int:
    return max(NARROWEST_BAR, min(WIDEST_BAR, out.width - 45))


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
            table.add_row(name.replace("_", " "), f"{tokens:,}", f"{100 * tokens / whole:.1f} %", bar)
    return table


def _facts(answer: ContextStatus) -> Iterator[str]:
    yield (
        f"{answer.messages:,} messages in history ({answer.messages_summarized:,} summarized),"
        f" {answer.outputs_archived:,} tool outputs archived."
    )
    if answer.last_summary:
        made = answer.last_summary
        when = f", {made.created_at[:16].replace('T', ' ')}" if made.created_at else ""
        writer = WRITERS.get(made.strategy, made.strategy)
        what = f"{made.messages:,} messages -> {made.tokens:,} tokens"
        yield f"Last summary: {what}{when}, by {writer} ({made.summary_id})."
    if answer.savings:
        saved = answer.savings
        money = f", at least {saved.cost:.2f} US dollars" if saved.cost is not None and saved.cost >= 0.005 else ""
        so_far = f"; so far {saved.tokens:,} tokens in {saved.requests:,} requests{money}" if saved.tokens else ""
        yield f"Saved: {saved.tokens_now:,} tokens in each request{so_far}."
