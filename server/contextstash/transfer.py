"""Whole sessions moved and deleted: a stream of records, exported to a file, imported, or moved to another database and
compared there; and the deletion of those that are older than the user wants to keep.

A move loses nothing, handles included; in an export secrets are masked unless the settings say otherwise.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from contextstash import __version__
from contextstash.messages.base import Format, NotJsonError, check_json
from contextstash.messages.detection import get_format
from contextstash.queries.sessions import all_sessions, title_of
from contextstash.record.messages import remember_calls, search_texts
from contextstash.record.output_archive import OUTPUTS_AGENT, check_conversation_id, outputs_session_id
from contextstash.results import CopyResult, DeleteResult, RetainedOut, RetainResult
from contextstash.session.access import Access
from contextstash.session.masks import derived, shown_value, stored_body
from contextstash.session.open_session import READ_AT_ONCE, outputs_by_message
from contextstash.window.settings import ContextSettings, resolve_settings, session_layer
from contextstash_storage.errors import BadInputError, ContextstashError, DamagedError, SessionNotFoundError
from contextstash_storage.records import (
    EDIT,
    KEPT_BEHIND,
    Call,
    Copied,
    DeclaredVersion,
    Event,
    KeptState,
    NewMessage,
    Request,
    Session,
    check_session_id,
)

if TYPE_CHECKING:
    from contextstash_storage.store import SessionStore

VERSION = 4
"""Of this format. A file of another version is refused: none was ever released."""

HEADER = "contextstash_session"
"""The key by which the first record of a session is recognized; its value is the version of this format."""

END = "end"
"""The key of the last record of a session, which says how many of each part there are before it."""

LOGGED: Mapping[str, tuple[type[Event | Call | DeclaredVersion | Request], str]] = {
    "event": (Event, "event_id"),
    "call": (Call, "call_id"),
    "declared_part": (DeclaredVersion, "version"),
    "request": (Request, "number"),
}
"""The records of a session's log that follow its edits, by their key, and the fields that have their numbers."""

PARTS: Mapping[str, tuple[TypeAdapter[Any], str]] = {
    "message": (TypeAdapter(NewMessage), "seq"),
    "edit": (EDIT, "edit_id"),
    **{part: (TypeAdapter(kind), number) for part, (kind, number) in LOGGED.items()},
}
"""The records between the first and the last one, by their key, and the fields that have their numbers."""

FORMER_EVENTS = ("level", "oscillation", "reasoning_dropped")
"""Kinds of events in exports of commit 81800828, which are not logged any more. Fields that records had there and have
no more are passed over."""

LOGGED_AT_ONCE = 1_000

NOT_STORED = "Nothing of that session was stored. Export it again, or take a whole copy of the file."

TOGETHER = 25
"""Sessions deleted at once: a deletion rewrites the search index, and hiding one takes the write lock for a third of a
millisecond."""

NOT_OVERWRITTEN = (
    "The session is gone, but its text is not overwritten in the database's files yet: another process is reading an"
    " older state of them, or they could not be written. contextstash tries again every few seconds, and when it opens"
    " the database next; close other programs that use the file."
)


async def export_session(access: Access, session_id: str) -> AsyncIterator[dict[str, Any]]:
    """The records of a session, and those of the session that archives outputs for it. Only one page of messages is
    held in memory at a time; secrets are masked unless the settings say otherwise. Raises SessionNotFoundError."""
    sessions = [await access.read_session(session_id)]
    settings = access.settings(sessions[0])
    with suppress(SessionNotFoundError):
        sessions.append(await access.store.get_session(outputs_session_id(session_id)))
    for place, session in enumerate(sessions, start=1):
        async for record in _session_records(access, session, len(sessions) - place):
            yield shown_value(settings, record)


async def _session_records(access: Access, session: Session, left: int = 0) -> AsyncIterator[dict[str, Any]]:
    """The records of one session, after which so many sessions are `left` in the file."""
    fields = session.model_dump(mode="json", exclude={"owner"}, exclude_none=True)
    yield {HEADER: VERSION, "written_by": f"contextstash {__version__}", "session": fields}
    name = session.session_id
    for first in range(0, session.counters.messages, READ_AT_ONCE):
        last = min(first + READ_AT_ONCE, session.counters.messages) - 1
        messages = await access.store.read_messages(name, first=first, last=last)
        outputs = outputs_by_message(messages, await access.store.read_outputs(name, first=first, last=last))
        for message in messages:
            fields = message.model_dump(mode="json", exclude={"session_id", "seq", "body"}, exclude_none=True)
            if made := outputs[message.seq]:
                fields["outputs"] = [output.model_dump(mode="json", exclude={"seq"}) for output in made]
            yield {"seq": message.seq, "message": {**fields, "body": message.body}}
    for edit in (await access.store.read_edits(name))[: session.counters.edits]:
        yield {"edit": edit.model_dump(mode="json", exclude_none=True)}
    counts = {"messages": session.counters.messages, "edits": session.counters.edits}
    for part, (kind, number) in LOGGED.items():
        after = counts[f"{part}s"] = 0
        while page := await access.store.read_log(name, kind, after=after, limit=LOGGED_AT_ONCE):
            for record in page:
                if isinstance(record, Request) and record.number > session.counters.requests:
                    break  # made since the session was read: the counters go with the file
                yield {part: record.model_dump(mode="json", exclude_none=True)}
                counts[f"{part}s"] += 1
            after = getattr(page[-1], number)
    yield {END: {**counts, "sessions_left": left}}


async def import_session(access: Access, lines: Iterable[str], *, session_id: str | None = None) -> CopyResult:
    """Store the sessions in these lines exactly as they were, the first under another id if one is given. A session
    that is stored already is left unchanged. Raises BadInputError with the number of the line if a line is not part of
    an exported session; then nothing of its session is stored."""
    reading = _Lines(lines)
    result: CopyResult | None = None
    while (session := await asyncio.to_thread(reading.next_session)) is not None:
        if session_id is not None:
            check_conversation_id(session_id)
            kept = {"session_id": outputs_session_id(session_id), "parent_session_id": session_id}
            session = session.model_copy(update=kept if result else {"session_id": session_id})
        check = check_session_id if session.agent == OUTPUTS_AGENT else check_conversation_id
        check(session.session_id)
        items = reading.items(session, access.settings(session))
        stored = await access.store.copy_session(session, items)
        if not stored:
            here = await access.store.get_session(session.session_id)
            if here.created_at != session.created_at or here.counters.messages < session.counters.messages:
                raise BadInputError(
                    f"A different session {session.session_id} exists already. Import this one under another id:"
                    " --session NEW_ID."
                )
            await asyncio.to_thread(deque, items, 0)  # read on to the next session
        recorded, known = (session.counters.messages, 0) if stored else (0, session.counters.messages)
        result = result or CopyResult(session_id=session.session_id, recorded=recorded, duplicates=known)
    if result is None:
        raise BadInputError("The file contains no session.")
    return result


class _Lines:
    """The lines of a file, read one by one, split into sessions."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = enumerate(lines, start=1)
        self._begun: Mapping[str, Any] | None = None
        self._number = 0

    def next_session(self) -> Session | None:
        """The session that starts at the current line; None at the end."""
        record = self._begun or self._next()
        self._begun = None
        if record is None:
            return None
        if record.get(HEADER) != VERSION:
            raise BadInputError(
                f"Line {self._number} does not begin a session of version {VERSION}: export it again where it is"
                " stored, with this version of contextstash."
            )
        with self._named():
            counters = record["session"].get("counters", {})
            sent = counters.get("request")
            if sent and "tokens" not in sent:  # exports of commit 81800828 have only a part of it
                counters["request"] = {**sent, "declared": {}, "budget": 0, "tokens": sent["counted"]}
            session = Session.model_validate(record["session"], extra="ignore")
            return session.model_copy(update={"settings": _settings_here(session.settings)})

    def items(self, session: Session, settings: ContextSettings) -> Iterator[Copied]:
        """The messages, edits, events, calls, declared parts and requests of the session."""
        fmt = get_format(session.format)
        calls: dict[str, tuple[str, str]] = {}
        counts = dict.fromkeys(PARTS, 0)
        while (record := self._next()) is not None and not {HEADER, END} & record.keys():
            with self._named():
                [name] = PARTS.keys() & record.keys()
                fields, (adapter, number) = record[name], PARTS[name]
                item: Copied | None = None
                if name == "message":
                    item = _message(fields, fmt, calls, settings)
                elif name != "event" or fields["kind"] not in FORMER_EVENTS:
                    item = adapter.validate_python(fields, extra="ignore")
                place = (record if name == "message" else fields).get(number)
            expected = counts[name] + (name != "message")
            if place not in (None, expected):
                raise self._wrong(f"holds {name} {place}, not {expected}: a line is missing, doubled or moved.")
            counts[name] += 1
            if item is not None:
                yield item
        self._end(session, record, counts)

    def _end(self, session: Session, record: Mapping[str, Any] | None, counts: Mapping[str, int]) -> None:
        """Check that the session is complete, and read on to the next one. `record` is what stands after its parts."""
        known, end = session.counters, (record or {}).get(END)
        with self._named():
            left = end and int(end.pop("sessions_left"))
            is_whole = end and all(counts[part[:-1]] == count for part, count in end.items())
        self._begun = self._next()
        begins = self._begun and HEADER in self._begun
        stored = (counts["message"], counts["edit"]) == (known.messages, known.edits)
        if not is_whole or not stored or begins != (True if left else None):
            raise BadInputError(
                f"The file does not hold all of session {session.session_id} and of the outputs kept for it."
                f" {NOT_STORED}"
            )

    def _next(self) -> dict[str, Any] | None:
        for number, line in self._lines:
            self._number = number
            if line.strip():
                with self._named():
                    record = json.loads(line)
                    check_json(record, level=-2)  # the levels of the record around a body
                    return dict(record)
        return None

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Names the line in an error of what is read in the block."""
        try:
            yield
        except NotJsonError as error:
            raise self._wrong(str(error)) from error
        except (ContextstashError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._wrong() from error

    def _wrong(self, problem: str = "is not part of an exported session.") -> BadInputError:
        return BadInputError(f"Line {self._number} {problem} {NOT_STORED}")


def _settings_here(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A session's own settings without those that this version does not have, or has no such value of."""
    kept = {}
    for name, value in settings.items():
        with suppress(BadInputError):
            resolve_settings(session_layer({name: value}))
            kept[name] = value
    return kept


def _message(fields: Any, fmt: Format, calls: dict[str, tuple[str, str]], settings: ContextSettings) -> NewMessage:
    """The message in a record, with what the settings here store of it."""
    outputs = [{**output, "seq": 0} for output in fields.get("outputs", ())]
    message = NewMessage.model_validate({**fields, "outputs": outputs}, extra="ignore")
    results = [place for place, block in enumerate(message.blocks) if block.type == "tool_result"]
    if results != [output.block for output in message.outputs]:
        raise ValueError("each result has its output")
    read = fmt.read(message.body)
    blocks, texts = derived(settings, read.role, message.blocks, read.texts or ("",))
    remember_calls(calls, blocks)
    masked = [each.model_copy(update={"argument": shown_value(settings, each.argument)}) for each in message.outputs]
    found = search_texts(texts, blocks, calls) if len(texts) == len(message.blocks) else message.texts
    kept = {"body": stored_body(settings, message.body), "blocks": blocks, "outputs": tuple(masked), "texts": found}
    return message.model_copy(update=kept)


# Between databases


@dataclass
class Migrated:
    """The outcome of a migration, by sessions: those `copied` now, those that were there `already`, and by their ids
    why others `failed`."""

    copied: int = 0
    already: int = 0
    failed: dict[str, str] = field(default_factory=dict)


async def migrate_store(source: SessionStore, target: SessionStore) -> Migrated:
    """Copy the sessions of all owners. Each becomes visible as a whole; one that is there already is compared. So the
    same call again continues an interrupted one."""
    done = Migrated()
    for owner in await source.owners():
        own, others = Access(source.for_owner(owner)), Access(target.for_owner(owner))
        await others.store.copy_deleted(await own.store.deleted_sessions())  # no client brings them back there
        # Parents before sub-agents where the times of their creation say so.
        for session in sorted(await all_sessions(own), key=lambda each: (each.created_at, each.session_id)):
            await _migrate_session(own, others, session, done)
    return done


async def _migrate_session(source: Access, target: Access, session: Session, done: Migrated) -> None:
    name = session.session_id
    is_new = await target.find(name) is None
    try:
        lines = [json.dumps(record) async for record in _session_records(source, session)]
        await import_session(target, lines)
        stored = await target.store.get_session(name)
        is_equal = lines == [json.dumps(record) async for record in _session_records(target, stored)]
    except (BadInputError, DamagedError) as error:
        # Another session is stored under this id, the copy would not be the same, or it cannot be read: others can.
        done.failed[name] = str(error)
    except SessionNotFoundError:
        pass  # deleted since it was listed: a server may run meanwhile
    else:
        if not is_equal:
            done.failed[name] = (
                "it is stored there with another content: one of the two was changed since it was copied"
            )
        elif is_new:
            for key in ("", KEPT_BEHIND):  # a long session is not folded again
                if (kept := await source.store.get_note(name, KeptState, key)) is not None:
                    await target.store.put_note(name, kept, key)
            done.copied += 1
        else:
            done.already += 1


# Deleted.


async def delete_session(access: Access, session_id: str, *, others: Sequence[str] = ()) -> DeleteResult:
    """Delete a session permanently, with the sessions of its sub-agents and the outputs archived for them, and `others`
    if they exist: the search index is rewritten once for all. Raises SessionNotFoundError."""
    session = await access.read_session(session_id)
    sub_agents = [
        each.session_id
        for name in (session_id, *others)
        for each in await all_sessions(access, parent=name)
        if each.agent != OUTPUTS_AGENT and _parent(each) == name
    ]
    going = [session_id, *others, *sub_agents]
    along = [*going[1:], *map(outputs_session_id, going)]
    overwritten = await access.store.delete_session(session_id, along=along)
    return DeleteResult(
        session_id=session_id,
        deleted=True,
        messages=session.counters.messages,
        sub_agents=len(sub_agents),
        note=None if overwritten else NOT_OVERWRITTEN,
    )


async def retain(access: Access, now: datetime, *, days: int | None = None, dry_run: bool = True) -> RetainResult:
    """Delete the sessions last recorded more than `days` ago, by default those of the settings in force. A session with
    a pin stays. Raises BadInputError if no limit is set."""
    days = days if days is not None else access.settings().keep_days
    if days is None:
        raise BadInputError("How long shall sessions be kept? Pass --days, or set keep_days in your contextstash.toml.")
    found = await all_sessions(access, by_message=True)
    # Without the archives that are deleted with another session.
    going_along = {outputs_session_id(session.session_id) for session in found}
    listed = [each for each in found if each.agent != OUTPUTS_AGENT or each.session_id not in going_along]
    oldest = now - timedelta(days=days)
    going = [session for session in listed if _recorded_at(session) < oldest]
    aged = {session.session_id for session in going if not session.settings.get("pin")}
    # The sessions of its sub-agents are deleted with one: it stays if one of them does.
    parents = {_parent(session) for session in listed if session.session_id not in aged}
    gone = [session for session in going if session.session_id in aged - parents]
    lines = {
        each.session_id: RetainedOut.of(
            each, each.counters, title=await title_of(access, each), last_recorded=_recorded_at(each)
        )
        for each in gone
    }
    note, pinned = None, len(going) - len(gone)
    if not dry_run:
        gone = [each for each in gone if await access.find(each.session_id) == each]  # none that was gone on with
        names = [each.session_id for each in gone]
        for start in range(0, len(names), TOGETHER):
            first, *others = names[start : start + TOGETHER]
            note = (await delete_session(access, first, others=others)).note or note
    shown = [lines[each.session_id] for each in gone]
    return RetainResult(sessions=shown, pinned=pinned, dry_run=dry_run, note=note)


def _parent(session: Session) -> str | None:
    """The session of the agent that started the one that recorded this, which the list shows below it; None for a
    fork."""
    parent = session.parent_session_id
    return parent if parent and session.session_id.startswith(f"{parent}.") else None


def _recorded_at(session: Session) -> datetime:
    """When something was last recorded: a transcript's own times can be long ago when it is imported."""
    return max(session.last_message_at or session.updated_at, session.created_at)
