"""Resources, prompts and completions: what a user attaches or picks from a menu, without a call by the model."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

from mcp import MCPError
from mcp.server import MCPServer
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from pydantic import BaseModel, Field

from contextstash.mcp.answers import dumped, sendable_text
from contextstash.mcp.errors import report_crash
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.operations import MAX_SUMMARY_CHARACTERS, clipped
from contextstash.session_names import whole_id
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

JSON = "application/json"
SESSION = "context://sessions/{session_id}"

MAX_LINES = 200
"""Messages, events or calls in one page."""

MAX_SUMMARY = 200_000
"""Longest summary in a resource, in characters; a client may pass longer ones than contextstash writes."""

MAX_SESSIONS_LISTED = 50
"""Sessions in the resource, as in a page of list_sessions by default."""

MAX_VALUES = 100
"""The protocol's limit of values in one result of `completion/complete`."""

Read = Callable[..., Awaitable[str]]

_SURROGATE = re.compile("[\ud800-\udfff]")


def add_resources(server: MCPServer[None], stash: LazyStash) -> None:
    """Register all resources and templates. Sessions are named by the beginning of their ids too."""

    def resource(uri: str, name: str, title: str, description: str, mime_type: str = JSON) -> Callable[[Read], Read]:
        declare = server.resource(uri, name=name, title=title, description=description, mime_type=mime_type)

        def declared(read: Read) -> Read:
            @wraps(read)
            async def answer(**parameters: str) -> str:
                with _protocol_errors(f"Reading {name}"):
                    if session := parameters.get("session_id"):
                        parameters["session_id"] = await whole_id(await stash.get(), session)
                    return await read(**parameters)

            declare(answer)
            return read

        return declared

    _add_contents(resource, stash)
    _add_logs(resource, stash)


def _add_contents(resource: Callable[..., Callable[[Read], Read]], stash: LazyStash) -> None:
    @resource(
        "context://sessions", "sessions", "Sessions", "All sessions, last changed first: their size, level and ids."
    )
    async def sessions() -> str:
        return _shown(await (await stash.get()).list_sessions(limit=MAX_SESSIONS_LISTED))

    what = "One session's estimate: tokens, window, level, breakdown and next step."

    @resource(SESSION, "session", "Session", what)
    async def session(session_id: str) -> str:
        return _shown(await (await stash.get()).estimate_context(session_id))

    what = "A session's messages as recorded, `limit` (20, at most 200) from position `first` on."

    @resource(SESSION + "/messages{?first,limit}", "messages", "Messages", what)
    async def messages(session_id: str, first: str = "0", limit: str = "20") -> str:
        start, most = positive("first", first), positive("limit", limit, most=MAX_LINES)
        return _shown(await (await stash.get()).read_messages(session_id, first=start, limit=most))

    @resource(SESSION + "/context", "context", "Context", "The message list that a session would send next.")
    async def context(session_id: str) -> str:
        return _shown(await (await stash.get()).read_context(session_id))

    @resource(SESSION + "/summary", "summary", "Summary", "The text of a session's summary.", "text/markdown")
    async def summary(session_id: str) -> str:
        text = (await (await stash.get()).get_summary(session_id)).summary
        return sendable_text(clipped(text, MAX_SUMMARY, "the summary is longer than a resource may be"))


def _add_logs(resource: Callable[..., Callable[[Read], Read]], stash: LazyStash) -> None:
    what = "Changes of a session's context with their reasons: `limit` (100, at most 200) events after `after`."

    @resource(SESSION + "/events{?after,limit}", "events", "Events", what)
    async def events(session_id: str, after: str = "0", limit: str = "100") -> str:
        return await _logged((await stash.get()).read_events, "events", session_id, after, limit)

    what = "A session's model calls with tokens and cost: `limit` (100, at most 200) calls after `after`."

    @resource(SESSION + "/calls{?after,limit}", "calls", "Model calls", what)
    async def calls(session_id: str, after: str = "0", limit: str = "100") -> str:
        return await _logged((await stash.get()).read_calls, "calls", session_id, after, limit)

    what = "A tool output word for word, from line `offset` on; its last line has the URI of the next page."

    @resource("context://archive/{handle}{?offset}", "archived-output", "Archived output", what, "text/plain")
    async def output(handle: str, offset: str = "1") -> str:
        start = positive("offset", offset)
        page = await (await stash.get()).get_archived_output(handle, offset=start, max_tokens=8_000)
        text = sendable_text(page.text)
        if page.next_offset is None:
            return text
        return f"{text}\n[… continue at context://archive/{page.handle}?offset={page.next_offset} …]"


def _shown(result: BaseModel) -> str:
    return exact_json(dumped(result))


async def _logged(read: Callable[..., Awaitable[Any]], name: str, session_id: str, after: str, limit: str) -> str:
    found = await read(session_id, after=positive("after", after), limit=positive("limit", limit, most=MAX_LINES))
    listed = [each.model_dump(mode="json", exclude_none=True) for each in found]
    return exact_json({"session_id": session_id, name: listed})


def positive(name: str, value: str, most: int = 2**53) -> int:
    """A number from a URI's query, at most `most`. Raises BadInputError if it is not a whole number."""
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise BadInputError(f"{name} must be a whole number, 0 or more.")
    return min(int(value), most)


def exact_json(value: object) -> str:
    """JSON in which halves of surrogate pairs are escapes, so that the text can be sent and is read back equal."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


Session = Annotated[str | None, Field(description="Which session; the current one if left out")]
Instructions = Annotated[str | None, Field(description="What the summary must keep or leave out")]

PROMPTS: dict[str, tuple[str, ...]] = {
    "compact": ("session_id", "instructions"),
    "context_status": ("session_id",),
    "handoff": ("session_id",),
}
"""Argument names by prompt."""


def add_prompts(server: MCPServer[None], stash: LazyStash) -> None:
    """Register the prompts."""

    async def compact(session_id: Session = None, instructions: Instructions = None) -> str:
        from contextstash.writers.prompts import compaction_prompt

        return sendable_text(compaction_prompt(session_id=session_id, instructions=instructions))

    async def context_status(session_id: Session = None) -> str:
        with _protocol_errors("The prompt"):
            said = (await (await stash.get()).context_status(session_id)).in_words()
        return sendable_text(f"{said}\n\nTell me this in two or three sentences, and what you suggest.")

    async def handoff(session_id: Session = None) -> str:
        with _protocol_errors("The prompt"):
            opened = await stash.get()
            session_id = (await opened.estimate_context(session_id)).session_id
            try:
                summary = await opened.get_summary(session_id)
            except NotFoundError:
                text = f"Session {session_id} has no summary yet: use the prompt compact there first."
                raise NotFoundError(text) from None
        text = clipped(summary.summary, MAX_SUMMARY_CHARACTERS, "get_summary and search_history have it")
        return sendable_text(
            f"This continues session {session_id}, whose messages {summary.first_seq} to {summary.last_seq} are"
            f" summarized here:\n\n{text}\n\nEverything else is still stored: search_history (session_id"
            f' "{session_id}") finds it, get_archived_output reads outputs. Continue with the next step named above.'
        )

    for prompt, title, description in (
        (compact, "Compact this session", "Write a hand-off summary and replace the older messages by it."),
        (context_status, "Context status", "How full the context window is, with what, and what to do next."),
        (handoff, "Hand-off", "The summary of a session, to continue it in a new window."),
    ):
        server.prompt(prompt.__name__, title=title, description=description)(prompt)


def add_completions(server: MCPServer[None], stash: LazyStash) -> None:
    """Complete session ids and handles by their first characters."""

    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        values: list[str] = []
        if argument.name in ("session_id", "handle"):
            with _protocol_errors(f"Completing {argument.name}"):
                opened = await stash.get()
                find = opened.complete_session_id if argument.name == "session_id" else opened.complete_handle
                values = [sendable_text(value) for value in await find(argument.value)]
        return Completion(values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES)

    server.completion()(complete)  # type: ignore[no-untyped-call]


@contextmanager
def _protocol_errors(doing: str) -> Iterator[None]:
    """Raises the service's errors as those of the protocol: a request that is wrong, or a failure of this server."""
    try:
        yield
    except MCPError:
        raise
    except (BadInputError, NotFoundError) as error:
        raise MCPError(INVALID_PARAMS, sendable_text(str(error))) from None
    except ContextstashError as error:
        raise MCPError(INTERNAL_ERROR, sendable_text(str(error))) from None
    except Exception as error:
        raise MCPError(INTERNAL_ERROR, report_crash(doing, error)) from None
