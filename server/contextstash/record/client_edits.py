"""Client edits: a client's own compactions, rewinds and cleared tool results, recorded as edits of the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash.record.transcript_records import TranscriptMessage, is_window_key
from contextstash.session.access import Access
from contextstash.session.edit import Planned, archive_of, edit, entries_after, weighed
from contextstash.session.estimate import tokens_by_part
from contextstash.view.branches import HOST, restored, rewinding
from contextstash.view.edits import summary_id
from contextstash.view.ladder import cuts_of
from contextstash.view.view import Entry
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import (
    Appended,
    Counters,
    Edit,
    EditsAfter,
    Event,
    Message,
    Part,
    Session,
    SummaryEdit,
    ViewDelta,
    WeighedEdits,
)

CLIENT = "client"
"""The strategy of events that log what a client did to its own window."""

CLIENT_WINDOW = "client_window"
"""The strategy of compactions by contextstash in the client's own window, for the client's plugin."""

OURS = {"strategy": CLIENT_WINDOW, "reason": "contextstash compacted the client's window."}
"""What an event says of a compaction by contextstash in the client's own window."""

OF_CLIENTS_WINDOW = (CLIENT, CLIENT_WINDOW)
"""The strategies of events that changed the client's window; all others changed only our view."""


async def mirror_before(access: Access, session: Session, message: TranscriptMessage) -> None:
    """Record what the client did to its window before this message. Safe to repeat."""
    session_id = session.session_id
    if not session.counters.messages:
        return
    if message.rewind_to_key is not None:
        await edit(access, lambda: _rewind(access, session_id, message))
    if message.cleared_call_ids:
        await edit(access, lambda: _clear(access, session_id, frozenset(message.cleared_call_ids)))


def whole_compaction(text: str) -> EditsAfter:
    """The edit that replaces everything up to the client's own summary, `text`, with that summary."""

    def edits(counters: Counters, stored: tuple[Message, ...]) -> WeighedEdits:
        last = stored[-1]
        if last.kind != "summary":
            return WeighedEdits(())
        tokens = last.tokens
        parts = {part: -count for part, count in counters.parts.items()}
        parts[Part.SUMMARIES] = parts.get(Part.SUMMARIES, 0) + tokens
        edit = _summary(text, 0, last.seq, tokens, at=last.seq).model_copy(update={"created_at": last.created_at})
        return WeighedEdits([edit], ViewDelta(parts, 1 - counters.view_messages, -counters.view_results))

    return edits


async def partial_compaction(
    access: Access, session: Session, message: TranscriptMessage, text: str
) -> EditsAfter | None:
    """The edits for a compaction that kept some messages: they replace the covered messages with the client's summary,
    `text`, and leave the kept ones. None if the store has neither of the message's keys, or if nothing is covered.

    The edits are stored in the same transaction as the summary's own message, which is hidden at its own position.
    Storing them raises EditConflictError if the session has changed meanwhile.
    """
    after = await _position(access, session.session_id, message.covers_after_key)
    before = await _position(access, session.session_id, message.covers_before_key)
    if after is None and before is None:
        return None
    snapshot = await access.snapshot(session.session_id)
    own = snapshot.session.counters.messages
    first, last = 0 if after is None else after + 1, own if before is None else before - 1
    undone = [edit for edit in snapshot.overlay.summaries if _overlaps(edit, first, last)]
    entries = await entries_after(access, snapshot, restored(undone)) if undone else list(snapshot.entries)
    first, last = _safe(entries, first, last, own)
    if first > last:
        return None
    tokens = snapshot.counter.count(text) + snapshot.settings.message_overhead
    summary = _summary(text, first, last, tokens, at=own).model_copy(update={"created_at": message.created_at})
    edits = await weighed(access, snapshot, [*restored(undone), summary])

    def unchanged(counters: Counters, stored: tuple[Message, ...]) -> WeighedEdits:
        if (counters.messages - len(stored), counters.edits) != (own, len(snapshot.edits)):
            raise EditConflictError("The session changed while its client's compaction was being recorded.")
        return edits

    return unchanged


async def log_compaction(access: Access, session: Session, appended: Appended) -> None:
    """Log a compaction by the client, or by us in its window, as an event; `session` is as it was before the messages
    of `appended`, the last of which is the summary. A reader that ends before this has stored the compaction without
    its event."""
    summary = appended.messages[-1]
    if summary.kind != "summary":
        return
    now = appended.session
    before, after = [sum((await tokens_by_part(access, each)).values()) for each in (session, now)]
    changes: dict[str, Any] = {"messages_before": session.counters.view_messages, "created_at": summary.created_at}
    event = await client_compaction(access, now, before, after)
    if is_window_key(summary.key):
        changes |= OURS
    await access.store.append_event(now.session_id, event.model_copy(update=changes))


async def log_own_compaction(access: Access, session_id: str, before: int, after: int) -> None:
    """Log a compaction by us in the client's window of a session that the proxy records, from so many tokens to so
    many. The window itself is recorded with its first request."""
    event = await client_compaction(access, await access.store.get_session(session_id), before, after)
    await access.store.append_event(session_id, event.model_copy(update=OURS))


async def client_compaction(access: Access, session: Session, before: int, after: int) -> Event:
    """The event that says that the client has compacted its own window, from so many tokens to so many."""
    return Event(
        kind="compaction",
        strategy=CLIENT,
        tokens_before=before,
        tokens_after=after,
        messages_after=session.counters.view_messages,
        reason="The client compacted its own window.",
        seq=session.counters.messages,
        parts=await tokens_by_part(access, session),
    )


def _summary(text: str, first: int, last: int, tokens: int, *, at: int) -> SummaryEdit:
    """`at` is the position of the client's message that holds the summary."""
    return SummaryEdit(
        seq=at,
        first_seq=first,
        last_seq=last,
        summary_id=summary_id(first, last, text),
        strategy=HOST,
        text=text,
        summary=text,
        tokens=tokens,
    )


def _overlaps(cover: SummaryEdit, first: int, last: int) -> bool:
    """Whether a summary covers some of these messages, and also messages outside them."""
    start, end = cover.span
    return start <= last and end >= first and not (first <= start and end <= last)


def _safe(entries: Sequence[Entry], first: int, last: int, end: int) -> tuple[int, int]:
    """Narrow `first` to `last` so that no tool call is separated from its result. `end` is the position after the last
    message."""
    starts = [entries[cut].first_seq if cut < len(entries) else end for cut in cuts_of(entries)]
    first = 0 if first == 0 else min((start for start in starts if start >= first), default=end)
    if last < end:
        last = max((start for start in starts if start <= last + 1), default=0) - 1
    return first, last


async def _position(access: Access, session_id: str, key: str | None) -> int | None:
    return None if key is None else await access.store.find_key(session_id, key)


async def _rewind(access: Access, session_id: str, message: TranscriptMessage) -> Planned[None] | None:
    if await _position(access, session_id, message.key) is not None:
        return None
    to = await _position(access, session_id, message.rewind_to_key) if message.rewind_to_key else -1
    if to is None:
        return None
    snapshot = await access.snapshot(session_id)
    edits = rewinding(snapshot.edits, snapshot.session.counters.messages, to)
    if not edits:
        return None
    return Planned(snapshot, edits, lambda *_: None, own=False)


async def _clear(access: Access, session_id: str, call_ids: frozenset[str]) -> Planned[None] | None:
    snapshot = await access.snapshot(session_id)
    edits: list[Edit] = []
    for entry in snapshot.entries:
        for index, block in enumerate(entry.message.blocks if entry.message else ()):
            output = snapshot.outputs.get((entry.first_seq, index))
            if output is None or block.call_id not in call_ids or index in entry.replaced:
                continue
            made = archive_of(snapshot, output, await access.output_text(snapshot.session, output))
            if made.tokens < block.tokens:
                edits.append(made)
    return Planned(snapshot, edits, lambda *_: None, own=False) if edits else None
