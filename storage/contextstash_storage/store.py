"""The session store: what one owner has stored, as whole transactions on either database."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from contextstash_storage import hidden_sessions, log, messages, notes, sessions, tokens
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.hidden_sessions import Deletions, Staged
from contextstash_storage.messages import fingerprint
from contextstash_storage.recorder import Recorder, of_owner, of_session
from contextstash_storage.records import LOCAL_OWNER, Copied, Native, Session
from contextstash_storage.search import Weigh as Weigh
from contextstash_storage.search import search
from contextstash_storage.transaction import Database, Result, Tx

P = ParamSpec("P")


def _changing(
    change: Callable[Concatenate[Tx, int, Session, P], Result],
) -> Callable[Concatenate[Any, str, P], Coroutine[Any, Any, Result]]:
    """What `of_session` is, for a function that changes a session and is given it too."""

    @wraps(change)
    async def method(store: SessionStore, session_id: str, /, *arguments: P.args, **named: P.kwargs) -> Result:
        return await store.change(session_id, lambda tx, *found: change(tx, *found, *arguments, **named))

    return method


class SessionStore(Recorder):
    """What one owner has stored. Sessions of other owners do not exist for it. A method that is one function on a
    transaction is listed here with that function, which describes its arguments.

    Every method but `append_messages` happens whole or not at all for whoever reads, also if it is cancelled or its
    process is killed; deletions and copies go on unseen. Methods that take a `session_id` raise SessionNotFoundError if
    the owner has no such session.
    """

    def __init__(self, database: Database, owner: str = LOCAL_OWNER) -> None:
        super().__init__(database, owner)
        self.database: Database = database
        self._deletions = Deletions(database)

    async def continue_work(self) -> None:
        """Continue, in the background, what killed processes left incomplete."""
        if await self.database.read(hidden_sessions.any_hidden):
            self._deletions.finish_later()

    async def close(self) -> None:
        """Close the database, after running work; closing again does nothing. A running deletion stops after its piece;
        the next opening of the database continues it."""
        await self._deletions.close()
        await self.database.close()

    owners = of_owner(sessions.owners)
    list_sessions = of_owner(sessions.list_sessions)
    find_session_ids = of_owner(sessions.find_session_ids)
    owner_days = of_owner(sessions.owner_days)
    session_count = of_owner(sessions.session_count)
    session_days = of_session(sessions.session_days)

    update_session = _changing(sessions.update_session)

    async def delete_session(self, session_id: str, *, along: Sequence[str] = ()) -> bool:
        """Delete a session with everything that belongs to it, and the existing ones of the sessions `along`. One
        transaction makes them invisible; then their rows, their words in the search index and their pages in the
        write-ahead log are removed in pieces. False if some of that is still to be done, because another process reads
        an older state, the database is locked or the disk is full. It is then tried again."""
        await self.database.write(lambda tx: hidden_sessions.hide(tx, self.owner, [session_id, *along]))
        return await self._deletions.finish()

    async def copy_session(self, session: Session, items: Iterable[Copied]) -> Session | None:
        """Store a whole session as it was elsewhere: its messages in order, then all else, unchanged; None, and
        nothing is done, if its owner has one of that id. It is stored in pieces, the last of which makes it visible.
        `items` is read in another thread while no transaction is open."""
        staged = Staged(session.model_copy(update={"owner": self.owner}))
        if not await self.database.write(staged.begin):
            return None
        try:
            await staged.fill(self.database, iter(items))
            stored = await self.database.write(staged.publish)
        except BaseException:
            await self.database.write(staged.abandon)
            self._deletions.finish_later()
            raise
        if stored is None:
            self._deletions.finish_later()
        return stored

    read_notes = of_session(notes.read_notes)

    read_fingerprints = of_session(messages.read_fingerprints)

    def fingerprint(self, body: Native) -> bytes:
        """What two messages have in common if they are equal, by which a repeated delivery is recognized. Pure."""
        return fingerprint(body)

    read_messages = of_owner(messages.read_messages)
    read_messages_at = of_owner(messages.read_messages_at)
    read_news = of_owner(messages.read_news)
    read_edits = of_session(log.read_edits)

    append_edits = _changing(log.append_edits)
    find_summary = of_owner(log.find_summary)

    change_counters = _changing(log.change_counters)

    acquire_lease = of_session(notes.acquire_lease, writes=True)

    async def release_lease(self, session_id: str, purpose: str, holder: str) -> None:
        """Release the lease; releasing one that is not held is not an error."""
        with suppress(SessionNotFoundError):
            await self.change(session_id, lambda tx, row, _: notes.release_lease(tx, row, purpose, holder))

    get_cached_summary = of_session(notes.get_cached_summary)
    put_cached_summary = of_session(notes.put_cached_summary, writes=True)
    get_cursor = of_owner(notes.get_cursor)

    find_output = of_owner(messages.find_output)
    find_handles = of_owner(messages.find_handles)

    search = of_owner(search)

    append_log = of_session(log.append_log, writes=True)
    read_log = of_session(log.read_log)

    declare = _changing(log.declare)
    read_declared = of_session(log.read_declared)

    append_request = _changing(log.append_request)
    get_request = of_session(log.get_request)

    book_late_usage = _changing(log.book_late_usage)

    get_proxied = of_session(notes.get_proxied)
    put_proxied = of_session(notes.put_proxied, writes=True)
    recent_proxied = of_owner(notes.recent_proxied)

    copy_deleted = of_owner(notes.copy_deleted, writes=True)

    add_token = of_owner(tokens.add_token, writes=True)
    read_tokens = of_owner(tokens.read_tokens)
    find_token = of_owner(tokens.find_token)
    remove_token = of_owner(tokens.remove_token, writes=True)
