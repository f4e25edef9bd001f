"""`contextstash demo`: what contextstash does, step by step, on a session that ships with it."""

from __future__ import annotations

import asyncio
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.output import change_line, console, shortened
from contextstash.cli.status import print_estimate

if TYPE_CHECKING:
    from contextstash.demo.steps import Compacted, Estimated, Pruned, Recorded, Restored, Retrieved, Step

LISTED = 6

SUMMARY_LINES = 20

WIDTH = 110


@click.command()
def demo() -> None:
    """Show everything on a session that ships with contextstash: no set-up, a few seconds."""
    asyncio.run(_demonstrate())


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
    _line("That was a temporary database. With sessions of your own: contextstash import FILE")


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
    _heading(f"{number}. Prune: old tool outputs leave the view for the archive")
    for output in sorted(result.archived, key=lambda output: -output.tokens)[:LISTED]:
        digest = " ".join(output.digest.split())
        _line(shortened(f"{output.handle}  {output.tokens:>6,} tokens  {output.tool:<5} {digest}", WIDTH))
    if len(result.archived) > LISTED:
        _line(f"... and {len(result.archived) - LISTED} more.")
    _line("In its place the model now sees, for instance:")
    _quote(step.placeholder)
    _line(f"{result.reason} {change_line(result.tokens_before, result.tokens_after)}", bold=True)
    if result.cache:
        _line(
            f"Prompt cache: {result.cache.rewritten_tokens:,} tokens are written anew;"
            f" paid for after {result.cache.pays_after_requests:g} requests."
        )


def _show_compacted(number: int, step: Compacted) -> None:
    result = step.result
    _heading(f"{number}. Compact: older messages become a summary ({result.strategy} writer)")
    _quote(result.summary or "", SUMMARY_LINES)
    _line(f"{result.reason} {change_line(result.tokens_before, result.tokens_after)}", bold=True)
    _line(f"The model is now sent {step.sent} messages.")


def _show_retrieved(number: int, step: Retrieved) -> None:
    _heading(f"{number}. Retrieve: one output again, by its handle")
    size = len(step.original.encode())
    lines = len(step.text.splitlines())
    _line(f"get_archived_output {step.handle} ({step.tool}): {lines:,} lines in {step.pages} pages.")
    _line(f"Compared with the original, {size:,} bytes: {_sameness(step.identical)}.", bold=True)


def _show_restored(number: int, step: Restored) -> None:
    result = step.result
    _heading(f"{number}. Restore: everything back into the view")
    _line(
        f"{len(result.restored)} restored. {change_line(result.tokens_before, result.tokens_after)}",
        bold=True,
    )
    _line(f"The view, compared with that of step 1: {_sameness(step.view_identical)}.")
    _line(f"The history, compared with the file: {_sameness(step.history_identical)}.")


def _sameness(same: bool) -> str:
    return "identical" if same else "DIFFERENT"


def _heading(text: str) -> None:
    out = console()
    out.print()
    out.print(text, style="bold cyan", soft_wrap=True)


def _line(text: str, *, bold: bool = False) -> None:
    console().print(text, style="bold" if bold else "", soft_wrap=True)


def _quote(text: str, most: int | None = None) -> None:
    """A text as the model sees it, set off and wrapped; of a long one only the first lines."""
    lines = [
        part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH - 4, subsequent_indent="  ") or [""]
    ]
    for line in lines[:most]:
        console().print(f"  | {line}", style="dim", soft_wrap=True)
    if most is not None and len(lines) > most:
        _line(f"  ... and {len(lines) - most} lines more.")
