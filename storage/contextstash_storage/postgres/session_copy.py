"""Stores a whole session of another store unchanged, in one transaction: no reader sees a part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from contextstash_storage.codec.record_json import group_of
from contextstash_storage.postgres.append_messages import MessageWriter
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION, run
from contextstash_storage.postgres.logs import insert_call
from contextstash_storage.postgres.sessions import add_indexed, insert_session, read_session
from contextstash_storage.postgres.view_edits import put_edits
from contextstash_storage.preparation.messages import Prepared, Row, read_rows
from contextstash_storage.records import Call, Copied, DeclaredVersion, EditRecord, Event, Session
from contextstash_storage.sql.logs import insert_event
from contextstash_storage.sql.requests import put_declared, put_requests


async def copy_session(db: Connection, session: Session, items: Iterable[Copied]) -> Session | None:
    """Store a session; None if its owner has one of that id. Messages come in order and before all else."""
    key = (session.owner, session.session_id)
    if not await insert_session(db, session):
        return None
    iterator = iter(items)
    writer = MessageWriter(db, key)
    seq = 0
    while rows := await asyncio.to_thread(read_rows, iterator):
        messages = [row for row in rows if isinstance(row, Prepared)]
        await writer.reserve(messages)
        for message in messages:
            await writer.add(seq, message)
            seq += 1
        await writer.flush()
        await run(db, add_indexed(key, writer.taken()))
        writer.stored.clear()
        await _store_others(db, key, rows)
    return await read_session(db, key)


async def _store_others(db: Connection, key: tuple[str, str], rows: Iterable[Row]) -> None:
    edits: list[tuple[EditRecord, str | None]] = []
    for row in rows:
        if isinstance(row, EditRecord):
            edits.append((row, None))
        elif isinstance(row, Event):
            await run(db, insert_event(key, row))
        elif isinstance(row, DeclaredVersion):
            await run(db, put_declared(key, row))
        elif isinstance(row, Call):
            await run(db, insert_call(key, row, await _reply_of(db, key, row)))
        elif not isinstance(row, Prepared):
            await run(db, put_requests(key, [row]))
    await put_edits(db, key, edits)


async def _reply_of(db: Connection, key: Sequence[str], call: Call) -> str | None:
    """The provider's id of the reply to an agent's call, so that a later report of it finds the call."""
    if call.purpose != "agent":
        return None
    sql = f"SELECT derived FROM messages WHERE {OF_SESSION} AND seq = $3"
    derived = await db.fetchval(sql, *key, call.request_seq + 1)
    return None if derived is None else group_of(derived)
