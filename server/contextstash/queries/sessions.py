"""Sessions: listing them, and the titles and projects by which a person knows them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import PurePath
from typing import Any

from contextstash.events.requests import requests_of
from contextstash.events.sentences import sentences
from contextstash.events.turns import Turn
from contextstash.messages import get_format
from contextstash.record.output_archive import OUTPUTS_AGENT
from contextstash.results import SessionLine, SessionList
from contextstash.safety.sanitize import one_line
from contextstash.session.access import Access
from contextstash.session.estimate import estimate_session
from contextstash.session.masks import shown_text, shown_texts
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import Session

MAX_SESSIONS = 1_000
"""The newest sessions of all projects that are considered. Older ones are not found; the
start of each one's transcript is read once."""

PAGE = 200
"""Sessions that are read from the store at a time."""


async def pages_of_sessions(access: Access, **chosen: Any) -> AsyncIterator[list[Session]]:
    """The records of the sessions that `SessionStore.list_sessions` lists by these arguments, in pages."""
    before: str | None = None
    while page := await access.store.list_sessions(limit=PAGE, before=before, **chosen):
        yield page
        before = page[-1].session_id


async def all_sessions(access: Access, *, parent: str | None = None, by_message: bool = False) -> list[Session]:
    """The records of all sessions, or of all with this parent, archives of outputs included; newest first, by the last
    change or with `by_message` by the last message."""
    pages = pages_of_sessions(access, parent=parent, by_message=by_message)
    return [session async for page in pages for session in page]


async def sessions_of_project(access: Access, folder: str) -> list[str]:
    """The ids of the sessions of the project in this folder, of the newest `MAX_SESSIONS` of all projects."""
    found: list[str] = []
    considered = 0
    async for page in pages_of_sessions(access, without_agent=OUTPUTS_AGENT):
        found += await _within(access, page, PurePath(folder))
        considered += len(page)
        if considered >= MAX_SESSIONS:
            break
    return found


async def projects_of(access: Access, sessions: Sequence[Session]) -> list[str | None]:
    """The folder in which the client of each session ran, as its transcript names it, or else the proxy that its
    requests went through; None if it is not known."""
    found = await asyncio.to_thread(lambda: [access.project_in(session.source) for session in sessions])
    return [own or await _proxied_project(access, session) for own, session in zip(found, sessions, strict=True)]


async def _proxied_project(access: Access, session: Session) -> str | None:
    try:
        state = await access.store.get_proxied(session.session_id)
    except SessionNotFoundError:  # deleted since it was listed
        return None
    return None if state is None else state.project


async def _within(access: Access, sessions: Sequence[Session], folder: PurePath) -> list[str]:
    projects = await projects_of(access, sessions)
    return [
        session.session_id
        for session, own in zip(sessions, projects, strict=True)
        if own is not None and PurePath(own).is_relative_to(folder)
    ]


async def project_of_session(access: Access, session_id: str | None) -> str:
    """The folder of a session's project. Raises BadInputError if it is not known."""
    session = await access.read_session(session_id)
    [folder] = await projects_of(access, [session])
    if folder is None:
        raise BadInputError(
            f"The project of session {session.session_id} is not known: only a client's transcript names one, and"
            " contextstash run. Use the scope everywhere."
        )
    return folder


MAX_LISTED = 200

FIRST_MESSAGES = 12
"""Messages among which the first prompt is searched for: clients put context of their own before it. A session
whose prompt comes later has no title."""

MAX_PROMPT_TOKENS = 20_000
"""A longer message is not read for a title: it bounds the time that a list takes."""

TITLE_CHARACTERS = 80

MAX_TITLE_SCANNED = 4_000
"""Characters of a prompt in which its first sentence is searched for: it bounds the time that a list takes."""

_ATTACHED = re.compile(r"\A\s*# .*^## My request for Codex:$", re.DOTALL | re.MULTILINE)
"""What Codex's extensions for editors put before a prompt: open and mentioned files, findings of a review."""

_GREETING = re.compile(r"(?:hi|hello|hey|good (?:morning|afternoon|evening))(?: \w{1,15})?\W*", re.IGNORECASE)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
"""A word, or a letter of a language that is written without spaces."""

MAX_TITLE_CHARACTERS = 200
"""Of a title that the client gave, as the readers of transcripts limit it."""


async def list_sessions(access: Access, *, limit: int = 50, cursor: str | None = None) -> SessionList:
    """One page of sessions, the one with the newest message first; `cursor` is the previous page's `next_cursor`."""
    if not 1 <= limit <= MAX_LISTED:
        raise BadInputError(f"limit is 1 to {MAX_LISTED}, not {limit}.")
    found = await recent_sessions(access, limit=limit + 1, cursor=cursor)
    page = found[:limit]
    return SessionList(
        sessions=[await line_of(access, session) for session in page],
        next_cursor=page[-1].session_id if len(found) > limit else None,
    )


async def recent_sessions(access: Access, *, limit: int = 50, cursor: str | None = None) -> list[Session]:
    """The records of sessions, the one with the newest message first, without those that only archive outputs."""
    return await access.store.list_sessions(limit=limit, before=cursor, without_agent=OUTPUTS_AGENT, by_message=True)


async def session_line(access: Access, session_id: str) -> SessionLine:
    """A session as `list_sessions` lists it. Raises SessionNotFoundError."""
    return await line_of(access, await access.read_session(session_id))


async def line_of(access: Access, session: Session) -> SessionLine:
    """A session as a line of a list. Without a title of its own it has the beginning of what the user said first."""
    estimate = await estimate_session(access, session)
    return SessionLine.of(
        session,
        title=await title_of(access, session),
        messages=session.counters.messages,
        tokens=estimate.tokens,
        percent=estimate.percent,
        level=estimate.level,
    )


async def title_of(access: Access, session: Session) -> str | None:
    """A session's own title, else what the user said first, from the first sentence that says something."""
    if session.title:
        return one_line(shown_text(access.settings(session), session.title), MAX_TITLE_CHARACTERS)
    found = await _first_prompts(access, session)
    return next((said for text in found if (said := _said(text))), _beginning(found[0]) if found else None)


def _said(prompt: str) -> str:
    """A prompt's line from its first sentence that says something; empty if each is one word, a greeting or a
    heading."""
    attached = _ATTACHED.match(prompt)
    for line in prompt[attached.end() if attached else 0 :][:MAX_TITLE_SCANNED].splitlines():
        found = [] if line.lstrip().startswith(("#", "```")) else sentences(line)
        for place, sentence in enumerate(found):
            if len(_WORD.findall(sentence)) > 1 and not _GREETING.fullmatch(sentence):
                return _beginning(" ".join(found[place:]))
    return ""


def _beginning(text: str) -> str:
    return one_line(text, TITLE_CHARACTERS)


async def _first_prompts(access: Access, session: Session) -> list[str]:
    fmt, settings = get_format(session.format), access.settings(session)
    messages = await access.store.read_messages(session.session_id, last=FIRST_MESSAGES - 1)
    turns = [
        Turn(
            each.seq,
            each.role,
            each.blocks,
            shown_texts(settings, each.role, each.blocks, fmt.read(each.body or {}).texts or ("",)),
            kind=each.kind,
        )
        for each in messages
        if each.role == "user" and each.kind == "message" and each.tokens <= MAX_PROMPT_TOKENS
    ]
    requests, _ = requests_of(turns)
    return [request.text for request in requests]
