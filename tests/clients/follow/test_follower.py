"""Following hosts other than Claude Code, by the project's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextstash.clients.follow import Follower, find_transcripts, ingest
from tests.support.client_files import write_session
from tests.support.stashes import history, stash_at

SESSION = "4c0f2c3a-0000-4000-8000-000000000001"


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
        write_session(host, home, SESSION, Path.cwd(), "One")
        assert await follower.catch_up() == SESSION
        write_session(host, home, SESSION, Path.cwd(), "One", "Two")
        assert await follower.catch_up() == SESSION
        recorded = await history(stash, SESSION)
        assert len(recorded) == 2
        assert "Two" in json.dumps(recorded[1])


@pytest.mark.parametrize("host", FOLLOWED)
async def test_the_session_of_another_folder_is_not_followed(host: str, home: Path) -> None:
    write_session(host, home, SESSION, home / "elsewhere", "One")
    async with stash_at(home.parent / "stash.db") as stash:
        assert await Follower(stash, find_transcripts(host)).catch_up() is None


def test_a_project_folder_that_leads_out_of_the_hosts_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "5b1f6c1e-0000-4000-8000-000000000001.jsonl").write_text("{}\n")
    projects = tmp_path / "config" / "projects"
    projects.mkdir(parents=True)
    (projects / "-srv-app").symlink_to(elsewhere)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(projects.parent))
    assert find_transcripts("claude-code", project=Path("/srv/app"))() == []


async def test_a_session_that_was_deleted_is_not_followed_until_it_is_imported(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stash_at(home.parent / "stash.db") as stash:
        follower = Follower(stash, find_transcripts("codex"))
        write_session("codex", home, SESSION, Path.cwd(), "One")
        assert await follower.catch_up() == SESSION
        await stash.delete_session(SESSION)
        for count in (2, 3):
            write_session("codex", home, SESSION, Path.cwd(), *["One", "Two", "Three"][:count])
            assert await follower.catch_up() is None
            assert not (await stash.list_sessions()).sessions
        assert caplog.text.count("not recorded again; `contextstash import") == 1
        [transcript] = find_transcripts("codex")()
        await ingest(stash, transcript, wanted=True)
        write_session("codex", home, SESSION, Path.cwd(), "One", "Two", "Three", "Four")
        assert await follower.catch_up() == SESSION
        assert len(await history(stash, SESSION)) == 4
