"""Messages: each provider-native one read once, counted and stored; and what is declared and reported beside them:
system prompt, tool definitions and usage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from typing import Any, ParamSpec, TypeVar

from contextstash.base.json_values import NotJsonError, check_json, value_bytes
from contextstash.messages.base import Format, Reading, reported_usage
from contextstash.messages.detection import get_format
from contextstash.outputs.placeholders import is_own_call
from contextstash.record.output_archive import MAX_CHARACTERS, output_of
from contextstash.session.access import Access
from contextstash.session.masks import derived, stored_body
from contextstash.session.open_session import RECENT_MESSAGES, Calls, remember_calls
from contextstash.view.session_counters import count_message, reported_late
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import Counter, measure
from contextstash_storage.errors import BadInputError, BadMessageError, EditConflictError
from contextstash_storage.records import (
    Appended,
    Block,
    Call,
    Counters,
    Cursor,
    Declared,
    DeclaredVersion,
    EditsAfter,
    KnownBy,
    Native,
    NewMessage,
    Session,
    Usage,
)

System = str | Sequence[Mapping[str, Any]]
"""A system prompt: text, or a list of content blocks as the provider takes them."""

Tools = Sequence[Mapping[str, Any]]

MAX_HEAD = 16
"""How many messages at the start are searched for system messages. Programs send one or two;
further ones are ordinary messages."""

SYSTEM_BESIDE_HEAD = frozenset({"openai-responses"})
"""Formats whose requests can have both: a system prompt in a field (`instructions`) and system messages at the head."""

IN_THREAD_BYTES = 30_000
"""Values and texts above this size are read and counted in a worker thread, so that the event loop is blocked for at
most about 10 ms: text takes 0.3 ms for 1,000 characters, and a small block, of some 35 bytes, 0.01 ms."""

Returned = TypeVar("Returned")
Arguments = ParamSpec("Arguments")


def size_of(natives: Sequence[Native]) -> int:
    """The bytes of these messages, for `in_thread_if_large`."""
    return sum(len(value_bytes(native) or b"") for native in natives)


async def in_thread_if_large(
    size: int, work: Callable[Arguments, Returned], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Returned:
    """The result of `work`, which reads values or texts of this size, in a worker thread above IN_THREAD_BYTES."""
    if size > IN_THREAD_BYTES:
        return await asyncio.to_thread(work, *arguments, **named)
    return work(*arguments, **named)


def check_limits(natives: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadMessageError if a message is larger than can be recorded. To be called before any processing."""
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
    settings, opened = access.settings(session), access.opened(session.session_id)
    counter = access.counter(settings, session.model)
    calls = await opened.calls(session)
    # An output is counted as a block and as an output, and counting takes longer than all else.
    reader = _Reader(get_format(session.format), replace(counter, raw=cache(counter.raw)), settings, calls)
    for native in behind[-RECENT_MESSAGES:]:
        remember_calls(calls, reader.fmt.read(native).blocks)
    size = size_of(natives) if counter.name in access.loaded else IN_THREAD_BYTES + 1
    messages = await in_thread_if_large(size, reader.messages, natives, extras, listed_before)
    access.loaded.add(counter.name)
    appended = await access.store.append_messages(
        session.session_id, messages, count=count_message, known_by=known_by, cursor=cursor, edits=edits
    )
    opened.keep_calls(appended.session, calls)
    return appended


@dataclass(frozen=True)
class _Reader:
    """Reads messages of one session. `calls` are its recent ones, to which those of the messages are added."""

    fmt: Format
    counter: Counter
    settings: ContextSettings
    calls: Calls

    def messages(self, natives: Sequence[Native], extras: Sequence[Mapping[str, Any]], first: int) -> list[NewMessage]:
        """The messages as they are stored; the first of them is number `first` of its list."""
        read = []
        for place, native in enumerate(natives):
            try:
                read.append(self._message(native, extras[place] if extras else {}))
            except BadMessageError as error:
                raise BadMessageError(f"Message {first + place} cannot be recorded: {error}") from error
        return read

    def _message(self, native: Native, extra: Mapping[str, Any]) -> NewMessage:
        reading = self.fmt.read(native)
        texts = reading.texts or ("",)
        derived_blocks, masked = derived(
            self.settings, reading.role, measure(reading, self.counter, self.settings), texts
        )
        remember_calls(self.calls, derived_blocks)
        blocks, outputs = list(derived_blocks), []
        for place, (block, text) in enumerate(zip(blocks, texts, strict=True)):
            if block.type == "tool_result":
                named = self.calls.get(block.call_id or "", (block.tool or "tool", ""))
                if not block.tool and block.call_id in self.calls:
                    blocks[place] = block.model_copy(update={"tool": named[0]})
                tokens = self.counter.count(text)
                outputs.append(output_of(*named, text, tokens, block=place, is_error=block.is_error))
        fields: dict[str, Any] = {
            "kind": "tool_result" if outputs else "message",
            "usage": reading.usage,
            "model": reading.model,
            "group": reading.group,
            **extra,
        }
        return NewMessage(
            body=stored_body(self.settings, native),
            role=reading.role,
            blocks=tuple(blocks),
            outputs=tuple(outputs),
            texts=search_texts(masked, blocks, self.calls),
            **fields,
        )


def search_texts(texts: Sequence[str], blocks: Sequence[Block], calls: Calls) -> tuple[tuple[int, str], ...]:
    """The texts that search finds, each after the number of its block. The calls of our own tools and their results are
    left out: a search would find itself, and quotations before the originals."""
    return tuple(
        (number, text)
        for number, (block, text) in enumerate(zip(blocks, texts, strict=True))
        if block.type not in ("image", "document", "opaque")
        and (text or block.type != "text")
        and not (block.type in ("tool_call", "tool_result") and is_own_call(*_call_of(block, calls)))
    )


def _call_of(block: Block, calls: Calls) -> tuple[str, str]:
    """The tool and the main argument of a call, of which this is the block or that of its result."""
    return calls.get(block.call_id or "", (block.tool or "", block.argument or ""))


# What is declared beside the messages: system prompt and tools.


def check_declared(system: System | None, tools: Tools | None) -> None:
    """Raises BadInputError if these are not a system prompt and tool definitions."""
    if system is not None and not isinstance(system, str) and not _are_objects(system):
        raise BadInputError("system is a text, or a list of content blocks as the provider takes them.")
    if tools is not None and not _are_objects(tools):
        raise BadInputError("tools is the list of tool definitions as the provider takes them.")
    for name, value in (("system", system), ("tools", tools)):
        try:
            check_json(list(value) if isinstance(value, tuple) else value)
        except NotJsonError as error:
            raise BadInputError(f"{name} {error}") from error


def _are_objects(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(each, Mapping) for each in value)


async def declare(
    access: Access,
    session: Session,
    *,
    system: System | None = None,
    head: Sequence[Native] | None = None,
    tools: Tools | None = None,
) -> Session:
    """Make these the session's system prompt (in a field, or as messages at the head of the list) and tools. An
    argument of None changes nothing; each version stays stored. Raises BadInputError if they are neither."""
    check_declared(system, tools)
    given: dict[Any, Any] = {}
    if system is not None:
        given["system"] = system if isinstance(system, str) else list(system)
    elif head is not None:
        given["head"] = list(head)
    if tools is not None:
        given["tools"] = [dict(tool) for tool in tools]
    if not given or await _are_in_force(access, session, given):
        return session
    settings, fmt = access.settings(session), get_format(session.format)
    counter, parts = access.counter(settings, session.model), []
    for part, content in given.items():
        overhead = settings.message_overhead * (len(content) if part == "head" else part == "system")
        tokens = sum(map(counter.count, _texts(fmt, part, content))) + overhead
        parts.append(DeclaredVersion(part=part, content=content, tokens=tokens, seq=session.counters.messages))
    replaced = 0 if parts[0].part == "tools" else await _replaced_tokens(access, session, parts[0].part)

    def change(declared: Declared, versions: Sequence[int]) -> Declared:
        changes: dict[str, int] = {}
        for part, version in zip(parts, versions, strict=True):
            name = "tools" if part.part == "tools" else "system"
            changes |= {name: version, f"{name}_tokens": part.tokens}
            if name == "system":
                changes["replaced_tokens"] = replaced
        return declared.model_copy(update=changes)

    return await access.store.declare(session.session_id, parts, change)


def _texts(fmt: Format, part: str, content: Any) -> list[str]:
    """The readable texts of a declared part."""
    if part == "tools":
        return [json.dumps(content, ensure_ascii=False)] if content else []
    if part == "head":
        return [text for native in content for text in fmt.read(native).texts]
    return [content] if isinstance(content, str) else [str(block.get("text", "")) for block in content]


async def _are_in_force(access: Access, session: Session, given: Mapping[str, Any]) -> bool:
    """Whether these are what was declared last: programs pass them with each request, and counting them takes long."""
    declared = session.counters.declared
    wanted = (declared.tools if part == "tools" else declared.system for part in given)
    numbers = [number for number in wanted if number is not None]
    stored = await access.store.read_log(session.session_id, DeclaredVersion, numbers=numbers) if numbers else []
    return {each.part: each.content for each in stored} == given


async def _replaced_tokens(access: Access, session: Session, part: str) -> int:
    """The tokens of the recorded system messages at the head that a declared system prompt stands for."""
    if part == "system" and session.format in SYSTEM_BESIDE_HEAD:
        return 0
    read = await access.store.read_messages(session.session_id, first=0, last=MAX_HEAD - 1, bodies=False)
    head = takewhile(lambda message: message.role == "system", read)
    return sum(message.tokens for message in head if message.agent_visible)


async def declared_system(access: Access, session: Session) -> DeclaredVersion | None:
    """The version of the system prompt in force; None if none was declared."""
    version = session.counters.declared.system
    numbers = [] if version is None else [version]
    found = await access.store.read_log(session.session_id, DeclaredVersion, numbers=numbers) if numbers else []
    return found[0] if found else None


def with_system(
    fmt: Format, natives: Sequence[Native], declared: DeclaredVersion | None
) -> tuple[Sequence[Native], str | list[Native] | None]:
    """The messages with the system prompt in force at their head, in place of a recorded one, and what of it is to be
    sent in a field of its own; None if the provider takes it among the messages."""
    length, apart = leading_system(fmt, natives), fmt.system_message("") is None
    if declared is None:
        return natives, _joined(fmt, "head", natives[:length]) or None if apart else None
    if declared.part == "system" and fmt.name in SYSTEM_BESIDE_HEAD:
        return natives, declared.content
    text, rest = _joined(fmt, declared.part, declared.content), natives[length:]
    if declared.part == "head":
        return [*declared.content, *rest], text or None if apart else None
    head = fmt.system_message(text)
    return (rest, declared.content) if head is None else ([head, *rest], None)


def leading_system(fmt: Format, natives: Sequence[Native]) -> int:
    """How many system messages a list begins with."""
    read = (reading_of(fmt, native) for native in natives[:MAX_HEAD])
    return sum(1 for _ in takewhile(lambda each: each is not None and each.role == "system", read))


def reading_of(fmt: Format, native: Native) -> Reading | None:
    """The reading of a message; None if it cannot be read, which its recording reports."""
    try:
        return fmt.read(native)
    except BadMessageError:
        return None


def _joined(fmt: Format, part: str, content: Any) -> str:
    """A system prompt as one text."""
    return "\n\n".join(text for text in _texts(fmt, part, content) if text)


# What a provider reports of a request, booked to the reply that it belongs to, also if it is reported later.


def with_usage(natives: Sequence[Native], fmt: Format, usage: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The further fields of these messages that attach a reported usage to the last reply among them. Raises
    BadInputError if its form is unknown, or without a reply."""
    read = reported_usage(usage)
    for place in range(len(natives) - 1, -1, -1):
        if fmt.read(natives[place]).role == "assistant":
            return [{"usage": read} if each == place else {} for each in range(len(natives))]
    raise BadInputError("usage belongs to a reply, but none of these messages has the role assistant.")


async def book_late(access: Access, session: Session, usage: Mapping[str, Any]) -> Session:
    """Book a usage to the newest request, whose reply is recorded already; nothing is done if it has one, or no reply
    yet, as when a call is repeated. Raises BadInputError if the form of the usage is unknown."""
    read, sent = reported_usage(usage), session.counters.request
    if sent is None:
        return session
    replies = await access.store.read_messages(session.session_id, first=sent.messages, bodies=False)
    other = next((place for place, each in enumerate(replies) if each.role != "assistant"), len(replies))
    if not other:
        return session
    reply = sum(each.tokens for each in replies[:other])
    call = _call(session, read, sent.messages - 1)

    def reported(counters: Counters) -> Counters:
        return reported_late(counters, read, sent.messages, reply, since=counters.view_tokens - sent.counted - reply)

    return await _reported(access, session, reported, logged=call, booked=(sent.number, read))


async def report_late(access: Access, session: Session, key: str, usage: Usage) -> Session:
    """Add the usage of a reply of a transcript, by its key, that was recorded before its usage was written. Safe to
    repeat; nothing is done if a later message has a report already."""
    session_id = session.session_id
    seq = await access.store.find_key(session_id, key)
    if seq is None or session.counters.reported_seq >= seq:
        return session
    reply, *later = await access.store.read_messages(session_id, first=seq, bodies=False)
    since = sum(found.tokens for found in later if found.agent_visible)
    call = _call(session, usage, seq - 1).model_copy(update={"created_at": reply.created_at})

    def reported(counters: Counters) -> Counters:
        return reported_late(counters, usage, seq, reply.tokens, since=since)

    return await _reported(access, session, reported, logged=call)


async def _reported(access: Access, session: Session, change: Callable[[Counters], Counters], **booked: Any) -> Session:
    """The session with a late report; as it is if another process, which may read the same transcript, was first."""
    with suppress(EditConflictError):
        return await access.store.change_session(session.session_id, change, **booked)
    return await access.store.get_session(session.session_id)


def _call(session: Session, usage: Usage, seq: int) -> Call:
    """An agent's call, of which this usage is known alone; `seq` is the last message that was sent."""
    return Call(purpose="agent", model=session.model, request_seq=seq, **usage.model_dump())
