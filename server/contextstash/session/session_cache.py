"""Sessions kept in memory: what is recorded never changes, and each turn of an agent loop needs all of it again.

Messages and edits are append-only, so that a known session is advanced by reading what is new. The newest known
message and edit are read again with it: if they differ, the session was deleted meanwhile, and another one, such as a
copy from another machine, has taken its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from contextstash.base.bounded_cache import BoundedCache
from contextstash.base.value_bytes import value_bytes
from contextstash.view.session_snapshot import Place
from contextstash.view.view import Entry, Overlay, edits_in_force, message_entries
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Edit, KnownPart, Message, Native, Output, Session, SessionNews
from contextstash_storage.store import SessionStore

MAX_LISTS = 64
"""Sessions of which the last list is known, some 130 bytes for each message. The list of another one is hashed
again."""

Digest = bytes | None
"""The hash by which a message is recognized; None if it has none."""


def digests_of(natives: Sequence[Native]) -> list[Digest]:
    """The digest of each message: a fifth of the time that its fingerprint takes."""
    written = (value_bytes(native) for native in natives)
    return [None if data is None else hashlib.sha256(data).digest() for data in written]


class KnownLists:
    """The last list of each session: digests, and the store's fingerprints."""

    def __init__(self) -> None:
        self._known: BoundedCache[str, tuple[Sequence[Digest], Sequence[bytes]]] = BoundedCache(MAX_LISTS)

    def fingerprints(self, session_id: str, digests: Sequence[Digest]) -> list[bytes]:
        """The fingerprints of the messages at the head of a list, as far as they are those of the last list."""
        known, fingerprints = self._known.get(session_id) or ((), ())
        same = 0
        for listed, before in zip(digests, known, strict=False):
            if listed is None or listed != before:
                break
            same += 1
        return list(fingerprints[:same])

    def keep(self, session_id: str, digests: Sequence[Digest], fingerprints: Sequence[bytes]) -> None:
        """Remember a session's list."""
        self._known.set(session_id, (digests, fingerprints))


MAX_SESSIONS = 8
"""Sessions that are kept: an agent and its sub-agents. Others are read from the database again."""

MAX_TOKENS = 2_000_000
"""Size of the messages that are kept of one session: twice the largest window. A larger view is
read from the database at each call."""

MAX_ADVANCED = 100
"""Up to so many new messages are read at once with the check of the known ones; more are read if they are needed."""

NOTHING_KNOWN = KnownPart()

NO_EDITS = edits_in_force(())

Span = tuple[int, int]


@dataclass(frozen=True)
class KnownSession:
    """A session in memory, as of its state `session`: all its edits, those in force, and some of its messages,
    their entries in the view and their outputs, by position. `view` is the whole view of the first `viewed` messages,
    empty if that is not known. It is not changed but replaced, so that tasks cannot disturb each other."""

    session: Session
    edits: tuple[Edit, ...] = ()
    overlay: Overlay = NO_EDITS
    messages: Mapping[int, Message] = field(default_factory=dict)
    entries: Mapping[int, Entry] = field(default_factory=dict)
    outputs: Mapping[int, tuple[Output, ...]] = field(default_factory=dict)
    view: tuple[Entry, ...] = ()
    viewed: int = 0

    @property
    def key(self) -> tuple[str, datetime]:
        return self.session.session_id, self.session.created_at

    @property
    def known_part(self) -> KnownPart:
        """The part that need not be read again: all but the newest message and edit."""
        return KnownPart(max(self.messages, default=None), max(0, len(self.edits) - 1), MAX_ADVANCED)


class SessionCache:
    """The sessions that were used last."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._known: BoundedCache[tuple[str, datetime], KnownSession] = BoundedCache(MAX_SESSIONS)

    def __len__(self) -> int:
        return len(self._known)

    async def news(self, session_id: str) -> SessionNews:
        """The session as it is now, and what is new in it, for `read`. Raises SessionNotFoundError."""
        known = self._known.last(lambda key: key[0] == session_id)
        part = NOTHING_KNOWN if known is None else known.known_part
        return await self._store.read_news(session_id, part)

    async def read(self, session: Session, news: SessionNews | None = None) -> KnownSession:
        """The edits of a session as of this state of it, and those of its messages that are known. With `news`, which
        are of the same state, nothing that is in them is read."""
        known = self._known.get((session.session_id, session.created_at))
        advanced = None if known is None else await self._advanced(known, session, news)
        if advanced is None:
            edits = await self._edits(session, news)
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

    def keep(self, known: KnownSession, messages: Sequence[Message], view: Sequence[Entry], *, whole: bool) -> None:
        """Keep these messages, which have bodies, and the view made of them for the next call, in place of those that
        were kept before; `whole` says that it is all of the view."""
        kept = {message.seq: message for message in messages} if _size(messages) <= MAX_TOKENS else {}
        entries = {entry.message.seq: entry for entry in view if entry.message} if kept else {}
        viewed = known.session.counters.messages if kept and whole else 0
        shown = tuple(view) if viewed else ()
        self._known.set(known.key, replace(known, messages=kept, entries=entries, view=shown, viewed=viewed))

    def grown(self, known: KnownSession) -> tuple[Entry, ...] | None:
        """The whole view, if it is known but for a few new messages, which are known too: as no edit came since, their
        entries follow the others. Kept for the next call; None if it must be made of all messages."""
        count = known.session.counters.messages
        new = [known.messages.get(seq) for seq in range(known.viewed, count)] if known.view else [None]
        messages = [message for message in new if message is not None]
        if len(messages) < len(new) or _size(known.messages.values()) > MAX_TOKENS:
            return None
        added = message_entries(messages, known.overlay)
        view = (*known.view, *added)
        entries = {**known.entries, **{entry.first_seq: entry for entry in added}}
        self._known.set(known.key, replace(known, entries=entries, view=view, viewed=count))
        return view

    def _keep_outputs(self, known: KnownSession, outputs: Mapping[int, tuple[Output, ...]]) -> None:
        current = self._known.get(known.key)
        if current is not None and current.session == known.session:
            kept = {seq: found for seq, found in outputs.items() if seq in current.messages}
            self._known.set(known.key, replace(current, outputs=kept))

    async def _advanced(self, known: KnownSession, session: Session, news: SessionNews | None) -> KnownSession | None:
        """The known session with the new messages and edits; None if it was another session of this id."""
        before, after = known.session.counters, session.counters
        counts = (after.messages, after.edits)
        if known.session.updated_at == session.updated_at and (before.messages, before.edits) == counts:
            return replace(known, session=session)
        if after.messages < before.messages or after.edits < before.edits:
            return None
        part = known.known_part
        if news is None or news.known != part:
            news = await self._store.read_news(session.session_id, part)
        # The news may be of a later state: what came after this one is left out.
        newest = {message.seq: message for message in news.messages if message.seq < after.messages}
        read = news.edits[: after.edits - part.edits]
        if part.first is not None and newest.pop(part.first, None) != known.messages[part.first]:
            return None
        if read[: len(known.edits[-1:])] != known.edits[-1:]:
            return None
        outputs: dict[int, tuple[Output, ...]] = dict.fromkeys(newest, ())
        for output in news.outputs:
            if output.seq in outputs:
                outputs[output.seq] += (output,)
        advanced = replace(
            known, session=session, messages={**known.messages, **newest}, outputs={**known.outputs, **outputs}
        )
        edits = (*known.edits[:-1], *read)
        if len(edits) == len(known.edits):
            return advanced
        return replace(advanced, edits=edits, overlay=edits_in_force(edits), entries={}, view=(), viewed=0)

    async def _edits(self, session: Session, news: SessionNews | None) -> tuple[Edit, ...]:
        """All edits of a session, up to this state of it."""
        count = session.counters.edits
        if news is not None and not news.known.edits:
            return news.edits[:count]
        return tuple(await self._store.read_edits(session.session_id))[:count] if count else ()

    async def _read(self, session: Session, first: int, last: int, bodies: bool) -> dict[int, Message]:
        """Messages by position. Raises SessionNotFoundError if they are not there any more."""
        read = await self._store.read_messages(session.session_id, first=first, last=last, bodies=bodies)
        if len(read) <= last - first:
            raise SessionNotFoundError(f"The session '{session.session_id}' was deleted while it was read.")
        return {message.seq: message for message in read}


def _size(messages: Iterable[Message]) -> int:
    return sum([message.tokens for message in messages])
