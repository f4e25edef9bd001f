"""Recognizes a deleted session if its client goes on: by keyed hashes, which tell nothing of its content."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence

from contextstash_storage.records import ProxiedSession, Record

KEPT_DAYS = 30
"""After so many days a client that goes on with a deleted session is recorded again. By default Claude Code
deletes its own transcripts after 30 days, so that they cannot be continued."""


MAX_LATER = 64
"""Responses to an unrecorded client that are kept, 64 bytes each; what follows an earlier one is recorded again."""


class DeletedSession(Record):
    """Hashes of a session's id, of the `length` messages that its last request began with, and of the provider's id of
    its last response, with a `key` of its own: they cannot be compared with those of another database. `later` are the
    hashes of further responses that its client got, the newest last."""

    key: str
    session: str
    length: int = 0
    mark: str = ""
    response: str = ""
    later: tuple[str, ...] = ()

    def is_continued_by(self, session_id: str, marks: Sequence[str], response: object) -> bool:
        """Whether a request goes on with it: by the id that its session would get, by the messages that it begins with
        (`marks` are the hashes of its beginnings), or by the response that it follows."""
        if self.session == _hash(self.key, session_id):
            return True
        if (self.response or self.later) and isinstance(response, str):
            return _hash(self.key, response) in (self.response, *self.later)
        return 0 < self.length <= len(marks) and self.mark == _hash(self.key, marks[self.length - 1])

    def with_responses(self, responses: Sequence[str]) -> DeletedSession:
        """The same, recognized by these responses too."""
        hashes = [_hash(self.key, each) for each in responses]
        new = [each for each in hashes if each not in (self.response, *self.later)]
        return self.model_copy(update={"later": (*self.later, *new)[-MAX_LATER:]}) if new else self


def deleted_session(session_id: str, proxied: ProxiedSession | None) -> DeletedSession:
    """What stays of a session; `proxied` is what the proxy knew of it."""
    key, proxied = secrets.token_hex(16), proxied or ProxiedSession()
    mark, response = (_hash(key, each) if each else "" for each in (proxied.mark, proxied.response))
    return DeletedSession(
        key=key, session=_hash(key, session_id), length=proxied.length if mark else 0, mark=mark, response=response
    )


def _hash(key: str, value: str) -> str:
    return hmac.new(bytes.fromhex(key), value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
