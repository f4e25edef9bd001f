"""Merging: where the summaries themselves take too much of the window, older ones are made one."""

from __future__ import annotations

import time

from contextstash.context.compact import MINIMUM_PROGRESS
from contextstash.context.levels import MERGED_SHARE, MergePlan, plan_merge
from contextstash.context.view import difference
from contextstash.service.access import Access, Desk
from contextstash.service.editing import entries_after, event_of, retrying
from contextstash.service.summaries import summary_edit
from contextstash.service.writing import Writers, written
from contextstash.summarizers.base import SummaryRequest

MOST_MERGES = 4
"""In one compaction; three levels need no more."""


async def merge_summaries(access: Access, session_id: str, writers: Writers) -> str | None:
    """Merge summaries until they take no more than their share of the window; a sentence of what was done."""
    done = []
    for _ in range(MOST_MERGES):
        merged = await retrying(lambda: _merge_once(access, session_id, writers))
        if merged is None:
            break
        done.append(merged)
    return " ".join(done) or None


async def _merge_once(access: Access, session_id: str, writers: Writers) -> str | None:
    desk = await access.desk(session_id)
    room = int(desk.room.usable * desk.settings.summaries_share)
    plan = plan_merge(desk.entries, room) if desk.settings.summaries == "levels" else None
    if plan is None:
        return None
    started = time.perf_counter()
    own = Writers(strategy="extractive" if writers.strategy == "extractive" else "auto")
    summary, cost = await written(
        access, desk, own.chosen(access, desk), _request(desk, plan), (plan.first_seq, plan.last_seq)
    )
    names = tuple(edit.summary_id or "" for edit in plan.summaries)
    edit = summary_edit(
        desk,
        summary.text,
        plan.first_seq,
        plan.last_seq,
        strategy=summary.strategy,
        level=plan.level,
        merges=names,
    )
    if edit.tokens >= plan.tokens * MINIMUM_PROGRESS:
        return None
    entries = await entries_after(access, desk, [edit])
    edit = edit.model_copy(update=difference(desk.entries, entries))
    reason = f"Merged {len(names)} summaries into one of level {plan.level}."
    event = event_of(desk, entries, "compaction", reason, seconds=time.perf_counter() - started)
    event = event.model_copy(update={"strategy": summary.strategy, "cost": cost})
    await access.store.append_edits(access.owner, desk.session_id, [edit], expected=len(desk.edits), event=event)
    return reason


def _request(desk: Desk, plan: MergePlan) -> SummaryRequest:
    return SummaryRequest(
        turns=(),
        merging=tuple(edit.summary for edit in plan.summaries),
        prompt=desk.settings.summary_prompt,
        max_tokens=max(100, int(plan.tokens * MERGED_SHARE)),
        count=desk.counter.count,
    )
