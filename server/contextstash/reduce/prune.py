"""Pruning: moves old tool outputs from the view to the archive in one batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.outputs.counts import before_and_after
from contextstash.outputs.digest import digest_output
from contextstash.reduce.digests import Digests, digest_edits
from contextstash.results import ArchivedOutput, CacheCost, CompactResult, PruneResult
from contextstash.safety.sanitize import one_line
from contextstash.session.access import Access
from contextstash.session.edit import Planned, edit, entries_after
from contextstash.session.estimate import own_tokens
from contextstash.session.masks import shown_text
from contextstash.session.open_session import WITHIN_REACH
from contextstash.session.stripped_thinking import Stripping, plan_stripping
from contextstash.view.compaction_plan import enough_to_free, keep_limits, outputs_to_archive
from contextstash.view.edits import ReplacedBlocks, archive_edit, placeholder_of
from contextstash.view.output_importance import UNKNOWN, Importance, importance_of
from contextstash.view.pinned_outputs import pinned_outputs, unpinned_outputs
from contextstash.view.prune_plan import (
    BY_SETTINGS,
    Candidate,
    PruneOptions,
    PrunePlan,
    cache_effect,
    oldest_outputs,
    plan_prune,
    prune_limits,
    visible_outputs,
)
from contextstash.view.session_snapshot import Place, SessionSnapshot, event_of
from contextstash.view.view import Entry, total_tokens
from contextstash_storage.records import ArchiveEdit, Edit, Output

MAX_TOOL = 200
"""Characters of a tool's name in a result; providers allow 64 to 128."""

RECENT_MESSAGES = 400
"""Messages at the end whose outputs are counted as calls, also if they are hidden: several for each of the newest calls
that say which files are under edit (outputs_in_use.RECENT_CALLS)."""


def _shown(snapshot: SessionSnapshot) -> list[Output]:
    """The outputs that the view shows, in order."""
    shown = [each.output for entry in snapshot.entries for each in visible_outputs(entry, snapshot.outputs)]
    return sorted(shown, key=lambda output: (output.seq, output.block))


async def importance_in_view(access: Access, snapshot: SessionSnapshot) -> Importance:
    """The importance of the outputs that the view shows; unknown for presets without a low-water mark, whose contracts
    say which outputs they keep."""
    if snapshot.budget.low_water is None or snapshot.settings.compact_keep_tokens is not None:
        return UNKNOWN
    texts: dict[Place, str] = {}
    async for batch in access.output_texts(snapshot, await asyncio.to_thread(_shown, snapshot)):
        texts |= {(output.seq, output.block): text for output, text in batch}
    recent = await access.store.read_outputs(
        snapshot.session_id, first=max(0, snapshot.session.counters.messages - RECENT_MESSAGES)
    )
    return await asyncio.to_thread(importance_of, snapshot.with_outputs(recent).current_outputs, texts)


MAX_LISTED = 40
"""Archived outputs that a result lists: about 50 tokens each, 2,000 together. The others are only counted."""


OUTPUTS_AT_ONCE = 250
"""Outputs whose placeholders are counted at a time: while that is done, the next are read and described. A prune takes
as long with 125 or 500."""


def client_note(snapshot: SessionSnapshot) -> str | None:
    """Says that a change of our view does not change what a followed client sends; None if no client is followed."""
    if snapshot.client_tokens is None:
        return None
    return (
        "This concerns contextstash's view of the session only. Your client sends its own history, still"
        f" {snapshot.client_tokens:,} tokens: only a compaction in the client shrinks your window."
    )


def view_change(snapshot: SessionSnapshot, after: int | None = None) -> dict[str, Any]:
    """The fields that each result of a prune or compaction has: of the view's tokens before and `after` it, by default
    unchanged, and of the client's."""
    before = snapshot.view_tokens
    after = before if after is None else after
    return {
        "session_id": snapshot.session_id,
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "client_tokens": snapshot.client_tokens,
    }


@dataclass(frozen=True)
class Archived:
    """An output to archive: the edit, the output, its text (empty unless a digest message will need it) and its
    one-line digest."""

    edit: ArchiveEdit
    output: Output
    text: str
    digest: str


async def prune_tool_outputs(
    access: Access,
    session_id: str | None = None,
    *,
    keep_last: int | None = None,
    protect_tokens: int | None = None,
    minimum_tokens: int | None = None,
    dry_run: bool = False,
) -> PruneResult:
    """Move old tool outputs from the view to the archive."""
    return await prune(access, session_id, PruneOptions(keep_last, protect_tokens, minimum_tokens, dry_run))


async def prune(
    access: Access, session_id: str | None, options: PruneOptions = BY_SETTINGS, *, needed: bool = False
) -> PruneResult:
    """Archive the tool outputs that are not protected; if that is `needed`, also if reasoning of an open tool loop has
    to be left out for it. Those beyond the reach of any request, in a view far larger than
    the window, are left as they are: no request can show them, and a compaction covers them."""

    async def planned() -> Planned[PruneResult] | PruneResult:
        snapshot = await access.snapshot(session_id, WITHIN_REACH)
        limits = prune_limits(snapshot, options)
        plan = await asyncio.to_thread(plan_prune, snapshot.entries, unpinned_outputs(snapshot), limits)
        return await _archiving(access, snapshot, plan, dry_run=options.dry_run, needed=needed)

    return await edit(access, planned)


async def prune_to_mark(access: Access, session_id: str) -> PruneResult:
    """Archive outputs of those that a compaction to the low-water mark would archive among the messages that it keeps,
    here in the whole view, until the mark is reached: for a session that has too little else to summarize."""

    async def planned() -> Planned[PruneResult] | PruneResult:
        snapshot = await access.snapshot(session_id)
        keep = keep_limits(snapshot, await importance_in_view(access, snapshot))
        found = outputs_to_archive(snapshot.entries, keep, unpinned_outputs(snapshot))
        excess = own_tokens(access, snapshot.session) - (snapshot.budget.low_water or 0)
        chosen = enough_to_free(found, excess, keep.importance)
        freed = sum(candidate.content_tokens for candidate in chosen)
        if freed <= snapshot.budget.prune_minimum_tokens:
            return _nothing(snapshot, "Nothing done: older outputs take too little to pay for the broken cache.", False)
        return await _archiving(access, snapshot, PrunePlan(chosen, ""), needed=True)

    return await edit(access, planned)


async def prune_oldest(access: Access, session_id: str) -> PruneResult:
    """Archive the oldest tool outputs beyond `prune_at_results`, and add a digest message for each."""
    digests: Digests = {}

    async def planned() -> Planned[PruneResult] | PruneResult:
        snapshot = await access.snapshot(session_id)
        pinned = pinned_outputs(snapshot)
        shown = sum(len(visible_outputs(entry, pinned)) for entry in snapshot.entries)
        keep = max(0, (snapshot.settings.prune_at_results or 0) - shown)
        oldest = oldest_outputs(snapshot.entries, unpinned_outputs(snapshot), keep)
        plan = PrunePlan(oldest, f"Nothing done: the view holds no more tool outputs than {keep}.")
        return await _archiving(access, snapshot, plan, digests=digests)

    return await edit(access, planned)


async def _archiving(
    access: Access,
    snapshot: SessionSnapshot,
    plan: PrunePlan,
    *,
    dry_run: bool = False,
    digests: Digests | None = None,
    needed: bool = False,
) -> Planned[PruneResult] | PruneResult:
    """`digests` are the digests already written for outputs archived by count; None if no digests are wanted. A
    `needed` prune does not wait for reasoning that it invalidates."""
    by_count = digests is not None
    started = time.perf_counter()
    made = await archive_outputs(access, snapshot, plan.chosen, even_if_larger=by_count)
    if not made:
        nothing = plan.reason if not plan.chosen else "Nothing done: placeholders would be no smaller."
        return _nothing(snapshot, nothing, dry_run)
    first = min(archived.output.seq for archived in made)
    stripping = await asyncio.to_thread(plan_stripping, snapshot, first, needed=needed)
    if stripping.waits:
        return _nothing(snapshot, f"Nothing done: {stripping.effect.reason}", dry_run, stripping)
    edits: list[Edit] = [archived.edit for archived in made]
    after: list[Entry] | None = await entries_after(access, snapshot, edits)
    if digests is not None and not dry_run and after is not None:
        edits += await digest_edits(access, snapshot, after, [(each.output, each.text) for each in made], digests)
        after = after if len(edits) == len(made) else None
    reason = f"{'Would archive' if dry_run else 'Archived'} {len(made)} tool output{'s' * (len(made) > 1)}."
    return Planned(
        snapshot,
        edits,
        lambda _, entries: _done(snapshot, made, entries, reason, dry_run, stripping),
        stripping,
        event=lambda entries: event_of(snapshot, entries, "prune", reason, seconds=time.perf_counter() - started),
        after=after,
        dry_run=dry_run,
    )


def _done(
    snapshot: SessionSnapshot,
    made: Sequence[Archived],
    entries: Sequence[Entry],
    reason: str,
    dry_run: bool,
    stripping: Stripping,
) -> PruneResult:
    before = snapshot.view_tokens
    after = before - total_tokens(snapshot.entries) + total_tokens(entries)
    effect = cache_effect(entries, min(archived.output.seq for archived in made), before - after)
    return PruneResult(
        **view_change(snapshot, after),
        archived=[_archived(archived) for archived in made[:MAX_LISTED]],
        more=len(made) - MAX_LISTED if len(made) > MAX_LISTED else None,
        reason=reason,
        cache=CacheCost(
            rewritten_tokens=effect.rewritten,
            pays_after_requests=effect.requests,
            breakpoints=stripping.effect.breakpoints or None,
        ),
        thinking=stripping.result,
        dry_run=dry_run or None,
        note=client_note(snapshot),
    )


def _nothing(snapshot: SessionSnapshot, reason: str, dry_run: bool, stripping: Stripping | None = None) -> PruneResult:
    return PruneResult(
        **view_change(snapshot),
        archived=[],
        reason=reason,
        thinking=stripping.result if stripping else None,
        dry_run=dry_run or None,
        note=client_note(snapshot),
    )


def _archived(archived: Archived) -> ArchivedOutput:
    output = archived.output
    return ArchivedOutput(
        handle=output.handle, tool=one_line(output.tool, MAX_TOOL), tokens=output.tokens, digest=archived.digest
    )


def with_sizes(result: PruneResult | CompactResult) -> str:
    """What was done, and the sizes of the view before and after it."""
    return f"{result.reason} {before_and_after(result.tokens_before, result.tokens_after)} tokens"


def add_prune(done: list[str], result: PruneResult) -> None:
    """Report a prune that archived something."""
    if result.archived:
        done.append(f"{with_sizes(result)}.")


async def archive_outputs(
    access: Access, snapshot: SessionSnapshot, chosen: Sequence[Candidate], *, even_if_larger: bool = False
) -> list[Archived]:
    """The edits that archive the chosen outputs: those whose placeholder takes fewer tokens than the output, or all of
    them with `even_if_larger`. While placeholders are counted, which does not keep Python's lock, the next ones are
    written."""
    writer = _ArchiveWriter(snapshot, chosen, even_if_larger)
    weighing: asyncio.Future[None] | None = None
    async for batch in access.output_texts(snapshot, [candidate.output for candidate in chosen], OUTPUTS_AT_ONCE):
        described = await asyncio.to_thread(writer.describe, batch)
        if weighing is not None:
            await weighing
        weighing = asyncio.ensure_future(asyncio.to_thread(writer.weigh, described))
    if weighing is not None:
        await weighing
    return writer.made


@dataclass(frozen=True, slots=True)
class _Described:
    """An output with its text, its digest and its placeholder, which is not counted yet."""

    output: Output
    text: str
    digest: str
    placeholder: str


class _ArchiveWriter:
    """Makes the edits that archive outputs, in their order."""

    def __init__(self, snapshot: SessionSnapshot, chosen: Sequence[Candidate], even_if_larger: bool) -> None:
        self.made: list[Archived] = []
        self._snapshot = snapshot
        self._even_if_larger = even_if_larger
        self._costs = {(each.output.seq, each.output.block): each.view_tokens for each in chosen}
        self._blocks = ReplacedBlocks(snapshot.entries)

    def describe(self, batch: Sequence[tuple[Output, str]]) -> list[_Described]:
        """The digests and placeholders of these outputs."""
        described = []
        for output, text in batch:
            shown = shown_text(self._snapshot.settings, text)
            digest = digest_output(output.tool, output.argument, shown, output.is_error)
            kept = shown if self._even_if_larger else ""
            described.append(_Described(output, kept, digest, placeholder_of(self._snapshot, output, digest)))
        return described

    def weigh(self, described: Sequence[_Described]) -> None:
        """Count the placeholders, and add the edits of these outputs."""
        counted = self._snapshot.counter.count_all([each.placeholder for each in described])
        for each, tokens in zip(described, counted, strict=True):
            output = each.output
            edit = archive_edit(self._snapshot, output, each.placeholder, tokens)
            if edit.tokens < self._costs[output.seq, output.block] or self._even_if_larger:
                self.made.append(Archived(self._blocks.add(edit), output, each.text, each.digest))
