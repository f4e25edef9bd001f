"""Resources, prompts and completions: what a user attaches or picks from a menu, without a call by the model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
from pydantic import Field

from contextstash.mcp.answers import told
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.operations import OPERATIONS
from contextstash.results import Result
from contextstash.safety.sanitize import encodable
from contextstash_storage.errors import BadInputError, NotFoundError
from contextstash_storage.records import Call, Event

if TYPE_CHECKING:
    from contextstash.stash import Stash

MAX_LINES = 200
"""Messages, events or calls in one page."""

MAX_VALUES = 100
"""The protocol's limit of values in one result of `completion/complete`."""


async def _messages(stash: Stash, session_id: str, first: str = "0", limit: str = "20") -> Result:
    # A page without a message would name itself as the next one.
    return await stash.read_messages(session_id, first=number("first", first), limit=max(1, lines(limit)))


async def _summary(stash: Stash, session_id: str) -> str:
    return (await stash.get_summary(session_id)).summary


def _log(name: str, kind: type[Event | Call]) -> Callable[..., Awaitable[Any]]:
    async def page(stash: Stash, session_id: str, after: str = "0", limit: str = "100") -> dict[str, Any]:
        found = await stash.store.read_log(session_id, kind, after=number("after", after), limit=lines(limit))
        return {"session_id": session_id, name: [each.model_dump(mode="json", exclude_none=True) for each in found]}

    return page


async def _output(stash: Stash, handle: str, offset: str = "1") -> str:
    page = await stash.get_archived_output(handle, offset=number("offset", offset), max_tokens=8_000)
    if page.next_offset is None:
        return page.text
    return f"{page.text}\n[… continue at context://archive/{page.handle}?offset={page.next_offset} …]"


class Resource(NamedTuple):
    """What a URI shows. `read` gets the stash and the URI's parameters; what it returns is sent as JSON, if it is no
    text."""

    uri: str
    description: str
    read: Callable[..., Awaitable[Any]]
    mime_type: str = "application/json"


SESSION = "context://sessions/{session_id}"

RESOURCES: Mapping[str, Resource] = {
    "sessions": Resource(
        "context://sessions",
        "All sessions, last changed first: their size, level and ids.",
        lambda stash: stash.list_sessions(),
    ),
    "session": Resource(
        SESSION,
        "One session's estimate: tokens, window, level, breakdown and next step.",
        lambda stash, session_id: stash.estimate_context(session_id),
    ),
    "messages": Resource(
        SESSION + "/messages{?first,limit}",
        "A session's messages as recorded, `limit` (20, at most 200) from position `first` on.",
        _messages,
    ),
    "context": Resource(
        SESSION + "/context",
        "The message list that a session would send next.",
        lambda stash, session_id: stash.read_context(session_id),
    ),
    "summary": Resource(SESSION + "/summary", "The text of a session's summary.", _summary, "text/markdown"),
    "events": Resource(
        SESSION + "/events{?after,limit}",
        "Changes of a session's context with their reasons: `limit` (100, at most 200) events after `after`.",
        _log("events", Event),
    ),
    "calls": Resource(
        SESSION + "/calls{?after,limit}",
        "A session's model calls with tokens and cost: `limit` (100, at most 200) calls after `after`.",
        _log("calls", Call),
    ),
    "archived-output": Resource(
        "context://archive/{handle}{?offset}",
        "A tool output word for word, from line `offset` on; its last line has the URI of the next page.",
        _output,
        "text/plain",
    ),
}
"""By their names."""


def add_resources(server: MCPServer[None], stash: LazyStash) -> None:
    """Register all resources and templates. Sessions are named by the beginning of their ids too."""
    for name, (uri, description, read, mime_type) in RESOURCES.items():
        title = name.replace("-", " ").capitalize()
        declare = server.resource(uri, name=name, title=title, description=description, mime_type=mime_type)
        declare(_reader(name, read, stash))


def _reader(name: str, read: Callable[..., Awaitable[Any]], stash: LazyStash) -> Callable[..., Awaitable[str]]:
    """The function that the SDK calls with the parameters of a URI, which it compares with the signature."""

    async def reader(**parameters: str) -> str:
        with protocol_errors(f"Reading {name}"):
            opened = await stash.get()
            if session := parameters.get("session_id"):
                parameters["session_id"] = await opened.whole_id(session)
            found = await read(opened, **parameters)
            plain = found.as_json() if isinstance(found, Result) else found
            text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
            return encodable(text)

    _, *taken = inspect.signature(read).parameters.values()
    vars(reader)["__signature__"] = inspect.Signature([each.replace(annotation=str) for each in taken])
    reader.__annotations__ = {each.name: str for each in taken}
    return reader


def number(name: str, value: str) -> int:
    """A number from a URI's query. Raises BadInputError if it is not a whole number."""
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise BadInputError(f"{name} must be a whole number, 0 or more.")
    return int(value)


def lines(limit: str) -> int:
    """The `limit` of a URI's query: how many lines a page has."""
    return min(number("limit", limit), MAX_LINES)


Session = Annotated[str | None, Field(description="Which session; the current one if left out")]
Instructions = Annotated[str | None, Field(description="What the summary must keep or leave out")]


def add_prompts(server: MCPServer[None], stash: LazyStash) -> None:
    """Register the prompts."""

    async def compact(session_id: Session = None, instructions: Instructions = None) -> str:
        from contextstash.writers import compaction_prompt

        return encodable(compaction_prompt(session_id=session_id, instructions=instructions))

    async def context_status(session_id: Session = None) -> str:
        with protocol_errors("The prompt"):
            opened = await stash.get()
            said = (await opened.context_status(session_id and await opened.whole_id(session_id))).in_words()
        return encodable(f"{said}\n\nTell me this in two or three sentences, and what you suggest.")

    async def handoff(session_id: Session = None) -> str:
        with protocol_errors("The prompt"):
            summary = await OPERATIONS["get_summary"].run(await stash.get(), session_id=session_id)
        return encodable(
            f"This continues session {summary.session_id}, whose messages {summary.first_seq} to {summary.last_seq} are"
            f" summarized here:\n\n{summary.summary}\n\nEverything else is still stored: search_history (session_id"
            f' "{summary.session_id}") finds it, get_archived_output reads outputs.'
            " Continue with the next step named above."
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
            with protocol_errors(f"Completing {argument.name}"):
                opened = await stash.get()
                if argument.name == "session_id":
                    found = await opened.complete_session_id(argument.value)
                else:
                    found = await opened.store.find_handles(argument.value, MAX_VALUES)
                values = list(map(encodable, found))
        return Completion(values=values)

    server.completion()(complete)  # type: ignore[no-untyped-call]


@contextmanager
def protocol_errors(doing: str) -> Iterator[None]:
    """Raises the service's errors as those of the protocol: a request that is wrong, or a failure of this server."""
    try:
        yield
    except Exception as error:
        code = INVALID_PARAMS if isinstance(error, BadInputError | NotFoundError) else INTERNAL_ERROR
        raise MCPError(code, told(doing, error)) from None
