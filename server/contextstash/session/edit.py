"""The one frame for edits: read the view, plan, carry out with an event, plan again if another process was faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from contextstash.outputs.digest import digest_output
from contextstash.session.access import Access
from contextstash.session.masks import shown_text
from contextstash.session.thinking_blocks import Stripping
from contextstash.view.edits import archive_edit, placeholder_of
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.view import Entry, build_view, edits_in_force, untouched
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import (
    ArchiveEdit,
    Edit,
    Event,
    Output,
    Replacement,
    RestoreEdit,
    Session,
)

ATTEMPTS = 5
"""Edits of one session are rare: after so many conflicts in a row the caller gets the error."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Planned(Generic[Result]):
    """Edits of a view, and what is made of them once they are recorded.

    `stripping` says which thinking they invalidate and so take with them. `event` makes the event that is logged with
    them from the view after them, `result` what the caller gets. `after` is that view, if it is known and no thinking
    leaves. In a `dry_run` nothing is recorded. `own` is False for edits that only follow a client's."""

    snapshot: SessionSnapshot
    edits: Sequence[Edit]
    result: Callable[[Session, Sequence[Entry]], Result]
    stripping: Stripping | None = None
    event: Callable[[Sequence[Entry]], Event] | None = None
    after: Sequence[Entry] | None = None
    dry_run: bool = False
    own: bool = True


@dataclass(frozen=True)
class Archived:
    """An output to archive: the edit, the output, its text without secrets, and in one line what it was."""

    edit: ArchiveEdit
    output: Output
    text: str
    digest: str


def archived(snapshot: SessionSnapshot, output: Output, text: str) -> Archived:
    """An output of this text, archived: its placeholder says in one line what it was. The line is derived text, and so
    without secrets."""
    shown = shown_text(snapshot.settings, text)
    digest = digest_output(output.tool, output.argument, shown, output.is_error)
    made = archive_edit(snapshot, output, placeholder_of(snapshot, output, digest))
    return Archived(made, output, shown, digest)


async def edit(access: Access, plan: Callable[[], Awaitable[Planned[Result] | Result]]) -> Result:
    """Carry out what `plan` finds to do; it reads the view again after an edit conflict. What it returns instead of a
    plan is the result. Raises EditConflictError after ATTEMPTS conflicts."""

    async def attempt() -> Result:
        planned = await plan()
        return await _carry_out(access, planned) if isinstance(planned, Planned) else planned

    return await retrying(attempt)


async def _carry_out(access: Access, planned: Planned[Result]) -> Result:
    snapshot, edits, entries = planned.snapshot, list(planned.edits), planned.after
    if planned.stripping is not None:
        edits += planned.stripping.edits(snapshot, [each.handle for each in edits if isinstance(each, Replacement)])
    if entries is None or len(edits) > len(planned.edits):
        entries = await entries_after(access, snapshot, edits)
    if planned.dry_run:
        return await asyncio.to_thread(planned.result, snapshot.session, entries)
    event = None if planned.event is None else await asyncio.to_thread(planned.event, entries)
    change = await asyncio.to_thread(snapshot.counters_after, entries, own=planned.own)
    await anyio.lowlevel.checkpoint_if_cancelled()
    with anyio.CancelScope(shield=True):  # what is being stored is stored: the result must say so
        session = await access.store.append_edits(
            snapshot.session_id, edits, expected=len(snapshot.edits), change=change, event=event
        )
        result = await asyncio.to_thread(planned.result, session, entries)
    return result  # noqa: RET504 - to the type checker a scope may swallow what is in it


async def retrying(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `attempt`; call it again after an edit conflict. Raises EditConflictError after ATTEMPTS
    calls."""
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except EditConflictError:
            continue
    raise EditConflictError("Another process is editing this session at the same time; try again in a moment.")


async def entries_after(access: Access, snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[Entry]:
    """The view's entries once these edits are appended."""
    if any(isinstance(edit, RestoreEdit) for edit in edits):
        overlay = edits_in_force([*snapshot.edits, *edits])
        messages = await access.visible_messages(snapshot.session, overlay, bodies=False)
        return build_view(messages, overlay)
    return await asyncio.to_thread(changed_entries, snapshot, edits)


def changed_entries(snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[Entry]:
    """The same for edits that bring nothing back."""
    messages = [entry.message for entry in snapshot.entries if entry.message]
    overlay = snapshot.overlay.with_edits(edits)
    return build_view(messages, overlay, untouched(snapshot.entries, edits))
