"""The stash of a hook: opens it, reads transcripts, finds the session to hand off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from contextstash.clients.client import Client, Hooks, hooks_of
from contextstash.clients.follow import NOT_RECORDED, ingest, recognize
from contextstash.clients.hook_files import BUSY_SECONDS, note, own_file
from contextstash.clients.projects import project_folder, project_of
from contextstash.configuration.api_key import api_key_from
from contextstash.configuration.database import open_database
from contextstash.configuration.setting_layers import configuration
from contextstash.stash import Stash
from contextstash.view.handoff_parts import Part
from contextstash.window.settings import resolve_settings

MAX_SESSIONS_SEARCHED = 50
"""How many of the latest sessions are searched for the one that was cleared, which was in use just before. If it is
not among them, the new session starts without a hand-off."""


@asynccontextmanager
async def hook_stash(client: Client) -> AsyncIterator[Stash]:
    """The stash with the settings for this client. Remarks on a project's files go to the log."""
    remark = partial(note, client.name)
    found = configuration(project=project_folder(os.environ), environment=os.environ, on_remark=remark)
    resolve_settings(found.settings_layer(client.name))
    async with Stash(
        await open_database(busy_seconds=BUSY_SECONDS),
        settings=found.settings_layer,
        api_key=api_key_from(os.environ),
        consent=found.may_call_model,
        host_windows={client.name: client.used_window} if client.used_window else {},
        project_of=project_of,
    ) as stash:
        yield stash


async def read_transcripts(client: Client, stash: Stash, event: Mapping[str, Any]) -> dict[Path, str | None]:
    """Record what is new in the event's transcript and in those of its sub-agents. Returns the session of each file,
    the event's own first. Raises BadInputError if that file is not one of the client's own."""
    named = event.get("transcript_path")
    if not isinstance(named, str) or not named:
        return {}
    path = await asyncio.to_thread(own_file, named, client.name, hooks_of(client).own_folders(Path.home()))
    if path is None:
        return {}
    reader = await asyncio.to_thread(recognize, path)
    files = [path, *(client.files.sub_agents(path) if client.files else [])]
    reports = {file: await ingest(stash, file, reader=reader) for file in files}
    if reports[path].deleted:
        note(client.name, NOT_RECORDED % (path.name, path), once=True)
    return {file: report.session_id for file, report in reports.items()}


async def hand_off(client: Client, stash: Stash, event: Mapping[str, Any], given: tuple[int, int]) -> str | None:
    """The `given` part of the hand-off for the new window, once: of the session that continues in it, or of the one
    that was cleared."""
    hooks = hooks_of(client)
    part = Part(*given, hooks.context_limit)
    sessions = await read_transcripts(client, stash, event)
    if event.get("source") == "clear":
        cleared = await _cleared_session(hooks, stash, event)
        window = str(event.get("session_id") or "of no name")
        return None if cleared is None else await stash.hand_off(cleared, to=window, part=part)
    transcript = next(iter(sessions), None)
    if transcript is not None and event.get("source") == "compact":
        transcript = await asyncio.to_thread(hooks.compacted, transcript, [*sessions][1:])
    session_id = None if transcript is None else sessions[transcript]
    resumed = event.get("source") == "resume"
    return None if session_id is None else await stash.hand_off(session_id, resumed=resumed, part=part)


async def _cleared_session(hooks: Hooks, stash: Stash, event: Mapping[str, Any]) -> str | None:
    """The latest other session of the same project."""
    named = str(event.get("transcript_path") or "")
    current = await asyncio.to_thread(lambda: Path(named).expanduser().resolve())
    folder = event.get("cwd") if isinstance(event.get("cwd"), str) else None
    for line in (await stash.list_sessions(limit=MAX_SESSIONS_SEARCHED)).sessions:
        session = await stash.read_session(line.session_id)
        if session.source is None or session.parent_session_id or session.session_id == event.get("session_id"):
            continue
        if await asyncio.to_thread(hooks.is_of_same_project, Path(session.source), current, folder):
            return session.session_id
    return None
