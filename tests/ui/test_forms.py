"""Forms of the pages: those that are slow, large or many hold up nobody."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from contextstash.ui import forms, guard
from contextstash.ui.forms import Forms
from contextstash.ui.guard import Guard
from contextstash.web.host_names import OwnHosts


class Exchange:
    """A form that a stranger sends to the entrance, and the response."""

    def __init__(self, *parts: bytes, ends: bool) -> None:
        self._events: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if ends:
            self._events.append({"type": "http.request", "body": b"", "more_body": False})
        self.statuses: list[int] = []

    async def run(self, app: Any) -> None:
        """Send it to the application."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/ui/enter",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
        }
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if not self._events:
            await anyio.sleep_forever()
        return self._events.pop(0)

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])


async def no_pages(*_: Any) -> None:
    raise AssertionError("nobody may come here")


async def no_tokens() -> Any:
    raise AssertionError("no token is looked up")


def entrance() -> Guard:
    return Guard(no_pages, "secret", "/ui", OwnHosts(), no_tokens)


async def test_strangers_hold_no_more_requests_than_a_few_by_slow_forms() -> None:
    app, more = entrance(), Exchange(b"token=", ends=False)
    async with anyio.create_task_group() as group:
        for _ in range(forms.MAX_FORMS):
            group.start_soon(Exchange(b"token=", ends=False).run, app)
        await anyio.wait_all_tasks_blocked()
        await more.run(app)
        group.cancel_scope.cancel()
    assert more.statuses == [503]


async def test_a_place_is_free_again_after_each_form_however_it_ended() -> None:
    app = entrance()
    for _ in range(forms.MAX_FORMS + 1):
        large = Exchange(b"x" * (guard.MAX_ENTRANCE_BYTES + 1), ends=False)
        await large.run(app)
        assert large.statuses == [413]


async def test_a_form_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    app = entrance()
    monkeypatch.setattr(app, "_entrances", Forms(seconds=0))
    slow = Exchange(b"token=", ends=False)
    await slow.run(app)
    assert slow.statuses == [408]
