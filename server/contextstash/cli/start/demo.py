"""`contextstash demo`: the user's own sessions, or contextstash step by step on a session that ships with it."""

from __future__ import annotations

import asyncio
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.look.status import print_estimate
from contextstash.cli.output import change_line, console, for_reader, shortened, working
from contextstash.context.text.counts import counted

if TYPE_CHECKING:
    from contextstash.demo.own_sessions import Survey
    from contextstash.demo.steps import Compacted, Estimated, Pruned, Recorded, Restored, Retrieved, Step
    from contextstash.service.results import RestoreResult

MAX_LISTED = 6
"""Archived outputs that are named."""

MAX_SUMMARY_LINES = 20

MAX_WIDTH = 110
"""Characters of a line: longer ones are hard to read."""


@click.command()
@click.option("--sample", is_flag=True, help="Show the session that ships with contextstash, step by step.")
def demo(sample: bool) -> None:
    """Show what filled the windows of your own sessions, what could have left them, and searches that find it again.

    Reads the newest transcripts of Claude Code, Codex, Gemini CLI, OpenCode and pi into a temporary database; nothing
    is written or sent. Without any, or with --sample, shows every step on a session that ships with contextstash.
    """
    from contextstash.demo.own_sessions import newest_transcripts

    found = [] if sample else newest_transcripts(Path.home())
    if not found or not asyncio.run(_survey(found)):
        asyncio.run(_demonstrate())


async def _survey(transcripts: list[Path]) -> bool:
    """Show the user's own sessions; False if none of them holds a tool output."""
    from contextstash.configuration.database import open_database
    from contextstash.demo.own_sessions import SETTINGS, survey
    from contextstash.service.stash import Stash

    with tempfile.TemporaryDirectory(prefix="contextstash-demo-") as folder:
        store = await open_database(Path(folder) / "demo.db")  # encrypted, if the user's own is
        stash = Stash(store, settings=SETTINGS)
        try:
            with working("Reading your newest sessions"):
                found = await survey(stash, store, transcripts)
        finally:
            await stash.close()
    if found.outputs:
        _show_survey(found)
    return bool(found.outputs)


def _show_survey(found: Survey) -> None:
    from contextstash.demo.own_sessions import KEPT_OUTPUTS

    _heading("contextstash: what filled your agents' windows")
    _line(
        f"{counted(found.sessions, 'session')}, the newest of {counted(found.transcripts, 'transcript')} here:"
        f" {counted(found.messages, 'message')}, {found.tokens:,} tokens."
    )
    _line(f"Tool outputs: {found.outputs:,} tokens, {_percent(found.outputs, found.tokens)} of everything.", bold=True)
    for tool, tokens in found.tools.most_common(MAX_LISTED):
        _line(f"  {shortened(tool, 28):<28} {tokens:>10,} tokens in {found.calls[tool]:,} calls")
    _heading("What could have left the windows")
    _line(
        f"All but the newest {KEPT_OUTPUTS} outputs of each session: {found.old_outputs:,} tokens,"
        f" {_percent(found.old_outputs, found.tokens)}. Each stays retrievable by its handle.",
        bold=True,
    )
    if found.searches:
        _heading("Found again, in their sessions")
    for each in found.searches:
        often = f"{each.times:,} calls of {each.tool}" if each.times > 1 else "one of the largest outputs"
        _line(shortened(f"  search {each.words}  ({often})", _width()))
        place = f"{each.handle}, place {each.place} of the hits" if each.handle else "not among the first hits"
        _line(f"    → {place}, {each.seconds * 1000:.0f} ms")
    _line("")
    _line("Nothing was written or sent. To keep and follow your sessions: contextstash install claude-code --hooks")
    _line("The main job step by step, on a sample session: contextstash demo --sample")


def _percent(part: int, whole: int) -> str:
    return f"{part / max(1, whole):.0%}".replace("%", " %")


async def _demonstrate() -> None:
    from contextstash.demo.steps import SETTINGS, walk
    from contextstash.service.stash import Stash
    from contextstash_storage.sqlite import open_sqlite

    _heading("contextstash: what leaves the model's window never leaves the session")
    with tempfile.TemporaryDirectory(prefix="contextstash-demo-") as folder:
        stash = Stash(await open_sqlite(Path(folder) / "demo.db"), settings=SETTINGS)
        try:
            number = 0
            async for step in walk(stash):
                number += 1
                _show(number, step)
        finally:
            await stash.close()
    _line("")
    _line("This was a temporary database. To use your own sessions: contextstash import FILE")


def _show(number: int, step: Step) -> None:
    from contextstash.demo import steps

    match step:
        case steps.Recorded():
            _show_recorded(number, step)
        case steps.Estimated():
            _show_estimated(number, step)
        case steps.Pruned():
            _show_pruned(number, step)
        case steps.Compacted():
            _show_compacted(number, step)
        case steps.Retrieved():
            _show_retrieved(number, step)
        case steps.Restored():
            _show_restored(number, step)


def _show_recorded(number: int, step: Recorded) -> None:
    _heading(f"{number}. Record: an agent debugs a small web service")
    _line(f"{step.result.recorded} messages recorded, {step.result.tokens:,} tokens.")
    _line(f"Recorded a second time: {step.again.recorded} new, {step.again.duplicates} duplicates.")


def _show_estimated(number: int, step: Estimated) -> None:
    _heading(f"{number}. Estimate: how full is the window?")
    print_estimate(step.estimate)


def _show_pruned(number: int, step: Pruned) -> None:
    result = step.result
    _heading(f"{number}. Prune: old tool outputs move from the view to the archive")
    for output in sorted(result.archived, key=lambda output: -output.tokens)[:MAX_LISTED]:
        digest = " ".join(output.digest.split())
        _line(shortened(f"{output.handle}  {output.tokens:>6,} tokens  {output.tool:<5} {digest}", _width()))
    if len(result.archived) > MAX_LISTED:
        _line(f"… and {len(result.archived) - MAX_LISTED} more.")
    _line("The model now sees a placeholder, for example:")
    _quote(step.placeholder)
    _line(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after)}", bold=True)
    if result.cache:
        _line(
            f"Prompt cache: {result.cache.rewritten_tokens:,} tokens are written again;"
            f" the saving covers that after {result.cache.pays_after_requests:g} requests."
        )


def _show_compacted(number: int, step: Compacted) -> None:
    result = step.result
    _heading(f"{number}. Compact: older messages become your words and a summary ({result.strategy} writer)")
    _quote(step.head, MAX_SUMMARY_LINES)
    _line(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after)}", bold=True)
    _line(f"The model now gets {step.sent} messages.")


def _show_retrieved(number: int, step: Retrieved) -> None:
    _heading(f"{number}. Retrieve: one output, by its handle")
    size = len(step.original.encode())
    lines = len(step.text.splitlines())
    _line(f"get_archived_output {step.handle} ({step.tool}): {lines:,} lines in {step.pages} pages.")
    _line(f"Compared with the original, {size:,} bytes: {_sameness(step.identical)}.", bold=True)


def _show_restored(number: int, step: Restored) -> None:
    result = step.result
    _heading(f"{number}. Restore: everything returns to the view")
    _line(
        f"{_what_is_back(result)} back in the view. {change_line(result.tokens_before, result.tokens_after)}",
        bold=True,
    )
    _line(f"The view, compared with step 1: {_sameness(step.view_identical)}.")
    _line(f"The history, compared with the file: {_sameness(step.history_identical)}.")


def _what_is_back(result: RestoreResult) -> str:
    summaries = sum(each.handle.startswith("sum_") for each in result.restored)
    outputs = counted(len(result.restored) - summaries, "output")
    return f"{outputs} archived in steps 3 and 4 and the messages behind {counted(summaries, 'summary')} are"


def _sameness(same: bool) -> str:
    return "identical" if same else "DIFFERENT"


def _width() -> int:
    return min(console().width, MAX_WIDTH)


def _heading(text: str) -> None:
    out = console()
    out.print()
    out.print(text, style="bold cyan", soft_wrap=True)


def _line(text: str, *, bold: bool = False) -> None:
    console().print(for_reader(text), style="bold" if bold else "", soft_wrap=True)


def _quote(text: str, max_lines: int | None = None) -> None:
    """A text as the model sees it, indented and wrapped, at most `max_lines` lines of it."""
    lines = [
        part for line in text.splitlines() for part in textwrap.wrap(line, _width() - 4, subsequent_indent="  ") or [""]
    ]
    for line in lines[:max_lines]:
        console().print(for_reader(f"  │ {line}"), style="dim", soft_wrap=True)
    if max_lines is not None and len(lines) > max_lines:
        _line(f"  … and {len(lines) - max_lines} more lines.")
