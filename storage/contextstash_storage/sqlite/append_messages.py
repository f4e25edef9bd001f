"""Appends messages: stored ones are skipped, and a long batch is stored in pieces, each a transaction of its own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from contextstash_storage.codec.bodies import Blob, Dictionary
from contextstash_storage.codec.record_json import from_json, group_of, stored_time, to_json
from contextstash_storage.errors import (
    BadInputError,
    EditConflictError,
    SessionNotFoundError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from contextstash_storage.preparation.messages import (
    Batch,
    Prepared,
    batch_fingerprint,
    is_large,
    prepare,
    reported_call,
    stored_fingerprint,
    stored_message,
    with_counters,
    with_usage,
)
from contextstash_storage.records import (
    Appended,
    Call,
    Counters,
    Cursor,
    Message,
    NewMessage,
    Output,
    Session,
)
from contextstash_storage.sql import batches
from contextstash_storage.sql.outputs import last_taken, numbered
from contextstash_storage.sql.requests import book_usage
from contextstash_storage.sql.rows import now
from contextstash_storage.sqlite.connection import Connection, GroupCommit
from contextstash_storage.sqlite.dialect import run, session_row
from contextstash_storage.sqlite.dictionaries import dictionary_of, is_due, make_dictionary
from contextstash_storage.sqlite.logs import insert_call
from contextstash_storage.sqlite.outputs import insert_output
from contextstash_storage.sqlite.rows import LARGE_BODY, insert_large
from contextstash_storage.sqlite.search_index import insert_pieces, queue
from contextstash_storage.sqlite.unindexed_sessions import index_again
from contextstash_storage.sqlite.view_edits import insert_edits

PIECE_SIZE = 120_000
"""How much a transaction stores of a batch (see `Prepared.size`) before it ends at the next place where a batch may be
cut; at twice as much it ends anywhere, as a view is valid with an unanswered call at its end too. Others wait for the
12 to 60 ms that storing this much takes on two idle cores. The clock decides nothing: a busy machine must not cut
small batches."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch has got. `done` of its messages are stored, by this call or before; `left` are the session's
    counters as the last piece left them."""

    done: int = 0
    stored: tuple[Message, ...] = ()
    first_seq: int | None = None
    repeats: bool = False
    indexed_again: bool = False
    left: Counters | None = None
    into: tuple[int, datetime] | None = None
    """The row of the session that the first piece went into, and when that was made: a row number can come again."""
    appended: Appended | None = None
    """What the append did, once it is complete."""


def append_piece(db: sqlite3.Connection, batch: Batch, progress: Progress) -> Progress:
    """Store the next piece of a batch, within a transaction; returns how far it has got."""
    row, session = session_row(db, batch.owner, batch.session_id)
    counters = session.counters
    into = (row, session.created_at)
    if progress.into not in (None, into):
        raise SessionNotFoundError(f"The session '{batch.session_id}' was deleted, and made again, meanwhile.")
    if progress.left is None:
        progress = replace(progress, repeats=run(db, batches.looks_repeated((row,), counters.messages, batch)))
    counters = _with_edits_before(db, row, counters, batch, progress)
    known = run(db, batches.known((row,), counters.messages, batch, progress.done))
    done, stored, counters = _store_messages(db, row, with_counters(session, counters), batch, known.count)
    if batch.batch_id is not None and stored:
        note_piece(db, row, batch.batch_id, batch.messages, known.count, stored[0].seq, len(stored))
    complete = done == len(batch.messages)
    if complete and batch.edits is not None and stored:
        counters = insert_edits(db, row, counters, batch.edits(counters, stored), own=False)
    if complete and batch.cursor is not None:
        _store_cursor(db, batch.owner, row, batch.cursor)
    if stored or counters != session.counters:
        session = _store_counters(db, row, session, counters)
    indexed_again = bool(stored) and index_again(db, row)
    progress = replace(
        progress,
        indexed_again=progress.indexed_again or indexed_again,
        done=done,
        stored=progress.stored + stored,
        first_seq=known.first_seq if progress.first_seq is None else progress.first_seq,
        left=counters,
        into=into,
    )
    return replace(progress, appended=_appended(batch, progress, session)) if complete else progress


def _appended(batch: Batch, progress: Progress, session: Session) -> Appended:
    appended = batch.appended(session, progress.stored, progress.first_seq, repeats=progress.repeats)
    return appended.model_copy(update={"indexed_again": True}) if progress.indexed_again else appended


def _with_edits_before(
    db: sqlite3.Connection, row: int, counters: Counters, batch: Batch, progress: Progress
) -> Counters:
    """Append the edits that belong before the messages; returns the counters after them."""
    if batch.before is None:
        return counters
    if progress.left is None:
        return insert_edits(db, row, counters, batch.before(counters), own=False)
    if (counters.messages, counters.edits) != (progress.left.messages, progress.left.edits):
        raise EditConflictError("The session was changed while messages were appended to it.")
    return counters


def _store_messages(
    db: sqlite3.Connection, row: int, session: Session, batch: Batch, done: int
) -> tuple[int, tuple[Message, ...], Counters]:
    """Store messages from number `done` on until the transaction is full. Returns how many of the batch are stored
    then, those stored now, and the counters."""
    counters = session.counters
    handles: dict[str, int] = {}
    dictionary = dictionary_of(db, row)
    stored: list[Message] = []
    size = 0
    for prepared in batch.messages[done:]:
        size += prepared.size
        if stored and size > (PIECE_SIZE if batch.messages[done - 1].may_end else 2 * PIECE_SIZE):
            break
        done += 1
        message = prepared.message
        if message.key is not None and has_key(db, row, message.key):
            continue
        seq = counters.messages
        stored.append(insert_message(db, row, batch.session_id, seq, prepared, dictionary, handles))
        if message.usage is not None:
            _store_call(db, row, message, with_counters(session, counters), seq)
        counters = batch.count(counters, message, seq)
    if dictionary is None and is_due(session.counters.messages, counters.messages):
        make_dictionary(db, row, counters.messages)
    return done, tuple(stored), counters


def insert_message(
    db: sqlite3.Connection,
    row: int,
    session_id: str,
    seq: int,
    prepared: Prepared,
    dictionary: Dictionary | None,
    handles: dict[str, int] | None = None,
) -> Message:
    """Store a message at its position, with its outputs and what of it can be found. `dictionary` is that of its
    session; `handles` is kept from message to message of one transaction: how many outputs have each handle's name."""
    message = prepared.message
    created = message.created_at or now()
    body = prepared.body(dictionary)
    is_large = len(body) >= LARGE_BODY
    number = db.execute(
        "INSERT INTO messages (session, seq, fingerprint, key, body, derived, created_at, created, search_text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row,
            seq,
            stored_fingerprint(prepared.fingerprint),
            message.key,
            b"" if is_large else body,
            prepared.derived,
            *stored_time(created),
            prepared.search_text,
        ),
    ).lastrowid
    assert number is not None
    if is_large:
        insert_large(db, number, body)
    _insert_blobs(db, number, prepared)
    for output in message.outputs:
        _insert_output(db, row, output, seq, {} if handles is None else handles)
    if prepared.pieces is None:
        queue(db, number)
    else:
        insert_pieces(db, row, seq, number, message.blocks, prepared.pieces)
    return stored_message(message, session_id, seq, created)


def _insert_blobs(db: sqlite3.Connection, number: int, prepared: Prepared) -> None:
    for place, (blob, content) in enumerate(prepared.blobs):
        db.execute(
            "INSERT INTO message_blobs (message, number, path, blob) VALUES (?, ?, ?, ?)",
            (number, place, json.dumps(blob.path), _blob(db, blob, content)),
        )


def _blob(db: sqlite3.Connection, blob: Blob, content: bytes) -> int:
    known = db.execute("SELECT blob FROM blobs WHERE sha256 = ?", (blob.sha256,)).fetchone()
    if known is not None:
        return int(known[0])
    number = db.execute("INSERT INTO blobs (sha256, content) VALUES (?, ?)", (blob.sha256, content)).lastrowid
    assert number is not None
    return number


def _insert_output(db: sqlite3.Connection, row: int, output: Output, seq: int, handles: dict[str, int]) -> None:
    """Store an output under its handle, or under the next free one of that name."""
    name = output.handle
    handles[name] = run(db, last_taken((row,), name, handles.get(name, 0))) + 1
    insert_output(db, row, output.model_copy(update={"handle": numbered(name, handles[name]), "seq": seq}))


def _store_call(db: sqlite3.Connection, row: int, message: NewMessage, session: Session, seq: int) -> None:
    """Store the model call that a message reports on. A reply recorded in several messages is one call,
    with the last of its reports."""
    usage = message.usage
    assert usage is not None
    values = (row, message.group)
    stored = db.execute("SELECT call_id, record FROM calls WHERE session = ? AND reply = ?", values).fetchone()
    if stored is not None:
        call_id, record = stored
        # By its row number: SQLite surrounds an UPDATE that might change several rows with a savepoint, and FTS5 writes
        # what it has collected to its tables at each savepoint. That took a tenth of the time of an import.
        db.execute(
            "UPDATE calls SET record = ? WHERE call_id = ?",
            (to_json(with_usage(from_json(Call, record), usage)), call_id),
        )
        return
    sent = message.request or session.counters.request
    if sent is not None:
        run(db, book_usage((row,), sent.number, usage))
    start = _reply_start(db, row, message.group, seq) if sent is None else 0
    call = reported_call(message, session, start, sent)
    run(db, insert_call((row,), call, message.group))


def _reply_start(db: sqlite3.Connection, row: int, group: str | None, seq: int) -> int:
    """The first position of the reply whose part at `seq` is the first that reports usage."""
    if group is None:
        return seq
    rows = db.execute("SELECT seq, derived FROM messages WHERE session = ? AND seq < ? ORDER BY seq DESC", (row, seq))
    for before, text in rows:
        if group_of(text) != group:
            break
        seq = before
    return seq


def _store_cursor(db: sqlite3.Connection, owner: str, row: int, cursor: Cursor) -> None:
    db.execute(
        "INSERT INTO cursors (owner, source, session, record) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (owner, source) DO UPDATE SET session = excluded.session, record = excluded.record",
        (owner, cursor.source, row, to_json(cursor)),
    )


def _store_counters(db: sqlite3.Connection, row: int, session: Session, counters: Counters) -> Session:
    updated = now()
    db.execute(
        "UPDATE sessions SET counters = ?, updated_at = ? WHERE session = ?",
        (to_json(counters), updated.isoformat(), row),
    )
    return session.model_copy(update={"counters": counters, "updated_at": updated})


def note_piece(
    db: sqlite3.Connection, session: int, batch_id: str, batch: Sequence[Prepared], place: int, seq: int, count: int
) -> None:
    """Remember that `count` messages of a batch, from the one at `place` on, stand at `seq` and after it."""
    db.execute(
        "INSERT INTO batches (session, batch_id, place, first_seq, count, fingerprint) VALUES (?, ?, ?, ?, ?, ?)",
        (session, batch_id, place, seq, count, batch_fingerprint(batch)),
    )


def has_key(db: sqlite3.Connection, session: int, key: str) -> bool:
    """Whether a message with this key is stored."""
    return db.execute("SELECT 1 FROM messages WHERE session = ? AND key = ?", (session, key)).fetchone() is not None


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
