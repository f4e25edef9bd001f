"""Appends messages: stored ones are skipped, and a long batch is stored in pieces, each a transaction of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

from contextstash_storage.codec.record_json import checksum, stored_time
from contextstash_storage.codec.segments import Stored
from contextstash_storage.errors import (
    BadInputError,
    EditConflictError,
    SessionNotFoundError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from contextstash_storage.records import Appended, Counters, Message, NewMessage, Output, Session
from contextstash_storage.sql import append
from contextstash_storage.sql.append import Progress
from contextstash_storage.sql.bodies import store_bodies
from contextstash_storage.sql.logs import find_key
from contextstash_storage.sql.outputs import last_taken, numbered
from contextstash_storage.sql.prepared_messages import (
    Batch,
    Prepared,
    is_large,
    prepare,
    stored_message,
)
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Steps
from contextstash_storage.sqlite.connection import Connection, GroupCommit, run, session_row
from contextstash_storage.sqlite.output_rows import insert_output
from contextstash_storage.sqlite.rows import store_counters
from contextstash_storage.sqlite.search_index import insert_pieces, queue

PIECE_SIZE = 120_000
"""How much a transaction stores of a batch (see `Prepared.size`) before it ends at the next place where a batch may be
cut; at twice as much it ends anywhere, as a view is valid with an unanswered call at its end too. Others wait for the
12 to 60 ms that storing this much takes on two idle cores. The clock decides nothing: a busy machine must not cut
small batches."""


def append_piece(db: sqlite3.Connection, batch: Batch, progress: Progress) -> Progress:
    """Store the next piece of a batch, within a transaction; returns how far it has got."""
    row, session = session_row(db, batch.owner, batch.session_id)
    writer = MessageWriter(db, row, batch.session_id, session.counters.messages)
    return run(db, append.append_piece(writer, session, batch, progress, PIECE_SIZE))


class MessageWriter:
    """Stores messages of a session that has so many, each at once, and their bodies at the next flush."""

    def __init__(self, db: sqlite3.Connection, row: int, session_id: str, messages: int = 0) -> None:
        self.key = (row,)
        self._db = db
        self._row = row
        self._session_id = session_id
        self._first = messages
        self._bodies: list[Stored] = []
        self._handles: dict[str, int] = {}
        """How many outputs have each handle's name."""

    def reserve(self, messages: Sequence[Prepared]) -> Steps[None]:
        """Nothing: a look-up takes 2 µs."""
        yield from ()

    def has_key(self, name: str) -> Steps[bool]:
        return (yield from find_key(self.key, name)) is not None

    def add(self, seq: int, prepared: Prepared) -> Steps[Message]:
        """Store a message at its position."""
        db, row, message = self._db, self._row, prepared.message
        created = message.created_at or now()
        at = stored_time(created)
        fingerprint = prepared.fingerprint
        number = db.execute(
            "INSERT INTO messages (session, seq, fingerprint, key, derived, created_at, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                row,
                seq,
                fingerprint,
                message.key,
                prepared.derived,
                at,
                checksum(seq, fingerprint, message.key, at, prepared.derived),
            ),
        ).lastrowid
        assert number is not None
        self._bodies.append(prepared.stored)
        for output in message.outputs:
            yield from self._add_output(output, seq)
        if prepared.pieces is None:
            queue(db, number)
        else:
            insert_pieces(db, row, seq, number, message.blocks, prepared.pieces)
        return stored_message(message, self._session_id, seq, created)

    def _add_output(self, output: Output, seq: int) -> Steps[None]:
        """Store an output under its handle, or under the next free one of that name."""
        name = output.handle
        self._handles[name] = 1 + (yield from last_taken(self.key, name, self._handles.get(name, 0)))
        handle = numbered(name, self._handles[name])
        insert_output(self._db, self._row, output.model_copy(update={"handle": handle, "seq": seq}))

    def flush(self) -> Steps[None]:
        bodies, self._bodies = self._bodies, []
        yield from store_bodies(self.key, self._first, bodies)
        self._first += len(bodies)

    def store_counters(self, session: Session, counters: Counters) -> Steps[Session]:
        return (yield from store_counters(self.key, session, counters))


PAUSE_SECONDS = 0.005
"""Pause between two pieces. SQLite has no queue for its lock: a waiting process would find the database locked each
time if the next piece started at once. Longer than connection.LOOK_SECONDS, so that each that waits looks once in it.
Of 20 ms and 5 ms: two processes that record transcripts take a fifth less time with 5."""


async def append_in_pieces(group: GroupCommit, batch: Batch, messages: Sequence[NewMessage]) -> Appended:
    """Append messages, as SessionStore.append_messages says. `batch` is all about them but themselves; the lock is held
    for one piece at a time. A small batch is committed together with others."""
    writer, lock = group.writer, group.lock
    if is_large(messages):
        batch = replace(batch, messages=await asyncio.to_thread(prepare, messages))
        progress = await _locked(writer, lock, batch, Progress())
    else:
        batch, progress = await _prepared_and_begun(group, batch, messages)
    while progress.appended is None:
        try:
            await asyncio.sleep(PAUSE_SECONDS)
            progress = await _locked(writer, lock, batch, progress)
        except EditConflictError:
            raise
        except SessionNotFoundError as error:
            raise SessionNotFoundError(_deleted(batch, progress)) from error
        except (StoreError, BadInputError) as error:
            raise type(error)(_partly_stored(batch, progress, error)) from error
    return progress.appended


async def _locked(writer: Connection, lock: asyncio.Lock, batch: Batch, progress: Progress) -> Progress:
    async with lock:
        return await writer.write(lambda db: append_piece(db, batch, progress))


async def _prepared_and_begun(
    group: GroupCommit, batch: Batch, messages: Sequence[NewMessage]
) -> tuple[Batch, Progress]:
    """Prepare a small batch on the writer's thread, just before its transaction: a thread of its own would take longer
    than the work."""

    def prepared() -> Callable[[sqlite3.Connection], tuple[Batch, Progress]]:
        whole = replace(batch, messages=prepare(messages))
        return lambda db: (whole, append_piece(db, whole, Progress()))

    return await group.write(prepared)


def _partly_stored(batch: Batch, progress: Progress, error: Exception) -> str:
    """What an error says that ends a batch between two pieces."""
    assert progress.left is not None
    next_seq = progress.left.messages
    if batch.is_identified:
        advice = "Send the same batch again in the same way: what is stored is not stored twice."
    else:
        advice = f"Record the messages from number {progress.done} of the batch on with first_seq={next_seq}."
    stored = f"{progress.done} of {len(batch.messages)} messages were recorded"
    return f"{stored}, then {_cause(error)}. next_seq is {next_seq}. {advice}"


def _deleted(batch: Batch, progress: Progress) -> str:
    """What the error says if the session was deleted between two pieces."""
    return (
        f"{progress.done} of {len(batch.messages)} messages were recorded, then the session '{batch.session_id}' was"
        " deleted by another process, and these messages with it. The rest was not stored. To keep the conversation,"
        " record it again from its first message, preferably under a new session_id."
    )


def _cause(error: Exception) -> str:
    if isinstance(error, StoreBusyError):
        return "the database was locked by another process for too long"
    if isinstance(error, StoreFullError):
        return "the disk was full"
    return f"this happened: {str(error).rstrip('.')}"
