"""What a hook does with the stash: open it, limit outputs, read transcripts, find the session to hand off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contextstash.api_key import api_key_from
from contextstash.configuration import RemarkHandler, configuration, sets_output_limits
from contextstash.context.tool_outputs.limits import OutputLimits
from contextstash.context.window.settings import ContextSettings, resolve_settings
from contextstash.hosts.following.ingest import ingest
from contextstash.hosts.hooks.host import HookHost
from contextstash.hosts.hooks.log import note
from contextstash.hosts.own_files import own_file
from contextstash.hosts.project_folder import project_folder
from contextstash.hosts.readers.kinds import recognize
from contextstash.hosts.regular_files import read_regular
from contextstash.hosts.windows import HOST_WINDOWS
from contextstash.locations import default_database
from contextstash.service.stash import Stash
from contextstash_storage.errors import BadInputError
from contextstash_storage.sqlite import open_sqlite

BUSY_SECONDS = 2.0
"""How long a hook waits while another process writes to the database, before it gives up: the client waits for the hook
after every tool call. A guess."""

CHARACTERS_PER_TOKEN = 4
"""The usual estimate for English text and code."""

MAX_PERSISTED_BYTES = 32 * 1024 * 1024
"""The largest file of a persisted output that is read: a guess, which bounds the hook's memory."""

COMPARED_CHARACTERS = 1_000
"""If so many first characters of a file and of an output are equal, the file holds the whole output. A guess."""

MAX_SESSIONS_SEARCHED = 50
"""How many of the latest sessions are searched for the one that was cleared: a guess; it was in use just before."""


@asynccontextmanager
async def hook_stash(agent: str, on_remark: RemarkHandler) -> AsyncIterator[tuple[Stash, dict[str, Any] | None]]:
    """The stash with the settings for this client, and the limits of one output in characters, None if the settings
    limit no outputs. `on_remark` is called with each remark on a project's file."""
    found = configuration(project=project_folder(os.environ), environment=os.environ, on_remark=on_remark)
    layer = found.settings_layer(agent)
    settings = resolve_settings(layer)
    limits = limits_in_characters(settings) if sets_output_limits(layer) else None
    stash = Stash(
        await open_sqlite(default_database(), busy_seconds=BUSY_SECONDS),
        settings=found.settings_layer,
        api_key=api_key_from(os.environ),
        consent=found.may_call_model,
        host_windows=HOST_WINDOWS,
    )
    try:
        yield stash, limits
    finally:
        await stash.close()


def limits_in_characters(settings: ContextSettings) -> dict[str, Any]:
    """The limits of one output, with tokens converted to characters: to load a tokenizer's vocabulary takes longer than
    a hook should."""
    limits = OutputLimits.of(settings, settings.window)
    given: dict[str, Any] = {"tokens": None}
    if limits.tokens is not None:
        characters = limits.tokens * CHARACTERS_PER_TOKEN
        given["chars"] = characters if limits.chars is None else min(characters, limits.chars)
    return given


async def whole_texts(host: HookHost, response: Any, texts: Sequence[str]) -> list[str]:
    """The texts of a response. If the host keeps the whole of the first one in a file, because the response holds only
    its beginning, the text is read from there."""
    path = host.persisted_output(response)
    if path is None or not texts:
        return list(texts)
    whole = await asyncio.to_thread(_persisted_text, host, path)
    is_same = whole is not None and whole.startswith(texts[0][:COMPARED_CHARACTERS])
    return [whole, *texts[1:]] if whole is not None and is_same else list(texts)


def _persisted_text(host: HookHost, path: str) -> str | None:
    """The file's text; None, and a line in the log, if it is not one of the host's own files."""
    try:
        file = _own_file(host, path)
        return None if file is None else read_regular(file, MAX_PERSISTED_BYTES).decode("utf-8", "surrogateescape")
    except (OSError, BadInputError) as error:
        note(host.name, f"An output's file: {error}")
        return None


async def read_transcripts(host: HookHost, stash: Stash, event: Mapping[str, Any]) -> str | None:
    """Record what is new in the event's transcript and in those of its sub-agents; returns the session's id.
    Raises BadInputError if the file is not one of the host's own."""
    named = event.get("transcript_path")
    if not isinstance(named, str) or not named:
        return None
    path = await asyncio.to_thread(_own_file, host, named)
    if path is None:
        return None
    reader = recognize(path)
    report = await ingest(stash, path, reader=reader)
    for transcript in host.sub_agents(path):
        await ingest(stash, transcript, reader=reader)
    return report.session_id


async def hand_off(host: HookHost, stash: Stash, event: Mapping[str, Any]) -> str | None:
    """The hand-off for the new window: of the session that continues in it, or of the one that was cleared."""
    session_id = await read_transcripts(host, stash, event)
    if event.get("source") == "clear":
        session_id = await _cleared_session(host, stash, event)
    return None if session_id is None else await stash.hand_off(session_id)


async def _cleared_session(host: HookHost, stash: Stash, event: Mapping[str, Any]) -> str | None:
    """The latest other session of the same project."""
    named = str(event.get("transcript_path") or "")
    current = await asyncio.to_thread(lambda: Path(named).expanduser().resolve())
    folder = event.get("cwd") if isinstance(event.get("cwd"), str) else None
    for line in (await stash.list_sessions(limit=MAX_SESSIONS_SEARCHED)).sessions:
        session = await stash.read_session(line.session_id)
        if session.source is None or session.parent_session_id or session.session_id == event.get("session_id"):
            continue
        if await asyncio.to_thread(host.is_of_same_project, Path(session.source), current, folder):
            return session.session_id
    return None


def _own_file(host: HookHost, path: str) -> Path | None:
    return own_file(path, host.name, host.own_folders(Path.home()))
