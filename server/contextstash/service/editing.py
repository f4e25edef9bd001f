"""Editing a view: what it becomes, and trying again where somebody else edited it meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from contextstash.context.view import Entry, edits_in_force, lay
from contextstash.service.access import Access, Desk
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Edit

ATTEMPTS = 5

Result = TypeVar("Result")


async def retrying(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """What `attempt` answers, made anew while somebody else edits the same view. Raises EditConflictError
    after a few times."""
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except EditConflictError:
            continue
    raise EditConflictError("Somebody else is editing this session at the same time; try again in a moment.")


async def entries_after(access: Access, desk: Desk, edits: Sequence[Edit]) -> list[Entry]:
    """The view's entries once these edits are appended."""
    start = max((edit.edit_id for edit in desk.edits), default=0) + 1
    numbered = [edit.model_copy(update={"edit_id": start + place}) for place, edit in enumerate(edits)]
    overlay = edits_in_force([*desk.edits, *numbered])
    if any(edit.kind == "restore" for edit in edits):
        messages = await access.visible_messages(desk.session, overlay, bodies=False)
    else:
        messages = [entry.message for entry in desk.entries if entry.message]
    return lay(messages, overlay)
