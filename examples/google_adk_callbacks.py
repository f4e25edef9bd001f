"""Google ADK: callbacks of an agent around its model calls.

    stashed = StashCallbacks(stash.session("job-7", window=200_000))
    agent = LlmAgent(
        model="gemini-3-pro", tools=[*tools, *stashed.tools()],
        before_model_callback=stashed.before_model, after_model_callback=stashed.after_model,
        on_model_error_callback=stashed.on_model_error,
    )

ADK's own session keeps all events; only the request changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from google.adk.models import LlmRequest, LlmResponse
from google.genai import types

from contextstash.adapters.parts import Part, parts_sent
from contextstash.library.replies import as_json, as_natives
from contextstash.library.session import LibrarySession
from contextstash_storage.records import Native

FORMAT = "gemini"


class StashCallbacks:
    """Keeps each model call of an agent within the window, and books the usage that comes back. One for each
    conversation of an agent."""

    def __init__(self, session: LibrarySession) -> None:
        session.speak(FORMAT)
        self._session = session

    async def before_model(self, callback_context: Any, llm_request: LlmRequest) -> None:
        """For `before_model_callback`: the request's contents become what contextstash returns."""
        given = as_natives(llm_request.contents)
        config = llm_request.config
        request = await self._session.request(
            given,
            system=config.system_instruction,
            tools=config.tools,
            max_tokens=config.max_output_tokens,
        )
        request.check_fits()
        llm_request.contents = _contents(llm_request.contents, given, request.messages)

    async def after_model(self, callback_context: Any, llm_response: LlmResponse) -> None:
        """For `after_model_callback`: record the reply and its usage. Parts of a streamed reply are waited for."""
        if llm_response.partial or llm_response.content is None:
            return
        reply = as_json(llm_response.content)
        usage = as_json(llm_response.usage_metadata)
        await self._session.reply({"role": "model", **reply}, usage=usage if usage else None)

    async def on_model_error(self, callback_context: Any, llm_request: LlmRequest, error: Exception) -> None:
        """For `on_model_error_callback`: after a request that was too long the next one is smaller. ADK raises the
        error in any case; run the agent again."""
        await self._session.recover(error)

    def tools(self) -> list[Callable[..., Any]]:
        """The two tools with which the model reads again what left its window, to be put among the agent's."""
        session = self._session

        async def get_archived_output(handle: str, offset: int = 1, limit: int = 0, pattern: str = "") -> str:
            """Read a tool output that was replaced by a placeholder or cut, by its handle (out_…): a page of lines from
            `offset` on, at most `limit` if that is not 0, or only those that match the regular expression `pattern`."""
            named = {"handle": handle, "offset": offset, "limit": limit or None, "pattern": pattern or None}
            return str(await session.call_tool("get_archived_output", named))

        async def search_history(query: str) -> str:
            """Search everything in this conversation, also what is no longer shown, by words."""
            return str(await session.call_tool("search_history", {"query": query}))

        return [get_archived_output, search_history]


def _contents(own: Sequence[types.Content], given: Sequence[Native], sent: Sequence[Native]) -> list[types.Content]:
    """The request as ADK's contents; those that are sent whole are the request's own objects."""
    parts = [Part(native["role"], native, (at, 0)) for at, native in enumerate(given)]
    return [
        own[part.source[0]] if part.source else types.Content.model_validate_json(json.dumps(part.block))
        for part in parts_sent(sent, parts, FORMAT)
    ]
