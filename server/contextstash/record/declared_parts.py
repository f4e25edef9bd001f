"""Declared parts: the system prompt and the tool definitions that a program sends with the recorded messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.base.json_values import NotJsonError, check_json
from contextstash.messages.base import Format
from contextstash.messages.detection import get_format
from contextstash.session.access import Access
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Declared, DeclaredVersion, Native, Session

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
    argument of None changes nothing; each version stays stored."""
    given: dict[str, Any] = {}
    if system is not None:
        given["system"] = system if isinstance(system, str) else list(system)
    elif head is not None:
        given["head"] = list(head)
    if tools is not None:
        given["tools"] = [dict(tool) for tool in tools]
    if not given or await _are_in_force(access, session, given):
        return session
    parts = [_part(access, session, part, content) for part, content in given.items()]
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


def _part(access: Access, session: Session, part: Any, content: Any) -> DeclaredVersion:
    settings = access.settings(session)
    counter = access.counter(settings, session.model)
    texts = _texts(get_format(session.format), part, content)
    overhead = settings.message_overhead * (len(content) if part == "head" else part == "system")
    tokens = sum(counter.count(text) for text in texts) + overhead
    return DeclaredVersion(part=part, content=content, tokens=tokens, seq=session.counters.messages)


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
    wanted = {part: declared.tools if part == "tools" else declared.system for part in given}
    versions = [version for version in wanted.values() if version is not None]
    if len(versions) < len(given):
        return False
    stored = {
        each.version: each
        for each in await access.store.read_log(session.session_id, DeclaredVersion, numbers=versions)
    }
    found = {each.part: each.content for each in (stored.get(version) for version in versions) if each is not None}
    return found == given


async def _replaced_tokens(access: Access, session: Session, part: str) -> int:
    """The tokens of the recorded system messages at the head that a declared system prompt stands for."""
    if part == "system" and session.format in SYSTEM_BESIDE_HEAD:
        return 0
    total = 0
    for message in await access.store.read_messages(session.session_id, first=0, last=MAX_HEAD - 1, bodies=False):
        if message.role != "system":
            break
        total += message.tokens if message.agent_visible else 0
    return total


async def declared_system(access: Access, session: Session) -> DeclaredVersion | None:
    """The version of the system prompt in force; None if none was declared."""
    version = session.counters.declared.system
    if version is None:
        return None
    found = await access.store.read_log(session.session_id, DeclaredVersion, numbers=[version])
    return found[0] if found else None


def with_system(fmt: Format, natives: Sequence[Native], declared: DeclaredVersion | None) -> list[Native]:
    """The messages with the declared system prompt at their head, in place of recorded ones, if it belongs there."""
    if declared is None or (declared.part == "system" and fmt.name in SYSTEM_BESIDE_HEAD):
        return list(natives)
    start = 0
    while start < len(natives) and fmt.read(natives[start]).role == "system":
        start += 1
    if declared.part == "head":
        return [*declared.content, *natives[start:]]
    head = fmt.system_message(_joined(fmt, declared))
    return [*([] if head is None else [head]), *natives[start:]]


def system_beside(fmt: Format, declared: DeclaredVersion | None, recorded: str) -> str | list[Native] | None:
    """The system prompt to send in a field of its own; None if the provider takes it among the messages."""
    apart = fmt.system_message("") is None
    if declared is None:
        return (recorded or None) if apart else None
    if declared.part == "system" and (apart or fmt.name in SYSTEM_BESIDE_HEAD):
        content: str | list[Native] = declared.content
        return content
    return _joined(fmt, declared) or None if declared.part == "head" and apart else None


def _joined(fmt: Format, declared: DeclaredVersion) -> str:
    """A declared system prompt as one text."""
    return "\n\n".join(text for text in _texts(fmt, declared.part, declared.content) if text)
