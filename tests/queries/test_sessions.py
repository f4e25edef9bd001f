"""What is told of sessions: their settings, titles and states, what a search in one finds, and how one goes on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash.stash import Stash
from contextstash_storage.errors import SessionNotFoundError
from tests.support.stashes import SESSION, reply, round_of, stash_at, user


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


async def test_a_list_shows_what_is_damaged(stash: Stash, tmp_path: Path) -> None:
    for name in ("whole", "damaged"):
        await stash.record_messages([user(40)], session_id=name)
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute(
            "UPDATE segments SET contents = x'00' WHERE session = (SELECT session FROM sessions WHERE session_id = ?)",
            ("damaged",),
        )
    titles = {line.session_id: line.title for line in (await stash.list_sessions()).sessions}
    assert titles.keys() == {"whole", "damaged"}
    assert titles["whole"]
    assert titles["damaged"] is None


async def test_an_agent_finds_what_its_view_does_not_show_first(tmp_path: Path) -> None:
    natives = [user(40)]
    for number, kind in enumerate(["pears"] * 4 + ["figs"]):
        natives += round_of(number, f"{kind} and quinces, batch {number}\n" * 200)
    natives += round_of(5, "quinces quinces quinces\n" * 5)
    async with stash_at(tmp_path / "u.db", automatic=False) as stash:
        await stash.record_messages(natives, session_id=SESSION)
        shown = (await stash.search_history("quinces", session_id=SESSION, limit=2)).hits
        pruned = await stash.prune_tool_outputs(SESSION, keep_last=2)
        unseen = (await stash.search_history("quinces", session_id=SESSION, limit=2)).hits
        by_words = (await stash.search_history("quinces", session_id=SESSION, limit=2, unseen_first=False)).hits
        best = (await stash.search_history("figs", session_id=SESSION, limit=2)).hits
    with closing(sqlite3.connect(tmp_path / "u.db")) as db, db:
        db.execute("UPDATE log SET record = x'00' WHERE kind = 'edit'")
    async with stash_at(tmp_path / "u.db", automatic=False) as stash:
        for first in (True, False):
            found = await stash.search_history("quinces", session_id=SESSION, limit=2, unseen_first=first)
            assert found.hits == by_words
    archived = {output.handle for output in pruned.archived}
    assert {hit.handle for hit in unseen} <= archived
    assert not {shown[0].handle} & archived
    assert [hit.handle for hit in by_words] == [hit.handle for hit in shown]
    assert best[0].handle not in archived, "a hit that the view shows is found if nothing else has the word"


async def test_it_is_the_branch_that_is_continued(tmp_path: Path) -> None:
    talk = [message for turn in range(6) for message in (user(4_000 + turn), reply(4_000 + turn))]
    async with stash_at(tmp_path / "c.db", window=20_000) as stash:
        await stash.record_messages(talk, session_id=SESSION, whole=True)
        other = [*talk[:9], reply(7)]
        await stash.record_messages(other, session_id=SESSION, whole=True)
        assert await stash.read_conversation(SESSION) == other
        assert (await stash.compact_session(SESSION)).compacted
        assert await stash.read_conversation(SESSION) == other
        await stash.record_messages(talk[:2], session_id=SESSION, whole=True)
        assert await stash.read_conversation(SESSION) == talk[:2]
        with pytest.raises(SessionNotFoundError):
            await stash.read_conversation("no-such")


async def test_an_output_that_was_cut_when_it_was_recorded_is_told_as_kept_whole(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db", window=200_000, estimator="chars", output_tokens=500) as stash:
        await stash.record_messages([*round_of(0, "log line\n" * 2_000), reply(40)], session_id=SESSION)
        status = await stash.context_status(SESSION)
    assert (status.outputs_archived, status.outputs_shortened) == (0, 1)
    assert "1 output cut when new, each kept whole by its handle." in status.in_words()
