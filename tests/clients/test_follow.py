"""What is new in a transcript goes into the stash once, however the file came to grow."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from contextstash.clients.follow import Follower, find_transcripts, ingest
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError
from tests.support.client_files import SESSION, as_lines, call, prompt, reply, write_lines, write_session
from tests.support.stashes import history, stash_at

TALK = [prompt("a", None, "First question"), reply("b", "a", "First answer"), prompt("c", "b", "Second question")]


PROJECT = Path("/srv/app")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the project's transcripts."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    made = tmp_path / "projects" / "-srv-app"
    made.mkdir(parents=True)
    return made


async def texts(stash: Stash, session_id: str = SESSION) -> list[Any]:
    page = await stash.read_messages(session_id)
    return [message.message["content"] for message in page.messages]


async def test_of_a_file_that_lost_its_middle_and_grew_beyond_that_everything_new_is_recorded(
    stash: Stash, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    first = prompt("a", None, "First question " + "with many words " * 100)
    path.write_bytes(as_lines([first, *TALK[1:]]))
    await ingest(stash, path)
    more = [prompt("d", "a", "Third question"), reply("e", "d", "Third answer " + "with many words " * 100)]
    path.write_bytes(as_lines([first, *more]))
    await ingest(stash, path)
    assert "Third question" in await texts(stash)


async def test_broken_and_unknown_lines_lose_nothing_else(
    stash: Stash, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transcript = tmp_path / f"{SESSION}.jsonl"
    unknown = as_lines([{"type": "a-new-thing", "uuid": "n", "parentUuid": "b", "sessionId": SESSION}])
    together = as_lines([prompt("d", "c", "Third"), prompt("e", "d", "Fourth")]).replace(b"}\n{", b"}{")  # on one line
    data = as_lines(TALK[:2]) + b'{"type":"user","secret\n\xff\xfe\n' + unknown + as_lines(TALK[2:]) + together
    transcript.write_bytes(data.replace(b"\n", b"\r\n"))
    await ingest(stash, transcript)
    assert len(await texts(stash)) == 5
    assert "secret" not in caplog.text


async def test_the_follower_records_what_is_new_at_each_call(stash: Stash, folder: Path) -> None:
    follower = Follower(stash, find_transcripts("claude-code", PROJECT))
    assert await follower.catch_up() is None
    transcript = folder / f"{SESSION}.jsonl"
    transcript.write_bytes(as_lines(TALK[:2]))
    assert await follower.catch_up() == SESSION
    with transcript.open("ab") as file:
        file.write(as_lines(TALK[2:]))
    assert await asyncio.gather(*(follower.catch_up() for _ in range(4))) == [SESSION] * 4
    assert len(await texts(stash)) == 3


async def test_the_follower_records_sub_agents_as_sessions_of_their_own(stash: Stash, folder: Path) -> None:
    (folder / SESSION / "subagents").mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").write_bytes(as_lines(TALK))
    side = prompt("s", None, "Look into it", isSidechain=True, agentId="a1b2c3")
    (folder / SESSION / "subagents" / "agent-a1b2c3.jsonl").write_bytes(as_lines([side]))
    assert await Follower(stash, find_transcripts("claude-code", PROJECT)).catch_up() == SESSION
    assert await texts(stash, f"{SESSION}.a1b2c3") == ["Look into it"]
    assert len(await texts(stash)) == 3


@pytest.fixture
def windows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The transcripts of two windows in which a tool was called, A's written last, and that of B's sub-agent."""
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID", raising=False)
    files = {"B": folder / "B.jsonl", "agent": folder / "B" / "subagents" / "agent-1.jsonl", "A": folder / "A.jsonl"}
    for place, (name, path) in enumerate(files.items()):
        session_id = "B" if name == "agent" else name
        records = [prompt("p", None, f"The task of {name}"), call("c", "p", f"toolu_{name}")]
        records[1]["timestamp"] = "2026-03-03T09:01:00.000Z"
        write_lines(path, [{**each, "sessionId": session_id, "isSidechain": name == "agent"} for each in records])
        os.utime(path, (1_800_000_000 + place, 1_800_000_000 + place))
    return files


def used(call_id: str) -> dict[str, Any]:
    return {"claudecode/toolUseId": call_id}


async def test_a_window_is_told_of_its_own_session_while_another_one_works_in_its_folder(
    windows: dict[str, Path], tmp_path: Path
) -> None:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "contextstash", "serve", "--follow", "claude-code", "--db", str(tmp_path / "stash.db")],
        env={**os.environ, "CLAUDE_PROJECT_DIR": str(PROJECT)},
    )
    async with Client(parameters, read_timeout_seconds=60) as client:
        for name in ("A", "B", "A"):
            meta: Any = used(f"toolu_{name}")
            found: Any = (await client.call_tool("search_history", {"query": "task"}, meta=meta)).structured_content
            assert [hit["session_id"] for hit in found["hits"]] == [name]
        refused = await client.call_tool("prune_tool_outputs", {})
    assert refused.is_error
    assert "Pass session_id" in str(refused.content)


def test_a_call_is_the_sessions_whose_transcript_has_its_id_soon(windows: dict[str, Path]) -> None:
    find = find_transcripts("claude-code", PROJECT)
    assert find(used("toolu_agent")) == find(used("toolu_B")) == [windows["B"], windows["agent"]]

    def write() -> None:
        with windows["B"].open("ab") as file:
            file.write(as_lines([call("d", "c", "toolu_late")]))

    timer = threading.Timer(0.2, write)
    timer.start()
    assert find(used("toolu_late"))[0] == windows["B"]
    timer.join()


@pytest.mark.parametrize("given", [{}, used("toolu_nowhere")])
def test_a_call_that_names_no_session_is_of_the_one_that_the_server_was_started_for_or_refused(
    windows: dict[str, Path], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = find_transcripts("claude-code", PROJECT)
    with pytest.raises(BadInputError, match="Pass session_id"):
        find(given)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "B")
    assert find(given)[0] == windows["B"]


async def test_codex_names_the_session_of_a_call(home: Path) -> None:
    other = NAME.replace("1", "9")
    find = find_transcripts("codex")
    named = {each: write_session("codex", home, each, Path.cwd(), "One") for each in (NAME, other)}
    for thread, session_id in ((NAME, NAME), (other, other), ("of-a-sub-agent", NAME)):
        meta = {"x-codex-turn-metadata": {"thread_id": thread, "session_id": session_id}}
        assert find(meta) == [named[session_id]]


def test_an_unknown_host_cannot_be_followed() -> None:
    for name in ("no-such-host", "cursor"):
        with pytest.raises(BadInputError, match="Known: claude-code, codex, gemini, opencode, pi"):
            find_transcripts(name)


NAME = "4c0f2c3a-0000-4000-8000-000000000001"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, in which a project is the current folder, and no host's variables."""
    for name in ("CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", "/srv/of-the-outer-claude")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "orchard").mkdir()
    monkeypatch.chdir(tmp_path / "orchard")
    return tmp_path / "home"


FOLLOWED = ("codex", "gemini", "opencode", "pi")


@pytest.mark.parametrize("host", FOLLOWED)
async def test_the_session_of_the_current_folder_is_followed_as_it_grows(host: str, home: Path) -> None:
    async with stash_at(home.parent / "stash.db") as stash:
        follower = Follower(stash, find_transcripts(host))
        assert await follower.catch_up() is None
        write_session(host, home, NAME, Path.cwd(), "One")
        assert await follower.catch_up() == NAME
        write_session(host, home, NAME, Path.cwd(), "One", "Two")
        assert await follower.catch_up() == NAME
        recorded = await history(stash, NAME)
        assert len(recorded) == 2
        assert "Two" in json.dumps(recorded[1])


@pytest.mark.parametrize("host", FOLLOWED)
def test_the_session_of_another_folder_is_not_followed_and_of_two_at_once_neither(host: str, home: Path) -> None:
    other, elsewhere = NAME.replace("1", "9"), NAME.replace("1", "8")
    write_session(host, home, elsewhere, home / "elsewhere", "One")
    find = find_transcripts(host)
    assert find() == []
    write_session(host, home, NAME, Path.cwd(), "One", "Two", hour=10)
    newer = write_session(host, home, other, Path.cwd(), "One", "Two", hour=11)
    assert find() == [newer], "the one that followed the other in its window"
    write_session(host, home, NAME, Path.cwd(), "One", "Two", "Three", hour=11)
    with pytest.raises(BadInputError, match="Pass session_id"):
        find()


def test_a_project_folder_that_leads_out_of_the_hosts_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = write_lines(tmp_path / "elsewhere" / f"{SESSION}.jsonl", TALK)
    folder.rmdir()
    folder.symlink_to(elsewhere.parent)
    assert find_transcripts("claude-code", PROJECT)() == []


async def test_a_session_that_was_deleted_is_not_followed_until_it_is_imported(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stash_at(home.parent / "stash.db") as stash:
        follower = Follower(stash, find_transcripts("codex"))
        write_session("codex", home, NAME, Path.cwd(), "One")
        assert await follower.catch_up() == NAME
        await stash.delete_session(NAME)
        for count in (2, 3):
            write_session("codex", home, NAME, Path.cwd(), *["One", "Two", "Three"][:count])
            assert await follower.catch_up() is None
            assert not (await stash.list_sessions()).sessions
        assert caplog.text.count("not recorded again; `contextstash import") == 1
        [transcript] = find_transcripts("codex")()
        await ingest(stash, transcript, wanted=True)
        write_session("codex", home, NAME, Path.cwd(), "One", "Two", "Three", "Four")
        assert await follower.catch_up() == NAME
        assert len(await history(stash, NAME)) == 4
