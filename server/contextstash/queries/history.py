"""The history in pages: each message as it was recorded, whether the model still sees it, and what it sees instead; and
the summaries that it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.messages.detection import get_format
from contextstash.results import (
    MessageLine,
    MessagePage,
    ShownBlock,
    ShownMessage,
    ShownPage,
    ShownSummary,
    SummaryResult,
)
from contextstash.session.access import Access
from contextstash.session.masks import shown_excerpt, shown_text, shown_texts, shown_value
from contextstash.session.open_session import READ_AT_ONCE
from contextstash.view.branches import path_to
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.view.view import Entry, Overlay, build_view, edits_in_force
from contextstash.window.settings import ContextSettings
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.records import Block, Message, Native, Session, SummaryEdit

MAX_MESSAGES = 500


@dataclass(frozen=True)
class _Page:
    """Messages of a session, with the edits in force, their entries in the view and the handles of their outputs."""

    session: Session
    settings: ContextSettings
    messages: Sequence[Message]
    overlay: Overlay
    entries: dict[int, Entry]
    handles: dict[Place, str]
    next_seq: int | None


async def _page(access: Access, session_id: str, first: int, limit: int) -> _Page:
    session = await access.read_session(session_id)
    total = session.counters.messages
    last = min(total, first + limit) - 1
    messages = await access.store.read_messages(session_id, first=first, last=last)
    overlay = edits_in_force(await access.store.read_edits(session_id))
    outputs = await access.store.read_outputs(session_id, first=first, last=last)
    return _Page(
        session,
        access.settings(session),
        messages,
        overlay,
        {entry.first_seq: entry for entry in build_view(messages, overlay) if entry.message},
        {(output.seq, output.block): output.handle for output in outputs},
        last + 1 if last + 1 < total else None,
    )


async def read_messages(access: Access, session_id: str, *, first: int = 0, limit: int = 50) -> MessagePage:
    """Messages as they were recorded, but with masks in the place of secrets, from position `first` on, each with
    whether the model still sees it."""
    page = await _page(access, session_id, first, limit)
    return MessagePage(
        session_id=session_id,
        messages=[_line(page, message) for message in page.messages],
        total=page.session.counters.messages,
        next_seq=page.next_seq,
    )


def _line(page: _Page, message: Message) -> MessageLine:
    entry = page.entries.get(message.seq)
    blocks = message.blocks
    places = ((message.seq, place) for place in range(len(blocks)))
    handles = [page.handles[place] for place in places if place in page.handles]
    kind = entry.kind if entry else message.kind
    return MessageLine.of(
        message,
        kind=kind,
        agent_visible=entry is not None and kind != "tool_result_archived",
        handles=handles or None,
        message=shown_value(page.settings, message.body or {}),
    )


async def read_shown_messages(access: Access, session_id: str, *, first: int = 0, limit: int = 100) -> ShownPage:
    """A page of the history with what the model sees in the place of each message: messages `first` to
    `first + limit - 1`. Raises SessionNotFoundError, or BadInputError if a number is bad."""
    if first < 0 or not 1 <= limit <= MAX_MESSAGES:
        raise BadInputError(f"first is 0 or more, limit 1 to {MAX_MESSAGES}.")
    page = await _page(access, session_id, first, limit)
    return ShownPage(
        session_id=session_id,
        messages=[_shown(page, message) for message in page.messages],
        summaries=[
            ShownSummary.of(edit, text=shown_text(page.settings, edit.text))
            for edit in page.overlay.summaries
            if edit.first_seq < first + limit and edit.last_seq >= first
        ],
        total=page.session.counters.messages,
        first=first,
        next_seq=page.next_seq,
        client_sends_history=await access.sends_own_history(page.session) or None,
    )


def _shown(page: _Page, message: Message) -> ShownMessage:
    entry = page.entries.get(message.seq)
    covers = (edit for edit in page.overlay.covers if edit.first_seq <= message.seq <= edit.last_seq)
    hiding = None if entry else next(covers, None)
    return ShownMessage.of(
        message,
        blocks=[_block(page, message.seq, place, *read) for place, read in enumerate(_read(page, message))],
        summary_id=hiding.summary_id if isinstance(hiding, SummaryEdit) else None,
        visible=entry is not None,
    )


def _read(page: _Page, message: Message) -> list[tuple[Block, str, str]]:
    """Each block with its tokens, its text for a reader and as it was recorded."""
    reading = get_format(page.session.format).read(message.body or {})
    # The tokens were counted when the message was recorded. A format that reads it otherwise today has other blocks.
    counted = message.blocks if len(message.blocks) == len(reading.blocks) else reading.blocks
    texts = shown_texts(page.settings, message.role, counted, reading.texts)
    return list(zip(counted, texts, reading.texts, strict=True))


def _block(page: _Page, seq: int, place: int, block: Block, text: str, whole: str) -> ShownBlock:
    entry = page.entries.get(seq)
    edit = entry.replaced.get(place) if entry else None
    stripped = entry is not None and entry.stripped and block.type == "thinking"
    return ShownBlock.of(
        block,
        heading=" ".join(filter(None, (block.tool, block.argument))),
        text=text,
        handle=page.handles.get((seq, place)),
        shown=shown_excerpt(page.settings, edit.text, whole) if edit else None,
        state=edit.kind if edit else "strip" if stripped else None,
    )


async def read_conversation(access: Access, session_id: str) -> list[Native]:
    """Every message that no rewind hides, oldest first, as it was recorded: what a program continues from after a
    restart."""
    session = await access.read_session(session_id)
    edits = await access.store.read_edits(session_id)
    shown = edits_in_force(edits).visible_ranges(session.counters.messages)
    path = sorted(path_to(edits, shown[-1][1] if shown else session.counters.messages - 1))
    natives: list[Native] = []
    for start in range(0, len(path), READ_AT_ONCE):
        read = await access.store.read_messages_at(session_id, path[start : start + READ_AT_ONCE])
        natives += [message.body or {} for message in read]
    return natives


# The summaries in the view.

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
