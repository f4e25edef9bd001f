"""The view after edits, and retries if another process has edited the session meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.context.view.view import Entry, build_view, edits_in_force, untouched
from contextstash.service.session_access import Access
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Edit, RestoreEdit

ATTEMPTS = 5
"""Edits of one session are rare: after so many conflicts in a row the caller gets the error."""

Result = TypeVar("Result")


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
    return await asyncio.to_thread(_changed, snapshot, edits)


def _changed(snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[Entry]:
    messages = [entry.message for entry in snapshot.entries if entry.message]
    return build_view(messages, edits_in_force([*snapshot.edits, *edits]), untouched(snapshot.entries, edits))
