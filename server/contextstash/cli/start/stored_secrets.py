"""`contextstash doctor --secrets`: which kinds of secrets are stored, and where."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.output import echo_json, print_table, say
from contextstash.outputs.counts import counted
from contextstash.safety.secret_masks import masked, secrets_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location
    from contextstash_storage.records import Session
    from contextstash_storage.sqlite.store import SqliteStore

READ_AT_ONCE = 500
"""Messages whose bodies are in memory at a time."""

MAX_NAMED = 20
"""Sessions that are named in a terminal: a screen of them. --json names all."""

MAX_PLACES = 3
"""Messages of a session that are named in a terminal: enough to look at some. --json names all, with the kinds."""

KEPT = (
    "The originals are kept for the model alone, but in plain text in the database file {}: whoever reads that file"
    " reads them. To store none from now on: contextstash config set secrets=drop. To remove those that are stored:"
    " contextstash delete SESSION."
)


@dataclass(frozen=True)
class Holder:
    """A session with secrets in its messages; its title is masked. `messages`: the kinds of secrets in each message,
    by its position."""

    session_id: str
    title: str | None
    secrets: int
    messages: dict[int, list[str]]


def report(path: Location, *, as_json: bool) -> int:
    """Print what is stored."""
    if not isinstance(path, Path):
        raise BadInputError("--secrets reads a database file.")
    if not path.exists():
        raise BadInputError(f"There is no database {path}.")
    kinds, holders = asyncio.run(_looked_at(path))
    if as_json:
        echo_json({"kinds": kinds, "sessions": len(holders), "found_in": [asdict(each) for each in holders]})
    else:
        _print(kinds, holders)
        if kinds:
            say(KEPT.format(path))
    return 0


def _print(kinds: Counter[str], holders: list[Holder]) -> None:
    """The kinds, and the sessions that hold them, those with the most first."""
    if not kinds:
        click.echo("No secrets found.")
        return
    for kind, count in kinds.most_common():
        noun, in_, where = kind.partition(" in ")
        click.echo(f"{count:7,} {noun}{'s' * (count != 1)}{in_}{where}")
    click.echo(f"{counted(kinds.total(), 'secret')} in {counted(len(holders), 'session')}:")
    rows = [(each.session_id, each.secrets, _places(each), each.title or "") for each in holders[:MAX_NAMED]]
    print_table(["session", "secrets", "in messages", "title"], rows)
    example = holders[0]
    click.echo(f"To see one: contextstash show {example.session_id} --message {min(example.messages)}")
    if len(holders) > MAX_NAMED:
        click.echo(f"and {counted(len(holders) - MAX_NAMED, 'more session')}: contextstash doctor --secrets --json")


def _places(holder: Holder) -> str:
    first = sorted(holder.messages)[:MAX_PLACES]
    return ", ".join(map(str, first)) + ", …" * (len(holder.messages) > MAX_PLACES)


async def _looked_at(path: Path) -> tuple[Counter[str], list[Holder]]:
    """The kinds of secrets in the messages of all owners, and the sessions that hold them."""
    from contextstash.configuration.encryption_key import database_key
    from contextstash.queries.sessions import title_of
    from contextstash.session.access import Access
    from contextstash_storage.sqlite import open_sqlite

    async with await open_sqlite(path, find_key=database_key) as store:
        kinds: Counter[str] = Counter()
        holders: list[Holder] = []
        for owner in await store.owners():
            own = store.for_owner(owner)
            for session, messages in await _by_session(own):
                if found := Counter(kind for each in messages.values() for kind in each):
                    kinds += found
                    title = await title_of(Access(own), session)
                    shown = None if title is None else masked(title)
                    holders.append(Holder(session.session_id, shown, found.total(), messages))
        holders.sort(key=lambda each: -each.secrets)
        return kinds, holders


async def _by_session(store: SqliteStore) -> list[tuple[Session, dict[int, list[str]]]]:
    """Each session with the kinds of secrets in its messages, by their positions."""
    found = []
    before: str | None = None
    while page := await store.list_sessions(limit=READ_AT_ONCE, before=before):
        for session in page:
            kinds: dict[int, list[str]] = {}
            for first in range(0, session.counters.messages, READ_AT_ONCE):
                last = first + READ_AT_ONCE - 1
                read: list[Any] = await store.read_messages(session.session_id, first=first, last=last)
                kinds |= {each.seq: its for each in read if (its := list(secrets_of(each.body)))}
            found.append((session, kinds))
        before = page[-1].session_id
    return found
