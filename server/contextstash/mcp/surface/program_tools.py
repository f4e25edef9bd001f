"""The tools for programs with an agent loop: record messages, get the list to send, manage sessions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contextstash.mcp.lazy import LazyStash
from contextstash.mcp.surface import result_lines as lines
from contextstash.mcp.surface.arguments import JsonObject, Messages, NamedSession, SessionId, System, Tools, Usage
from contextstash.mcp.surface.tool import StashTool
from contextstash.service.results import (
    ConfigureResult,
    ContextResult,
    DeleteResult,
    RecordResult,
    RecoverResult,
    SessionList,
)
from contextstash_storage.errors import SessionNotFoundError

MAX_SESSIONS = 100
"""Sessions in one page, some 10,000 tokens; a guess."""


class ProgramTools:
    """The functions of the tools, on a stash that is opened at first use."""

    def __init__(self, stash: LazyStash) -> None:
        self._stash = stash

    async def record_messages(
        self,
        messages: Annotated[Messages, Field(description="In the provider's own JSON, oldest first")],
        session_id: Annotated[str | None, Field(description="Created if new; default: current")] = None,
        first_seq: Annotated[
            int | None, Field(strict=True, description="Of the first message: previous next_seq")
        ] = None,
        batch_id: Annotated[str | None, Field(description="To repeat this batch safely")] = None,
        whole: Annotated[bool, Field(description="The whole conversation")] = False,
        format: Annotated[
            str | None,
            Field(description="openai-chat, openai-responses, anthropic or gemini; default: detected"),
        ] = None,
        model: Annotated[str | None, Field(description="Model of the session")] = None,
        agent: Annotated[str | None, Field(description="Name of the agent")] = None,
        usage: Usage = None,
        request_id: Annotated[str | None, Field(description="Of get_context; default: newest")] = None,
        system: System = None,
        tools: Tools = None,
        limits: Annotated[
            JsonObject | None,
            Field(description="Of one output: lines, chars, bytes, tokens, cut, spill_chars"),
        ] = None,
    ) -> RecordResult:
        stash = await self._stash.get()
        return await stash.record_messages(
            messages,
            session_id=session_id,
            first_seq=first_seq,
            batch_id=batch_id,
            whole=whole,
            format=format,
            model=model,
            agent=agent,
            usage=usage,
            request_id=request_id,
            system=system,
            tools=tools,
            limits=limits,
        )

    async def get_context(
        self,
        session_id: SessionId = None,
        messages: Annotated[Messages | None, Field(description="Whole conversation, to record")] = None,
        system: System = None,
        tools: Tools = None,
        usage: Usage = None,
        budget: Annotated[int | None, Field(description="Tokens; default: usable")] = None,
        format: Annotated[str | None, Field(description="As in record_messages")] = None,
        model: Annotated[str | None, Field(description="Model of the session")] = None,
    ) -> ContextResult:
        stash = await self._stash.get()
        return await stash.get_context(
            session_id,
            messages=messages,
            system=system,
            tools=tools,
            usage=usage,
            budget=budget,
            format=format,
            model=model,
        )

    async def recover_context(
        self,
        error: Annotated[str, Field(description="The provider's error, unchanged")],
        session_id: SessionId = None,
        system: System = None,
        tools: Tools = None,
    ) -> RecoverResult:
        stash = await self._stash.get()
        return await stash.recover_context(session_id, error=error, system=system, tools=tools)

    async def list_sessions(
        self,
        limit: Annotated[int, Field(description="At most 100")] = 50,
        cursor: Annotated[str | None, Field(description="next_cursor of the previous result")] = None,
    ) -> SessionList:
        stash = await self._stash.get()
        return await stash.list_sessions(limit=max(1, min(limit, MAX_SESSIONS)), cursor=cursor)

    async def configure_session(
        self,
        settings: Annotated[JsonObject | None, Field(description="Such as window")] = None,
        pin: Annotated[list[str] | None, Field(description="Handles or paths to keep")] = None,
        unpin: Annotated[list[str] | None, Field(description="Remove")] = None,
        session_id: SessionId = None,
    ) -> ConfigureResult:
        stash = await self._stash.get()
        return await stash.configure_session(session_id, settings=settings, pin=pin or (), unpin=unpin or ())

    async def delete_session(self, session_id: NamedSession) -> DeleteResult:
        stash = await self._stash.get()
        try:
            return await stash.delete_session(session_id)
        except SessionNotFoundError:  # a client that got no answer may call again: the tool is idempotent
            return DeleteResult(session_id=session_id, deleted=False, messages=0)


def program_tools(stash: LazyStash) -> list[StashTool]:
    """The tools that `--tools all` adds."""
    tools = ProgramTools(stash)
    return [
        StashTool.of(
            tools.record_messages,
            title="Record messages",
            description="Append messages; with first_seq, batch_id or whole, repeated ones are skipped."
            " Prunes and compacts automatically when due.",
            line=lines.record,
        ),
        StashTool.of(
            tools.get_context,
            title="Get context",
            description="The message list to send next: valid for the provider, within budget. What is shrunk stays"
            " shrunk.",
            line=lines.context,
            idempotent=True,
        ),
        StashTool.of(
            tools.recover_context,
            title="Recover context",
            description="After a request was refused as too long: shrink the session, get the messages to send.",
            line=lines.recover,
        ),
        StashTool.of(
            tools.list_sessions,
            title="List sessions",
            description="Sessions, last changed first.",
            line=lines.sessions,
            read_only=True,
            idempotent=True,
        ),
        StashTool.of(
            tools.configure_session,
            title="Configure session",
            description="Change a session's settings.",
            line=lines.configure,
            idempotent=True,
        ),
        StashTool.of(
            tools.delete_session,
            title="Delete session",
            description="Delete a session and everything in it permanently.",
            line=lines.delete,
            destructive=True,
            idempotent=True,
        ),
    ]
