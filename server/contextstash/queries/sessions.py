"""Sessions: listing them, and the titles, projects and beginnings of ids by which a person knows them; and the status
of one: how full its window is, with what, and what was done to it over time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from contextstash.events.state import fold
from contextstash.messages.detection import get_format
from contextstash.record.output_archive import OUTPUTS_AGENT, kept_outputs
from contextstash.reduce.compact import turn_of
from contextstash.request.proxied import report_of
from contextstash.results import (
    Change,
    ContextStatus,
    Estimate,
    SessionLine,
    SessionList,
    SummaryMade,
    Timeline,
)
from contextstash.safety.sanitize import one_line
from contextstash.session.access import Access, estimate_messages, estimate_session
from contextstash.session.masks import shown_text
from contextstash.session.open_session import READ_AT_ONCE
from contextstash.view.view import part_named
from contextstash_storage.errors import DamagedError, SessionNotFoundError
from contextstash_storage.records import ArchiveEdit, Event, EventKind, Native, Session, TruncateEdit

SHRINKING: tuple[EventKind, ...] = ("prune", "compaction", "restore", "recovery")

CHANGES_SHOWN, MAX_CHANGES = 12, 500
"""Of a session, in its status and in its timeline."""

POINTS = 100
"""Points of a timeline; each stands for a run of messages. Enough for a chart of ordinary width."""

PAGE = 200
"""Sessions that are read from the store at a time."""

FIRST_MESSAGES = 12
"""Messages that are searched for the first prompt: clients put context of their own before it."""

MAX_PROMPT_TOKENS = 20_000
"""A longer message is not read for a title: it bounds the time that a list takes."""

MAX_TITLE_CHARACTERS = 80

_ATTACHED = re.compile(r"\A\s*# .*^## My request for Codex:$", re.DOTALL | re.MULTILINE)
"""What Codex's extensions for editors put before a prompt: open and mentioned files, findings of a review."""

MIN_ID_CHARACTERS = 8
"""Characters of a short id: those of a UUID up to its first hyphen."""


async def pages_of_sessions(
    access: Access, *, size: int = PAGE, before: str | None = None, **chosen: Any
) -> AsyncIterator[list[Session]]:
    """The records of the sessions that `SessionStore.list_sessions` lists by these arguments, in pages."""
    while page := await access.store.list_sessions(limit=size, before=before, **chosen):
        yield page
        before = page[-1].session_id


async def all_sessions(access: Access, **chosen: Any) -> list[Session]:
    """The records of all sessions, or of all with this `parent`, archives of outputs included; newest first, by the
    last change or with `by_message` by the last message."""
    return [session async for page in pages_of_sessions(access, **chosen) for session in page]


async def project_of(access: Access, session: Session) -> str | None:
    """The folder in which a session's client ran, as its transcript names it, or else its proxy; None if not known."""
    find = access.options.get("project_of")
    found = await asyncio.to_thread(find, session.source) if find and session.source else None
    proxied = None if found else await access.proxied(session.session_id)
    return proxied.project if proxied else found


async def list_sessions(
    access: Access, *, limit: int = 50, cursor: str | None = None, text: str = "", sub_agents: bool = True
) -> SessionList:
    """A page of the sessions with this text in the id, the title or the project's folder, the one with the newest
    message first; `cursor` is the previous page's `next_cursor`."""
    limit, found = max(1, limit), list[SessionLine]()
    newest_first: dict[str, Any] = {"before": cursor, "without_agent": OUTPUTS_AGENT, "by_message": True}
    async for page in pages_of_sessions(access, size=min(PAGE, limit + 1), **newest_first):
        for session in page:
            with suppress(SessionNotFoundError):  # deleted since it was read
                line = await line_of(access, session)
                is_sub_agent = line.session_id.startswith(f"{line.parent_session_id}.")
                named = f"{line.session_id}\n{line.title or ''}\n{line.project or ''}".casefold()
                found += [line] * ((sub_agents or not is_sub_agent) and text.casefold() in named)
        if len(found) > limit:
            break
    return SessionList(sessions=found[:limit], next_cursor=found[limit - 1].session_id if len(found) > limit else None)


async def line_of(access: Access, session: Session) -> SessionLine:
    """A session as a line of a list. Without a title of its own it has the beginning of what the user said first."""
    estimate = await estimate_session(access, session)
    title, project = await title_of(access, session), await project_of(access, session)
    return SessionLine.of(session, session.counters, estimate, title=title, project=project)


async def title_of(access: Access, session: Session) -> str | None:
    """A session's own title, else the beginning of what the user said first."""
    if session.title:
        return one_line(shown_text(access.settings(session), session.title), MAX_TITLE_CHARACTERS)
    fmt, settings = get_format(session.format), access.settings(session)
    try:
        messages = await access.store.read_messages(session.session_id, last=FIRST_MESSAGES - 1)
    except DamagedError:  # the list shows the others, and this one without a title
        return None
    said = [each for each in messages if (each.role, each.kind) == ("user", "message")]
    turns = [turn_of(settings, fmt, each) for each in said if each.tokens <= MAX_PROMPT_TOKENS]
    words = fold(turns).words.own.entries
    return one_line(_ATTACHED.sub("", words[0].text, count=1), MAX_TITLE_CHARACTERS) if words else None


# Sessions named by the beginning of their ids, as `contextstash sessions` prints them.


async def complete_session_id(access: Access, prefix: str) -> list[str]:
    """Session ids with this prefix, at most 100; without the sessions that only archive outputs."""
    return await access.store.find_session_ids(prefix, 100, without_agent=OUTPUTS_AGENT)


async def short_id(access: Access, whole: str) -> str:
    """The first 8 characters of an id, if they name this session alone; else the id."""
    short = whole[:MIN_ID_CHARACTERS]
    return short if named_by(await complete_session_id(access, short)) == whole else whole


async def whole_id(access: Access, given: str) -> str:
    """The id of which these are the first 8 characters; the text itself if it is something else: of the sessions
    `customer-1` and `customer-10` of a program, one would stand for the other that is not there."""
    named = named_by(await complete_session_id(access, given)) if len(given) == MIN_ID_CHARACTERS else None
    return named or given


def named_by(found: list[str]) -> str | None:
    """The session that a beginning of ids names: the only one, or the one of which all others are sub-agents."""
    shortest = min(found, key=len, default=None)
    return shortest if all(each == shortest or each.startswith(f"{shortest}.") for each in found) else None


# The status of one.


async def context_status(access: Access, session_id: str | None = None) -> ContextStatus:
    """The estimate, the last summary, and the last changes, newest first. Raises SessionNotFoundError."""
    known = await access.known(session_id)
    session, replaced, summaries = known.session, known.overlay.replaced.values(), known.overlay.summaries
    proxied = await access.proxied(session.session_id)
    events = await access.store.read_log(session.session_id, Event, keys=SHRINKING, newest=True, limit=CHANGES_SHOWN)
    cut = sum(isinstance(edit, TruncateEdit) for edit in replaced)
    return ContextStatus.of(
        session,
        session.counters,
        title=await title_of(access, session),
        estimate=await estimate_session(access, session),
        messages_summarized=sum(edit.messages for edit in summaries),
        outputs_archived=sum(isinstance(edit, ArchiveEdit) for edit in replaced),
        outputs_shortened=cut + await kept_outputs(access, session.session_id) or None,
        last_summary=SummaryMade.of(max(summaries, key=lambda edit: edit.edit_id)) if summaries else None,
        proxy=None if proxied is None else report_of(proxied),
        changes=[Change.of(event) for event in events],
    )


async def estimate_context(
    access: Access, session_id: str | None = None, *, messages: Sequence[Native] | None = None, model: str | None = None
) -> Estimate:
    """How full the window is; with `messages`, the estimate for these alone, and nothing is recorded."""
    if messages is not None:
        return await asyncio.to_thread(estimate_messages, access, messages, model)
    session = await access.read_session(session_id)
    return await estimate_session(access, session, model)


async def timeline(access: Access, session_id: str) -> Timeline:
    """The window after each run of messages, and just before and after each change. In between, the tokens of new
    messages are added to what the last change left; the last point is the present estimate. Raises
    SessionNotFoundError."""
    session = await access.read_session(session_id)
    total, estimate = session.counters.messages, await estimate_session(access, session)
    events = (await access.store.read_log(session_id, Event, keys=SHRINKING, newest=True, limit=MAX_CHANGES))[::-1]
    # What is in no recorded message is drawn over all of the time as it is now.
    beside = {name: tokens for name, tokens in estimate.breakdown.items() if name == "unrecorded"}
    shown: list[dict[str, Any]] = []
    held: dict[str, int] = {}
    waiting = [event for event in events if event.parts]

    def add_point(seq: int) -> None:
        parts = {part: tokens for part, tokens in held.items() if tokens}
        shown.append({"seq": seq, "parts": {**parts, **beside}})

    def change(before: int) -> None:
        while waiting and waiting[0].seq <= before:
            event = waiting.pop(0)
            add_point(event.seq)
            held.clear()
            held.update(event.parts)
            add_point(event.seq)

    run = max(1, -(-total // POINTS))
    for start in range(0, total, READ_AT_ONCE):
        end = min(total, start + READ_AT_ONCE) - 1
        for message in await access.store.read_messages(session.session_id, first=start, last=end, bodies=False):
            if not message.agent_visible:
                continue
            change(message.seq)
            for block in message.blocks:
                part = str(part_named(message.role, message.kind, block.type))
                held[part] = held.get(part, 0) + block.tokens
            if (message.seq + 1) % run == 0:
                add_point(message.seq + 1)
    change(total)
    shown.append({"seq": total, "parts": estimate.breakdown})
    return Timeline.of(estimate, points=shown, changes=[Change.of(event) for event in events])
