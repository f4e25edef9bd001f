"""Messages: parses and counts each provider-native message once, and stores it."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Unpack

from contextstash.base.bounded_cache import BoundedCache
from contextstash.messages import FORMATS, UNDECIDED, detect_format, get_format
from contextstash.messages.base import Format
from contextstash.messages.detection import shown_format
from contextstash.messages.usage import reported_usage
from contextstash.outputs.own_tools import is_own_call
from contextstash.record.provider_reasoning import with_reported_reasoning
from contextstash.session.masks import derived, stored_body
from contextstash.session.session_access import Access, check_conversation_id
from contextstash.view.session_counters import count_message
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter, measure
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.handles import handle_of
from contextstash_storage.json_values import NotJsonError, check_json
from contextstash_storage.records import Appended, Block, Native, NewMessage, Output, Session
from contextstash_storage.store import Placement

MAX_BLOCKS = 10_000
"""Blocks of one message, including those inside its tool results. Reading and measuring them blocks the interpreter:
100,000 blocks delayed other calls by 0.8 s, 10,000 by less than 0.1 s (measured). The longest message in the
real sessions that were examined has 17."""

_LISTS = ("content", "output", "parts", "tool_calls")

MAX_CHARACTERS = 64 * 1024 * 1024
"""Characters of the strings of one message. It is stored in one transaction, in which no other process can write: about
3 ms of processor time for each million characters, and the time of the disk. No more fits into a request over MCP, and
half of it is more than Anthropic accepts in one request."""


def check_limits(natives: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadMessageError if a message is larger than can be recorded. To be called before any processing."""
    for place, native in enumerate(natives):
        if (problem := limit_problem(native)) is not None:
            raise BadMessageError(f"Message {place} {problem}")


def limit_problem(native: Mapping[str, Any]) -> str | None:
    """The limit that a message exceeds, or what it holds that JSON does not have, and what to do; None if it can be
    recorded. The text continues a sentence about the message."""
    count = blocks_of(native)
    if count > MAX_BLOCKS:
        return (
            f"has {count:,} blocks; at most {MAX_BLOCKS:,} can be recorded. Join its texts, or send it as several"
            " messages."
        )
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


def blocks_of(native: Mapping[str, Any], levels: int = 2) -> int:
    """How many blocks a message has, including those inside its tool results; stops counting above MAX_BLOCKS."""
    count = 0
    for name in _LISTS:
        blocks = native.get(name)
        if isinstance(blocks, list):
            count += len(blocks)
            if levels > 1 and count <= MAX_BLOCKS:
                count += sum(blocks_of(block, levels - 1) for block in blocks if isinstance(block, dict))
    return count


RECENT_MESSAGES = 60
"""How many messages before a tool result are searched for its call. A result that comes later has no tool name."""

MAX_RECENT_CALLS = 500
"""Tool calls remembered of one session: several for each of the RECENT_MESSAGES."""

IN_THREAD_CHARACTERS = 200_000
"""Above this size a batch is counted in a worker thread, so that the event loop stays free for other calls."""

IN_THREAD_MESSAGES = 100
"""The same for the number of messages, and of blocks. Each takes about 100 µs, so that the event loop is blocked for at
most 10 ms."""

MAX_PLAIN_MESSAGES = 50
"""The longest beginning of plain text after which a session's format may still change. An agent's first tool call
comes sooner; a session that begins with more plain text keeps the format that was detected first."""

Calls = dict[str, tuple[str, str]]
"""Tool name and main argument by call id."""


class RecentCalls:
    """Tool calls of the sessions recorded last: a result may be recorded in a later batch than its call."""

    def __init__(self, access: Access, sessions: int = 64) -> None:
        self._access = access
        self._known: BoundedCache[str, tuple[int, Calls]] = BoundedCache(sessions)

    async def of(self, session: Session) -> Calls:
        """The session's recent calls; read from the store again if another process has recorded meanwhile."""
        count = session.counters.messages
        at, calls = self._known.get(session.session_id) or (-1, {})
        if at != count:
            calls = {}
            messages = await self._access.store.read_messages(
                session.session_id, first=max(0, count - RECENT_MESSAGES), bodies=False
            )
            for message in messages:
                remember_calls(calls, message.blocks)
        return calls

    def keep(self, session: Session, calls: Calls) -> None:
        """Remember the calls as of this state of the session."""
        self._known.set(session.session_id, (session.counters.messages, calls))


def remember_calls(calls: Calls, blocks: Sequence[Block]) -> None:
    """Add the tool calls among these blocks, and forget the oldest above MAX_RECENT_CALLS, but none of these: their
    results follow."""
    added = 0
    for block in blocks:
        if block.type == "tool_call" and block.call_id:
            calls.pop(block.call_id, None)
            calls[block.call_id] = (block.tool or "tool", block.argument or "")
            added += 1
    while added and len(calls) > max(MAX_RECENT_CALLS, added):
        del calls[next(iter(calls))]


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a caller knows of a session. Of an existing one only a new model, a new agent and a first title are stored.
    `system` and `tools` show the format of a session that begins with plain text."""

    format: str | None = None
    model: str | None = None
    agent: str | None = None
    title: str | None = None
    source: str | None = None
    parent_session_id: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    system: object = None
    tools: Sequence[Any] | None = None


async def ensure_session(
    access: Access, session_id: str | None, known: Session | None, natives: Sequence[Native], facts: SessionFacts
) -> Session:
    """The session to record into: the one that is `known` to exist, or else a new one, with a generated id if it is
    not named."""
    check_limits(natives)
    if known is not None:
        return await _with_facts(access, known, natives, facts)
    name = facts.format or shown_format(natives, tools=facts.tools, system=facts.system, model=facts.model)
    return await create_session(access, session_id, get_format(name).name, facts)


async def create_session(
    access: Access, session_id: str | None, format_name: str, facts: SessionFacts | None = None
) -> Session:
    """Store a new session; `format_name` may be UNDECIDED until its first message is there. Raises BadInputError if no
    conversation can have this id."""
    if session_id is not None:
        check_conversation_id(session_id)
    now, facts = datetime.now(UTC), facts or SessionFacts()
    return await access.store.create_session(
        Session(
            session_id=session_id or new_session_id(),
            format=format_name,
            model=facts.model,
            agent=facts.agent,
            title=facts.title,
            source=facts.source,
            parent_session_id=facts.parent_session_id,
            settings=dict(facts.settings),
            created_at=now,
            updated_at=now,
        )
    )


async def _with_facts(access: Access, session: Session, natives: Sequence[Native], facts: SessionFacts) -> Session:
    if session.format == UNDECIDED:
        format_name = get_format(facts.format or detect_format(natives)).name
    else:
        format_name = await _fitting_format(access, session, natives, facts.format)
        if facts.format is not None and get_format(facts.format).name != format_name:
            raise BadInputError(
                f"Session {session.session_id} holds {session.format} messages;"
                f" record {facts.format} messages in a session of their own."
            )
    title = session.title or facts.title
    given = {"model": facts.model, "agent": facts.agent, "title": title, "format": format_name}
    changed = {name: value for name, value in given.items() if value is not None and value != getattr(session, name)}
    return await access.store.update_session(session.session_id, **changed) if changed else session


async def _fitting_format(access: Access, session: Session, natives: Sequence[Native], wanted: str | None) -> str:
    """The format of these messages and of all stored ones: the session's own, unless the stored ones are plain text
    that fits `wanted`, or else the format that the new ones show."""
    if session.counters.messages > MAX_PLAIN_MESSAGES or not natives:
        return session.format
    shown = get_format(wanted).name if wanted else _shown_format(session, natives)
    if shown == session.format:
        return shown
    stored = await access.store.read_messages(session.session_id)
    fits = all(FORMATS[shown].matches(message.body or {}) > 0 for message in stored)
    return shown if fits else session.format


def _shown_format(session: Session, natives: Sequence[Native]) -> str:
    own = get_format(session.format)
    if all(own.matches(native) > 0 for native in natives):
        return own.name
    try:
        return detect_format(natives)
    except BadMessageError:
        return own.name


def new_session_id() -> str:
    """A new id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


async def append(
    access: Access,
    session: Session,
    natives: Sequence[Native],
    calls: Calls,
    *,
    extras: Sequence[Mapping[str, Any]] = (),
    listed_before: int = 0,
    **placed: Unpack[Placement],
) -> Appended:
    """Parse, count and store messages whose size is checked; see SessionStore.append_messages. `extras[i]` are further
    fields of NewMessage for `natives[i]`. If a message is invalid, raises BadMessageError before anything is stored; it
    names the message's index in the caller's list, in which `listed_before` messages precede these."""
    settings = access.settings(session)
    counter = access.counter(settings, session.model)
    # An output is counted as a block and as an output, and counting takes longer than all else.
    counter = replace(counter, raw=cache(counter.raw))
    fmt = get_format(session.format)

    def read_all() -> list[NewMessage]:
        read = [
            _new_message(fmt, native, listed_before + place, counter, settings, calls, extras[place] if extras else {})
            for place, native in enumerate(natives)
        ]
        if any(message.usage and message.usage.reasoning_tokens for message in read):
            return with_reported_reasoning(fmt, read)
        return read

    if is_large(natives) or not access.has_counted(counter):
        messages = await asyncio.to_thread(read_all)
        access.note_counted(counter)
    else:
        messages = read_all()
    return await access.store.append_messages(session.session_id, messages, count=count_message, **placed)


def is_large(natives: Sequence[Native]) -> bool:
    """Whether parsing these, which are JSON, takes so long that a worker thread should do it."""
    if len(natives) > IN_THREAD_MESSAGES:
        return True
    size = blocks = 0
    for native in natives:
        size += check_json(native)
        blocks += blocks_of(native)
        if size > IN_THREAD_CHARACTERS or blocks > IN_THREAD_MESSAGES:
            return True
    return False


def _new_message(
    fmt: Format,
    native: Native,
    place: int,
    counter: Counter,
    settings: ContextSettings,
    calls: Calls,
    extra: Mapping[str, Any],
) -> NewMessage:
    try:
        reading = fmt.read(native)
    except BadMessageError as error:
        raise BadMessageError(f"Message {place} cannot be recorded: {error}") from error
    texts = reading.texts or ("",)
    blocks = measure(reading, counter, settings)
    shown = derived(settings, replace(reading, blocks=blocks, texts=texts))
    blocks = shown.blocks
    remember_calls(calls, blocks)
    blocks = tuple(_named(block, calls) for block in blocks)
    outputs = _outputs(texts, blocks, counter, calls)
    fields: dict[str, Any] = {
        "kind": "tool_result" if outputs else "message",
        "usage": reading.usage,
        "model": reading.model,
        "group": reading.group,
        **extra,
    }
    return NewMessage(
        body=stored_body(settings, native),
        role=reading.role,
        blocks=blocks,
        outputs=outputs,
        search_text=search_text_of(shown.texts, blocks, calls),
        **fields,
    )


def _named(block: Block, calls: Calls) -> Block:
    """The block; a tool result gets the name of its tool."""
    if block.type != "tool_result" or block.tool or block.call_id not in calls:
        return block
    return block.model_copy(update={"tool": calls[block.call_id][0]})


def _outputs(texts: Sequence[str], blocks: Sequence[Block], counter: Counter, calls: Calls) -> tuple[Output, ...]:
    outputs = []
    for place, (block, text) in enumerate(zip(blocks, texts, strict=True)):
        if block.type != "tool_result":
            continue
        tool, argument = calls.get(block.call_id or "", (block.tool or "tool", ""))
        outputs.append(
            Output(
                handle=output_handle(tool, argument, text),
                seq=0,
                block=place,
                tool=tool,
                argument=argument,
                tokens=counter.count(text),
                characters=len(text),
                lines=text.count("\n") + (not text.endswith("\n") and bool(text)),
                sha256=sha256_of(text),
                is_error=block.is_error,
            )
        )
    return tuple(outputs)


def sha256_of(text: str) -> str:
    """The hash of an output's text, as it is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def output_handle(tool: str, argument: str, text: str) -> str:
    """The short name of an output: a hash of its content, so that the same history always has the same handles."""
    return handle_of("out", "\0".join((tool, argument, text)))


def search_text_of(texts: Sequence[str], blocks: Sequence[Block], calls: Calls) -> str:
    """The text that search indexes: all text of the message, and for a tool result also its call. The calls of our own
    tools and their results are left out: a search would find itself, and quotations before the originals."""
    pieces: list[str] = []
    for block, text in zip(blocks, texts, strict=True):
        if block.type in ("image", "document", "opaque") or _is_own(block, calls):
            continue
        if block.type == "tool_result" and block.call_id in calls:
            pieces.append(" ".join(calls[block.call_id]))
        elif block.type == "tool_call" and block.tool:
            pieces.append(block.tool)
        pieces.append(text)
    return "\n".join(piece for piece in pieces if piece)


def _is_own(block: Block, calls: Calls) -> bool:
    if block.type not in ("tool_call", "tool_result"):
        return False
    return is_own_call(*calls.get(block.call_id or "", (block.tool or "", block.argument or "")))


def with_usage(natives: Sequence[Native], fmt: Format, usage: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Extra fields that attach a reported usage to the last reply of a batch. Raises BadInputError if its format is
    unknown, or if the batch has no reply."""
    extras: list[dict[str, Any]] = [{} for _ in natives]
    if usage is None:
        return extras
    read = reported_usage(usage)
    for place in range(len(natives) - 1, -1, -1):
        if fmt.read(natives[place]).role == "assistant":
            extras[place]["usage"] = read
            return extras
    raise BadInputError("usage belongs to a reply, but none of these messages has the role assistant.")
