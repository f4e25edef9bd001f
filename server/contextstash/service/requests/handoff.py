"""The hand-off: what a new window needs to know of a session, with the handles of its outputs."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.context.text.sanitize import MARKER, unforged
from contextstash.context.tool_outputs.limits import OutputLimits, limit
from contextstash.context.tool_outputs.placeholders import output_line
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.service.reduction.compact import compact
from contextstash.service.reduction.write_summary import Writers
from contextstash.service.session_access import Access
from contextstash_storage.records import Edit, Output, SummaryEdit

MAX_INDEX_SHARE = 0.3
"""Share of max_tokens that the index of handles may take. A guess: the summary matters more."""

MIN_INDEXED_TOKENS = 200
"""A smaller output is not worth a line of the index. A guess."""


async def hand_off(access: Access, session_id: str, max_tokens: int) -> str | None:
    """The newest summary by contextstash, or else one written for this hand-off, and an index of the archived outputs;
    at most `max_tokens`. None if the session is too short for a summary, or if `max_tokens` is too small."""
    snapshot = await access.snapshot(session_id)
    summary = _own_summary(snapshot.edits) or await _extract(access, session_id)
    if not summary:
        return None
    count = snapshot.counter.count
    head = (
        f"{MARKER}: hand-off of session {session_id}. Everything of it is kept: search_history finds it,"
        " get_archived_output reads outputs by their handles. Go on from here.]"
    )
    index = _index(snapshot, int(max_tokens * MAX_INDEX_SHARE))
    left = max_tokens - count(f"{head}\n\n\n\n{index}") - 2
    if left < MIN_INDEXED_TOKENS:
        return None
    shown = limit(summary, OutputLimits(tokens=left, cut="head_tail"), count).text
    return "\n\n".join(part for part in (head, shown, index) if part)


def _own_summary(edits: Sequence[Edit]) -> str | None:
    """The last summary by contextstash, even if the client has compacted since."""
    own = [edit for edit in edits if isinstance(edit, SummaryEdit) and edit.text != edit.summary]
    return unforged(own[-1].summary) if own else None


async def _extract(access: Access, session_id: str) -> str | None:
    result = await compact(access, session_id, Writers("extractive"), dry_run=True)
    return result.summary


def _index(snapshot: SessionSnapshot, max_tokens: int) -> str:
    """The newest outputs of at least MIN_INDEXED_TOKENS, one line each."""
    large: list[Output] = [output for output in snapshot.outputs.values() if output.tokens >= MIN_INDEXED_TOKENS]
    lines: list[str] = []
    left = max_tokens - snapshot.counter.count("## Outputs kept\n")
    for output in reversed(large):
        line = output_line(output)
        left -= snapshot.counter.count(line) + 1
        if left < 0:
            break
        lines.append(line)
    return "\n".join(("## Outputs kept, newest first", *lines)) if lines else ""
