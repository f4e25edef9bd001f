"""Requests that a server sends to the client during a call: passed on to the client that made the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    INVALID_REQUEST,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
)

from contextstash.context.text.sanitize import one_line

Request = ServerRequestContext[Any, Any]

MAX_ASKED = 4
"""Questions of one server that are open at once: each is a dialog before a person."""


class Backchannel:
    """Passes on requests for elicitation, sampling and roots, if the client supports them. Such a request does not say
    to which call it belongs, so it is sent for the client's newest call to that server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._asked = 0
        self._open: list[Request] = []

    @contextmanager
    def during(self, request: Request) -> Iterator[None]:
        """While this context is open, the server's requests are sent on behalf of this client request."""
        self._open.append(request)
        try:
            yield
        finally:
            self._open.remove(request)

    def callbacks(self, capabilities: ClientCapabilities | None) -> dict[str, Any]:
        """The arguments with which an SDK client declares and handles the same capabilities as our own client."""
        found: dict[str, Any] = {}
        if capabilities and capabilities.elicitation:
            found["elicitation_callback"] = self._elicit
        if capabilities and capabilities.sampling:
            found["sampling_callback"] = self._sample
            found["sampling_capabilities"] = capabilities.sampling
        if capabilities and capabilities.roots:
            found["list_roots_callback"] = self._list_roots
        return found

    async def _elicit(self, _: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        answer: ElicitResult | ErrorData = await self._ask(ElicitRequest(params=self._named(params)), ElicitResult)
        return answer

    def named(self, result: InputRequiredResult) -> InputRequiredResult:
        """A result that asks the user, with the server's name in each question."""
        asked = {
            key: each.model_copy(update={"params": self._named(each.params)})
            if isinstance(each, ElicitRequest)
            else each
            for key, each in (result.input_requests or {}).items()
        }
        return result.model_copy(update={"input_requests": asked}) if asked else result

    def _named(self, params: ElicitRequestParams) -> ElicitRequestParams:
        """The question as the server's: the client knows only the gateway, and a server could pass for it."""
        return params.model_copy(update={"message": f"{asker(self._server)} asks: {params.message}"})

    async def _sample(
        self, _: Any, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        kind = CreateMessageResultWithTools if params.tools else CreateMessageResult
        answer: CreateMessageResult | CreateMessageResultWithTools | ErrorData = await self._ask(
            CreateMessageRequest(params=params), kind
        )
        return answer

    async def _list_roots(self, _: Any) -> ListRootsResult | ErrorData:
        answer: ListRootsResult | ErrorData = await self._ask(ListRootsRequest(), ListRootsResult)
        return answer

    async def _ask(self, request: Any, answer: Any) -> Any:
        if not self._open:
            return ErrorData(
                code=INVALID_REQUEST, message="No client call is in progress, so this request cannot be passed on."
            )
        if self._asked >= MAX_ASKED:
            return ErrorData(code=INVALID_REQUEST, message=f"{MAX_ASKED} questions are open. Wait for their answers.")
        call = self._open[-1]
        self._asked += 1
        metadata = ServerMessageMetadata(related_request_id=call.request_id)
        try:
            return await call.session.send_request(request, answer, metadata=metadata)
        except MCPError as error:
            return error.error
        finally:
            self._asked -= 1


def asker(server: str) -> str:
    """How a question names the server that asks it."""
    return f"The server '{one_line(server, 60)}'"
