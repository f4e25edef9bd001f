"""Recorded messages kept in memory: they never change, and each turn of an agent loop needs all of them again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from contextstash.service.bounded_cache import BoundedCache
from contextstash_storage.records import Message, Session
from contextstash_storage.store import SessionStore

MAX_SESSIONS = 8
"""Sessions whose messages are kept: an agent and its sub-agents. A guess."""

MAX_CHARACTERS = 8_000_000
"""Size of the messages that are kept of one session: about two million tokens, twice the largest window. A guess."""


@dataclass
class _Known:
    """The messages of one session, by position."""

    messages: dict[int, Message] = field(default_factory=dict)
    characters: int = 0

    def add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.messages[message.seq] = message
            self.characters += sum(block.size for block in message.blocks)


class MessageCache:
    """The messages of the sessions that were sent last, with their bodies."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._known: BoundedCache[tuple[str, datetime], _Known] = BoundedCache(MAX_SESSIONS)

    async def read(self, session: Session, spans: Iterable[tuple[int, int]], *, bodies: bool) -> list[Message]:
        """The messages from the first to the last position of each span. With `bodies` they are kept for the next call;
        without, they have a body only if it is known. The bodies must not be changed."""
        key = (session.session_id, session.created_at)  # a session of the same id may be another one by now
        known = self._known.get(key) or _Known()
        if known.messages and max(known.messages) >= session.counters.messages:
            known = _Known()  # deleted, and imported again from an older copy
        messages: list[Message] = []
        for first, last in spans:
            missing = [seq for seq in range(first, last + 1) if seq not in known.messages]
            found: dict[int, Message] = {}
            if missing:
                read = await self._store.read_messages(
                    session.session_id, first=missing[0], last=missing[-1], bodies=bodies
                )
                found = {message.seq: message for message in read}
                if bodies:
                    known.add(read)
            messages += [found.get(seq) or known.messages[seq] for seq in range(first, last + 1)]
        if bodies:
            self._known.set(key, known if known.characters <= MAX_CHARACTERS else _Known())
        return messages
