"""Stores a whole session of another store unchanged, in one transaction: no reader sees a part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from contextstash_storage.postgres.append_messages import MessageWriter
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import run
from contextstash_storage.postgres.sessions import add_indexed, insert_session
from contextstash_storage.records import Copied, Session
from contextstash_storage.sql.prepared_messages import Prepared, read_rows
from contextstash_storage.sql.rows import read_session
from contextstash_storage.sql.session_copy import copy_rows


async def copy_session(db: Connection, session: Session, items: Iterable[Copied]) -> Session | None:
    """Store a session; None if its owner has one of that id. Messages come in order and before all else."""
    key = (session.owner, session.session_id)
    if not await run(db, insert_session(session)):
        return None
    iterator = iter(items)
    writer = MessageWriter(key)
    seq = 0
    while rows := await asyncio.to_thread(read_rows, iterator):
        messages = [row for row in rows if isinstance(row, Prepared)]
        await run(db, writer.reserve(messages))
        for message in messages:
            await run(db, writer.add(seq, message))
            seq += 1
        await run(db, writer.flush())
        await run(db, add_indexed(key, writer.taken()))
        await run(db, copy_rows(key, rows))
    return (await run(db, read_session(*key)))[1]
