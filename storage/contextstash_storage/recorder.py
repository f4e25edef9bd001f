"""What records: one owner's sessions are made and read, and messages appended to them, on either database. A client
waits for its hook, which loads this part of the store alone."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, Unpack

from contextstash_storage import messages as stored_messages
from contextstash_storage import notes
from contextstash_storage.append import PIECE_SIZE, Batch, Progress, append_piece, is_large, prepare
from contextstash_storage.errors import BadInputError, EditConflictError, SessionNotFoundError, StoreError
from contextstash_storage.records import (
    LOCAL_OWNER,
    Appended,
    Count,
    Cursor,
    EditsAfter,
    EditsBefore,
    NewMessage,
    Session,
)
from contextstash_storage.sessions import insert_session, read_session, row_of
from contextstash_storage.transaction import Recording, Result, Tx

BETWEEN_PIECES_SECONDS = 0.005
"""Pause between two pieces of a batch. SQLite has no queue for its lock: a waiting process would find the database
locked each time if the next piece started at once. Longer than sqlite.connection.LOOK_SECONDS, so that each that waits
looks once in it. Of 20 ms and 5 ms: two processes that record transcripts take a fifth less time with 5."""


class Placement(TypedDict, total=False):
    """Where messages are appended, and what is stored in the same transactions; see `SessionStore.append_messages`."""

    first_seq: int | None
    batch_id: str | None
    before: EditsBefore | None
    cursor: Cursor | None
    edits: EditsAfter | None


P = ParamSpec("P")


def of_owner(
    work: Callable[Concatenate[Tx, str, P], Result], *, writes: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]:
    """The method that is this function, which describes its arguments; it is given the owner."""

    @wraps(work)
    async def method(store: Recorder, /, *arguments: P.args, **named: P.kwargs) -> Result:
        run = store.database.write if writes else store.database.read
        return await run(lambda tx: work(tx, store.owner, *arguments, **named))

    return method


def of_session(
    work: Callable[Concatenate[Tx, int, P], Result], *, writes: bool = False
) -> Callable[Concatenate[Any, str, P], Coroutine[Any, Any, Result]]:
    """The same for a function on a session, whose id the method is given first; the function is given its row."""

    @wraps(work)
    async def method(store: Recorder, session_id: str, /, *arguments: P.args, **named: P.kwargs) -> Result:
        if writes:
            return await store.change(session_id, lambda tx, row, _: work(tx, row, *arguments, **named))
        return await store.database.read(lambda tx: work(tx, row_of(tx, store.owner, session_id), *arguments, **named))

    return method


class Recorder:
    """Records for one owner. Sessions of other owners do not exist for it."""

    def __init__(self, database: Recording, owner: str = LOCAL_OWNER) -> None:
        self.database = database
        self.owner = owner

    def for_owner(self, owner: str) -> Self:
        """The same open database, bound to another owner. Closing either closes both."""
        other = copy.copy(self)
        other.owner = owner
        return other

    async def close(self) -> None:
        """Close the database; closing again does nothing."""
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def create_session(self, session: Session) -> Session:
        """Store a new session; one that is already there is returned as it is."""

        def work(tx: Tx) -> Session:
            insert_session(tx, session.model_copy(update={"owner": self.owner}))
            return read_session(tx, self.owner, session.session_id)[1]

        return await self.database.write(work)

    async def get_session(self, session_id: str) -> Session:
        return (await self.database.read(lambda tx: read_session(tx, self.owner, session_id)))[1]

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[NewMessage],
        *,
        count: Count,
        **placed: Unpack[Placement],
    ) -> Appended:
        """Append messages. What is stored already is known by a message's key, by `first_seq` (the position of the
        first message) or by `batch_id` (the same id with the same messages); without these all are new.

        A long batch is stored in pieces, each a transaction of its own, so that other processes come in between.
        Each leaves a valid history, and the same call again goes on where the last one ended. `before` goes in with
        the first piece, after which EditConflictError is raised if another writer changes the session between two
        pieces; `edits` and `cursor` go in with the last one. When this returns, everything is durable. If it fails
        between two pieces, the error says how many messages were stored.

        Raises BadInputError if another message stands at a position, or `batch_id` was used for other messages.
        """
        prepared = await asyncio.to_thread(prepare, messages) if is_large(messages) else prepare(messages)
        batch = Batch(self.owner, session_id, prepared, count, **placed)
        # Committed together with others that begin at the same time.
        progress = await self.database.write_together(partial(append_piece, batch, Progress(), PIECE_SIZE))
        while progress.appended is None:
            try:
                await asyncio.sleep(BETWEEN_PIECES_SECONDS)
                progress = await self.database.write(partial(append_piece, batch, progress, PIECE_SIZE))
            except EditConflictError:
                raise
            except (SessionNotFoundError, StoreError, BadInputError) as error:
                raise type(error)(_partly_stored(batch, progress, error)) from error
        return progress.appended

    find_key = of_session(stored_messages.find_key)
    read_outputs = of_session(stored_messages.read_outputs)
    deleted_sessions = of_owner(notes.deleted_sessions)

    async def change(self, session_id: str, change: Callable[[Tx, int, Session], Result]) -> Result:
        """What a function that changes a session returns; no other transaction changes it meanwhile. Raises
        SessionNotFoundError."""

        def work(tx: Tx) -> Result:
            return change(tx, *read_session(tx, self.owner, session_id, locked=True))

        return await self.database.write(work)


def _partly_stored(batch: Batch, progress: Progress, error: Exception) -> str:
    """What an error says that ends a batch between two pieces."""
    assert progress.left is not None
    if isinstance(error, SessionNotFoundError):
        advice = (
            "The messages went with the session. To keep the conversation, record it again from its first message,"
            " preferably under a new session_id."
        )
    elif batch.is_identified:
        advice = "Send the same batch again in the same way: what is stored is not stored twice."
    else:
        next_seq = progress.left.messages
        advice = f"Record the messages from number {progress.done} of the batch on with first_seq={next_seq}."
    return f"{progress.done} of {len(batch.messages)} messages were recorded, then this happened: {error} {advice}"
