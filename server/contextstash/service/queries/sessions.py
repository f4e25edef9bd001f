"""Sessions: listing, configuring and deleting them, and paging through their full history."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user_requests import requests_of
from contextstash.context.text.sanitize import one_line
from contextstash.context.view.view import Entry, build_view, edits_in_force
from contextstash.context.window.settings import DESTINATION, ContextSettings, resolve_settings, session_layer
from contextstash.formats import UNDECIDED, get_format
from contextstash.service.estimate import estimate_session
from contextstash.service.recording.messages import check_session_id, create_session
from contextstash.service.recording.output_archive import OUTPUTS_AGENT, outputs_session_id
from contextstash.service.results import (
    ConfigureResult,
    DeleteResult,
    MessageLine,
    MessagePage,
    SessionLine,
    SessionList,
)
from contextstash.service.session_access import Access
from contextstash.summarizers import CONSENT
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Message, Session

MAX_LISTED = 200

NOT_OVERWRITTEN = (
    "The session is gone, but its text is not overwritten in the database's files yet: another process is reading an"
    " older state of them, or they could not be written. contextstash tries again every few seconds, and when it opens"
    " the database next; close other programs that use the file."
)

FIRST_MESSAGES = 12
"""Messages among which the first prompt is searched for: clients put context of their own before it. A guess."""

MAX_PROMPT_TOKENS = 20_000
"""A longer message is no title. A guess, which bounds the time that a list takes."""

TITLE_CHARACTERS = 80

COUNTING = ("estimator", "image_tokens", "message_overhead")
"""Settings by which a message is counted when it is recorded."""


async def list_sessions(access: Access, limit: int, cursor: str | None) -> SessionList:
    """One page of sessions, the one with the newest message first; `cursor` is the previous page's `next_cursor`."""
    if not 1 <= limit <= MAX_LISTED:
        raise BadInputError(f"limit is 1 to {MAX_LISTED}, not {limit}.")
    found = await recent_sessions(access, limit + 1, cursor)
    page = found[:limit]
    return SessionList(
        sessions=[await session_line(access, session) for session in page],
        next_cursor=page[-1].session_id if len(found) > limit else None,
    )


async def recent_sessions(access: Access, limit: int, cursor: str | None) -> list[Session]:
    """The records of sessions, the one with the newest message first."""
    return await access.store.list_sessions(limit=limit, before=cursor, without_agent=OUTPUTS_AGENT, by_message=True)


async def session_line(access: Access, session: Session) -> SessionLine:
    """A session as a line of a list. Without a title of its own it has the beginning of the first prompt."""
    estimate = await estimate_session(access, session)
    newest = session.last_message_at or await _last_message_at(access, session)
    return SessionLine(
        session_id=session.session_id,
        title=await title_of(access, session),
        agent=session.agent,
        model=session.model,
        messages=session.counters.messages,
        tokens=estimate.tokens,
        percent=estimate.percent,
        level=estimate.level,
        updated_at=session.updated_at.isoformat(),
        last_message_at=newest.isoformat() if newest else None,
        parent_session_id=session.parent_session_id,
    )


async def title_of(access: Access, session: Session) -> str | None:
    """A session's own title, else the beginning of the first prompt."""
    return session.title or await _first_prompt(access, session)


async def _last_message_at(access: Access, session: Session) -> datetime | None:
    last = session.counters.messages - 1
    newest = await access.store.read_messages(session.session_id, first=last, bodies=False) if last >= 0 else []
    return newest[0].created_at if newest else None


async def _first_prompt(access: Access, session: Session) -> str | None:
    """The beginning of what the user typed first, without what the client added."""
    fmt = get_format(session.format)
    messages = await access.store.read_messages(session.session_id, last=FIRST_MESSAGES - 1)
    turns = [
        Turn(each.seq, each.role, each.blocks, fmt.read(each.body or {}).texts or ("",), kind=each.kind)
        for each in messages
        if each.role == "user" and each.kind == "message" and each.tokens <= MAX_PROMPT_TOKENS
    ]
    requests, _ = requests_of(turns)
    return one_line(requests[0].text, TITLE_CHARACTERS) if requests else None


async def configure(access: Access, session_id: str | None, settings: Mapping[str, Any]) -> ConfigureResult:
    """Change a session's own layer of settings; returns the settings then in force. A session that is named and does
    not exist is created, so that its settings hold from the first message on."""
    session = await _session_to_configure(access, session_id, settings)
    unknown = settings.keys() - ContextSettings.model_fields.keys()
    layer = {
        name: value
        for name, value in {**session_layer(session.settings), **settings}.items()
        if value is not None or name in unknown
    }
    before = access.settings(session).model_dump()
    after = resolve_settings(access.layer(session.agent), layer).model_dump()
    await access.store.update_session(session.session_id, settings=layer)
    counted = [name for name in COUNTING if before[name] != after[name]]
    note = None
    if counted and session.counters.messages:
        note = (
            f"The {session.counters.messages:,} messages recorded before keep their token counts;"
            f" {', '.join(counted)} apply to new messages only. Set them before the first message to count all alike."
        )
    return ConfigureResult(
        session_id=session.session_id,
        settings={name: value for name, value in after.items() if value is not None},
        changed=[name for name in after if before[name] != after[name]],
        note=note,
    )


async def _session_to_configure(access: Access, session_id: str | None, settings: Mapping[str, Any]) -> Session:
    try:
        session = await access.session(session_id)
    except SessionNotFoundError:
        if session_id is None:
            raise
    else:
        _check_destination(access, session.agent, settings)
        return session
    check_session_id(session_id)
    _check_destination(access, None, settings)
    resolve_settings(access.layer(None), settings)  # refused settings must not leave an empty session
    return await create_session(access, session_id, UNDECIDED, {})


def _check_destination(access: Access, agent: str | None, settings: Mapping[str, Any]) -> None:
    """Raises BadInputError if the settings would send the session to a place that the user has not agreed to: its model
    may change a session's own settings."""
    if settings.get(DESTINATION) is not None:
        raise BadInputError(
            f"{DESTINATION} sets where sessions are sent: no session can set it, only the user's own configuration"
            " (contextstash.toml in the user's folder, CONTEXTSTASH_SUMMARIZER_BASE_URL, or --set)."
        )
    asked = settings.get("summarizer") == "anthropic" or settings.get("summarizer_model") is not None
    if asked and not access.may_call_model(agent):
        raise BadInputError(
            "A session cannot have a model called without the user's consent, which only the user's own configuration"
            f" gives: {CONSENT}. Without it, summarizer is auto, sampling or extractive."
        )


async def delete(access: Access, session_id: str) -> DeleteResult:
    """Delete a session permanently, with the outputs archived for it. Raises SessionNotFoundError."""
    session = await access.session(session_id)
    along: list[str] = []
    with suppress(BadInputError):
        along.append(outputs_session_id(session_id))
    overwritten = await access.store.delete_session(session_id, along=along)
    return DeleteResult(
        session_id=session_id,
        deleted=True,
        messages=session.counters.messages,
        note=None if overwritten else NOT_OVERWRITTEN,
    )


async def read_messages(access: Access, session_id: str, first: int, limit: int) -> MessagePage:
    """Messages as they were recorded, from position `first` on, each with whether the model still sees it."""
    session = await access.session(session_id)
    total = session.counters.messages
    last = min(total, first + limit) - 1
    messages = await access.store.read_messages(session_id, first=first, last=last)
    overlay = edits_in_force(await access.store.read_edits(session_id))
    shown = {entry.first_seq: entry for entry in build_view(messages, overlay) if entry.message}
    handles: dict[int, list[str]] = {}
    for output in await access.store.read_outputs(session_id, first=first, last=last):
        handles.setdefault(output.seq, []).append(output.handle)
    return MessagePage(
        session_id=session_id,
        messages=[_message_line(each, shown.get(each.seq), handles.get(each.seq)) for each in messages],
        total=total,
        next_seq=last + 1 if last + 1 < total else None,
    )


def _message_line(message: Message, entry: Entry | None, handles: list[str] | None) -> MessageLine:
    calls = [f"{block.tool} {block.argument or ''}".rstrip() for block in message.blocks if block.type == "tool_call"]
    kind = entry.kind if entry else message.kind
    return MessageLine(
        seq=message.seq,
        role=message.role,
        kind=kind,
        tokens=message.tokens,
        agent_visible=entry is not None and kind != "tool_result_archived",
        user_visible=message.user_visible,
        created_at=message.created_at,
        calls=calls or None,
        handles=handles,
        message=message.body or {},
    )
