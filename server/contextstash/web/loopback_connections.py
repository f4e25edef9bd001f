"""HTTP connections that are closed if no request comes on them: uvicorn waits for the first one without end."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0
"""How long a new connection may take until its first request has arrived with all its headers, and any further one from
its first byte on. A slow network takes some seconds. Idle connections between two requests have uvicorn's own
limit."""


class TimedConnection(H11Protocol):
    """uvicorn's protocol with a time limit for the line and headers of a request."""

    seconds = REQUEST_SECONDS
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._limit = self.loop.call_later(self.seconds, self._end_without_request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the rest of a request, or end to."""
        super().data_received(data)
        if not self._waits_for_request():
            self._wait_no_longer()
        elif self._limit is None:
            self._limit = self.loop.call_later(self.seconds, self._end_without_request)

    def _waits_for_request(self) -> bool:
        """Whether no request is running: the last one, if any, has its response."""
        return self.cycle is None or self.cycle.response_complete

    def _wait_no_longer(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end_without_request(self) -> None:
        self._limit = None
        if self._waits_for_request() and not self.transport.is_closing():
            self.transport.close()
