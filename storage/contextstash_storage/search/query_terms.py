"""Reads a query: its terms, and the filter of where to search. Pure, and the same for every store: one that is not
SQLite searches the same documents for the same terms with the same weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from contextstash_storage.errors import BadInputError
from contextstash_storage.search.documents import Kind
from contextstash_storage.transaction import storable, time_of

MAX_TERMS = 64
"""Of a longer query, such as a step that an agent is about to do, names and paths come first. Of 48 to 256, with 64 one
search finds most of the facts that are needed next (half of the recorded sessions)."""

MAX_QUERY_CHARACTERS = 4_000

_TERM = re.compile(r"\w+(?:[./@+-]+\w+){0,15}")
_WORD = re.compile(r"[^\W_]+")
NAME_MARK = re.compile(r"[\d_./@+-]|(?<=[a-z])[A-Z]")
"""What an identifier or a path has, and a word of a sentence has not."""

STOP_WORDS = frozenset(
    {
        "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for",
        "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my",
        "not", "of", "on", "or", "our", "she", "so", "some", "than", "that", "the", "their", "them", "then", "there",
        "these", "they", "this", "those", "to", "too", "up", "us", "was", "we", "were", "what", "when", "where",
        "which", "who", "whom", "why", "will", "with", "would", "you", "your",
    }
)  # fmt: skip
"""English words that say nothing about what is looked for: pronouns, articles, forms of be, do and have, question
words."""

Scope = Literal["all", "outputs", "messages"]
_KINDS = {"all": (), "outputs": (Kind.CALL, Kind.OUTPUT), "messages": (Kind.TEXT, Kind.CALL)}


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Where to search: only in `session_ids`, and in messages from `after` on and before `before`. The scope is `all`,
    `outputs` (tool outputs with their calls) or `messages` (all others); `tool`: only calls of this tool. Raises
    BadInputError if the scope is unknown."""

    session_ids: Sequence[str] | None = None
    scope: str = "all"
    tool: str | None = None
    after: datetime | None = None
    before: datetime | None = None

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise BadInputError(f"There is no scope '{self.scope}'. Known: {', '.join(get_args(Scope))}.")

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of documents that the scope has; empty for all."""
        return _KINDS[self.scope]

    @property
    def any_time(self) -> bool:
        """Whether messages of any time are searched."""
        return self.after is None and self.before is None

    def admits(self, created: int) -> bool:
        """Whether a message of this time, as it is stored, is searched. A time without a zone is in UTC."""
        if self.any_time:
            return True
        time = _with_zone(time_of(created))
        return (self.after is None or time >= _with_zone(self.after)) and (
            self.before is None or time < _with_zone(self.before)
        )


EVERYWHERE = SearchFilter()


def _with_zone(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def terms(query: str) -> list[str]:
    """What to look for: the names and paths of the query, the words that these are made of, its other words; stop words
    only if there is nothing else. The words of one term stand together."""
    found = list(dict.fromkeys(_TERM.findall(storable(query[:MAX_QUERY_CHARACTERS]))))
    found = [term for term in found if _WORD.search(term)]
    telling = [term for term in found if term.lower() not in STOP_WORDS] or found
    names = [term for term in telling if NAME_MARK.search(term)]
    words = [word for name in names for word in _WORD.findall(name)]
    return list(dict.fromkeys([*names, *words, *telling]))[:MAX_TERMS]
