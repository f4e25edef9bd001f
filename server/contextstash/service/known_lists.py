"""Whole conversations as they were passed last, by fingerprints: a loop passes its list at each turn, and only what has
changed in it is read again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from contextstash.json.value_bytes import value_bytes
from contextstash.service.bounded_cache import BoundedCache
from contextstash_storage.records import Native

MAX_SESSIONS = 64
"""Sessions of which the last list is known, some 130 bytes for each message. The list of another one is hashed
again."""

Digest = bytes | None
"""The hash by which a message is recognized; None if it has none."""


def digests_of(natives: Sequence[Native]) -> list[Digest]:
    """The digest of each message: a fifth of the time that its fingerprint takes."""
    written = (value_bytes(native) for native in natives)
    return [None if data is None else hashlib.sha256(data).digest() for data in written]


class KnownLists:
    """The last list of each session: digests, and the store's fingerprints."""

    def __init__(self) -> None:
        self._known: BoundedCache[str, tuple[Sequence[Digest], Sequence[bytes]]] = BoundedCache(MAX_SESSIONS)

    def fingerprints(self, session_id: str, digests: Sequence[Digest]) -> list[bytes]:
        """The fingerprints of the messages at the head of a list, as far as they are those of the last list."""
        known, fingerprints = self._known.get(session_id) or ((), ())
        same = 0
        for listed, before in zip(digests, known, strict=False):
            if listed is None or listed != before:
                break
            same += 1
        return list(fingerprints[:same])

    def keep(self, session_id: str, digests: Sequence[Digest], fingerprints: Sequence[bytes]) -> None:
        """Remember a session's list."""
        self._known.set(session_id, (digests, fingerprints))
