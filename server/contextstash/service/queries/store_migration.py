"""Copies all sessions of one store into another, and compares what arrived by checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyio.from_thread import BlockingPortal

from contextstash.service.queries.transfer import import_session, session_records
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Session, SessionExtras
from contextstash_storage.store import SessionStore

LISTED_AT_ONCE = 500

DIFFERENT = "it is stored there with another content: one of the two was changed after it was copied"


@dataclass
class Migrated:
    """The outcome of a migration, by sessions: those `copied` now, those that were there `already`, and by their ids
    why others `failed`."""

    copied: int = 0
    already: int = 0
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """How far a migration has got."""

    sessions: int
    messages: int
    of_sessions: int
    of_messages: int


class Source:
    """The store that is copied. It runs on the event loop of another thread, because the lines of a session are read
    there while the target's loop waits for them."""

    def __init__(self, store: SessionStore, portal: BlockingPortal) -> None:
        self._store = store
        self._portal = portal

    def owners(self) -> list[str]:
        return self._portal.call(self._store.owners)

    def of(self, owner: str) -> Source:
        """The same store, for the sessions of another owner."""
        return Source(self._store.for_owner(owner), self._portal)

    def sessions(self) -> list[Session]:
        """All sessions, parents before sub-agents where the times of their creation say so."""
        found: list[Session] = []
        before: str | None = None
        while page := self._portal.call(partial(self._store.list_sessions, limit=LISTED_AT_ONCE, before=before)):
            found += page
            before = page[-1].session_id
        return sorted(found, key=lambda session: (session.created_at, session.session_id))

    def lines(self, session: Session, digest: Digest) -> Iterator[str]:
        """The records of a session as lines, added to a checksum on their way."""
        records = session_records(Access(self._store), session)
        while (record := self._portal.call(anext, records, None)) is not None:
            yield digest.add(record)

    async def copy_deleted(self, target: SessionStore) -> None:
        """Have the target recognize the deleted sessions too, so that no client brings them back there."""
        await target.copy_deleted(self._portal.call(self._store.deleted_sessions))

    def extras(self, session_id: str) -> SessionExtras:
        extras: SessionExtras = self._portal.call(self._store.read_extras, session_id)
        return extras


class Digest:
    """The checksum of a session: of each of its records, as JSON with sorted keys."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, record: dict[str, Any]) -> str:
        """Count a record in; returns it as a line."""
        record.pop("written_by", None)  # a session may be copied by one version and compared by the next
        line = json.dumps(record)
        self._hash.update(json.dumps(record, sort_keys=True).encode())
        return line

    def with_extras(self, extras: SessionExtras) -> str:
        """The checksum of the records so far and of the session's other data."""
        return hashlib.sha256(self._hash.digest() + extras.model_dump_json().encode()).hexdigest()


async def migrate_store(source: Source, target: SessionStore, report: Callable[[Progress], None]) -> Migrated:
    """Copy the sessions of all owners. Each becomes visible as a whole; one that is there already is compared. So the
    same call again continues an interrupted one."""
    owners = source.owners()
    for owner in owners:
        await source.of(owner).copy_deleted(target.for_owner(owner))
    wanted = [(owner, session) for owner in owners for session in source.of(owner).sessions()]
    messages = sum(session.counters.messages for _, session in wanted)
    done = Migrated()
    read = 0
    for number, (owner, session) in enumerate(wanted, start=1):
        await _migrate_session(source.of(owner), target.for_owner(owner), session, done)
        read += session.counters.messages
        report(Progress(number, read, len(wanted), messages))
    return done


async def _migrate_session(source: Source, target: SessionStore, session: Session, done: Migrated) -> None:
    name = session.session_id
    digest = Digest()
    lines = source.lines(session, digest)
    recorded = not await _is_there(target, name)
    try:
        await import_session(Access(target), lines)
    except BadInputError as error:  # another session is stored under this id, or the copy would not be the same
        done.failed[name] = str(error)
        return
    extras = source.extras(name)
    if recorded or await target.read_extras(name) == SessionExtras():  # else a run was interrupted just before this
        await target.put_extras(name, extras)
    for _ in lines:  # what the import did not need to read counts too
        pass
    if await _checksum(target, name) != digest.with_extras(extras):
        done.failed[name] = DIFFERENT
    elif recorded:
        done.copied += 1
    else:
        done.already += 1


async def _is_there(target: SessionStore, session_id: str) -> bool:
    try:
        await target.get_session(session_id)
    except SessionNotFoundError:
        return False
    return True


async def _checksum(target: SessionStore, session_id: str) -> str:
    """The checksum of a stored session."""
    digest = Digest()
    records: AsyncIterator[dict[str, Any]] = session_records(Access(target), await target.get_session(session_id))
    async for record in records:
        digest.add(record)
    return digest.with_extras(await target.read_extras(session_id))
