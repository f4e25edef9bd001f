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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contextstash.library.replies import as_json, as_natives, read_reply
from contextstash.library.request import (
    CallArguments,
    ContextRequest,
    plain_system,
    plain_tools,
    request_of,
)
from contextstash.library.retrieval_tools import OFFERED, carried_out, tool_definitions
from contextstash.messages.detection import format_of_model, get_format, shown_format
from contextstash.window.refusals import recognize
from contextstash_storage.errors import BadInputError, ContextstashError, SessionNotFoundError
from contextstash_storage.records import Native

if TYPE_CHECKING:
    from contextstash.results import ContextResult
    from contextstash.stash import Stash


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
        self._is_ready = False
        self._last = CallArguments()
        self._known_room: tuple[int, int] | None = None
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
        given = CallArguments(self._model, system, tools, max_tokens, more)
        await self._make_ready(natives, system, tools)
        self._last = replace(given, model=self._model)
        result = await self._stash.get_context(
            self.session_id,
            messages=natives,
            system=plain_system(system),
            tools=plain_tools(tools),
            budget=None if max_tokens is None else await self._budget(max_tokens),
            seen=self._seen,
        )
        self._seen = result.next_seq
        if not result.messages:
            raise BadInputError(result.reason or "Nothing to send.")
        return await self._as_request(result)

    async def reply(self, reply: Any, *, usage: Any = None) -> list[Native]:
        """Record the provider's reply to the last request, with its usage, and return its messages: append them to the
        list. `reply` is the response of the provider's SDK, or its JSON; `usage` likewise, if that does not hold it."""
        read = read_reply(reply)
        reported = as_json(usage) if usage is not None else read.usage
        if read.messages:
            result = await self._stash.record_messages(
                read.messages,
                session_id=self.session_id,
                usage=reported,
                seen=self._seen,
            )
            self._seen = result.next_seq
        return read.messages

    async def recover(self, error: Exception) -> ContextRequest:
        """The request to send, once, after the provider refused the last one as too long for the window.

        Raises the error itself if it is about something else, and BadInputError, with what fills the window, if nothing
        can be made smaller.
        """
        text = str(error)
        if recognize(text) is None:
            raise error
        result = await self._stash.recover_context(
            self.session_id,
            error=text,
            system=plain_system(self._last.system),
            tools=plain_tools(self._last.tools),
        )
        if result.context is None:
            raise BadInputError(result.reason) from error
        self._known_room = None
        return await self._as_request(result.context, result.done)

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
            raise BadInputError(
                "Which provider's form should the tools have? Pass format='anthropic', 'openai-chat', …"
            )
        return tool_definitions(get_format(known).name)

    async def call_tool(self, name: str, arguments: str | Mapping[str, Any] | None = None) -> str | None:
        """The result of a call of one of `tools`, to be sent to the model; None if the tool is not one of them. The
        text of a wrong call names the mistake, so that the model can correct it."""
        if not isinstance(name, str) or name not in OFFERED:
            return None
        try:
            return await carried_out(self._stash, self.session_id, name, arguments)
        except ContextstashError as error:
            return f"Error: {error}"

    async def _as_request(self, result: ContextResult, done: Sequence[str] | None = None) -> ContextRequest:
        window, usable = await self._room()
        return request_of(result, self._last, window - usable, done or result.done or ())

    async def _budget(self, max_tokens: int) -> int:
        """The tokens of a request if the reply may take `max_tokens`: at most what the settings leave usable. Raises
        BadInputError if none are left."""
        window, usable = await self._room()
        if max_tokens >= window:
            raise BadInputError(
                f"max_tokens is {max_tokens:,}, and the window of {self._model or 'this session'} has {window:,}: no"
                " room is left for the conversation. Pass fewer max_tokens; or, if the window is larger, its size:"
                " stash.session(…, window=…)."
            )
        return min(usable, window - max_tokens)

    async def _room(self) -> tuple[int, int]:
        """Tokens of the window, and how many of them are usable. Only a recovery changes them: it knows the truth."""
        if self._known_room is None:
            found = await self._stash.estimate_context(self.session_id)
            self._known_room = found.window, found.usable
        return self._known_room

    async def _make_ready(self, natives: Sequence[Native], system: Any, tools: Sequence[Any] | None) -> None:
        """At the first request create the session, or give the one that exists its model and settings."""
        if self._is_ready:
            return
        session = await self._stash.open_session(
            self.session_id,
            default_format=lambda: shown_format(natives, tools=tools, system=system, model=self._model),
            settings=self._settings,
            format=self._format,
            model=self._model,
            **self._facts,
        )
        self._format, self._model = session.format, session.model
        self._is_ready = True
