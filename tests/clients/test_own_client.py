"""A client that another package brings by an entry point: the documented example, installed and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contextstash.clients.client import client, clients
from contextstash.clients.follow import Follower, find_transcripts
from contextstash.stash import Stash
from tests.support.client_files import write_lines
from tests.support.stashes import history

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_client.py"
LINES = [
    {"notebook": "n1", "id": "1", "who": "user", "text": "Count the trees.", "at": "2026-11-23T10:00:00Z"},
    {"notebook": "n1", "id": "2", "who": "assistant", "text": "Seven."},
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the package of the example, as pip would leave it."""
    folder = tmp_path / "site"
    described = folder / "own_client-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: own-client\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[contextstash.clients]\nnotebook = own_client:NOTEBOOK\n")
    shutil.copy(EXAMPLE, folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "own_client", raising=False)
    return folder


async def test_its_current_transcript_is_followed(
    installed: Path, stash: Stash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert client("notebook").name in [each.name for each in clients()]
    write_lines(tmp_path / ".notebook" / "a.notes", LINES[:1])
    follower = Follower(stash, find_transcripts("notebook"))
    assert await follower.catch_up() == "n1"
    write_lines(tmp_path / ".notebook" / "a.notes", LINES)
    assert await follower.catch_up() == "n1"
    said = [message["content"] for message in await history(stash, "n1")]
    assert said == ["Count the trees.", "Seven."]


def test_its_transcripts_are_imported(installed: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.notes", LINES)
    database = str(tmp_path / "sessions.db")
    done = subprocess.run(
        [sys.executable, "-m", "contextstash", "import", "--db", database, str(path), "--json"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [(each["session_id"], each["recorded"]) for each in json.loads(done.stdout)] == [("n1", 2)]


def test_a_client_that_cannot_be_imported_is_left_out_with_a_warning(
    installed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (installed / "own_client.py").write_text("raise RuntimeError('broken')\n")
    assert "codex" in [each.name for each in clients()]
    assert "own_client:NOTEBOOK" in caplog.text
