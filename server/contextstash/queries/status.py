"""The status of a session's context for a person: how full it is, with what, and what was done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile

from contextstash.queries.proxy_report import report_of
from contextstash.queries.receipt import MAX_CALLS, SHRINKING, savings_of
from contextstash.queries.sessions import title_of
from contextstash.record.output_archive import kept_outputs
from contextstash.results import Change, ContextStatus, Estimate, SummaryMade
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_messages, estimate_session
from contextstash.view.view import edits_in_force
from contextstash.window.thresholds import rapid_compactions, refill_advice
from contextstash_storage.records import ArchiveEdit, Native, Session

CHANGES_SHOWN = 12

MIN_UNLOGGED_SHARE = 0.1
"""Unlogged text of a smaller share of the window is not looked into."""

MAX_READ = 5_000
"""Messages since the last compaction that are read for that: more than a window holds."""

MAX_COMPACTIONS = 8
"""How many of the last compactions are looked at for those that came too soon."""


async def context_status(access: Access, session_id: str | None = None) -> ContextStatus:
    """The estimate, the last summary, and the last changes, newest first. Raises SessionNotFoundError."""
    session = await access.read_session(session_id)
    estimate = await _with_notes(access, session)
    overlay = edits_in_force(await access.store.read_edits(session.session_id))
    summaries = overlay.summaries
    proxied = await access.store.get_proxied(session.session_id)
    events = await access.store.last_events(session.session_id, SHRINKING, CHANGES_SHOWN)
    return ContextStatus(
        session_id=session.session_id,
        title=await title_of(access, session),
        agent=session.agent,
        estimate=estimate,
        due=None if session.source is not None else _due(estimate) or None,  # only the client compacts its window
        messages=session.counters.messages,
        messages_summarized=sum(edit.messages for edit in summaries),
        outputs_archived=sum(isinstance(edit, ArchiveEdit) for edit in overlay.replaced.values()),
        outputs_shortened=(await kept_outputs(access, session.session_id))[0] or None,
        unlogged=await _unlogged(access, session, estimate),
        last_summary=SummaryMade.of(max(summaries, key=lambda edit: edit.edit_id)) if summaries else None,
        savings=None if proxied is not None else await savings_of(access, session),
        proxy=None if proxied is None else report_of(proxied),
        changes=[Change.of(event) for event in events],
    )


async def estimate_context(
    access: Access,
    session_id: str | None = None,
    *,
    messages: Sequence[Native] | None = None,
    model: str | None = None,
) -> Estimate:
    """How full the window is; with `messages`, the estimate for these alone, and nothing is recorded."""
    if messages is not None:
        return await asyncio.to_thread(estimate_messages, access, messages, model)
    return await _with_notes(access, await access.read_session(session_id), model)


async def _with_notes(access: Access, session: Session, model: str | None = None) -> Estimate:
    """The estimate; above the level `ok` also with notes on why the window fills again and again."""
    estimate = await estimate_session(access, session, model)
    if estimate.level == "ok":
        return estimate
    events = await access.store.last_events(session.session_id, ("compaction", "recovery"), MAX_COMPACTIONS)
    rapid = rapid_compactions([event.seq for event in events])
    notes = [note for note in (_ignored(session, estimate), refill_advice(rapid, estimate.window)) if note]
    return estimate.model_copy(update={"notes": notes or None})


def _ignored(session: Session, estimate: Estimate) -> str | None:
    """A note if the client seems to send its own history instead of our view, which makes every prune useless."""
    unrecorded = estimate.breakdown.get("unrecorded", 0)
    if session.source is not None or not session.counters.own or unrecorded <= estimate.usable // 2:
        return None
    return (
        f"The provider reports {unrecorded:,} tokens that are in no recorded message or were pruned: large tool"
        " definitions, or a client that does not send what get_context returns."
    )


def _due(estimate: Estimate) -> list[str]:
    """The triggers that fire at the next message; its length is unknown, so the present tokens are compared."""
    found = []
    messages, tokens = estimate.messages_trigger, estimate.tokens_trigger
    if messages is not None and messages.value + 1 >= messages.threshold:
        found.append(f"messages {messages.value + 1:,} / {messages.threshold:,}")
    if tokens.value >= tokens.threshold:
        found.append(f"tokens {tokens.value:,} / {tokens.threshold:,}")
    return found


async def _unlogged(access: Access, session: Session, estimate: Estimate) -> str | None:
    """What is known of the tokens that the provider reports and no message holds: the part that stood beside the
    messages of the window's first request, and what the model wrote and its provider keeps to itself."""
    unlogged = estimate.breakdown.get("unrecorded", 0)
    if session.counters.reported is None or unlogged < MIN_UNLOGGED_SHARE * estimate.usable:
        return None
    total = session.counters.messages
    last = await access.store.last_events(session.session_id, ("compaction",), 1)
    start = max(last[0].seq if last else 0, total - MAX_READ)
    messages = await access.store.read_messages(session.session_id, first=start, bodies=False)
    calls = await access.store.read_calls(session.session_id, limit=MAX_CALLS)
    calls = [call for call in calls if call.purpose == "agent" and call.request_seq >= start]
    if not calls:
        return None
    recorded = sum(message.tokens for message in messages if message.seq <= calls[0].request_seq)
    first = min(unlogged, max(0, calls[0].prompt_tokens - recorded))
    hidden = 0
    for call in calls:
        after = (messages[place] for place in range(call.request_seq + 1 - start, len(messages)))
        replied = takewhile(lambda each: each.role == "assistant", after)
        hidden += max(0, call.completion_tokens - sum(message.tokens for message in replied))
    hidden = min(unlogged - first, hidden)
    unknown = unlogged - first - hidden
    return (
        f"Of {unlogged:,} tokens of unlogged text {first:,} stood beside the messages of the window's first request"
        f" (system prompt and tool definitions), {hidden:,} are what the model wrote and its provider does not show"
        f" (hidden thinking){f', and of {unknown:,} it is not known' if unknown else ''}."
    )
