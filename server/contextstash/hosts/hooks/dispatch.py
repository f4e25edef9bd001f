"""A client's hooks answered: large outputs are replaced once they are archived, transcripts read, hand-offs given.

Called with the event as JSON on standard input. Whatever goes wrong, the exit code is 0 and standard output empty, so
that the client goes on as if there were no hook; a line in the log says what it was. Usually there is nothing to do,
and nothing heavy is imported for that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from contextstash.hosts.hooks.host import HookHost
from contextstash.json_text import kept_value

MIN_LIMIT = 4_000
"""Characters up to which no preset limits an output."""

OWN_SERVER = "contextstash"

HANDED_OFF = ("compact", "clear", "resume")


def run(host: HookHost, read: Any = None) -> int:
    """Answer one event; the exit code is always 0."""
    try:
        event = kept_value((read or sys.stdin.buffer.read)())
        answer = answer_to(host, event, os.environ) if isinstance(event, dict) else None
        if answer is not None:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    except BaseException as error:  # whatever it is, the user's work goes on
        from contextstash.hosts.hooks.log import note

        note(host.name, f"{type(error).__name__}: {error}")
    return 0


def answer_to(host: HookHost, event: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """What to tell the client about an event; None for nothing. Raises whatever goes wrong."""
    name = event.get("hook_event_name")
    if name == host.after_tool:
        return _after_tool(host, event, environment)
    if name == "SessionStart" and event.get("source") in HANDED_OFF:
        return _run(_hand_off(host, event))
    if name == host.after_compaction and _left_for(event):
        return _run(_hand_off(host, event))
    if name in host.read_to_its_end or _compacts(host, event):
        return _run(_read_on(host, event))
    return None


def _compacts(host: HookHost, event: Mapping[str, Any]) -> bool:
    """Whether the client is about to compact the session."""
    is_sure = event.get("trigger") == "manual" or not host.only_manual_is_sure
    return event.get("hook_event_name") == host.before_compaction and is_sure


def _after_tool(host: HookHost, event: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any] | None:
    tool, response = event.get("tool_name"), event.get("tool_response")
    if not isinstance(tool, str) or _is_ours(host, tool):
        return None
    texts = host.texts_of(tool, response)
    longest = max(map(len, texts), default=0)
    if longest <= MIN_LIMIT or (longest <= host.limit(tool) and not _configured(host, environment)):
        return None
    return _run(_limited(host, event, tool, response, texts))


def _is_ours(host: HookHost, tool: str) -> bool:
    """A page that we read back from the archive is not archived again."""
    return tool.startswith(host.mcp_prefix) and OWN_SERVER in tool


def _configured(host: HookHost, environment: Mapping[str, str]) -> bool:
    """Whether there are settings of any kind, which may limit outputs more than the default does."""
    from contextstash.locations import has_settings

    return has_settings(environment, host.name)


def _run(work: Any) -> dict[str, Any] | None:
    import asyncio

    answer: dict[str, Any] | None = asyncio.run(work)
    return answer


async def _limited(
    host: HookHost, event: Mapping[str, Any], tool: str, response: Any, texts: list[str]
) -> dict[str, Any] | None:
    from contextstash.formats.arguments import main_argument
    from contextstash.hosts.hooks.stash import hook_stash, whole_texts

    shown = []
    cut = False
    async with hook_stash(host.name, _teller(host)) as (stash, limits):
        for text in await whole_texts(host.name, response, texts):
            limited = await stash.limit_output(
                text,
                tool=tool,
                argument=main_argument(event.get("tool_input")) or "",
                session_id=_text(event.get("session_id")),
                limits=limits or {"tokens": None, "chars": host.limit(tool)},
            )
            shown.append(limited.text)
            cut = cut or limited.cut
    return host.replacement(tool, response, shown) if cut else None


async def _read_on(host: HookHost, event: Mapping[str, Any]) -> None:
    """Read the transcript to its end; before a compaction, make a summary of our own."""
    from contextstash.hosts.hooks.stash import hook_stash, read_transcripts

    async with hook_stash(host.name, _teller(host)) as (stash, _):
        session_id = await read_transcripts(host.name, stash, event)
        if event.get("hook_event_name") == host.before_compaction and session_id is not None:
            await stash.compact_session(session_id, strategy="extractive")
            if host.after_compaction is not None:
                _mark(event).touch(mode=0o600)


async def _hand_off(host: HookHost, event: Mapping[str, Any]) -> dict[str, Any] | None:
    from contextstash.hosts.hooks.stash import hand_off, hook_stash

    async with hook_stash(host.name, _teller(host)) as (stash, _):
        text = await hand_off(host.name, stash, event)
    if event.get("hook_event_name") == host.after_compaction:
        _mark(event).unlink(missing_ok=True)
    if text is None:
        return None
    return {"hookSpecificOutput": {"hookEventName": event["hook_event_name"], "additionalContext": text}}


def _left_for(event: Mapping[str, Any]) -> bool:
    """Whether a session was compacted since it was last told something."""
    return bool(_text(event.get("session_id"))) and _mark(event).exists()


def _mark(event: Mapping[str, Any]) -> Any:
    """The empty file that says that a session is to be told of its compaction."""
    import hashlib

    from contextstash.locations import default_database

    digest = hashlib.sha256(str(event.get("session_id")).encode()).hexdigest()[:16]
    return default_database().parent / f"compacted-{digest}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _teller(host: HookHost) -> Any:
    """What writes the remarks on a project's files into the log."""
    from contextstash.hosts.hooks.log import note

    return lambda remark: note(host.name, remark.text)
