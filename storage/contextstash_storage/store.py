"""The session store: what one owner has stored, as whole transactions on either database."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self

from contextstash_storage import append, log, messages, notes, records, sessions
from contextstash_storage.errors import BadInputError, EditConflictError, SessionNotFoundError, StoreError
from contextstash_storage.transaction import Database, Result, Tx

BETWEEN_PIECES_SECONDS = 0.005
"""Pause between two pieces of a batch. SQLite has no queue for its lock: a waiting process would find the database
locked each time if the next piece started at once. Longer than sqlite.LOOK_SECONDS, so that each that waits looks once
in it. Of 20 ms and 5 ms: two processes that record transcripts take a fifth less time with 5."""


P = ParamSpec("P")


def of_owner(
    work: Callable[Concatenate[Tx, str, P], Result], *, writes: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]:
    """The method that is this function, which describes its arguments; it is given the owner."""

    @wraps(work)
    async def method(store: SessionStore, /, *arguments: P.args, **named: P.kwargs) -> Result:
        run = store.database.write if writes else store.database.read
        return await run(lambda tx: work(tx, store.owner, *arguments, **named))

    return method


def of_session(
    work: Callable[Concatenate[Tx, int, P], Result], *, writes: bool = False
) -> Callable[Concatenate[Any, str, P], Coroutine[Any, Any, Result]]:
    """The same for a function on a session, whose id the method is given first; the function is given its row."""

    @wraps(work)
    async def method(store: SessionStore, session_id: str, /, *arguments: P.args, **named: P.kwargs) -> Result:
        def run(tx: Tx) -> Result:
            return work(tx, sessions.row_of(tx, store.owner, session_id, locked=writes), *arguments, **named)

        return await (store.database.write(run) if writes else store.database.read(run))

    return method


def changing(
    work: Callable[Concatenate[Tx, int, records.Session, P], Result],
) -> Callable[Concatenate[Any, str, P], Coroutine[Any, Any, Result]]:
    """The same for a function that changes a session and is given it too."""

    @wraps(work)
    async def method(store: SessionStore, session_id: str, /, *arguments: P.args, **named: P.kwargs) -> Result:
        return await store.change(session_id, lambda tx, *found: work(tx, *found, *arguments, **named))

    return method


def _search(tx: Tx, owner: str, *arguments: Any, **named: Any) -> list[records.SearchHit]:
    """See `contextstash_storage.search.search`: a hook that stores an output does not load it."""
    from contextstash_storage.search import search

    try:
        return search(tx, owner, *arguments, **named)
    except (TypeError, ValueError) as error:
        raise records.damaged("the search index") from error


class SessionStore:
    """What one owner has stored. Sessions of other owners do not exist for it. A method that is one function on a
    transaction is listed here with that function, which describes its arguments.

    Every method but `append_messages` happens whole or not at all for whoever reads, also if it is cancelled or its
    process is killed; deletions and copies go on unseen. Methods that take a `session_id` raise SessionNotFoundError if
    the owner has no such session."""

    def __init__(self, database: Database, owner: str = records.LOCAL_OWNER) -> None:
        self.database = database
        self.owner = owner
        self.deletions = sessions.Deletions(database)

    def for_owner(self, owner: str) -> Self:
        """The same open database, bound to another owner. Closing either closes both."""
        other = copy.copy(self)
        other.owner = owner
        return other

    async def close(self) -> None:
        """Close the database, after running work; closing again does nothing. A running deletion stops after its piece;
        the next opening of the database continues it."""
        await self.deletions.close()
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def change(self, session_id: str, change: Callable[[Tx, int, records.Session], Result]) -> Result:
        """What a function that changes a session returns; no other transaction changes it meanwhile. Raises
        SessionNotFoundError."""
        read = sessions.read_session
        return await self.database.write(lambda tx: change(tx, *read(tx, self.owner, session_id, locked=True)))

    async def get_session(self, session_id: str) -> records.Session:
        return (await self.database.read(lambda tx: sessions.read_session(tx, self.owner, session_id)))[1]

    create_session = of_owner(sessions.create_session, writes=True)
    owners = of_owner(sessions.owners)
    list_sessions = of_owner(sessions.list_sessions)
    find_session_ids = of_owner(sessions.find_session_ids)
    update_session = changing(sessions.update_session)

    async def delete_session(self, session_id: str, *, along: Sequence[str] = ()) -> bool:
        """Delete a session with everything that belongs to it, and the existing ones of the sessions `along`. One
        transaction makes them invisible; then their rows, their words in the search index and their pages in the
        write-ahead log are removed in pieces. False if some of that is still to be done, because another process reads
        an older state, the database is locked or the disk is full. It is then tried again."""
        await self.database.write(lambda tx: sessions.hide(tx, self.owner, [session_id, *along]))
        return await self.deletions.finish()

    async def copy_session(self, session: records.Session, items: Iterable[records.Copied]) -> records.Session | None:
        """Store a whole session as it was elsewhere: its messages in order, then all else, unchanged; None, and
        nothing is done, if its owner has one of that id. It is stored in pieces, the last of which makes it visible.
        `items` is read in another thread while no transaction is open."""
        stored = None
        try:
            copied = session.model_copy(update={"owner": self.owner})
            stored = await append.copy_session(self.database, copied, iter(items))
        finally:
            if stored is None:
                self.deletions.finish_later()
        return stored

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[records.NewMessage],
        *,
        count: records.Count,
        known_by: records.KnownBy = None,
        cursor: records.Cursor | None = None,
        edits: records.EditsAfter | None = None,
    ) -> records.Appended:
        """Append messages. What is stored already is `known_by` one of three, or by the messages' keys; messages
        without a key are then new.

        A long batch is stored in pieces, each a transaction of its own, so that other processes come in between.
        Each leaves a valid history, and the same call again goes on where the last one ended. Edits that go before
        are in the first piece, after which EditConflictError is raised if another writer changes the session between
        two pieces; `edits` and `cursor` go in with the last one. When this returns, everything is durable. If it fails
        between two pieces, the error says how many messages were stored.

        Raises BadInputError if another message stands at a position, or an id was used for other messages."""
        size = sum(append.MESSAGE_SIZE + sum(block.size for block in each.blocks) for each in messages)
        in_thread, prepare = size > append.ASIDE_SIZE, append.prepare
        prepared = await asyncio.to_thread(prepare, messages) if in_thread else prepare(messages)
        batch = append.Batch(self.owner, session_id, prepared, count, known_by, cursor, edits)
        piece = partial(append.append_piece, batch)
        # Committed together with others that begin at the same time.
        progress = await self.database.write_together(partial(piece, append.Progress()))
        while progress.appended is None:
            try:
                await asyncio.sleep(BETWEEN_PIECES_SECONDS)
                progress = await self.database.write(partial(piece, progress))
            except EditConflictError:
                raise
            except (SessionNotFoundError, StoreError, BadInputError) as error:
                raise type(error)(_partly_stored(batch, progress, error)) from error
        return progress.appended

    fingerprint = staticmethod(messages.fingerprint)
    read_fingerprints = of_owner(messages.read_fingerprints)
    read_messages = of_owner(messages.read_messages)
    read_bodies = of_session(messages.read_bodies)
    read_news = of_owner(messages.read_news)
    find_key = of_session(messages.find_key)
    read_outputs = of_session(messages.read_outputs)
    find_output = of_owner(messages.find_output)
    find_handles = of_owner(messages.find_handles)
    search = of_owner(_search)

    async def read_edits(self, session_id: str, *, after: int = 0) -> list[records.Edit]:
        read = sessions.read_session
        return await self.database.read(lambda tx: log.read_edits(tx, *read(tx, self.owner, session_id), after=after))

    find_summary = of_owner(log.find_summary)

    async def change_session(
        self, session_id: str, *given: Any, edits: Sequence[records.Edit] = (), expected: int | None = None, **rest: Any
    ) -> records.Session:
        """See log.change_session. Edits, which need `expected`, are made ready before the transaction: others wait for
        that."""
        assert expected is not None or not edits
        rest["edits"] = await asyncio.to_thread(log.prepared_edits, edits, expected or 0) if edits else []
        change: Callable[..., records.Session] = partial(log.change_session, expected=expected, **rest)
        return await self.change(session_id, lambda tx, *found: change(tx, *found, *given))

    declare = changing(log.declare)
    append_request = changing(log.append_request)
    append_log = of_session(log.append_log, writes=True)
    read_log = of_session(log.read_log)

    acquire_lease = of_session(notes.acquire_lease, writes=True)
    release_lease = of_session(notes.release_lease, writes=True)
    get_note = of_session(notes.get_note)
    put_note = of_session(notes.put_note, writes=True)
    get_cursor = of_owner(notes.get_cursor)
    recent_proxied = of_owner(notes.recent_proxied)
    deleted_sessions = of_owner(notes.deleted_sessions)
    copy_deleted = of_owner(notes.copy_deleted, writes=True)
    add_token = of_owner(notes.add_token, writes=True)
    read_tokens = of_owner(notes.read_tokens)
    find_token = of_owner(notes.find_token)
    remove_token = of_owner(notes.remove_token, writes=True)


def _partly_stored(batch: append.Batch, progress: append.Progress, error: Exception) -> str:
    """What an error says that ends a batch between two pieces."""
    if isinstance(error, SessionNotFoundError):
        advice = "The messages went with the session. To keep the conversation, record it again under a new session_id."
    elif batch.known_by is not None or batch.has_keys:
        advice = "Send the same batch again in the same way: what is stored is not stored twice."
    else:
        next_seq = progress.left.messages if progress.left else 0
        advice = f"Record the messages from number {progress.done} of the batch on with first_seq={next_seq}."
    return f"{progress.done} of {len(batch.messages)} messages were recorded, then this happened: {error} {advice}"
