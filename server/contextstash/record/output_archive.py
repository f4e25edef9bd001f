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
from contextstash.session.ids import OUTPUTS_SESSION, OUTPUTS_SUFFIX, check_session_id
from contextstash.session.masks import derived, stored_body
from contextstash.window.settings import ContextSettings
from contextstash_storage.errors import BadMessageError, NotFoundError
from contextstash_storage.records import Block, Counters, Native, NewMessage, Output, Role, Session, handle_of

if TYPE_CHECKING:
    from contextstash.session.access import Access
    from contextstash_storage.store import SessionStore

OUTPUTS_AGENT = "contextstash-outputs"
"""The agent of sessions that only archive outputs; they are not conversations, and are not listed."""

MAX_COUNTED = 200_000
"""Characters. A longer output is counted by its bytes instead of by the configured counter, because counting it exactly
would take longer than storing it."""

MAX_CHARACTERS = 64 * 1024 * 1024
"""Characters of one message, and of one output. It is stored in one transaction, in which no other process can write:
about 3 ms of processor time for each million characters, and the time of the disk. No more fits into a request over
MCP, and half of it is more than Anthropic accepts in one request."""


def outputs_session_id(session_id: str | None) -> str:
    """The id of the session that archives the outputs of this one, or of none."""
    return OUTPUTS_SESSION if session_id is None else f"{session_id}{OUTPUTS_SUFFIX}"


async def kept_outputs(access: Access, session_id: str) -> int:
    """How many outputs of a session are archived here, because a hook or gateway showed the model a shorter text."""
    with suppress(NotFoundError):
        return len(await access.store.read_outputs(outputs_session_id(session_id)))
    return 0


def tokens_of_bytes(text: str) -> int:
    """The tokens of a text by its bytes: no vocabulary is loaded for it."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def sha256_of(text: str) -> str:
    """The hash of an output's text, as it is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def output_of(tool: str, argument: str, text: str, tokens: int, *, block: int = 0, is_error: bool = False) -> Output:
    """An output of so many tokens as it is stored. Its handle hashes what it names, so that the same history always has
    the same handles."""
    return Output(
        handle=handle_of("out", "\0".join((tool, argument, text))),
        seq=0,
        block=block,
        tool=tool,
        argument=argument,
        tokens=tokens,
        characters=len(text),
        lines=text.count("\n") + (not text.endswith("\n") and bool(text)),
        sha256=sha256_of(text),
        is_error=is_error,
    )


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
        """The output of a call truncated to these limits; if it is, the whole was stored before. The results of
        contextstash's own retrieval tools are never truncated. Raises StoreError if the whole cannot be stored."""
        if is_own_retrieval(tool, argument) or await asyncio.to_thread(limits.holds, text, self.count):
            return LimitedOutput(text)
        handle = await self.keep(text, tool=tool, argument=argument)
        return LimitedOutput(await asyncio.to_thread(limit, text, limits, self.count, handle), handle)

    async def keep(self, text: str, *, tool: str, argument: str) -> str:
        """Archive an output durably and return its handle. The same output of the same call is stored once. Raises
        BadInputError if the session id is invalid, StoreError if the output cannot be stored."""
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
        [output] = await self.store.read_outputs(name, first=seq or 0, last=seq)
        return output.handle  # the store numbers equal names

    def _messages(self, text: str, tool: str, argument: str) -> list[NewMessage]:
        """The call and its result, as they would be if a client had recorded them."""
        content = "\0".join((tool, argument, text))
        call_id = f"call_{sha256_of(content)}"  # the same output of the same call is recognized
        arguments = json.dumps({"command": argument}) if argument else "{}"
        named: dict[str, Any] = {"call_id": call_id, "tool": tool or "tool"}
        function = {"name": named["tool"], "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function}]
        body: Native = {"role": "assistant", "content": None, "tool_calls": calls}
        asked = Block(type="tool_call", argument=main_argument({"command": argument}), **named)
        call = self._message("assistant", asked, arguments, body, key=call_id)
        result = {"role": "tool", "tool_call_id": call_id, "content": text}
        output = output_of(named["tool"], call.blocks[0].argument or "", text, self._tokens(text))
        more = {"key": f"result of {call_id}", "kind": "tool_result", "outputs": (output,)}
        return [call, self._message("tool", Block(type="tool_result", **named), text, result, **more)]

    def _message(self, role: Role, block: Block, text: str, body: Native, **more: Any) -> NewMessage:
        sized = block.model_copy(update={"size": len(text), "tokens": self._tokens(text)})
        blocks, texts = derived(self.settings, role, (sized,), (text,))
        found = () if is_own_call(block.tool, block.argument) else ((0, texts[0]),)
        return NewMessage(body=stored_body(self.settings, body), role=role, blocks=blocks, texts=found, **more)

    def _tokens(self, text: str) -> int:
        return tokens_of_bytes(text) if len(text) > MAX_COUNTED else self.count(text)


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
    """Truncate one output that is in no recorded message to the limits of a session, or of the server if no session is
    named. `limits` override them for this call.

    If the output is truncated, the whole is stored before this returns, in a session that only archives outputs: the
    one that belongs to the named session, or a common one. The same output is stored once and has the same handle. The
    results of contextstash's own retrieval tools are never truncated, and neither are outputs of a session that was
    deleted: nothing of it is stored again. Raises StoreError if the whole cannot be
    stored.
    """
    session = await access.find(session_id)
    if session is None and session_id is not None and await access.was_deleted(session_id):
        return LimitedOutput(text)
    settings = access.settings(session)
    counter = access.counter(settings, session.model if session else None)
    archive = OutputArchive(access.store, settings, counter.count, session_id)
    rules = limits_of(access, settings, session, limits)
    return await archive.limited(text, rules, tool=tool, argument=argument)


def limits_of(
    access: Access, settings: ContextSettings, session: Session | None, given: Mapping[str, Any] | None
) -> OutputLimits:
    """The limits of an output: those of the settings, scaled to the window, and over them those given for one call."""
    # The window scales the limit in tokens alone, and to find a model's window takes longer than a hook should.
    if given is not None and "tokens" in given:
        return OutputLimits.of(settings, settings.window).merged(given)
    budget = access.budget(settings, session.model if session else None, session)
    return OutputLimits.of(settings, budget.window - (budget.usable - budget.free)).merged(given)
