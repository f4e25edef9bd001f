"""Batches of messages, each identified by a position, by an id, or by being the whole conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from contextstash.messages import get_format
from contextstash.record.client_edits import weighed_together
from contextstash.record.declared_parts import MAX_HEAD, declare, declared_system
from contextstash.record.messages import RECENT_MESSAGES, Calls, append, is_large, remember_calls
from contextstash.session.apply_edits import ATTEMPTS
from contextstash.session.masks import stored_body
from contextstash.session.session_access import Access
from contextstash.session.session_cache import digests_of
from contextstash.view.branches import KnownPath, known_path, path_to, rewinding
from contextstash_storage.errors import BadInputError, BadMessageError, EditConflictError
from contextstash_storage.records import Appended, Counters, Edit, Native, RewindEdit, Session
from contextstash_storage.store import Placement

MAX_BATCH_ID = 200
"""Characters of a batch_id; the same limit as for a session's id."""

WAIT_SECONDS = 0.01
"""Seconds to wait before planning again, times the number of the attempt. A transaction of another process takes about
10 ms."""

REPEATED = (
    "These messages equal messages recorded before, and were recorded again. If they were sent twice by mistake: pass"
    " first_seq (next_seq of the previous result), batch_id, or whole=true with the whole conversation; then they are"
    " stored once."
)


OTHER_WRITER = (
    "Another agent records in session '{}' at the same time: it holds messages that this one has not sent. Give each"
    " agent a session_id of its own; a sub-agent's session can name its parent."
)


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identifies a batch that is sent again. If all fields are unset, a repeated batch is stored a second time. `seen`
    is how many messages the session had when its writer was last there: what is behind them is from another writer."""

    first_seq: int | None = None
    batch_id: str | None = None
    whole: bool = False
    seen: int | None = None

    def check_writer(self, session: Session, changes: Sequence[Edit]) -> None:
        """Raises BadInputError if the batch, which makes these changes, would be put behind another writer's messages
        or hide them."""
        if self.seen is None:
            return
        behind = not self.whole and session.counters.messages > self.seen
        if behind or any(isinstance(edit, RewindEdit) and edit.last_seq >= self.seen for edit in changes):
            raise BadInputError(OTHER_WRITER.format(session.session_id))

    def __post_init__(self) -> None:
        """Raises BadInputError if more than one field is set, or if one is out of bounds."""
        if (self.first_seq is not None) + (self.batch_id is not None) + self.whole > 1:
            raise BadInputError(
                "Pass at most one of first_seq (position of the first message), batch_id (an id of this batch) and"
                " whole=true (the messages are the whole conversation)."
            )
        if self.first_seq is not None and (type(self.first_seq) is not int or self.first_seq < 0):
            raise BadInputError(
                "first_seq is the position of the first message: 0 or more. Pass next_seq of the previous result."
            )
        if self.batch_id is not None and not (0 < len(self.batch_id) <= MAX_BATCH_ID and _is_unicode(self.batch_id)):
            raise BadInputError(f"A batch_id is 1 to {MAX_BATCH_ID} characters, such as a UUID.")


def _is_unicode(text: str) -> bool:
    """Whether it holds no half of a surrogate pair, which no database stores as text."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A caller's messages, for each the further fields of NewMessage, and the session's recent calls, to which theirs
    are added."""

    natives: Sequence[Native]
    extras: Sequence[Mapping[str, Any]]
    calls: Calls

    async def append_after(self, known: int, access: Access, session: Session, **placed: Unpack[Placement]) -> Appended:
        """Store the messages behind the `known` first ones."""
        natives, extras = self.natives[known:], self.extras[known:]
        return await append(access, session, natives, self.calls, extras=extras, listed_before=known, **placed)


async def record_batch(
    access: Access,
    session: Session,
    natives: Sequence[Native],
    calls: Calls,
    identity: BatchIdentity,
    extras: Sequence[Mapping[str, Any]],
) -> Appended:
    """Store the messages of the batch that are not stored yet, according to its identity. The batch's tool calls are
    added to `calls`, the session's recent ones."""
    batch = _Batch(natives, extras, calls)
    if identity.whole:
        return await _record_whole(access, session, batch, identity)
    identity.check_writer(session, ())
    if identity.first_seq is not None:
        return await _record_at(access, session, batch, identity.first_seq)
    return await batch.append_after(0, access, session, batch_id=identity.batch_id)


async def _record_at(access: Access, session: Session, batch: _Batch, first_seq: int) -> Appended:
    """Store a batch at a position. Messages that are stored there already are neither parsed nor counted again; the
    store compares the others."""
    stored: list[bytes] = []
    if first_seq < session.counters.messages:
        stored = (await access.store.read_fingerprints(session.session_id, first=first_seq))[: len(batch.natives)]
    listed = await _fingerprints(access, session, batch.natives[: len(stored)])
    known = len(stored) if listed == stored else 0
    appended = await batch.append_after(known, access, session, first_seq=first_seq + known)
    return appended.model_copy(update={"duplicates": appended.duplicates + known, "first_seq": first_seq})


async def _record_whole(access: Access, session: Session, batch: _Batch, identity: BatchIdentity) -> Appended:
    """Make the list the session's conversation: show the part that is stored, hide the messages that are not in the
    list, and append the rest. System messages at its head that differ from the stored ones are a change of the declared
    system prompt, not of the conversation."""
    stored = await stored_head(access, session)
    if stored is None:
        return await _record_branch(access, session, batch, identity)
    natives = batch.natives
    length = leading_system(session, natives)
    under = _Batch([*stored, *natives[length:]], [{} for _ in stored] + list(batch.extras[length:]), batch.calls)
    appended = await _record_branch(access, session, under, identity)
    session = await declare_head(access, appended.session, natives[:length], stored)
    duplicates = len(natives) - len(appended.messages)
    return appended.model_copy(update={"session": session, "duplicates": duplicates})


async def _record_branch(access: Access, session: Session, batch: _Batch, identity: BatchIdentity) -> Appended:
    """Make the list the session's conversation. If another process changes the session meanwhile, plan again; pieces
    stored before that conflict then count as stored."""
    listed = await _listed(access, session, batch.natives)
    first = await _plan(access, session, listed)
    plan, furthest, attempts = first, first.path.count, 0
    while True:
        identity.check_writer(session, plan.changes)
        try:
            appended = await _follow(access, session, batch, plan)
        except EditConflictError as error:
            attempts += 1
            if attempts == ATTEMPTS:
                raise EditConflictError(
                    "Other processes kept changing this session; send the same list again in a moment."
                ) from error
            await asyncio.sleep(WAIT_SECONDS * attempts)
        else:
            return await _with_pieces(access, appended, batch.natives, first, plan)
        plan = await _plan(access, session, listed)
        if plan.path.count > furthest:  # a piece was stored before the conflict, so the attempt made progress
            furthest, attempts = plan.path.count, 0


async def _with_pieces(
    access: Access, appended: Appended, natives: Sequence[Native], first: _Plan, last: _Plan
) -> Appended:
    """The result with the pieces that were stored before a conflict added, without their bodies."""
    stored = appended.messages
    if pieces := last.path.seqs[first.path.count :]:
        found = await access.store.read_messages_at(appended.session.session_id, pieces)
        stored = (*(message.model_copy(update={"body": None}) for message in found), *stored)
    return appended.model_copy(update={"messages": stored, "duplicates": len(natives) - len(stored), "first_seq": None})


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to make a list the session's conversation; valid while the session has this many messages and edits."""

    messages: int
    edits: int
    path: KnownPath
    changes: tuple[Edit, ...]

    def edits_before(self, counters: Counters) -> tuple[Edit, ...]:
        """The changes. Raises EditConflictError if the session has changed since the plan was made."""
        if (counters.messages, counters.edits) != (self.messages, self.edits):
            raise EditConflictError("The session changed while a whole conversation was compared with it.")
        return self.changes


async def _plan(access: Access, session: Session, listed: Sequence[bytes]) -> _Plan:
    edits = await access.store.read_edits(session.session_id)
    stored = await access.store.read_fingerprints(session.session_id)
    path = known_path(edits, stored, listed)
    changes = rewinding(edits, len(stored), path.last)
    return _Plan(len(stored), len(edits), path, tuple(changes))


async def _follow(access: Access, session: Session, batch: _Batch, plan: _Plan) -> Appended:
    """Carry out the plan. Raises EditConflictError if the session has changed meanwhile."""
    known = plan.path.count
    if plan.changes:
        snapshot = await access.snapshot(session.session_id)
        plan.edits_before(snapshot.session.counters)
        weighed = await weighed_together(access, snapshot, list(plan.changes))
        plan = _Plan(plan.messages, plan.edits, plan.path, tuple(weighed))
    elif known == len(batch.natives):
        session = await access.store.get_session(session.session_id)
        return Appended(messages=(), duplicates=known, session=session)
    if plan.path.last != plan.messages - 1:
        _remember_listed(session, batch.natives[:known], batch.calls)
    return await batch.append_after(known, access, session, before=plan.edits_before)


def _remember_listed(session: Session, known: Sequence[Native], calls: Calls) -> None:
    """Add the tool calls that precede the new messages. After a switch back to an older branch, these are not the
    newest calls in the store."""
    fmt = get_format(session.format)
    for native in known[-RECENT_MESSAGES:]:
        remember_calls(calls, fmt.read(native).blocks)


async def _listed(access: Access, session: Session, natives: Sequence[Native]) -> list[bytes]:
    """The fingerprint of each message of a whole conversation."""
    digests = await asyncio.to_thread(digests_of, natives) if is_large(natives) else digests_of(natives)
    known = access.lists.fingerprints(session.session_id, digests)
    fingerprints = [*known, *await _fingerprints(access, session, natives[len(known) :])]
    access.lists.keep(session.session_id, digests, fingerprints)
    return fingerprints


async def _fingerprints(access: Access, session: Session, natives: Sequence[Native]) -> list[bytes]:
    if is_large(natives):
        return await asyncio.to_thread(fingerprints_of, access, session, natives)
    return fingerprints_of(access, session, natives)


def fingerprints_of(access: Access, session: Session, natives: Sequence[Native]) -> list[bytes]:
    """The fingerprints of messages as they are stored, by which a message and its copy without secrets are one."""
    settings = access.settings(session)
    return [access.store.fingerprint(stored_body(settings, native)) for native in natives]


def leading_system(session: Session, natives: Sequence[Native]) -> int:
    """How many system messages a list begins with."""
    fmt = get_format(session.format)
    for place, native in enumerate(natives[:MAX_HEAD]):
        try:
            if fmt.read(native).role != "system":
                return place
        except BadMessageError:  # the recording reports it
            return place
    return min(len(natives), MAX_HEAD)


async def stored_head(access: Access, session: Session) -> list[Native] | None:
    """The system messages that the conversation begins with, as they were recorded; None if it has no messages yet."""
    if not session.counters.messages:
        return None
    path = path_to(await access.store.read_edits(session.session_id), session.counters.messages - 1)
    positions = sorted(path)[:MAX_HEAD]
    head: list[Native] = []
    # Most conversations begin with one system message or none: the next messages can be large.
    for part in (positions[:1], positions[1:2], positions[2:]):
        for message in await access.store.read_messages_at(session.session_id, part) if part else ():
            if message.role != "system":
                return head
            head.append(message.body or {})
    return head


async def declare_head(access: Access, session: Session, head: Sequence[Native], stored: Sequence[Native]) -> Session:
    """Declare the system messages that a conversation begins with, unless they are the recorded ones and these are
    shown. A system prompt that was declared in a field of its own stays."""
    if session.counters.declared.system is None and list(head) == list(stored):
        return session
    declared = await declared_system(access, session)
    if declared is not None and declared.part == "system" and list(head) == list(stored):
        return session
    return await declare(access, session, head=head)
