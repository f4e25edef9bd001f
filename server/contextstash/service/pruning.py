"""Pruning: old tool outputs leave the view for the archive in one batch, and come back on demand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from contextstash.context.digest import cleared_placeholder, digest_output, placeholder
from contextstash.context.prune import Candidate, PruneLimits, PrunePlan, cache_effect, plan_prune
from contextstash.context.view import Entry, change, total_tokens
from contextstash.service.access import Access, Desk
from contextstash.service.editing import entries_after, retrying
from contextstash.service.results import (
    ArchivedOutput,
    CacheCost,
    PruneResult,
    RestoredOutput,
    RestoreResult,
)
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import Edit, Event, Output

LISTED = 40
"""How many archived outputs an answer names, so that it stays small."""

CLIENT_NOTE = (
    "This shrinks contextstash's view of the session. The client sends its own history:"
    " compact or clear there, then go on from the handoff prompt."
)


async def prune(
    access: Access,
    session_id: str | None,
    *,
    keep_last: int | None = None,
    protect_tokens: int | None = None,
    minimum_tokens: int | None = None,
    dry_run: bool = False,
) -> PruneResult:
    """Archive the tool outputs that are not protected.

    Arguments left out come from the session's settings. Where `keep_last` or `protect_tokens` is given, it alone
    protects, and any saving is worth it unless `minimum_tokens` says otherwise.
    """
    given = {"keep_last": keep_last, "protect_tokens": protect_tokens, "minimum_tokens": minimum_tokens}
    for name, value in given.items():
        if value is not None and value < 0:
            raise BadInputError(f"{name} must be 0 or more, not {value}.")

    async def attempt() -> PruneResult:
        desk = await access.desk(session_id)
        limits = prune_limits(desk, keep_last, protect_tokens, minimum_tokens)
        plan = plan_prune(desk.entries, desk.outputs, limits)
        return await _carry_out(access, desk, plan, dry_run)

    return await retrying(attempt)


def prune_limits(
    desk: Desk,
    keep_last: int | None = None,
    protect_tokens: int | None = None,
    minimum_tokens: int | None = None,
) -> PruneLimits:
    """What a prune may touch, by the arguments given and the session's settings."""
    settings, room = desk.settings, desk.room
    if keep_last is None and protect_tokens is None:
        limits = PruneLimits(
            settings.prune_keep_last,
            room.prune_protect_tokens,
            settings.prune_protect_turns,
            room.prune_minimum_tokens if minimum_tokens is None else minimum_tokens,
        )
    else:
        limits = PruneLimits(keep_last or 0, protect_tokens or 0, 0, minimum_tokens or 0)
    return limits if settings.placeholder == "described" else replace(limits, smallest=0)


async def _carry_out(access: Access, desk: Desk, plan: PrunePlan, dry_run: bool) -> PruneResult:
    started = time.perf_counter()
    before = total_tokens(desk.entries)
    made = await _archive_edits(access, desk, plan.chosen)
    edits = [edit for edit, _ in made]
    if not edits:
        return PruneResult(
            session_id=desk.session.session_id,
            archived=[],
            tokens_before=before,
            tokens_after=before,
            tokens_saved=0,
            reason=plan.reason if not plan.chosen else "Nothing done: placeholders would be no smaller.",
            dry_run=dry_run or None,
        )
    entries = await entries_after(access, desk, edits)
    after = total_tokens(entries)
    reason = f"{'Would archive' if dry_run else 'Archived'} {len(edits)} tool output{'s' * (len(edits) > 1)}."
    if not dry_run:
        event = Event(
            kind="prune",
            tokens_before=before,
            tokens_after=after,
            messages_before=len(desk.entries),
            messages_after=len(entries),
            reason=reason,
            duration_ms=round(1000 * (time.perf_counter() - started), 2),
        )
        await access.store.append_edits(
            access.owner, desk.session.session_id, edits, expected=len(desk.edits), event=event
        )
    effect = cache_effect(entries, min(edit.seq or 0 for edit in edits), before - after)
    return PruneResult(
        session_id=desk.session.session_id,
        archived=[_archived(edit, digest, desk) for edit, digest in made[:LISTED]],
        more=len(made) - LISTED if len(made) > LISTED else None,
        tokens_before=before,
        tokens_after=after,
        tokens_saved=before - after,
        reason=reason,
        cache=CacheCost(rewritten_tokens=effect.rewritten, pays_after_requests=effect.requests),
        dry_run=dry_run or None,
        note=CLIENT_NOTE if desk.session.source else None,
    )


def _archived(edit: Edit, digest: str, desk: Desk) -> ArchivedOutput:
    output = desk.outputs[edit.seq or 0, edit.block or 0]
    return ArchivedOutput(handle=output.handle, tool=output.tool, tokens=output.tokens, digest=digest)


async def _archive_edits(access: Access, desk: Desk, chosen: Sequence[Candidate]) -> list[tuple[Edit, str]]:
    """An edit, with its output's digest, for each chosen output whose placeholder is smaller than itself."""
    shown = {entry.message.seq: entry for entry in desk.entries if entry.message}
    made = []
    for candidate in chosen:
        output = candidate.output
        text = await access.output_text(desk.session, output)
        digest = digest_output(output.tool, output.argument, text, output.is_error)
        edit = archive_edit(desk, output, digest)
        if edit.tokens < candidate.view_tokens:
            before = shown[output.seq]
            after = replaced(before, output.block, edit)
            made.append((edit.model_copy(update={"delta": change([before], [after])}), digest))
            shown[output.seq] = after
    return made


def replaced(entry: Entry, block: int, edit: Edit) -> Entry:
    """The entry with one block shown as the edit says."""
    return replace(entry, replaced={**entry.replaced, block: edit})


def archive_edit(desk: Desk, output: Output, digest: str) -> Edit:
    """The edit that shows an output as its placeholder; its `delta` is left to the caller."""
    if desk.settings.placeholder == "cleared":
        shown = cleared_placeholder(output.handle)
    else:
        shown = placeholder(output.tool, output.argument, output.tokens, output.lines, output.handle, digest)
    return Edit(
        kind="archive",
        seq=output.seq,
        block=output.block,
        handle=output.handle,
        text=shown,
        tokens=desk.counter.count(shown),
    )


async def restore(access: Access, handles: Sequence[str], session_id: str | None) -> RestoreResult:
    """Put archived outputs, or what a summary covers, back into the view exactly as they were."""
    if not handles:
        raise BadInputError("Name at least one handle: of an archived output (out_…) or of a summary (sum_…).")
    if session_id is None:
        session_id = await _session_of(access, handles[0])

    async def attempt() -> RestoreResult:
        return await _restore_once(access, await access.desk(session_id), list(dict.fromkeys(handles)))

    return await retrying(attempt)


async def _session_of(access: Access, handle: str) -> str:
    if handle.startswith("out_"):
        return (await access.store.find_output(access.owner, handle))[0]
    return await access.session_id(None)


async def _restore_once(access: Access, desk: Desk, handles: list[str]) -> RestoreResult:
    undone: list[Edit] = []
    untouched: list[str] = []
    known = {output.handle for output in desk.outputs.values()}
    for handle in handles:
        found = [edit for edit in desk.overlay.replaced.values() if edit.handle == handle]
        found += [edit for edit in desk.overlay.covers if edit.summary_id == handle]
        if not found and handle not in known and not any(edit.summary_id == handle for edit in desk.edits):
            raise HandleNotFoundError(
                f"Session {desk.session.session_id} has no output or summary '{handle}'. search_history finds handles."
            )
        undone += found
        untouched += [] if found else [handle]
    before = total_tokens(desk.entries)
    if not undone:
        return RestoreResult(
            session_id=desk.session.session_id,
            restored=[],
            not_archived=untouched,
            tokens_before=before,
            tokens_after=before,
        )
    edit = Edit(kind="restore", undoes=tuple(edit.edit_id for edit in undone))
    entries = await entries_after(access, desk, [edit])
    edit = edit.model_copy(
        update={"delta": change(desk.entries, entries), "view_messages": len(entries) - len(desk.entries)}
    )
    after = total_tokens(entries)
    event = Event(
        kind="restore",
        tokens_before=before,
        tokens_after=after,
        messages_before=len(desk.entries),
        messages_after=len(entries),
        reason=f"Restored {', '.join(edit.handle or edit.summary_id or '' for edit in undone[:20])}.",
    )
    await access.store.append_edits(
        access.owner, desk.session.session_id, [edit], expected=len(desk.edits), event=event
    )
    return RestoreResult(
        session_id=desk.session.session_id,
        restored=[_restored(edit, desk) for edit in undone],
        not_archived=untouched or None,
        tokens_before=before,
        tokens_after=after,
    )


def _restored(edit: Edit, desk: Desk) -> RestoredOutput:
    if edit.summary_id:
        return RestoredOutput(handle=edit.summary_id, tokens=-sum(edit.delta.values()))
    output = desk.outputs[edit.seq or 0, edit.block or 0]
    return RestoredOutput(handle=output.handle, tokens=output.tokens)
