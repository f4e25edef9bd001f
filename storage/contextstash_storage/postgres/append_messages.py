"""Appends messages to a session in PostgreSQL. Its row is locked: writers of other sessions do not wait, so a batch of
any length is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from contextstash_storage.codec.record_json import checksum, to_json
from contextstash_storage.codec.segments import Stored
from contextstash_storage.postgres import search_index
from contextstash_storage.postgres.dialect import OF_SESSION
from contextstash_storage.postgres.sessions import Indexed, store_counters
from contextstash_storage.records import Appended, Counters, Message, Output, Session
from contextstash_storage.search.documents import storable
from contextstash_storage.sql.append import Progress, append_piece
from contextstash_storage.sql.bodies import store_bodies
from contextstash_storage.sql.outputs import last_taken, numbered
from contextstash_storage.sql.prepared_messages import Batch, Prepared, pieces_of, stored_message
from contextstash_storage.sql.rows import now, read_session
from contextstash_storage.sql.steps import Aside, Key, Name, Repeated, Statement, Steps, marks


def append(batch: Batch) -> Steps[Appended]:
    """Append messages; see SessionStore.append_messages."""
    key, session = yield from read_session(batch.owner, batch.session_id, locked=True)
    progress = yield from append_piece(MessageWriter(key), session, batch, Progress())
    assert progress.appended is not None
    return progress.appended


_RESERVE = f"""
SELECT ARRAY(SELECT handle FROM outputs WHERE {OF_SESSION} AND handle = ANY($3::text[])),
    ARRAY(SELECT key FROM messages WHERE {OF_SESSION} AND key = ANY($4::bytea[])),
    ARRAY(SELECT nextval('message_numbers') FROM generate_series(1, $5))
"""


@dataclass
class MessageWriter:
    """Collects the rows of messages, and stores them together: a statement takes a way to the server and back."""

    key: Key
    _keys: set[str] = field(default_factory=set)
    _rows: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    _handles: dict[str, int] = field(default_factory=dict)
    _first: int | None = None
    _bodies: list[Stored] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _calls: search_index.CallsBefore = field(default_factory=search_index.CallsBefore)
    _has_read_calls: bool = False
    _last_at: str | None = None
    _entries: int = 0
    _words: int = 0

    def reserve(self, messages: Sequence[Prepared]) -> Steps[None]:
        """Look up at once the numbers of these messages, which handles are free, and which of their keys are stored."""
        names = {output.handle for each in messages for output in each.message.outputs} - self._handles.keys()
        keys = [each.message.key.encode() for each in messages if each.message.key is not None]
        [row] = yield Statement(_RESERVE, (*self.key, list(names), keys, len(messages)))
        handles, stored, numbers = row
        self._handles.update(dict.fromkeys(names.difference(handles), 0))
        self._keys = {key.decode() for key in stored}
        self._numbers = numbers[::-1]

    def has_key(self, name: str) -> Steps[bool]:
        """Whether a message with this key is stored, or waits to be."""
        yield from ()
        return name in self._keys

    def add(self, seq: int, prepared: Prepared) -> Steps[Message]:
        """Store a message at its position at the next flush, with its outputs and the rows by which it is found."""
        message = prepared.message
        created = message.created_at or now()
        self._last_at = created.isoformat()
        number = self._numbers.pop()
        types, tokens = search_index.token_sums(message.blocks)
        has_calls = bool(message.search_text) and any(block.type == "tool_call" for block in message.blocks)
        self._row(
            "messages (owner, session_id, seq, message, fingerprint, key, derived, created_at, checksum, role,"
            " kind, agent_visible, has_calls, token_types, type_tokens)",
            (
                seq,
                number,
                prepared.fingerprint,
                None if message.key is None else Name(message.key),
                prepared.derived,
                self._last_at,
                checksum(seq, prepared.fingerprint, message.key, self._last_at, prepared.derived),
                message.role,
                message.kind,
                message.agent_visible,
                has_calls,
                types,
                tokens,
            ),
        )
        self._first = seq if self._first is None else self._first
        self._bodies.append(prepared.stored)
        for output in message.outputs:
            yield from self._add_output(seq, output)
        yield from self._add_entries(seq, number, prepared)
        if message.key is not None:
            self._keys.add(message.key)
        return stored_message(message, self.key[1], seq, created)

    def _row(self, table: str, values: tuple[object, ...]) -> None:
        self._rows.setdefault(table, []).append((*self.key, *values))

    def _add_output(self, seq: int, output: Output) -> Steps[None]:
        """Store an output under its handle, or under the next free one of that name."""
        name = output.handle
        taken = self._handles.get(name)
        self._handles[name] = 1 + ((yield from last_taken(self.key, name)) if taken is None else taken)
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

    def _add_entries(self, seq: int, number: int, prepared: Prepared) -> Steps[None]:
        if prepared.message.outputs and not self._has_read_calls:
            self._has_read_calls = True
            self._calls.extend((yield from search_index.read_calls(self.key, seq)))
        blocks = prepared.message.blocks
        found = prepared.pieces
        if found is None:
            found = tuple((yield Aside(partial(pieces_of, prepared.message))))
        entries = search_index.entry_rows(self.key, seq, number, blocks, found, self._calls)
        self._rows.setdefault(search_index.INSERT, []).extend(entries)
        if prepared.stored.text is not None and any(block.type == "tool_call" for block in blocks):
            self._calls.add(seq, number, prepared.derived)

    def flush(self) -> Steps[None]:
        """Store the rows."""
        entries = self._rows.get(search_index.INSERT, [])
        for table, rows in self._rows.items():
            if table == search_index.INSERT:
                yield Repeated(table, rows)
                continue
            yield Repeated(f"INSERT INTO {table} VALUES ({marks(rows[0])})", rows)
        self._rows.clear()
        if self._first is not None:
            yield from store_bodies(self.key, self._first, self._bodies)
        self._first, self._bodies = None, []
        self._entries += len(entries)
        self._words += search_index.words_of(entries)

    def store_counters(self, session: Session, counters: Counters) -> Steps[Session]:
        """Store the session's counters, and what was added to its index."""
        return (yield from store_counters(self.key, session, counters, self.taken()))

    def taken(self) -> Indexed:
        """What was added to the index since this was asked last."""
        added = Indexed(self._entries, self._words, self._last_at)
        self._entries, self._words = 0, 0
        return added
