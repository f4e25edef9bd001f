"""Appends messages: those of a batch that are stored already are skipped, the others are stored in pieces, each a
transaction of its own, and the session's counters change with them. Copies whole sessions, in pieces too."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from contextstash_storage import log, messages, notes, records, sessions
from contextstash_storage.documents import Document, documents, index_messages, indexed_pieces
from contextstash_storage.errors import BadInputError, EditConflictError, SessionNotFoundError, StoreBusyError
from contextstash_storage.sessions import HIDDEN_OWNER, PAUSE_SECONDS
from contextstash_storage.transaction import Database, Tx, listed, microseconds, now, time_of

MESSAGE_SIZE = 200
"""The size of a message without text: 600 of them fill a transaction, which take 60 ms."""

STORED_BYTES = 64
"""Bytes that are stored in the time in which one character is indexed: 8 MB fill a transaction."""

PIECE_SIZE = 120_000
"""How much a transaction stores of a batch (see `Prepared.size`) before it ends at the next place where a batch may be
cut; at twice as much it ends anywhere, as a view is valid with an unanswered call at its end too. Others wait for the
12 to 60 ms that storing this much takes on two idle cores. The clock decides nothing: a busy machine must not cut
small batches."""

MAX_PARTS = 64
"""Messages of one reply before the one that reports its usage; Claude Code records each block as one."""

ASIDE_SIZE = 100_000
"""From this size on a batch is prepared in a thread, so that the event loop is free: it takes about 5 ms. A smaller one
is handed to the database at once, and is stored even if the store is closed next."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message made ready for its row: what is stored of its `content`, and the `facts` derived from it. `pieces` are
    the rows of the search index for it; `may_end` says whether a batch may be cut after it: no tool call is separated
    from its result there, and no reply from the rest of it."""

    message: records.NewMessage
    content: bytes
    facts: str
    fingerprint: bytes
    pieces: Sequence[Document]
    may_end: bool = True

    @property
    def size(self) -> int:
        """How long storing it takes, in characters of indexed text that take as long: about 0.1 µs each."""
        return MESSAGE_SIZE + sum(len(each.text) for each in self.pieces) + len(self.content) // STORED_BYTES


def prepare(new: Sequence[records.NewMessage]) -> list[Prepared]:
    """Do the work that needs no database: about 50 µs for a message, and 20 ms for each million characters."""
    prepared = []
    for message, may_end in zip(new, _ends(new), strict=True):
        body = records.to_bytes(message.body)
        content, facts = records.stored_content(body, message.texts), records.to_json(message, records.FACTS)
        pieces = indexed_pieces(documents(message.texts, message.blocks))
        prepared.append(Prepared(message, content, facts, messages.fingerprint(message.body, body), pieces, may_end))
    return prepared


def _ends(messages: Sequence[records.NewMessage]) -> list[bool]:
    """For each message, whether the batch may be cut after it."""
    ends = []
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        for block in message.blocks:
            if block.call_id is not None and block.type == "tool_call":
                waiting.add(block.call_id)
            elif block.call_id is not None and block.type == "tool_result":
                waiting.discard(block.call_id)
        following = messages[place + 1].group if place + 1 < len(messages) else None
        ends.append(not waiting and (message.group is None or message.group != following))
    return ends


@dataclass(frozen=True, slots=True)
class Batch:
    """One call's messages, and how they are appended; see `SessionStore.append_messages`."""

    owner: str
    session_id: str
    messages: Sequence[Prepared]
    count: records.Count
    known_by: records.KnownBy = None
    cursor: records.Cursor | None = None
    edits: records.EditsAfter | None = None

    @property
    def has_keys(self) -> bool:
        """Whether its messages are known by their keys."""
        return self.known_by is None and any(each.message.key is not None for each in self.messages)

    @property
    def fingerprint(self) -> str:
        """What makes two batches the same: the same messages in the same order."""
        return hashlib.sha256(b"".join(each.fingerprint for each in self.messages)).hexdigest().upper()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch has got. `done` of its messages are stored, by this call or before; `left` are the session's
    counters as the last piece left them, `into` the row of the session that the first piece went into, and when that
    was made: a row number can come again. `appended` is what the append did, once it is complete."""

    done: int = 0
    stored: tuple[records.Message, ...] = ()
    first_seq: int | None = None
    left: records.Counters | None = None
    into: tuple[int, datetime] | None = None
    appended: records.Appended | None = None


def append_piece(batch: Batch, progress: Progress, tx: Tx) -> Progress:
    """Store the next piece of a batch, of about PIECE_SIZE; returns how far it has got."""
    row, session = sessions.read_session(tx, batch.owner, batch.session_id, locked=True)
    into = (row, session.created_at)
    if progress.into not in (None, into):
        raise SessionNotFoundError(f"The session '{batch.session_id}' was deleted, and made again, meanwhile.")
    counters = _edited_before(tx, row, session.counters, batch, progress.left)
    known, first_seq = _known(tx, row, counters.messages, batch, progress.done)
    done, chosen = _chosen(tx, row, batch, known)
    stored = store_messages(tx, row, session, counters.messages, chosen)
    for message, prepared in zip(stored, chosen, strict=True):
        if message.usage is not None:
            _store_call(tx, row, session, counters.request, prepared.message, message.seq)
        counters = batch.count(counters, prepared.message, message.seq)
    if isinstance(batch.known_by, str) and stored:
        noted = records.StoredBatch(first_seq=first_seq, count=done, fingerprint=batch.fingerprint)
        notes.put_note(tx, row, noted, batch.known_by)
    is_complete, all_stored = done == len(batch.messages), (*progress.stored, *stored)
    if is_complete and batch.edits is not None and all_stored:
        counters = _edited(tx, row, *batch.edits(counters, all_stored))
    if is_complete and batch.cursor is not None:
        notes.put_cursor(tx, batch.owner, row, batch.cursor)
    if stored or counters != session.counters:
        session = sessions.store(tx, row, session, counters=counters)
    first_seq = first_seq if progress.first_seq is None else progress.first_seq
    appended = records.Appended(
        messages=all_stored,
        duplicates=len(batch.messages) - len(all_stored),
        session=session,
        first_seq=None if batch.has_keys or not batch.messages else first_seq,
    )
    return Progress(done, all_stored, first_seq, counters, into, appended if is_complete else None)


def _edited_before(
    tx: Tx, row: int, counters: records.Counters, batch: Batch, left: records.Counters | None
) -> records.Counters:
    """The counters after the edits that go before the batch. Raises EditConflictError if others changed them between
    two pieces."""
    if callable(batch.known_by) and left is None:
        return _edited(tx, row, *batch.known_by(counters))
    if callable(batch.known_by) and left and (counters.messages, counters.edits) != (left.messages, left.edits):
        raise EditConflictError("The session was changed while messages were appended to it.")
    return counters


def _edited(tx: Tx, row: int, edits: Sequence[records.Edit], counters: records.Counters) -> records.Counters:
    return log.insert_edits(tx, row, log.prepared_edits(edits, counters.edits), counters)


def _known(tx: Tx, row: int, length: int, batch: Batch, done: int) -> tuple[int, int]:
    """How many messages of a batch are stored in a session of this length, and where the first of them is; `done` were
    compared before. Raises BadInputError if other messages are stored at its position or under its id."""
    first_seq = batch.known_by
    if isinstance(first_seq, str):
        known = notes.get_note(tx, row, records.StoredBatch, first_seq)
        if known is not None and known.fingerprint != batch.fingerprint:
            raise BadInputError(
                f"The batch_id '{first_seq}' was used in this session for other messages, from position"
                f" {known.first_seq} on. Send exactly the same batch again, or a new batch_id with new messages."
            )
        return (0, length) if known is None else (known.count, known.first_seq)
    if not isinstance(first_seq, int):
        return done, length
    if not 0 <= first_seq <= length:
        raise BadInputError(
            f"first_seq is {first_seq}, but the next position of this session is {length}: record the messages from"
            f" position {length} on."
        )
    start, left = first_seq + done, batch.messages[done:]
    stored = messages.fingerprints_at(tx, row, range(start, min(start + len(left), length)))
    for seq, (there, prepared) in enumerate(zip(stored, left, strict=False), start=start):
        if there != prepared.fingerprint:
            raise BadInputError(
                f"At position {seq} another message is stored than message {seq - first_seq} of this batch; the next"
                f" position is {length}. If the conversation was changed, pass the whole list with whole=true."
            )
    return done + len(stored), first_seq


def _chosen(tx: Tx, row: int, batch: Batch, done: int) -> tuple[int, list[Prepared]]:
    """The messages of the next piece, those from number `done` on that are not stored; and the number behind them."""
    left = batch.messages[done:]
    keys = [each.message.key for each in left] if batch.has_keys else []
    hashes = {key: messages.key_hash(key) for key in keys if key is not None}
    text = f"SELECT hash FROM keys WHERE session = ? AND hash IN {tx.numbers}"
    found = {each for (each,) in tx.rows(text, (row, listed(hashes.values())))} if hashes else set()
    stored = {key for key in hashes if hashes[key] in found}
    chosen: list[Prepared] = []
    size = 0
    for each in left:
        size += each.size
        if chosen and size > PIECE_SIZE * (1 if batch.messages[done - 1].may_end else 2):
            break
        done += 1
        key = each.message.key
        if key is None or key not in stored:
            chosen.append(each)
        if key in hashes:
            stored.add(key)
    return done, chosen


def store_messages(
    tx: Tx, row: int, session: records.Session, first_seq: int, chosen: Sequence[Prepared]
) -> list[records.Message]:
    """Store messages from a position on, with their bodies, outputs and the rows by which they are found; returns them
    as they are read, without their bodies. `session` says whose they are."""
    if not chosen:
        return []
    moment = now()
    stored, lines, outputs = [], [], []
    for seq, each in enumerate(chosen, start=first_seq):
        new = each.message
        created = time_of(microseconds(new.created_at or moment))
        facts = {name: getattr(new, name) for name in records.FACTS}
        message = records.Message(session_id=session.session_id, seq=seq, key=new.key, created_at=created, **facts)
        stored.append(message)
        lines.append((messages.line_of(message, each.facts, each.fingerprint), each.content))
        outputs += [output.model_copy(update={"seq": seq}) for output in new.outputs]
    messages.store_lines(tx, row, first_seq, lines)
    keys = [(row, messages.key_hash(message.key), message.seq) for message in stored if message.key is not None]
    tx.many("INSERT INTO keys (session, hash, seq) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", keys)
    messages.store_outputs(tx, row, outputs)
    index_messages(tx, row, session, [(message, each.pieces) for message, each in zip(stored, chosen, strict=True)])
    return stored


def _store_call(
    tx: Tx, row: int, session: records.Session, sent: records.Request | None, message: records.NewMessage, seq: int
) -> None:
    """Store the model call that a message at this position reports on, and book it to the request that was sent. A
    reply recorded in several messages is one call, with the last of its reports."""
    assert message.usage is not None
    if message.group is not None and (again := log.read_log(tx, row, records.Call, keys=[message.group])):
        log.put(tx, row, [call.model_copy(update=message.usage.model_dump()) for call in again], message.group)
        for request in log.read_log(tx, row, records.Request, newest=True, limit=1):
            if request.messages - 1 == again[-1].request_seq:
                log.book_usage(tx, row, request.number, message.usage)
        return
    start = seq  # of the reply
    if sent is not None:
        log.book_usage(tx, row, sent.number, message.usage)
    elif message.group is not None:
        for before in messages.messages_before(tx, row, session.session_id, seq, MAX_PARTS):
            if before.group != message.group:
                break
            start = before.seq
    call = records.Call(
        purpose="agent",
        model=message.model or session.model,
        request_seq=(start if sent is None else sent.messages) - 1,
        created_at=message.created_at,
        **message.usage.model_dump(),
    )
    log.append_log(tx, row, call, message.group)


# Whole sessions, copied: one belongs to HIDDEN_OWNER until it is complete, under a name that only its process knows


ITEMS_AT_ONCE = 200
"""Items of a piece at most: it ends earlier if its messages fill a transaction."""


async def copy_session(
    database: Database, session: records.Session, items: Iterator[records.Copied]
) -> records.Session | None:
    """Store a session as it was elsewhere, in pieces, the last of which makes it visible; None, and nothing is done, if
    its owner has one of that id. What is stored of one that fails is left to the deletion."""
    holder = uuid.uuid4().hex

    def begin(tx: Tx) -> int | None:
        if _is_there(tx, session):
            return None
        sessions.insert_session(tx, session.model_copy(update={"owner": HIDDEN_OWNER, "session_id": holder}))
        row = sessions.row_of(tx, HIDDEN_OWNER, holder)
        _stay(tx, row, holder)
        return row

    row = await database.write(begin)
    if row is None:
        return None
    seq, store_piece = 0, partial(_store_piece, row=row, session=session, holder=holder)
    try:
        # Read in another thread, while no transaction is open.
        while read := await asyncio.to_thread(_read_piece, items):
            seq = await database.write(partial(store_piece, seq=seq, read=read))
            await asyncio.sleep(PAUSE_SECONDS)
        return await database.write(partial(_publish, row=row, session=session, holder=holder))
    except BaseException:
        await database.write(lambda tx: sessions.empty(tx, row, holder))  # if it is still there, and not visible
        raise


def _store_piece(
    tx: Tx, row: int, session: records.Session, holder: str, seq: int, read: Sequence[records.Copied | Prepared]
) -> int:
    """Store some items, of which messages come first; returns the position of the next message."""
    _stay(tx, row, holder)
    prepared = [each for each in read if isinstance(each, Prepared)]
    store_messages(tx, row, session, seq, prepared)
    for item in read:
        if isinstance(item, records.Call):
            is_reply = item.purpose == "agent"
            before = messages.messages_before(tx, row, session.session_id, item.request_seq + 2, 1) if is_reply else ()
            log.append_log(tx, row, item, next((message.group for message in before), None))
        elif isinstance(item, records.Event):
            log.append_log(tx, row, item)  # of exports of commit 81800828 some are left out
        elif not isinstance(item, Prepared):
            log.put(tx, row, [item])
    return seq + len(prepared)


def _publish(tx: Tx, row: int, session: records.Session, holder: str) -> records.Session | None:
    """Make a session, which is stored to its end, visible; None if one of its id has come meanwhile."""
    _stay(tx, row, holder)
    if _is_there(tx, session):
        sessions.empty(tx, row, holder)
        return None
    sessions.store(tx, row, session)
    text = "UPDATE sessions SET owner = ?, session_id = ?, updated_at = ? WHERE session = ?"
    tx.execute(text, (session.owner, session.session_id, microseconds(session.updated_at), row))
    return sessions.read_session(tx, session.owner, session.session_id)[1]


def _stay(tx: Tx, row: int, holder: str) -> None:
    """Say that the process still copies. Raises StoreBusyError if another one has begun to remove the session."""
    text = "UPDATE sessions SET updated_at = ? WHERE session = ? AND session_id = ? AND updated_at > 0"
    if not tx.execute(text, (int(tx.clock()), row, holder)):
        raise StoreBusyError(
            "The import took so long that another process removed it as abandoned; nothing was stored. Import it again."
        )


def _read_piece(items: Iterator[records.Copied]) -> list[records.Copied | Prepared]:
    """The next items, ready to be stored in one transaction, its messages first; none at the end."""
    read: list[records.Copied | Prepared] = []
    size = 0
    for item in items:
        if isinstance(item, records.NewMessage):
            [prepared] = prepare([item])
            read.append(prepared)
            size += prepared.size
        else:
            read.append(item)
        if len(read) >= ITEMS_AT_ONCE or size >= PIECE_SIZE:
            break
    return read


def _is_there(tx: Tx, session: records.Session) -> bool:
    text = "SELECT 1 FROM sessions WHERE owner = ? AND session_id = ?"
    return bool(tx.rows(text, (session.owner, session.session_id)))
