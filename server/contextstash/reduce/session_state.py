"""The state of a session, folded once: a compaction reads what is new since the one before.

The state is kept beside the session as a note. It is a cache: without it, the newest messages are read again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter, ValidationError

from contextstash.events.state import State, fold
from contextstash.reduce.session_turns import SessionTurns
from contextstash.session.access import Access
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash_storage.records import CachedSummary, RewindEdit

MAX_READ = 1_500
"""How many new messages are read, the newest. A window of 200,000 tokens holds fewer, so only a session which was never
reduced has more; each takes about a millisecond."""

OPENING = 50
"""How many of the first messages are read in addition: they say what the task is."""

NOTE = "state"
"""The key of the note. Keys of summaries are digests."""


@dataclass(frozen=True)
class _Kept:
    """A state that was kept, and the rewinds that were in force then."""

    state: State
    rewinds: tuple[int, ...]


@cache
def _adapter() -> TypeAdapter[_Kept]:
    return TypeAdapter(_Kept)


async def state_at(turns: SessionTurns, last_seq: int) -> State:
    """The state of the session after message `last_seq`."""
    known = await _kept(turns.access, turns.snapshot, last_seq)
    start = max(known.seq + 1 if known else 0, last_seq - MAX_READ + 1)
    opening = await turns.between(0, min(OPENING, start) - 1) if known is None else ()
    new = await turns.between(start, last_seq)
    return await asyncio.to_thread(fold, [*opening, *new], known)


async def _kept(access: Access, snapshot: SessionSnapshot, last_seq: int) -> State | None:
    """The state that was kept; None if it is of a later message or of a branch that the conversation has left."""
    note = await access.store.get_cached_summary(snapshot.session_id, NOTE)
    try:
        kept = _adapter().validate_json(note.text) if note is not None else None
    except ValidationError:
        return None
    if kept is None or kept.state.seq > last_seq:
        return None
    rewinds = [edit for edit in snapshot.edits if isinstance(edit, RewindEdit)]
    new = [edit for edit in rewinds if edit.edit_id not in kept.rewinds]
    gone = set(kept.rewinds) - {edit.edit_id for edit in rewinds}
    return None if gone or any(edit.first_seq <= kept.state.seq for edit in new) else kept.state


async def keep_state(access: Access, snapshot: SessionSnapshot, state: State) -> None:
    """Keep a state for the next compaction."""
    rewinds = tuple(edit.edit_id for edit in snapshot.edits if isinstance(edit, RewindEdit))
    text = await asyncio.to_thread(lambda: _adapter().dump_json(_Kept(state, rewinds)).decode())
    await access.store.put_cached_summary(snapshot.session_id, NOTE, CachedSummary(text=text, strategy=NOTE))
