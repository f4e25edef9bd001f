"""Compaction: replaces older messages in the view with a summary, if that frees tokens; one compaction at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from contextstash.events.state import State
from contextstash.events.turns import Turn
from contextstash.handoff.audit import append_pointers, audit_summary
from contextstash.handoff.file_pieces import KnownFile, focus_of, known_files, lines_shown, pieces_of_files
from contextstash.handoff.summary import Beside
from contextstash.reduce.digests import compaction_digest_edit
from contextstash.reduce.lease import Lease, LeaseLostError, only_one
from contextstash.reduce.pins import pinned_within
from contextstash.reduce.prune import archive_outputs, client_note, importance_in_view, view_change
from contextstash.reduce.session_state import keep_state, state_at
from contextstash.reduce.summary_request import Writers, covered_turns, recent_history, shown_turns, written
from contextstash.reduce.user_words import keeps_words, words_with
from contextstash.results import AuditResult, CompactResult
from contextstash.safety.sanitize import MARKER, unforged
from contextstash.session.access import Access
from contextstash.session.edit import Planned, edit, entries_after
from contextstash.session.open_session import WITHIN_REACH
from contextstash.session.stripped_thinking import Stripping, binds, plan_stripping
from contextstash.view.compaction_plan import (
    MAX_SUMMARY_SHARE,
    WHOLE_SHARE,
    CompactPlan,
    KeepLimits,
    keep_limits,
    leading_fixed,
    outputs_to_archive,
    plan_compaction,
    plan_same,
    plan_without_thinking,
    room_beside,
)
from contextstash.view.edits import summary_edit
from contextstash.view.pinned_outputs import unpinned_outputs
from contextstash.view.prune_plan import Candidate, oldest_outputs
from contextstash.view.reach import Beyond
from contextstash.view.session_snapshot import SessionSnapshot, event_of
from contextstash.view.view import Changes, Entry, difference, total_tokens
from contextstash.writers.base import SummaryRequest, WrittenSummary
from contextstash_storage.records import ArchiveEdit, Edit, Event, Part, Session, SummaryEdit

MIN_TOKENS = 100
"""With less room nothing is shown: it would be fewer than some ten lines of code."""

HEAD_TOKENS = 60
"""About what the line before the texts takes."""

MAX_PART = 4
"""The texts of files take at most one part in so many of the tokens that a compaction frees, so that it frees most of
them: with more, the window fills again within a few turns."""


async def files_in_use(snapshot: SessionSnapshot, turns: Sequence[Turn], shown: Sequence[Turn], most: int) -> str:
    """The texts of the files that these turns use, as they stand at their end, without what the view shows anyway;
    empty if there are none. `shown` are the turns that stay in the view, without the texts that leave it; the texts
    take at most `most` tokens."""
    room = min(snapshot.budget.standing_tokens, most) - HEAD_TOKENS
    if room < MIN_TOKENS or not turns:
        return ""
    return await asyncio.to_thread(_written, snapshot, turns, shown, room)


def _written(snapshot: SessionSnapshot, turns: Sequence[Turn], shown: Sequence[Turn], room: int) -> str:
    visible = {handle for turn in shown for place, handle in turn.handles.items() if turn.texts[place].strip()}
    files = [file for file in known_files(turns) if not _is_shown(file, visible)]
    count, seen = snapshot.counter.count, lines_shown(shown)
    text = pieces_of_files(files, room, count, focus_of(turns), seen)
    if not text:
        return ""
    head = (
        f"{MARKER} files in use, as they stood after message {turns[-1].seq}, with the edits up to there; what a later"
        " message changes or shows is newer:]"
    )
    return f"{head}\n{unforged(text)}"


def _is_shown(file: KnownFile, visible: set[str]) -> bool:
    """Whether the view shows the file's newest read, of the whole file."""
    return file.whole and file.handle in visible


MIN_SUMMARY_TOKENS = 200
"""The smallest max_tokens that a summarizer is given, even if the summary covers little. Below this a summary
cannot name the task, the state and the next step."""

WITH_BODIES = replace(WITHIN_REACH, bodies=True)
"""Nearly all of what a compaction reads of a session, it reads with bodies."""

RUNNING = "Nothing done: another compaction of this session is running. Ask again in a moment if more has to leave."


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
    if dry_run or writers.summary is not None:
        return await _Compaction(access, writers, Lease(), snapshot, dry_run, asked).run()
    async with only_one(access, snapshot.session_id) as lease:
        if lease is None:
            return _nothing(snapshot, RUNNING)
        try:
            return await _Compaction(access, writers, lease, snapshot, dry_run, asked).run()
        except LeaseLostError as error:
            return _nothing(snapshot, str(error))


@dataclass
class _Compaction:
    """A compaction and its attempts. `first` is what was read before the lease was acquired: it is used if the session
    is still the same. `summary`, with its cost and its span, was written before an edit conflict: it is not paid for
    again."""

    access: Access
    writers: Writers
    lease: Lease
    first: SessionSnapshot
    dry_run: bool
    asked: bool
    summary: WrittenSummary | None = None
    cost: float | None = None
    span: tuple[int, int] = (0, -1)
    folded: tuple[SessionSnapshot, State] | None = None

    async def run(self) -> CompactResult:
        """Compact the session."""
        result = await edit(self.access, self._plan)
        if result.compacted and self.folded is not None:
            await keep_state(self.access, *self.folded)
        return result

    async def _plan(self) -> Planned[CompactResult] | CompactResult:
        access, first = self.access, self.first
        session = await access.read_session(first.session_id)
        snapshot = first if session == first.session else await access.snapshot_of(session, WITH_BODIES)
        is_bound = binds(snapshot.settings, snapshot.session.model)
        importance = await importance_in_view(access, snapshot)
        keep = await asyncio.to_thread(keep_limits, snapshot, importance)
        same = None if self.summary is None else plan_same(snapshot.entries, *self.span, snapshot.beyond)
        if same is not None:
            return await self._summarizing(snapshot, same, keep) if same.covered else _nothing(snapshot, same.reason)
        self.summary = None
        # Placeholders alone would cost a model that binds its reasoning as much of it as a summary does.
        plan, keep = await asyncio.to_thread(_plan, snapshot, keep, self.asked or is_bound)
        if not plan.covered:
            return _nothing(snapshot, plan.reason)
        if snapshot.settings.thinking == "auto" and is_bound:
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
        shown = await shown_turns(access, snapshot, _not_covered(snapshot, plan), archived)
        recent = await recent_history(access, snapshot, snapshot.session.counters.messages - 1)
        state = await state_at(access, snapshot, plan.last_seq, recent)
        self.folded = (snapshot, state)
        in_use = await files_in_use(snapshot, recent, shown, _room_of_files(snapshot, plan, keep))
        summary = self.summary or await self._written(snapshot, plan, state, shown, in_use)
        words = await words_with(access, snapshot, plan.last_seq, plan.tokens)
        text, audit = await audited(snapshot, state, summary, plan.tokens, words.told)
        pinned = await pinned_within(access, snapshot, *span)
        made = await asyncio.to_thread(
            summary_edit, snapshot, text, *span, strategy=summary.strategy, level="recent", pinned=pinned, files=in_use
        )
        said = words.edits(snapshot, made.summary_id)
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
            found = self._result(snapshot, made, total_tokens(entries), summary, reason)
            more = {"messages_summarized": plan.messages, "audit": audit, "thinking": stripping.result}
            return found.model_copy(update=more)

        edits = [*await _edits(access, snapshot, plan, made, archived, stripping), *said]
        check = self.lease.check
        return Planned(snapshot, edits, result, event=event, check=check, dry_run=self.dry_run)

    async def _written(
        self, snapshot: SessionSnapshot, plan: CompactPlan, state: State, shown: Sequence[Turn], in_use: str
    ) -> WrittenSummary:
        chosen = self.writers.chosen(self.access, snapshot)
        # Only a model reads the turns; without one, the state has what a summary needs.
        turns = await covered_turns(self.access, snapshot, plan) if any(writer.slow for writer in chosen) else ()
        request = summary_request(snapshot, plan, turns, self.writers.instructions, state, shown, in_use)
        self.span = (plan.first_seq, plan.last_seq)
        writing = written(self.access, snapshot, chosen, request, self.span)
        summary, self.cost = await self.lease.while_held(writing)
        self.summary = summary
        return summary

    def _result(
        self, snapshot: SessionSnapshot, edit: SummaryEdit, tokens: int, summary: WrittenSummary, reason: str
    ) -> CompactResult:
        notes = filter(None, (client_note(snapshot), summary.note))
        return CompactResult.of(
            edit,
            **view_change(snapshot, tokens),
            compacted=not self.dry_run,
            model=summary.model,
            reason=reason,
            cost=self.cost,
            dry_run=self.dry_run or None,
            note=" ".join(notes) or None,
        )


def _plan(snapshot: SessionSnapshot, keep: KeepLimits, asked: bool) -> tuple[CompactPlan, KeepLimits]:
    """The plan, and what it keeps."""
    outputs = unpinned_outputs(snapshot)
    plan = plan_compaction(snapshot.entries, keep, outputs)
    if not plan.covered and not keep.levels and snapshot.settings.summaries == "levels":
        # There is too little beside the summaries to write one in the place of all.
        keep = replace(keep, levels=True)
        plan = plan_compaction(snapshot.entries, keep, outputs)
    if not plan.covered and asked and (keep.whole is not None or standing_summaries(snapshot.entries)):
        # With placeholders everything fits below the mark, or a short summary leaves room for all that came after it.
        # Who asks for a compaction gets one all the same.
        plan = plan_compaction(snapshot.entries, replace(keep, whole=None, either=False), outputs)
    if plan.covered and keep.whole is not None:
        # The texts of files in use follow the summary, and take the place of some recent messages.
        budget = snapshot.budget
        tokens = max(keep.tokens - budget.standing_tokens, budget.free // 8)
        fewer = replace(keep, tokens=tokens, whole=int(tokens * WHOLE_SHARE))
        narrower = plan_compaction(snapshot.entries, fewer, outputs)
        plan, keep = (narrower, fewer) if narrower.covered else (plan, keep)
    return (replace(plan, beyond=snapshot.beyond) if plan.covered else plan), keep


def summary_request(
    snapshot: SessionSnapshot,
    plan: CompactPlan,
    turns: Sequence[Turn],
    instructions: str | None,
    state: State | None = None,
    shown: Sequence[Turn] = (),
    in_use: str = "",
) -> SummaryRequest:
    """The request to a summarizer for this plan. `shown` are the turns that the view shows beside the summary, `in_use`
    are the texts of files there."""
    covered = tuple(entry.summary for entry in plan.covered if entry.summary)
    previous = covered or standing_summaries(snapshot.entries)
    beside = Beside.of_turns(shown, words=keeps_words(snapshot.settings))
    return SummaryRequest(
        turns=tuple(turns),
        previous="\n\n".join(edit.summary for edit in previous) or None,
        replaces=bool(covered) or snapshot.settings.summaries == "one",
        instructions=instructions,
        prompt=snapshot.settings.summary_prompt,
        max_tokens=_summary_tokens(snapshot, plan),
        count=snapshot.counter.count,
        state=state,
        since=plan.first_seq,
        earlier="\n\n".join(edit.summary for edit in covered if edit.strategy != EXTRACTIVE),
        beside=replace(beside, texts=[*beside.texts, in_use]),
    )


EXTRACTIVE = "extractive"
"""The strategy of summaries that are made of the session's state: the next one has what they tell."""


def standing_summaries(entries: Sequence[Entry]) -> tuple[SummaryEdit, ...]:
    """The summaries at the head of a view, after the system messages, oldest first."""
    standing = takewhile(lambda entry: entry.summary is not None, entries[leading_fixed(entries) :])
    return tuple(entry.summary for entry in standing if entry.summary is not None)


def _summary_tokens(snapshot: SessionSnapshot, plan: CompactPlan) -> int:
    return max(MIN_SUMMARY_TOKENS, min(snapshot.budget.summary_tokens, plan.tokens // 3))


def _room_of_files(snapshot: SessionSnapshot, plan: CompactPlan, keep: KeepLimits) -> int:
    """How many tokens the texts of files may take."""
    most = plan.tokens // MAX_PART
    if keep.whole is None:  # asked for although everything fits, or the settings have no low-water mark
        return most
    room = room_beside(snapshot, plan, keep, unpinned_outputs(snapshot))
    return max(0, min(most, room - _summary_tokens(snapshot, plan)))


def _not_covered(snapshot: SessionSnapshot, plan: CompactPlan) -> list[Entry]:
    """The entries that stay in the view."""
    covered = {id(entry) for entry in plan.covered}
    return [entry for entry in snapshot.entries if id(entry) not in covered]


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
    entries = await entries_after(access, snapshot, [summary])
    archives = [each.edit for each in await archive_outputs(access, snapshot, outputs)]
    settings = snapshot.settings
    changes = _with_beyond(await asyncio.to_thread(difference, snapshot.entries, entries), plan.beyond)
    edits: list[Edit] = [summary.model_copy(update=changes), *archives]
    if settings.prune_at_results is not None and settings.tool_digest in ("llm", "heuristic"):
        oldest = oldest_outputs(plan.kept, unpinned_outputs(snapshot), settings.prune_at_results)
        archived = await archive_outputs(access, snapshot, oldest, even_if_larger=True)
        edits += [each.edit for each in archived]
        entries = await entries_after(access, snapshot, edits)
        edits += compaction_digest_edit(snapshot, entries, [(each.output, each.text) for each in archived])
    entries = await entries_after(access, snapshot, edits)
    handles = tuple(edit.handle for edit in edits if isinstance(edit, ArchiveEdit))
    edits[0] = edits[0].model_copy(update={"archived": handles})
    return edits + stripping.edits(snapshot, entries, [summary.summary_id])


def _with_beyond(changes: Changes, beyond: Beyond | None) -> Changes:
    """The change of the counters by a summary that covers messages beyond the reach too."""
    if beyond is None:
        return changes
    delta = Counter[Part](changes["delta"])
    delta.subtract(beyond.parts)
    return {
        "delta": {part: tokens for part, tokens in sorted(delta.items()) if tokens},
        "view_messages": changes["view_messages"] - beyond.messages,
        "view_results": changes["view_results"] - beyond.results,
    }


def _nothing(snapshot: SessionSnapshot, reason: str) -> CompactResult:
    return CompactResult(**view_change(snapshot), compacted=False, reason=reason, note=client_note(snapshot))


MAX_LISTED = 10
"""Missing facts that a result lists, so that it stays small; the most important ones come first."""

AUDIT_TOKENS = 300
"""Maximum length of the list of facts that a summary lacks, in tokens: some twenty paths or identifiers; further ones
are only counted."""

MAX_POINTER_SHARE = 10
"""The pointers take at most one part in so many of the tokens that the summary replaces, so that it stays short."""


async def audited(
    snapshot: SessionSnapshot, state: State, summary: WrittenSummary, tokens: int, words: str
) -> tuple[str, AuditResult | None]:
    """Compare a summary that a model or the host wrote with the state of the session; it replaces so many `tokens`.
    What the user's `words` in addition to it hold, it does not lack. Returns it with pointers to what it lacks;
    unchanged, without a result, if it was made of the state, or if there is no room for any."""
    max_tokens = min(AUDIT_TOKENS, tokens // MAX_POINTER_SHARE)
    if not max_tokens or summary.strategy == EXTRACTIVE:
        return summary.text, None
    audit = await asyncio.to_thread(audit_summary, state, f"{words}\n\n{summary.text}")
    text, pointers = await asyncio.to_thread(
        append_pointers, summary.text, audit.missing, max_tokens=max_tokens, count=snapshot.counter.count
    )
    return text, AuditResult(
        facts=len(audit.held) + len(audit.missing),
        held=len(audit.held),
        pointers=pointers,
        missing=[fact.text for fact in audit.missing[:MAX_LISTED]],
    )
