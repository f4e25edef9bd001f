"""Summaries in a session's view: how they are named, shown, merged level by level, and read."""

from __future__ import annotations

import hashlib
from base64 import b32encode

from contextstash.context.handoff import summary_text
from contextstash.context.levels import LEVELS
from contextstash.context.oneline import unforged
from contextstash.context.view import span
from contextstash.service.access import Access, Desk
from contextstash.service.results import SummaryResult
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.records import Edit


def summary_id(first_seq: int, last_seq: int, text: str) -> str:
    """The short name of a summary: made from what it covers and says."""
    content = f"{first_seq}\0{last_seq}\0{text}".encode("utf-8", "surrogatepass")
    return "sum_" + b32encode(hashlib.sha256(content).digest()[:5]).decode().lower()


def summary_edit(
    desk: Desk,
    text: str,
    first_seq: int,
    last_seq: int,
    *,
    strategy: str,
    level: str = "recent",
    merges: tuple[str, ...] = (),
) -> Edit:
    """The edit that shows messages `first_seq..last_seq` as this text; what it changes of the counters is left to
    the caller."""
    marker = desk.settings.summary_marker
    if marker is None:
        shown = summary_text(text, first_seq, last_seq, last_seq - first_seq + 1)
    else:
        shown = f"{marker}\n{unforged(text)}"
    return Edit(
        kind="summary",
        first_seq=first_seq,
        last_seq=last_seq,
        summary_id=summary_id(first_seq, last_seq, text),
        strategy=strategy,
        level=level,
        merges=merges,
        text=shown,
        summary=text,
        tokens=desk.counter.count(shown) + desk.settings.message_overhead,
    )


async def get_summary(access: Access, session_id: str | None, level: str | None) -> SummaryResult:
    """The newest summary in force, of a level or of any; by its own id (sum_…) any that was ever made.
    Raises NotFoundError where there is none."""
    session = await access.session(session_id)
    desk = await access.desk(session.session_id)
    if level is not None and level.startswith("sum_"):
        found = [edit for edit in desk.edits if edit.summary_id == level]
    elif level in (None, *LEVELS):
        found = [edit for edit in desk.overlay.summaries if level in (None, edit.level)]
    else:
        raise BadInputError(f"level is one of {', '.join(LEVELS)}, or the id of a summary (sum_…), not '{level}'.")
    if not found:
        kind = f"{level} " if level else ""
        raise NotFoundError(f"Session {session.session_id} has no {kind}summary yet. compact_session makes one.")
    edit = found[-1]
    first, last = span(edit)
    return SummaryResult(
        session_id=session.session_id,
        summary_id=edit.summary_id or "",
        summary=edit.summary,
        messages_summarized=last - first + 1,
        first_seq=first,
        last_seq=last,
        created_at=edit.created_at.isoformat() if edit.created_at else "",
        tokens=edit.tokens,
        strategy=edit.strategy or "",
        level=edit.level or "recent",
        merges=list(edit.merges) or None,
    )
