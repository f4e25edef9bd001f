"""Following: messages out of a client's transcript, with what the client itself did to its window."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from contextstash.context.digest import digest_output
from contextstash.context.view import difference, total_tokens
from contextstash.formats import get_format
from contextstash.formats.base import Format
from contextstash.service.access import Access, Desk
from contextstash.service.editing import entries_after, replaced, retrying, weighed
from contextstash.service.pruning import archive_edit
from contextstash.service.recording import Calls, RecentCalls, append, ensure_session
from contextstash.service.summaries import summary_id
from contextstash.service.transcripts import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Appended, Counters, Cursor, Edit, Message, Part, Session
from contextstash_storage.store import EditsAfter

logger = logging.getLogger(__name__)


async def record_transcript(
    access: Access,
    recent: RecentCalls,
    transcript: TranscriptSession,
    messages: Sequence[TranscriptMessage],
    cursor: Cursor,
) -> Appended:
    """Append what was read of a transcript; the cursor moves with the last messages, in one transaction.

    Safe to repeat after a crash at any place: messages are known by their keys, edits by what they cover.
    """
    session = await ensure_session(
        access,
        transcript.session_id,
        [message.body for message in messages],
        format=transcript.format,
        agent=transcript.agent,
        model=transcript.model or next((m.model for m in reversed(messages) if m.model), None),
        title=transcript.title,
        source=transcript.source,
        parent_session_id=transcript.parent_session_id,
    )
    messages = _readable(messages, get_format(session.format or transcript.format))
    calls = await recent.of(session)
    total = Appended(messages=(), duplicates=0, session=session)
    runs = _runs(messages)
    for place, run in enumerate(runs):
        await _before(access, total.session, run[0] if run else None)
        part = await _append_run(access, total.session, run, calls, cursor if place == len(runs) - 1 else None)
        total = Appended(
            messages=total.messages + part.messages,
            duplicates=total.duplicates + part.duplicates,
            session=part.session,
        )
    recent.keep(total.session, calls)
    return total


def _readable(messages: Sequence[TranscriptMessage], fmt: Format) -> list[TranscriptMessage]:
    """The messages that can be read; a damaged one must not keep the rest of a transcript out."""
    readable = []
    for message in messages:
        try:
            fmt.read(message.body)
        except BadMessageError as error:
            logger.warning("a message of a transcript is passed over: %s", error)
        else:
            readable.append(message)
    return readable


def _runs(messages: Sequence[TranscriptMessage]) -> list[list[TranscriptMessage]]:
    """Messages cut before each rewind or clearing and after each summary of the client's own."""
    runs: list[list[TranscriptMessage]] = [[]]
    for message in messages:
        if runs[-1] and (message.rewind_to_key is not None or message.cleared_call_ids):
            runs.append([])
        runs[-1].append(message)
        if message.covers_before:
            runs.append([])
    return runs if runs[-1] or len(runs) == 1 else runs[:-1]


async def _append_run(
    access: Access, session: Session, run: Sequence[TranscriptMessage], calls: Calls, cursor: Cursor | None
) -> Appended:
    edits: EditsAfter | None = None
    if run and run[-1].covers_before:
        fmt = get_format(session.format or "anthropic")
        edits = _host_summary("\n".join(fmt.read(run[-1].body).texts))
    return await append(
        access,
        session,
        [message.body for message in run],
        calls,
        extras=[_extra(message) for message in run],
        cursor=cursor,
        edits=edits,
    )


def _extra(message: TranscriptMessage) -> dict[str, object]:
    given = {
        "key": message.key,
        "group": message.group,
        "usage": message.usage,
        "model": message.model,
        "created_at": message.created_at or datetime.now(UTC),
        "kind": "summary" if message.covers_before else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _host_summary(text: str) -> EditsAfter:
    """The edit that shows everything up to the client's own summary as that summary."""

    def edits(counters: Counters, stored: tuple[Message, ...]) -> list[Edit]:
        last = stored[-1]
        if last.kind != "summary":
            return []
        tokens = last.tokens
        delta = {part: -count for part, count in counters.parts.items()}
        delta[Part.SUMMARIES] = delta.get(Part.SUMMARIES, 0) + tokens
        return [
            Edit(
                kind="summary",
                first_seq=0,
                last_seq=last.seq,
                summary_id=summary_id(0, last.seq, text),
                strategy="host",
                level="recent",
                text=text,
                summary=text,
                tokens=tokens,
                delta={part: change for part, change in delta.items() if change},
                view_messages=1 - counters.view_messages,
                view_results=-counters.view_results,
            )
        ]

    return edits


async def _before(access: Access, session: Session, message: TranscriptMessage | None) -> None:
    """What the client did to its window before this message, as edits of the view."""
    if message is None or session.counters.messages == 0:
        return
    if message.rewind_to_key is not None:
        await retrying(lambda: _rewind(access, session.session_id, message))
    if message.cleared_call_ids:
        await retrying(lambda: _clear(access, session.session_id, frozenset(message.cleared_call_ids)))


async def _known(access: Access, session_id: str, key: str | None) -> bool:
    return key is not None and await access.store.find_key(access.owner, session_id, key) is not None


async def _rewind(access: Access, session_id: str, message: TranscriptMessage) -> None:
    if await _known(access, session_id, message.key):
        return
    to: int | None = -1
    if message.rewind_to_key:
        to = await access.store.find_key(access.owner, session_id, message.rewind_to_key)
    desk = await access.desk(session_id)
    last = desk.session.counters.messages - 1
    if to is None or to >= last or not any(entry.first_seq > to for entry in desk.entries):
        return
    edit = Edit(kind="rewind", first_seq=to + 1, last_seq=last)
    await _append_edits(access, desk, [edit])


async def _clear(access: Access, session_id: str, call_ids: frozenset[str]) -> None:
    desk = await access.desk(session_id)
    edits = []
    for entry in desk.entries:
        for block, found in enumerate(entry.message.blocks if entry.message else ()):
            seq = entry.first_seq
            if found.call_id in call_ids and (seq, block) in desk.outputs and block not in entry.replaced:
                output = desk.outputs[seq, block]
                text = await access.output_text(desk.session, output)
                digest = digest_output(output.tool, output.argument, text, output.is_error)
                edit = archive_edit(desk, output, digest)
                if edit.tokens < found.tokens:
                    after = replaced(entry, block, edit)
                    edits.append(weighed(edit, entry, after))
                    entry = after
    if edits:
        await access.store.append_edits(access.owner, session_id, edits, expected=len(desk.edits), own=False)


async def _append_edits(access: Access, desk: Desk, edits: list[Edit]) -> None:
    entries = await entries_after(access, desk, edits)
    [first, *rest] = edits
    whole = first.model_copy(update=difference(desk.entries, entries))
    if total_tokens(entries) <= total_tokens(desk.entries):
        await access.store.append_edits(
            access.owner, desk.session_id, [whole, *rest], expected=len(desk.edits), own=False
        )
