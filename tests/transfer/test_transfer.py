"""Export and import are lossless: messages to the byte, view, handles, summaries, log; so is a copy of a database. What
a database keeps, and what goes by its age."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sqlcipher3 import dbapi2 as sqlite3

from contextstash import transfer
from contextstash.clients.follow import ingest
from contextstash.queries.sessions import title_of
from contextstash.session.access import Access
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Call, DeclaredVersion, Event, Native, Request, Session
from contextstash_storage.sqlite import open_sqlite
from contextstash_storage.store import SessionStore
from tests.support.conversations import FORMAT_NAMES, conversations, trace_files, trace_natives
from tests.support.effort import examples
from tests.support.stashes import SESSION, all_handles, as_bytes, history, stash_at, whole_output
from tests.support.stored_sessions import bodies, conversation, new_session, record

few = settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))


async def exported(stash: Stash, session_id: str = SESSION) -> list[str]:
    return [json.dumps(record) async for record in stash.export_session(session_id)]


async def everything(stash: Stash, session_id: str = SESSION) -> dict[str, Any]:
    """All that the service returns of a session."""
    session = await stash.read_session(session_id)
    return {
        "session": session.model_dump(exclude={"updated_at"}),
        "history": as_bytes(await history(stash, session_id)),
        "view": as_bytes((await stash.read_context(session_id)).messages),
        "estimate": await stash.estimate_context(session_id),
        "status": await stash.context_status(session_id),
        "outputs": {
            handle: await whole_output(stash, handle, session_id) for handle in await all_handles(stash, session_id)
        },
        "events": [event.model_copy(update={"event_id": 0}) for event in await stash.store.read_log(session_id, Event)],
        "declared": await stash.store.read_log(session_id, DeclaredVersion),
        "requests": await stash.store.read_log(session_id, Request, newest=True, limit=100),
        "calls": [call.model_copy(update={"call_id": 0}) for call in await stash.store.read_log(session_id, Call)],
    }


async def worked_on(stash: Stash, natives: Sequence[Native], format_name: str) -> None:
    """Record a session, and prune, compact and restore it."""
    half = len(natives) // 2
    await stash.record_messages(natives[:half] or natives, whole=True, session_id=SESSION, format=format_name)
    await stash.get_context(SESSION, system="Be brief.", tools=[{"name": "first"}])
    await stash.prune_tool_outputs(SESSION, keep_last=1)
    await stash.get_context(SESSION, system="Be long.", tools=[{"name": "first"}, {"name": "second"}])
    await stash.record_messages(natives, whole=True, session_id=SESSION)
    compacted = await stash.compact_session(SESSION)
    if compacted.summary_id:
        await stash.restore_outputs([compacted.summary_id], session_id=SESSION)
        await stash.compact_session(SESSION)
    await stash.limit_output("kept aside\n" * 5_000, session_id=SESSION, limits={"chars": 1_000})


async def assert_equal_after_import(folder: Path, natives: Sequence[Native], format_name: str) -> None:
    async with stash_at(folder / "here.db", window=3_000) as here, stash_at(folder / "there.db", window=3_000) as there:
        await worked_on(here, natives, format_name)
        lines = await exported(here)
        result = await there.import_session(lines)
        assert (result.session_id, result.recorded, result.duplicates) == (SESSION, len(natives), 0)
        assert await everything(there) == await everything(here)
        again = await there.import_session(lines)
        assert (again.recorded, again.duplicates) == (0, len(natives))
        assert await exported(there) == lines
        assert (await there.search_history("kept aside", scope="everywhere")).hits
        known = await there.record_messages(natives, whole=True, session_id=SESSION)
        assert known.recorded == 0


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@few
@given(data=st.data())
async def test_a_generated_session_comes_back_equal(format_name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(format_name, broken=data.draw(st.booleans())))
    assume(natives)
    with TemporaryDirectory() as folder:
        await assert_equal_after_import(Path(folder), natives, format_name)


@pytest.mark.parametrize(("format_name", "path"), trace_files()[:12], ids=lambda value: Path(str(value)).stem[:40])
async def test_a_real_session_comes_back_equal(format_name: str, path: Path, tmp_path: Path) -> None:
    await assert_equal_after_import(tmp_path, trace_natives(format_name, path), format_name)


NATIVES: list[dict[str, Any]] = [
    {"role": "user", "content": "Look. \ud800 lone, \u0000 null, ```fence``` <b>bold</b>"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "ls"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a\n" * 3_000},
    {"role": "assistant", "content": "Done."},
]


async def test_a_session_can_be_imported_under_another_id(stash: Stash) -> None:
    await stash.record_messages(NATIVES, session_id=SESSION)
    result = await stash.import_session(await exported(stash), session_id="copy")
    assert result.session_id == "copy"
    assert await history(stash, "copy") == NATIVES


async def test_an_export_whose_edits_say_what_they_change_in_the_view_is_read(stash: Stash) -> None:
    """As those of commit 81800828 do."""
    await stash.record_messages(NATIVES, session_id=SESSION)
    await stash.prune_tool_outputs(SESSION, keep_last=0, protect_tokens=0, minimum_tokens=0)
    lines = await exported(stash)
    former = [
        line.replace('"event_id": 1, ', "")
        .replace('{"edit": {', '{"edit": {"delta": {"user": -1}, "view_messages": 0, "view_results": -1, ')
        .replace('{"role"', '{"user_visible": true, "role"')
        .replace('{"type": ', '{"breakpoint": false, "type": ')
        .replace('"counters": {', '"counters": {"level": "ok", ')
        for line in lines
    ]
    assert former != lines
    event = next(place for place, line in enumerate(former) if line.startswith('{"event"'))
    former.insert(event, former[event].replace('"kind": "prune"', '"kind": "level"'))
    former[0] = former[0].replace('"settings": {}', '"settings": {"thinking": "strip", "first_cut_tokens": 900}')
    former[-1] = former[-1].replace('"events": 1', '"events": 2')
    await stash.import_session(former, session_id="copy")
    assert await stash.store.read_edits("copy") == await stash.store.read_edits(SESSION)


async def test_a_reply_is_booked_to_a_request_of_which_a_former_export_has_a_part(stash: Stash) -> None:
    await stash.record_messages(NATIVES, session_id=SESSION)
    await stash.get_context(SESSION)
    head, *lines = await exported(stash)
    first = json.loads(head)
    counters = first["session"]["counters"]
    kept = {name: counters["request"][name] for name in ("number", "counted", "messages", "edits", "appended")}
    counters["request"] = {**kept, "declared": 7}  # as of commit 81800828
    await stash.import_session([json.dumps(first), *lines], session_id="copy")
    usage = {"prompt_tokens": 9_000, "completion_tokens": 5}
    for name in (SESSION, "copy"):
        await stash.record_messages([{"role": "assistant", "content": "More."}], session_id=name, usage=usage)
    assert await stash.store.read_log("copy", Request) == await stash.store.read_log(SESSION, Request)
    assert (await stash.estimate_context("copy")).tokens == (await stash.estimate_context(SESSION)).tokens


async def test_another_session_of_the_same_id_is_not_touched(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "a.db") as one, stash_at(tmp_path / "b.db") as other:
        await one.record_messages(NATIVES, session_id=SESSION)
        await other.record_messages([{"role": "user", "content": "Mine."}], session_id=SESSION)
        with pytest.raises(BadInputError, match="--session NEW_ID"):
            await other.import_session(await exported(one))
        assert await history(other) == [{"role": "user", "content": "Mine."}]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("{", ""),
        ("5", ""),
        ('{"message": {}}', ""),
        ('{"edit": {"kind": "none"}}', ""),
        ('{"new": {}}', ""),
        ('{"message": 1E400}', "holds inf"),
    ],
)
async def test_a_broken_line_is_named_and_nothing_is_stored(tmp_path: Path, broken: str, says: str) -> None:
    lines = await lines_of_a_session(tmp_path)
    await hold_refused([*lines[:3], broken, *lines[3:]], lines, f"Line 4 {says}.*Nothing of that session was stored")


async def hold_refused(lines: Sequence[str], whole: Sequence[str], match: str) -> None:
    """These lines are refused with these words, nothing of them is stored, and the whole file is imported then."""
    with TemporaryDirectory() as folder:
        async with stash_at(Path(folder) / "there.db") as there:
            with pytest.raises(BadInputError, match=match):
                await there.import_session(lines)
            assert (await there.list_sessions()).sessions == []
            assert (await there.import_session(whole)).recorded == len(NATIVES)
            assert await exported(there) == list(whole)


async def lines_of_a_session(tmp_path: Path, *, kept: bool = False) -> list[str]:
    async with stash_at(tmp_path / "here.db", window=3_000) as here:
        await here.record_messages(NATIVES, session_id=SESSION)
        await here.prune_tool_outputs(SESSION, keep_last=0, protect_tokens=0, minimum_tokens=0)
        if kept:
            await here.limit_output("kept aside\n" * 5_000, session_id=SESSION, limits={"chars": 1_000})
        return await exported(here)


@pytest.mark.parametrize("kept", [False, True])
async def test_an_export_cut_at_any_line_end_is_refused_and_the_whole_one_imported_later(
    tmp_path: Path, kept: bool
) -> None:
    lines = await lines_of_a_session(tmp_path, kept=kept)
    end = next(place for place, line in enumerate(lines) if line.startswith('{"end"'))
    for cut in range(1, end + 1 + kept):
        await hold_refused(lines[:cut], lines, "Nothing of that session was stored")
    fewer = lines[end].replace('"messages": 4', '"messages": 3')  # what the head says counts too
    await hold_refused([*lines[:4], *lines[5:end], fewer, *lines[end + 1 :]], lines, "does not hold all of session")


@pytest.mark.parametrize("place", [1, 2, 3, 4, 5])
async def test_a_missing_doubled_or_moved_line_is_named(tmp_path: Path, place: int) -> None:
    lines = await lines_of_a_session(tmp_path)
    changed = {
        "missing": [*lines[:place], *lines[place + 1 :]],
        "doubled": [*lines[: place + 1], *lines[place:]],
        "moved": [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]],
    }
    for name, wrong in changed.items():
        if name != "moved" or place < 4:  # an edit and an event do not stand at positions of one list
            await hold_refused(wrong, lines, "Nothing of that session was stored")


async def test_an_export_of_a_session_in_use_is_of_the_moment_at_which_it_began(stash: Stash) -> None:
    await stash.record_messages([{"role": "user", "content": "Hello."}], session_id=SESSION)
    await stash.get_context(SESSION)
    lines: list[str] = []
    async for exported_record in stash.export_session(SESSION):
        if not lines:
            await stash.get_context(SESSION)
        lines.append(json.dumps(exported_record))
    await stash.import_session(lines, session_id="copy")
    requests = await stash.store.read_log("copy", Request)
    assert len(requests) == (await stash.store.get_session("copy")).counters.requests == 1


async def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    lines = await lines_of_a_session(tmp_path)
    other = lines[0].replace('"contextstash_session": 4', '"contextstash_session": 3')
    await hold_refused([other, *lines[1:]], lines, "Line 1 does not begin a session of version 4: export it again")


async def fill(store: SessionStore) -> None:
    for name in ("one", "two", "three"):
        await new_session(store, name)
        await record(store, *conversation(5), session_id=name)


async def test_a_damaged_session_is_named_and_all_others_are_copied(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "source.db") as source:
        await fill(source)
    with closing(sqlite3.connect(tmp_path / "source.db")) as db, db:
        db.execute("UPDATE segments SET contents = x'00' WHERE session = 2")
    async with await open_sqlite(tmp_path / "source.db") as source, await open_sqlite(tmp_path / "target.db") as target:
        done = await transfer.migrate_store(source, target)
        assert done.copied == 2
        assert list(done.failed) == ["two"]
        assert "damaged" in done.failed["two"]
        assert len(await bodies(target, "one")) == len(await bodies(target, "three")) == 10


DAY = timedelta(days=1)
NOW = datetime.now(UTC)


async def filled(path: Path, count: int = 3) -> None:
    async with stash_at(path) as stash:
        for number in range(count):
            await stash.record_messages(
                [{"role": "user", "content": f"secret work {number}"}], session_id=f"s-{number}"
            )
        await stash.configure_session("s-0", settings={"pin": ["rule: keep"]})


async def test_a_transcript_of_long_ago_is_recorded_when_it_is_imported(stash: Stash, tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "type": "user", "uuid": "u", "parentUuid": None, "sessionId": "old", "timestamp": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    said["message"] = {"role": "user", "content": "the machine's clock was wrong"}
    (tmp_path / "old.jsonl").write_text(json.dumps(said) + "\n")
    await ingest(stash, tmp_path / "old.jsonl")
    assert (await stash.retain(NOW + DAY, days=30, dry_run=False)).sessions == []
    assert [line.session_id for line in (await stash.retain(NOW + 31 * DAY, days=30)).sessions] == ["old"]


async def test_a_session_that_goes_on_while_others_are_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    await filled(path, 4)

    async def title(access: Access, session: Session) -> str | None:
        """Its title, while another process records in one of them."""
        async with stash_at(path) as other:
            await other.record_messages([{"role": "user", "content": "and now"}], session_id="s-1")
        return await title_of(access, session)

    monkeypatch.setattr(transfer, "title_of", title)
    async with stash_at(path) as stash:
        done = await stash.retain(NOW + 60 * DAY, days=30, dry_run=False)
        assert {line.session_id for line in done.sessions} == {"s-2", "s-3"}
        assert {line.session_id for line in (await stash.list_sessions()).sessions} == {"s-0", "s-1"}


async def test_outputs_of_no_session_go_by_their_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    monkeypatch.setattr("contextstash.transfer.TOGETHER", 1)
    await filled(path)
    async with stash_at(path) as stash:
        for _ in range(5):
            await stash.limit_output(secrets.token_hex(20_000), limits={"chars": 1_000})
        aged = await stash.retain(NOW + 40 * DAY, days=30, dry_run=True)
        assert sorted(line.session_id for line in aged.sessions) == ["outputs", "s-1", "s-2"]
        # A session stays with one of its sub-agents.
        await stash.record_messages(NATIVES, session_id="s-1.x", parent_session_id="s-1", settings={"pin": ["a.py"]})
        aged = await stash.retain(NOW + 40 * DAY, days=30, dry_run=False)
        assert sorted(line.session_id for line in aged.sessions) == ["outputs", "s-2"]
