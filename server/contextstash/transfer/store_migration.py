"""Copies all sessions of one store into another, and compares what arrived by checksum."""

from __future__ import annotations

import hashlib
import json
from asyncio import AbstractEventLoop, get_running_loop, run_coroutine_threadsafe
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from contextstash.queries.sessions import all_sessions
from contextstash.session.access import Access
from contextstash.transfer.transfer import import_session, session_records
from contextstash_storage.errors import BadInputError, DamagedError
from contextstash_storage.records import Session, SessionExtras
from contextstash_storage.store import SessionStore

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


def _lines(records: AsyncGenerator[dict[str, Any]], digest: Digest, loop: AbstractEventLoop) -> Iterator[str]:
    """The records of a session as lines, added to a checksum on their way. They are read on the event loop, which must
    not be the thread that asks for the lines."""

    async def following() -> dict[str, Any] | None:
        return await anext(records, None)

    while (record := run_coroutine_threadsafe(following(), loop).result()) is not None:
        yield digest.add(record)


async def migrate_store(source: SessionStore, target: SessionStore, report: Callable[[Progress], None]) -> Migrated:
    """Copy the sessions of all owners. Each becomes visible as a whole; one that is there already is compared. So the
    same call again continues an interrupted one."""
    stores = [(source.for_owner(owner), target.for_owner(owner)) for owner in await source.owners()]
    for own, others in stores:
        await others.copy_deleted(await own.deleted_sessions())  # no client brings them back there
    wanted = [(own, others, session) for own, others in stores for session in await _sessions(own)]
    messages = sum(session.counters.messages for _, _, session in wanted)
    done = Migrated()
    read = 0
    for number, (own, others, session) in enumerate(wanted, start=1):
        await _migrate_session(own, others, session, done)
        read += session.counters.messages
        report(Progress(number, read, len(wanted), messages))
    return done


async def _sessions(store: SessionStore) -> list[Session]:
    """All sessions, parents before sub-agents where the times of their creation say so."""
    return sorted(await all_sessions(Access(store)), key=lambda session: (session.created_at, session.session_id))


async def _migrate_session(source: SessionStore, target: SessionStore, session: Session, done: Migrated) -> None:
    name = session.session_id
    digest = Digest()
    lines = _lines(session_records(Access(source), session), digest, get_running_loop())
    recorded = await Access(target).find(name) is None
    try:
        await import_session(Access(target), lines)
    except (BadInputError, DamagedError) as error:
        # Another session is stored under this id, the copy would not be the same, or it cannot be read: others can.
        done.failed[name] = str(error)
        return
    extras = await source.read_extras(name)
    if recorded or await target.read_extras(name) == SessionExtras():  # else a run was interrupted just before this
        await target.put_extras(name, extras)
    copy = Digest()
    async for record in session_records(Access(target), await target.get_session(name)):
        copy.add(record)
    if copy.with_extras(await target.read_extras(name)) != digest.with_extras(extras):
        done.failed[name] = DIFFERENT
    elif recorded:
        done.copied += 1
    else:
        done.already += 1
