"""Notes: what is stored beside a session's history, and replaced when it changes. Cursors, batches, leases, states
of sessions, what the proxy knows; how deleted sessions are recognized, by keyed hashes, which tell nothing of their
content; and the tokens of a server's clients."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from contextstash_storage.errors import DamagedError
from contextstash_storage.records import Cursor, KeptState, ProxiedSession, Record, StoredBatch, from_json, to_json
from contextstash_storage.transaction import Tx, name_hash, only


class DeletedSession(Record):
    """Hashes of a session's id and of the `length` messages that its last request began with, with a `key` of its own:
    they cannot be compared with those of another database. `at` is when it was deleted, in seconds since 1970."""

    key: str
    session: str
    length: int = 0
    mark: str = ""
    at: float = 0.0

    def is_continued_by(self, session_id: str, marks: Sequence[str]) -> bool:
        """Whether a request goes on with it: by the id that its session would get, or by the messages that it begins
        with (`marks` are the hashes of its beginnings)."""
        if self.session == _hash(self.key, session_id):
            return True
        return 0 < self.length <= len(marks) and self.mark == _hash(self.key, marks[self.length - 1])


class Token(Record):
    """What a token allows: to work with one owner's sessions, within its scopes, until it expires."""

    name: str
    owner: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None


_KINDS: Mapping[type[Record], str] = {
    Cursor: "cursor",
    StoredBatch: "batch",
    KeptState: "state",
    ProxiedSession: "proxied",
    DeletedSession: "deleted",
    Token: "token",
}

Noted = TypeVar("Noted", bound=Record)

_PUT = (
    "INSERT INTO notes (session, kind, key, owner, record, begins, ends) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (kind, key, session) DO UPDATE"
    " SET owner = excluded.owner, record = excluded.record, begins = excluded.begins, ends = excluded.ends"
)


def put_note(
    tx: Tx, row: int, record: Record, key: str = "", *, owner: str | None = None, begins: float | None = None
) -> None:
    """Store a note in place of the one of its kind and of this key."""
    begins = record.last_at if isinstance(record, ProxiedSession) else begins
    tx.execute(_PUT, (row, _KINDS[type(record)], name_hash(key), owner, to_json(record), begins, None))


def get_note(tx: Tx, row: int, kind: type[Noted], key: str = "") -> Noted | None:
    """The note of this kind and key; None if there is none. Raises DamagedError."""
    text = "SELECT record FROM notes WHERE session = ? AND kind = ? AND key = ?"
    found = only(tx.rows(text, (row, _KINDS[kind], name_hash(key))))
    return None if found is None else from_json(kind, found)


def _readable(kind: type[Noted], rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Noted]]:
    """The notes behind these names. A damaged one does not hide the others."""
    for name, stored in rows:
        with suppress(DamagedError):
            yield name, from_json(kind, stored)


def check(tx: Tx, row: int) -> None:
    """Read all that a session has beside its history. Raises DamagedError if something of it is damaged."""
    for kind, name in _KINDS.items():
        for (record,) in tx.rows("SELECT record FROM notes WHERE session = ? AND kind = ?", (row, name)):
            from_json(kind, record)


def get_cursor(tx: Tx, owner: str, source: str) -> Cursor | None:
    """How far a source has been read; None if it has not been."""
    text = "SELECT record FROM notes WHERE kind = 'cursor' AND key = ? AND owner = ?"
    found = only(tx.rows(text, (name_hash(source), owner)))
    return None if found is None else from_json(Cursor, found)


def put_cursor(tx: Tx, owner: str, row: int, cursor: Cursor) -> None:
    """Store how far a source has been read: in this session, no longer in another."""
    tx.execute("DELETE FROM notes WHERE kind = 'cursor' AND key = ? AND owner = ?", (name_hash(cursor.source), owner))
    put_note(tx, row, cursor, cursor.source, owner=owner)


def recent_proxied(tx: Tx, owner: str, since: float, limit: int) -> list[tuple[str, ProxiedSession]]:
    """The sessions with requests through the proxy since a time, by their ids, the newest first."""
    rows = tx.rows(
        "SELECT session_id, record FROM notes JOIN sessions USING (session) WHERE kind = 'proxied'"
        " AND sessions.owner = ? AND begins >= ? ORDER BY begins DESC LIMIT ?",
        (owner, since, limit),
    )
    return list(_readable(ProxiedSession, rows))


def acquire_lease(tx: Tx, row: int, purpose: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease; False if another holder's is in force. One that seems to be taken in the future is not: it
    was taken before the machine was started again, and its holder is gone."""
    now = tx.clock()
    text = "SELECT record, begins, ends FROM notes WHERE session = ? AND kind = 'lease' AND key = ?"
    for known, begins, ends in tx.rows(text, (row, name_hash(purpose))):
        if known != holder and begins <= now < ends:
            return False
    tx.execute(_PUT, (row, "lease", name_hash(purpose), None, holder, now, now + seconds))
    return True


def release_lease(tx: Tx, row: int, purpose: str, holder: str) -> None:
    """Release a lease, if this holder still has it."""
    text = "DELETE FROM notes WHERE session = ? AND kind = 'lease' AND key = ? AND record = ?"
    tx.execute(text, (row, name_hash(purpose), holder))


KEPT_DAYS = 30
"""After so many days a client that goes on with a deleted session is recorded again. By default Claude Code
deletes its own transcripts after 30 days, so that they cannot be continued."""


def _hash(key: str, value: str) -> str:
    return hmac.new(bytes.fromhex(key), value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def note_deleted(tx: Tx, owner: str, session_id: str, row: int) -> None:
    """Store how a session is recognized that is being deleted."""
    tx.execute("DELETE FROM notes WHERE kind = 'deleted' AND begins < ?", (_oldest_deletion(),))
    key, proxied = secrets.token_hex(16), ProxiedSession()
    with suppress(DamagedError):  # to delete it is how it is mended
        proxied = get_note(tx, row, ProxiedSession) or proxied
    mark, length = (_hash(key, proxied.mark), proxied.length) if proxied.mark else ("", 0)
    noted = DeletedSession(key=key, session=_hash(key, session_id), length=length, mark=mark, at=time.time())
    put_note(tx, 0, noted, key, owner=owner, begins=noted.at)


def deleted_sessions(tx: Tx, owner: str) -> list[DeletedSession]:
    """The sessions that were deleted in the last KEPT_DAYS."""
    text = "SELECT key, record FROM notes WHERE kind = 'deleted' AND owner = ? AND begins >= ? ORDER BY begins, key"
    return [each for _, each in _readable(DeletedSession, tx.rows(text, (owner, _oldest_deletion())))]


def copy_deleted(tx: Tx, owner: str, sessions: Sequence[DeletedSession]) -> None:
    """Recognize sessions too that were deleted in another database, whose sessions are copied to this one: for
    KEPT_DAYS from their deletion on, whatever their clients do."""
    for session in sessions:
        put_note(tx, 0, session, session.key, owner=owner, begins=session.at)


def _oldest_deletion() -> float:
    return time.time() - KEPT_DAYS * 86_400


def read_tokens(tx: Tx, _: str) -> list[Token]:
    """The tokens of a server's clients, of all owners, by their names."""
    return sorted((token for _, token in _tokens(tx)), key=lambda token: token.name)


def _tokens(tx: Tx) -> Iterator[tuple[str, Token]]:
    return _readable(Token, tx.rows("SELECT key, record FROM notes WHERE kind = 'token'"))


def add_token(tx: Tx, owner: str, token: Token, sha256: bytes) -> bool:
    """Store a token under the SHA-256 of its secret; False, and nothing is done, if there is one of that name."""
    tx.execute(_PUT, (0, "lock", "token", None, "", None, None))  # PostgreSQL lets another wait here, and see this one
    if any(known.name == token.name for known in read_tokens(tx, owner)):
        return False
    put_note(tx, 0, token, sha256.hex())
    return True


def find_token(tx: Tx, _: str, sha256: bytes) -> Token | None:
    """The token with this hash, also one that has expired; None if there is none."""
    return get_note(tx, 0, Token, sha256.hex())


def remove_token(tx: Tx, _: str, name: str) -> bool:
    """Delete a token; False if there is none of that name."""
    keys = [(key,) for key, token in _tokens(tx) if token.name == name]
    tx.many("DELETE FROM notes WHERE kind = 'token' AND key = ?", keys)
    return bool(keys)
