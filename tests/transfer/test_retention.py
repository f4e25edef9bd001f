"""Retention: which sessions go by their age, and which stay."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contextstash import transfer
from contextstash.clients.follow import ingest
from contextstash.session.access import Access
from contextstash.stash import Stash
from contextstash.transfer import delete_session
from tests.support.stashes import stash_at

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


async def fill(path: Path, count: int = 3) -> None:
    async with stash_at(path) as stash:
        for number in range(count):
            await stash.record_messages(
                [{"role": "user", "content": f"secret work {number}"}], session_id=f"s-{number}"
            )
        await stash.configure_session("s-0", settings={"pin": ["rule: keep"]})


async def test_outputs_of_no_session_go_by_their_age(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path)
    async with stash_at(path) as stash:
        for _ in range(5):
            await stash.limit_output(secrets.token_hex(20_000), limits={"chars": 1_000})
        aged = await stash.retain(NOW + 40 * DAY, days=30, dry_run=True)
    assert sorted(line.session_id for line in aged.sessions) == ["outputs", "s-1", "s-2"]


async def test_a_transcript_of_long_ago_is_recorded_when_it_is_imported(stash: Stash, tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "type": "user",
        "uuid": "u",
        "parentUuid": None,
        "sessionId": "old",
        "timestamp": "1970-01-01T00:00:00Z",
    }
    said["message"] = {"role": "user", "content": "the machine's clock was wrong"}
    (tmp_path / "old.jsonl").write_text(json.dumps(said) + "\n")
    await ingest(stash, tmp_path / "old.jsonl")
    assert (await stash.retain(NOW + DAY, days=30, dry_run=False)).sessions == []
    assert [line.session_id for line in (await stash.retain(NOW + 31 * DAY, days=30)).sessions] == ["old"]


async def test_a_session_that_goes_on_while_others_are_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    await fill(path, 4)
    monkeypatch.setattr(transfer, "TOGETHER", 1)

    async def delete(access: Access, session_id: str, **rest: Any) -> Any:
        """Deletes it, while another process records in one of the next."""
        async with stash_at(path) as other:
            await other.record_messages([{"role": "user", "content": "and now"}], session_id="s-1")
        return await delete_session(access, session_id, **rest)

    monkeypatch.setattr(transfer, "delete_session", delete)
    async with stash_at(path) as stash:
        await stash.retain(NOW + 60 * DAY, days=30, dry_run=False)
        assert {line.session_id for line in (await stash.list_sessions()).sessions} == {"s-0", "s-1"}
