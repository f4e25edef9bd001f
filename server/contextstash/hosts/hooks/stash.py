"""What a hook does with the stash once it must: open it, read transcripts, find the session to hand off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contextstash.api_key import api_key_from
from contextstash.configuration import Tell, configuration, says_of_outputs
from contextstash.context.tool_outputs.limits import OutputLimits
from contextstash.context.window.settings import ContextSettings, resolve_settings
from contextstash.hosts.following.ingest import ingest
from contextstash.hosts.hooks.log import note
from contextstash.hosts.own_files import own_file
from contextstash.hosts.readers.claude_code import ClaudeCodeReader, agent_transcripts
from contextstash.hosts.readers.codex import is_rollout_of
from contextstash.hosts.readers.kinds import recognize
from contextstash.hosts.regular_files import read_regular
from contextstash.locations import default_database, project_folder
from contextstash.service.stash import Stash
from contextstash_storage.errors import BadInputError
from contextstash_storage.sqlite import open_sqlite

BUSY_SECONDS = 2.0
"""How long a hook waits for another process that writes; then it leaves things as they are."""

CHARACTERS_PER_TOKEN = 4

MAX_PERSISTED_BYTES = 32 * 1024 * 1024

STARTS_ALIKE = 1_000
"""By so many characters a file is known to hold the whole of an output."""

LOOKED_AT = 50
"""How many of the last sessions are looked at for the one that was cleared."""


@asynccontextmanager
async def hook_stash(agent: str, tell: Tell) -> AsyncIterator[tuple[Stash, dict[str, Any] | None]]:
    """The stash with the settings for this client, and the limits of one output in characters; None where the
    settings say nothing of outputs. `tell` is called with each remark on a project's file."""
    found = configuration(project=project_folder(os.environ), environment=os.environ, tell=tell)
    layer = found.settings_layer(agent)
    settings = resolve_settings(layer)
    limits = limits_in_characters(settings) if says_of_outputs(layer) else None
    store = await open_sqlite(default_database(), busy_seconds=BUSY_SECONDS)
    key = api_key_from(os.environ)
    stash = Stash(store, settings=found.settings_layer, api_key=key, consent=found.may_call_model)
    try:
        yield stash, limits
    finally:
        await stash.close()


def limits_in_characters(settings: ContextSettings) -> dict[str, Any]:
    """The limits of one output with tokens told in characters: a vocabulary takes longer to load than a hook should."""
    limits = OutputLimits.of(settings)
    given: dict[str, Any] = {"tokens": None}
    if limits.tokens is not None:
        most = limits.tokens * CHARACTERS_PER_TOKEN
        given["chars"] = most if limits.chars is None else min(most, limits.chars)
    return given


async def whole_texts(host: str, response: Any, texts: Sequence[str]) -> list[str]:
    """The texts of a response, the first as it stands in the file that Claude Code has put it into, if that is so:
    the response then holds its beginning alone."""
    named = response.get("persistedOutputPath") if isinstance(response, dict) else None
    if not isinstance(named, str) or not texts:
        return list(texts)
    whole = await asyncio.to_thread(_persisted, host, named)
    starts = whole is not None and whole.startswith(texts[0][:STARTS_ALIKE])
    return [whole, *texts[1:]] if whole is not None and starts else list(texts)


def _persisted(host: str, named: str) -> str | None:
    """The file's text; None, and a line in the log, if it is not one that the host itself has put there."""
    try:
        path = own_file(named, host)
        return None if path is None else read_regular(path, MAX_PERSISTED_BYTES).decode("utf-8", "surrogateescape")
    except (OSError, BadInputError) as error:
        note(host, f"An output's file: {error}")
        return None


async def read_transcripts(host: str, stash: Stash, event: Mapping[str, Any]) -> str | None:
    """Record what is new in the event's transcript and in those of its sub-agents; the id of its session.
    Raises BadInputError if the file is not one of the host's own."""
    named = event.get("transcript_path")
    if not isinstance(named, str) or not named:
        return None
    path = await asyncio.to_thread(own_file, named, host)
    if path is None:
        return None
    report = await ingest(stash, path, reader=recognize(path))
    for agent in agent_transcripts(path):
        await ingest(stash, agent, reader=ClaudeCodeReader())
    return report.session_id


async def hand_off(host: str, stash: Stash, event: Mapping[str, Any]) -> str | None:
    """What the new window is told: of the session that goes on in it, or of the one that was cleared."""
    session_id = await read_transcripts(host, stash, event)
    if event.get("source") == "clear":
        session_id = await _cleared(stash, event)
    return None if session_id is None else await stash.hand_off(session_id)


async def _cleared(stash: Stash, event: Mapping[str, Any]) -> str | None:
    """The last other session of the same project."""
    named = str(event.get("transcript_path") or "")
    path = await asyncio.to_thread(lambda: Path(named).expanduser().resolve())
    for line in (await stash.list_sessions(limit=LOOKED_AT)).sessions:
        session = await stash.read_session(line.session_id)
        if session.source is None or session.parent_session_id or session.session_id == event.get("session_id"):
            continue
        if await asyncio.to_thread(_of_one_project, Path(session.source), path, event.get("cwd")):
            return session.session_id
    return None


def _of_one_project(transcript: Path, other: Path, folder: Any) -> bool:
    """Claude Code and Gemini CLI keep a folder for each project; Codex one for each day, and says in each rollout where
    it was."""
    if transcript.name.startswith("rollout-"):
        return isinstance(folder, str) and is_rollout_of(transcript, Path(folder))
    return transcript.parent == other.parent
