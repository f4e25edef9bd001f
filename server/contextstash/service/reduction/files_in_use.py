"""The texts of files in use, which follow a summary: what the next edit needs of the messages that it covers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contextstash.context.extraction.actions import actions_of
from contextstash.context.extraction.files.files_under_edit import EditedFile, files_of
from contextstash.context.extraction.files.standing_texts import focus_of, lines_shown, standing_texts
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.sanitize import MARKER, unforged
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash_storage.records import Block

MIN_TOKENS = 100
"""With less room nothing is shown. A guess: some ten lines of code."""

HEAD_TOKENS = 60
"""About what the line before the texts takes."""


MAX_PART = 6
"""The texts take at most one part in so many of the tokens that the compaction frees, so that it frees most of them."""


async def files_in_use(snapshot: SessionSnapshot, turns: Sequence[Turn], shown: Sequence[Turn], replaced: int) -> str:
    """The texts of the files that these turns use, as they stand at their end, without what the view shows anyway;
    empty if there are none. `shown` are the turns that stay in the view, without the texts that leave it; `replaced` is
    how many tokens the compaction frees."""
    room = min(snapshot.budget.standing_tokens, replaced // MAX_PART) - HEAD_TOKENS
    if room < MIN_TOKENS or not turns:
        return ""
    return await asyncio.to_thread(_written, snapshot, turns, shown, room)


def _written(snapshot: SessionSnapshot, turns: Sequence[Turn], shown: Sequence[Turn], room: int) -> str:
    visible = {handle for turn in shown for place, handle in turn.handles.items() if turn.texts[place].strip()}
    files = [file for file in files_of(actions_of(turns)) if not _is_shown(file, visible)]
    count, seen = snapshot.counter.count, lines_shown(shown)
    text = standing_texts(files, room, count, focus=focus_of(turns), seen=seen)
    if not text:
        return ""
    head = (
        f"{MARKER} files in use, as they stood after message {turns[-1].seq}, with the edits up to there; what a later"
        " message changes or shows is newer:]"
    )
    return f"{head}\n{unforged(text)}"


def _is_shown(file: EditedFile, visible: set[str]) -> bool:
    """Whether the view shows the file's newest read, of the whole file."""
    return file.text.whole and file.handle in visible


def as_turns(text: str) -> list[Turn]:
    """The text as a turn that the view shows, so that a summary need not repeat its names."""
    return [Turn(0, "tool", (Block(type="text", size=len(text)),), (text,))] if text else []
