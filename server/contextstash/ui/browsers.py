"""The browsers that have the pages open, and whose sessions each may see."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from contextstash.web.access_tokens import SCOPES
from contextstash_storage.records import LOCAL_OWNER

MAX_VISITS_OF_OWNER = 64
"""Browsers of one owner. With more, the one that was idle longest must enter again: one of this owner, so that no owner
can push others out."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A browser's access: one owner's sessions, within the scopes of the token that it entered with."""

    owner: str = LOCAL_OWNER
    scopes: tuple[str, ...] = SCOPES
    sha256: bytes | None = None


class Visits:
    """Visits by their names, which are secrets."""

    def __init__(self, most: int = MAX_VISITS_OF_OWNER) -> None:
        self._most = most
        self._visits: dict[str, Visit] = {}
        self._names: defaultdict[str, dict[str, None]] = defaultdict(dict)  # of an owner, the last used one at the end

    def get(self, name: str) -> Visit | None:
        """The visit of this name, which counts as used now; None if there is none."""
        visit = self._visits.get(name)
        if visit is not None:
            self.keep(name, visit)
        return visit

    def keep(self, name: str, visit: Visit) -> None:
        """Remember a visit; the owner's one that was not used for the longest time is forgotten if there are many."""
        names = self._names[visit.owner]
        names.pop(name, None)
        names[name] = None
        self._visits[name] = visit
        if len(names) > self._most:
            self.forget(next(iter(names)))

    def forget(self, name: str) -> None:
        """Forget a visit."""
        visit = self._visits.pop(name)
        names = self._names[visit.owner]
        del names[name]
        if not names:
            del self._names[visit.owner]
