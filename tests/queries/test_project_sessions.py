"""Searches in the sessions of one project."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contextstash.clients.follow import ingest
from contextstash.clients.projects import project_of
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError
from contextstash_storage.sqlite.store import open_sqlite

FOLDERS = {"first": "/srv/orchard", "second": "/srv/orchard/docs", "third": "/srv/orchards"}


@pytest.fixture
async def stash(tmp_path: Path) -> AsyncIterator[Stash]:
    opened = Stash(await open_sqlite(tmp_path / "stash.db"), project_of=project_of)
    for session, folder in FOLDERS.items():
        prompt = {
            "type": "user",
            "uuid": f"{session}-1",
            "parentUuid": None,
            "sessionId": session,
            "cwd": folder,
            "isSidechain": False,
            "timestamp": "2026-01-28T22:26:39.918Z",
            "message": {"role": "user", "content": f"Graft the quince in {session}."},
        }
        transcript = tmp_path / f"{session}.jsonl"
        transcript.write_text(json.dumps(prompt) + "\n", encoding="utf-8")
        await ingest(opened, transcript)
    yield opened
    await opened.close()


async def sessions_found(stash: Stash, session_id: str | None = None, project: str | None = None) -> set[str | None]:
    found = await stash.search_history("quince", session_id=session_id, scope="project", project=project)
    return {hit.session_id for hit in found.hits}


async def test_a_project_is_the_folder_that_the_client_ran_in_with_those_below_it(stash: Stash) -> None:
    assert await sessions_found(stash, "first") == {"first", "second"}
    assert await sessions_found(stash, "second") == {"second"}
    assert await sessions_found(stash, project="/srv/orchards") == {"third"}
    assert await sessions_found(stash, project="/srv") == set(FOLDERS)
    assert await sessions_found(stash, project="/home") == set()


async def test_a_session_without_a_transcript_has_no_known_project(stash: Stash) -> None:
    await stash.record_messages([{"role": "user", "content": "Graft the quince."}], session_id="program")
    with pytest.raises(BadInputError, match="Use the scope everywhere"):
        await sessions_found(stash, "program")
