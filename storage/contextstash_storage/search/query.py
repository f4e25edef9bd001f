"""Reads a query: its terms, and the filter of where to search. Pure, and the same for every store: one that is not
SQLite searches the same documents for the same terms with the same weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from contextstash_storage.codec.record_json import time_of
from contextstash_storage.errors import BadInputError
from contextstash_storage.search.documents import Kind, storable

MAX_TERMS = 64
"""Of a longer query, such as a step that an agent is about to do, names and paths come first. Of 48 to 256, with 64 one
search finds most of the facts that are needed next (half of the recorded sessions)."""

MAX_QUERY_CHARACTERS = 4_000

CALL_WEIGHT = 10.0
"""How much a word in a call's arguments counts, where one in a text counts 1. Of 10, 15 and 30 the best recall, by
0.5 points, on half of the recorded sessions (outputs that were fetched again: docs/fidelity.md)."""

PAIR_WEIGHT = 3.0
"""How much the score of a call counts for its output, where the output's own counts 1; 2, 3 and 5 were tried."""

CALL_WORDS = 30
"""The score of a call with more words (a patch, a script, the text of a file) counts less for its output, in inverse
proportion: it names much that its output does not hold. Of recorded calls half have up to 19 words, three quarters up
to 44. Of 15, 20, 30, 40 and none, on half of the recorded sessions: an agent that fetches an output again and searches
with its own words finds it first in 52 instead of 33 % of the cases (docs/fidelity.md)."""

OUTPUT_CHARACTERS = 200
"""The score of a call counts half for an output with fewer characters: who looks for what a command has shown is not
helped by "Done". 400 finds fewer of the outputs that are fetched again."""

TEXT_WEIGHT = 4.0
"""How much the score of what was said counts for a question in plain words, if a call with its output counts 1. With 1,
a word in a call's arguments hides what was said: of 42 such questions over thirteen recorded sessions 19 have what they
look for among the first five hits, with 3 27 of them, with 4 and 6 31."""

QUESTION_TERMS = 12
"""A query of more terms is rather a call or a passage as it was written than a question, one of twice as many surely,
and its output is looked for: with 4 for those too, one search with an agent's next words and call finds 2 to 3 of 100
needed facts less."""

WHOLE_WEIGHT = 100.0
"""By what the score of a text with all terms is multiplied, so that it comes before those with some of them: an
identifier as a whole before calls with half of it, which CALL_WEIGHT and PAIR_WEIGHT make 30 times as heavy."""

NEIGHBOR_WEIGHT = 0.4
"""How much of the scores of the messages before and after a message is added to its own: in a conversation the words
of a question are often in another message than its answer. Of 0, 0.3, 0.4 and 0.5: within 0.5 points but for 0."""

SAME_LINES = 0.6
"""An output with this share of its lines in a better hit is left out. 0.6, 0.7 and 0.8 were tried."""

RANKED_HITS = 4
"""How many times as many hits as are wanted are found before they are weighed; 10 finds no more."""

_TERM = re.compile(r"\w+(?:[./@+-]+\w+){0,15}")
_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"[\d_./@+-]|(?<=[a-z])[A-Z]")
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

    def admits(self, created: str | int) -> bool:
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
    names = [term for term in telling if _NAME.search(term)]
    words = [word for name in names for word in _WORD.findall(name)]
    return list(dict.fromkeys([*names, *words, *telling]))[:MAX_TERMS]


def text_weight(wanted: Sequence[str]) -> float:
    """How much what was said counts for a query with these terms: more for a question, by its share of plain words,
    than for names, paths and calls."""
    names = [term for term in wanted if _NAME.search(term)]
    plain = [term for term in wanted if not any(term in name for name in names)]
    share = len(plain) / (len(plain) + len(names))
    brevity = min(1.0, max(0.0, 2 - len(wanted) / QUESTION_TERMS))
    return 1 + (TEXT_WEIGHT - 1) * share * brevity
