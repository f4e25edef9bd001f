"""A session's own settings: what changes with them, and what does not."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash.stash import Stash
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Session
from tests.support.stashes import SESSION, user


async def test_a_preset_changes_every_setting_that_it_names(stash: Stash) -> None:
    await stash.record_messages([user(40)], session_id=SESSION)
    result = await stash.configure_session(SESSION, settings={"preset": "staged"})
    assert {"preset", "window", "estimator", "prune_keep_last", "compact_keep_tokens"} <= set(result.changed)
    assert result.settings["window"] == 180_000


async def test_the_sessions_that_archive_outputs_make_no_short_id_ambiguous(stash: Stash) -> None:
    await stash.record_messages([user(40)], session_id=SESSION)
    await stash.limit_output("much " * 100, session_id=SESSION, limits={"chars": 100})
    assert await stash.complete_session_id(SESSION[:4]) == [SESSION]


async def test_a_summary_is_found_by_its_id_alone_in_whatever_session_it_is(stash: Stash) -> None:
    messages = [user(400), {"role": "assistant", "content": "Done."}] * 60
    await stash.record_messages(messages, session_id=SESSION)
    made = await stash.compact_session(
        SESSION, summary="All is well: the port is 5433, and the tests are green again after the fix."
    )
    assert made.summary_id
    await stash.record_messages([user(40)], session_id="newer")
    assert (await stash.get_summary(level=made.summary_id)).session_id == SESSION
    assert (await stash.get_summary("newer", level=made.summary_id)).session_id == SESSION
    assert (await stash.restore_outputs([made.summary_id])).session_id == SESSION


MENTIONED = "# Files mentioned by the user:\n\n## tax.py: /srv/app/tax.py\n\n## My request for Codex:\nRound the tax."


@pytest.mark.parametrize(
    ("prompts", "title"),
    [
        ([MENTIONED], "Round the tax."),
        (["# Round the tax", "And this."], "# Round the tax"),
        (["四捨五入を直して", "Also this one."], "四捨五入を直して"),
        (["Round `tax(x)` in tax.py. " + "It is wrong. " * 20], "Round `tax(x)` in tax.py. It is wrong."),
    ],
)
async def test_a_title_is_what_the_user_said_first(stash: Stash, prompts: list[str], title: str) -> None:
    said = [{"role": "user", "content": text} for text in prompts]
    replies = [{"role": "assistant", "content": "Yes?"}] * len(said)
    await stash.record_messages([each for pair in zip(said, replies, strict=True) for each in pair], session_id="s")
    [line] = (await stash.list_sessions()).sessions
    assert line.title is not None
    assert line.title.startswith(title)


async def test_a_list_leaves_out_what_is_deleted_meanwhile_and_shows_what_is_damaged(
    stash: Stash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "damaged", "gone"):
        await stash.record_messages([user(40)], session_id=name)
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute(
            "UPDATE segments SET contents = x'00' WHERE session = (SELECT session FROM sessions WHERE session_id = ?)",
            ("damaged",),
        )
    read = stash.store.list_sessions

    async def and_delete_one(**page: Any) -> list[Session]:
        found = await read(**page)
        with suppress(SessionNotFoundError):
            await stash.store.delete_session("gone")
        return found

    monkeypatch.setattr(stash.store, "list_sessions", and_delete_one)
    titles = {line.session_id: line.title for line in (await stash.list_sessions()).sessions}
    assert titles.keys() == {"whole", "damaged"}
    assert titles["whole"]
    assert titles["damaged"] is None
