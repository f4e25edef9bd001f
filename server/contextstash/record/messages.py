"""Messages recorded: a batch of them, identified by a position, by an id, or by being the whole conversation, is read,
counted and stored; and the outputs among them that are over a limit are truncated."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, takewhile
from typing import Any, TypeVar

from contextstash.messages.base import Format, NotJsonError, check_json
from contextstash.messages.detection import detect_format, get_format, shown_format
from contextstash.outputs.limits import OutputLimits, shared_limit
from contextstash.outputs.placeholders import is_own_call, is_own_retrieval
from contextstash.record.declared import (
    MAX_HEAD,
    System,
    Tools,
    book_late,
    check_declared,
    declare,
    declared_system,
    leading_system,
    with_usage,
)
from contextstash.record.output_archive import MAX_CHARACTERS, check_conversation_id
from contextstash.session.access import Access, Calls
from contextstash.session.edit import Planned, edit, entries_after, plan_stripping, retrying
from contextstash.session.masks import derived, stored_body
from contextstash.session.open_session import WITHIN_REACH
from contextstash.view.session_snapshot import count_message, truncate_edit
from contextstash.view.view import known_path, path_to, rewinding
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter, measure
from contextstash_storage.errors import BadInputError, BadMessageError, EditConflictError
from contextstash_storage.records import (
    Appended,
    Block,
    Counters,
    Cursor,
    Edit,
    Edited,
    EditsAfter,
    KnownBy,
    Message,
    Native,
    NewMessage,
    Output,
    RewindEdit,
    Session,
    TruncateEdit,
)

MANY_MESSAGES, MANY_CHARACTERS = 100, 30_000
"""Of more than these, messages are read and counted in a worker thread, so that the event loop is blocked for at most
about 10 ms: that takes 0.3 ms for 1,000 characters, and 0.01 ms for a small block."""

Returned = TypeVar("Returned")

RECENT_MESSAGES = 60
"""How many messages before a tool result are searched for its call. A result that comes later has no tool name."""

MAX_RECENT_CALLS = 500
"""Tool calls remembered of one session: several for each of the RECENT_MESSAGES."""

STEP_PART = 2
"""The outputs of one step take at most the free window divided by this, if each keeps half of its own limit. With more,
a step of parallel calls fills a small window, which is then reduced at every step. Measured with bench/fidelity."""

MAX_PLAIN_MESSAGES = 50
"""The longest beginning of plain text after which a session's format may still change. An agent's first tool call
comes sooner; a session that begins with more plain text keeps the format that was detected first."""

OTHER_WRITER = (
    "Another agent records in session '{}' at the same time: it holds messages that this one has not sent. Give each"
    " agent a session_id of its own; a sub-agent's session can name its parent."
)


@dataclass(frozen=True)
class Batch:
    """Messages to record, with what identifies them if they are sent again, and what their sender knows of the session.

    At most one of `first_seq` (the position of the first message), `batch_id` and `whole` (they are the whole
    conversation) identifies them; without, a repeated batch is stored a second time. `seen` is how many messages the
    session had when its writer was last there: what is behind them is from another writer. `extras[i]` are further
    fields of NewMessage for the message `i`.

    A new session gets the facts from `format` to `settings`. Of an existing one only a new model, a new agent and a
    first title are stored. `system` and `tools` are sent with the messages and counted with them, until others are
    declared; they show the format of a session that begins with plain text. `usage` is what the provider reported for
    the last reply among the messages; it is booked to the newest request that get_context returned.
    """

    messages: Sequence[Native] = ()
    first_seq: int | None = None
    batch_id: str | None = None
    whole: bool = False
    seen: int | None = None
    extras: Sequence[Mapping[str, Any]] = ()
    format: str | None = None
    model: str | None = None
    agent: str | None = None
    title: str | None = None
    parent_session_id: str | None = None
    source: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    system: System | None = None
    tools: Tools | None = None
    usage: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raises BadInputError if more than one of the three is set."""
        if (self.first_seq is not None) + (self.batch_id is not None) + self.whole > 1:
            raise BadInputError(
                "Pass at most one of first_seq (position of the first message), batch_id (an id of this batch) and"
                " whole=true (the messages are the whole conversation)."
            )

    def check_writer(self, session: Session, changes: Sequence[Edit] = ()) -> None:
        """Raises BadInputError if the batch, which makes these changes, would be put behind another writer's messages
        or hide them."""
        if self.seen is None:
            return
        behind = not self.whole and session.counters.messages > self.seen
        if behind or any(isinstance(edit, RewindEdit) and edit.last_seq >= self.seen for edit in changes):
            raise BadInputError(OTHER_WRITER.format(session.session_id))


async def record_messages(access: Access, session_id: str | None, batch: Batch) -> Appended:
    """Store a batch durably, with what a program declares and reports beside it, and cut its outputs to limits."""
    usage, declares = batch.usage, batch.system is not None or batch.tools is not None
    if declares:  # refused, it must not leave messages behind
        check_declared(batch.system, batch.tools)
    if not batch.messages:
        raise BadInputError("messages is empty: pass at least one message as its provider writes it.")
    check_limits(batch.messages)
    session_id = session_id or await access.current_session_id()
    known = await access.find(session_id)
    if known is None and batch.first_seq:
        raise BadInputError(
            f"first_seq is {batch.first_seq}, but there is no session of this id yet: record its messages from"
            " position 0 on."
        )
    if known is None and usage is not None:  # refused, it must not leave an empty session
        with_usage(batch.messages, get_format(batch.format or detect_format(batch.messages)), usage)
    session = await ensure_session(access, session_id, known, batch)
    async with access.lock(session.session_id):
        if usage is not None:
            batch = replace(batch, extras=with_usage(batch.messages, get_format(session.format), usage))
        appended = await store_batch(access, session, batch)
        session = appended.session
        if declares:
            session = await declare(access, session, system=batch.system, tools=batch.tools)
        session = await limit_outputs(access, session, appended.messages)
        if usage is not None and not any(message.usage for message in appended.messages):
            session = await book_late(access, session, usage)
    return appended.model_copy(update={"session": session})


# The session that a batch is recorded in.


async def ensure_session(access: Access, session_id: str | None, known: Session | None, batch: Batch) -> Session:
    """The session to record into: the one that is `known` to exist, or else a new one, with a generated id if it is not
    named. The messages' size is checked before. Raises BadInputError if no conversation can have this id."""
    if known is not None:
        return await _with_facts(access, known, batch)
    if session_id is not None:
        check_conversation_id(session_id)
    name = batch.format or shown_format(batch.messages, tools=batch.tools, system=batch.system, model=batch.model)
    now = datetime.now(UTC)
    facts = {each: getattr(batch, each) for each in ("model", "agent", "title", "source", "parent_session_id")}
    new = Session(
        session_id=session_id or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",  # ids sort by time
        format=get_format(name).name,
        settings=dict(batch.settings),
        created_at=now,
        updated_at=now,
        **facts,
    )
    return await access.store.create_session(new)


async def _with_facts(access: Access, session: Session, facts: Batch) -> Session:
    """The session with what its sender knows of it now."""
    wanted = None if facts.format is None else get_format(facts.format).name
    format_name = await _fitting_format(access, session, wanted, facts.messages)
    if wanted is not None and wanted != format_name:
        raise BadInputError(
            f"Session {session.session_id} holds {session.format} messages;"
            f" record {facts.format} messages in a session of their own."
        )
    title = session.title or facts.title
    given = {"model": facts.model, "agent": facts.agent, "title": title, "format": format_name}
    changed = {name: value for name, value in given.items() if value is not None and value != getattr(session, name)}
    return await access.store.update_session(session.session_id, **changed) if changed else session


async def _fitting_format(access: Access, session: Session, wanted: str | None, natives: Sequence[Native]) -> str:
    """The format of these messages and of all stored ones: the session's own, unless the stored ones are plain text
    that fits the wanted one, or else the format that the new ones show."""
    own = session.format
    if session.counters.messages > MAX_PLAIN_MESSAGES or not natives or wanted == own:
        return own
    try:
        fits = wanted is None and not any(map(get_format(own).misfit, natives))
        shown = own if fits else wanted or detect_format(natives)
    except BadMessageError:  # the recording reports it
        return own
    if shown == own:
        return own
    stored = await access.store.read_messages(session.session_id)
    return own if any(get_format(shown).misfit(message.body or {}) for message in stored) else shown


# Storing what is not stored yet.


async def store_batch(access: Access, session: Session, batch: Batch) -> Appended:
    """Store the messages of the batch that are not stored yet, according to its identity; whoever calls this holds the
    session's lock."""
    if batch.whole:
        return await _store_whole(access, session, batch)
    batch.check_writer(session)
    known_by = batch.batch_id if batch.first_seq is None else batch.first_seq
    return await append(access, session, batch.messages, extras=batch.extras, known_by=known_by)


async def _store_whole(access: Access, session: Session, batch: Batch) -> Appended:
    """Make the list the session's conversation: show the part that is stored, hide the messages that are not in the
    list, and append the rest. System messages at its head that differ from the stored ones are a change of the declared
    system prompt, not of the conversation."""
    natives, stored = batch.messages, await _stored_head(access, session)
    length = 0 if stored is None else leading_system(get_format(session.format), natives)
    same = stored is not None and list(natives[:length]) == stored
    branch = batch
    if stored is not None and not same:
        extras = [*({} for _ in stored), *batch.extras[length:]] if batch.extras else ()
        branch = replace(batch, messages=[*stored, *natives[length:]], extras=extras)
    prints = await _with_many(natives, lambda: fingerprints_of(access, session, branch.messages))
    appended = await retrying(lambda: _store_branch(access, session, branch, prints))
    session = appended.session
    declared = session.counters.declared.system
    if stored is not None and not (same and declared is None):
        version = await declared_system(access, session)
        if not (same and version is not None and version.part == "system"):  # what was declared in a field stays
            session = await declare(access, session, head=natives[:length])
    duplicates = len(natives) - len(appended.messages)
    return Appended(messages=appended.messages, duplicates=duplicates, session=session)


async def _store_branch(access: Access, session: Session, batch: Batch, prints: Sequence[bytes]) -> Appended:
    """Make the list the session's conversation. Raises EditConflictError if another process changes it meanwhile."""
    store, name = access.store, session.session_id
    edits, stored = await store.read_edits(name), await store.read_fingerprints(name)
    path = known_path(edits, stored, prints)
    count, last = len(path), path[-1] if path else -1
    changes = rewinding(edits, len(stored), last)
    batch.check_writer(session, changes)
    rewound: Callable[[Counters], Counters] = lambda counters: counters  # noqa: E731 - replaced if there are changes

    def unchanged(counters: Counters) -> Edited:
        if (counters.messages, counters.edits) != (len(stored), len(edits)):
            raise EditConflictError("The session changed while a whole conversation was compared with it.")
        return changes, rewound(counters)

    if changes:
        snapshot = await access.snapshot(name)
        unchanged(snapshot.session.counters)
        rewound = snapshot.counters_after(await entries_after(access, snapshot, changes), own=False)
    elif count == len(batch.messages):
        return Appended(messages=(), duplicates=count, session=await store.get_session(name))
    return await append(
        access,
        session,
        batch.messages[count:],
        extras=batch.extras[count:],
        listed_before=count,
        behind=() if last == len(stored) - 1 else batch.messages[:count],
        known_by=unchanged,
    )


def fingerprints_of(access: Access, session: Session, natives: Sequence[Native]) -> list[bytes]:
    """The fingerprints of messages as they are stored, by which a message and its copy without secrets are one."""
    settings = access.settings(session)
    return [access.store.fingerprint(stored_body(settings, native)) for native in natives]


async def _stored_head(access: Access, session: Session) -> list[Native] | None:
    """The system messages that the conversation begins with, as they were recorded; None if it has no messages yet."""
    if not session.counters.messages:
        return None
    path = path_to(await access.store.read_edits(session.session_id), session.counters.messages - 1)
    positions = sorted(path)[: min(MAX_HEAD, session.counters.system_messages)]
    read = await access.store.read_messages(session.session_id, at=positions) if positions else []
    return [message.body or {} for message in takewhile(lambda message: message.role == "system", read)]


# Reading, and storing what is read.


def check_limits(natives: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadMessageError if a message cannot be recorded. To be called before any processing."""
    for place, native in enumerate(natives):
        if (problem := limit_problem(native)) is not None:
            raise BadMessageError(f"Message {place} {problem}")


def limit_problem(native: Mapping[str, Any]) -> str | None:
    """The limit that a message exceeds, or what it holds that JSON does not have, and what to do; None if it can be
    recorded. The text continues a sentence about the message."""
    try:
        size = check_json(native)
    except NotJsonError as error:
        return str(error)
    if size > MAX_CHARACTERS:
        return (
            f"has more than {MAX_CHARACTERS:,} characters, the most that can be recorded and more than providers"
            " accept. Write the data to a file, and send its path."
        )
    return None


async def _with_many(natives: Sequence[Native], work: Callable[[], Returned], *, in_thread: bool = False) -> Returned:
    """The result of `work`, which reads these messages: of many in a worker thread."""
    is_much = len(natives) > MANY_MESSAGES or sum(map(check_json, natives)) > MANY_CHARACTERS
    return await asyncio.to_thread(work) if in_thread or is_much else work()


async def append(
    access: Access,
    session: Session,
    natives: Sequence[Native],
    *,
    extras: Sequence[Mapping[str, Any]] = (),
    listed_before: int = 0,
    behind: Sequence[Native] = (),
    known_by: KnownBy = None,
    cursor: Cursor | None = None,
    edits: EditsAfter | None = None,
) -> Appended:
    """Read, count and store messages whose size is checked; see SessionStore.append_messages. `extras[i]` are further
    fields of NewMessage for `natives[i]`. These come `behind` others that are not the newest ones stored, if the
    conversation switches back to an older branch. If a message is invalid, raises BadMessageError before anything is
    stored; it names its index in the caller's list, in which `listed_before` messages precede these."""
    settings, fmt, calls = access.settings(session), get_format(session.format), await _recent_calls(access, session)
    counter = access.counter(settings, session.model)
    for native in behind[-RECENT_MESSAGES:]:
        remember_calls(calls, fmt.read(native).blocks)
    # An output is counted as a block and as an output, and counting takes longer than all else.
    counted = replace(counter, raw=cache(counter.raw))

    def read() -> list[NewMessage]:
        found = []
        for place, native in enumerate(natives):
            try:
                more = extras[place] if extras else {}
                found.append(_new_message(native, fmt, counted, settings, calls, more))
            except BadMessageError as error:
                raise BadMessageError(f"Message {listed_before + place} cannot be recorded: {error}") from error
        return found

    messages = await _with_many(natives, read, in_thread=counter.name not in access.loaded)
    access.loaded.add(counter.name)
    appended = await access.store.append_messages(
        session.session_id, messages, count=count_message, known_by=known_by, cursor=cursor, edits=edits
    )
    access.calls.set(session.session_id, (appended.session.counters.messages, calls))
    return appended


async def _recent_calls(access: Access, session: Session) -> Calls:
    """The tool calls of a session's newest messages: a result may be recorded in a later batch than its call. They are
    read again if another process has recorded meanwhile."""
    count = session.counters.messages
    at, calls = access.calls.get(session.session_id, (0, {}))
    if at != count:
        calls = {}
        first = max(0, count - RECENT_MESSAGES)
        for message in await access.store.read_messages(session.session_id, first=first, bodies=False):
            remember_calls(calls, message.blocks)
    return calls


def remember_calls(calls: Calls, blocks: Sequence[Block]) -> None:
    """Add the tool calls among these blocks, and forget the oldest above MAX_RECENT_CALLS, but none of these."""
    named = [block for block in blocks if block.type == "tool_call" and block.call_id]
    for block in named:
        calls.pop(block.call_id or "", None)
        calls[block.call_id or ""] = (block.tool or "tool", block.argument or "")
    while named and len(calls) > max(MAX_RECENT_CALLS, len(named)):
        del calls[next(iter(calls))]


def _new_message(
    native: Native, fmt: Format, counter: Counter, settings: ContextSettings, calls: Calls, more: Mapping[str, Any]
) -> NewMessage:
    """A message as it is stored, with `more` fields. Its calls are added to `calls`, the session's recent ones."""
    reading = fmt.read(native)
    texts = reading.texts or ("",)
    read, masked = derived(settings, reading.role, measure(reading, counter, settings), texts)
    remember_calls(calls, read)
    blocks, outputs = list(read), []
    for place, (block, text) in enumerate(zip(read, texts, strict=True)):
        if block.type == "tool_result":
            named = calls.get(block.call_id or "", (block.tool or "tool", ""))
            if not block.tool and block.call_id in calls:
                blocks[place] = block.model_copy(update={"tool": named[0]})
            tokens = counter.count(text)
            outputs.append(Output.of(*named, text, tokens=tokens, block=place, is_error=block.is_error))
    fields: dict[str, Any] = {
        "kind": "tool_result" if outputs else "message",
        "usage": reading.usage,
        "model": reading.model,
        "group": reading.group,
        **more,
    }
    return NewMessage(
        body=stored_body(settings, native),
        role=reading.role,
        blocks=tuple(blocks),
        outputs=tuple(outputs),
        texts=search_texts(masked, blocks, calls),
        **fields,
    )


def search_texts(texts: Sequence[str], blocks: Sequence[Block], calls: Calls) -> tuple[tuple[int, str], ...]:
    """The texts that search finds, each after the number of its block. The calls of our own tools and their results are
    left out: a search would find itself, and quotations before the originals."""
    found = []
    for number, (block, text) in enumerate(zip(blocks, texts, strict=True)):
        call = calls.get(block.call_id or "", (block.tool or "", block.argument or ""))
        is_own = block.type in ("tool_call", "tool_result") and is_own_call(*call)
        if not is_own and block.type not in ("image", "document", "opaque") and (text or block.type != "text"):
            found.append((number, text))
    return tuple(found)


# Outputs over a limit.


async def limit_outputs(access: Access, session: Session, messages: Sequence[Message]) -> Session:
    """Truncate the outputs among new messages that are over the session's limits, and return the changed session."""
    if not any(map(_has_outputs, messages)):
        return session
    rules = _rules(access, session, messages)
    places = {
        (message.seq, place)
        for message in messages
        for place, block in enumerate(message.blocks)
        if block.type == "tool_result" and rules[message.seq].may_cut(block.size, block.tokens)
    }
    if not places:
        return session

    async def plan() -> Planned[Session] | Session:
        snapshot = await access.snapshot(session.session_id, WITHIN_REACH)
        if min(places)[0] <= snapshot.beyond.last_seq:
            snapshot = await access.snapshot(session.session_id)
        shown = {entry.first_seq: entry for entry in snapshot.entries if entry.message}
        whole = [place for place in sorted(places) if place[0] in shown and place[1] not in shown[place[0]].replaced]
        outputs = [snapshot.outputs[place] for place in whole if place in snapshot.outputs]

        def truncated(batch: Sequence[tuple[Output, str]]) -> list[TruncateEdit]:
            over = (
                (output, text) for output, text in batch if not rules[output.seq].holds(text, snapshot.counter.count)
            )
            return [truncate_edit(snapshot, output, text, rules[output.seq]) for output, text in over]

        if outputs and plan_stripping(snapshot, outputs[0].seq).choice == "wait":
            # The reasoning of the open tool loop is bound to what stands before it: the model has had that whole.
            bound = max(entry.first_seq for entry in snapshot.entries if entry.thinks)
            outputs = [each for each in outputs if each.seq > bound]
        others = [each for each in outputs if not is_own_retrieval(each.tool, each.argument)]
        cut = await access.from_texts(snapshot, others, truncated)
        if not cut:
            return snapshot.session
        stripping = plan_stripping(snapshot, min(each.seq for each in cut))
        return Planned(snapshot, cut, lambda changed, _: changed, stripping)

    return await edit(access, plan)


def _has_outputs(message: Message) -> bool:
    return any(block.type == "tool_result" for block in message.blocks)


def _rules(access: Access, session: Session, messages: Sequence[Message]) -> dict[int, OutputLimits]:
    """The limits of the outputs in each message, by its position: the session's; outputs of one step, such as of
    parallel calls, share its room."""
    settings = access.settings(session)
    own = access.output_limits(settings, session)
    rules = dict.fromkeys([message.seq for message in messages], own)
    if settings.output_share is None or own.tokens is None:
        return rules
    room = access.budget(settings, session.model, session).free // STEP_PART
    # The messages with tool outputs that follow each other.
    for step in [list(step) for has_outputs, step in groupby(messages, _has_outputs) if has_outputs]:
        sizes = [block.tokens for message in step for block in message.blocks if block.type == "tool_result"]
        if sum(min(size, own.tokens) for size in sizes) > room:
            shared = replace(own, tokens=max(own.tokens // 2, shared_limit(sizes, room)))
            rules |= dict.fromkeys([message.seq for message in step], shared)
    return rules
