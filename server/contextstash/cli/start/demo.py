"""`contextstash demo`: the user's own sessions, or contextstash step by step on a session that ships with it."""

from __future__ import annotations

import asyncio
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.command_words import in_commands
from contextstash.cli.look.show import read_output
from contextstash.cli.look.status import print_estimate
from contextstash.cli.output import change_line, console, for_reader, shortened, working
from contextstash.outputs.counts import counted

if TYPE_CHECKING:
    from contextstash.demo.own_sessions import Survey
    from contextstash.results import PruneResult
    from contextstash.stash import Stash
    from contextstash_storage.records import Native

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
    from contextstash.stash import Stash

    with tempfile.TemporaryDirectory(prefix="contextstash-demo-") as folder:
        store = await open_database(Path(folder) / "demo.db")  # encrypted, if the user's own is
        async with Stash(store, settings=SETTINGS) as stash:
            with working("Reading your newest sessions"):
                found = await survey(stash, store, transcripts)
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
    from contextstash.demo.sample import SETTINGS
    from contextstash.stash import Stash
    from contextstash_storage.sqlite import open_sqlite

    _heading("contextstash: what leaves the model's window never leaves the session")
    with tempfile.TemporaryDirectory(prefix="contextstash-demo-") as folder:
        async with Stash(await open_sqlite(Path(folder) / "demo.db"), settings=SETTINGS) as stash:
            await _show_steps(stash)
    _line("")
    _line("This was a temporary database. To use your own sessions: contextstash import FILE")


async def _show_steps(stash: Stash) -> None:
    """Make each step on the sample session: real calls of the service."""
    from contextstash.demo.sample import SESSION_ID, sample_session

    natives = sample_session()
    _heading("1. Record: an agent debugs a small web service")
    recorded = await stash.record_messages(natives, session_id=SESSION_ID, whole=True, title="Demonstration")
    again = await stash.record_messages(natives, session_id=SESSION_ID, whole=True)
    _line(f"{recorded.recorded} messages recorded, {recorded.tokens:,} tokens.")
    _line(f"Recorded a second time: {again.recorded} new, {again.duplicates} duplicates.")
    _heading("2. Estimate: how full is the window?")
    print_estimate(await stash.estimate_context(SESSION_ID))
    view = (await stash.get_context(SESSION_ID)).messages
    pruned = await stash.prune_tool_outputs(SESSION_ID)
    largest = max(pruned.archived, key=lambda output: output.tokens)
    shown = _tool_results((await stash.get_context(SESSION_ID)).messages)
    call_id, placeholder = next(item for item in shown.items() if largest.handle in item[1])
    _show_pruned(pruned, placeholder)
    summary_id = await _compact(stash, SESSION_ID)
    _heading("5. Retrieve: one output, by its handle")
    pages = await read_output(stash, largest.handle, max_tokens=None)
    text, original = "".join(page.text for page in pages), _tool_results(natives)[call_id]
    size = f"{len(text.splitlines()):,} lines in {len(pages)} pages"
    _line(f"get_archived_output {largest.handle} ({largest.tool}): {size}.")
    _line(f"Compared with the original, {len(original.encode()):,} bytes: {_sameness(text == original)}.", bold=True)
    await _restore(stash, SESSION_ID, [summary_id, *(output.handle for output in pruned.archived)])
    _line(f"The view, compared with step 1: {_sameness((await stash.get_context(SESSION_ID)).messages == view)}.")
    history = (await stash.read_messages(SESSION_ID, limit=len(natives) + 1)).messages
    _line(f"The history, compared with the file: {_sameness([line.message for line in history] == natives)}.")


def _show_pruned(result: PruneResult, placeholder: str) -> None:
    _heading("3. Prune: old tool outputs move from the view to the archive")
    for output in sorted(result.archived, key=lambda output: -output.tokens)[:MAX_LISTED]:
        digest = " ".join(output.digest.split())
        _line(shortened(f"{output.handle}  {output.tokens:>6,} tokens  {output.tool:<5} {digest}", _width()))
    if len(result.archived) > MAX_LISTED:
        _line(f"… and {len(result.archived) - MAX_LISTED} more.")
    _line("The model now sees a placeholder, for example:")
    _quote(placeholder)
    _line(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after)}", bold=True)
    if result.cache:
        _line(
            f"Prompt cache: {result.cache.rewritten_tokens:,} tokens are written again;"
            f" the saving covers that after {result.cache.pays_after_requests:g} requests."
        )


async def _compact(stash: Stash, session_id: str) -> str:
    """Show older messages as the user's words and a summary. Returns the handle of the summary."""
    result = await stash.compact_session(session_id)
    view = (await stash.get_context(session_id)).messages
    _heading(f"4. Compact: older messages become your words and a summary ({result.strategy} writer)")
    _quote(_text(view[0]["content"]), MAX_SUMMARY_LINES)
    _line(f"{in_commands(result.reason)} {change_line(result.tokens_before, result.tokens_after)}", bold=True)
    _line(f"The model now gets {len(view)} messages.")
    return str(result.summary_id)


async def _restore(stash: Stash, session_id: str, handles: list[str]) -> None:
    result = await stash.restore_outputs(handles, session_id=session_id)
    summaries = sum(each.handle.startswith("sum_") for each in result.restored)
    outputs = counted(len(result.restored) - summaries, "output")
    back = f"{outputs} archived in steps 3 and 4 and the messages behind {counted(summaries, 'summary')} are"
    _heading("6. Restore: everything returns to the view")
    _line(f"{back} back in the view. {change_line(result.tokens_before, result.tokens_after)}", bold=True)


def _tool_results(natives: list[Native]) -> dict[str, str]:
    """The text of each tool result, by the id of its call."""
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    results = [block for content in contents for block in content if block["type"] == "tool_result"]
    return {result["tool_use_id"]: _text(result["content"]) for result in results}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n\n".join(part.get("text", "") for part in content)


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
