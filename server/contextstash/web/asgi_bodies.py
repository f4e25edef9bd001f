"""Bodies of HTTP requests that were read before the application asks for them."""

from __future__ import annotations

from typing import Any


def replayed(body: bytes, receive: Any) -> Any:
    """An ASGI `receive` that returns this body first, and then the following events."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay
