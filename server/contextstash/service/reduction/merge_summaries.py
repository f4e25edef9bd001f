"""Merging of summaries: if they take too much of the window themselves, older ones are merged into one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from contextstash.context.view.compaction_plan import MAX_SUMMARY_SHARE
from contextstash.context.view.edits import summary_edit
from contextstash.context.view.pinned_outputs import pinned_outputs, pinned_text
from contextstash.context.view.session_snapshot import SessionSnapshot, event_of
from contextstash.context.view.summary_tiers import MERGED_SHARE, MergePlan, plan_merge
from contextstash.context.view.view import Entry, difference
from contextstash.service.apply_edits import Planned, edit, entries_after
from contextstash.service.masks import shown_text
from contextstash.service.reduction.lease import Lease, LeaseLostError
from contextstash.service.reduction.summary_request import Writers, written
from contextstash.service.reduction.user_words import keeps_words
from contextstash.service.session_access import Access
from contextstash.summarizers.base import SummaryRequest, WrittenSummary
from contextstash_storage.records import Event, Output


async def pinned_within(access: Access, snapshot: SessionSnapshot, first_seq: int, last_seq: int) -> str:
    """The pinned outputs of the messages `first_seq` to `last_seq` as a summary shows them; empty if there are none."""
    wanted = [output for output in pinned_outputs(snapshot).values() if first_seq <= output.seq <= last_seq]
    texts: list[tuple[Output, str]] = []
    async for batch in access.output_texts(snapshot, sorted(wanted, key=lambda output: (output.seq, output.block))):
        texts += [(output, shown_text(snapshot.settings, text)) for output, text in batch]
    return pinned_text(snapshot, texts)


MAX_MERGES = 4
"""Merges in one compaction, as a bound: the three levels need fewer. The rest are merged in the next one."""


MIN_MERGED_TOKENS = 100
"""The smallest max_tokens of a merged summary. Half of compact.MIN_SUMMARY_TOKENS."""

Merged = dict[tuple[str, ...], tuple[WrittenSummary, float | None]]
"""A merged summary and its cost in US dollars, by the ids of the summaries it merges; kept so that it is not paid for
again after an edit conflict."""


async def merge_summaries(access: Access, session_id: str, writers: Writers, lease: Lease) -> str | None:
    """Merge summaries until they take no more than their share of the window, or the lease is lost. Returns a sentence
    for each merge."""
    written_before: Merged = {}
    done = []
    for _ in range(MAX_MERGES):
        try:
            merged = await edit(access, lambda: _merge(access, session_id, writers, lease, written_before))
        except LeaseLostError:  # the compaction itself and the earlier merges are applied
            break
        if merged is None:
            break
        done.append(merged)
    return " ".join(done) or None


async def _merge(
    access: Access, session_id: str, writers: Writers, lease: Lease, written_before: Merged
) -> Planned[str | None] | str | None:
    snapshot = await access.snapshot(session_id)
    max_tokens = int(snapshot.budget.usable * snapshot.settings.summaries_share)
    plan = plan_merge(snapshot.entries, max_tokens) if snapshot.settings.summaries == "levels" else None
    if plan is None:
        return None
    started = time.perf_counter()
    own = Writers(strategy="extractive" if writers.strategy == "extractive" else "auto")
    names = tuple(edit.summary_id for edit in plan.summaries)
    if names not in written_before:
        span = (plan.first_seq, plan.last_seq)
        written_before[names] = await lease.while_held(
            written(access, snapshot, own.chosen(access, snapshot), _request(snapshot, plan), span)
        )
    summary, cost = written_before[names]
    made = summary_edit(
        snapshot,
        summary.text,
        plan.first_seq,
        plan.last_seq,
        strategy=summary.strategy,
        level=plan.level,
        merges=names,
        pinned=await pinned_within(access, snapshot, plan.first_seq, plan.last_seq),
    )
    if made.tokens >= plan.tokens * MAX_SUMMARY_SHARE:
        return None
    after = await entries_after(access, snapshot, [made])
    made = made.model_copy(update=difference(snapshot.entries, after))
    reason = f"Merged {len(names)} summaries into one of level {plan.level}."

    def event(entries: Sequence[Entry]) -> Event:
        found = event_of(snapshot, entries, "compaction", reason, seconds=time.perf_counter() - started)
        return found.model_copy(update={"strategy": summary.strategy, "cost": cost})

    return Planned(snapshot, [made], lambda *_: reason, event=event, after=after, check=lease.check)


def _request(snapshot: SessionSnapshot, plan: MergePlan) -> SummaryRequest:
    return SummaryRequest(
        turns=(),
        merging=tuple(edit.summary for edit in plan.summaries),
        superseded=plan.superseded,
        words_kept=keeps_words(snapshot.settings),
        prompt=snapshot.settings.summary_prompt,
        max_tokens=max(MIN_MERGED_TOKENS, min(int(plan.tokens * MERGED_SHARE), snapshot.budget.summary_tokens)),
        count=snapshot.counter.count,
    )
