"""The tools for programs with an agent loop: record messages, get the list to send, manage sessions.

Each function declares a tool, as in agent_tools.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.surface import result_lines as lines
from contextstash.mcp.surface.argument_types import JsonObject, Messages, NamedSession, SessionId, System, Tools, Usage
from contextstash.mcp.surface.tool import StashTool, declared
from contextstash.results import ConfigureResult, ContextResult, DeleteResult, RecordResult, RecoverResult, SessionList
from contextstash_storage.errors import SessionNotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash

MAX_SESSIONS = 100
"""Sessions in one page, some 10,000 tokens: clients warn above that or cut the answer."""


@declared("Record messages", lines.record, idempotent=False, creates=True)
async def record_messages(
    messages: Annotated[Messages, Field(description="In the provider's own JSON, oldest first")],
    session_id: Annotated[str | None, Field(description="Created if new; default: current")] = None,
    first_seq: Annotated[int | None, Field(strict=True, description="Of the first message: previous next_seq")] = None,
    batch_id: Annotated[str | None, Field(description="To repeat this batch safely")] = None,
    whole: Annotated[bool, Field(description="The whole conversation")] = False,
    format: Annotated[
        str | None, Field(description="openai-chat, openai-responses, anthropic or gemini; default: detected")
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
    """Append messages; with first_seq, batch_id or whole, repeated ones are skipped. Prunes and compacts
    automatically when due."""


@declared("Get context", lines.context, creates=True)
async def get_context(
    session_id: SessionId = None,
    messages: Annotated[Messages | None, Field(description="Whole conversation, to record")] = None,
    system: System = None,
    tools: Tools = None,
    usage: Usage = None,
    budget: Annotated[int | None, Field(description="Tokens; default: usable")] = None,
    format: Annotated[str | None, Field(description="As in record_messages")] = None,
    model: Annotated[str | None, Field(description="Model of the session")] = None,
) -> ContextResult:
    """The message list to send next: valid for the provider, within budget. What is shrunk stays shrunk."""


@declared("Recover context", lines.recover, idempotent=False)
async def recover_context(
    error: Annotated[str, Field(description="The provider's error, unchanged")],
    session_id: SessionId = None,
    system: System = None,
    tools: Tools = None,
) -> RecoverResult:
    """After a request was refused as too long: shrink the session, get the messages to send."""


async def _listed(stash: Stash, limit: int, cursor: str | None) -> SessionList:
    return await stash.list_sessions(limit=max(1, min(limit, MAX_SESSIONS)), cursor=cursor)


@declared("List sessions", lines.sessions, read_only=True, call=_listed)
async def list_sessions(
    limit: Annotated[int, Field(description="At most 100")] = 50,
    cursor: Annotated[str | None, Field(description="next_cursor of the previous result")] = None,
) -> SessionList:
    """Sessions, last changed first."""


@declared("Configure session", lines.configure)
async def configure_session(
    settings: Annotated[JsonObject | None, Field(description="Such as window")] = None,
    pin: Annotated[list[str] | None, Field(description="Handles or paths to keep")] = None,
    unpin: Annotated[list[str] | None, Field(description="Remove")] = None,
    session_id: SessionId = None,
) -> ConfigureResult:
    """Change a session's settings."""


async def _deleted(stash: Stash, session_id: str) -> DeleteResult:
    try:
        return await stash.delete_session(session_id)
    except SessionNotFoundError:  # a client that got no answer may call again: the tool is idempotent
        return DeleteResult(session_id=session_id, deleted=False, messages=0)


@declared("Delete session", lines.delete, destructive=True, call=_deleted)
async def delete_session(session_id: NamedSession) -> DeleteResult:
    """Delete a session and everything in it permanently."""


def program_tools(stash: LazyStash) -> list[StashTool]:
    """The tools that `--tools all` adds."""
    declarations = (record_messages, get_context, recover_context, list_sessions, configure_session, delete_session)
    return [declaration.on(stash) for declaration in declarations]
