"""The importance of the outputs in a session's view, by their texts."""

from __future__ import annotations

import asyncio

from contextstash.context.view.output_importance import UNKNOWN, Importance, importance_of
from contextstash.context.view.prune_plan import visible_outputs
from contextstash.context.view.session_snapshot import Place, SessionSnapshot
from contextstash.service.session_access import Access
from contextstash_storage.records import Output

RECENT_MESSAGES = 400
"""Messages at the end whose outputs are counted as calls, also if they are hidden: several for each of the newest calls
that say which files are under edit (protected_outputs.RECENT_CALLS)."""


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
