"""`contextstash doctor --secrets`: which secrets are stored, and where."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random

from tests.support.command_line import CommandLine
from tests.support.planted_secrets import KINDS, made_session, planted, with_secrets
from tests.support.stashes import SESSION, stash_at


def test_the_secrets_that_are_stored_are_found(tmp_path: Path) -> None:
    random = Random(3)
    secrets = planted(random, 2 * len(KINDS))
    natives = with_secrets(made_session(), secrets, random)
    database = tmp_path / "sessions.db"

    async def record() -> None:
        async with stash_at(database, secrets="off") as stash:
            await stash.record_messages(natives, session_id=SESSION)

    asyncio.run(record())
    line = CommandLine(tmp_path)
    looked = line.run("doctor", "--secrets", "--db", database)
    assert looked.returncode == 0, looked.stderr
    assert "private key" in looked.stdout
    assert f"in plain text in the database file {database}" in looked.stdout
    [total] = [int(row.split()[1]) for row in looked.stdout.splitlines() if re.match(rf"{SESSION} +\d", row)]
    assert f"{total} secrets in 1 session:" in looked.stdout
    assert " private keys" in looked.stdout
    again = json.loads(line.run("doctor", "--secrets", "--json", "--db", database).stdout)
    assert [(each["session_id"], each["secrets"]) for each in again["found_in"]] == [(SESSION, total)]
    [holder] = again["found_in"]
    assert holder["title"]
    assert sum(map(len, holder["messages"].values())) == total
    first = min(map(int, holder["messages"]))
    assert f"To see one: contextstash show {SESSION} --message {first}" in looked.stdout


def test_it_says_so_if_there_are_none(tmp_path: Path) -> None:
    database = tmp_path / "sessions.db"

    async def record() -> None:
        async with stash_at(database) as stash:
            await stash.record_messages(made_session(), session_id=SESSION)

    asyncio.run(record())
    done = CommandLine(tmp_path).run("doctor", "--secrets", "--db", database)
    assert (done.returncode, done.stdout) == (0, "No secrets found.\n")
