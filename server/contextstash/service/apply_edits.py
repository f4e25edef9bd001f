"""Editing a view: what it becomes, what is logged of it, and trying again where somebody else edited it meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from contextstash.context.view.view import Entry, change, edits_in_force, lay, parts_of, total_tokens
from contextstash.context.window import estimate as counting
from contextstash.service.session_snapshot import Access, SessionSnapshot
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Edit, EditRecord, Event, EventKind, Replacement, RestoreEdit

ATTEMPTS = 5

Result = TypeVar("Result")
Weighed = TypeVar("Weighed", bound=EditRecord)


async def retrying(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """What `attempt` answers, made anew while somebody else edits the same view. Raises EditConflictError
    after a few times."""
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except EditConflictError:
            continue
    raise EditConflictError("Somebody else is editing this session at the same time; try again in a moment.")


async def entries_after(access: Access, snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[Entry]:
    """The view's entries once these edits are appended."""
    start = max((edit.edit_id for edit in snapshot.edits), default=0) + 1
    numbered = [edit.model_copy(update={"edit_id": start + place}) for place, edit in enumerate(edits)]
    overlay = edits_in_force([*snapshot.edits, *numbered])
    if any(isinstance(edit, RestoreEdit) for edit in edits):
        messages = await access.visible_messages(snapshot.session, overlay, bodies=False)
    else:
        messages = [entry.message for entry in snapshot.entries if entry.message]
    return lay(messages, overlay)


def replaced(entry: Entry, block: int, edit: Replacement) -> Entry:
    """The entry with one block shown as the edit says."""
    return replace(entry, replaced={**entry.replaced, block: edit})


def weighed(edit: Weighed, before: Entry, after: Entry) -> Weighed:
    """The edit with what it changes of the counters: of one entry, `before` and `after`."""
    return edit.model_copy(
        update={
            "delta": change([before], [after]),
            "view_results": after.visible_results - before.visible_results,
        }
    )


def event_of(
    snapshot: SessionSnapshot, entries: Sequence[Entry], kind: EventKind, reason: str, *, seconds: float = 0.0
) -> Event:
    """What was done to a view, for the session's log; `entries` are those of the view afterwards."""
    return Event(
        kind=kind,
        tokens_before=total_tokens(snapshot.entries),
        tokens_after=total_tokens(entries),
        messages_before=len(snapshot.entries),
        messages_after=len(entries),
        reason=reason,
        seq=snapshot.session.counters.messages,
        parts=_parts(snapshot, entries),
        duration_ms=round(1000 * seconds, 2),
    )


def _parts(snapshot: SessionSnapshot, entries: Sequence[Entry]) -> dict[str, int]:
    """What the window then holds by part, what was never recorded included."""
    tokens, _ = counting.estimate(
        snapshot.session.counters, snapshot.settings, snapshot.counter.name, followed=snapshot.followed
    )
    held = counting.breakdown(snapshot.session.counters, tokens, followed=snapshot.followed)
    parts = {str(part): tokens for part, tokens in sorted(parts_of(entries).items()) if tokens}
    return {**parts, "unrecorded": held["unrecorded"]} if "unrecorded" in held else parts
