"""`contextstash retain`: what would go is said first, pins stay, and nothing goes without --yes."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

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


async def size_of(path: Path) -> int:
    async with stash_at(path) as stash:
        size = sum((await stash._access.store.session_sizes() or {}).values())
        assert size
        return size


def left(path: Path, **limits: float) -> tuple[list[str], list[str], int]:
    """The sessions that a dry run names, those that are there after the deletion, and how many are kept for a pin."""
    now = datetime.now(UTC)

    async def run() -> tuple[list[str], list[str], int]:
        async with stash_at(path) as stash:
            said = await stash.retain(now + timedelta(days=50), dry_run=True, **limits)  # type: ignore[arg-type]
            assert len((await stash.list_sessions()).sessions) == len(DAYS)
            done = await stash.retain(now + timedelta(days=50), dry_run=False, **limits)  # type: ignore[arg-type]
            assert [each.session_id for each in done.sessions] == [each.session_id for each in said.sessions]
            there = [line.session_id for line in (await stash.list_sessions()).sessions]
            return [each.session_id for each in said.sessions], there, said.pinned

    return asyncio.run(run())


def test_old_sessions_go_and_pinned_ones_stay(tmp_path: Path) -> None:
    filled(tmp_path / "s.db")
    named, there, pinned = left(tmp_path / "s.db", days=30)
    assert sorted(named) == ["aged-0", "aged-10", "aged-40", "aged-400"]
    assert there == ["aged-100"]
    assert pinned == 1


def test_nothing_young_goes(tmp_path: Path) -> None:
    filled(tmp_path / "s.db")
    assert left(tmp_path / "s.db", days=60)[0] == []


def test_a_session_that_is_compressed_to_nothing_does_not_count_as_room(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def run() -> tuple[int, int]:
        async with stash_at(path) as stash:
            for name in ("repeated", "first", "second"):
                for number in range(20):
                    noise = " ".join(map(str, random.Random(f"{name}{number}").choices(range(10**6), k=6_000)))
                    text = "and so on " * 8_000 if name == "repeated" else noise
                    await stash.record_messages([{"role": "user", "content": text}], session_id=name)
            size = sum((await stash._access.store.session_sizes() or {}).values())
            await stash.retain(datetime.now(UTC) + timedelta(days=50), gigabytes=0.75 * size / 1e9, dry_run=False)
            return size, sum((await stash._access.store.session_sizes() or {}).values())

    before, after = asyncio.run(run())
    assert after < 0.8 * before


def test_the_oldest_go_until_the_rest_is_small_enough(tmp_path: Path) -> None:
    filled(tmp_path / "s.db")
    size = asyncio.run(size_of(tmp_path / "s.db"))
    named, there, _ = left(tmp_path / "s.db", gigabytes=size / 2 / 1e9)
    assert named
    assert "aged-100" in there
    assert "aged-400" in there, "recorded last"
    assert "aged-0" not in there, "recorded first"


def test_the_command_says_what_would_go_and_needs_yes(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    filled(database)
    line = CommandLine(tmp_path)
    assert "keep_days" in failure_of(line.run("retain", "--db", database))
    said = line.run("retain", "--gigabytes", "0.00001", "--db", database)
    assert said.returncode == 0, said.stderr
    assert "Would delete 4 sessions; 1 session kept for a pin." in said.stdout
    assert len(json.loads(line.run("sessions", "--json", "--db", database).stdout)["sessions"]) == 5
    done = line.run("retain", "--gigabytes", "0.00001", "--yes", "--db", database)
    assert "Deleted 4 sessions" in done.stdout
    assert len(json.loads(line.run("sessions", "--json", "--db", database).stdout)["sessions"]) == 1


def test_a_session_cannot_shorten_its_own_life(tmp_path: Path) -> None:
    async def run() -> None:
        async with stash_at(tmp_path / "s.db") as stash:
            with pytest.raises(BadInputError, match="the user's alone"):
                await stash.configure_session("a", settings={"keep_days": 1})

    asyncio.run(run())
