"""The conversation as its program has it: every message that no rewind hides, as it was recorded."""

from __future__ import annotations

from contextstash.context.view.branches import path_to
from contextstash.context.view.view import edits_in_force
from contextstash.service.session_access import READ_AT_ONCE, Access
from contextstash_storage.records import Native


async def read_conversation(access: Access, session_id: str) -> list[Native]:
    """The messages of the branch that is continued, oldest first; also those that a summary stands for."""
    session = await access.session(session_id)
    edits = await access.store.read_edits(session_id)
    shown = edits_in_force(edits).visible_ranges(session.counters.messages)
    path = sorted(path_to(edits, shown[-1][1] if shown else session.counters.messages - 1))
    natives: list[Native] = []
    for start in range(0, len(path), READ_AT_ONCE):
        read = await access.store.read_messages_at(session_id, path[start : start + READ_AT_ONCE])
        natives += [message.body or {} for message in read]
    return natives
