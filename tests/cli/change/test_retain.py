"""`contextstash retain`: what would go is said first, pins stay, and nothing goes without --yes."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.errors import BadInputError
from tests.support.command_line import CommandLine, failure_of
from tests.support.stashes import stash_at

DAYS = (0, 10, 40, 100, 400)


def filled(path: Path) -> None:
    """A session for each age, of which that of 100 days has a pin."""

    async def fill() -> None:
        async with stash_at(path) as stash:
            for age in DAYS:
                text = f"Work {age}: " + "some words " * 2_000
                await stash.record_messages([{"role": "user", "content": text}], session_id=f"aged-{age}")
            await stash.configure_session("aged-100", settings={"pin": ["rule: keep this"]})

    asyncio.run(fill())


def make_old(path: Path) -> None:
    """As if all sessions had been recorded in 2020."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE sessions SET created_at = ?1, updated_at = ?1, last_message_at = 0", (1_577_836_800_000_000,)
        )


def test_the_command_says_what_would_go_and_needs_yes(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    filled(database)
    make_old(database)
    line = CommandLine(tmp_path)
    assert "keep_days" in failure_of(line.run("retain", "--db", database))
    said = line.run("retain", "--days", "1", "--db", database)
    assert said.returncode == 0, said.stderr
    assert "Would delete 4 sessions; 1 session kept for a pin." in said.stdout
    assert len(json.loads(line.run("sessions", "--json", "--db", database).stdout)["sessions"]) == 5
    done = line.run("retain", "--days", "1", "--yes", "--db", database)
    assert "Deleted 4 sessions" in done.stdout
    assert len(json.loads(line.run("sessions", "--json", "--db", database).stdout)["sessions"]) == 1


def test_a_session_cannot_shorten_its_own_life(tmp_path: Path) -> None:
    async def run() -> None:
        async with stash_at(tmp_path / "s.db") as stash:
            await stash.record_messages([{"role": "user", "content": "Hello."}], session_id="a")
            with pytest.raises(BadInputError, match="the user's alone"):
                await stash.configure_session("a", settings={"keep_days": 1})

    asyncio.run(run())
