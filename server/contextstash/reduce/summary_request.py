"""Writes a summary with the first summarizer that succeeds, or takes it from the cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.events.turns import Turn, without_own_calls
from contextstash.reduce.writer_calls import log_calls, writer_settings
from contextstash.session.access import Access
from contextstash.session.masks import shown_text, shown_texts
from contextstash.view.compaction_plan import CompactPlan
from contextstash.view.prune_plan import Candidate
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.view.view import Entry, build_view
from contextstash.writers.base import Summarizer, SummaryRequest, WrittenSummary
from contextstash.writers.writer_fallback import choose, content_key, write_summary
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import CachedSummary, Message, RewindEdit

HISTORY_MESSAGES = 400
"""From how many of the newest messages the texts of files in use are taken. Measured with bench/fidelity: 300
keep nearly as much as all; the limit bounds the work in a long session."""

MAX_READ = 1_500
"""From how many of the messages that it covers a model writes a summary, the newest. A window of 200,000 tokens holds
fewer, so only a session which was never reduced has more; each takes about a millisecond."""

OPENING = 50
"""From how many of the first messages it is written in addition: they say what the task is."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Writers:
    """Which summarizers may write, and their input: `summary` is a text from the host."""

    strategy: str
    summary: str | None = None
    instructions: str | None = None

    def chosen(self, access: Access, snapshot: SessionSnapshot) -> tuple[Summarizer, ...]:
        """The summarizers to try, in order. Raises BadInputError if the requested strategy is unavailable."""
        strategy = self.strategy
        if strategy == "auto" and self.summary is None:
            strategy = snapshot.settings.summarizer
            if strategy == "anthropic" and not access.reaches_model(snapshot.session.agent, snapshot.settings):
                strategy = "auto"
        settings = writer_settings(access, snapshot.session.agent, snapshot.settings)
        try:
            return choose(strategy, self.summary, settings=settings)
        except BadInputError:
            if self.strategy != "auto":
                raise
            return choose("auto", self.summary, settings=settings)


async def written(
    access: Access,
    snapshot: SessionSnapshot,
    writers: Sequence[Summarizer],
    request: SummaryRequest,
    span: tuple[int, int],
) -> tuple[WrittenSummary, float | None]:
    """The summary of messages `span`, and its cost in US dollars if that is known. If a model has summarized the same
    content before, its summary is taken from the cache."""
    model = snapshot.settings.summarizer_model
    slow = writers[0].slow
    key = await asyncio.to_thread(content_key, request, writers[0].strategy, model) if slow else ""
    if slow:
        cached = await access.store.get_cached_summary(snapshot.session_id, key)
        if cached is not None:
            return WrittenSummary(cached.text, cached.strategy, cached.model), 0.0
    summary = await write_summary(request, writers)
    summary = replace(summary, text=shown_text(snapshot.settings, summary.text))
    cost = await log_calls(access, snapshot, summary.calls, *span)
    if slow and summary.strategy == writers[0].strategy:
        kept = CachedSummary(text=summary.text, strategy=summary.strategy, model=summary.model)
        await access.store.put_cached_summary(snapshot.session_id, key, kept)
    return summary, cost


async def recent_history(access: Access, snapshot: SessionSnapshot, last_seq: int) -> tuple[Turn, ...]:
    """The turns of the HISTORY_MESSAGES messages up to `last_seq`, also those that a summary covers already."""
    return await visible_turns(access, snapshot, max(0, last_seq - HISTORY_MESSAGES + 1), last_seq)


async def visible_turns(access: Access, snapshot: SessionSnapshot, first: int, last: int) -> tuple[Turn, ...]:
    """The turns of the messages from `first` to `last`, but not those of a hidden branch."""
    if last < first:
        return ()
    hidden = [edit.span for edit in snapshot.edits if isinstance(edit, RewindEdit)]
    recorded = await access.messages_at(snapshot, range(first, last + 1))
    outputs = await access.store.read_outputs(snapshot.session_id, first=first, last=last)
    handles = {(output.seq, output.block): output.handle for output in outputs}
    kept = [
        message
        for message in recorded
        if message.agent_visible and not any(start <= message.seq <= end for start, end in hidden)
    ]
    return await asyncio.to_thread(_turns, snapshot, kept, handles)


async def covered_turns(access: Access, snapshot: SessionSnapshot, plan: CompactPlan) -> tuple[Turn, ...]:
    """The turns that a summary is written from: the newest MAX_READ of the messages that it covers, and of older ones
    the first OPENING, in which the task is."""
    covered = [entry for entry in plan.covered if entry.message]
    opening = covered[:-MAX_READ][:OPENING]
    if plan.beyond is not None:
        first, last = plan.beyond.first_seq, plan.beyond.last_seq
        recorded = await access.store.read_messages(
            snapshot.session_id, first=first, last=min(last, first + OPENING - 1)
        )
        opening = [entry for entry in build_view(recorded, snapshot.overlay) if entry.message]
    return (*await turns_of(access, snapshot, opening), *await turns_of(access, snapshot, covered[-MAX_READ:]))


async def shown_turns(
    access: Access, snapshot: SessionSnapshot, kept: Sequence[Entry], archived: Sequence[Candidate]
) -> tuple[Turn, ...]:
    """The turns of the messages that stay in the view, without the texts that are or become placeholders."""
    gone = {(candidate.output.seq, candidate.output.block) for candidate in archived}
    gone |= {(entry.message.seq, block) for entry in kept if entry.message for block in entry.replaced}

    def without(turn: Turn) -> Turn:
        if not any((turn.seq, place) in gone for place in range(len(turn.texts))):
            return turn
        texts = ("" if (turn.seq, place) in gone else text for place, text in enumerate(turn.texts))
        return replace(turn, texts=tuple(texts))

    return tuple(without(turn) for turn in await turns_of(access, snapshot, kept))


async def turns_of(access: Access, snapshot: SessionSnapshot, entries: Sequence[Entry]) -> tuple[Turn, ...]:
    """The recorded messages among these entries with their full texts, even if the view shows them shortened; without
    the calls of our own tools."""
    wanted = {entry.message.seq for entry in entries if entry.message}
    if not wanted:
        return ()
    recorded = await access.messages_at(snapshot, wanted)
    return await asyncio.to_thread(_turns, snapshot, recorded, snapshot.handles)


def _turns(snapshot: SessionSnapshot, messages: Sequence[Message], handles: Mapping[Place, str]) -> tuple[Turn, ...]:
    return without_own_calls(turn_of(snapshot, message, handles) for message in messages)


def turn_of(snapshot: SessionSnapshot, message: Message, handles: Mapping[Place, str]) -> Turn:
    """A recorded message with its full texts; `handles` are those of the session's outputs by their places."""
    places = range(len(message.blocks))
    return Turn(
        seq=message.seq,
        role=message.role,
        kind=message.kind,
        blocks=message.blocks,
        texts=shown_texts(
            snapshot.settings, message.role, message.blocks, snapshot.format.read(message.body or {}).texts or ("",)
        ),
        handles={block: handles[message.seq, block] for block in places if (message.seq, block) in handles},
    )
