"""Outputs that are in no recorded message: each is truncated to its limit, and the whole stored in a session that holds
only such outputs.

The archive makes both messages of such an output itself, and so needs none of the readers of messages: a client waits
for its hook, which must load little.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from contextstash.messages.base import main_argument
from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.placeholders import is_own_call, is_own_retrieval
from contextstash.session.masks import derived, stored_body
from contextstash.window.settings import ContextSettings
from contextstash_storage.errors import BadInputError, BadMessageError, NotFoundError
from contextstash_storage.records import (
    Block,
    Counters,
    Native,
    NewMessage,
    Output,
    Role,
    Session,
    check_session_id,
)

if TYPE_CHECKING:
    from contextstash.session.access import Access
    from contextstash_storage.store import SessionStore

OUTPUTS_AGENT = "contextstash-outputs"
"""The agent of sessions that only archive outputs; they are not conversations, and are not listed."""

OUTPUTS_SESSION = "outputs"
"""The session for archived outputs that belong to no session."""

OUTPUTS_SUFFIX = ".outputs"
"""The id of a session that archives the outputs of another one is the other's id and this suffix."""

MAX_CHARACTERS = 64 * 1024 * 1024
"""Characters of one message, and of one output. It is stored in one transaction, in which no other process can write:
about 3 ms of processor time for each million characters, and the time of the disk. No more fits into a request over
MCP, and half of it is more than Anthropic accepts in one request."""


def outputs_session_id(session_id: str | None) -> str:
    """The id of the session that archives the outputs of this one, or of none."""
    return OUTPUTS_SESSION if session_id is None else f"{session_id}{OUTPUTS_SUFFIX}"


def is_archive_id(session_id: str) -> bool:
    """Whether a session of this id holds archived outputs, not a conversation."""
    return session_id == OUTPUTS_SESSION or session_id.endswith(OUTPUTS_SUFFIX)


def check_conversation_id(session_id: str) -> None:
    """Raises BadInputError if no conversation can have this id. One with an archive's id would be searched, handed out
    and deleted with the outputs of another session."""
    check_session_id(session_id)
    if is_archive_id(session_id):
        raise BadInputError(
            f"The session_id '{OUTPUTS_SESSION}', and those that end with '{OUTPUTS_SUFFIX}', are kept for archived"
            " outputs: choose another one."
        )


async def kept_outputs(access: Access, session_id: str) -> int:
    """How many outputs of a session are archived here, because a hook or gateway showed the model a shorter text."""
    with suppress(NotFoundError):
        return len(await access.store.read_outputs(outputs_session_id(session_id)))
    return 0


def tokens_of_bytes(text: str) -> int:
    """The tokens of a text by its bytes: no vocabulary is loaded for it."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


class LimitedOutput(NamedTuple):
    """One output within limits. If it was cut, the whole is archived under `handle`."""

    text: str
    handle: str | None = None


class OutputArchive(NamedTuple):
    """The archive of the outputs of one session, or of none, with the settings in force for it. `count` returns the
    tokens of a text."""

    store: SessionStore
    settings: ContextSettings
    count: Callable[[str], int]
    session_id: str | None = None

    async def limited(self, text: str, limits: OutputLimits, *, tool: str, argument: str) -> LimitedOutput:
        """The output of a call truncated to these limits; if it is, the whole was stored before, the same output of the
        same call once. The results of contextstash's own retrieval tools are never truncated. Raises BadInputError if
        the session id is invalid, StoreError if the whole cannot be stored."""
        if is_own_retrieval(tool, argument) or await asyncio.to_thread(limits.holds, text, self.count):
            return LimitedOutput(text)
        if len(text) > MAX_CHARACTERS:
            raise BadMessageError(f"An output of more than {MAX_CHARACTERS:,} characters cannot be archived.")
        name = outputs_session_id(self.session_id)
        check_session_id(name)
        messages = await asyncio.to_thread(self._messages, text, tool, argument)
        now = datetime.now(UTC)
        session = Session(
            session_id=name,
            agent=OUTPUTS_AGENT,
            format="openai-chat",
            title=f"Outputs of {self.session_id}" if self.session_id else "Outputs of no session",
            settings={"automatic": False},
            parent_session_id=self.session_id,
            created_at=now,
            updated_at=now,
        )
        await self.store.create_session(session)
        await self.store.append_messages(name, messages, count=_counted)
        seq = await self.store.find_key(name, messages[1].key or "")
        [stored] = await self.store.read_outputs(name, first=seq or 0, last=seq)  # the store numbers equal names
        shown = await asyncio.to_thread(limit, text, limits, self.count, stored.handle)
        return LimitedOutput(shown, stored.handle)

    def _messages(self, text: str, tool: str, argument: str) -> list[NewMessage]:
        """The call and its result, as they would be if a client had recorded them."""
        content = "\0".join((tool, argument, text))
        named_by = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        call_id = f"call_{named_by}"  # the same output of the same call is recognized
        arguments = json.dumps({"command": argument}) if argument else "{}"
        named: dict[str, Any] = {"call_id": call_id, "tool": tool or "tool"}
        function = {"name": named["tool"], "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function}]
        body: Native = {"role": "assistant", "content": None, "tool_calls": calls}
        asked = Block(type="tool_call", argument=main_argument({"command": argument}), **named)
        call = self._message("assistant", asked, arguments, body, key=call_id)
        result = {"role": "tool", "tool_call_id": call_id, "content": text}
        output = Output.of(named["tool"], call.blocks[0].argument or "", text, tokens=self.count(text))
        more = {"key": f"result of {call_id}", "kind": "tool_result", "outputs": (output,)}
        return [call, self._message("tool", Block(type="tool_result", **named), text, result, **more)]

    def _message(self, role: Role, block: Block, text: str, body: Native, **more: Any) -> NewMessage:
        sized = block.model_copy(update={"size": len(text), "tokens": self.count(text)})
        blocks, texts = derived(self.settings, role, (sized,), (text,))
        found = () if is_own_call(block.tool, block.argument) else ((0, texts[0]),)
        return NewMessage(body=stored_body(self.settings, body), role=role, blocks=blocks, texts=found, **more)


def _counted(counters: Counters, message: NewMessage, seq: int) -> Counters:
    """The counters of a session without a conversation or a window: how many messages it holds."""
    return counters.model_copy(update={"messages": seq + 1})


async def limit_output(
    access: Access,
    text: str,
    *,
    tool: str = "clip",
    argument: str = "",
    session_id: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> LimitedOutput:
    """One output truncated to the server's limits, over which `limits` go: see `OutputArchive.limited`."""
    settings = access.settings()
    archive = OutputArchive(access.store, settings, access.counter(settings, None).count, session_id)
    rules = access.output_limits(settings, None).merged(limits)
    return await archive.limited(text, rules, tool=tool, argument=argument)
