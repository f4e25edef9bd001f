"""Handles a client's hook events: replaces large outputs after archiving them, reads transcripts, gives hand-offs.

The event comes as JSON on standard input. Whatever goes wrong, the exit code is 0 and standard output is empty, so that
the client continues as if there were no hook; a line in the log says what failed. Most events need nothing done, and
nothing heavy is imported for those. What differs between clients is in `HookHost`; the event's other fields and the
response with `additionalContext` are the same for all of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from contextstash.hosts.hooks.host import HookHost
from contextstash.json.json_text import lenient_value

MIN_LIMIT = 4_000
"""Characters up to which an output is shown whole without a look at the settings: the smallest limit of any preset, the
4,000 bytes of `byte-budget`."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""The largest event that is parsed, in 0.2 s. The tools' output in a larger one stays with the client as it is."""

OWN_SERVER = "contextstash"

HANDED_OFF = ("compact", "clear", "resume")
"""The sources of a session's start whose window may lack what the session is about. A resumed window holds what the
client recorded, with the hand-off that it was given, so it usually needs none."""


def run(host: HookHost, read: Any = None, part: tuple[int, int] = (1, 1)) -> int:
    """Handle one event; the exit code is always 0. `part` is the part of a hand-off that this hook gives, and of how
    many."""
    try:
        event = lenient_value(_bounded(read or sys.stdin.buffer.read))
        response = response_to(host, event, os.environ, part) if isinstance(event, dict) else None
        if response is not None:
            sys.stdout.write(json.dumps(response))
            sys.stdout.flush()
    except BaseException as error:  # an error of contextstash must not stop the client
        from contextstash.hosts.hooks.log import note

        note(host.name, f"{type(error).__name__}: {error}")
    return 0


def _bounded(read: Any) -> bytes:
    """The event's bytes. One that is too large is read to its end, so that the client does not find a broken pipe."""
    data: bytes = read(MAX_EVENT_BYTES + 1)
    if len(data) <= MAX_EVENT_BYTES:
        return data
    while read(MAX_EVENT_BYTES):
        pass
    raise ValueError(f"An event of more than {MAX_EVENT_BYTES:,} bytes is not handled; its output stays as it is.")


def response_to(
    host: HookHost, event: Mapping[str, Any], environment: Mapping[str, str], part: tuple[int, int] = (1, 1)
) -> dict[str, Any] | None:
    """The hook's response to an event; None if there is nothing to say. Does not catch any error."""
    name = event.get("hook_event_name")
    if name == "SessionStart" and event.get("source") in HANDED_OFF:
        return _run(_hand_off(host, event, part))
    if part[0] > 1:
        return None  # the hook with the first part handles every other event
    if name == host.after_tool:
        return _after_tool(host, event, environment)
    if name == host.after_compaction and _awaits_hand_off(event):
        return _run(_hand_off(host, event, part))
    if name in host.read_to_its_end or _compacts(host, event):
        return _run(_read_transcripts(host, event))
    return None


def _compacts(host: HookHost, event: Mapping[str, Any]) -> bool:
    """Whether the client is about to compact the session."""
    is_sure = event.get("trigger") == "manual" or not host.only_manual_is_sure
    return event.get("hook_event_name") == host.before_compaction and is_sure


def _after_tool(host: HookHost, event: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any] | None:
    tool, response = event.get("tool_name"), event.get("tool_response")
    if not isinstance(tool, str) or _is_own_tool(host, tool):
        return None
    texts = host.texts_of(tool, response)
    longest = max(map(len, texts), default=0)
    if longest <= MIN_LIMIT or (longest <= host.limit(tool) and not _is_configured(host, environment)):
        return None
    return _run(_limited(host, event, tool, response, texts))


def _is_own_tool(host: HookHost, tool: str) -> bool:
    """Whether this is one of our tools: a page read from the archive is not archived again."""
    return tool.startswith(host.mcp_prefix) and OWN_SERVER in tool


def _is_configured(host: HookHost, environment: Mapping[str, str]) -> bool:
    """Whether there are any settings, which may limit outputs more than the default does."""
    from contextstash.configuration.locations import has_settings
    from contextstash.hosts.project_folder import project_folder

    return has_settings(environment, project_folder(environment), host.name)


def _run(work: Any) -> dict[str, Any] | None:
    # Pydantic looks for plugins among all installed packages, which takes a tenth of a hook's time; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    import asyncio

    response: dict[str, Any] | None = asyncio.run(work)
    return response


async def _limited(
    host: HookHost, event: Mapping[str, Any], tool: str, response: Any, texts: list[str]
) -> dict[str, Any] | None:
    """Archive the texts that are over their limit; the response that shows the shortened ones, None if none is."""
    from contextstash.hosts.hooks.output_cut import cut_outputs

    shown = await cut_outputs(host, event, tool, response, texts, _log_remarks(host))
    return None if shown is None else host.replacement(tool, response, shown)


async def _read_transcripts(host: HookHost, event: Mapping[str, Any]) -> None:
    """Read the transcript to its end. Before a compaction, also note that a hand-off is awaited, if the client cannot
    be given one at the start of its new window."""
    from contextstash.hosts.hooks.hook_stash import hook_stash, read_transcripts

    async with hook_stash(host.name, _log_remarks(host)) as stash:
        sessions = await read_transcripts(host, stash, event)
    awaits = host.after_compaction is not None and event.get("hook_event_name") == host.before_compaction
    if awaits and any(sessions.values()):
        _compaction_marker(event).touch(mode=0o600)


async def _hand_off(host: HookHost, event: Mapping[str, Any], part: tuple[int, int]) -> dict[str, Any] | None:
    from contextstash.hosts.hooks.hook_stash import hand_off, hook_stash

    async with hook_stash(host.name, _log_remarks(host)) as stash:
        text = await hand_off(host, stash, event, part)
    if event.get("hook_event_name") == host.after_compaction:
        _compaction_marker(event).unlink(missing_ok=True)
    if text is None:
        return None
    return {"hookSpecificOutput": {"hookEventName": event["hook_event_name"], "additionalContext": text}}


def _awaits_hand_off(event: Mapping[str, Any]) -> bool:
    """Whether the session was compacted and has not had its hand-off yet."""
    return bool(event.get("session_id")) and _compaction_marker(event).exists()


def _compaction_marker(event: Mapping[str, Any]) -> Any:
    """The empty file that exists as long as a compacted session awaits its hand-off."""
    import hashlib

    from contextstash.configuration.locations import data_folder

    digest = hashlib.sha256(str(event.get("session_id")).encode()).hexdigest()[:16]
    return data_folder() / f"compacted-{digest}"


def _log_remarks(host: HookHost) -> Any:
    """A function that writes a remark on a project's files into the log."""
    from contextstash.hosts.hooks.log import note

    return lambda remark: note(host.name, remark)
