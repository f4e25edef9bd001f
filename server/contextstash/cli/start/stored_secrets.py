"""`contextstash doctor --secrets`: which kinds of secrets are stored, and what the search index shows of them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.context.text.counts import counted
from contextstash.context.text.secret_masks import masked, secrets_of
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location
    from contextstash_storage.sqlite.store import SqliteStore

READ_AT_ONCE = 500
"""Messages whose bodies are in memory at a time."""

KEPT = (
    "The originals are kept, for the model alone. To store none from now on: contextstash config set secrets drop. To"
    " remove those that are stored: contextstash delete SESSION."
)


def report(path: Location, *, mask: bool, as_json: bool) -> int:
    """Print what is stored; with `mask`, mask the texts of the search index. Exit code 1 if it still shows secrets."""
    if not isinstance(path, Path):
        raise BadInputError(
            "--secrets reads a database file. Sessions in PostgreSQL: contextstash migrate-store copies them into a new"
            " database, whose index is masked."
        )
    if not path.exists():
        raise BadInputError(f"There is no database {path}.")
    kinds, sessions, readable = asyncio.run(_looked_at(path, mask))
    shown = 0 if mask else readable
    if as_json:
        click.echo(json.dumps({"kinds": kinds, "sessions": sessions, "readable_messages": shown, "masked": mask}))
        return 1 if shown else 0
    for kind, count in kinds.most_common():
        click.echo(f"{count:7,} {kind}")
    total = counted(kinds.total(), "secret")
    click.echo(f"{total} in {counted(sessions, 'session')}." if kinds else "No secrets found.")
    if readable and mask:
        click.echo(f"Masked what the search index showed of {counted(readable, 'message')}.")
    elif readable:
        which = counted(readable, "message")
        click.echo(f"The search index shows some of them, in {which}: contextstash doctor --secrets --mask")
    if kinds:
        click.echo(KEPT)
    return 1 if shown else 0


async def _looked_at(path: Path, mask: bool) -> tuple[Counter[str], int, int]:
    """The kinds of secrets in the messages of all owners, in how many sessions they are, and how many messages the
    search index shows with some."""
    from contextstash_storage.sqlite.store import open_sqlite

    store = await open_sqlite(path)
    try:
        kinds: Counter[str] = Counter()
        sessions = 0
        for owner in await store.owners():
            for found in await _by_session(store.for_owner(owner)):
                kinds += found
                sessions += bool(found)
        return kinds, sessions, await store.change_texts(masked, dry_run=not mask)
    finally:
        await store.close()


async def _by_session(store: SqliteStore) -> list[Counter[str]]:
    found = []
    before: str | None = None
    while page := await store.list_sessions(limit=READ_AT_ONCE, before=before):
        for session in page:
            kinds: Counter[str] = Counter()
            for first in range(0, session.counters.messages, READ_AT_ONCE):
                last = first + READ_AT_ONCE - 1
                read: list[Any] = await store.read_messages(session.session_id, first=first, last=last)
                kinds.update(kind for message in read for kind in secrets_of(message.body))
            found.append(kinds)
        before = page[-1].session_id
    return found
