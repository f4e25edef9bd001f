"""What a program declares beside the messages of a session, system prompt and tool definitions, and the usage that a
provider reports for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any

from contextstash.messages.base import Format, NotJsonError, Reading, check_json, reported_usage
from contextstash.messages.detection import get_format
from contextstash.session.access import Access
from contextstash.view.session_snapshot import reported_late
from contextstash_storage.errors import BadInputError, BadMessageError, EditConflictError
from contextstash_storage.records import Call, Declared, DeclaredVersion, Message, Native, Session, Usage

System = str | Sequence[Mapping[str, Any]]
"""A system prompt: text, or a list of content blocks as the provider takes them."""

Tools = Sequence[Mapping[str, Any]]

MAX_HEAD = 16
"""How many messages at the start are searched for system messages. Programs send one or two;
further ones are ordinary messages."""

SYSTEM_BESIDE_HEAD = frozenset({"openai-responses"})
"""Formats whose requests can have both: a system prompt in a field (`instructions`) and system messages at the head."""


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
    stored = await _versions(access, session, *wanted)
    return {each.part: each.content for each in stored} == given


async def _versions(access: Access, session: Session, *numbers: int | None) -> list[DeclaredVersion]:
    wanted = [number for number in numbers if number is not None]
    return await access.store.read_log(session.session_id, DeclaredVersion, numbers=wanted) if wanted else []


async def _replaced_tokens(access: Access, session: Session, part: str) -> int:
    """The tokens of the recorded system messages at the head that a declared system prompt stands for."""
    if part == "system" and session.format in SYSTEM_BESIDE_HEAD:
        return 0
    read = await access.store.read_messages(session.session_id, first=0, last=MAX_HEAD - 1, bodies=False)
    head = takewhile(lambda message: message.role == "system", read)
    return sum(message.tokens for message in head if message.agent_visible)


async def declared_system(access: Access, session: Session) -> DeclaredVersion | None:
    """The version of the system prompt in force; None if none was declared."""
    return next(iter(await _versions(access, session, session.counters.declared.system)), None)


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
    reported, sent = reported_usage(usage), session.counters.request
    if sent is None:
        return session
    read = await access.store.read_messages(session.session_id, first=sent.messages, bodies=False)
    reply = list(takewhile(lambda message: message.role == "assistant", read))
    since = session.counters.view_tokens - sent.counted - sum(part.tokens for part in reply)
    return await _report(access, session, reply, reported, since, booked=(sent.number, reported)) if reply else session


async def report_late(access: Access, session: Session, key: str, usage: Usage) -> Session:
    """Add the usage of a reply of a transcript, by its key, that was recorded before its usage was written. Safe to
    repeat; nothing is done if a later message has a report already."""
    seq = await access.store.find_key(session.session_id, key)
    if seq is None or session.counters.reported_seq >= seq:
        return session
    reply, *later = await access.store.read_messages(session.session_id, first=seq, bodies=False)
    since = sum(message.tokens for message in later if message.agent_visible)
    return await _report(access, session, [reply], usage, since)


async def _report(
    access: Access,
    session: Session,
    reply: Sequence[Message],
    usage: Usage,
    since: int,
    booked: tuple[int, Usage] | None = None,
) -> Session:
    """The session with the report of a reply in these messages; as it is if another process, which may read the same
    transcript, was first. `since` are the tokens of the view that the report does not include."""
    seq, tokens = reply[0].seq, sum(part.tokens for part in reply)
    sent: dict[str, Any] = {"request_seq": seq - 1, "created_at": reply[0].created_at, **usage.model_dump()}
    call = Call(purpose="agent", model=session.model, **sent)
    change = partial(reported_late, usage=usage, seq=seq, tokens=tokens, since=since)
    with suppress(EditConflictError):
        return await access.store.change_session(session.session_id, change, logged=call, booked=booked)
    return await access.store.get_session(session.session_id)
