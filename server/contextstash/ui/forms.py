"""Bodies of the pages' forms: small, sent at once, and few at a time."""

from __future__ import annotations

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from contextstash.web.request_limits import ConcurrencyLimit

FORM_SECONDS = 10.0
"""Seconds that a form may take to arrive. A browser sends one at once."""

MAX_FORMS = 32
"""Forms that are read at a time; further ones are refused. Any visitor may send one, and each slow one counts among the
requests that the server runs at most: without this limit, a thousand slow ones would stop the server for all."""


class Forms:
    """Reads the bodies of forms."""

    def __init__(self, most: int = MAX_FORMS, seconds: float = FORM_SECONDS) -> None:
        self._places = ConcurrencyLimit(most)
        self._seconds = seconds

    async def read(self, request: Request, max_bytes: int) -> bytes | Response:
        """The body of a form, or the response to one that is too large, too slow, or one too many."""
        with self._places.take("all") as is_free:
            if not is_free:
                text = "Too many forms arrive at the moment. Try again."
                return PlainTextResponse(text, 503, {"retry-after": "1"})
            try:
                with anyio.fail_after(self._seconds):
                    return await _body(request, max_bytes)
            except TimeoutError:
                return PlainTextResponse("The form did not arrive in time.", 408, {"connection": "close"})
            except ClientDisconnect:
                return PlainTextResponse("The form did not arrive.", 400)


async def _body(request: Request, max_bytes: int) -> bytes | Response:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            text = f"This form is larger than {max_bytes:,} bytes."
            return PlainTextResponse(text, 413, {"connection": "close"})
    return body
