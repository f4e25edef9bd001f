"""Sessions whose requests go through the proxy: what was recorded of a request, and what of it is sent differently."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from contextstash.messages.request.text import is_models
from contextstash.outputs.counts import counted
from contextstash.record.batches import Batch, ensure_session, fingerprints_of, store_batch
from contextstash.record.client_edits import client_compaction
from contextstash.record.messages import append
from contextstash.reduce.prune import archive_outputs
from contextstash.results import CompactResult, PruneResult, RestoreResult
from contextstash.session.access import Access, is_current
from contextstash.session.edit import Planned, edit
from contextstash.view.branches import known_path
from contextstash.view.ladder import Candidate
from contextstash.view.session_snapshot import SessionSnapshot, event_of
from contextstash.view.view import edits_in_force, output_tokens
from contextstash.window.reasoning_binding import reasoning_binding
from contextstash_storage.errors import EditConflictError, SessionNotFoundError
from contextstash_storage.records import (
    ArchiveEdit,
    Counters,
    Message,
    Native,
    Output,
    ProxiedSession,
    Replacement,
    RestoreEdit,
    Session,
    SummaryEdit,
    Usage,
    WeighedEdits,
)

Key = tuple[str, str]
"""An output: the id of its call, and the SHA-256 of its text. Some models count their calls again from the start in
each turn, so that the id alone is no name."""


class KnownOutput(NamedTuple):
    """An output of the session that is recorded, and when that was, in seconds since 1970."""

    output: Output
    recorded_at: float


class Pin(NamedTuple):
    """What is sent in place of an output, for the life of the session, and since when, in seconds since 1970."""

    text: str
    pinned_at: float


@dataclass(frozen=True)
class ProxiedEdits:
    """The edits of a session that its next request must show: `pins` by output. `edits` is how many edits the session
    had."""

    edits: int = 0
    pins: Mapping[Key, Pin] = field(default_factory=dict)
    summaries: tuple[SummaryEdit, ...] = ()


@dataclass(frozen=True)
class RecordedList:
    """Where the messages of a request are in the session, which then had so many messages and edits."""

    positions: tuple[int, ...] = ()
    messages: int = -1
    edits: int = -1

    def is_current(self, counters: Counters) -> bool:
        """Whether nothing was recorded or edited since."""
        return (counters.messages, counters.edits) == (self.messages, self.edits)

    def no_edits(self, counters: Counters) -> WeighedEdits:
        """No edits in front of an append. Raises EditConflictError if another process was faster."""
        if not self.is_current(counters):
            raise EditConflictError("The session changed while a request was recorded.")
        return WeighedEdits(())


@dataclass
class Catalog:
    """The recorded outputs of a session, of several equal ones with the same id the newest; `keys` are by message and
    block. `messages` is how many messages were read."""

    messages: int = 0
    outputs: dict[Key, KnownOutput] = field(default_factory=dict)
    keys: dict[tuple[int, int], Key] = field(default_factory=dict)

    def add(self, message: Message, outputs: Mapping[tuple[int, int], Output]) -> None:
        """Add the outputs of a message that was recorded."""
        self.messages = message.seq + 1
        for place, block in enumerate(message.blocks):
            output = outputs.get((message.seq, place))
            if output is not None and block.call_id:
                key = self.keys[output.seq, output.block] = (block.call_id, output.sha256)
                self.outputs[key] = KnownOutput(output, message.created_at.timestamp())


def _pin(edit: Replacement) -> Pin:
    return Pin(edit.text, edit.created_at.timestamp() if edit.created_at else 0.0)


async def note_compaction(access: Access, session_id: str, before: int, after: int) -> None:
    """Log that the client's window was compacted, from so many tokens to so many, as the provider counted them.
    Without effect if it did not become smaller, if the session's transcript says so, or if it was deleted."""
    session = await access.find(session_id)
    if session is None or session.source is not None or after >= before:
        return
    with suppress(SessionNotFoundError):
        event = await client_compaction(access, session, before, after)
        await access.store.append_event(session_id, event)


async def state_of(access: Access, session_id: str) -> ProxiedSession | None:
    """What is known of a session's requests; None if it does not exist or none went through the proxy."""
    try:
        return await access.store.get_proxied(session_id)
    except SessionNotFoundError:
        return None


async def keep_state(access: Access, session_id: str, state: ProxiedSession) -> None:
    """Store what is known of a session's requests. Without effect if the session was deleted."""
    with suppress(SessionNotFoundError):
        await access.store.put_proxied(session_id, state)


async def record_request(
    access: Access,
    session_id: str,
    natives: Sequence[Native],
    known: RecordedList | None = None,
    *,
    since: datetime | None = None,
    usage: Usage | None = None,
    **facts: Any,
) -> RecordedList:
    """Record the messages of a request, the whole conversation, and return where they are. `known` is the result
    for the messages that the list begins with: if the session is unchanged since, only the others are compared. A
    new session is created with these `facts`, unless `since` says when the session was created: then it has been
    deleted, and SessionNotFoundError is raised. `usage` is that of the last reply among the messages.

    Nothing else is done to the session: the proxy alone decides what a request shows, and automatic reductions by
    level would cost the prompt cache."""
    start = len(known.positions) if known is not None else 0
    extras = _with_usage(natives, usage)
    stored = await (access.find(session_id) if since is None else access.store.get_session(session_id))
    new = Batch(natives[start:], settings={"automatic": False}, **facts)
    session, _ = await ensure_session(access, session_id, stored, new)
    async with access.lock(session_id):
        if known is not None and known.is_current(session.counters):
            with suppress(EditConflictError):  # another process was faster: compare the whole list
                return await _append(access, session, natives[start:], extras[start:], known)
        appended = await store_batch(access, session, Batch(natives, whole=True, extras=extras))
        positions = await positions_of(access, session_id, natives)
    counters = appended.session.counters
    return RecordedList(positions, counters.messages, counters.edits)


async def _append(
    access: Access,
    session: Session,
    natives: Sequence[Native],
    extras: Sequence[Mapping[str, Any]],
    known: RecordedList,
) -> RecordedList:
    """Record these messages behind the known ones. Raises EditConflictError if the session has changed."""
    appended = await append(access, session, natives, extras=extras, before=known.no_edits)
    counters = appended.session.counters
    added = tuple(message.seq for message in appended.messages)
    return RecordedList((*known.positions, *added), counters.messages, counters.edits)


async def positions_of(access: Access, session_id: str, natives: Sequence[Native]) -> tuple[int, ...]:
    """The positions of the recorded messages that are equal to the beginning of this list."""
    store = access.store
    edits, stored = await store.read_edits(session_id), await store.read_fingerprints(session_id)
    session = await store.get_session(session_id)
    return known_path(edits, stored, fingerprints_of(access, session, natives)).seqs


async def extend(access: Access, session_id: str, known: Catalog) -> Catalog:
    """Add what was recorded since to a session's catalog."""
    store = access.store
    messages = await store.read_messages(session_id, first=known.messages, bodies=False)
    read = await store.read_outputs(session_id, first=known.messages)
    outputs = {(output.seq, output.block): output for output in read}
    for message in messages:
        known.add(message, outputs)
    return known


async def edits_to_show(access: Access, session_id: str, catalog: Catalog) -> ProxiedEdits:
    """The edits that the next request must show: those that no restore has undone. A rewind hides messages, but
    not the pins of their outputs: the client may go back to them."""
    edits = await access.store.read_edits(session_id)
    undone = {number for edit in edits if isinstance(edit, RestoreEdit) for number in edit.undoes}
    live = [edit for edit in edits if isinstance(edit, Replacement) and edit.edit_id not in undone]
    keys = catalog.keys
    return ProxiedEdits(
        len(edits),
        {keys[edit.seq, edit.block]: _pin(edit) for edit in live if (edit.seq, edit.block) in keys},
        # A summary with a position is the client's own: its requests hold it already.
        tuple(edit for edit in edits_in_force(edits).summaries if edit.seq is None),
    )


async def archive_exactly(access: Access, session_id: str, outputs: Sequence[Output]) -> int:
    """Archive exactly these outputs, durably, before a request shows their placeholders. Returns how many were
    archived."""

    async def plan() -> Planned[int] | int:
        snapshot = await access.snapshot(session_id)
        made = [each.edit for each in await archive_outputs(access, snapshot, _candidates(snapshot, outputs))]
        if not made:
            return 0
        reason = f"Archived by the proxy: {counted(len(made), 'tool output')}."
        event = partial(event_of, snapshot, kind="prune", reason=reason)
        return Planned(snapshot, made, lambda *_: len(made), event=event)

    return await edit(access, plan)


def _with_usage(natives: Sequence[Native], usage: Usage | None) -> list[dict[str, Any]]:
    extras: list[dict[str, Any]] = [{} for _ in natives]
    if usage is not None:
        last = next((p for p in range(len(natives) - 1, -1, -1) if is_models(natives[p])), None)
        if last is not None:
            extras[last]["usage"] = usage
    return extras


NEXT_REQUEST = (
    "This session goes through the contextstash proxy: its next request shows the change."
    " Once, the provider writes what follows the first change to its prompt cache again."
)
"""What the change of a proxied session does, for its model."""

AFTER_COMPACTION = (
    "This session goes through the contextstash proxy, and its model binds its reasoning to what was sent before it:"
    " requests show the change as soon as no such reasoning follows it, at the latest after the client's next"
    " compaction. get_archived_output returns an output now."
)
"""The same for a model whose provider would refuse or drop that reasoning."""

P = ParamSpec("P")
Changed = TypeVar("Changed", PruneResult, CompactResult, RestoreResult)


def noting_effect(
    function: Callable[Concatenate[Access, P], Coroutine[Any, Any, Changed]],
) -> Callable[Concatenate[Access, P], Coroutine[Any, Any, Changed]]:
    """A change of a view; of a session that goes through the proxy, the note of its result says when the requests show
    it."""

    @wraps(function)
    async def call(access: Access, /, *arguments: P.args, **named: P.kwargs) -> Changed:
        return await _with_effect(access, await function(access, *arguments, **named), time.time())

    return call


async def _with_effect(access: Access, result: Changed, now: float) -> Changed:
    proxied = await access.store.get_proxied(result.session_id)
    if proxied is None or not is_current(proxied, now) or getattr(result, "dry_run", None):
        return result
    if result.tokens_before == result.tokens_after:
        return result
    if proxied.left_alone:
        note = f"The proxy does not change this session's requests any more: {proxied.left_alone}."
    else:
        note = AFTER_COMPACTION if reasoning_binding(proxied.model) is not None else NEXT_REQUEST
    return result.model_copy(update={"note": note})


def _candidates(snapshot: SessionSnapshot, outputs: Sequence[Output]) -> list[Candidate]:
    shown = {entry.message.seq: entry for entry in snapshot.entries if entry.message}
    found = []
    for output in sorted(outputs, key=lambda each: (each.seq, each.block)):
        entry = shown.get(output.seq)
        if entry is None or entry.message is None or isinstance(entry.replaced.get(output.block), ArchiveEdit):
            continue
        found.append(Candidate(output, output_tokens(entry.message, output.block), output.tokens))
    return found
