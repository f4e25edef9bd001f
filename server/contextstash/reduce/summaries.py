"""Reads the summaries in a session's view."""

from __future__ import annotations

from contextstash.results import SummaryResult
from contextstash.session.access import Access
from contextstash.session.masks import shown_text
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.records import SummaryEdit

RECENT = "recent"
"""The level of the newest summary."""


async def get_summary(access: Access, session_id: str | None = None, *, level: str | None = None) -> SummaryResult:
    """All summaries in the view joined, after the messages with the user's words; or, by `level`, the newest one
    ("recent"), or any summary ever made by its id (sum_…). Raises NotFoundError if there is none."""
    if level is not None and level.startswith("sum_"):
        store = access.store
        session_id = await store.find_summary(level, session_id) or await store.find_summary(level) or session_id
    session = await access.read_session(session_id)
    snapshot = await access.snapshot(session.session_id)
    found = _wanted(snapshot, level)
    if not found:
        kind = f"{level} " if level else ""
        raise NotFoundError(f"Session {session.session_id} has no {kind}summary yet. compact_session writes one.")
    newest = found[-1]
    words = [entry for entry in snapshot.entries if entry.is_user_block] if level is None else []
    texts = [entry.digest.text for entry in words if entry.digest]
    texts += [newest.summary] if len(found) == 1 else map(_chapter, found)
    return SummaryResult(
        session_id=session.session_id,
        summary_id=newest.summary_id,
        summary=shown_text(snapshot.settings, "\n\n".join(texts)),
        messages_summarized=sum(edit.messages for edit in found),
        first_seq=found[0].first_seq,
        last_seq=newest.last_seq,
        created_at=newest.created_at.isoformat() if newest.created_at else "",
        tokens=sum(edit.tokens for edit in found) + sum(entry.tokens for entry in words),
        strategy=newest.strategy,
        level=newest.level,
        merges=list(newest.merges) or None if len(found) == 1 else [edit.summary_id for edit in found],
    )


def _wanted(snapshot: SessionSnapshot, level: str | None) -> list[SummaryEdit]:
    """The selected summaries, ordered by the messages they cover."""
    if level is None:
        return list(snapshot.overlay.summaries)
    if level.startswith("sum_"):
        return [edit for edit in snapshot.edits if isinstance(edit, SummaryEdit) and edit.summary_id == level][-1:]
    if level != RECENT:
        raise BadInputError(f"level is {RECENT}, or the id of a summary (sum_…), not '{level}'.")
    return list(snapshot.overlay.summaries)[-1:]


def _chapter(edit: SummaryEdit) -> str:
    return f"# Messages {edit.first_seq} to {edit.last_seq} ({edit.summary_id})\n\n{edit.summary}"
