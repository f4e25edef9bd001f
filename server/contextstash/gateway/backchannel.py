"""What a server asks of the client while it works on a call: passed on to the client that made the call."""

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
    """Passes on elicitation, sampling and roots, as far as the client has them. Such a request does not say on which
    call it belongs to: it goes to the client's newest call to that server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._asked = 0
        self._open: list[Request] = []

    @contextmanager
    def during(self, request: Request) -> Iterator[None]:
        """While this lasts, what the server asks is asked on behalf of this request."""
        self._open.append(request)
        try:
            yield
        finally:
            self._open.remove(request)

    def callbacks(self, capabilities: ClientCapabilities | None) -> dict[str, Any]:
        """What an SDK client needs to declare and do what our own client declares and does."""
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
            return ErrorData(code=INVALID_REQUEST, message="No call is open on whose behalf this could be asked.")
        if self._asked >= MAX_ASKED:
            return ErrorData(code=INVALID_REQUEST, message=f"{MAX_ASKED} questions are open. Wait for their answers.")
        asking = self._open[-1]
        self._asked += 1
        metadata = ServerMessageMetadata(related_request_id=asking.request_id)
        try:
            return await asking.session.send_request(request, answer, metadata=metadata)
        except MCPError as error:
            return error.error
        finally:
            self._asked -= 1


def asker(server: str) -> str:
    """How a question names the server that asks it."""
    return f"The server '{one_line(server, 60)}'"
