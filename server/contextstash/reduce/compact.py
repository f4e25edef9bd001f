"""Compaction: replaces older messages in the view with a summary, if that frees tokens; one compaction at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio

from contextstash.events.state import State
from contextstash.events.turns import Turn
from contextstash.reduce.digests import compaction_digest_edit
from contextstash.reduce.lease import only_one
from contextstash.reduce.pins import pinned_within
from contextstash.reduce.prune import archive_outputs, view_change
from contextstash.reduce.session_turns import SessionTurns, keep_state, state_at
from contextstash.reduce.summary_request import (
    Writers,
    completed,
    covered_turns,
    files_in_use,
    shown_turns,
    summary_request,
    written,
)
from contextstash.reduce.user_words import words_edit, words_with
from contextstash.results import CompactResult
from contextstash.session.access import Access
from contextstash.session.edit import Planned, edit, entries_after
from contextstash.session.open_session import WITHIN_REACH
from contextstash.session.thinking_blocks import Stripping, binds, plan_stripping
from contextstash.view.compaction_plan import (
    MAX_SUMMARY_SHARE,
    CompactPlan,
    KeepLimits,
    files_room,
    outputs_to_archive,
    plan_of,
    plan_without_thinking,
)
from contextstash.view.edits import summary_edit
from contextstash.view.ladder import Candidate, oldest_outputs
from contextstash.view.pinned_outputs import unpinned_outputs
from contextstash.view.session_snapshot import SessionSnapshot, event_of
from contextstash.view.view import Entry, total_tokens
from contextstash.writers.base import WrittenSummary
from contextstash_storage.records import ArchiveEdit, Edit, Event, Session, SummaryEdit

WITH_BODIES = replace(WITHIN_REACH, bodies=True)
"""Nearly all of what a compaction reads of a session, it reads with bodies."""

RUNNING = "Nothing done: another compaction of this session is running. Ask again in a moment if more has to leave."
LOST = (
    "Nothing done: this compaction lost its lease, another may be running; its summary will be available in a moment."
)


async def compact_session(
    access: Access,
    session_id: str | None = None,
    *,
    summary: str | None = None,
    instructions: str | None = None,
    strategy: str = "auto",
    dry_run: bool = False,
) -> CompactResult:
    """Replace all but the recent messages with a summary: the host's `summary`, or one written by `strategy`."""
    return await compact(access, session_id, Writers(strategy, summary, instructions), dry_run=dry_run)


async def compact(
    access: Access, session_id: str | None, writers: Writers, *, dry_run: bool = False, asked: bool = True
) -> CompactResult:
    """Summarize all but the recent messages. If that would not make the view smaller, or if another compaction of the
    session is running, nothing is changed, and `reason` says why. Without `asked`, nothing is summarized as
    long as placeholders for old outputs are enough."""
    snapshot = await access.snapshot(session_id, WITH_BODIES)
    writers.chosen(access, snapshot)
    compaction = _Compaction(access, writers, snapshot, dry_run, asked)
    if dry_run or writers.summary is not None:
        return await compaction.run()
    async with only_one(access, snapshot.session_id) as is_only_one:
        return await compaction.run() if is_only_one else _nothing(snapshot, RUNNING)
    return _nothing(snapshot, LOST)


@dataclass
class _Compaction:
    """A compaction and its attempts. `first` is what was read before the lease was acquired: it is used if the session
    is still the same. What a model wrote before an edit conflict is in the cache, and is not paid for again."""

    access: Access
    writers: Writers
    first: SessionSnapshot
    dry_run: bool
    asked: bool
    cost: float | None = None
    folded: tuple[SessionSnapshot, State] | None = None

    async def run(self) -> CompactResult:
        """Compact the session."""
        result = await edit(self.access, self._plan)
        if result.compacted and self.folded is not None:
            with anyio.CancelScope(shield=True):
                await keep_state(self.access, *self.folded)
        return result

    async def _plan(self) -> Planned[CompactResult] | CompactResult:
        access, first = self.access, self.first
        session = await access.read_session(first.session_id)
        snapshot = first if session == first.session else await access.snapshot_of(session, WITH_BODIES)
        is_bound = binds(snapshot.session.model)
        # Placeholders alone would cost a model that binds its reasoning as much of it as a summary does.
        plan, keep = await asyncio.to_thread(plan_of, snapshot, self.asked or is_bound)
        if not plan.covered:
            return _nothing(snapshot, plan.reason)
        if is_bound:
            plan = plan_without_thinking(plan)
        return await self._summarizing(snapshot, plan, keep)

    async def _summarizing(
        self, snapshot: SessionSnapshot, plan: CompactPlan, keep: KeepLimits
    ) -> Planned[CompactResult] | CompactResult:
        """Replace what the plan covers with a summary, unless that would hardly be smaller."""
        access, started = self.access, time.perf_counter()
        span = (plan.first_seq, plan.last_seq)
        stripping = await asyncio.to_thread(plan_stripping, snapshot, plan.last_seq + 1, needed=True)
        archived = await asyncio.to_thread(outputs_to_archive, plan.kept, keep, unpinned_outputs(snapshot))
        turns = SessionTurns(access, snapshot)
        shown = await shown_turns(turns, plan, archived)
        state = await state_at(turns, plan.last_seq)
        self.folded = (snapshot, state)
        in_use = await files_in_use(turns, shown, files_room(snapshot, plan, keep))
        summary = await self._written(turns, plan, state, shown, in_use)
        words = await words_with(turns, plan.last_seq, plan.tokens)
        text = await completed(snapshot, plan, state, summary)
        pinned = await pinned_within(access, snapshot, *span)
        made = await asyncio.to_thread(
            summary_edit, snapshot, text, *span, strategy=summary.strategy, pinned=pinned, files=in_use
        )
        said = words_edit(snapshot, words, made.summary_id)
        tokens = made.tokens + sum(each.tokens for each in said)
        if tokens >= plan.tokens * MAX_SUMMARY_SHARE:
            sizes = f"{tokens:,} tokens and replace only {plan.tokens:,}"
            return _nothing(snapshot, f"Nothing done: the summary would take {sizes}.")
        done = "Would summarize" if self.dry_run else "Summarized"
        reason = f"{done} {plan.messages} messages, {made.first_seq} to {made.last_seq}."

        def event(entries: Sequence[Entry]) -> Event:
            found = event_of(snapshot, entries, "compaction", reason, seconds=time.perf_counter() - started)
            return found.model_copy(update={"strategy": summary.strategy, "cost": self.cost})

        def result(_: Session, entries: Sequence[Entry]) -> CompactResult:
            change = view_change(snapshot, total_tokens(entries))
            notes = " ".join(filter(None, (change.pop("note"), summary.note)))
            found = CompactResult.of(
                made,
                **change,
                compacted=not self.dry_run,
                model=summary.model,
                reason=reason,
                cost=self.cost,
                dry_run=self.dry_run or None,
                note=notes or None,
            )
            more = {"messages_summarized": plan.messages, "thinking": stripping.result}
            return found.model_copy(update=more)

        edits = [*await _edits(access, snapshot, plan, made, archived, stripping), *said]
        return Planned(snapshot, edits, result, event=event, dry_run=self.dry_run)

    async def _written(
        self, turns: SessionTurns, plan: CompactPlan, state: State, shown: Sequence[Turn], in_use: str
    ) -> WrittenSummary:
        snapshot = turns.snapshot
        chosen = self.writers.chosen(self.access, snapshot)
        # Only a model reads the turns; without one, the state has what a summary needs.
        covered = await covered_turns(turns, plan) if any(writer.slow for writer in chosen) else ()
        request = summary_request(snapshot, plan, covered, self.writers.instructions, state, shown, in_use)
        span = (plan.first_seq, plan.last_seq)
        summary, cost = await written(self.access, snapshot, chosen, request, span)
        self.cost = cost if cost is None else cost + (self.cost or 0.0)
        return summary


async def _edits(
    access: Access,
    snapshot: SessionSnapshot,
    plan: CompactPlan,
    summary: SummaryEdit,
    outputs: Sequence[Candidate],
    stripping: Stripping,
) -> list[Edit]:
    """The summary and the edits that go with it: `outputs` become placeholders, outputs of recent messages beyond
    `prune_at_results` are archived with one digest message, and invalidated thinking is stripped."""
    settings = snapshot.settings
    edits: list[Edit] = [summary, *(each.edit for each in await archive_outputs(access, snapshot, outputs))]
    if settings.prune_at_results is not None and settings.tool_digest in ("llm", "heuristic"):
        oldest = oldest_outputs(plan.kept, unpinned_outputs(snapshot), settings.prune_at_results)
        archived = await archive_outputs(access, snapshot, oldest, even_if_larger=True)
        edits += [each.edit for each in archived]
        entries = await entries_after(access, snapshot, edits)
        edits += compaction_digest_edit(snapshot, entries, [(each.output, each.text) for each in archived])
    handles = tuple(edit.handle for edit in edits if isinstance(edit, ArchiveEdit))
    edits[0] = edits[0].model_copy(update={"archived": handles})
    return edits + stripping.edits(snapshot, [summary.summary_id])


def _nothing(snapshot: SessionSnapshot, reason: str) -> CompactResult:
    return CompactResult(**view_change(snapshot), compacted=False, reason=reason)
