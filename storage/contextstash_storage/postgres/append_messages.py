"""The transaction that appends messages to a session in PostgreSQL. Its row is locked: writers of other sessions do not
wait, so a batch of any length is one transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from contextstash_storage.codec.record_json import group_of, to_json
from contextstash_storage.postgres import logs, search_index
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION, run
from contextstash_storage.postgres.sessions import Indexed, lock_session, store_counters
from contextstash_storage.postgres.unindexed_sessions import index_again
from contextstash_storage.postgres.view_edits import insert_edits
from contextstash_storage.preparation.messages import (
    Batch,
    Prepared,
    batch_fingerprint,
    pieces_of,
    reported_call,
    stored_message,
    with_counters,
    with_usage,
)
from contextstash_storage.records import Appended, Counters, Cursor, Message, NewMessage, Output, Session
from contextstash_storage.search.documents import storable
from contextstash_storage.sql import batches
from contextstash_storage.sql.outputs import last_taken, numbered
from contextstash_storage.sql.requests import book_usage
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key


async def append(db: Connection, batch: Batch) -> Appended:
    """Append messages, within a transaction; see SessionStore.append_messages."""
    key = (batch.owner, batch.session_id)
    session = await lock_session(db, key)
    counters = session.counters
    repeats = await run(db, batches.looks_repeated(key, counters.messages, batch))
    if batch.before is not None:
        counters = await insert_edits(db, key, counters, batch.before(counters), own=False)
    known = await run(db, batches.known(key, counters.messages, batch))
    writer = MessageWriter(db, key)
    counters = await _store_messages(writer, with_counters(session, counters), batch, known.count)
    stored = tuple(writer.stored)
    if batch.batch_id is not None and stored:
        await _note_batch(db, key, batch.batch_id, batch.messages, stored)
    if batch.edits is not None and stored:
        counters = await insert_edits(db, key, counters, batch.edits(counters, stored), own=False)
    if batch.cursor is not None:
        await store_cursor(db, key, batch.cursor)
    if stored or counters != session.counters:
        session = await run(db, store_counters(key, session, counters, writer.taken()))
    return batch.appended(session, stored, known.first_seq, repeats=repeats)


async def _note_batch(
    db: Connection, key: Key, batch_id: str, batch: Sequence[Prepared], stored: Sequence[Message]
) -> None:
    await db.execute(
        "INSERT INTO batches (owner, session_id, batch_id, first_seq, count, fingerprint)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        *key,
        batch_id,
        stored[0].seq,
        len(stored),
        batch_fingerprint(batch),
    )


async def _store_messages(writer: MessageWriter, session: Session, batch: Batch, done: int) -> Counters:
    """Store the messages from number `done` on that are not stored yet; returns the counters after them."""
    counters = session.counters
    keys = await writer.reserve(batch.messages[done:])
    for prepared in batch.messages[done:]:
        message = prepared.message
        if message.key in keys:
            continue
        if message.key is not None:
            keys.add(message.key)
        seq = counters.messages
        await writer.add(seq, prepared)
        if message.usage is not None:
            await _store_call(writer, message, with_counters(session, counters), seq)
        counters = batch.count(counters, message, seq)
    await writer.flush()
    return counters


_RESERVE = f"""
SELECT ARRAY(SELECT handle FROM outputs WHERE {OF_SESSION} AND handle = ANY($3::text[])),
    ARRAY(SELECT key FROM messages WHERE {OF_SESSION} AND key = ANY($4::bytea[])),
    ARRAY(SELECT nextval('message_numbers') FROM generate_series(1, $5)),
    (SELECT unindexed FROM sessions WHERE {OF_SESSION})
"""


@dataclass
class MessageWriter:
    """Collects the rows of messages, and stores them together: a statement takes a way to the server and back. If their
    session was taken out of the search index, it is brought back into it first."""

    db: Connection
    key: Key
    stored: list[Message] = field(default_factory=list)
    _rows: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    _handles: dict[str, int] = field(default_factory=dict)
    _blobs: set[bytes] = field(default_factory=set)
    _numbers: list[int] = field(default_factory=list)
    _calls: search_index.CallsBefore = field(default_factory=search_index.CallsBefore)
    _has_read_calls: bool = False
    _last_at: str | None = None
    _entries: int = 0
    _words: int = 0

    async def reserve(self, messages: Sequence[Prepared]) -> set[str | None]:
        """Look up at once what storing these messages needs: their numbers, which handles are free, and which of their
        keys are stored; returns those keys."""
        names = {output.handle for each in messages for output in each.message.outputs} - self._handles.keys()
        keys = [each.message.key.encode() for each in messages if each.message.key is not None]
        row = await self.db.fetchrow(_RESERVE, *self.key, list(names), keys, len(messages))
        handles, stored, numbers, unindexed = row
        if unindexed:
            await index_again(self.db, self.key)
        self._handles.update(dict.fromkeys(names.difference(handles), 0))
        self._numbers = numbers[::-1]
        return {key.decode() for key in stored}

    async def add(self, seq: int, prepared: Prepared) -> None:
        """Store a message at its position at the next flush, with its outputs and what of it can be found."""
        message = prepared.message
        created = message.created_at or now()
        self._last_at = created.isoformat()
        number = self._numbers.pop()
        types, tokens = search_index.token_sums(message.blocks)
        has_calls = any(block.type == "tool_call" for block in message.blocks)
        self._row(
            "messages (owner, session_id, seq, message, fingerprint, key, body, derived, created_at, search_text, role,"
            " kind, agent_visible, has_calls, token_types, type_tokens)",
            (
                seq,
                number,
                prepared.fingerprint,
                None if message.key is None else message.key.encode(),
                prepared.body(),
                prepared.derived,
                self._last_at,
                prepared.search_text,
                message.role,
                message.kind,
                message.agent_visible,
                has_calls,
                types,
                tokens,
            ),
        )
        self._add_blobs(seq, prepared)
        for output in message.outputs:
            await self._add_output(seq, output)
        await self._add_entries(seq, number, prepared)
        self.stored.append(stored_message(message, self.key[1], seq, created))

    def _row(self, table: str, values: tuple[object, ...]) -> None:
        self._rows.setdefault(table, []).append((*self.key, *values))

    def _add_blobs(self, seq: int, prepared: Prepared) -> None:
        for place, (blob, content) in enumerate(prepared.blobs):
            if blob.sha256 not in self._blobs:
                self._blobs.add(blob.sha256)
                self._row("blobs (owner, session_id, sha256, content)", (blob.sha256, content))
            self._row(
                "message_blobs (owner, session_id, seq, number, path, sha256)",
                (seq, place, json.dumps(blob.path), blob.sha256),
            )

    async def _add_output(self, seq: int, output: Output) -> None:
        """Store an output under its handle, or under the next free one of that name."""
        name = output.handle
        taken = self._handles.get(name)
        self._handles[name] = 1 + (await run(self.db, last_taken(self.key, name)) if taken is None else taken)
        handle = numbered(name, self._handles[name])
        placed = output.model_copy(update={"handle": handle, "seq": seq})
        self._row(
            "outputs (owner, session_id, seq, block, handle, tool, argument, tokens, characters, record)",
            (
                seq,
                output.block,
                handle,
                storable(output.tool),
                storable(output.argument),
                output.tokens,
                output.characters,
                to_json(placed),
            ),
        )

    async def _add_entries(self, seq: int, number: int, prepared: Prepared) -> None:
        if prepared.message.outputs and not self._has_read_calls:
            self._has_read_calls = True
            self._calls.extend(await search_index.read_calls(self.db, self.key, seq))
        blocks = prepared.message.blocks
        found = prepared.pieces if prepared.pieces is not None else await asyncio.to_thread(pieces_of, prepared.message)
        entries = search_index.entry_rows(self.key, seq, number, blocks, found, self._calls)
        self._rows.setdefault(search_index.INSERT, []).extend(entries)
        if prepared.search_text is not None and any(block.type == "tool_call" for block in blocks):
            self._calls.add(seq, number, prepared.derived)

    async def flush(self) -> None:
        """Store the rows."""
        entries = self._rows.get(search_index.INSERT, [])
        for table, rows in self._rows.items():
            if table == search_index.INSERT:
                await self.db.executemany(table, rows)
                continue
            marks = ", ".join(f"${number}" for number in range(1, len(rows[0]) + 1))
            again = " ON CONFLICT DO NOTHING" if table.startswith("blobs") else ""
            await self.db.executemany(f"INSERT INTO {table} VALUES ({marks}){again}", rows)
        self._rows.clear()
        self._entries += len(entries)
        self._words += search_index.words_of(entries)

    def taken(self) -> Indexed:
        """What was added to the index since this was asked last."""
        added = Indexed(self._entries, self._words, self._last_at)
        self._entries, self._words = 0, 0
        return added


async def _store_call(writer: MessageWriter, message: NewMessage, session: Session, seq: int) -> None:
    """Store the model call that a message reports on. A reply recorded in several messages is one call,
    with the last of its reports."""
    db, key, usage = writer.db, writer.key, message.usage
    assert usage is not None
    known = await logs.find_reply(db, key, message.group)
    if known is not None and message.group is not None:
        await logs.update_call(db, key, with_usage(known, usage), message.group)
        return
    sent = message.request or session.counters.request
    if sent is not None:
        await run(db, book_usage(key, sent.number, usage))
    start = await _reply_start(writer, message.group, seq) if sent is None else 0
    await run(db, logs.insert_call(key, reported_call(message, session, start, sent), message.group))


async def _reply_start(writer: MessageWriter, group: str | None, seq: int) -> int:
    """The first position of the reply whose part at `seq` is the first that reports usage."""
    if group is None:
        return seq
    await writer.flush()
    while seq:
        sql = f"SELECT derived FROM messages WHERE {OF_SESSION} AND seq = $3"
        derived = await writer.db.fetchval(sql, *writer.key, seq - 1)
        if group_of(derived) != group:
            break
        seq -= 1
    return seq


async def store_cursor(db: Connection, key: Key, cursor: Cursor) -> None:
    """Store how far a source has been read: in this session, no longer in another."""
    await db.execute("DELETE FROM cursors WHERE owner = $1 AND source = $2", key[0], cursor.source)
    await db.execute(
        "INSERT INTO cursors (owner, session_id, source, record) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (owner, session_id, source) DO UPDATE SET record = excluded.record",
        *key,
        cursor.source,
        to_json(cursor),
    )
