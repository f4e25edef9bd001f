"""Resources: sessions and their contents, for clients that let a user or program attach context."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import INVALID_PARAMS

from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.sendable import clipped, dumped, sendable_text
from contextstash.mcp.surface.error_texts import report_crash
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash

MAX_LINES = 200
"""Messages, events or calls in one page; the size of a page of messages is limited by MAX_PAGE_CHARACTERS too."""

MAX_PAGE_CHARACTERS = 256_000
"""Longest page of messages, some 64,000 tokens: a page must fit into a window."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def positive(name: str, value: str, most: int = 2**53) -> int:
    """A number from a URI's query, at most `most`. Raises BadInputError if it is not a whole number."""
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise BadInputError(f"{name} must be a whole number, 0 or more.")
    return min(int(value), most)


def bounded_page(page: dict[str, Any]) -> str:
    """A page of messages as JSON, cut after the last message that fits. A message that is too large for a page is
    shown without its body."""
    room = MAX_PAGE_CHARACTERS
    kept: list[str] = []
    for line in page["messages"]:
        text = exact_json(line)
        if kept and len(text) > room:
            page["next_seq"] = line["seq"]
            break
        kept.append(text if len(text) <= room else exact_json(_without_body(line, len(text))))
        room -= len(kept[-1])
    rest = exact_json({name: value for name, value in page.items() if name != "messages"})
    return f'{rest[:-1]},"messages":[{",".join(kept)}]}}'


def _without_body(line: dict[str, Any], size: int) -> dict[str, Any]:
    shown = {name: value for name, value in line.items() if name != "message"}
    shown["left_out"] = f"{size:,} characters, too large for a page; get_archived_output pages its tool outputs"
    return shown


def exact_json(value: object) -> str:
    """JSON in which lone surrogates are escapes, so that the text can be sent and is read back equal."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


JSON = "application/json"
SESSION = "context://sessions/{session_id}"
ARCHIVE = "context://archive/{handle}"

MAX_SUMMARY_CHARACTERS = 200_000
"""Longest summary in a resource; contextstash itself writes at most 2,500 tokens, a client may pass longer ones."""

MAX_SESSIONS_LISTED = 50
"""Sessions in the resource, as in a page of list_sessions by default."""


Read = Callable[..., Awaitable[str]]
"""Reads a resource: the first argument is the stash, the others are the parameters of the URI."""


def add_resources(server: MCPServer[None], stash: LazyStash) -> None:
    """Register all resources and templates."""
    server.resource(
        "context://sessions",
        name="sessions",
        title="Sessions",
        description="All sessions, last changed first: their size, level and ids.",
        mime_type=JSON,
    )(_on(stash, _sessions))
    for uri, name, title, description, mime_type, read in _templates():
        server.resource(uri, name=name, title=title, description=description, mime_type=mime_type)(_on(stash, read))


def _templates() -> list[tuple[str, str, str, str, str, Read]]:
    session = "One session's estimate: tokens, window, level, breakdown and next step."
    messages = "A session's messages as recorded, `limit` (20, at most 200) from position `first` on."
    context = "The message list that a session would send next."
    summary = "The text of a session's summary."
    events = "Changes of a session's context with their reasons: `limit` (100, at most 200) events after `after`."
    calls = "A session's model calls with tokens and cost: `limit` (100, at most 200) calls after `after`."
    output = "A tool output word for word, from line `offset` on; its last line has the URI of the next page."
    paged = "{?after,limit}"
    return [
        (SESSION, "session", "Session", session, JSON, _session),
        (SESSION + "/messages{?first,limit}", "messages", "Messages", messages, JSON, _messages),
        (SESSION + "/context", "context", "Context", context, JSON, _context),
        (SESSION + "/summary", "summary", "Summary", summary, "text/markdown", _summary),
        (SESSION + "/events" + paged, "events", "Events", events, JSON, _events),
        (SESSION + "/calls" + paged, "calls", "Model calls", calls, JSON, _calls),
        (ARCHIVE + "{?offset}", "archived-output", "Archived output", output, "text/plain", _archived_output),
    ]


def _on(stash: LazyStash, read: Read) -> Read:
    """The reader on this stash. It raises the service's errors as the protocol's: not found, invalid params or a
    failure."""

    async def answer(*args: Any, **kwargs: Any) -> str:
        try:
            return await read(await stash.get(), *args, **kwargs)
        except NotFoundError as error:
            raise ResourceNotFoundError(sendable_text(str(error))) from None
        except BadInputError as error:
            raise MCPError(INVALID_PARAMS, sendable_text(str(error))) from None
        except ContextstashError as error:
            raise ResourceError(sendable_text(str(error))) from None
        except Exception as error:
            raise ResourceError(report_crash(f"Reading {read.__name__.strip('_')}", error)) from None

    # The SDK compares the parameters with those of the URI.
    parameters = list(inspect.signature(read).parameters.values())[1:]
    answer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    answer.__annotations__ = {**{each.name: str for each in parameters}, "return": str}
    return answer


async def _sessions(stash: Stash) -> str:
    return exact_json((await stash.list_sessions(limit=MAX_SESSIONS_LISTED)).model_dump(mode="json"))


async def _session(stash: Stash, session_id: str) -> str:
    return exact_json((await stash.estimate_context(session_id)).model_dump(mode="json"))


async def _messages(stash: Stash, session_id: str, first: str = "0", limit: str = "20") -> str:
    page = await stash.read_messages(
        session_id, first=positive("first", first), limit=positive("limit", limit, most=MAX_LINES)
    )
    return bounded_page(dumped(page))


async def _context(stash: Stash, session_id: str) -> str:
    return exact_json(dumped(await stash.read_context(session_id)))


async def _summary(stash: Stash, session_id: str) -> str:
    text = (await stash.get_summary(session_id)).summary
    return sendable_text(clipped(text, MAX_SUMMARY_CHARACTERS, "the summary is longer than a resource may be"))


async def _events(stash: Stash, session_id: str, after: str = "0", limit: str = "100") -> str:
    return await _logged(stash.read_events, "events", session_id, after, limit)


async def _calls(stash: Stash, session_id: str, after: str = "0", limit: str = "100") -> str:
    return await _logged(stash.read_calls, "calls", session_id, after, limit)


async def _logged(read: Callable[..., Awaitable[Any]], name: str, session_id: str, after: str, limit: str) -> str:
    found = await read(session_id, after=positive("after", after), limit=positive("limit", limit, most=MAX_LINES))
    listed = [each.model_dump(mode="json", exclude_none=True) for each in found]
    return exact_json({"session_id": session_id, name: listed})


async def _archived_output(stash: Stash, handle: str, offset: str = "1") -> str:
    page = await stash.get_archived_output(handle, offset=positive("offset", offset), max_tokens=8_000)
    text = sendable_text(page.text)
    if page.next_offset is None:
        return text
    return f"{text}\n[… continue at context://archive/{page.handle}?offset={page.next_offset} …]"
