"""Operations on rows, written once for both stores: generators that yield statements and are sent their rows.

    def read_name(key: Key) -> Steps[str | None]:
        rows = yield Statement("SELECT name FROM things WHERE {of}", key)
        return rows[0][0] if rows else None

SQLite's store drives them on its connection's thread, PostgreSQL's awaits each statement; `{of}` and the like stand for
what their tables name differently.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

MAX_INTEGER = 2**63 - 1

Key = tuple[Any, ...]
"""The values by which a session's rows are found: its row in SQLite, its owner and its id in PostgreSQL."""


class Statement(NamedTuple):
    """A statement and its values, each a `?` in the text."""

    text: str
    values: Sequence[object] = ()


class Repeated(NamedTuple):
    """A statement that is run for each of these rows of values, and returns nothing."""

    text: str
    rows: Sequence[Sequence[object]]


OwnColumns = Callable[[Any], Mapping[str, object]]
"""What a store keeps of a record in columns of its own, so that its database can sum it up or find it."""


class Insertion(NamedTuple):
    """Rows of a session in a table: of each the columns that every store has, and the record that it is made of."""

    table: str
    key: Key
    rows: Sequence[tuple[Mapping[str, object], Any]]

    def repeated(self, own: OwnColumns | None = None) -> Repeated:
        """The statement and its values, with the store's own columns."""
        rows = [{**columns, **(own(record) if own else {})} for columns, record in self.rows]
        names = list(rows[0]) if rows else []
        text = f"INSERT INTO {self.table} ({{key}}, {', '.join(names)}) VALUES ({{keys}}, {marks(names)})"
        return Repeated(text, [(*self.key, *row.values()) for row in rows])


class Aside(NamedTuple):
    """Long work without the database, which must not keep an event loop from other calls; it returns rows."""

    work: Callable[[], list[Any]]


class Name(str):
    """A key or an id that another program has chosen: a store whose texts cannot hold every character keeps its
    bytes."""

    __slots__ = ()


Result = TypeVar("Result")
Steps: TypeAlias = Generator[Statement | Repeated | Insertion | Aside, list[Any], Result]

Dialect: TypeAlias = Mapping[str, str]
"""What a store's tables call what has a name in braces:

- `key`, `keys`, `of`: the columns of a session's key, as many `?`, and the condition that finds a session's rows;
- `number`: the row number of a session, NULL if it has none, `last`: what orders sessions of the same time;
- `lock`: keeps other transactions from changing a row that is read; `covers`: the condition of summaries and restores;
- `is_not`: compares values that can be absent; `seen`: the condition of sessions that are not being deleted or made;
- `last_message`: the time of a session's last message; `messages`, `appended`: counters of a session;
- `outputs`: the outputs with their owners;
- `tool`, `tokens`, `output`, `sha256`: columns of an output, all that its record is made of, and its text's hash;
- `piece`, `number_of_piece`: a further column of a batch, and its value;
- `summary_id`: of an edit; `call_…`: what is summed up of a call.
"""


def only(rows: Sequence[Any]) -> Any:
    """The first column of the first row; None without a row."""
    return rows[0][0] if rows else None


def marks(values: Sequence[object]) -> str:
    """A `?` for each value, for a condition with IN."""
    return ", ".join("?" * len(values))
