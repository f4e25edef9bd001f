"""Sessions kept in memory: what is recorded never changes, and each turn of an agent loop needs all of it again.

Messages and edits are append-only, so that a known session is advanced by reading what is new. The newest known
message and edit are read again with it: if they differ, the session was deleted meanwhile, and another one, such as a
copy from another machine, has taken its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from contextstash.context.view.session_snapshot import Place
from contextstash.context.view.view import Entry, Overlay, edits_in_force
from contextstash.service.bounded_cache import BoundedCache
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Edit, Message, Output, Session
from contextstash_storage.store import SessionStore

MAX_SESSIONS = 8
"""Sessions that are kept: an agent and its sub-agents. A guess."""

MAX_TOKENS = 2_000_000
"""Size of the messages that are kept of one session: twice the largest window. A guess."""

MAX_ADVANCED = 100
"""Up to so many new messages are read at once with the check of the known ones; more are read if they are needed."""

NO_EDITS = edits_in_force(())

Span = tuple[int, int]


@dataclass(frozen=True)
class KnownSession:
    """What is known of a session, as of its state `session`: all its edits, those in force, and some of its messages,
    their entries in the view and their outputs, by position. It is not changed but replaced, so that tasks cannot
    disturb each other."""

    session: Session
    edits: tuple[Edit, ...] = ()
    overlay: Overlay = NO_EDITS
    messages: Mapping[int, Message] = field(default_factory=dict)
    entries: Mapping[int, Entry] = field(default_factory=dict)
    outputs: Mapping[int, tuple[Output, ...]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, datetime]:
        return self.session.session_id, self.session.created_at


class SessionCache:
    """The sessions that were used last."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._known: BoundedCache[tuple[str, datetime], KnownSession] = BoundedCache(MAX_SESSIONS)

    def __len__(self) -> int:
        return len(self._known)

    async def read(self, session: Session) -> KnownSession:
        """The edits of a session as of this state of it, and those of its messages that are known."""
        known = self._known.get((session.session_id, session.created_at))
        advanced = None if known is None else await self._advanced(known, session)
        if advanced is None:
            edits = await self._edits(session, 0)
            advanced = KnownSession(session, edits, edits_in_force(edits) if edits else NO_EDITS)
        return self._known.set(advanced.key, advanced)

    async def messages(self, known: KnownSession, spans: Iterable[Span], *, bodies: bool) -> list[Message]:
        """The messages from the first to the last position of each span. Without `bodies` they have a body only if it
        is known. The bodies must not be changed."""
        found: list[Message] = []
        for first, last in spans:
            missing = [seq for seq in range(first, last + 1) if seq not in known.messages]
            read = await self._read(known.session, missing[0], missing[-1], bodies) if missing else {}
            found += [read.get(seq) or known.messages[seq] for seq in range(first, last + 1)]
        return found

    async def outputs(self, known: KnownSession, messages: Sequence[Message]) -> dict[Place, Output]:
        """The outputs of these messages, which are in order."""
        found = known.outputs
        missing = [each.seq for each in messages if each.seq not in found]
        if missing:
            read: dict[int, tuple[Output, ...]] = dict.fromkeys(missing, ())
            for output in await self._store.read_outputs(known.session.session_id, first=missing[0], last=missing[-1]):
                if output.seq in read:
                    read[output.seq] += (output,)
            found = {**found, **read}
            self._keep_outputs(known, found)
        return {(output.seq, output.block): output for each in messages for output in found[each.seq]}

    def keep(self, known: KnownSession, messages: Sequence[Message], view: Iterable[Entry]) -> None:
        """Keep these messages, which have bodies, and the view made of them for the next call, in place of those that
        were kept before."""
        size = sum(message.tokens for message in messages)
        kept = {message.seq: message for message in messages} if size <= MAX_TOKENS else {}
        entries = {entry.message.seq: entry for entry in view if entry.message and entry.message.seq in kept}
        self._known.set(known.key, replace(known, messages=kept, entries=entries))

    def _keep_outputs(self, known: KnownSession, outputs: Mapping[int, tuple[Output, ...]]) -> None:
        current = self._known.get(known.key)
        if current is not None and current.session == known.session:
            kept = {seq: found for seq, found in outputs.items() if seq in current.messages}
            self._known.set(known.key, replace(current, outputs=kept))

    async def _advanced(self, known: KnownSession, session: Session) -> KnownSession | None:
        """What is known, with what is new; None if what is known is of another session."""
        before, after = known.session.counters, session.counters
        counts = (after.messages, after.edits)
        if known.session.updated_at == session.updated_at and (before.messages, before.edits) == counts:
            return replace(known, session=session)
        if after.messages < before.messages or after.edits < before.edits:
            return None
        newest = await self._newest(known, session)
        read = await self._edits(session, max(0, len(known.edits) - 1)) if after.edits else ()
        if newest is None or read[: len(known.edits[-1:])] != known.edits[-1:]:
            return None
        edits = (*known.edits[:-1], *read)
        advanced = replace(known, session=session, messages={**known.messages, **newest})
        if len(edits) == len(known.edits):
            return advanced
        return replace(advanced, edits=edits, overlay=edits_in_force(edits), entries={})

    async def _newest(self, known: KnownSession, session: Session) -> dict[int, Message] | None:
        """The newest known message, and those after it if they are few; None if it is another one by now."""
        newest = max(known.messages, default=None)
        if newest is None:
            return {}
        last = session.counters.messages - 1
        read = await self._read(session, newest, last if last - newest <= MAX_ADVANCED else newest, True)
        if read[newest] != known.messages[newest]:
            return None
        return {seq: message for seq, message in read.items() if seq != newest}

    async def _edits(self, session: Session, after: int) -> tuple[Edit, ...]:
        """The edits behind number `after`, up to this state of the session."""
        if not session.counters.edits:
            return ()
        return tuple(await self._store.read_edits(session.session_id, after=after))[: session.counters.edits - after]

    async def _read(self, session: Session, first: int, last: int, bodies: bool) -> dict[int, Message]:
        read = await self._store.read_messages(session.session_id, first=first, last=last, bodies=bodies)
        if len(read) <= last - first:
            raise SessionNotFoundError(f"The session '{session.session_id}' was deleted while it was read.")
        return {message.seq: message for message in read}
