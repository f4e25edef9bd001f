"""Compacting: older messages are shown as a summary, never without a real reduction."""

from __future__ import annotations

import asyncio
import hashlib
import time
from base64 import b32encode
from collections.abc import Sequence

from contextstash.context.compact import MINIMUM_PROGRESS, CompactPlan, plan_compaction
from contextstash.context.handoff import summary_text
from contextstash.context.turns import Turn
from contextstash.context.view import Entry, change, span, total_tokens
from contextstash.service.access import Access, Desk
from contextstash.service.editing import entries_after, retrying
from contextstash.service.pruning import CLIENT_NOTE
from contextstash.service.results import CompactResult, SummaryResult
from contextstash.summarizers import choose
from contextstash.summarizers.base import SummaryRequest, WrittenSummary
from contextstash_storage.errors import NotFoundError
from contextstash_storage.records import Edit, Event

LEAST_SUMMARY_TOKENS = 200
"""A summary is given at least this much room, however little it covers."""


async def compact(
    access: Access,
    session_id: str | None,
    *,
    summary: str | None = None,
    instructions: str | None = None,
    strategy: str = "auto",
    dry_run: bool = False,
) -> CompactResult:
    """Summarize all but the recent messages. Nothing happens, and the reason says so, where that would not
    make the view smaller."""
    choose(strategy, summary)

    async def attempt() -> CompactResult:
        desk = await access.desk(session_id)
        plan = plan_compaction(
            desk.entries,
            keep_tokens=desk.room.compact_keep_tokens,
            keep_messages=desk.settings.compact_keep_messages,
        )
        if not plan.covered:
            return _nothing(desk, plan.reason)
        return await _carry_out(access, desk, plan, summary, instructions, strategy, dry_run)

    return await retrying(attempt)


async def _carry_out(
    access: Access,
    desk: Desk,
    plan: CompactPlan,
    summary: str | None,
    instructions: str | None,
    strategy: str,
    dry_run: bool,
) -> CompactResult:
    started = time.perf_counter()
    written = await _write(access, desk, plan, summary, instructions, strategy)
    edit = _summary_edit(desk, plan, written)
    if edit.tokens >= plan.tokens * MINIMUM_PROGRESS:
        return _nothing(
            desk,
            f"Nothing done: the summary would take {edit.tokens:,} tokens and replace only {plan.tokens:,}.",
        )
    entries = await entries_after(access, desk, [edit])
    before, after = total_tokens(desk.entries), total_tokens(entries)
    count = sum(1 for entry in plan.covered if entry.message)
    reason = f"{'Would summarize' if dry_run else 'Summarized'} {count} messages, {edit.first_seq} to {edit.last_seq}."
    if not dry_run:
        await _append(access, desk, edit, entries, reason, time.perf_counter() - started)
    return CompactResult(
        session_id=desk.session.session_id,
        compacted=not dry_run,
        summary_id=edit.summary_id,
        summary=edit.summary,
        messages_summarized=count,
        first_seq=edit.first_seq,
        last_seq=edit.last_seq,
        strategy=written.strategy,
        tokens_before=before,
        tokens_after=after,
        tokens_saved=before - after,
        reason=reason,
        dry_run=dry_run or None,
        note=CLIENT_NOTE if desk.session.source else None,
    )


async def _append(
    access: Access, desk: Desk, edit: Edit, entries: Sequence[Entry], reason: str, seconds: float
) -> None:
    event = Event(
        kind="compaction",
        tokens_before=total_tokens(desk.entries),
        tokens_after=total_tokens(entries),
        messages_before=len(desk.entries),
        messages_after=len(entries),
        reason=reason,
        duration_ms=round(1000 * seconds, 2),
    )
    whole = edit.model_copy(
        update={"delta": change(desk.entries, entries), "view_messages": len(entries) - len(desk.entries)}
    )
    await access.store.append_edits(
        access.owner, desk.session.session_id, [whole], expected=len(desk.edits), event=event
    )


async def _write(
    access: Access,
    desk: Desk,
    plan: CompactPlan,
    summary: str | None,
    instructions: str | None,
    strategy: str,
) -> WrittenSummary:
    room = max(LEAST_SUMMARY_TOKENS, min(desk.settings.summary_tokens, plan.tokens // 3))
    request = SummaryRequest(
        turns=await turns_of(access, desk, plan.covered) if summary is None else (),
        previous="\n\n".join(entry.summary.summary for entry in plan.covered if entry.summary) or None,
        instructions=instructions,
        max_tokens=room,
        count=desk.counter.count,
    )
    return await choose(strategy, summary).write(request)


async def turns_of(access: Access, desk: Desk, entries: Sequence[Entry]) -> tuple[Turn, ...]:
    """The recorded messages among these entries with their whole texts, however they are shown."""
    wanted = {entry.message.seq: entry.message for entry in entries if entry.message}
    if not wanted:
        return ()
    recorded = await access.store.read_messages(
        access.owner, desk.session.session_id, first=min(wanted), last=max(wanted)
    )
    handles = {place: output.handle for place, output in desk.outputs.items()}

    def read() -> tuple[Turn, ...]:
        return tuple(
            Turn(
                seq=message.seq,
                role=message.role,
                blocks=message.blocks,
                texts=desk.format.read(message.body or {}).texts or ("",),
                handles={
                    block: handles[message.seq, block]
                    for block in range(len(message.blocks))
                    if (message.seq, block) in handles
                },
            )
            for message in recorded
            if message.seq in wanted
        )

    return await asyncio.to_thread(read)


def _summary_edit(desk: Desk, plan: CompactPlan, written: WrittenSummary) -> Edit:
    messages = plan.last_seq - plan.first_seq + 1
    shown = summary_text(written.text, plan.first_seq, plan.last_seq, messages)
    return Edit(
        kind="summary",
        first_seq=plan.first_seq,
        last_seq=plan.last_seq,
        summary_id=summary_id(plan.first_seq, plan.last_seq, written.text),
        strategy=written.strategy,
        level="recent",
        text=shown,
        summary=written.text,
        tokens=desk.counter.count(shown) + desk.settings.message_overhead,
    )


def summary_id(first_seq: int, last_seq: int, text: str) -> str:
    """The short name of a summary: made from what it covers and says."""
    content = f"{first_seq}\0{last_seq}\0{text}".encode("utf-8", "surrogatepass")
    return "sum_" + b32encode(hashlib.sha256(content).digest()[:5]).decode().lower()


def _nothing(desk: Desk, reason: str) -> CompactResult:
    tokens = total_tokens(desk.entries)
    return CompactResult(
        session_id=desk.session.session_id,
        compacted=False,
        tokens_before=tokens,
        tokens_after=tokens,
        tokens_saved=0,
        reason=reason,
    )


async def get_summary(access: Access, session_id: str | None, level: str | None) -> SummaryResult:
    """The newest summary in force. Raises NotFoundError where there is none."""
    session = await access.session(session_id)
    desk = await access.desk(session.session_id)
    found = [edit for edit in desk.overlay.summaries if level in (None, edit.level)]
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
    )
