"""The session store: what every back end offers, as whole transactions.

What is steps on rows is the same for all of them and is here; the rest is abstract.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, Unpack

from contextstash_storage.codec import bodies
from contextstash_storage.codec.record_json import edit_of
from contextstash_storage.deleted_sessions import DeletedSession
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import (
    Appended,
    Call,
    Copied,
    Count,
    Counters,
    Cursor,
    Declared,
    DeclaredVersion,
    Edit,
    EditsAfter,
    EditsBefore,
    Event,
    KnownPart,
    Message,
    Native,
    NewMessage,
    Output,
    Request,
    SearchHit,
    Session,
    SessionExtras,
    SessionNews,
    TokenSum,
    Usage,
)
from contextstash_storage.search.query_terms import EVERYWHERE, SearchFilter
from contextstash_storage.sql import append, logs, messages, outputs, requests, session_news, sessions
from contextstash_storage.sql.edits import check_expected, edit_records, find_summary, insert_edits, number_edits
from contextstash_storage.sql.prepared_messages import stored_fingerprint
from contextstash_storage.sql.rows import check_changes, made, read_session
from contextstash_storage.sql.steps import MAX_INTEGER, Key, Result, Steps
from contextstash_storage.tokens import TokenStore


class Placement(TypedDict, total=False):
    """Where messages are appended, and what is stored in the same transactions; see `SessionStore.append_messages`."""

    first_seq: int | None
    batch_id: str | None
    before: EditsBefore | None
    cursor: Cursor | None
    edits: EditsAfter | None


P = ParamSpec("P")

Weigh = Callable[[str, int], float]
"""`weigh(session_id, seq)`: by what the score of a search's hit is multiplied, at most 1. Pure."""

Read = Callable[[Key], Steps[Result]]
"""Steps on the rows of a session."""

Change = Callable[[Key, Session], Steps[Result]]
"""Steps that change a session, given it as it is."""


def _owner_reader(
    steps: Callable[Concatenate[str, P], Steps[Result]], *, together: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]:
    """The method that reads by these steps, which describe its arguments; they are given the owner first. `together`:
    several statements see the same state."""

    @wraps(steps)
    async def method(store: SessionStore, /, *arguments: P.args, **named: P.kwargs) -> Result:
        return await store._of_owner(lambda: steps(store.owner, *arguments, **named), together=together)

    return method


def _session_reader(
    steps: Callable[Concatenate[Key, P], Steps[Result]], *, together: bool = False
) -> Callable[Concatenate[Any, str, P], Coroutine[Any, Any, Result]]:
    """The same for a session, whose id the method is given first, and whose key the steps are given."""

    @wraps(steps)
    async def method(store: SessionStore, session_id: str, /, *arguments: P.args, **named: P.kwargs) -> Result:
        return await store._of_session(session_id, lambda key: steps(key, *arguments, **named), together=together)

    return method


def _session_writer(
    steps: Callable[Concatenate[Key, P], Steps[Result]],
) -> Callable[Concatenate[Any, str, P], Coroutine[Any, Any, Result]]:
    """The same for steps that change the session."""

    @wraps(steps)
    async def method(store: SessionStore, session_id: str, /, *arguments: P.args, **named: P.kwargs) -> Result:
        return await store._change(session_id, lambda key, _: steps(key, *arguments, **named))

    return method


class SessionStore(ABC):
    """What one owner has stored. Sessions of other owners do not exist for it. A method that is steps on rows alone is
    listed here with these steps, which describe its arguments.

    To a reader, every method but `append_messages` is one transaction: it happens whole or not at all, also if it is
    cancelled or its process is killed. Methods that take a `session_id` raise SessionNotFoundError if the owner has no
    such session.
    """

    owner: str
    tokens: TokenStore
    """The tokens of a server's clients, of all owners."""

    @abstractmethod
    def for_owner(self, owner: str) -> SessionStore:
        """The same open database, bound to another owner. Closing either closes both."""

    @abstractmethod
    async def close(self) -> None:
        """Close the database; closing again does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def owners(self) -> list[str]:
        """All owners that have sessions, in order: for those who move a whole database."""
        return await self._of_owner(sessions.owners)

    async def create_session(self, session: Session) -> Session:
        """Store a new session; one that is already there is returned as it is."""

        def steps() -> Steps[Session]:
            yield from self._insert_session(session.model_copy(update={"owner": self.owner}))
            return (yield from read_session(self.owner, session.session_id))[1]

        return await self._write_steps(steps)

    @abstractmethod
    async def copy_session(self, session: Session, items: Iterable[Copied]) -> Session | None:
        """Store a whole session as it was elsewhere: its messages in order, then its edits, events and calls, all
        unchanged; None, and nothing is done, if its owner has one of that id. It is stored in pieces, the last of which
        makes it visible. `items` is read in another thread while no transaction is open."""

    read_extras = _session_reader(sessions.read_extras, together=True)

    async def put_extras(self, session_id: str, extras: SessionExtras) -> None:
        """Store what a copied session has beside its history."""
        await self._change(session_id, lambda key, _: sessions.put_extras(self.owner, key, extras))

    async def get_session(self, session_id: str) -> Session:
        return (await self._of_owner(lambda: read_session(self.owner, session_id)))[1]

    list_sessions = _owner_reader(sessions.list_sessions, together=True)

    totals = _owner_reader(sessions.totals, together=True)

    mark = _owner_reader(sessions.mark)

    session_tools = _session_reader(sessions.session_tools)

    session_days = _session_reader(sessions.session_days)

    find_session_ids = _owner_reader(sessions.find_session_ids)

    async def update_session(self, session_id: str, **changes: Any) -> Session:
        """Change `agent`, `model`, `format`, `title`, `source` or `settings`."""
        check_changes(changes)

        def change(key: Key, _: Session) -> Steps[Session]:
            yield from sessions.update_fields(key, changes, self._stored_name)
            return (yield from read_session(self.owner, session_id))[1]

        return await self._change(session_id, change)

    @abstractmethod
    async def delete_session(self, session_id: str, *, along: Sequence[str] = ()) -> bool:
        """Delete a session with everything that belongs to it, and the
        existing ones of the sessions `along`. One transaction makes them invisible; then their rows, their words in the
        search index and their pages in the write-ahead log are removed in pieces. False if some of that is still to be
        done, because another process reads an older state, the database is locked or the disk is full. It is then tried
        again."""

    @abstractmethod
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

    read_fingerprints = _session_reader(append.read_fingerprints)

    def fingerprint(self, body: Native) -> bytes:
        """What two messages have in common if they are equal, by which a repeated delivery is recognized. Pure."""
        return stored_fingerprint(bodies.fingerprint(body))

    get_cursor = _owner_reader(sessions.get_cursor)

    async def read_messages(
        self, session_id: str, *, first: int = 0, last: int | None = None, bodies: bool = True
    ) -> list[Message]:
        """Messages `first..last`, both included, in order."""

        def steps() -> Steps[messages.MessageRows]:
            key, session = yield from read_session(self.owner, session_id)
            end = session.counters.messages - 1 if last is None else last
            return (yield from messages.rows_between(key, session, first, end, bodies=bodies))

        return await (await self._of_owner(steps, together=True)).messages()

    async def read_messages_at(self, session_id: str, seqs: Sequence[int]) -> list[Message]:
        """The messages at these positions, with their bodies, in order of position."""

        def steps() -> Steps[messages.MessageRows]:
            key, _ = yield from read_session(self.owner, session_id)
            return (yield from messages.rows_at(key, session_id, seqs))

        return await (await self._of_owner(steps, together=True)).messages()

    async def read_news(self, session_id: str, known: KnownPart) -> SessionNews:
        """The session, its newest request, and beyond what the reader knows of it its edits and its messages with their
        outputs: what each turn of an agent loop needs, as of one moment."""
        news = await self._of_owner(lambda: session_news.read_news(self.owner, session_id, known), together=True)
        return SessionNews(
            news.session,
            known,
            news.request,
            tuple(await made(edit_of, news.edits)),
            tuple(await news.messages.messages()),
            tuple(await made(self._output_of, news.outputs)),
        )

    find_key = _session_reader(logs.find_key)

    async def read_edits(self, session_id: str, *, after: int = 0) -> list[Edit]:
        """The edits behind number `after`, in order."""
        return await made(edit_of, await self._of_session(session_id, lambda key: edit_records(key, after)))

    async def append_edits(
        self,
        session_id: str,
        edits: Sequence[Edit],
        *,
        expected: int,
        event: Event | None = None,
        own: bool = True,
    ) -> Session:
        """Append edits if the session has exactly `expected` of them, else raise EditConflictError.

        What our `own` edits remove from the view is also counted separately: a client that sends its own history has
        not seen them. Other edits mirror the client's own."""
        numbered = await asyncio.to_thread(number_edits, edits, expected)

        def change(key: Key, session: Session) -> Steps[Session]:
            check_expected(session.counters, expected)
            counters = yield from insert_edits(key, session.counters, numbered, own=own)
            return (yield from self.stored_change(key, session, counters, event))

        return await self._change(session_id, change)

    async def change_counters(
        self, session_id: str, change: Callable[[Counters], Counters], *, event: Event | None = None
    ) -> Session:
        """Replace the counters with the result of `change` (pure), which reads them in the same transaction."""
        return await self._change(
            session_id, lambda key, session: self.stored_change(key, session, change(session.counters), event)
        )

    @abstractmethod
    async def acquire_lease(self, session_id: str, purpose: str, holder: str, seconds: float) -> bool:
        """Acquire or renew the lease for `purpose` on a session, exclusive across processes; False if another holder
        has it. It expires after `seconds`, so that it ends if its holder dies."""

    async def release_lease(self, session_id: str, purpose: str, holder: str) -> None:
        """Release the lease; releasing one that is not held is not an error."""
        with suppress(SessionNotFoundError):
            await self._change(session_id, lambda key, _: logs.release_lease(key, purpose, holder))

    get_cached_summary = _session_reader(logs.get_cached_summary)

    put_cached_summary = _session_writer(logs.put_cached_summary)

    async def read_outputs(self, session_id: str, *, first: int = 0, last: int | None = None) -> list[Output]:
        """The tool outputs of messages `first..last` of a session, both included, in order."""
        end = MAX_INTEGER if last is None else last
        rows = await self._of_session(session_id, lambda key: outputs.output_rows(key, first, end))
        return await made(self._output_of, rows)

    async def find_output(self, handle: str, session_id: str | None = None) -> tuple[str, Output]:
        """The session and output of a handle, the newest session's if several hold the same text. Raises
        HandleNotFoundError, and BadInputError if several texts have this handle."""
        return await self._of_owner(
            lambda: outputs.find_output(self.owner, handle, session_id, self._output_of), together=True
        )

    find_summary = _owner_reader(find_summary)

    find_handles = _owner_reader(outputs.find_handles)

    @abstractmethod
    async def search(
        self, query: str, where: SearchFilter = EVERYWHERE, *, limit: int = 10, weigh: Weigh | None = None
    ) -> list[SearchHit]:
        """Best hits first; the documents, terms, weights and order are those of `search_documents`, `search_query` and
        `search_ranking`. A call and its output are one hit, of the output; one that repeats the lines of a better hit
        is left out. With `weigh`, the order is that of the weighed scores among the first RANKED_HITS times `limit`
        hits."""

    async def unindexed_messages(self) -> int:
        """How many messages a search cannot find yet, because the index is being filled in the background, after
        very long messages."""
        return 0

    async def append_event(self, session_id: str, event: Event, level: str | None = None) -> None:
        def change(key: Key, session: Session) -> Steps[None]:
            yield from logs.insert_event(key, event)
            if level is not None:
                yield from sessions.put_level(key, session.counters, level)

        await self._change(session_id, change)

    read_events = _session_reader(logs.read_events)

    last_events = _session_reader(logs.last_events)

    @abstractmethod
    async def token_sums(self, session_id: str, width: int) -> list[TokenSum]:
        """The tokens that the model saw of the history, summed over runs of `width` messages."""

    async def append_call(self, session_id: str, call: Call) -> None:
        await self._change(session_id, lambda key, _: logs.insert_call(key, call))

    last_calls = _session_reader(logs.last_calls)

    read_calls = _session_reader(logs.read_calls)

    async def declare(
        self, session_id: str, parts: Sequence[DeclaredVersion], change: Callable[[Declared, Sequence[int]], Declared]
    ) -> Session:
        """Store versions of declared parts, each content once, and put `change(declared, versions)` into the counters:
        `versions` are the numbers of `parts`. Pure."""

        def steps(key: Key, session: Session) -> Steps[Session]:
            counters = yield from requests.declare(key, session.counters, parts, change)
            return (yield from self.stored_change(key, session, counters, None))

        return await self._change(session_id, steps)

    read_declared = _session_reader(requests.read_declared)

    async def append_request(self, session_id: str, request: Request) -> Request:
        """Store a request under the next number, and make it the one that the next reported usage belongs to. Of older
        ones only figures are kept."""

        def change(key: Key, session: Session) -> Steps[Request]:
            placed, counters = yield from requests.insert_request(key, session.counters, request)
            yield from self.stored_change(key, session, counters, None)
            return placed

        return await self._change(session_id, change)

    read_requests = _session_reader(requests.read_requests)

    list_requests = _session_reader(requests.list_requests)

    get_request = _session_reader(requests.get_request)

    async def book_usage(
        self, session_id: str, number: int, usage: Usage, change: Callable[[Counters], Counters], call: Call
    ) -> Session:
        """Add usage that was reported late to a request, and store its call and the changed counters."""

        def steps(key: Key, session: Session) -> Steps[Session]:
            yield from requests.book_usage(key, number, usage)
            yield from logs.insert_call(key, call)
            return (yield from self.stored_change(key, session, change(session.counters), None))

        return await self._change(session_id, steps)

    get_proxied = _session_reader(requests.get_proxied)

    put_proxied = _session_writer(requests.put_proxied)

    recent_proxied = _owner_reader(requests.recent_proxied)

    deleted_sessions = _owner_reader(requests.deleted_sessions)

    async def copy_deleted(self, sessions: Sequence[DeletedSession]) -> None:
        """Recognize sessions too that were deleted in another database, whose sessions are copied to this one."""
        await self._write_steps(lambda: requests.copy_deleted(self.owner, sessions))

    async def note_responses(self, session_id: str, marks: Sequence[str], responses: Sequence[str]) -> None:
        """Recognize a deleted session by these responses too, which its client got later: the one of this id, that with
        which a request of these marks goes on, or that of one of the responses. Without effect if there is none."""
        await self._write_steps(lambda: requests.note_responses(self.owner, session_id, marks, responses))

    @abstractmethod
    async def _of_owner(self, read: Callable[[], Steps[Result]], *, together: bool = False) -> Result:
        """What steps that only read return: those of one statement, or several that see the same state."""

    @abstractmethod
    async def _of_session(self, session_id: str, read: Read[Result], *, together: bool = False) -> Result:
        """The same for a session. Raises SessionNotFoundError."""

    @abstractmethod
    async def _change(self, session_id: str, change: Change[Result]) -> Result:
        """What steps that change a session return; no other transaction changes it meanwhile. Raises
        SessionNotFoundError."""

    @abstractmethod
    async def _write_steps(self, steps: Callable[[], Steps[Result]]) -> Result:
        """What steps that write return, as one transaction."""

    @abstractmethod
    def _insert_session(self, session: Session) -> Steps[bool]:
        """Store a session's row; False if its owner has one of that id."""

    @abstractmethod
    def _store_counters(self, key: Key, session: Session, counters: Counters) -> Steps[Session]:
        """Store a session's counters and that it was changed now; returns the changed session."""

    @abstractmethod
    def _output_of(self, row: Sequence[Any]) -> Output:
        """The output of a row of the dialect's `output` columns."""

    @abstractmethod
    def _stored_name(self, name: Any) -> Any:
        """A name or title as the store can hold it."""

    def stored_change(self, key: Key, session: Session, counters: Counters, event: Event | None) -> Steps[Session]:
        """Store a session's counters, and an event with them; returns the changed session."""
        if event is not None:
            yield from logs.insert_event(key, event)
        return (yield from self._store_counters(key, session, counters))
