"""`contextstash doctor --secrets`: what a former version stored is found, and masked in the index."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random

from tests.support.command_line import CommandLine
from tests.support.planted_secrets import KINDS, indexed_texts, made_session, planted, readable, with_secrets
from tests.support.stashes import SESSION, stash_at


def test_what_was_stored_without_masks_is_found_and_masked(tmp_path: Path) -> None:
    random = Random(3)
    secrets = planted(random, 2 * len(KINDS))
    natives = with_secrets(made_session(), secrets, random)
    database = tmp_path / "sessions.db"

    async def record() -> None:
        async with stash_at(database, secrets="off") as stash:
            await stash.record_messages(natives, session_id=SESSION)

    async def kept() -> bool:
        async with stash_at(database) as stash:
            hits = (await stash.search_history("broken deployment", session_id=SESSION)).hits
            return hits[0].seq == 0 and await stash.read_conversation(SESSION) == natives

    asyncio.run(record())
    line = CommandLine(tmp_path)
    looked = line.run("doctor", "--secrets", "--db", database)
    assert looked.returncode == 1
    assert "private key" in looked.stdout
    assert "--secrets --mask" in looked.stdout
    assert f"in plain text in the database file {database}" in looked.stdout
    [total] = [int(row.split()[1]) for row in looked.stdout.splitlines() if re.match(rf"{SESSION} +\d", row)]
    assert f"{total} secrets in 1 session:" in looked.stdout
    assert " private keys" in looked.stdout
    assert sum(readable(each, indexed_texts(database)) for each in secrets) > len(secrets) / 2

    masked = line.run("doctor", "--secrets", "--mask", "--db", database)
    assert masked.returncode == 0, masked.stdout + masked.stderr
    shown = indexed_texts(database)
    assert not [each for each in secrets if readable(each, shown)]
    assert asyncio.run(kept())
    assert "Masked what the search index showed of " in masked.stdout
    assert "of them: nothing needed to be masked." in line.run("doctor", "--secrets", "--mask", "--db", database).stdout
    again = json.loads(line.run("doctor", "--secrets", "--json", "--db", database).stdout)
    assert again["readable_messages"] == 0
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
    assert (done.returncode, done.stdout) == (0, "No secrets found.\nThe search index shows none.\n")
