"""Retention without a command: announced first, then carried out once a day, and said once."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contextstash import automatic_retention as automatic
from contextstash.automatic_retention import begin_retention, carry_out, news
from contextstash.clients.follow import ingest
from contextstash.configuration.setting_layers import configuration
from contextstash.session.access import Access
from contextstash.stash import Stash
from contextstash.stash_opener import StashOpener
from contextstash.transfer import retention
from contextstash.transfer.retention import delete_session
from contextstash.window.settings import ContextSettings, resolve_settings
from tests.support.command_line import CommandLine
from tests.support.stashes import stash_at

DAY = timedelta(days=1)
NOW = datetime.now(UTC)
LATER = NOW + 60 * DAY
KEPT_30 = resolve_settings({"keep_days": 30})


async def fill(path: Path, count: int = 3) -> None:
    async with stash_at(path) as stash:
        for number in range(count):
            await stash.record_messages(
                [{"role": "user", "content": f"secret work {number}"}], session_id=f"s-{number}"
            )
        await stash.configure_session("s-0", settings={"pin": ["rule: keep"]})


async def names(stash: Stash) -> list[str]:
    return sorted(line.session_id for line in (await stash.list_sessions()).sessions)


async def run(path: Path, now: datetime, settings: ContextSettings = KEPT_30) -> list[str]:
    """What is left after the retention of a process that was started then."""
    async with stash_at(path) as stash:
        await carry_out(stash, path, settings, now)
        return await names(stash)


async def test_the_first_time_it_only_says_what_would_go_and_from_when_on(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    assert await run(path, LATER) == ["s-0", "s-1", "s-2"]
    said = news(path)
    assert said is not None
    assert "2 sessions of 3 will be deleted" in said
    assert f"{LATER + 3 * DAY:%Y-%m-%d}" in said
    assert news(path) == said, "said until it comes: a script may have read it first"
    assert await run(path, LATER + 2 * DAY) == ["s-0", "s-1", "s-2"], "not before the day that was announced"
    assert await run(path, LATER + 4 * DAY) == ["s-0"], "a pinned session stays"
    after = LATER + 4 * DAY
    told = news(path, now=after, is_read=False)
    assert told is not None
    assert "2 sessions deleted" in told
    assert news(path, now=after) == told
    assert not any(b"secret work 1" in file.read_bytes() for file in tmp_path.glob("s.db*")), "as `delete` does"
    assert "secret" not in told + path.with_name("s.db.retention").read_text()
    assert news(path, now=after) is None, "said once to a person"


async def test_it_is_done_once_a_day(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    await run(path, LATER)
    await run(path, LATER + 4 * DAY, resolve_settings({"keep_days": 300}))  # looks, and finds nothing
    assert await run(path, LATER + 4 * DAY + timedelta(hours=20)) == ["s-0", "s-1", "s-2"]
    assert await run(path, LATER + 5 * DAY) == ["s-0"]


async def test_an_announcement_lapses_while_nothing_looks_at_the_limits(tmp_path: Path) -> None:
    """The user takes the limits away, as the announcement advises, and sets them again in another year."""
    path = tmp_path / "s.db"
    await fill(path)
    await run(path, LATER)
    assert await run(path, LATER + 300 * DAY) == ["s-0", "s-1", "s-2"]
    assert await run(path, LATER + 304 * DAY) == ["s-0"]


async def test_stricter_limits_are_announced_again(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    await run(path, LATER)
    assert await run(path, LATER + 4 * DAY, resolve_settings({"keep_days": 20})) == ["s-0", "s-1", "s-2"]


async def test_a_session_in_use_stays_whatever_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    short = resolve_settings({"keep_days": 1})
    async with stash_at(path) as stash:
        assert (await stash.retain(NOW + 2 * DAY, settings=short, spare=3 * DAY)).sessions == []
        assert len((await stash.retain(NOW + 2 * DAY, settings=short, spare=DAY)).sessions) == 2


async def test_only_the_users_own_limits_count(tmp_path: Path) -> None:
    own, project = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    project.mkdir()
    (project / "contextstash.toml").write_text("keep_days = 1\n")
    async with stash_at(tmp_path / "s.db") as stash:
        found = configuration(project=project, environment={}, user_folder=own)
        assert not begin_retention(stash, tmp_path / "s.db", found.of_user())
        (own / "contextstash.toml").write_text("keep_days = 90\n")
        found = configuration(project=project, environment={}, user_folder=own)
        assert begin_retention(stash, tmp_path / "s.db", found.of_user())


async def test_limits_that_were_taken_away_are_announced_again(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    await run(path, LATER)
    async with stash_at(path) as stash:
        assert not begin_retention(stash, path, {})
    assert news(path) is None
    assert await run(path, LATER + 5 * DAY) == ["s-0", "s-1", "s-2"]
    assert news(path) is not None


async def test_the_server_and_the_proxy_begin_it_when_they_open_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    monkeypatch.setattr(automatic, "BEGIN_SECONDS", 0.0)
    (tmp_path / "contextstash.toml").write_text("keep_days = 1\n")
    found = configuration(project=tmp_path, environment={}, user_folder=tmp_path)
    async with await StashOpener(path, found, serves=True)():
        await asyncio.gather(*automatic._running)
    assert path.with_name("s.db.retention").exists()


def test_sessions_says_what_comes_each_time(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    asyncio.run(fill(path))
    asyncio.run(run(path, LATER))
    line = CommandLine(tmp_path)
    for _ in range(2):
        assert "2 sessions of 3 will be deleted" in line.run("sessions", "--db", path).stderr


async def test_outputs_of_no_session_go_by_their_age(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    async with stash_at(path) as stash:
        for number in range(5):
            await stash.keep_output(f"output {number} " + secrets.token_hex(20_000), tool="Bash")
        aged = await stash.retain(NOW + 40 * DAY, days=30, dry_run=True)
    assert sorted(line.session_id for line in aged.sessions) == ["outputs", "s-1", "s-2"]


async def test_a_transcript_of_long_ago_is_recorded_when_it_is_imported(tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "type": "user",
        "uuid": "u",
        "parentUuid": None,
        "sessionId": "old",
        "timestamp": "1970-01-01T00:00:00Z",
    }
    said["message"] = {"role": "user", "content": "the machine's clock was wrong"}
    (tmp_path / "old.jsonl").write_text(json.dumps(said) + "\n")
    async with stash_at(tmp_path / "s.db") as stash:
        await ingest(stash, tmp_path / "old.jsonl")
        assert (await stash.retain(NOW + DAY, days=30, dry_run=False)).sessions == []
        assert [line.session_id for line in (await stash.retain(NOW + 31 * DAY, days=30)).sessions] == ["old"]


async def test_a_session_that_goes_on_while_others_are_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    await fill(path, 4)
    monkeypatch.setattr(retention, "TOGETHER", 1)

    async def delete(access: Access, session_id: str, **rest: Any) -> Any:
        """Deletes it, while another process records in one of the next."""
        async with stash_at(path) as other:
            await other.record_messages([{"role": "user", "content": "and now"}], session_id="s-1")
        return await delete_session(access, session_id, **rest)

    monkeypatch.setattr(retention, "delete_session", delete)
    async with stash_at(path) as stash:
        await stash.retain(LATER, days=30, dry_run=False)
        assert await names(stash) == ["s-0", "s-1"]
