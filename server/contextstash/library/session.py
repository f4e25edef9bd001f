"""One conversation of a program: `request` before each model call, `reply` after it.

    async with open_stash() as stash:
        session = stash.session("job-7", model="claude-opus-4-5")
        while True:
            request = await session.request(messages, system=system, tools=[*tools, *session.tools()])
            response = await client.messages.create(messages=request.messages, **request.options)
            messages += await session.reply(response)
            for call in calls_of(response):
                output = await session.call_tool(call.name, call.input) or await run(call)
                messages.append(result_of(call, output))

After a restart go on with `messages = await session.messages()`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextstash.library.replies import as_json, as_natives, read_reply
from contextstash.messages.detection import format_of_model, get_format, shown_format
from contextstash.messages.request import SERVER_STATE_KEYS
from contextstash.operations import OPERATIONS
from contextstash.results import ContextResult, SearchResult
from contextstash.window.refusals import recognize
from contextstash_storage.errors import BadInputError, ContextstashError, SessionNotFoundError
from contextstash_storage.records import Native, Session

if TYPE_CHECKING:
    from contextstash.stash import Stash

OPTION_NAMES = {
    "anthropic": ("system", "max_tokens"),
    "openai-chat": (None, "max_completion_tokens"),
    "openai-responses": ("instructions", "max_output_tokens"),
    "gemini": ("system_instruction", "max_output_tokens"),
}
"""By format, what the provider's SDK calls the system prompt, if it takes it beside the messages, and the most tokens
of a reply. Gemini's takes both, and the tools, in `config`."""

MAX_DEFAULT_REPLY = 16_000
"""Most tokens of a reply if a program names no `max_tokens` and the provider demands one. Anthropic's SDK refuses more
than 21,333 in a request that is not streamed (it expects that to take over ten minutes)."""

OFFERED = {
    "get_archived_output": ("handle", "offset", "limit", "pattern"),
    "search_history": ("query", "limit"),
}
"""The operations that are tools, and their arguments that a model is offered; the first is required."""

_TYPES = {str: "string", str | None: "string", int | None: "integer"}


class ContextRequest(ContextResult):
    """The request to send next: `client.messages.create(messages=request.messages, **request.options)`.

    `fits` is false only if system prompt, tools and what cannot be cut exceed the window; then `reason` says what takes
    the room. `left_out` says what was left out for want of room; search and retrieval find it.
    """

    options: dict[str, Any]

    def check_fits(self) -> None:
        """Raises BadInputError if the request does not fit: for adapters, which cannot ask the program."""
        if not self.fits:
            raise BadInputError(self.reason or "The conversation does not fit the window.")


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A program's further arguments of a call, in its provider's own form."""

    system: Any = None
    tools: Sequence[Any] | None = None
    max_tokens: int | None = None
    more: Mapping[str, Any] | None = None


class LibrarySession:
    """A session of a stash, for one agent at a time: a reply belongs to the request before it.

    If another agent records in it meanwhile, the next request or reply raises BadInputError."""

    def __init__(
        self,
        stash: Stash,
        session_id: str,
        *,
        model: str | None = None,
        format: str | None = None,
        settings: Mapping[str, Any] | None = None,
        **facts: str | None,
    ) -> None:
        """`facts` are the agent's name, a title and the parent session's id."""
        self.session_id = session_id
        self._stash = stash
        self._model = model
        self._format = None if format is None else get_format(format).name
        self._settings = dict(settings or {})
        self._facts = facts
        self._session: Session | None = None
        self._last = CallArguments()
        self._beside: dict[str, Any] = {}
        self._seen: int | None = None

    def speak(self, format: str) -> None:
        """Name the format of the messages, before the first request: for adapters, which know it."""
        self._format = get_format(format).name

    async def request(
        self,
        /,
        messages: Sequence[Any],
        *,
        system: Any = None,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        **more: Any,
    ) -> ContextRequest:
        """Record the whole conversation and return what to send: valid for the provider, within the window.

        `messages` is the program's own full list, oldest first, in its provider's form; it is not changed. Messages
        that were taken out of it or edited leave the view, and stay in the history. `system`, `tools` and `max_tokens`
        are counted and returned in `options`, as are all further arguments, for the provider's call.
        """
        natives = as_natives(messages)
        if not natives:
            raise BadInputError("messages is empty: pass the whole conversation, at least the user's first message.")
        if held := [name for name in SERVER_STATE_KEYS if more.get(name) is not None]:
            raise BadInputError(
                f"With {held[0]} the provider adds the conversation that it holds, and request.messages is the whole"
                f" of it already. Leave {held[0]} out."
            )
        if self._session is None:  # it is created, or the one that exists gets its model and settings
            self._session = await self._stash.open_session(
                self.session_id,
                default_format=lambda: shown_format(natives, tools=tools, system=system, model=self._model),
                settings=self._settings,
                format=self._format,
                model=self._model,
                **self._facts,
            )
            self._format, self._model = self._session.format, self._session.model
        self._last = CallArguments(system, tools, max_tokens, more)
        self._beside = {"system": plain_system(system), "tools": plain_tools(tools)}
        room = self._stash.limits(self._session)[1]
        if max_tokens is not None and max_tokens >= room.window:
            raise BadInputError(
                f"max_tokens is {max_tokens:,}, and the window of {self._model or 'this session'} has {room.window:,}:"
                " pass fewer; or, if the window is larger, its size: stash.session(…, window=…)."
            )
        budget = None if max_tokens is None else min(room.usable, room.window - max_tokens)
        result = await self._stash.get_context(
            self.session_id, messages=natives, budget=budget, seen=self._seen, **self._beside
        )
        self._seen = result.next_seq
        if not result.messages:
            raise BadInputError(result.reason or "Nothing to send.")
        return self._as_request(result, self._session)

    async def reply(self, reply: Any, *, usage: Any = None) -> list[Native]:
        """Record the provider's reply to the last request, with its usage, and return its messages: append them to the
        list. `reply` is the response of the provider's SDK, or its JSON; `usage` likewise, if that does not hold it."""
        messages, reported = read_reply(reply)
        if messages:
            given = reported if usage is None else as_json(usage)
            result = await self._stash.record_messages(
                messages, session_id=self.session_id, usage=given, seen=self._seen
            )
            self._seen = result.next_seq
        return messages

    async def recover(self, error: Exception) -> ContextRequest:
        """The request to send, once, after the provider refused the last one as too long for the window.

        Raises the error itself if it is about something else, and BadInputError, with what fills the window, if nothing
        can be made smaller.
        """
        text = str(error)
        if recognize(text) is None:
            raise error
        result = await self._stash.recover_context(self.session_id, error=text, **self._beside)
        if result.context is None:
            raise BadInputError(result.reason) from error
        self._session = await self._stash.read_session(self.session_id)  # its window is known better now
        return self._as_request(result.context.model_copy(update={"done": result.done}), self._session)

    async def messages(self) -> list[Native]:
        """The whole conversation as it was recorded, to go on with after a restart; empty if there is none yet."""
        try:
            return await self._stash.read_conversation(self.session_id)
        except SessionNotFoundError:
            return []

    def tools(self, format: str | None = None) -> list[dict[str, Any]]:
        """The definitions of two tools with which the model reads again what left its window, to be put among the
        request's tools. `format` is needed if the session was opened without one and its model does not show it."""
        known = format or self._format or format_of_model(self._model)
        if known is None:
            raise BadInputError("Which provider's form shall the tools have? Pass format='anthropic', 'openai-chat', …")
        fmt, tools = get_format(known), list[dict[str, Any]]()
        for name, offered in OFFERED.items():
            operation = OPERATIONS[name]
            given = {each: operation.arguments[each] for each in offered}
            properties = {each: {"type": _TYPES[of.type], "description": of.text} for each, of in given.items()}
            arguments = {"type": "object", "properties": properties, "required": [offered[0]]}
            tools.append({"name": name, "description": operation.description, fmt.schema_key: arguments})
        return fmt.tool_definitions(tools)

    async def call_tool(self, name: str, arguments: str | Mapping[str, Any] | None = None) -> str | None:
        """The result of a call of one of `tools`, to be sent to the model; None if the tool is not one of them. The
        text of a wrong call names the mistake, so that the model can correct it."""
        if not isinstance(name, str) or name not in OFFERED:
            return None
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
        except (ValueError, TypeError, RecursionError):
            given = None
        if not isinstance(given, dict) or given.keys() - set(OFFERED[name]):
            return f"Error: The arguments of {name} are a JSON object with {', '.join(OFFERED[name])}."
        try:
            checked = OPERATIONS[name].checked({**given, "session_id": self.session_id})
            result = await getattr(self._stash, name)(**checked)  # `run` takes the beginning of another session's id
        except ContextstashError as error:
            return f"Error: {error}"
        return _hits(result) if isinstance(result, SearchResult) else str(result.in_words())

    def _as_request(self, result: ContextResult, session: Session) -> ContextRequest:
        room = self._stash.limits(session)[1]
        return request_of(result, self._model, self._last, room.window - room.usable)


def request_of(result: ContextResult, model: str | None, given: CallArguments, reserve: int) -> ContextRequest:
    """The result of `get_context` as a request. `reserve` is how many tokens of the window are left for the reply.

    The program may mark its messages for the cache, while the session keeps what was recorded: the messages and their
    content blocks are copied, not what is inside those."""
    messages = [
        {key: [*map(copy, each)] if isinstance(each, list) else each for key, each in native.items()}
        for native in result.messages
    ]
    return ContextRequest.of(result, messages=messages, options=_options(result, model, given, reserve))


def _options(result: ContextResult, model: str | None, given: CallArguments, reserve: int) -> dict[str, Any]:
    system, limit = OPTION_NAMES[result.format]
    named: dict[str, Any] = {"tools": given.tools, limit: given.max_tokens}
    if result.format == "anthropic" and not given.max_tokens:
        named[limit] = min(reserve, MAX_DEFAULT_REPLY)
    if system is not None:
        named[system] = given.system if result.format == "gemini" else result.system
    named = {name: value for name, value in named.items() if value is not None}
    more = {**({} if model is None else {"model": model}), **(given.more or {})}
    if result.format == "gemini":
        return {**more, "config": {**named, **(more.get("config") or {})}}
    return _with_fields({**named, **more}, result.request or {})


def _with_fields(options: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the fields that a shortened request needs. `betas` becomes a header, which all methods take."""
    for name, value in fields.items():
        if name == "betas":
            headers = options.get("extra_headers") or {}
            betas = [headers.get("anthropic-beta"), *value]
            options["extra_headers"] = {**headers, "anthropic-beta": ",".join(filter(None, betas))}
        elif isinstance(value, Mapping):
            options[name] = {**value, **(options.get(name) or {})}
        else:
            options.setdefault(name, value)
    return options


def plain_system(system: object) -> str | list[dict[str, Any]] | None:
    """A system prompt as the service takes it: text, or a list of content blocks."""
    plain = as_json(list(system) if isinstance(system, tuple) else system)
    is_blocks = isinstance(plain, list) and all(isinstance(part, dict) for part in plain)
    return plain if is_blocks or plain is None else _text_of(plain)


def plain_tools(tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Tool definitions as the service takes them. Python functions, of which an SDK makes definitions, are left out."""
    if tools is None:
        return None
    return [plain for tool in tools if isinstance(plain := as_json(tool), dict)]


def _text_of(value: object) -> str:
    if isinstance(value, Mapping):
        return _text_of(value.get("text") or value.get("parts") or value.get("content") or "")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n\n".join(filter(None, map(_text_of, value)))
    return str(value)


def _hits(result: SearchResult) -> str:
    """The hits as the model reads them: where each was found, and its snippet."""
    shown = [f"{hit.handle or f'message {hit.seq}'}, {hit.role}:\n{hit.snippet}" for hit in result.hits]
    return "\n\n".join(shown) or str(result.note)
